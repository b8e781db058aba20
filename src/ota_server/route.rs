//! Routes of requests. A pure function maps method, path and query to a [`Route`] or a [`Reject`].

use http::{Method, StatusCode};

use super::pod::PodKey;

/// Operation that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `GET /pods`: all pods of this node.
    Pods,
    /// `GET /yurt-ds/v1/upgrades`: available upgrades with their images.
    Upgrades,
    /// `POST …/upgrade`: replace the pod.
    Upgrade {
        key: PodKey,
        /// True to upgrade even if images are missing or taints would repel the new pod.
        force: bool,
    },
    /// `POST …/imagepull`: pull the images of the pod's newer revision.
    ImagePull {
        /// Pod whose new images are pulled.
        key: PodKey,
    },
    /// `GET /live`: succeeds while this program is running.
    Live,
    /// `GET /ready`: succeeds if the pods of this node are known.
    Ready,
}

/// Reason for which a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    NotFound,
    /// The path exists, but supports only these methods.
    Method(&'static str),
    /// The path or the query is invalid. The text has the reason.
    Bad(String),
}

impl Reject {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
        }
    }
}

const READ: &str = "GET, HEAD";
const ACT: &str = "POST";
const ALL: &str = "GET, HEAD, POST";

/// All routes, for the answer to a request with another path.
pub(super) const PATHS: &str = "GET /pods, POST /openyurt.io/v1/namespaces/NAMESPACE/pods/POD/upgrade, \
     POST /openyurt.io/v1/namespaces/NAMESPACE/pods/POD/imagepull, GET /yurt-ds/v1/upgrades, GET /live and \
     GET /ready";

/// Returns the route of a request.
///
/// # Errors
/// Fails if the request has no route.
pub(super) fn route(method: &Method, path: &str, query: Option<&str>) -> Result<Route, Reject> {
    if *method == Method::CONNECT {
        return Err(Reject::Method(ALL)); // This server is not a proxy.
    }
    let plain = |route: Route| read(method).map(|()| route);
    match path {
        "/pods" => return plain(Route::Pods),
        "/yurt-ds/v1/upgrades" => return plain(Route::Upgrades),
        "/live" => return plain(Route::Live),
        "/ready" => return plain(Route::Ready),
        "" | "/" | "*" => return Err(Reject::NotFound),
        _ => clean(path)?,
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let [
        "openyurt.io",
        "v1",
        "namespaces",
        namespace,
        "pods",
        name,
        verb,
    ] = segments[..]
    else {
        return Err(Reject::NotFound);
    };
    if !["upgrade", "imagepull"].contains(&verb) {
        return Err(Reject::NotFound);
    }
    if *method != Method::POST {
        return Err(Reject::Method(ACT));
    }
    let key = key(namespace, name)?;
    Ok(match verb {
        "upgrade" => Route::Upgrade {
            key,
            force: force(query)?,
        },
        _ => Route::ImagePull { key },
    })
}

fn read(method: &Method) -> Result<(), Reject> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Reject::Method(READ)),
    }
}

/// Rejects a path that a proxy and this server could interpret differently.
fn clean(path: &str) -> Result<(), Reject> {
    let bad = |why: &str| Err(Reject::Bad(format!("The path {path} {why}")));
    if path.contains('%') {
        return bad(
            "contains %. Names of namespaces and pods need no encoding, and encoded slashes are not decoded",
        );
    }
    if path.contains('\\') {
        return bad("contains a backslash. Use /");
    }
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if [".", ".."].contains(&segment) {
            return bad("contains a segment of dots. Use the resolved path");
        }
        if segment.is_empty() && segments.peek().is_some() {
            return bad("contains an empty segment. A name is missing, or a / is doubled");
        }
    }
    Ok(())
}

fn key(namespace: &str, name: &str) -> Result<PodKey, Reject> {
    if namespace.len() > 63 || !is_label(namespace) {
        return Err(Reject::Bad(format!(
            "{namespace:?} is not a valid name of a namespace. Such a name has at most 63 lower case letters, digits and -, \
             and begins and ends with a letter or a digit"
        )));
    }
    if name.len() > 253 || !is_subdomain(name) {
        return Err(Reject::Bad(format!(
            "{name:?} is not a valid name of a pod. Such a name has at most 253 lower case letters, digits, - and ., and \
             begins and ends with a letter or a digit"
        )));
    }
    Ok(PodKey::new(namespace, name))
}

/// Returns true if the name is a DNS subdomain (RFC 1123), as Kubernetes requires. Does not check the length.
pub(super) fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = word.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    fits(*first) && fits(*last) && bytes.iter().all(|byte| fits(*byte) || *byte == b'-')
}

