//! Status of every setting of one DaemonSet, for `ctl`.

use std::collections::BTreeMap;

use super::mode::Mode;
use super::reader::{Reader, SettingsSource, unused};
use super::setting::Setting;
use super::update_strategy;
use super::{ParsedSettings, SETTINGS, read};

/// Status of a setting of a DaemonSet.
#[derive(Clone, Debug)]
pub struct SettingStatus<'a> {
    /// Description of the setting.
    pub setting: &'static Setting,
    /// Raw value; `None` if it is not set.
    pub written: Option<&'a str>,
    /// Name of the annotation, or of the field of an Advanced DaemonSet, that contains the value.
    pub place: &'a str,
    /// Value that applies if the setting is not set or has no effect.
    pub default: String,
    /// Effect of the raw value.
    pub state: SettingState,
    /// Reason why the raw value is invalid or has no effect, as a sentence; `None` if `state` needs no explanation.
    pub message: Option<String>,
}

/// Effect of a setting's raw value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingState {
    /// The setting is absent, and the default applies.
    Default,
    /// The raw value applies.
    Set,
    /// The raw value has no effect in this mode or with the other settings.
    NoEffect,
    /// The raw value is invalid.
    Invalid,
}

impl SettingState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Default, Self::Set, Self::NoEffect, Self::Invalid];

    /// Returns the name of the state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::Set => "Set",
            Self::NoEffect => "NoEffect",
            Self::Invalid => "Invalid",
        }
    }
}

/// Returns the status of every setting. Each has its own error, while [`super::read`] keeps only the first one.
pub fn states<'a>(source: &SettingsSource<'a>) -> Vec<SettingStatus<'a>> {
    let mode = update_strategy::read(source, &mut Vec::new());
    let mode = mode
        .and_then(Result::ok)
        .unwrap_or(Mode::AdvancedRollingUpdate);
    let mut without_effect = BTreeMap::new();
    let mut states: Vec<SettingStatus<'a>> = Vec::with_capacity(SETTINGS.len());
    for setting in SETTINGS {
        let mut reader = Reader::new(source, mode);
        states.push(status(setting, &mut reader));
        without_effect.extend(reader.without_effect);
    }
    for status in &mut states {
        let note = without_effect.remove(status.setting.key);
        if let (SettingState::Set | SettingState::Invalid, Some(note)) = (status.state, note) {
            status.state = SettingState::NoEffect;
            status.message = Some(note);
        }
    }
    // If settings contradict each other, show the error at the setting that the DaemonSet's condition names.
    if let ParsedSettings::Invalid(invalid, _) = read(source)
        && let Some(status) = states
            .iter_mut()
            .find(|status| invalid.key == status.setting.key)
        && status.state == SettingState::Set
    {
        status.state = SettingState::Invalid;
        status.message = Some(invalid.to_string());
    }
    states
}

