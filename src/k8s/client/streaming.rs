//! Streaming lists (KEP-3157) that show what is, and not what was.

use http::{Request, Uri};

/// What `kube`'s watcher asks for: a state of any age, as this API server happens to know it.
const ANY_AGE: &str = "resourceVersion=0";

/// The same request, so that a streaming list is at least of the moment of the request, as a list in pages is: without
/// `resourceVersion`. A replica of the API server that is behind would show pods again that are gone.
pub(super) fn of_now<B>(mut request: Request<B>) -> Request<B> {
    let query = request.uri().query().unwrap_or_default();
    let parameters = || query.split('&');
    if !parameters().any(|parameter| parameter == "sendInitialEvents=true") {
        return request;
    }
    let kept: Vec<&str> = parameters().filter(|kept| *kept != ANY_AGE).collect();
    let target = format!("{}?{}", request.uri().path(), kept.join("&"));
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = target.parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streaming_lists_are_asked_for_without_a_version() {
        for (asked, expected) in [
            (
                "https://server:6443/api/v1/pods?watch=true&labelSelector=app%3Da&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0",
                "https://server:6443/api/v1/pods?watch=true&labelSelector=app%3Da&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            ),
            (
                "/api/v1/pods?sendInitialEvents=true&resourceVersion=0&watch=true",
                "/api/v1/pods?sendInitialEvents=true&watch=true",
            ),
            (
                "/api/v1/pods?watch=true&resourceVersion=0",
                "/api/v1/pods?watch=true&resourceVersion=0",
            ),
            (
                "/api/v1/pods?watch=true&resourceVersion=17",
                "/api/v1/pods?watch=true&resourceVersion=17",
            ),
            ("/version", "/version"),
        ] {
            let request = Request::get(asked).body(()).unwrap();
            assert_eq!(of_now(request).uri(), expected);
        }
    }

    /// Should the watcher ask otherwise one day, this has to change with it.
    #[test]
    fn that_is_how_the_watcher_asks() {
        let parameters = kube::api::WatchParams::streaming_lists();
        let request = kube::core::Request::new("/api/v1/pods");
        let asked = request.watch(&parameters, "0").unwrap();
        let query = asked.uri().query().unwrap().to_owned();
        assert!(
            query.split('&').any(|parameter| parameter == ANY_AGE),
            "{query}"
        );
        let now = of_now(asked);
        assert!(!now.uri().query().unwrap().contains("resourceVersion="));
    }
}
