//! Processing of HTTP requests: verbs, bodies, options, lists and watches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use k8s_openapi::jiff::fmt::rfc2822::DateTimePrinter;
use serde::Deserialize;
use serde_json::{Value, json};

use super::object::Object;
use super::parsed::{Parsed, text};
use super::present::{Form, incoming, outgoing};
use super::request::{ApiRoute, Query, Target, option_failure};
use super::resources::Storage;
use super::selector::{FieldSelector, parse_labels};
use super::status::{ApiFailure, StatusCause};
use super::store::{Filter, ObjectKey, Store, Stored};
use super::verbs;
use super::watch::{self, WatchOptions};
use super::write::{DeleteOptions, WriteContext, WriteOutcome};
use super::{access, apply, binding, discovery, disruption, openapi, patch, protobuf};
use crate::clock::Clock;

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Maximum size of a request body in bytes, as in kube-apiserver.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Duration of a watch if the request has no timeout parameter.
const WATCH_TIME: Duration = Duration::from_secs(40 * 60);

#[derive(Clone, Debug)]
pub(crate) struct ApiServer {
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) clock: Clock,
    /// True if streaming lists (`sendInitialEvents`) are supported.
    pub(crate) streaming_lists: bool,
    /// Minor Kubernetes version that the server reports.
    pub(crate) minor: u32,
    /// True after the definition of the Advanced DaemonSet was installed.
    pub(crate) custom: Arc<AtomicBool>,
    pub(crate) access: access::AccessRules,
}

/// Reads a request body up to the size limit.
///
/// # Errors
///
/// Returns a 413 if the body is too long, a 400 if it ends early.
pub(crate) async fn read<B>(request: Request<B>) -> Result<Bytes, ApiFailure>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limited = http_body_util::Limited::new(request.into_body(), BODY_LIMIT);
    match limited.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiFailure::too_large(BODY_LIMIT))
        }
        Err(error) => Err(ApiFailure::bad_request(format!(
            "the request body could not be read: {error}"
        ))),
    }
}

impl ApiServer {
    /// Processes a request and returns its response.
    pub(crate) fn answer(&self, parsed: &Parsed, body: &Bytes) -> Response<Body> {
        let answer = match &parsed.route {
            ApiRoute::Other => {
                other(parsed, self.minor, self.serves_custom()).map(|answer| self.dated(answer))
            }
            ApiRoute::Resource(target) => self.resource(parsed, target, body),
        };
        answer.unwrap_or_else(|failure| refusal(&failure))
    }

