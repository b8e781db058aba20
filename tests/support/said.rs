//! Expected responses of agents as data, with exact statuses and texts. Placeholders in a text stand for the names of current
//! objects. `docs/reference/node-api.md` numbers the rejections.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::agents::Answer;
use super::picture::{Picture, condition_of, uid};

/// Expected response. Its text may contain placeholders: `{ns}`, `{pod}` and `{node}` for the requested pod, and `{hash}` for the
/// current revision.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    status: u16,
    words: Words,
    reason: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum Words {
    Exactly(String),
    Beginning(String),
    Anything,
}

/// Expects this status with exactly this text.
pub(crate) fn says(status: u16, text: &str) -> Said {
    let words = Words::Exactly(text.to_owned());
    Said::new(status, words)
}

/// Expects this status with a text that begins with these words.
pub(crate) fn begins(status: u16, text: &str) -> Said {
    let words = Words::Beginning(text.to_owned());
    Said::new(status, words)
}

/// Expects this status with any text.
pub(crate) fn status(status: u16) -> Said {
    let words = Words::Anything;
    Said::new(status, words)
}

/// Expects the response of an agent that replaces the pod.
pub(crate) fn started() -> Said {
    says(200, "Start updating pod {ns}/{pod}").because("Started")
}

/// Expects the response of an agent that requests a pre-pull for the pod.
pub(crate) fn requested() -> Said {
    says(200, "Image pre-pull requested for pod {ns}/{pod}")
}

/// Expects rejection 1 of the node API: the agent can't reach the API server.
pub(crate) fn disconnected() -> Said {
    let text = "OTA upgrade is not allowed when node is disconnected to cloud";
    says(503, text).because("Disconnected")
}

/// Expects one of the rejections 3 to 5 of the node API, with the text that the action `upgrade` returns.
pub(crate) fn refused(detail: &str) -> Said {
    let text = "Pre check update pod failed, Failed to check pod {ns}/{pod} status, error: ";
    says(403, &format!("{text}{detail}"))
}

/// Expects one of the rejections 3 to 5 of the node API, with the text that the action `imagepull` returns.
pub(crate) fn pull_refused(detail: &str) -> Said {
    let text = "Failed to check pod status {ns}/{pod}, error: ";
    says(403, &format!("{text}{detail}"))
}

/// Detail of rejection 3: the pod is already terminating.
pub(crate) const DELETING: &str = "Pod {ns}/{pod} is deleting, can not be updated";
/// Detail of rejection 4: the pod runs on another node.
pub(crate) const ELSEWHERE: &str = "Pod: {ns}/{pod} is running on {node}, can not be updated";
/// Detail of rejection 5: there is no newer version for the pod.
pub(crate) const NOTHING_NEW: &str = "Pod: {ns}/{pod} update status is False, can not be updated";

/// Expects rejection 6 of the node API: the pod's images are not pulled.
pub(crate) fn image_not_ready(reason: &str, message: &str) -> Said {
    let text = "Pre check update pod failed, Failed to check pod {ns}/{pod} image ready, error: Pod: {ns}/{pod} image is not ready, ";
    begins(403, &format!("{text}reason: {reason}, message: {message}"))
}

impl Said {
    fn new(status: u16, words: Words) -> Self {
        Self {
            status,
            words,
            reason: None,
        }
    }

    /// Also expects this value of the header `X-Ota-Reason`.
    pub(crate) fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Returns true if this response to `upgrade` means that the agent replaces the pod.
    pub(crate) fn is_success(&self) -> bool {
        self.status == 200
    }

    /// Compares a response with the expected one. The error describes the difference.
    pub(crate) fn compare(&self, answer: &Answer, names: &Names) -> Result<(), String> {
        let text = answer.text();
        let found = || format!("{} {text:?}", answer.status.as_u16());
        if answer.status.as_u16() != self.status {
            return Err(format!("{} instead of status {}", found(), self.status));
        }
        let fits = match &self.words {
            Words::Exactly(words) => text == names.fill(words),
            Words::Beginning(words) => text.starts_with(&names.fill(words)),
            Words::Anything => true,
        };
        if !fits {
            return Err(format!("{} instead of {:?}", found(), self.words));
        }
        let kind = match self.status {
            200 => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        if answer.header("content-type") != kind {
            let other = answer.header("content-type");
            return Err(format!("{} has the Content-Type {other:?}", found()));
        }
        let reason = answer.header("x-ota-reason");
        match self.reason {
            Some(expected) if expected != reason => Err(format!(
                "{} has the reason {reason:?}, not {expected:?}",
                found()
            )),
            _ => Ok(()),
        }
    }
}

/// Values that replace the placeholders in a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) node: String,
    pub(crate) hash: String,
}

