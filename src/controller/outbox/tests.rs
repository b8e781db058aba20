use std::convert::Infallible;
use std::path::Path;

use futures::FutureExt as _;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::controller::metrics::Metrics;

const LIMITS: Limits = Limits {
    queue: 256,
    size: 64 << 10,
};

const URL: &str = "http://receiver.test";

/// Request that a receiver got.
#[derive(Debug)]
struct Got {
    headers: HeaderMap,
    body: Bytes,
    at: Instant,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// Message queue whose receiver is a function, and the requests that the receiver got.
struct Story {
    outbox: Outbox,
    delivery: Delivery,
    metrics: Arc<Metrics>,
    got: UnboundedReceiver<Got>,
}

impl Story {
    fn to(endpoint: Endpoint, secret: Option<&Path>, got: UnboundedReceiver<Got>) -> Self {
        let metrics = Metrics::new();
        let receiver = Receiver {
            content: "notification",
            media_type: "application/test+json",
            limits: LIMITS,
            endpoint,
            signer: secret.map(|file| Signer::new(file.to_owned())),
            clock: Clock::System,
        };
        let (outbox, delivery) = start(receiver, metrics.notifications());
        Self {
            outbox,
            delivery,
            metrics,
            got,
        }
    }

    /// Starts with a receiver in this process, which gives these answers. After the last one, it never responds.
    fn with(answers: Vec<Response<()>>, secret: Option<&Path>) -> Self {
        let (sender, got) = unbounded_channel();
        let answers = Mutex::new(VecDeque::from(answers));
        let transport: Transport = Arc::new(move |request| {
            let sender = sender.clone();
            let answer = answers.lock().unwrap().pop_front();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let (headers, at) = (head.headers, Instant::now());
                let _ended = sender.send(Got { headers, body, at });
                match answer {
                    Some(answer) => Ok(answer.into_parts().0),
                    None => std::future::pending().await,
                }
            }
            .boxed()
        });
        Self::to(Endpoint::through(transport), secret, got)
    }

    fn send(&self, id: &str) {
        let body = format!("body of {id}").into();
        let id = id.to_owned();
        self.outbox.send(Message { id, body });
    }

    async fn got(&mut self) -> Got {
        self.got.recv().await.expect("the receiver runs")
    }

    /// Waits until one message has this outcome.
    async fn until(&self, outcome: Outcome) {
        while self.count(outcome) == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn count(&self, outcome: Outcome) -> usize {
        let start = format!(
            "yurt_ds_notifications_total{{outcome=\"{}\"}} ",
            outcome.word()
        );
        let page = self.metrics.encode();
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        line.expect("a series").parse().unwrap()
    }
}

fn answer(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn retry_after(status: u16, seconds: &str) -> Response<()> {
    let mut answer = answer(status);
    let seconds = seconds.parse().unwrap();
    answer.headers_mut().insert(RETRY_AFTER, seconds);
    answer
}

/// Serves these statuses on a real port, each with a body that never ends, and then 200.
async fn serve(statuses: &[u16], sender: UnboundedSender<Got>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?token=t0p", listener.local_addr().unwrap());
    let statuses = Arc::new(Mutex::new(VecDeque::from(statuses.to_vec())));
    let target = url.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, statuses, target) = (sender.clone(), statuses.clone(), target.clone());
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let (sender, target) = (sender.clone(), target.clone());
                let status = statuses.lock().unwrap().pop_front().unwrap_or(200);
                async move {
                    assert_eq!(request.uri().query(), Some("token=t0p"));
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let (headers, at) = (head.headers, Instant::now());
                    sender.send(Got { headers, body, at }).unwrap();
                    let (writer, body) = http_body_util::channel::Channel::<Bytes>::new(1);
                    std::mem::forget(writer);
                    let answer = Response::builder().status(status);
                    Ok::<_, Infallible>(answer.header("location", target).body(body).unwrap())
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    url
}

#[tokio::test]
async fn a_message_is_sent_again_after_503_with_the_same_id_and_body() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "whsec_c2VjcmV0").unwrap();
    let (sender, got) = unbounded_channel();
    let url = serve(&[503], sender).await;
    let endpoint = Endpoint::parse("--notify-url", &url).unwrap();
    let mut story = Story::to(endpoint, Some(file.path()), got);
    story.send("one");
    let (first, second) = (story.got().await, story.got().await);
    for got in [&first, &second] {
        assert_eq!(got.body, "body of one");
        assert_eq!(got.header("content-type"), "application/test+json");
        assert_eq!(got.header("webhook-id"), "one");
        let signature = got.header("webhook-signature");
        assert!(signature.starts_with("v1,"), "{signature}");
    }
    story.until(Outcome::Delivered).await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (sender, got) = unbounded_channel();
    let url = serve(&[307], sender).await;
    let endpoint = Endpoint::parse("--notify-url", &url).unwrap();
    let mut story = Story::to(endpoint, None, got);
    story.send("one");
    story.until(Outcome::Rejected).await;
    story.send("two");
    story.until(Outcome::Delivered).await;
    assert_eq!(story.got().await.body, "body of one");
    assert_eq!(story.got().await.body, "body of two");
}

