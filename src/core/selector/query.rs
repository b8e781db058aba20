//! String form of a label selector, in the syntax of `kubectl -l`.

use serde_json::Value;

use super::{InvalidSelector, Requirement, Test, is_label_value, unusable};

/// Parses requirements that are separated by commas. Inside parentheses, commas separate the values of one requirement.
pub(super) fn read(query: &str) -> Result<Vec<Requirement>, InvalidSelector> {
    split(query)
        .map(|part| {
            let part = part.trim();
            requirement(part).ok_or_else(|| {
                let part = Value::String(part.to_owned());
                unusable(&part, "a requirement such as pool=canary or zone in (a,b)")
            })
        })
        .collect()
}

/// Returns the parts between commas, except commas inside parentheses.
fn split(query: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    query.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Option<Requirement> {
    let (key, test) = if let Some(key) = part.strip_prefix('!') {
        (key, Test::DoesNotExist)
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, Test::NotIn(vec![value.trim().into()]))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, Test::In(vec![value.trim().into()]))
    } else if let Some((key, bound)) = part.split_once('>') {
        (key, Test::Gt(bound.trim().parse().ok()?))
    } else if let Some((key, bound)) = part.split_once('<') {
        (key, Test::Lt(bound.trim().parse().ok()?))
    } else if let Some((head, list)) = part.split_once('(') {
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let values: Vec<Box<str>> = list
            .strip_suffix(')')?
            .split(',')
            .map(|value| value.trim().into())
            .collect();
        match operator {
            "in" => (key, Test::In(values)),
            "notin" => (key, Test::NotIn(values)),
            _ => return None,
        }
    } else {
        (part, Test::Exists)
    };
    let values = match &test {
        Test::In(values) | Test::NotIn(values) => values.as_slice(),
        _ => &[],
    };
    let key = key.trim();
    (is_label_key(key) && values.iter().all(|value| is_label_value(value))).then(|| Requirement {
        key: key.into(),
        test,
    })
}

/// Returns true if Kubernetes accepts the label key: a name of at most 63 characters, with an optional DNS name before a slash.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        (1..=253).contains(&prefix.len())
            && prefix.split('.').all(|part| {
                !part.is_empty()
                    && part
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    };
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
}

#[cfg(test)]
mod tests {
    use super::super::Selector;

    #[test]
    fn every_form_of_kubectl_is_parsed_and_written_back() {
        let cases = [
            ("pool=canary", "pool=canary"),
            ("pool==canary , tier!=x", "pool=canary,tier notin (x)"),
            ("zone in (a, b),!old", "zone in (a,b),!old"),
            ("zone  notin (a)", "zone notin (a)"),
            (
                "node-role.kubernetes.io/edge",
                "node-role.kubernetes.io/edge",
            ),
            ("empty=", "empty="),
            ("level > 6,level<8", "level>6,level<8"),
        ];
        for (text, written) in cases {
            let selector = Selector::from_query(text).unwrap();
            assert_eq!(selector.to_query(), written, "{text}");
        }
    }

    #[test]
    fn queries_that_kubernetes_rejects_are_rejected() {
        for text in [
            "",
            ",",
            "a,",
            "=x",
            "a=b=c",
            "a in",
            "a in (b",
            "a like (b)",
            "a b",
            "-a",
            "a=-b",
            "UP/a",
            "/a",
            "a/",
            "a/b/c",
            "!",
            "!!a",
            "a=ä",
            "a>x",
            "a===b",
            "a in (b)) ",
        ] {
            let error = Selector::from_query(text).unwrap_err();
            assert!(error.to_string().starts_with("selector: "), "{text}");
        }
    }
}
