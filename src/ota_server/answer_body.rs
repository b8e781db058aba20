//! Body of an answer: a complete text, or the list of pods, which is sent pod by pod.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::document::PodsBody;

/// Body of an answer. Its length is known in advance.
#[derive(Debug)]
pub enum AnswerBody {
    /// A complete text.
    Words(Full<Bytes>),
    /// List of pods. The body fails if the pods change while the client reads too slowly.
    Pods(Box<PodsBody>),
}

impl AnswerBody {
    pub(super) fn words(text: impl Into<Bytes>) -> Self {
        Self::Words(Full::new(text.into()))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Words(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Pods(body) => Pin::new(body.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Words(body) => body.is_end_stream(),
            Self::Pods(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Words(body) => body.size_hint(),
            Self::Pods(body) => body.size_hint(),
        }
    }
}
