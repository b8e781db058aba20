//! The head of a request: bytes in, `http` types out, or the answer that says what is wrong with it. Pure.

use bytes::{Buf, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};

use super::super::answer::Answer;

/// The most bytes of a head. Browsers send the cookies of every other program on localhost along.
pub(super) const LIMIT: usize = 16 << 10;
/// The most headers.
const HEADERS: usize = 100;
/// The most bytes of a body. None is needed.
const BODY_LIMIT: u64 = 64 << 10;

/// How the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, until an empty one.
    Chunked,
}

/// Takes a head from the front of what arrived; `None` when it is not complete.
///
/// # Errors
/// The answer to give; the connection is of no use afterwards.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Parts>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(length)) if length <= LIMIT => {
            let parts = parts(&parsed)?;
            buffer.advance(length);
            Ok(Some(parts))
        }
        Ok(httparse::Status::Partial) if buffer.len() < LIMIT => Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(too_long()),
        Err(error) => Err(malformed(buffer, error)),
    }
}

fn parts(parsed: &httparse::Request<'_, '_>) -> Result<Parts, Answer> {
    let bad = |what: &str| bad(format!("{what}: this is no request"));
    let method = parsed.method.unwrap_or_default().as_bytes();
    let method = Method::from_bytes(method).map_err(|_| bad("The method is no word"))?;
    let target = parsed.path.unwrap_or_default();
    let uri = Uri::try_from(target).map_err(|_| bad("The path is no URL"))?;
    let (mut parts, ()) = Request::new(()).into_parts();
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| bad("A header's name is no word"))?;
        let value = HeaderValue::from_bytes(header.value);
        let value = value.map_err(|_| bad("A header's value has control characters"))?;
        parts.headers.append(name, value);
    }
    parts.method = method;
    parts.uri = uri;
    parts.version = match parsed.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    Ok(parts)
}

fn malformed(buffer: &[u8], error: httparse::Error) -> Answer {
    const TLS_HANDSHAKE: u8 = 0x16;
    if buffer.first() == Some(&TLS_HANDSHAKE) {
        return bad("This is plain HTTP, not TLS: ask for http:// instead of https://".to_owned());
    }
    match error {
        httparse::Error::Version => Answer::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "Version",
            "Only HTTP/1.1 and HTTP/1.0 are spoken here",
        ),
        _ => bad(format!("This is no HTTP/1.1 request ({error})")),
    }
}

fn bad(text: String) -> Answer {
    Answer::new(StatusCode::BAD_REQUEST, "BadRequest", text)
}

fn too_long() -> Answer {
    Answer::new(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "HeadTooLong",
        "The path and the headers are longer than 16 KiB or more than 100: send fewer (cookies are not read)",
    )
}

/// The body is longer than any that could be meant.
pub(super) fn body_too_long() -> Answer {
    Answer::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "BodyTooLong",
        "The body is longer than 64 KiB: send none, it is not read",
    )
}

/// Where the body ends.
///
/// # Errors
/// When that cannot be told for certain, or is too far away.
pub(super) fn framing(head: &Parts) -> Result<Framing, Answer> {
    let lengths = head.headers.get_all(CONTENT_LENGTH);
    let mut encodings = head.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next() {
        if lengths.iter().next().is_some() || head.version < Version::HTTP_11 {
            return Err(bad(
                "Transfer-Encoding goes with HTTP/1.1 and without Content-Length".to_owned(),
            ));
        }
        if encodings.next().is_some() || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Answer::new(
                StatusCode::NOT_IMPLEMENTED,
                "TransferEncoding",
                "The only Transfer-Encoding that is understood is chunked",
            ));
        }
        return Ok(Framing::Chunked);
    }
    let mut found = None;
    for length in lengths {
        let length = digits(length.as_bytes())
            .ok_or_else(|| bad("Content-Length is not a number of bytes".to_owned()))?;
        if found.replace(length).is_some_and(|before| before != length) {
            return Err(bad("There are two different Content-Lengths".to_owned()));
        }
    }
    let length = found.unwrap_or(0);
    match length <= BODY_LIMIT {
        true => Ok(Framing::Length(length)),
        false => Err(body_too_long()),
    }
}

/// A number that is digits and nothing else; one that is too great for any purpose is the greatest.
fn digits(text: &[u8]) -> Option<u64> {
    let all = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok()?;
    all.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether the client waits to be told to send its body.
///
/// # Errors
/// When it expects something else.
pub(super) fn expects_continue(head: &Parts) -> Result<bool, Answer> {
    match head.headers.get(EXPECT) {
        None => Ok(false),
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Ok(head.version >= Version::HTTP_11)
        }
        Some(_) => Err(Answer::new(
            StatusCode::EXPECTATION_FAILED,
            "Expect",
            "The only Expect that is understood is 100-continue",
        )),
    }
}

