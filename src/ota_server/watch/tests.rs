use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;

use super::*;
use crate::clock::Clock;

const GOOD: &str = r#"{"metadata":{"name":"good","namespace":"n","resourceVersion":"5"}}"#;
const ODD: &str =
    r#"{"metadata":{"name":"odd","namespace":"n","resourceVersion":"6","ownerReferences":7}}"#;
const EMPTY: &str = r#"{"metadata":{"resourceVersion":"4"},"items":[]}"#;

/// Response of the test server to one request.
#[derive(Clone, Debug)]
enum Says {
    /// Status 200 with this text, then the end of the response.
    Text(String),
    /// Another status with this text.
    Status(u16, String),
    /// The connection is refused.
    Nothing,
    /// The connection is accepted, but no response follows.
    Silence,
}

/// Times and URIs of received requests.
type Asked = Arc<Mutex<Vec<(Instant, String)>>>;

/// Starts an API server. `says` computes each response from the URI and the number of earlier requests.
fn server(says: impl Fn(&str, usize) -> Says + Send + Sync + 'static) -> (Client, Asked) {
    let asked = Asked::default();
    let (asking, says) = (asked.clone(), Arc::new(says));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        let mut asking = asking.lock().unwrap();
        let says = says(&uri, asking.len());
        asking.push((Instant::now(), uri));
        async move {
            let (status, text) = match says {
                Says::Text(text) => (200, text),
                Says::Status(status, text) => (status, text),
                Says::Nothing => return Err(std::io::Error::other("refused")),
                Says::Silence => std::future::pending().await,
            };
            let mut response = Response::new(Full::new(bytes::Bytes::from(text)));
            *response.status_mut() = status.try_into().unwrap();
            Ok(response)
        }
    });
    (Client::new(service, "default"), asked)
}

fn text(text: &str) -> Says {
    Says::Text(text.to_owned())
}

fn status(code: u16, details: &str) -> Says {
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","code":{code}{details}}}"#
    );
    Says::Status(code, text)
}

fn is_watch(uri: &str) -> bool {
    uri.contains("watch=true")
}

fn watch(client: Client) -> NodeWatch {
    NodeWatch {
        client,
        node: "edge".to_owned(),
        pod_cache: PodCache::default(),
        last_sync: LastSync::new(Clock::starting_at("2030-01-01T00:00:00Z".parse().unwrap())),
        cloud: Cloud::default(),
    }
}

fn names(pod_cache: &PodCache) -> Vec<String> {
    let pods = pod_cache.pods().unwrap_or_default();
    pods.iter().map(|pod| pod.key().name.clone()).collect()
}

/// Returns the requests of the first `minutes`, with their times in seconds since the start.
async fn asked_in(
    minutes: u64,
    says: impl Fn(&str, usize) -> Says + Send + Sync + 'static,
) -> Vec<(f64, String)> {
    let (client, asked) = server(says);
    let start = Instant::now();
    let watching = tokio::spawn(watch(client).run());
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    watching.abort();
    let asked = asked.lock().unwrap();
    let asked = asked.iter();
    asked
        .map(|(at, uri)| ((*at - start).as_secs_f64(), uri.clone()))
        .collect()
}

