//! Preemption: on a full node, a surge pod with a high priority can make the scheduler evict other pods.
//!
//! The PriorityClass defines if its pods preempt others, but the controller has no permission to read PriorityClasses. Therefore
//! every priority in the template counts as preemption, unless the template's `preemptionPolicy` is `Never`.

use std::fmt;

use serde_json::Value;

/// Source of the priority of a template's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preempting {
    /// PriorityClass of this name.
    Class(Box<str>),
    /// Priority as a number.
    Priority(i64),
}

impl Preempting {
    /// Returns the part of `template` that can let its pods preempt other pods. `None` if there is no such part, or if
    /// `preemptionPolicy` is `Never`.
    pub fn from_template(template: &Value) -> Option<Self> {
        let spec = &template["spec"];
        if spec["preemptionPolicy"] == "Never" {
            return None;
        }
        let class = spec["priorityClassName"]
            .as_str()
            .filter(|name| !name.is_empty());
        let priority = || spec["priority"].as_i64().filter(|number| *number > 0);
        class
            .map(|name| Self::Class(name.into()))
            .or_else(|| priority().map(Self::Priority))
    }
}

impl fmt::Display for Preempting {
    /// Writes the end of a sentence that begins with "the template's".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(name) => write!(f, "priorityClassName is {name:?}"),
            Self::Priority(number) => write!(f, "priority is {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_preempts_by_its_class_or_priority_unless_its_policy_is_never() {
        #[track_caller]
        fn case(spec: Value, says: Option<&str>) {
            let found = Preempting::from_template(&json!({ "spec": spec }));
            assert_eq!(found.map(|found| found.to_string()).as_deref(), says);
        }
        case(json!({}), None);
        case(json!({ "priorityClassName": "" }), None);
        case(json!({ "priority": 0 }), None);
        case(json!({ "priority": -5 }), None);
        case(json!({ "priority": 7 }), Some("priority is 7"));
        let class = || json!({ "priorityClassName": "edge", "priority": 7 });
        case(class(), Some("priorityClassName is \"edge\""));
        let mut never = class();
        never["preemptionPolicy"] = "Never".into();
        case(never, None);
    }
}