    /// Adds the server's time to a response. A real API server adds it to all responses, but only `ctl check` compares clocks.
    fn dated(&self, mut response: Response<Body>) -> Response<Body> {
        let time = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.clock.now());
        let value = time.ok().and_then(|time| time.parse().ok());
        response
            .headers_mut()
            .extend(value.map(|value| (header::DATE, value)));
        response
    }

    /// Returns true if Advanced DaemonSets are served.
    pub(crate) fn serves_custom(&self) -> bool {
        self.custom.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resource(
        &self,
        parsed: &Parsed,
        target: &Target,
        body: &Bytes,
    ) -> Result<Response<Body>, ApiFailure> {
        self.check_verb(parsed, target)?;
        self.access.check(&parsed.info)?;
        let accept = text(&parsed.headers, header::ACCEPT);
        let form = Form::new(&accept, parsed.query.get("includeObject"), &self.clock)?;
        match parsed.info.verb.as_str() {
            "get" => {
                let stored = verbs::get(&self.lock(), target)?;
                Ok(json_answer(200, form.one(target.resource, &stored)))
            }
            "list" => self.list(parsed, target, &form),
            "watch" => self.watch(parsed, target, form),
            _ => self.write(parsed, target, &form, body),
        }
    }

    /// Checks that the subresource exists and supports the verb.
    fn check_verb(&self, parsed: &Parsed, target: &Target) -> Result<(), ApiFailure> {
        let verb = parsed.info.verb.as_str();
        let allowed: &[&str] = match target.subresource.as_str() {
            "" => target.resource.verbs(),
            name => match target.resource.subresource(name) {
                Some(verbs) => verbs,
                None => return Err(self.missing_subresource(target)),
            },
        };
        let creates_by_name =
            verb == "create" && target.subresource.is_empty() && !target.name.is_empty();
        let nowhere = matches!(verb, "create" | "deletecollection")
            && target.resource.namespaced
            && target.namespace.is_empty();
        if !allowed.contains(&verb) || creates_by_name || nowhere {
            return Err(ApiFailure::method_not_allowed());
        }
        Ok(())
    }

    /// Returns the error for a missing subresource. If the subresource needs a real kubelet, such as `log`, the message says that.
    fn missing_subresource(&self, target: &Target) -> ApiFailure {
        const OF_KUBELETS: &[&str] = &[
            "log",
            "exec",
            "attach",
            "portforward",
            "proxy",
            "ephemeralcontainers",
            "resize",
        ];
        if !OF_KUBELETS.contains(&target.subresource.as_str()) {
            return ApiFailure::no_such_path();
        }
        if let Err(missing) = verbs::get(&self.lock(), target) {
            return missing;
        }
        ApiFailure::of_status(501, None).saying(format!(
            "the embedded cluster runs no containers and does not serve {}/{}; use a real cluster for it",
            target.resource.plural, target.subresource
        ))
    }

    fn list(
        &self,
        parsed: &Parsed,
        target: &Target,
        form: &Form,
    ) -> Result<Response<Body>, ApiFailure> {
        let query = &parsed.query;
        if query.optional_flag("sendInitialEvents").is_some() {
            return Err(option_failure(
                "ListOptions",
                StatusCause::forbidden(
                    "sendInitialEvents",
                    "sendInitialEvents is forbidden for list",
                ),
            ));
        }
        let filter = filter(query, target)?;
        let store = self.lock();
        query.check_version_match()?;
        let asked = query
            .version()
            .map_err(|why| ApiFailure::bad_request(format!("invalid resource version: {why}")))?
            .unwrap_or(0);
        if asked > store.version() {
            return Err(ApiFailure::too_large_resource_version(
                asked,
                store.version(),
            ));
        }
        let page = Page::read(query, &store, target.resource.storage)?;
        if query.get("resourceVersionMatch") == "Exact"
            && asked < store.floor(target.resource.storage)
        {
            return Err(too_old(asked, store.floor(target.resource.storage)));
        }
        let limit = page.limit.unwrap_or(usize::MAX);
        let mut selected = store.select(target.resource.storage, &filter, page.after.as_ref());
        let mut items: Vec<&Stored> = Vec::new();
        let mut last = None;
        for (key, stored) in selected.by_ref().take(limit) {
            items.push(stored);
            last = Some(key);
        }
        let left = selected.count();
        let mut metadata = json!({ "resourceVersion": page.version.to_string() });
        if let (Some(last), true) = (last, left > 0) {
            metadata["continue"] =
                format!("{}/{}/{}", page.version, last.namespace, last.name).into();
            if filter.labels.is_empty() && filter.fields.is_empty() {
                metadata["remainingItemCount"] = left.into();
            }
        }
        Ok(json_answer(
            200,
            form.list(target.resource, &items, &metadata),
        ))
    }

    fn watch(
        &self,
        parsed: &Parsed,
        target: &Target,
        form: Form,
    ) -> Result<Response<Body>, ApiFailure> {
        let query = &parsed.query;
        let initial = self.initial_events(query)?;
        let filter = filter(query, target)?;
        let since = query
            .version()
            .map_err(ApiFailure::internal)?
            .filter(|version| *version > 0);
        let seconds = query.number("timeoutSeconds")?.unwrap_or(0);
        let timeout = match u64::try_from(seconds) {
            Ok(0) | Err(_) => WATCH_TIME,
            Ok(seconds) => Duration::from_secs(seconds),
        };
        let manner = WatchOptions {
            resource: target.resource,
            form,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_end: initial == Some(true),
            timeout,
        };
        let since = match initial {
            Some(true) => None,
            Some(false) => Some(since.unwrap_or_else(|| self.lock().version())),
            None => since,
        };
        let opened = self.lock().watch(target.resource.storage, filter, since);
        let opened = match opened {
            Ok(opened) => opened,
            Err(floor) => return Ok(expired_watch(since.unwrap_or(0), floor)),
        };
        let lines = watch::lines(Arc::clone(&self.store), opened, manner);
        let body = StreamBody::new(lines.map(|line| line.map(Frame::data)));
        Ok(answer(200, Body::new(body)))
    }

    /// Parses the parameter `sendInitialEvents`. If streaming lists are disabled, rejects the parameter like an older server.
    fn initial_events(&self, query: &Query) -> Result<Option<bool>, ApiFailure> {
        let asked = query.optional_flag("sendInitialEvents");
        if asked.is_none() {
            if !query.get("resourceVersionMatch").is_empty() {
                return Err(option_failure(
                    "ListOptions",
                    StatusCause::forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    ),
                ));
            }
            return Ok(None);
        }
        if !self.streaming_lists {
            return Err(option_failure(
                "ListOptions",
                StatusCause::forbidden(
                    "sendInitialEvents",
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
                ),
            ));
        }
        if query.get("resourceVersionMatch") != "NotOlderThan" {
            return Err(option_failure(
                "ListOptions",
                StatusCause::forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ),
            ));
        }
        Ok(asked)
    }

    fn write(
        &self,
        parsed: &Parsed,
        target: &Target,
        form: &Form,
        body: &Bytes,
    ) -> Result<Response<Body>, ApiFailure> {
        let writing = self.writing(parsed)?;
        let content = text(&parsed.headers, header::CONTENT_TYPE);
        let content = content.split(';').next().unwrap_or("").trim();
        let mut store = self.lock();
        let outcome = match (parsed.info.verb.as_str(), target.subresource.as_str()) {
            ("create", "") if target.resource.storage == Storage::Nothing => {
                let review = decode_body(content, body)?;
                let asks = &parsed.info.user_agent;
                self.access.review(target.resource.kind, review, asks)
            }
            ("create", "") => {
                let object = incoming(target.resource, decode_body(content, body)?);
                verbs::create(&mut store, target, object, &writing)
            }
            ("create", "binding") => {
                let wanted = decode_body(content, body)?;
                binding::bind(&mut store, target, &wanted, &writing)
            }
            ("create", "eviction") => {
                let eviction = decode_body(content, body)?;
                if eviction.name() != target.name {
                    return Err(ApiFailure::bad_request(
                        "name in URL does not match name in Eviction object",
                    ));
                }
                let options = delete_options(&parsed.query, &eviction["deleteOptions"])?;
                disruption::evict(&mut store, target, &options, &writing)
            }
            ("update", _) => {
                let object = incoming(target.resource, decode_body(content, body)?);
                verbs::replace(&mut store, target, object, &writing)
            }
            ("patch", _) => patch_object(&mut store, parsed, target, content, body, &writing),
            ("delete", _) => {
                let asked = decode_options(content, body)?;
                let options = delete_options(&parsed.query, &asked)?;
                verbs::delete(&mut store, target, &options, &as_asked(writing, &asked))
            }
            ("deletecollection", _) => {
                let asked = decode_options(content, body)?;
                let options = delete_options(&parsed.query, &asked)?;
                let (filter, writing) = (filter(&parsed.query, target)?, as_asked(writing, &asked));
                let gone =
                    verbs::delete_collection(&mut store, target, &filter, &options, &writing)?;
                let items: Vec<&Stored> = gone.iter().map(AsRef::as_ref).collect();
                let metadata = json!({ "resourceVersion": store.version().to_string() });
                return Ok(json_answer(
                    200,
                    form.list(target.resource, &items, &metadata),
                ));
            }
            _ => Err(ApiFailure::method_not_allowed()),
        }?;
        Ok(outcome_answer(target, form, outcome))
    }

    fn writing(&self, parsed: &Parsed) -> Result<WriteContext, ApiFailure> {
        let options = match parsed.info.verb.as_str() {
            "create" => "CreateOptions",
            "update" => "UpdateOptions",
            "patch" => "PatchOptions",
            _ => "DeleteOptions",
        };
        let validation = parsed.query.get("fieldValidation");
        const LEVELS: &[&str] = &["", "Ignore", "Strict", "Warn"];
        if !LEVELS.contains(&validation) {
            return Err(option_failure(
                options,
                StatusCause::unsupported("fieldValidation", &validation.into(), LEVELS),
            ));
        }
        Ok(WriteContext {
            now: self.clock.now(),
            dry_run: parsed.query.dry_run(options)?,
            strict: validation == "Strict",
            warn: validation != "Ignore",
            manager: manager(parsed),
            managed: None,
        })
    }
}

