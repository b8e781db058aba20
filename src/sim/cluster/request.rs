//! Parsed path and query of a request.

use std::collections::BTreeMap;

use super::resources::{self, Resource};
use super::status::{ApiFailure, StatusCause};

/// Part of the API that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiRoute {
    /// Collection of a resource, one object, or a subresource.
    Resource(Target),
    /// Path that names no resource, such as discovery, health or an unknown path.
    Other,
}

/// Resource and object that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: &'static Resource,
    /// Namespace; empty for a request across all namespaces.
    pub(crate) namespace: String,
    /// Name of the object; empty for the collection.
    pub(crate) name: String,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: String,
}

impl Target {
    /// Returns the 404 for an object that does not exist.
    pub(crate) fn not_found(&self) -> ApiFailure {
        ApiFailure::not_found(self.resource.group, self.resource.plural, &self.name)
    }

    /// Returns the 422 for an invalid object.
    pub(crate) fn invalid(&self, causes: &[StatusCause]) -> ApiFailure {
        ApiFailure::invalid(self.resource.group, self.resource.kind, &self.name, causes)
    }
}

/// Parses a path. `custom` is true if Advanced DaemonSets are installed.
///
/// # Errors
///
/// Returns a 400 for an invalid percent escape.
pub(crate) fn route(path: &str, custom: bool) -> Result<ApiRoute, ApiFailure> {
    let segments: Option<Vec<String>> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| decode(segment, false))
        .collect();
    let segments = segments.ok_or_else(|| {
        ApiFailure::bad_request(format!("the path {path:?} has an invalid escape; use %XX"))
    })?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let target = match segments.as_slice() {
        ["api", version, rest @ ..] => resource("", version, rest, custom),
        ["apis", group, version, rest @ ..] => resource(group, version, rest, custom),
        _ => None,
    };
    Ok(target.map_or(ApiRoute::Other, ApiRoute::Resource))
}

fn resource(group: &str, version: &str, rest: &[&str], custom: bool) -> Option<Target> {
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, inner @ ..] => (*namespace, inner),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, "", ""),
        [plural, name] => (plural, *name, ""),
        [plural, name, subresource] => (plural, *name, *subresource),
        _ => return None,
    };
    let resource = resources::find(group, version, plural, custom)?;
    let object_without_namespace = resource.namespaced && namespace.is_empty() && !name.is_empty();
    if object_without_namespace || (!resource.namespaced && !namespace.is_empty()) {
        return None;
    }
    Some(Target {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    })
}

/// Query parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Parses the query, which is the text after the question mark.
    ///
    /// # Errors
    ///
    /// Fails if a percent escape is invalid.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiFailure> {
        let mut parameters = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(key, true).zip(decode(value, true));
            let (key, value) = decoded.ok_or_else(|| {
                ApiFailure::bad_request(format!(
                    "the query parameter {pair:?} has an invalid escape; use %XX"
                ))
            })?;
            parameters.entry(key).or_insert(value);
        }
        Ok(Self(parameters))
    }

    /// Returns the value of a parameter; empty if the parameter is missing.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Returns true if a Boolean parameter is set. As in kube-apiserver, any value except `false` and `0` is true, even an empty
    /// one.
    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.optional_flag(key), Some(true))
    }

    /// Returns a Boolean parameter, or `None` if it is missing.
    pub(crate) fn optional_flag(&self, key: &str) -> Option<bool> {
        let value = self.0.get(key)?;
        Some(!matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    /// Returns the value of a parameter as a whole number; `None` if the parameter is missing.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, ApiFailure> {
        match self.get(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiFailure::bad_request(format!(
                    "unable to decode query parameter {key}: {text:?} is not a whole number"
                ))
            }),
        }
    }

    /// Returns the parameter `resourceVersion`; `None` if it is missing.
    ///
    /// # Errors
    ///
    /// Returns a message if the value cannot be a version of this server.
    pub(crate) fn version(&self) -> Result<Option<u64>, String> {
        match self.get("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                )
            }),
        }
    }

    /// Checks the combination of the parameters resourceVersion, resourceVersionMatch and continue of a list.
    ///
    /// # Errors
    ///
    /// Returns a 422 that names the violated rule.
    pub(crate) fn check_version_match(&self) -> Result<(), ApiFailure> {
        let (version, rule) = (
            self.get("resourceVersion"),
            self.get("resourceVersionMatch"),
        );
        const RULES: &[&str] = &["Exact", "NotOlderThan", ""];
        let forbidden = |why: &str| Some(StatusCause::forbidden("resourceVersionMatch", why));
        let cause = match (rule, version) {
            ("", _) => None,
            _ if !self.get("continue").is_empty() => {
                forbidden("resourceVersionMatch is forbidden when continue is provided")
            }
            (_, "") => {
                forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
            }
            ("Exact", "0") => {
                forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            (rule, _) if !RULES.contains(&rule) => Some(StatusCause::unsupported(
                "resourceVersionMatch",
                &rule.into(),
                RULES,
            )),
            _ => None,
        };
        cause.map_or(Ok(()), |cause| Err(option_failure("ListOptions", cause)))
    }

    /// Returns true if the request is a dry run.
    ///
    /// # Errors
    ///
    /// Fails on any value except `All`.
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool, ApiFailure> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(option_failure(
                options,
                StatusCause::unsupported("dryRun", &other.into(), &["All"]),
            )),
        }
    }
}

/// Returns a 422 for an invalid request option. `options` is its kind, such as `CreateOptions`.
pub(crate) fn option_failure(options: &str, cause: StatusCause) -> ApiFailure {
    ApiFailure::invalid("meta.k8s.io", options, "", &[cause])
}

/// Decodes `%XX` and, in queries, `+`.
fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let (hex, tail) = rest.split_at_checked(2)?;
                let hex = std::str::from_utf8(hex).ok()?;
                bytes.push(u8::from_str_radix(hex, 16).ok()?);
                rest = tail;
            }
            b'+' if plus_is_space => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}
