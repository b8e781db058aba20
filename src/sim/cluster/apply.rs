//! Server-side apply.

use serde_json::Value;

use super::http::Parsed;
use super::request::Target;
use super::status::Failure;
use super::store::Store;
use super::verbs::{Outcome, Writing};

/// Not served: the answer says what to use instead.
pub(crate) fn apply(
    _store: &mut Store,
    _parsed: &Parsed,
    _target: &Target,
    _body: Value,
    _writing: &Writing,
) -> Result<Outcome, Failure> {
    Err(Failure::unsupported_media_type(
        "the embedded cluster has no server-side apply; use application/strategic-merge-patch+json or \
         application/merge-patch+json (kubectl apply without --server-side)",
    ))
}
