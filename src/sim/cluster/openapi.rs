//! OpenAPI, only as far as kubectl asks for it.

use http::Response;

use super::http::Body;

/// The answer under `/openapi/`; `None` when there is nothing.
pub(crate) fn answer(_path: &str, _accept: &str) -> Option<Response<Body>> {
    None
}
