//! Change to plan: settings, images, or only a restart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::ctl::PlanArgs;
use crate::core::SetKind;
use crate::core::foreign::{QUOTED, cut};
use crate::core::names::{ANNOTATION_PREFIX, KRUISE_PREDOWNLOADS};
use crate::core::settings::{keys, our_setting, path_of, setting};
use crate::ctl::code::Code;
use crate::ctl::error::CliError;
use crate::ctl::suggest::{near, suggestion};

/// Prefix of a removed setting in the output.
pub(super) const UNSET: &str = "without ";

/// Annotation that `kubectl rollout restart` sets in a template.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

/// Maximum length of an image reference in bytes. Its name has at most 255, its tag 128, and a digest 135.
const LONGEST_IMAGE: usize = 600;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlannedChange {
    /// New values by annotation; `None` if the change removes the annotation.
    pub(super) settings: BTreeMap<String, Option<String>>,
    /// New images by container name. A name of `None` means the only container.
    images: Vec<(Option<String>, String)>,
    restart: bool,
}

impl PlannedChange {
    /// Reads the change from the command line.
    ///
    /// # Errors
    /// Fails with the name of the invalid argument.
    pub(super) fn typed(args: &PlanArgs) -> Result<Self, CliError> {
        let mut change = Self {
            restart: args.restart,
            ..Self::default()
        };
        for text in &args.set {
            let Some((key, value)) = text.split_once('=') else {
                return Err(usage(format!(
                    "--set {}: write KEY=VALUE, such as --set max-unavailable=20%.",
                    cut(text, QUOTED)
                )));
            };
            change.setting("--set", key, Some(value.to_owned()))?;
        }
        for key in &args.unset {
            change.setting("--unset", key, None)?;
        }
        for text in &args.image {
            let (container, image) = match text.split_once('=') {
                Some((container, image)) => (Some(container.to_owned()), image),
                None => (None, text.as_str()),
            };
            if container.as_deref() == Some("") || !is_image(image) {
                return Err(usage(format!(
                    "--image {}: write [CONTAINER=]IMAGE without spaces, such as --image nginx=nginx:1.19.5.",
                    cut(text, QUOTED)
                )));
            }
            change.images.push((container, image.to_owned()));
        }
        Ok(change)
    }

