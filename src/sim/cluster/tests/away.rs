//! Tests of injected faults, denied requests, a stopped server, dropped events and request counters.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use serde_json::json;

use super::{Cluster, Fault, RequestInfo, cluster, config_map};
use crate::machine::BUSY;

fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client("test"), "default")
}

#[tokio::test(start_paused = true)]
async fn a_fault_delays_rejects_resets_or_hangs_until_its_guard_is_dropped() {
    let cluster = cluster();
    let api = maps(&cluster);
    let creates = |fault: Fault| {
        move |request: &RequestInfo| match request.verb.as_str() {
            "create" => fault.clone(),
            _ => Fault::Pass,
        }
    };
    let guard = cluster.faults().add(creates(Fault::Status(500, None)));
    let refused = api.create(&PostParams::default(), &config_map("a")).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 500));
    drop(guard);
    let guard = cluster.faults().add(creates(Fault::ResetBefore));
    assert!(
        api.create(&PostParams::default(), &config_map("a"))
            .await
            .is_err()
    );
    assert!(api.get_opt("a").await.unwrap().is_none());
    drop(guard);
    let guard = cluster.faults().add(creates(Fault::Hang));
    let (params, map) = (PostParams::default(), config_map("a"));
    let hanging = tokio::time::timeout(Duration::from_secs(3600), api.create(&params, &map));
    assert!(hanging.await.is_err());
    drop(guard);
    let start = tokio::time::Instant::now();
    let guard = cluster
        .faults()
        .add(creates(Fault::Delay(Duration::from_secs(7))));
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_denied_verb_is_forbidden_and_access_reviews_agree() {
    let cluster = cluster();
    let _guard = cluster.deny(|request| {
        request.user_agent == "test" && request.verb == "delete" && request.resource == "pods"
    });
    let pods: Api<Pod> = Api::namespaced(cluster.client("test"), "default");
    let refused = pods.delete("p", &DeleteParams::default()).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("the delete is refused");
    };
    assert_eq!(status.code, 403);
    assert_eq!(
        status.message,
        r#"pods "p" is forbidden: User "system:serviceaccount:yurt-ds:yurt-ds-controller" cannot delete resource "pods" in API group "" in the namespace "default""#
    );
    for (client, verb, allowed) in [
        ("test", "delete", false),
        ("test", "get", true),
        ("other", "delete", true),
    ] {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client(client));
        let review = serde_json::from_value(json!({
            "metadata": {},
            "spec": { "resourceAttributes": { "verb": verb, "resource": "pods" } },
        }))
        .unwrap();
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .unwrap();
        assert_eq!(answer.status.unwrap().allowed, allowed, "{client} {verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_server_does_not_respond_and_keeps_its_objects() {
    let cluster = cluster();
    let api = maps(&cluster);
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let mut watch = api
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    assert!(watch.try_next().await.unwrap().is_some());
    cluster.stop();
    assert!(!matches!(watch.next().await, Some(Ok(_))));
    assert!(api.get("a").await.is_err());
    cluster.start();
    assert!(api.get_opt("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_old_watches_and_pages_are_expired() {
    let cluster = cluster();
    let api = maps(&cluster);
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let page = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.metadata.remaining_item_count, Some(1));
    let token = page.metadata.continue_.unwrap();
    let rest = ListParams::default().limit(2).continue_token(&token);
    assert_eq!(api.list(&rest).await.unwrap().items.len(), 1);
    api.create(&PostParams::default(), &config_map("d"))
        .await
        .unwrap();
    cluster.compact();
    let old = page.metadata.resource_version.unwrap();
    let mut watch = api
        .watch(&WatchParams::default(), &old)
        .await
        .unwrap()
        .boxed();
    let Some(WatchEvent::Error(status)) = watch.try_next().await.unwrap() else {
        panic!("an old watch gets an error event");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let expired = api.list(&rest).await;
    assert!(matches!(expired, Err(kube::Error::Api(status)) if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks_and_ends_at_its_timeout() {
    let cluster = cluster();
    let api = maps(&cluster);
    let params = WatchParams::default().timeout(150);
    let events: Vec<_> = api.watch(&params, "0").await.unwrap().collect().await;
    assert_eq!(events.len(), 2);
    for event in events {
        assert!(matches!(event.unwrap(), WatchEvent::Bookmark(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_client_verb_and_code() {
    let cluster = cluster();
    let api = maps(&cluster);
    api.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    for _ in 0..2 {
        assert!(
            api.create(&PostParams::default(), &config_map("a"))
                .await
                .is_err()
        );
    }
    let counts: Vec<_> = cluster
        .requests()
        .into_iter()
        .map(|count| {
            (
                count.user_agent,
                count.verb,
                count.resource,
                count.code,
                count.number,
            )
        })
        .collect();
    let count = |code, number| {
        (
            "test".to_owned(),
            "create".to_owned(),
            "configmaps".to_owned(),
            code,
            number,
        )
    };
    assert_eq!(counts, [count(201, 1), count(409, 2)]);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_names_and_uids() {
    let play = async || {
        let api = maps(&cluster());
        let prefixed =
            serde_json::from_value(json!({ "metadata": { "generateName": "a-" } })).unwrap();
        let made = api.create(&PostParams::default(), &prefixed).await.unwrap();
        (made.metadata.name.unwrap(), made.metadata.uid.unwrap())
    };
    assert_eq!(play().await, play().await);
}

#[tokio::test]
async fn a_socket_serves_until_shutdown_and_refuses_while_the_server_is_stopped() {
    let cluster = cluster();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    let server = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.serve(listener, async { drop(closed.await) }).await })
    };
    let ask = async || {
        tokio::task::spawn_blocking(move || ask_readyz(address).unwrap_or_default())
            .await
            .unwrap()
    };
    assert!(ask().await.starts_with("HTTP/1.1 200"));
    cluster.stop();
    assert_eq!(ask().await, "");
    cluster.start();
    assert!(ask().await.starts_with("HTTP/1.1 200"));
    close.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5) * BUSY, server).await;
    ended.expect("the server ends").unwrap().unwrap();
}

fn ask_readyz(address: std::net::SocketAddr) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