fn status<'a>(setting: &'static Setting, reader: &mut Reader<'a>) -> SettingStatus<'a> {
    let default = (setting.default_on)(&mut Reader::new(&reader.source, reader.mode));
    let written = setting.keys().find_map(|key| reader.written(key));
    let checked = (setting.check)(reader);
    let is_used = setting.is_used_by(reader.mode);
    let (state, message) = match (written, checked) {
        (None, _) => (SettingState::Default, None),
        (Some(written), Err(invalid)) if invalid.key.starts_with(written.name) => {
            if is_used {
                (SettingState::Invalid, Some(invalid.to_string()))
            } else {
                (SettingState::NoEffect, Some(unused(&invalid)))
            }
        }
        // Here the check can also have failed because of another setting, which then shows the error.
        (Some(_), _) if is_used => (SettingState::Set, None),
        (Some(_), _) => (SettingState::NoEffect, None),
    };
    SettingStatus {
        setting,
        written: written.map(|written| written.text),
        place: written.map_or(reader.name(setting.key), |written| written.name),
        default: default.unwrap_or_else(|| setting.default.to_owned()),
        state,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::names::ANNOTATION_PREFIX;
    use crate::core::settings::setting;

    /// Checks the state, default and message of a setting on a DaemonSet with these annotations.
    #[track_caller]
    fn case(annotations: &[(&str, &str)], name: &str, expected: (SettingState, &str, &str)) {
        let key = |name: &str| format!("{ANNOTATION_PREFIX}{name}");
        let annotations = annotations
            .iter()
            .map(|(name, value)| (key(name), (*value).to_owned()))
            .collect();
        let states = states(&SettingsSource {
            annotations: &annotations,
            update_strategy: Some("OnDelete"),
            rolling_update_max_unavailable: None,
            min_ready_seconds: 600,
            in_template: &[],
            exclusive: None,
            preempting: None,
            fields: None,
        });
        assert_eq!(states.len(), SETTINGS.len());
        let asked = setting(&key(name)).unwrap().key;
        let found = states.iter().find(|state| state.setting.key == asked);
        let found = found.unwrap();
        assert_eq!((found.state, &*found.default), (expected.0, expected.1));
        let message = found.message.as_deref().unwrap_or_default();
        assert!(message.contains(expected.2), "{message}");
        assert_eq!(message.is_empty(), expected.2.is_empty(), "{message}");
        assert_eq!(
            found.written.is_none(),
            found.state == SettingState::Default
        );
    }

    #[test]
    fn a_default_depends_on_the_other_settings() {
        let auto = ("update-strategy", "auto");
        let unset = |default| (SettingState::Default, default, "");
        case(&[auto], "max-unavailable", unset("10%"));
        case(&[auto, ("max-surge", "1")], "max-unavailable", unset("0"));
        let surging = ("update-strategy", "SurgingRollingUpdate");
        case(&[surging], "max-surge", unset("1"));
        case(&[auto, ("max-surge", "3")], "failure-threshold", unset("3"));
        let both = [auto, ("max-surge", "3"), ("max-unavailable", "5%")];
        case(&both, "failure-threshold", unset("5% or 3, the greater"));
        case(&[auto], "failure-window", unset("10m"));
        let pulls = "image-predownload-parallelism";
        case(&[auto], pulls, unset("off"));
        let in_place = ("rolling-update-type", "InPlaceIfPossible");
        case(&[auto, in_place], pulls, unset("10%"));
        case(&[auto, in_place], "predownload", unset("`required`"));
    }

    #[test]
    fn an_invalid_or_ineffective_setting_is_reported_with_its_reason() {
        use SettingState::{Invalid, NoEffect, Set};
        let auto = ("update-strategy", "auto");
        let two = [auto, ("partition", "-1"), ("ramp-up", "0")];
        case(
            &two,
            "partition",
            (Invalid, "`0`", "is \"-1\", which is negative"),
        );
        case(&two, "ramp-up", (Invalid, "off", "is \"0\", which is zero"));
        case(&two, "update-strategy", (Set, "none: not managed", ""));
        let domains = [auto, ("max-domains", "2")];
        let why = "has no effect without apps.openyurt.io/topology-key";
        case(&domains, "max-domains", (NoEffect, "`1`", why));
        let approved = [auto, ("approved-waves", "foo")];
        let why = "has no effect";
        case(&approved, "approved-waves", (NoEffect, "none", why));
        let none = [auto, ("max-surge", "0"), ("max-unavailable", "0")];
        let why = "no pod could ever be replaced";
        case(&none, "max-surge", (Invalid, "`0`", why));
        case(&none, "max-unavailable", (Set, "`10%`", ""));
        let ota = [
            ("update-strategy", "OTA"),
            ("partition", "x"),
            ("waves", "[{name: a, selector: {}}]"),
        ];
        case(
            &ota,
            "partition",
            (NoEffect, "`0`", "(no effect under OTA)"),
        );
        case(&ota, "waves", (NoEffect, "off", ""));
        let old = [("upgrade-strategy", "auto"), ("partition", "1")];
        case(&old, "upgrade-strategy", (Set, "none: not managed", ""));
        case(&old, "partition", (Set, "`0`", ""));
    }
}