/// Whether the client means to ask again on this connection.
pub(super) fn keeps_alive(head: &Parts) -> bool {
    let says = |word: &str| says(&head.headers, word);
    match head.version {
        Version::HTTP_10 => says("keep-alive") && !says("close"),
        _ => !says("close"),
    }
}

fn says(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let words = values.filter_map(|value| value.to_str().ok());
    let mut words = words.flat_map(|value| value.split(','));
    words.any(|found| found.trim().eq_ignore_ascii_case(word))
}

/// Reads a body in chunks, to its end, and forgets it.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: Chunk,
    length: u64,
    /// Bytes that were not data.
    overhead: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Chunk {
    #[default]
    Size,
    Data(u64),
    /// The line break behind data.
    Break,
    Trailers,
}

/// The longest line between chunks.
const LINE_LIMIT: usize = 1 << 10;
/// The most that may be said between chunks.
const OVERHEAD_LIMIT: usize = 64 << 10;

impl Chunks {
    /// Takes what is there; true at the end of the body.
    ///
    /// # Errors
    /// When this is no such body, or too long.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<bool, Answer> {
        loop {
            if let Chunk::Data(left) = self.state {
                let here =
                    usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
                buffer.advance(here);
                let left = left - here as u64;
                if left > 0 {
                    self.state = Chunk::Data(left);
                    return Ok(false);
                }
                self.state = Chunk::Break;
            }
            let Some(line) = line(buffer)? else {
                return Ok(false);
            };
            self.overhead += line.len() + 2;
            if self.overhead > OVERHEAD_LIMIT {
                return Err(body_too_long());
            }
            match self.state {
                Chunk::Size => match size(&line)? {
                    0 => self.state = Chunk::Trailers,
                    more => {
                        self.length = self.length.saturating_add(more);
                        if self.length > BODY_LIMIT {
                            return Err(body_too_long());
                        }
                        self.state = Chunk::Data(more);
                    }
                },
                Chunk::Break if line.is_empty() => self.state = Chunk::Size,
                Chunk::Break | Chunk::Data(_) => return Err(bad_chunk()),
                Chunk::Trailers if line.is_empty() => return Ok(true),
                Chunk::Trailers => {}
            }
        }
    }
}

/// The next line without its break; `None` when it is not complete.
fn line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, Answer> {
    let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else {
        return match buffer.len() > LINE_LIMIT {
            true => Err(bad_chunk()),
            false => Ok(None),
        };
    };
    let mut line = buffer.split_to(end + 1);
    match line.ends_with(b"\r\n") {
        true => line.truncate(end - 1),
        false => return Err(bad_chunk()),
    }
    Ok(Some(line))
}

/// The size of a chunk: hexadecimal digits, then perhaps an extension.
fn size(line: &[u8]) -> Result<u64, Answer> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    match is_hex {
        true => Ok(u64::from_str_radix(text, 16).unwrap_or(u64::MAX)),
        false => Err(bad_chunk()),
    }
}