fn manager(parsed: &Parsed) -> String {
    match parsed.query.get("fieldManager") {
        "" => parsed.info.user_agent.split('/').next().unwrap_or(""),
        given => given,
    }
    .to_owned()
}

fn other(parsed: &Parsed, minor: u32, custom: bool) -> Result<Response<Body>, ApiFailure> {
    let path = parsed.path.trim_end_matches('/');
    if path.starts_with("/readyz") || path.starts_with("/livez") || path.starts_with("/healthz") {
        return Ok(plain_answer("text/plain; charset=utf-8", "ok".into()));
    }
    if path.starts_with("/openapi/") {
        let document = openapi::answer(path, custom).ok_or_else(ApiFailure::no_such_path)?;
        return Ok(plain_answer(
            "application/json",
            document.to_string().into(),
        ));
    }
    let aggregated = text(&parsed.headers, header::ACCEPT)
        .split(',')
        .any(|range| {
            range.contains("as=APIGroupDiscoveryList") && range.contains("v=v2;")
                || range.ends_with("v=v2")
        });
    let found =
        discovery::answer(path, aggregated, minor, custom).ok_or_else(ApiFailure::no_such_path)?;
    if parsed.method != Method::GET {
        return Err(ApiFailure::method_not_allowed());
    }
    let kind = if found["kind"] == "APIGroupDiscoveryList" {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    } else {
        "application/json"
    };
    Ok(plain_answer(kind, found.to_string().into()))
}