    fn setting(&mut self, flag: &str, key: &str, value: Option<String>) -> Result<(), CliError> {
        let full = match (of_field(key), key.contains('/')) {
            (Some(known), _) => known.to_owned(),
            (None, true) => key.to_owned(),
            (None, false) => format!("{ANNOTATION_PREFIX}{key}"),
        };
        let Some(known) = setting(&full) else {
            let known = keys().map(|known| &known[ANNOTATION_PREFIX.len()..]);
            let help = suggestion(&near(key, known));
            return Err(usage(format!(
                "{flag} {}: there is no such setting.{help} List all settings: yurt-ds ctl settings",
                cut(key, QUOTED)
            )));
        };
        // The reference has words for some defaults, such as "always", that are no valid value. Treat them as an absent annotation.
        let value = value.filter(|text| text != known.default);
        match self.settings.insert(full, value) {
            Some(other) if self.settings.get(key) != Some(&other) => Err(usage(format!(
                "{key} is given more than once. Use it once, in --set or in --unset."
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the patch of the DaemonSet that applies the settings.
    ///
    /// On an Advanced DaemonSet, a field overrides the annotation of the same setting. If the field can express the value, the
    /// patch sets the field and removes the annotation. Otherwise it sets the annotation and removes the field.
    pub(super) fn to_settings(&self, kind: SetKind) -> Value {
        let mut patch = json!({});
        for (key, value) in &self.settings {
            patch["metadata"]["annotations"][key] = json!(value);
            let Some(path) = path_of(key).filter(|_| kind == SetKind::Advanced) else {
                continue;
            };
            let field = value.as_deref().and_then(|text| in_field(path, text));
            if field.is_some() {
                patch["metadata"]["annotations"][key] = Value::Null;
            }
            *path
                .split('.')
                .fold(&mut patch, |part, name| &mut part[name]) = json!(field);
        }
        let is_removed = |key: &&'static str| self.settings.get(&our_setting(key)) == Some(&None);
        let foreign = KRUISE_PREDOWNLOADS.into_iter().filter(is_removed);
        for key in foreign.filter(|_| kind == SetKind::Advanced) {
            patch["metadata"]["annotations"][key] = Value::Null;
        }
        patch
    }

    /// Applies the new images and the restart to a template.
    ///
    /// # Errors
    /// Fails if the template has no container of that name.
    pub(super) fn to_template(&self, template: &mut Value) -> Result<(), CliError> {
        let mut given: BTreeMap<String, &str> = BTreeMap::new();
        for (name, image) in &self.images {
            let mut all = Vec::new();
            let spec = template["spec"].as_object_mut().into_iter();
            for (list, value) in spec.flat_map(|spec| spec.iter_mut()) {
                if ["containers", "initContainers"].contains(&list.as_str()) {
                    let main = list == "containers";
                    all.extend(
                        value
                            .as_array_mut()
                            .into_iter()
                            .flatten()
                            .map(|one| (main, one)),
                    );
                }
            }
            let own = |container: &Value| container["name"].as_str().unwrap_or_default().to_owned();
            let names: Vec<String> = all.iter().map(|(_, one)| own(one)).collect();
            let mains = all.iter().filter(|(main, _)| *main).count();
            let mut meant = all.into_iter().filter(|(main, container)| match name {
                Some(name) => *name == own(container),
                None => *main && mains == 1,
            });
            let Some((_, container)) = meant.next() else {
                return Err(usage(match name {
                    Some(name) => format!(
                        "--image {0}={image}: there is no container {0}, only {1}.{2}",
                        cut(name, QUOTED),
                        names.join(", "),
                        suggestion(&near(name, names.iter().map(String::as_str)))
                    ),
                    None => format!(
                        "--image {image}: there are several containers: {}. Write CONTAINER={image}.",
                        names.join(", ")
                    ),
                }));
            };
            let container_name = own(container);
            container["image"] = json!(image);
            if let Some(other) = given.insert(container_name.clone(), image) {
                return Err(usage(format!(
                    "--image {image}: container {container_name} has another new image, {other}. Use --image once \
                     for each container ({}).",
                    names.join(", ")
                )));
            }
        }
        if self.restart {
            template["metadata"]["annotations"][RESTARTED] = json!("now");
        }
        Ok(())
    }

    /// Returns one text per changed setting, changed image or restart. Empty without a change.
    pub(super) fn descriptions(&self) -> Vec<String> {
        let setting = |(key, value): (&String, &Option<String>)| {
            let key = key.trim_start_matches(ANNOTATION_PREFIX);
            match value {
                Some(value) => format!("{key}={value}"),
                None => format!("{UNSET}{key}"),
            }
        };
        let image = |(name, image): &(Option<String>, String)| match name {
            Some(name) => format!("image {name}={image}"),
            None => format!("image {image}"),
        };
        let mut changes: Vec<String> = self.settings.iter().map(setting).collect();
        changes.extend(self.images.iter().map(image));
        changes.extend(self.restart.then(|| "a restart".to_owned()));
        changes
    }
}

/// Returns the setting whose field in an Advanced DaemonSet is named `name`.
fn of_field(name: &str) -> Option<&'static str> {
    let has_name =
        |key: &&str| path_of(key).is_some_and(|path| path.rsplit('.').next() == Some(name));
    keys().find(has_name)
}

/// Converts a value from the command line for the field at `path`; `None` if the field cannot express it or has another syntax.
fn in_field(path: &str, text: &str) -> Option<Value> {
    match path.rsplit('.').next()? {
        "paused" => text.parse::<bool>().ok().map(Value::from),
        "selector" | "lifecycle" => None,
        _ => Some(
            text.parse::<i64>()
                .map_or_else(|_| json!(text), Value::from),
        ),
    }
}

/// Returns true if length and characters of the text are allowed in an image reference.
fn is_image(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@+[]".contains(&byte);
    (1..=LONGEST_IMAGE).contains(&text.len()) && text.bytes().all(fits)
}

fn usage(text: String) -> CliError {
    CliError::new(Code::Usage, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(set: &[&str], unset: &[&str], image: &[&str]) -> PlanArgs {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        PlanArgs {
            daemonset: "web".into(),
            set: owned(set),
            unset: owned(unset),
            image: owned(image),
            restart: false,
            break_: 0,
            ends_in: None,
            horizon: std::time::Duration::ZERO,
            output: Default::default(),
        }
    }

    fn template() -> Value {
        json!({ "spec": {
            "initContainers": [{ "name": "first", "image": "first:1" }],
            "containers": [{ "name": "web", "image": "web:1" }],
        } })
    }

    #[test]
    fn setting_keys_may_omit_the_prefix_and_typos_are_named() {
        let typed = PlannedChange::typed(&args(
            &["max-unavailable=20%", "apps.openyurt.io/selector=a=b,c"],
            &["paused"],
            &[],
        ));
        let change = typed.unwrap();
        let value = |key: &str| change.settings[&format!("{ANNOTATION_PREFIX}{key}")].clone();
        assert_eq!(value("max-unavailable").as_deref(), Some("20%"));
        assert_eq!(value("selector").as_deref(), Some("a=b,c"));
        assert_eq!(value("paused"), None);
        let typed = PlannedChange::typed(&args(&["maxUnavailable=1"], &["partition"], &[]));
        assert_eq!(
            typed.unwrap().descriptions(),
            ["max-unavailable=1", "without partition"]
        );
        assert_eq!(
            change.descriptions(),
            ["max-unavailable=20%", "without paused", "selector=a=b,c"]
        );
        let default = PlannedChange::typed(&args(&["maintenance-window=always"], &[], &[]));
        assert_eq!(
            default.unwrap().descriptions(),
            ["without maintenance-window"]
        );
        for (set, expected) in [
            ("max-unavailble=1", "Did you mean max-unavailable?"),
            ("max-unavailable", "write KEY=VALUE"),
            ("example.com/x=1", "there is no such setting"),
            (&"x".repeat(8_000), "x…: write KEY=VALUE"),
            (
                &format!("{}=1", "x".repeat(8_000)),
                "x…: there is no such setting",
            ),
        ] {
            let error = PlannedChange::typed(&args(&[set], &[], &[])).unwrap_err();
            assert_eq!(error.code, Code::Usage);
            assert!(error.text.contains(expected), "{error}");
            assert!(error.text.len() < 200, "{error}");
        }
    }

    #[test]
    fn an_image_applies_to_the_named_or_the_only_container() {
        let changed = |image: &str| {
            let mut template = template();
            let change = PlannedChange::typed(&args(&[], &[], &[image]))?;
            change.to_template(&mut template).map(|()| template)
        };
        let image = |template: &Value, list: &str| template["spec"][list][0]["image"].clone();
        assert_eq!(image(&changed("web:2").unwrap(), "containers"), "web:2");
        let named = changed("first=first:2").unwrap();
        assert_eq!(image(&named, "initContainers"), "first:2");
        assert_eq!(image(&named, "containers"), "web:1");
        let error = changed("wbe=web:2").unwrap_err();
        assert!(
            error.text.contains("only web, first") || error.text.contains("only first, web"),
            "{error}"
        );
        assert!(error.text.contains("Did you mean web?"), "{error}");
        assert_eq!(changed("web=").unwrap_err().code, Code::Usage);
    }

    #[test]
    fn invalid_images_are_refused() {
        let digest = format!("[::1]:5000/a/b_c@sha256:{}", "0".repeat(64));
        for image in ["web", "Registry.example:5000/shop/web:2.0-rc.1", &digest] {
            PlannedChange::typed(&args(&[], &[], &[image])).unwrap();
        }
        let long = "x".repeat(8_000);
        for image in [
            "",
            "we\nb:2",
            "web:2 ",
            "web=we\u{1b}[31mb",
            "web:\u{202e}2",
            "wéb",
            &long,
        ] {
            let error = PlannedChange::typed(&args(&[], &[], &[image])).unwrap_err();
            assert_eq!(error.code, Code::Usage);
            assert!(error.text.contains("write [CONTAINER=]IMAGE"), "{error}");
            assert!(!error.text.contains(char::is_control), "{error}");
            assert!(error.text.len() < 200, "{error}");
        }
    }

    #[test]
    fn a_container_accepts_one_image() {
        for second in ["web:3", "web=web:3"] {
            let change = PlannedChange::typed(&args(&[], &[], &["web:2", second])).unwrap();
            let error = change.to_template(&mut template()).unwrap_err();
            assert_eq!(error.code, Code::Usage);
            let expected = "--image web:3: container web has another new image, web:2. Use --image once for each \
                container";
            assert!(error.text.starts_with(expected), "{error}");
        }
        let both = PlannedChange::typed(&args(&[], &[], &["web:2", "first=first:2"])).unwrap();
        assert_eq!(both.to_template(&mut template()), Ok(()));
    }
}