fn bad_chunk() -> Answer {
    bad(
        "The body is not in chunks, as Transfer-Encoding says: send none, it is not read"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Parts>, u16> {
        let mut buffer = BytesMut::from(text.as_bytes());
        take(&mut buffer).map_err(|answer| answer.status.as_u16())
    }

    #[track_caller]
    fn refused(text: &str, expected: u16) {
        assert_eq!(parse(text).map(|_| ()).unwrap_err(), expected, "{text:.60}");
    }

    #[track_caller]
    fn head(headers: &str) -> Parts {
        let text = format!("POST /x HTTP/1.1\r\n{headers}\r\n");
        parse(&text).unwrap().unwrap()
    }

    #[test]
    fn a_head_is_taken_once_it_is_complete_and_the_rest_stays() {
        assert!(parse("").unwrap().is_none());
        assert!(parse("\r\n\r\n").unwrap().is_none());
        assert!(
            parse("GET /pods HTTP/1.1\r\nhost: x\r\n")
                .unwrap()
                .is_none()
        );
        let mut buffer = BytesMut::from(&b"\r\nGET /pods?x HTTP/1.0\r\nHost: x\r\n\r\nrest"[..]);
        let parts = take(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (parts.method, parts.version),
            (Method::GET, Version::HTTP_10)
        );
        assert_eq!(parts.uri, "/pods?x");
        assert_eq!(parts.headers["host"], "x");
        assert_eq!(&buffer[..], b"rest");
    }

    #[test]
    fn what_is_no_head_is_refused_with_the_fitting_status() {
        refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
        refused("GET /pods HTTP/9.9\r\n\r\n", 505);
        refused("\u{16}\u{3}\u{1}", 400);
        refused("GET\r\n\r\n", 400);
        refused("GET /pods\r\n\r\n", 400);
        refused("GET http://[::1/ HTTP/1.1\r\n\r\n", 400);
        refused("GET /pods HTTP/1.1\r\nno colon\r\n\r\n", 400);
        refused("GET /pods HTTP/1.1\r\na b: c\r\n\r\n", 400);
        refused("GET /pods HTTP/1.1\r\nhost : x\r\n\r\n", 400);
        refused("GET /pods HTTP/1.1\r\nx: \u{1}\r\n\r\n", 400);
        refused("GET /pods HTTP/1.1\r\n folded: x\r\n\r\n", 400);
        refused(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(LIMIT)), 431);
        refused(&format!("GET /{}", "x".repeat(LIMIT)), 431);
        refused(
            &format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)),
            431,
        );
        refused(&"\r\n".repeat(LIMIT), 431);
    }

    #[test]
    fn the_end_of_a_body_is_certain_or_refused() {
        fn case(headers: &str, expected: Result<Framing, u16>) {
            let found = framing(&head(headers)).map_err(|answer| answer.status.as_u16());
            assert_eq!(found, expected, "{headers}");
        }
        case("", Ok(Framing::Length(0)));
        case("content-length: 5\r\n", Ok(Framing::Length(5)));
        case(
            "content-length: 5\r\ncontent-length: 5\r\n",
            Ok(Framing::Length(5)),
        );
        case("content-length: 5\r\ncontent-length: 6\r\n", Err(400));
        case("content-length: 5, 5\r\n", Err(400));
        case("content-length: -1\r\n", Err(400));
        case("content-length: +1\r\n", Err(400));
        case("content-length: 0x5\r\n", Err(400));
        case("content-length: \r\n", Err(400));
        case("content-length: 65536\r\n", Ok(Framing::Length(65536)));
        case("content-length: 65537\r\n", Err(413));
        case("content-length: 99999999999999999999999\r\n", Err(413));
        case("transfer-encoding: chunked\r\n", Ok(Framing::Chunked));
        case("transfer-encoding: Chunked\r\n", Ok(Framing::Chunked));
        case("transfer-encoding: gzip, chunked\r\n", Err(501));
        case("transfer-encoding: identity\r\n", Err(501));
        case(
            "transfer-encoding: chunked\r\ncontent-length: 1\r\n",
            Err(400),
        );
        let old = parse("POST /x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n");
        assert!(framing(&old.unwrap().unwrap()).is_err());
    }

    #[test]
    fn a_connection_is_kept_as_the_client_says() {
        assert!(keeps_alive(&head("")));
        assert!(!keeps_alive(&head("connection: x, Close\r\n")));
        let old = |headers| {
            parse(&format!("GET / HTTP/1.0\r\n{headers}\r\n"))
                .unwrap()
                .unwrap()
        };
        assert!(!keeps_alive(&old("")));
        assert!(keeps_alive(&old("connection: Keep-Alive\r\n")));
    }

    #[test]
    fn chunks_are_read_to_their_end_in_any_pieces() {
        let body = b"5;x=y\r\nhello\r\nA \r\n0123456789\r\n0\r\ntrailer: 1\r\n\r\nGET";
        for piece in 1..body.len() {
            let (mut chunks, mut buffer) = (Chunks::default(), BytesMut::new());
            let mut ended = false;
            for part in body.chunks(piece) {
                buffer.extend_from_slice(part);
                ended = ended || chunks.take(&mut buffer).unwrap();
            }
            assert!(ended, "{piece}");
            assert_eq!(&buffer[..], b"GET", "{piece}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        fn case(body: &str, expected: u16) {
            let mut buffer = BytesMut::from(body.as_bytes());
            let found = Chunks::default().take(&mut buffer);
            let found = found.map_err(|answer| answer.status.as_u16());
            assert_eq!(found, Err(expected), "{body:.40}");
        }
        case("hello\r\n", 400);
        case("-5\r\nhello\r\n", 400);
        case("\r\n", 400);
        case(";x\r\n", 400);
        case("5\nhello", 400);
        case("5\r\nhello!\r\n", 400);
        case(&"x".repeat(2000), 400);
        case("10001\r\n", 413);
        case("FFFFFFFFFFFFFFFFFFFFFFFF\r\n", 413);
        case(&format!("0\r\n{}", "a: b\r\n".repeat(20_000)), 413);
        case(&"1\r\nx\r\n".repeat(70_000), 413);
    }
}
