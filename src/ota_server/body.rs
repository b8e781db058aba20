//! Request bodies. No route uses them, so the agent reads them within limits and discards them.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf as _;
use http::StatusCode;
use hyper::body::Body;

use super::answer::Answer;

/// Maximum time for receiving a body.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a body in bytes. No request of this API needs a body.
const LIMIT: u64 = 64 << 10;

/// Reads a body to its end.
///
/// # Errors
/// Returns the answer to the client if the body is too long, too slow or broken.
pub(super) async fn drain<B: Body>(body: B) -> Result<(), Answer> {
    if body.size_hint().lower() > LIMIT {
        return Err(too_long());
    }
    let reading = async {
        let mut body = pin!(body);
        let mut length = 0_u64;
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let frame = frame.map_err(|_| broken())?;
            let more = frame.data_ref().map_or(0, |data| data.remaining());
            length = length.saturating_add(more as u64);
            if length > LIMIT {
                return Err(too_long());
            }
        }
        Ok(())
    };
    let read = tokio::time::timeout(TIMEOUT, reading).await;
    read.unwrap_or_else(|_| Err(too_slow()))
}

fn too_long() -> Answer {
    Answer::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "BodyTooLong",
        "The request body is longer than 64 KiB. Send no body; it is ignored",
    )
}

fn too_slow() -> Answer {
    Answer::new(
        StatusCode::REQUEST_TIMEOUT,
        "BodyTooSlow",
        "The request body did not arrive within 5 seconds. Send no body; it is ignored",
    )
}

fn broken() -> Answer {
    Answer::new(
        StatusCode::BAD_REQUEST,
        "BrokenBody",
        "The request body is incomplete or not chunked as Transfer-Encoding says. Send no body; it is ignored",
    )
}
