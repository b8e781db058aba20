//! Decoder for protobuf bodies, which kubectl sends in `create namespace`, `drain`, `auth can-i` and other commands.
//!
//! A body starts with `k8s\0`, followed by an envelope that contains apiVersion, kind and the message. [`MESSAGES`] defines the
//! fields of the messages that these commands send. Other fields with a value are rejected with a 415, so that no data is silently
//! lost. Responses are always JSON.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::status::ApiFailure;

const MAGIC: &[u8] = b"k8s\0";

/// Definitions of messages, one per line: the name, then `number:field=type` for each field.
///
/// `[]` marks a repeated field, and `{}` a map from strings. `?` marks a number or flag whose zero value differs from a missing
/// field. `!` at the end of a type marks a field that is skipped, because the server sets it.
const MESSAGES: &str = "\
Envelope 1:typeMeta=TypeMeta 2:raw=bytes 3:contentEncoding=string 4:contentType=string
TypeMeta 1:apiVersion=string 2:kind=string
ObjectMeta 1:name=string 2:generateName=string 3:namespace=string 4:selfLink=string 5:uid=string \
 6:resourceVersion=string 7:generation=int 8:creationTimestamp=Time 9:deletionTimestamp=Time \
 10:deletionGracePeriodSeconds=int? 11:labels={}string 12:annotations={}string 13:ownerReferences=[]OwnerReference \
 14:finalizers=[]string 17:managedFields=!
OwnerReference 5:apiVersion=string 1:kind=string 3:name=string 4:uid=string 6:controller=bool? 7:blockOwnerDeletion=bool?
DeleteOptions 1:gracePeriodSeconds=int? 2:preconditions=Preconditions 3:orphanDependents=bool? \
 4:propagationPolicy=string 5:dryRun=[]string
Preconditions 1:uid=string 2:resourceVersion=string
LabelSelector 1:matchLabels={}string 2:matchExpressions=[]LabelSelectorRequirement
LabelSelectorRequirement 1:key=string 2:operator=string 3:values=[]string
Namespace 1:metadata=ObjectMeta 2:spec=NamespaceSpec 3:status=!
NamespaceSpec 1:finalizers=[]string
ConfigMap 1:metadata=ObjectMeta 2:data={}string 3:binaryData={}bytes 4:immutable=bool?
Secret 1:metadata=ObjectMeta 2:data={}bytes 3:type=string 4:stringData={}string 5:immutable=bool?
ServiceAccount 1:metadata=ObjectMeta 2:secrets=[]ObjectReference 3:imagePullSecrets=[]LocalObjectReference \
 4:automountServiceAccountToken=bool?
ObjectReference 1:kind=string 2:namespace=string 3:name=string 4:uid=string 5:apiVersion=string 6:resourceVersion=string \
 7:fieldPath=string
LocalObjectReference 1:name=string
ResourceQuota 1:metadata=ObjectMeta 2:spec=ResourceQuotaSpec 3:status=!
ResourceQuotaSpec 1:hard={}Quantity 2:scopes=[]string
Job 1:metadata=ObjectMeta 2:spec=JobSpec 3:status=!
JobSpec 1:parallelism=int? 2:completions=int? 3:activeDeadlineSeconds=int? 4:selector=LabelSelector 5:manualSelector=bool? \
 6:template=PodTemplateSpec 7:backoffLimit=int? 8:ttlSecondsAfterFinished=int? 9:completionMode=string 10:suspend=bool?
PodTemplateSpec 1:metadata=ObjectMeta 2:spec=PodSpec
PodSpec 2:containers=[]Container 20:initContainers=[]Container 3:restartPolicy=string \
 4:terminationGracePeriodSeconds=int? 5:activeDeadlineSeconds=int? 6:dnsPolicy=string 7:nodeSelector={}string \
 8:serviceAccountName=string 9:serviceAccount=string 10:nodeName=string 11:hostNetwork=bool 19:schedulerName=string