/// Asserts that at least five seconds lie between two requests. Only the second request may follow the first one immediately.
///
/// Also asserts that there is about one attempt per minute, and that each attempt consists of `requests` requests.
#[track_caller]
fn is_patient(asked: &[(f64, String)], minutes: u64, requests: usize) {
    for (number, pair) in asked.windows(2).enumerate() {
        let between = pair[1].0 - pair[0].0;
        assert!(number == 0 || between >= 5.0, "{pair:?}");
    }
    let expected = usize::try_from(minutes).unwrap() * requests;
    assert!(
        (expected * 4 / 5..=expected + 2 * requests + 1).contains(&asked.len()),
        "{} requests in {minutes} minutes",
        asked.len()
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_pod_affects_only_itself() {
    let list = format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{ODD},{GOOD},3,{{}}]}}"#);
    let broken = GOOD.replace(r#""5""#, r#""8","ownerReferences":7"#);
    let next = GOOD
        .replace("good", "next")
        .replace(r#""5""#, r#""9","labels":7"#);
    let events = format!(
        "{{\"type\":\"ADDED\",\"object\":{next}}}\n{{\"type\":\"MODIFIED\",\"object\":{broken}}}\ngarbage\n"
    );
    let bookmark = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"}}}"#;
    let (client, asked) = server(move |_, number| match number {
        0 => text(&list),
        1 => text(&events),
        2 => text(bookmark),
        _ => Says::Silence,
    });
    let watch = watch(client);
    let pod_cache = watch.pod_cache.clone();
    let watching = tokio::spawn(watch.run());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(names(&pod_cache), ["next"]);
    assert!(!pod_cache.is_live());
    tokio::time::sleep(Duration::from_secs(130)).await;
    let asked = asked.lock().unwrap();
    let expected = [
        "limit=500",
        "resourceVersion=4",
        "resourceVersion=8",
        "resourceVersion=12",
    ];
    for ((_, uri), expected) in asked.iter().zip(expected) {
        assert!(uri.contains(expected), "{expected} in {uri}");
        assert!(uri.contains("fieldSelector=spec.nodeName%3Dedge"), "{uri}");
    }
    assert!(asked.len() >= 4);
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_gets_one_request_a_minute() {
    let asked = asked_in(60, |_, _| Says::Nothing).await;
    is_patient(&asked, 60, 1);
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_server_gets_one_request_a_minute() {
    let asked = asked_in(60, |_, _| Says::Silence).await;
    is_patient(&asked, 60, 1);
    let asked = asked_in(60, |uri, _| {
        if is_watch(uri) {
            Says::Silence
        } else {
            text(EMPTY)
        }
    });
    is_patient(&asked.await, 60, 1);
}

/// The server behaves like a tunnel whose other end is down, or a load balancer without a backend.
#[tokio::test(start_paused = true)]
async fn a_proxy_that_accepts_and_closes_gets_one_request_a_minute() {
    let asked = asked_in(
        60,
        |uri, _| if is_watch(uri) { text("") } else { text(EMPTY) },
    );
    is_patient(&asked.await, 60, 1);
    let asked = asked_in(60, |_, _| text("")).await;
    is_patient(&asked, 60, 1);
    let asked = asked_in(60, |_, _| text("<html>please log in</html>")).await;
    is_patient(&asked, 60, 1);
}

/// Each list returns a version that is too old for the watch.
#[tokio::test(start_paused = true)]
async fn an_always_expired_watch_costs_one_list_and_one_watch_a_minute() {
    let asked = asked_in(60, |uri, _| {
        if is_watch(uri) {
            status(410, "")
        } else {
            text(EMPTY)
        }
    });
    is_patient(&asked.await, 60, 2);
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","code":410}}"#;
    let asked = asked_in(60, move |uri, _| {
        if is_watch(uri) {
            text(gone)
        } else {
            text(EMPTY)
        }
    });
    is_patient(&asked.await, 60, 2);
    let asked = asked_in(60, |_, _| status(410, "")).await;
    is_patient(&asked, 60, 1);
}

/// A list follows after five seconds without a backoff. Missed events are no failure, and the agents of a fleet miss them at
/// different times.
#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_resume_is_followed_by_a_list_after_five_seconds() {
    let (client, asked) = server(|uri, number| match (is_watch(uri), number) {
        (false, _) => text(EMPTY),
        (true, 1) => text(""),
        (true, 2) => status(410, ""),
        (true, _) => Says::Silence,
    });
    let watching = tokio::spawn(watch(client).run());
    tokio::time::sleep(Duration::from_secs(80)).await;
    watching.abort();
    let asked = asked.lock().unwrap();
    assert!((asked[3].0 - asked[2].0).abs_diff(Duration::from_secs(5)) < Duration::from_millis(2));
    assert!(!is_watch(&asked[3].1) && is_watch(&asked[4].1));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_on_a_later_page_restarts_a_minute_later() {
    let asked = asked_in(60, |uri, _| match () {
        () if is_watch(uri) => Says::Silence,
        () if uri.contains("continue=second") => status(500, ""),
        () => text(&format!(
            r#"{{"metadata":{{"resourceVersion":"4","continue":"{}"}},"items":[{GOOD}]}}"#,
            if uri.contains("continue") {
                "second"
            } else {
                "first"
            }
        )),
    });
    is_patient(&asked.await, 60, 3);
}

#[tokio::test(start_paused = true)]
async fn stream_errors_back_off_like_other_failures() {
    for error in [
        r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"m","code":500}}"#,
        "garbage",
        r#"{"type":"ADDED","object":{"metadata":{}}}"#,
    ] {
        let asked = asked_in(60, move |uri, _| {
            if is_watch(uri) {
                text(error)
            } else {
                text(EMPTY)
            }
        });
        is_patient(&asked.await, 60, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttling_server_gets_no_request_before_its_retry_time() {
    let asked = asked_in(60, |_, _| status(429, "")).await;
    is_patient(&asked, 60, 1);
    let asked = asked_in(60, |_, _| {
        status(429, r#","details":{"retryAfterSeconds":1}"#)
    })
    .await;
    is_patient(&asked, 60, 1);
    let asked = asked_in(60, |_, _| {
        status(429, r#","details":{"retryAfterSeconds":120}"#)
    })
    .await;
    is_patient(&asked, 30, 1);
    assert!(
        asked.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 120.0),
        "{asked:?}"
    );
}

/// After a page was cut off, the next pages are smaller.
#[tokio::test(start_paused = true)]
async fn an_interrupted_list_is_repeated_with_smaller_pages() {
    let broken =
        format!(r#"{{"metadata":{{"resourceVersion":"4"}},"items":[{GOOD},{GOOD},{GOOD},"#);
    let asked = asked_in(4, move |_, _| text(&broken)).await;
    let limits = asked.iter().map(|(_, uri)| {
        let limit = uri.split("limit=").nth(1).unwrap_or_default();
        limit.split('&').next().unwrap_or_default().to_owned()
    });
    assert_eq!(Vec::from_iter(limits.take(3)), ["500", "1", "1"]);
}
