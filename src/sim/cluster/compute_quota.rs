//! Quotas for CPU, memory and local storage, based on the requests and limits of pods.

use serde_json::Value;

use super::object::Object;

/// Quota names, each with the field (`requests` or `limits`) and the resource of a container that the quota limits.
const COUNTED: [(&str, &str, &str); 8] = [
    ("cpu", "requests", "cpu"),
    ("memory", "requests", "memory"),
    ("requests.cpu", "requests", "cpu"),
    ("requests.memory", "requests", "memory"),
    (
        "requests.ephemeral-storage",
        "requests",
        "ephemeral-storage",
    ),
    ("limits.cpu", "limits", "cpu"),
    ("limits.memory", "limits", "memory"),
    ("limits.ephemeral-storage", "limits", "ephemeral-storage"),
];

/// Returns the reason if a quota forbids a new pod in addition to the running pods; `None` if the pod is allowed.
pub(super) fn objection(quota: &Value, pod: &Value, running: &[&Value]) -> Option<String> {
    let (name, hard) = (quota.name(), &quota["spec"]["hard"]);
    let counted = || COUNTED.iter().filter(|(key, ..)| hard.get(*key).is_some());
    let unsaid: Vec<String> = counted()
        .filter_map(|(key, list, resource)| {
            let silent = containers(pod).filter(|c| c["resources"][list].get(*resource).is_none());
            let silent: Vec<&str> = silent.map(|container| container.text("/name")).collect();
            (!silent.is_empty()).then(|| format!("{key} for: {}", silent.join(",")))
        })
        .collect();
    if !unsaid.is_empty() {
        return Some(format!(
            "failed quota: {name}: must specify {}",
            unsaid.join("; ")
        ));
    }
    counted().find_map(|(key, list, resource)| {
        let of = |pod: &Value| -> i128 {
            containers(pod)
                .map(|c| thousandths(&c["resources"][list][resource]))
                .sum()
        };
        let (asked, used) = (of(pod), running.iter().copied().map(of).sum::<i128>());
        let limit = thousandths(&hard[key]);
        (asked > 0 && used + asked > limit).then(|| {
            format!(
                "exceeded quota: {name}, requested: {key}={}, used: {key}={}, limited: {key}={}",
                shown(asked),
                shown(used),
                shown(limit)
            )
        })
    })
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// Returns a quantity (text or number) in thousandths of its unit; 0 if it cannot be parsed.
fn thousandths(quantity: &Value) -> i128 {
    let text = match quantity {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor: i128 = match suffix {
        "" => 1000,
        "m" => 1,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return 0,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let value = |text: &str| text.parse::<i128>().unwrap_or(0);
    value(whole) * factor + value(&part) * factor / 1000
}

fn shown(thousandths: i128) -> String {
    const UNITS: [(&str, i128); 3] = [("Gi", 1000 << 30), ("Mi", 1000 << 20), ("Ki", 1000 << 10)];
    if thousandths == 0 {
        return "0".to_owned();
    }
    if thousandths % 1000 != 0 {
        return format!("{thousandths}m");
    }
    let fits = |(_, size): &&(&str, i128)| thousandths % size == 0;
    match UNITS.iter().find(fits) {
        Some((unit, size)) => format!("{}{unit}", thousandths / size),
        None => (thousandths / 1000).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: Value) -> Value {
        json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    }

    #[test]
    fn a_quota_requires_all_requests_and_limits_and_sums_them() {
        let quota = json!({
            "metadata": { "name": "q" },
            "spec": { "hard": { "requests.cpu": "1", "limits.memory": "100Mi" } },
        });
        let case =
            |resources: Value, running: Value| objection(&quota, &pod(resources), &[&pod(running)]);
        assert_eq!(
            case(json!({}), json!({})).as_deref(),
            Some("failed quota: q: must specify requests.cpu for: c; limits.memory for: c")
        );
        let asks = |cpu: &str, memory: &str| json!({ "requests": { "cpu": cpu }, "limits": { "memory": memory } });
        assert_eq!(case(asks("0", "32Mi"), asks("1", "64Mi")), None);
        assert_eq!(
            case(asks("600m", "32Mi"), asks("0.5", "1Ki")).as_deref(),
            Some(
                "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
            )
        );
        assert_eq!(
            case(asks("0", "64Mi"), asks("0", "64Mi")).as_deref(),
            Some(
                "exceeded quota: q, requested: limits.memory=64Mi, used: limits.memory=64Mi, limited: limits.memory=100Mi"
            )
        );
    }
}
