//! Tests of listeners and connections with malformed requests, slow requests and many connections.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

use super::super::{serve, serve_stream};
use super::*;
use crate::machine::BUSY;
use crate::shutdown;

/// Maximum duration of a valid request. An idle connection is kept longer, for five seconds.
const HONEST: Duration = Duration::from_millis(200 * BUSY as u64);

/// Agent that serves a TCP port, with its shutdown trigger.
struct Door {
    address: SocketAddr,
    trigger: shutdown::Trigger,
    server: tokio::task::JoinHandle<()>,
}

async fn open(agent: Agent) -> Door {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, ended) = shutdown::channel();
    let server = tokio::spawn(serve(listener, agent, ended));
    Door {
        address,
        trigger,
        server,
    }
}

async fn real() -> (World, Agent) {
    let mut world = World::new();
    world.clock = Clock::System;
    world.create("a", NODE).await;
    let agent = Agent::start(world.config()).unwrap();
    for _ in 0..100 * BUSY {
        if agent.is_live() {
            break;
        }
        pass(Duration::from_millis(10)).await;
    }
    (world, agent)
}

/// Sends `bytes`, and returns everything received.
async fn talk(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _reset = tokio::time::timeout(SECOND * BUSY, stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn honest(address: SocketAddr) {
    let asked = tokio::time::Instant::now();
    let request = b"GET /pods HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    let answer = talk(address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(asked.elapsed() < HONEST, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_message_and_without_api_requests() {
    let (world, agent) = real().await;
    let door = open(agent).await;
    let before = world.requests();
    let pod = "/openyurt.io/v1/namespaces/default/pods/a";
    let own = "host: 127.0.0.1\r\n";
    let close = "host: 127.0.0.1\r\nconnection: close\r\n";
    let huge = "x".repeat(20_000);
    let many = "a: b\r\n".repeat(300);
    let table: Vec<(String, u16)> = vec![
        (format!("GET {pod}/upgrade HTTP/1.1\r\n{close}\r\n"), 405),
        (format!("PUT /pods HTTP/1.1\r\n{close}\r\n"), 405),
        (format!("OPTIONS /pods HTTP/1.1\r\n{close}\r\n"), 405),
        (format!("OPTIONS * HTTP/1.1\r\n{close}\r\n"), 404),
        (format!("TRACE /pods HTTP/1.1\r\n{close}\r\n"), 405),
        (format!("BREW /pods HTTP/1.1\r\n{close}\r\n"), 405),
        (
            format!("CONNECT 127.0.0.1:10267 HTTP/1.1\r\n{close}\r\n"),
            405,
        ),
        (
            format!("CONNECT evil.example:443 HTTP/1.1\r\n{close}\r\n"),
            421,
        ),
        (
            format!("POST /openyurt.io/v1/pods HTTP/1.1\r\n{close}\r\n"),
            404,
        ),
        (format!("GET /debug/pprof/ HTTP/1.1\r\n{close}\r\n"), 404),
        (
            format!("POST {pod}%2fb/upgrade HTTP/1.1\r\n{close}\r\n"),
            400,
        ),
        (
            format!("POST {pod}/../a/upgrade HTTP/1.1\r\n{close}\r\n"),
            400,
        ),
        (
            format!("POST {pod}/upgrade?force=maybe HTTP/1.1\r\n{close}\r\n"),
            400,
        ),
        (
            "GET /pods HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned(),
            400,
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
        ("GET /pods HTTP/1.0\r\n\r\n".to_owned(), 200),
        (format!("GET /pods HTTP/1.1\r\n{own}{close}\r\n"), 400),
        (
            "GET /pods HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_owned(),
            421,
        ),
        (
            format!("GET http://evil.example/pods HTTP/1.1\r\n{close}\r\n"),
            421,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\norigin: http://evil.example\r\n{close}\r\n"),
            403,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\norigin: null\r\n{close}\r\n"),
            403,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\nsec-fetch-site: cross-site\r\n{close}\r\n"),
            403,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\nreferer: http://evil.example/\r\n{close}\r\n"),
            403,
        ),
        // These requests are rejected before their body is read. Some of them announce a body and never send it.
        (
            format!(
                "POST {pod}/upgrade HTTP/1.1\r\norigin: null\r\ncontent-length: 9\r\n{own}\r\n"
            ),
            403,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\ncontent-length: 65537\r\n{own}\r\n"),
            413,
        ),
        (
            format!("POST {pod}/upgrade HTTP/1.1\r\ncontent-length: 65537\r\n{own}\r\n{huge}"),
            413,
        ),
        (
            format!(
                "POST {pod}/upgrade HTTP/1.1\r\ntransfer-encoding: chunked\r\n{own}\r\nfffff\r\n"
            ),
            408,
        ),
        (
            format!(
                "POST {pod}/upgrade HTTP/1.1\r\ntransfer-encoding: chunked\r\n{own}\r\ngarbage\r\n"
            ),
            400,
        ),
        // The pod does not exist, so the request is rejected from the cache.
        (format!("POST {pod}x/upgrade HTTP/1.1\r\n{close}\r\n"), 500),
        (
            format!("POST {pod}x/imagepull HTTP/1.1\r\n{close}\r\n"),
            500,
        ),
    ];
    // For malformed requests, hyper sends only a status without a text, or nothing.
    let without_words = [
        format!("GET /{huge} HTTP/1.1\r\n{close}\r\n"),
        format!("GET /pods HTTP/1.1\r\nx: {huge}\r\n{close}\r\n"),
        format!("GET /pods HTTP/1.1\r\n{many}{close}\r\n"),
        format!("GET /pods HTTP/9.9\r\n{close}\r\n"),
        format!("POST {pod}/upgrade HTTP/1.1\r\ncontent-length: -1\r\n{own}\r\n"),
        format!("POST {pod}/upgrade HTTP/1.1\r\ntransfer-encoding: gzip\r\n{own}\r\n"),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(),
        "GET /pods\r\n\r\n".to_owned(),
        "hello\r\n\r\n".to_owned(),
    ];
    for request in &without_words {
        let answer = talk(door.address, request.as_bytes()).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    for (request, expected) in table {
        let answer = talk(door.address, request.as_bytes()).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(status, expected.to_string(), "{request:.100} got {answer}");
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", text.len());
        assert!(head.contains(&length), "{request:.100} got {answer}");
        assert!(
            expected == 200 || text.len() > 10,
            "{request:.100} got {answer}"
        );
        assert!(!text.ends_with('\n'), "{answer}");
    }
    assert_eq!(world.requests(), before);
    honest(door.address).await;
    door.trigger.request();
    door.server.await.unwrap();
    assert!(TcpStream::connect(door.address).await.is_err());
}

#[tokio::test]
async fn five_hundred_silent_connections_block_no_other_client() {
    let (_world, agent) = real().await;
    let door = open(agent).await;
    let mut silent = Vec::new();
    for number in 0..500 {
        silent.push(TcpStream::connect(door.address).await.unwrap());
        if number % 50 == 0 {
            honest(door.address).await;
        }
    }
    honest(door.address).await;
    let mut first = String::new();
    silent[0].read_to_string(&mut first).await.unwrap();
    assert!(first.starts_with("HTTP/1.1 503 "), "{first}");
    assert!(first.contains("Connect again to send a request"), "{first}");
}

/// Opens one in-memory connection to an agent, in virtual time.
async fn line(room: usize) -> (World, DuplexStream) {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.create(name, NODE).await;
    }
    let agent = Agent::start(world.config()).unwrap();
    pass(SECOND).await;
    let (near, far) = tokio::io::duplex(room);
    tokio::spawn(serve_stream(far, agent));
    (world, near)
}

async fn rest(mut line: DuplexStream) -> String {
    let mut answer = Vec::new();
    line.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

const GET: &[u8] = b"GET /pods HTTP/1.1\r\nhost: localhost\r\n\r\n";
const CLOSE: &[u8] = b"GET /pods HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn an_incomplete_head_times_out_after_five_seconds() {
    for start in ["", "G", "GET /pods HTTP/1.1\r\nhost: localhost\r\n"] {
        let (_world, mut line) = line(4096).await;
        let began = tokio::time::Instant::now();
        line.write_all(start.as_bytes()).await.unwrap();
        let answer = rest(line).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("within 5 seconds"), "{answer}");
        assert!(began.elapsed() < 6 * SECOND);
    }
    let (_world, mut line) = line(4096).await;
    let mut drops = GET.chunks(1).cycle();
    let began = tokio::time::Instant::now();
    while line.write_all(drops.next().unwrap()).await.is_ok() && began.elapsed() < 20 * SECOND {
        pass(SECOND).await;
    }
    assert!(began.elapsed() < 8 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_body_times_out_after_five_seconds() {
    let (_world, mut line) = line(4096).await;
    let head =
        b"POST /openyurt.io/v1/namespaces/default/pods/a/upgrade HTTP/1.1\r\nhost: localhost\r\n\
        content-length: 9\r\nexpect: 100-continue\r\n\r\n";
    line.write_all(head).await.unwrap();
    pass(SECOND).await;
    line.write_all(b"1234").await.unwrap();
    let answer = rest(line).await;
    assert!(
        answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 408 "),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected() {
    let (_world, mut line) = line(64).await;
    for piece in GET.chunks(16) {
        line.write_all(piece).await.unwrap();
    }
    let mut some = [0; 32];
    line.read_exact(&mut some).await.unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200 OK"));
    pass(11 * SECOND).await;
    let left = rest(line).await;
    assert!(left.len() <= 64, "{left}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let (_world, mut line) = line(1 << 20).await;
    let head = b"HEAD /pods HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let with_body = b"GET /live HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nbody";
    let all = [GET, head, with_body, CLOSE].concat();
    line.write_all(&all).await.unwrap();
    let answer = rest(line).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 4, "{answer}");
    assert_eq!(answer.matches("\"PodList\"").count(), 2, "{answer}");
    assert_eq!(answer.matches("connection: close").count(), 1, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_a_few_seconds() {
    let (_world, mut line) = line(1 << 20).await;
    line.write_all(GET).await.unwrap();
    pass(4 * SECOND).await;
    line.write_all(GET).await.unwrap();
    pass(6 * SECOND).await;
    let answer = rest(line).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_cancelled_with_its_connection() {
    let (world, mut line) = line(4096).await;
    let post = b"POST /openyurt.io/v1/namespaces/default/pods/a/upgrade HTTP/1.1\r\nhost: localhost\r\n\r\n";
    line.write_all(post).await.unwrap();
    drop(line);
    pass(30 * SECOND).await;
    assert!(world.pods.get("a").await.is_ok());
}