/// Position and size of a page of a list.
struct Page {
    limit: Option<usize>,
    after: Option<ObjectKey>,
    version: u64,
}

impl Page {
    fn read(query: &Query, store: &Store, storage: Storage) -> Result<Self, ApiFailure> {
        let limit = query
            .number("limit")?
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > 0);
        let token = query.get("continue");
        if token.is_empty() {
            return Ok(Self {
                limit,
                after: None,
                version: store.version(),
            });
        }
        let mut parts = token.splitn(3, '/');
        let parsed = (|| {
            let version: u64 = parts.next()?.parse().ok()?;
            let (namespace, name) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            Some((version, ObjectKey { namespace, name }))
        })();
        let Some((version, after)) = parsed else {
            return Err(ApiFailure::bad_request("continue key is not valid"));
        };
        if version < store.floor(storage) {
            return Err(ApiFailure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter.",
            ));
        }
        Ok(Self {
            limit,
            after: Some(after),
            version,
        })
    }
}

fn filter(query: &Query, target: &Target) -> Result<Filter, ApiFailure> {
    let labels = parse_labels(query.get("labelSelector")).map_err(ApiFailure::bad_request)?;
    let resource = target.resource;
    let fields = FieldSelector::parse(query.get("fieldSelector"), resource.storage)
        .map_err(ApiFailure::bad_request)?;
    Ok(Filter {
        namespace: target.namespace.clone(),
        labels,
        fields,
    })
}

/// Decodes a body in JSON, YAML or protobuf.
fn decode_body(content: &str, body: &Bytes) -> Result<Value, ApiFailure> {
    if content == "application/vnd.kubernetes.protobuf" {
        return protobuf::decode(body);
    }
    let value: Result<Value, String> = match content {
        "" | "application/json" => serde_json::from_slice(body).map_err(|error| error.to_string()),
        "application/yaml" | "application/apply-patch+yaml" => {
            serde_saphyr::from_slice(body).map_err(|error| error.to_string())
        }
        _ => {
            return Err(ApiFailure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, \
                 application/yaml, application/vnd.kubernetes.protobuf",
            ));
        }
    };
    let value = value.map_err(|error| {
        ApiFailure::bad_request(format!(
            "couldn't get version/kind; json parse error: {error}"
        ))
    })?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        _ => Err(ApiFailure::bad_request(
            "couldn't get version/kind; json parse error: the body must be an object",
        )),
    }
}

/// Decodes the options of a deletion; they are empty if the request has no body.
fn decode_options(content: &str, body: &Bytes) -> Result<Value, ApiFailure> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    decode_body(content, body)
}

/// Returns the write context with the dry-run option from the body of a deletion.
fn as_asked(writing: WriteContext, body: &Value) -> WriteContext {
    WriteContext {
        dry_run: writing.dry_run || body["dryRun"] == json!(["All"]),
        ..writing
    }
}

fn delete_options(query: &Query, body: &Value) -> Result<DeleteOptions, ApiFailure> {
    if let Err(error) =
        k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions::deserialize(&if body
            .is_null()
        {
            json!({})
        } else {
            body.clone()
        })
    {
        return Err(ApiFailure::bad_request(format!(
            "DeleteOptions cannot be read: {error}"
        )));
    }
    let option = |name: &str| match body.get(name) {
        Some(Value::String(text)) => text.clone(),
        _ => query.get(name).to_owned(),
    };
    let mut propagation = option("propagationPolicy");
    const POLICIES: &[&str] = &["Foreground", "Background", "Orphan"];
    if !propagation.is_empty() && !POLICIES.contains(&propagation.as_str()) {
        return Err(option_failure(
            "DeleteOptions",
            StatusCause::unsupported("propagationPolicy", &propagation.into(), POLICIES),
        ));
    }
    let both = !propagation.is_empty() && !body["orphanDependents"].is_null();
    if both {
        return Err(option_failure(
            "DeleteOptions",
            StatusCause::invalid(
                "propagationPolicy",
                &propagation.into(),
                "orphanDependents and deletionPropagation cannot be both set",
            ),
        ));
    }
    if body["orphanDependents"] == true || query.flag("orphanDependents") {
        propagation = "Orphan".to_owned();
    }
    let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
    Ok(DeleteOptions {
        grace: body["gracePeriodSeconds"]
            .as_i64()
            .or(query.number("gracePeriodSeconds")?),
        propagation,
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
    })
}