Container 1:name=string 2:image=string 3:command=[]string 4:args=[]string 5:workingDir=string 6:ports=[]ContainerPort \
 7:env=[]EnvVar 8:resources=ResourceRequirements 13:terminationMessagePath=string 14:imagePullPolicy=string \
 20:terminationMessagePolicy=string
ContainerPort 1:name=string 2:hostPort=int 3:containerPort=int 4:protocol=string 5:hostIP=string
EnvVar 1:name=string 2:value=string
ResourceRequirements 1:limits={}Quantity 2:requests={}Quantity
PodDisruptionBudget 1:metadata=ObjectMeta 2:spec=PodDisruptionBudgetSpec 3:status=!
PodDisruptionBudgetSpec 1:minAvailable=IntOrString 2:selector=LabelSelector 3:maxUnavailable=IntOrString \
 4:unhealthyPodEvictionPolicy=string
Eviction 1:metadata=ObjectMeta 2:deleteOptions=DeleteOptions
SelfSubjectAccessReview 1:metadata=ObjectMeta 2:spec=SelfSubjectAccessReviewSpec 3:status=!
SelfSubjectAccessReviewSpec 1:resourceAttributes=ResourceAttributes 2:nonResourceAttributes=NonResourceAttributes
SubjectAccessReview 1:metadata=ObjectMeta 2:spec=SubjectAccessReviewSpec 3:status=!
SubjectAccessReviewSpec 1:resourceAttributes=ResourceAttributes 2:nonResourceAttributes=NonResourceAttributes \
 3:user=string 4:groups=[]string
ResourceAttributes 1:namespace=string 2:verb=string 3:group=string 4:version=string 5:resource=string \
 6:subresource=string 7:name=string
NonResourceAttributes 1:path=string 2:verb=string
";

/// Decodes a body to a JSON object.
///
/// # Errors
///
/// Returns a 400 for invalid bytes, and a 415 for unknown kinds or fields.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiFailure> {
    let envelope = body.strip_prefix(MAGIC).ok_or_else(broken)?;
    let mut version = Value::Null;
    let mut raw: &[u8] = &[];
    for field in fields(envelope) {
        match field? {
            (1, Wire::Bytes(bytes)) => version = message("TypeMeta", bytes)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let kind = version["kind"].as_str().unwrap_or("").to_owned();
    if fields_of(&kind).is_none() {
        return Err(unknown(&format!("the kind {kind:?}")));
    }
    let mut object = message(&kind, raw)?;
    object["apiVersion"] = version["apiVersion"].clone();
    object["kind"] = kind.into();
    Ok(object)
}

fn broken() -> ApiFailure {
    ApiFailure::bad_request("the request body is not valid protobuf")
}

fn unknown(what: &str) -> ApiFailure {
    ApiFailure::unsupported_media_type(format!(
        "the embedded cluster does not support {what} in protobuf; send application/json instead (kubectl create -f does)"
    ))
}

/// Value of a field in protobuf's wire format.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Number(0) | Self::Bytes([]))
    }
}

fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u64, Wire<'_>), ApiFailure>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = read_field(&mut rest).ok_or_else(broken);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn read_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = read_number(rest)?;
    let value = match tag & 7 {
        0 => Wire::Number(read_number(rest)?),
        2 => {
            let length = usize::try_from(read_number(rest)?).ok()?;
            let (bytes, tail) = rest.split_at_checked(length)?;
            *rest = tail;
            Wire::Bytes(bytes)
        }
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn fields_of(name: &str) -> Option<&'static str> {
    MESSAGES.lines().find_map(|line| {
        let (message, fields) = line.split_once(' ')?;
        (message == name && !name.is_empty()).then_some(fields)
    })
}

