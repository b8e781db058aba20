//! Turns scenarios into tests: one test for each scenario on the embedded cluster, and a single test for all of them on a real one.

use super::story::{Pace, Scenario};

/// Scenario with its name.
pub(crate) struct Entry {
    /// Sentence of the specification, as the name of a function. It begins with the number of the sentence.
    pub(crate) name: &'static str,
    /// Function that returns the scenario. The times in its stories depend on the pace.
    pub(crate) tell: fn(Pace) -> Scenario,
    /// Reason why the outcome may differ on an older Kubernetes version; `None` if the outcome is always the same.
    ///
    /// Only scenarios with a reason run on older versions. The other ones depend only on DaemonSets, pods, nodes, their watches,
    /// and deletion. Scenarios with a reason depend on these features, too, and so test them on older versions.
    pub(crate) varies: Option<&'static str>,
}

impl Entry {
    /// Returns the sentence of the specification as text.
    pub(crate) fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Returns a name for a story that consists of the numbers of scenario and story. It is short enough for a namespace.
    pub(crate) fn short(&self, story: usize) -> String {
        format!("{}-{story}", self.number())
    }

    /// Returns a name for a story that is unique in the whole suite. If several scenarios have the same number, a letter
    /// distinguishes them.
    pub(crate) fn short_among<'a>(
        &self,
        all: impl Iterator<Item = &'a Self>,
        story: usize,
    ) -> String {
        let twins = all.filter(|other| other.number() == self.number());
        let before = twins.take_while(|other| other.name != self.name).count();
        let letter = ["", "b", "c", "d", "e", "f", "g", "h", "i", "j"][before];
        format!("{}{letter}-{story}", self.number())
    }

    fn number(&self) -> &str {
        self.name.split('_').next().unwrap_or(self.name)
    }
}

/// Expands to an `Option`: `Some` of its argument, or `None` without one.
macro_rules! perhaps {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}
pub(crate) use perhaps;

/// Declares the scenarios of a file. Each function becomes a test on the embedded cluster and an entry of `ALL`.
///
/// `vary because "…";` gives the reason why outcomes may differ on an older Kubernetes version. With `also on minor version 28;`,
/// each scenario also runs on an embedded cluster that simulates that version.
macro_rules! scenarios {
    ($(vary because $why:literal;)? $(also on minor version $minor:literal;)? $($(#[doc = $doc:literal])* fn $name:ident($pace:ident) $body:block)*) => {
        /// Older minor version of Kubernetes that the embedded cluster also simulates.
        const OLDER: Option<u32> = $crate::support::suite::perhaps!($($minor)?);
        /// Reason why outcomes may differ on an older version of Kubernetes.
        const VARY: Option<&str> = $crate::support::suite::perhaps!($($why)?);
        /// Scenarios of this file.
        pub(crate) const ALL: &[$crate::support::suite::Entry] = &[$(
            $crate::support::suite::Entry {
                name: stringify!($name),
                tell: |$pace: $crate::support::story::Pace| -> $crate::support::story::Scenario { ($body).into() },
                varies: VARY,
            }
        ),*];
        $(
            $(#[doc = $doc])*
            #[test]
            fn $name() {
                $crate::support::embedded::run(ALL, stringify!($name), OLDER);
            }
        )*
    };
}
pub(crate) use scenarios;
