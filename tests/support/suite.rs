//! From stories to tests: every scenario is a test on the embedded cluster, all together are one on a real one.

use super::story::{Pace, Scenario};

/// A scenario under its name.
pub(crate) struct Entry {
    /// The sentence, in the form of a function's name; begins with the number in the specification.
    pub(crate) name: &'static str,
    /// Tells it.
    pub(crate) tell: fn(Pace) -> Scenario,
    /// Why it may end otherwise on an older Kubernetes. Without a reason it is the same everywhere: what it needs of the API
    /// server and of the native controller (DaemonSets, pods, nodes, their watches, deletion) the others need, too.
    pub(crate) varies: Option<&'static str>,
}

impl Entry {
    /// The sentence.
    pub(crate) fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }

    /// What its stories are called: short enough for the name of a namespace.
    pub(crate) fn short(&self, story: usize) -> String {
        format!("{}-{story}", self.number())
    }

    /// The same among all scenarios, of which several may tell one sentence.
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

/// At most one value.
macro_rules! perhaps {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}
pub(crate) use perhaps;

/// Declares scenarios: each function becomes a test on the embedded cluster and an entry of `ALL`. `vary because "…";` says why they
/// may end otherwise on an older Kubernetes; after `also on minor version 28;` the embedded cluster plays each as that, too.
macro_rules! scenarios {
    ($(vary because $why:literal;)? $(also on minor version $minor:literal;)? $($(#[doc = $doc:literal])* fn $name:ident($pace:ident) $body:block)*) => {
        /// The older Kubernetes on which they are played too.
        const OLDER: Option<u32> = $crate::support::suite::perhaps!($($minor)?);
        /// Why they may end otherwise on an older one.
        const VARY: Option<&str> = $crate::support::suite::perhaps!($($why)?);
        /// The scenarios of this file.
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