/// Returns the value of the query parameter `force`. Ignores other parameters.
fn force(query: Option<&str>) -> Result<bool, Reject> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key != "force" {
            continue;
        }
        let value = match value {
            "true" => true,
            "false" => false,
            _ => {
                return Err(Reject::Bad(format!(
                    "force={value} is not valid. Use force=true or force=false"
                )));
            }
        };
        if found.replace(value).is_some_and(|before| before != value) {
            return Err(Reject::Bad(
                "The query contains force=true and force=false. Use one of them".to_owned(),
            ));
        }
    }
    Ok(found.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "/openyurt.io/v1/namespaces/default/pods/nginx-7f9f6";

    #[track_caller]
    fn case(method: &str, path: &str, expected: Result<Route, u16>) {
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(path, query)| (path, Some(query)));
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let found = route(&method, path, query).map_err(|reject| reject.status().as_u16());
        assert_eq!(found, expected, "{method} {path} {query:?}");
    }

    fn nginx() -> PodKey {
        PodKey::new("default", "nginx-7f9f6")
    }

    #[test]
    fn each_path_accepts_its_methods_and_no_others() {
        case("GET", "/pods", Ok(Route::Pods));
        case("HEAD", "/pods", Ok(Route::Pods));
        case("GET", "/pods?limit=500", Ok(Route::Pods));
        case("GET", "/yurt-ds/v1/upgrades", Ok(Route::Upgrades));
        case("GET", "/live", Ok(Route::Live));
        case("GET", "/ready", Ok(Route::Ready));
        case(
            "POST",
            &format!("{POD}/imagepull"),
            Ok(Route::ImagePull { key: nginx() }),
        );
        for method in [
            "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW",
        ] {
            case(method, "/pods", Err(405));
        }
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "post"] {
            case(method, &format!("{POD}/upgrade"), Err(405));
            case(method, &format!("{POD}/imagepull"), Err(405));
        }
    }

    #[test]
    fn unknown_paths_are_not_found() {
        case("CONNECT", "", Err(405));
        for path in [
            "/",
            "*",
            "",
            "/pods/",
            "/Pods",
            "/podsx",
            "/openyurt.io/v1/pods",
            "/v1/healthz",
            "/debug/pprof/",
            &format!("{POD}/update"),
            &format!("{POD}/upgrade/"),
            &format!("{POD}/upgrade/x"),
            POD,
        ] {
            case(
                "POST",
                path,
                if path == "/pods" { Err(405) } else { Err(404) },
            );
            case("GET", path, Err(404));
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "/openyurt.io/v1/namespaces/default/pods/a%2Fb/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/%2e%2e/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/%61/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/../upgrade",
            "/openyurt.io/v1/namespaces/default/pods/./upgrade",
            "/openyurt.io/v1/namespaces/default/pods//upgrade",
            "/openyurt.io/v1/namespaces//pods/a/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a\\b/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/A/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/-a/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a-/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a..b/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a_b/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a;b/upgrade",
            "/openyurt.io/v1/namespaces/default/pods/a:b/upgrade",
            "/openyurt.io/v1/namespaces/de.fault/pods/a/upgrade",
            "/openyurt.io/v1/namespaces/Default/pods/a/upgrade",
            "//pods",
            "/pods/../pods",
            "/%70ods",
            &format!(
                "/openyurt.io/v1/namespaces/{}/pods/a/upgrade",
                "n".repeat(64)
            ),
            &format!(
                "/openyurt.io/v1/namespaces/n/pods/{}/upgrade",
                "p".repeat(254)
            ),
        ] {
            case("POST", path, Err(400));
        }
        let longest = format!(
            "/openyurt.io/v1/namespaces/n/pods/{}/imagepull",
            "p".repeat(253)
        );
        let key = PodKey::new("n", &"p".repeat(253));
        case("POST", &longest, Ok(Route::ImagePull { key }));
    }

    #[test]
    fn force_accepts_only_true_and_false() {
        let upgrade = |query: &str, expected: Result<bool, u16>| {
            let expected = expected.map(|force| Route::Upgrade {
                key: nginx(),
                force,
            });
            case("POST", &format!("{POD}/upgrade{query}"), expected);
        };
        upgrade("", Ok(false));
        upgrade("?", Ok(false));
        upgrade("?force=true", Ok(true));
        upgrade("?force=false", Ok(false));
        upgrade("?x=1&force=true", Ok(true));
        upgrade("?force=true&force=true", Ok(true));
        upgrade("?force=true&force=false", Err(400));
        upgrade("?force", Err(400));
        upgrade("?force=", Err(400));
        upgrade("?force=1", Err(400));
        upgrade("?force=True", Err(400));
        upgrade("?force=%74rue", Err(400));
        upgrade("?forced=yes", Ok(false));
        let refused = force(Some("force=yes")).unwrap_err();
        let text = "force=yes is not valid. Use force=true or force=false".to_owned();
        assert_eq!(refused, Reject::Bad(text));
    }
}
