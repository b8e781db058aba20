//! Parsed request line and headers.

use http::{HeaderMap, Method, header};

use super::faults::RequestInfo;
use super::request::{self, ApiRoute, Query, Target};
use super::status::ApiFailure;

/// Request with its parsed path and query.
pub(crate) struct Parsed {
    /// Resource or other target that the path names.
    pub(crate) route: ApiRoute,
    pub(crate) query: Query,
    /// Properties that fault and access rules can use.
    pub(crate) info: RequestInfo,
    pub(crate) method: Method,
    /// Path as received, with percent escapes.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

/// Parses the request line and headers. `custom` is true if Advanced DaemonSets are installed.
///
/// # Errors
///
/// Returns a 400 for an invalid path or query.
pub(crate) fn parse(head: &http::request::Parts, custom: bool) -> Result<Parsed, ApiFailure> {
    let path = head.uri.path().to_owned();
    let query = Query::parse(head.uri.query().unwrap_or(""))?;
    let route = request::route(&path, custom)?;
    let mut info = RequestInfo {
        user_agent: text(&head.headers, header::USER_AGENT),
        verb: head.method.as_str().to_lowercase(),
        ..RequestInfo::default()
    };
    if let ApiRoute::Resource(target) = &route {
        info.group = target.resource.group.to_owned();
        info.resource = target.resource.plural.to_owned();
        info.subresource.clone_from(&target.subresource);
        info.namespace.clone_from(&target.namespace);
        info.name.clone_from(&target.name);
        info.verb = verb(&head.method, target, &query).to_owned();
    }
    Ok(Parsed {
        route,
        query,
        info,
        method: head.method.clone(),
        path,
        headers: head.headers.clone(),
    })
}

pub(super) fn text(headers: &HeaderMap, name: header::HeaderName) -> String {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
        .to_owned()
}

fn verb(method: &Method, target: &Target, query: &Query) -> &'static str {
    match (method.as_str(), target.name.is_empty()) {
        ("GET", true) if query.flag("watch") => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", false) => "update",
        ("PATCH", false) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "other",
    }
}