const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    STRATEGIC_MERGE_PATCH,
    "application/apply-patch+yaml",
];

/// Patch type that custom resources don't support, because their schema has no merge keys for lists.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

fn patch_object(
    store: &mut Store,
    parsed: &Parsed,
    target: &Target,
    content: &str,
    body: &Bytes,
    writing: &WriteContext,
) -> Result<WriteOutcome, ApiFailure> {
    if content == "application/apply-patch+yaml" {
        let config = incoming(target.resource, decode_body(content, body)?);
        return apply::apply(store, parsed, target, config, writing);
    }
    let known = PATCH_TYPES.iter().copied();
    let known = known.filter(|kind| !target.resource.custom || *kind != STRATEGIC_MERGE_PATCH);
    let known: Vec<&str> = known.collect();
    if !known.contains(&content) {
        return Err(ApiFailure::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            known.join(", ")
        )));
    }
    let document: Value = serde_json::from_slice(body)
        .map_err(|error| ApiFailure::bad_request(format!("error decoding patch: {error}")))?;
    let current = verbs::get(store, target)?;
    let shown = outgoing(target.resource, current.value.clone());
    let patched = match content {
        "application/json-patch+json" => patch::json(&shown, document),
        "application/merge-patch+json" => patch::merge(&shown, &document),
        _ => patch::strategic(&shown, &document),
    }?;
    if patched == shown {
        return Ok(WriteOutcome::new(200, current.value.clone()));
    }
    let decoded = verbs::decode(target, incoming(target.resource, patched), writing);
    let (object, warnings) = decoded.map_err(as_invalid_patch)?;
    if object.uid() != current.value.uid() {
        let cause = StatusCause::invalid(
            "metadata.uid",
            &object["metadata"]["uid"],
            "field is immutable",
        );
        return Err(target.invalid(&[cause]));
    }
    if object.name() != target.name || object.namespace() != target.namespace {
        return Err(ApiFailure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.name
        )));
    }
    let body = verbs::update(store, target, &current, object, writing)?;
    Ok(WriteOutcome {
        code: 200,
        body,
        warnings,
    })
}

/// Converts a 400 to a 422 if the patched object caused the error. Kubernetes returns a 422 for such patches.
fn as_invalid_patch(failure: ApiFailure) -> ApiFailure {
    if failure.code != 400 {
        return failure;
    }
    let cause = StatusCause {
        reason: "FieldValueInvalid",
        field: "patch".to_owned(),
        message: format!("Invalid value: {}", failure.message),
    };
    ApiFailure::invalid("", "", "", &[cause])
}

fn too_old(asked: u64, floor: u64) -> ApiFailure {
    ApiFailure::expired(format!("too old resource version: {asked} ({floor})"))
}

/// Returns a 200 whose stream contains the 410 as an event. A real API server reports an expired watch in the same way.
fn expired_watch(asked: u64, floor: u64) -> Response<Body> {
    let line = json!({ "type": "ERROR", "object": too_old(asked, floor).to_json() });
    json_answer(200, format!("{line}\n").into())
}

fn outcome_answer(target: &Target, form: &Form, outcome: WriteOutcome) -> Response<Body> {
    let is_status = outcome.body["kind"] == "Status";
    let body = match form {
        _ if is_status || target.resource.storage == Storage::Nothing => outcome.body,
        form => form.shape(target.resource, &outcome.body),
    };
    let mut response = json_answer(outcome.code, body.to_string().into());
    for warning in outcome.warnings {
        let quoted = format!("299 - {:?}", warning);
        if let Ok(value) = header::HeaderValue::from_str(&quoted) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// Returns the response that reports a failed request.
pub(crate) fn refusal(failure: &ApiFailure) -> Response<Body> {
    let mut response = json_answer(failure.code, failure.to_json().to_string().into());
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn json_answer(code: u16, body: Bytes) -> Response<Body> {
    answer(code, whole(body))
}

/// Returns a body from bytes that are already in memory.
fn whole(body: Bytes) -> Body {
    Body::new(Full::new(body).map_err(|never| match never {}))
}

/// Returns a response whose content type is not JSON.
pub(crate) fn plain_answer(kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = answer(200, whole(body));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn answer(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-cache, private"),
    );
    response
}
