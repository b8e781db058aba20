use super::*;
use crate::controller::notify::tests::Story;
use crate::core::SetKind;

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

/// Returns the value of an attribute.
fn value<'a>(span: &'a Value, key: &str) -> &'a str {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let found = attributes.find(|attribute| attribute["key"] == key);
    found.unwrap()["value"]["stringValue"].as_str().unwrap()
}

fn times(span: &Value) -> (i128, i128) {
    let time = |key| span[key].as_str().unwrap().parse().unwrap();
    (time("startTimeUnixNano"), time("endTimeUnixNano"))
}

async fn a_rollout_is_one_trace(kind: SetKind) {
    let story = Story::begin(kind, 3).await;
    story.spans_after(10).await;
    story.image("web:2").await;
    let spans = story.spans_after(120).await;
    let (rollouts, pods) = (named(&spans, "rollout"), named(&spans, "replace pod"));
    let [rollout] = rollouts[..] else {
        panic!("{spans:#?}");
    };
    assert_eq!(value(rollout, "yurt_ds.outcome"), "complete");
    assert_eq!(value(rollout, "k8s.daemonset.name"), "web");
    assert_eq!(value(rollout, "yurt_ds.group"), kind.group());
    assert_eq!(rollout["status"]["code"], 1);
    assert_eq!(rollout["traceId"].as_str().map(str::len), Some(32));
    assert_eq!(rollout["spanId"].as_str().map(str::len), Some(16));
    let (start, end) = times(rollout);
    let mut nodes = Vec::new();
    for pod in pods {
        assert_eq!(pod["traceId"], rollout["traceId"]);
        assert_eq!(pod["parentSpanId"], rollout["spanId"]);
        assert_ne!(
            value(pod, "k8s.pod.name"),
            value(pod, "yurt_ds.replaced_pod")
        );
        let (begun, available) = times(pod);
        assert!(
            start <= begun && begun < available && available <= end,
            "{spans:#?}"
        );
        nodes.push(value(pod, "k8s.node.name"));
    }
    nodes.sort_unstable();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    assert_eq!(story.spans_after(86_400).await, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_a_native_daemonset_is_one_trace() {
    a_rollout_is_one_trace(SetKind::Native).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_an_advanced_daemonset_is_one_trace() {
    a_rollout_is_one_trace(SetKind::Advanced).await;
}

#[tokio::test(start_paused = true)]
async fn a_superseded_rollout_ends_with_an_error_and_its_stall() {
    let story = Story::begin(SetKind::Native, 3).await;
    story.image("web:bad").await;
    story.spans_after(900).await;
    story.image("web:3").await;
    let spans = story.spans_after(120).await;
    let rollouts = named(&spans, "rollout");
    let outcomes = rollouts.iter().map(|span| value(span, "yurt_ds.outcome"));
    assert_eq!(Vec::from_iter(outcomes), ["superseded", "complete"]);
    assert_eq!(rollouts[0]["status"]["code"], 2);
    assert_eq!(rollouts[0]["events"][0]["name"], "stalled");
    assert_eq!(rollouts[1]["status"]["code"], 1);
    assert_ne!(rollouts[0]["traceId"], rollouts[1]["traceId"]);
    for pod in named(&spans, "replace pod") {
        assert_eq!(pod["traceId"], rollouts[1]["traceId"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_of_a_new_pod_is_a_replacement_of_its_own() {
    let story = Story::begin(SetKind::Native, 1).await;
    story.spans_after(10).await;
    story.image("web:bad").await;
    story.spans_after(300).await;
    story.image("web:1").await;
    let spans = story.spans_after(120).await;
    let pods = named(&spans, "replace pod");
    let [pod] = pods[..] else {
        panic!("{spans:#?}");
    };
    let rollouts = named(&spans, "rollout");
    assert!(times(pod).0 >= times(rollouts[1]).0, "{spans:#?}");
}

#[test]
fn a_time_before_1970_is_zero() {
    let forged: Timestamp = "0001-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(nanoseconds(forged), "0");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_continues_the_trace() {
    let mut story = Story::begin(SetKind::Native, 3).await;
    story.spans_after(10).await;
    story.image("web:slow").await;
    let before = story.spans_after(90).await;
    assert!(!named(&before, "replace pod").is_empty());
    story.change_leader().await;
    let after = story.spans_after(600).await;
    let rollouts = named(&after, "rollout");
    assert_eq!(rollouts.len(), 1);
    assert!(times(rollouts[0]).0 <= times(&before[0]).0);
    for span in before.iter().chain(&after) {
        assert_eq!(span["traceId"], rollouts[0]["traceId"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_is_sent_at_once_and_a_small_one_after_five_seconds() {
    let (sizes, mut batches) = unbounded_channel();
    let transport: outbox::Transport = Arc::new(move |request| {
        let size = hyper::body::Body::size_hint(request.body())
            .exact()
            .unwrap();
        sizes.send((size, Instant::now())).unwrap();
        Box::pin(async { Ok(http::Response::new(()).into_parts().0) })
    });
    let traces = Traces(Endpoint::through(transport));
    let (tracer, delivery) = traces.start(&Clock::System, &Metrics::new());
    let longest = json!({ "traceId": "0".repeat(32), "attributes": "x".repeat(1500) });
    for _ in 0..=BATCH {
        tracer.spans.send(longest.clone()).unwrap();
    }
    let begin = Instant::now();
    let (size, at) = batches.recv().await.unwrap();
    assert!(usize::try_from(size).unwrap() < LIMITS.size, "{size}");
    assert_eq!(at, begin);
    let (_, at) = batches.recv().await.unwrap();
    assert_eq!(at, begin + INTERVAL);
    drop(tracer);
    delivery.finish().await;
}

#[test]
fn the_path_of_traces_is_appended_to_the_endpoint() {
    for url in ["http://collector:4318", "http://collector:4318/"] {
        let Traces(endpoint) = Traces::from_endpoint(Some(url)).unwrap().unwrap();
        assert_eq!(
            endpoint.uri().to_string(),
            "http://collector:4318/v1/traces"
        );
    }
    assert!(Traces::from_endpoint(Some("")).unwrap().is_none());
    let error = Traces::from_endpoint(Some("http://c:4318?x=1"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("has a query"), "{error}");
    let error = Traces::from_endpoint(Some("collector:4318")).err().unwrap();
    assert!(
        error.to_string().starts_with("--otlp-endpoint is not"),
        "{error}"
    );
}