fn message(name: &str, bytes: &[u8]) -> Result<Value, ApiFailure> {
    let known = fields_of(name).unwrap_or("");
    let mut object = Map::new();
    for field in fields(bytes) {
        let (number, wire) = field?;
        let found = known.split_whitespace().find_map(|entry| {
            let (key, rest) = entry.split_once(':')?;
            (key.parse() == Ok(number)).then(|| rest.split_once('='))?
        });
        match found {
            Some((_, "!")) => {}
            Some((field, shape)) => put(&mut object, field, shape, &wire)?,
            None if wire.is_nothing() => {}
            None => return Err(unknown(&format!("field {number} of {name}"))),
        }
    }
    Ok(Value::Object(object))
}

fn put(
    object: &mut Map<String, Value>,
    field: &str,
    shape: &str,
    wire: &Wire<'_>,
) -> Result<(), ApiFailure> {
    if let Some(shape) = shape.strip_prefix("[]") {
        let item = value(shape, wire)?;
        if let Value::Array(list) = object.entry(field).or_insert_with(|| json!([])) {
            list.push(item);
        }
        return Ok(());
    }
    if let Some(shape) = shape.strip_prefix("{}") {
        let (key, item) = entry(shape, wire)?;
        if let Value::Object(map) = object.entry(field).or_insert_with(|| json!({})) {
            map.insert(key, item);
        }
        return Ok(());
    }
    let (shape, pointer) = match shape.strip_suffix('?') {
        Some(shape) => (shape, true),
        None => (shape, false),
    };
    if wire.is_nothing() && !pointer {
        return Ok(());
    }
    object.insert(field.to_owned(), value(shape, wire)?);
    Ok(())
}

fn entry(shape: &str, wire: &Wire<'_>) -> Result<(String, Value), ApiFailure> {
    let Wire::Bytes(bytes) = wire else {
        return Err(broken());
    };
    let (mut key, mut item) = (String::new(), value(shape, &Wire::Bytes(&[]))?);
    for field in fields(bytes) {
        match field? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => item = value(shape, &wire)?,
            _ => {}
        }
    }
    Ok((key, item))
}

fn text(bytes: &[u8]) -> Result<String, ApiFailure> {
    String::from_utf8(bytes.to_vec()).map_err(|_| broken())
}

fn value(shape: &str, wire: &Wire<'_>) -> Result<Value, ApiFailure> {
    Ok(match (shape, wire) {
        ("string", Wire::Bytes(bytes)) => text(bytes)?.into(),
        ("bytes", Wire::Bytes(bytes)) => {
            let bytes = k8s_openapi::ByteString(bytes.to_vec());
            serde_json::to_value(bytes).map_err(|_| broken())?
        }
        ("int", Wire::Number(number)) => number.cast_signed().into(),
        ("bool", Wire::Number(number)) => (*number != 0).into(),
        ("Quantity", Wire::Bytes(bytes)) => quantity(bytes)?,
        ("Time", Wire::Bytes(bytes)) => time(bytes)?,
        ("IntOrString", Wire::Bytes(bytes)) => int_or_string(bytes)?,
        (name, Wire::Bytes(bytes)) => message(name, bytes)?,
        _ => return Err(broken()),
    })
}

fn quantity(bytes: &[u8]) -> Result<Value, ApiFailure> {
    for field in fields(bytes) {
        if let (1, Wire::Bytes(bytes)) = field? {
            return Ok(text(bytes)?.into());
        }
    }
    Ok("".into())
}

fn time(bytes: &[u8]) -> Result<Value, ApiFailure> {
    for field in fields(bytes) {
        if let (1, Wire::Number(seconds)) = field? {
            let instant = Timestamp::from_second(seconds.cast_signed()).map_err(|_| broken())?;
            return Ok(super::write::seconds(instant).into());
        }
    }
    Ok(Value::Null)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ApiFailure> {
    let (mut is_text, mut number, mut word) = (false, 0, String::new());
    for field in fields(bytes) {
        match field? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => word = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { word.into() } else { number.into() })
}