impl Names {
    /// Returns the text with its placeholders replaced.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{ns}", &self.namespace)
            .replace("{pod}", &self.pod)
            .replace("{node}", &self.node)
            .replace("{hash}", &self.hash)
    }
}

type Predicate = dyn Fn(&Value, &Picture, &str) -> Result<(), String> + Send + Sync;

/// Expected response to `GET /pods`.
#[derive(Clone)]
pub(crate) struct Shown {
    /// Name of the expectation in messages.
    pub(crate) name: String,
    predicate: Arc<Predicate>,
}

impl Shown {
    /// Returns a predicate over the list, the picture of the story and the name of the agent's node.
    pub(crate) fn new(
        name: impl Into<String>,
        predicate: impl Fn(&Value, &Picture, &str) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            predicate: Arc::new(predicate),
        }
    }

    /// Returns an expectation that is met if both expectations are met.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::new(
            format!("{} and {}", self.name, other.name),
            move |list, picture, node| {
                self.holds(list, picture, node)?;
                other.holds(list, picture, node)
            },
        )
    }

    /// Evaluates the predicate. The error contains the reason for a failure.
    pub(crate) fn holds(&self, list: &Value, picture: &Picture, node: &str) -> Result<(), String> {
        (self.predicate)(list, picture, node)
    }
}

/// Expects a `PodList` (`v1`) with complete pods. All of them must run on the agent's node.
pub(crate) fn a_pod_list() -> Shown {
    Shown::new("a PodList of this node", |list, _, node| {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = (word(&list["apiVersion"]), word(&list["kind"]));
        if kind != ("v1".to_owned(), "PodList".to_owned()) {
            return Err(format!("this is {kind:?}"));
        }
        for item in list["items"].as_array().ok_or("no items")? {
            let pod: Pod = serde_json::from_value(item.clone()).map_err(|e| e.to_string())?;
            let place = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            if place != Some(node) || pod.metadata.uid.is_none() || pod.status.is_none() {
                return Err(format!("not a whole pod of {node}: {item}"));
            }
        }
        Ok(())
    })
}

/// Expects that the list contains the DaemonSet's pod of the node, with `PodNeedUpgrade` of this status for the current revision.
pub(crate) fn announced(status: bool) -> Shown {
    let expected = if status { "True" } else { "False" };
    Shown::new(
        format!("PodNeedUpgrade={expected}"),
        move |list, picture, node| {
            let known = picture.living(node).next().ok_or("no pod in the API")?;
            let pod = listed(list, &uid(&known.metadata))?;
            let found = condition_of(&pod, "PodNeedUpgrade").ok_or("no condition")?;
            let hash = picture.current().ok_or("no revision")?;
            let message = format!("controllerrevision: {hash}");
            if found.status == expected && found.message.as_ref() == Some(&message) {
                Ok(())
            } else {
                Err(format!("{found:?}, current {hash}"))
            }
        },
    )
}

/// Expects that the list contains the DaemonSet's pod of the node, with `PodImageReady` of this status and reason.
pub(crate) fn image_shown(status: &'static str, reason: &'static str) -> Shown {
    Shown::new(
        format!("PodImageReady={status} {reason}"),
        move |list, picture, node| {
            let known = picture.living(node).next().ok_or("no pod in the API")?;
            let pod = listed(list, &uid(&known.metadata))?;
            let found = condition_of(&pod, "PodImageReady").ok_or("no condition")?;
            let fits = found.status == status && found.reason.as_deref().unwrap_or("") == reason;
            if fits {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        },
    )
}

/// Expects this number of pods in the list.
pub(crate) fn so_many(expected: usize) -> Shown {
    Shown::new(format!("{expected} pods"), move |list, _, _| {
        let found = list["items"].as_array().map_or(0, Vec::len);
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found} pods"))
        }
    })
}

fn listed(list: &Value, wanted: &str) -> Result<Pod, String> {
    let items = list["items"].as_array().ok_or("no items")?;
    let found = items.iter().find(|item| item["metadata"]["uid"] == wanted);
    let found = found.ok_or_else(|| format!("pod {wanted} is not listed"))?;
    serde_json::from_value(found.clone()).map_err(|error| error.to_string())
}
