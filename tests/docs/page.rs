//! A page of `docs/`, parsed for a test: its title, its examples, and the steps of each example.

use std::mem;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    /// First heading of the page.
    pub(crate) title: String,
    /// Examples of the page: fenced ```yaml blocks, each with the comments that follow it.
    pub(crate) examples: Vec<Example>,
}

/// Example in a ```yaml block: a complete DaemonSet and any other objects that it needs.
#[derive(Debug, Default)]
pub(crate) struct Example {
    /// Objects of the example in order.
    pub(crate) objects: Vec<Value>,
    /// Steps of the example in order.
    pub(crate) steps: Vec<Step>,
    /// Reason why the example can't be run, if it is invalid.
    pub(crate) unreadable: Option<String>,
}

/// Step that a comment of a page defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `image`: changes the image of the first container.
    Image,
    /// `crashes`: makes containers with a changed image crash from then on.
    Crashes,
    /// `annotate: NAME=VALUE` or `annotate: NAME-`: sets or removes an annotation of the DaemonSet. `{revision}` in the value
    /// stands for the hash of the current revision.
    Annotate(String, Option<String>),
    /// `offline: NODE`: takes the node offline.
    Offline(String),
    /// `online: NODE`: brings the node back online.
    Online(String),
    /// `expect: converged`: waits until every targeted node has an available pod of the new revision and the rollout is complete.
    Converged,
    /// `expect: TYPE=STATUS "words"`: waits for a condition of the DaemonSet with these words in its message.
    Condition(String, String, String),
}

impl Page {
    /// Parses a page from the text of the file `name`.
    pub(crate) fn read(name: &str, text: &str) -> Self {
        let mut page = Self {
            name: name.to_owned(),
            title: String::new(),
            examples: Vec::new(),
        };
        let mut block: Option<String> = None;
        for line in text.lines() {
            match &mut block {
                Some(yaml) if line.trim() == "```" => {
                    page.examples.push(Example::read(&mem::take(yaml)));
                    block = None;
                }
                Some(yaml) => {
                    yaml.push_str(line);
                    yaml.push('\n');
                }
                None if line.trim() == "```yaml" => block = Some(String::new()),
                None if page.title.is_empty() && line.starts_with("# ") => {
                    page.title = line.to_owned();
                }
                None => page.heed(line),
            }
        }
        for example in &mut page.examples {
            example.complete();
        }
        page
    }

    /// Adds the step that a comment line defines to the last example.
    fn heed(&mut self, line: &str) {
        let comment = line.trim().strip_prefix("<!--");
        let Some(text) = comment.and_then(|rest| rest.strip_suffix("-->")) else {
            return;
        };
        let Some(example) = self.examples.last_mut() else {
            return;
        };
        match Step::read(text.trim()) {
            Some(step) => example.steps.push(step),
            None => example.unreadable = Some(format!("cannot read the comment {line}")),
        }
    }
}

impl Example {
    fn read(yaml: &str) -> Self {
        let mut example = Self::default();
        for document in yaml.split("\n---\n") {
            match serde_saphyr::from_str(document) {
                Ok(object) => example.objects.push(object),
                Err(error) => example.unreadable = Some(format!("{error} in\n{document}")),
            }
        }
        if !example.objects.iter().any(is_daemon_set) {
            let why = "a ```yaml block without a DaemonSet; a fragment is a ```text block";
            example.unreadable.get_or_insert(why.to_owned());
        }
        example
    }

    /// Adds default steps that the comments omit: a change of the image at the start, and a complete rollout at the end.
    fn complete(&mut self) {
        if !self.steps.contains(&Step::Image) {
            self.steps.insert(0, Step::Image);
        }
        let expects = |step: &Step| matches!(step, Step::Converged | Step::Condition(..));
        if !self.steps.iter().any(expects) {
            self.steps.push(Step::Converged);
        }
    }
}

pub(crate) fn is_daemon_set(object: &Value) -> bool {
    object["kind"] == "DaemonSet"
}

impl Step {
    fn read(text: &str) -> Option<Self> {
        match text {
            "image" => return Some(Self::Image),
            "crashes" => return Some(Self::Crashes),
            _ => {}
        }
        let (verb, rest) = text.split_once(": ")?;
        let rest = rest.trim();
        match verb {
            "annotate" => Some(match rest.strip_suffix('-') {
                Some(name) if !rest.contains('=') => Self::Annotate(name.to_owned(), None),
                _ => {
                    let (name, value) = rest.split_once('=')?;
                    Self::Annotate(name.to_owned(), Some(value.to_owned()))
                }
            }),
            "offline" => Some(Self::Offline(rest.to_owned())),
            "online" => Some(Self::Online(rest.to_owned())),
            "expect" if rest == "converged" => Some(Self::Converged),
            "expect" => {
                let (condition, words) = rest.split_once(' ').unwrap_or((rest, ""));
                let (kind, status) = condition.split_once('=')?;
                let words = words.trim().trim_matches('"');
                Some(Self::Condition(kind.into(), status.into(), words.into()))
            }
            _ => None,
        }
    }
}

#[test]
fn a_page_is_read_as_the_index_says() {
    let page = Page::read(
        "partition.md",
        "# `partition`\n\n```yaml\nkind: DaemonSet\n---\nkind: Node\n```\n\n<!-- expect: RolloutComplete=True \"kept: 1\" -->\n\
         <!-- annotate: partition=0 -->\n<!-- annotate: paused- -->\n<!-- crashes -->\n<!-- expect: converged -->\n\n```yaml\nkind: Node\n```\n",
    );
    assert_eq!(page.title, "# `partition`");
    let [first, second] = page.examples.as_slice() else {
        panic!("{} examples", page.examples.len());
    };
    assert_eq!(first.objects.len(), 2);
    let condition = Step::Condition("RolloutComplete".into(), "True".into(), "kept: 1".into());
    let expected = [
        Step::Image,
        condition,
        Step::Annotate("partition".into(), Some("0".into())),
        Step::Annotate("paused".into(), None),
        Step::Crashes,
        Step::Converged,
    ];
    assert_eq!(first.steps, expected);
    assert!(second.unreadable.is_some());
}