#[tokio::test]
async fn a_refused_connection_is_retried() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let endpoint = Endpoint::parse("--notify-url", &format!("http://{address}/")).unwrap();
    let receiver = Receiver {
        content: "notification",
        media_type: "application/test+json",
        limits: LIMITS,
        endpoint,
        signer: None,
        clock: Clock::System,
    };
    let message = Message {
        id: "one".to_owned(),
        body: Bytes::new(),
    };
    let Err(Failure::Passing(error, None)) = receiver.attempt(&message).await else {
        panic!("not retried");
    };
    assert!(format!("{error:#}").contains("refused"), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_dropped_at_once() {
    for status in [301, 400, 401, 404, 413] {
        let mut story = Story::with(vec![answer(status), answer(204)], None);
        story.send("one");
        story.send("two");
        story.until(Outcome::Delivered).await;
        assert_eq!(story.count(Outcome::Rejected), 1, "{status}");
        let (first, second) = (story.got().await, story.got().await);
        assert_eq!(second.body, "body of two");
        assert!(second.at - first.at < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_size_limit_is_not_sent() {
    let mut story = Story::with(vec![answer(200)], None);
    let body = vec![b'x'; LIMITS.size + 1].into();
    let id = "one".to_owned();
    story.outbox.send(Message { id, body });
    story.until(Outcome::Rejected).await;
    assert!(story.got.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn pauses_between_attempts_grow_and_follow_the_receiver_up_to_a_minute() {
    let answers = vec![
        answer(408),
        answer(425),
        answer(500),
        retry_after(429, "30"),
        retry_after(503, "3600"),
        retry_after(503, "0"),
        retry_after(429, "Wed, 21 Oct 2026 07:28:00 GMT"),
        answer(200),
    ];
    let mut story = Story::with(answers, None);
    story.send("one");
    let mut last = story.got().await.at;
    for (least, most) in [
        (0.5, 1.0),
        (1.0, 2.0),
        (2.0, 4.0),
        (30.0, 30.0),
        (60.0, 60.0),
        (1.0, 1.0),
        (4.0, 8.0),
    ] {
        let at = story.got().await.at;
        let pause = (at - last).as_secs_f64();
        assert!(
            pause > least - 0.01 && pause < most + 0.01,
            "{pause} of {most}"
        );
        last = at;
    }
    story.until(Outcome::Delivered).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_its_oldest_message() {
    let mut story = Story::with(vec![], None);
    story.send("first");
    story.got().await;
    for number in 0..LIMITS.queue + 3 {
        story.send(&number.to_string());
    }
    assert_eq!(story.count(Outcome::QueueFull), 3);
    assert_eq!(story.outbox.0.queue().waiting[0].0.id, "3");
}

#[tokio::test(start_paused = true)]
async fn a_silent_receiver_gets_every_message_for_ten_minutes_at_most() {
    let mut story = Story::with(vec![], None);
    let begin = Instant::now();
    story.send("one");
    story.send("two");
    story.until(Outcome::Expired).await;
    let expired = begin.elapsed();
    assert!(expired <= PATIENCE + DEADLINE, "{expired:?}");
    assert!(expired >= PATIENCE - PAUSES.1 - DEADLINE, "{expired:?}");
    let mut attempts = Vec::new();
    // The second message was queued for as long, but is sent once.
    while attempts.last().is_none_or(|body| body != "body of two") {
        attempts.push(story.got().await.body);
    }
    assert!((10..40).contains(&attempts.len()), "{}", attempts.len());
}

#[tokio::test(start_paused = true)]
async fn a_silent_receiver_delays_the_shutdown_by_two_seconds_at_most() {
    let mut story = Story::with(vec![answer(200)], None);
    story.send("one");
    story.send("two");
    story.send("three");
    story.got().await;
    story.got().await;
    let metrics = story.metrics.clone();
    let begin = Instant::now();
    story.delivery.finish().await;
    assert_eq!(begin.elapsed(), LAST_WORDS);
    let line = "yurt_ds_notifications_total{outcome=\"ending\"} 2";
    assert!(metrics.encode().contains(line));
}

#[tokio::test(start_paused = true)]
async fn queued_messages_are_delivered_at_shutdown() {
    let story = Story::with(vec![answer(200), answer(200)], None);
    story.send("one");
    story.send("two");
    let (metrics, begin) = (story.metrics.clone(), Instant::now());
    story.delivery.finish().await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let line = "yurt_ds_notifications_total{outcome=\"delivered\"} 2";
    assert!(metrics.encode().contains(line));
}

#[tokio::test(start_paused = true)]
async fn the_secret_is_read_for_each_attempt_and_nothing_is_sent_unsigned() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let mut story = Story::with(vec![answer(500), answer(200)], Some(&file));
    story.send("one");
    sleep(Duration::from_secs(100)).await;
    assert!(story.got.try_recv().is_err());
    let mut signatures = Vec::new();
    for secret in ["first", "whsec_c2VjcmV0"] {
        std::fs::write(&file, secret).unwrap();
        let got = story.got().await;
        let signer = Signer::new(file.clone());
        let second = got.header("webhook-timestamp").parse().unwrap();
        let expected = signer.headers("one", second, &got.body).await.unwrap();
        let [_, _, (name, expected)] = expected;
        assert_eq!(got.header(name), expected);
        signatures.push(expected);
    }
    assert_ne!(signatures[0], signatures[1]);
    story.until(Outcome::Delivered).await;
}

#[test]
fn logs_name_the_receiver_without_path_and_query() {
    let transport: Transport = Arc::new(|_| std::future::pending().boxed());
    assert_eq!(Endpoint::through(transport).name(), URL);
}
