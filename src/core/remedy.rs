//! What a person can do about a revision that fails, the best first. Condition, Event and `ctl` take the words from here.

use std::fmt::Display;

use super::fleet::Fleet;

/// The ways on from a revision that fails, as the end of a sentence. `set` is the DaemonSet, as `NAMESPACE/NAME`.
///
/// After somebody went back to the oldest revision that is kept, going back once more would bring the one that failed
/// again; then it is not advised.
pub fn way_on(fleet: &Fleet, set: &dyn Display) -> String {
    match back(fleet, set) {
        Some(back) => format!("{back}; or roll out another template"),
        None => "repair the nodes, or roll out another template (no revision is kept that was made before this one)"
            .to_owned(),
    }
}

/// The way to the revision before, if one is kept.
pub fn back(fleet: &Fleet, set: &dyn Display) -> Option<String> {
    let earlier = fleet.earlier.as_ref()?;
    Some(format!(
        "go back to revision {earlier} with: yurt-ds ctl undo {set}"
    ))
}

/// What lets the revision go on that the guard stopped: the last of the remedies.
pub fn nevertheless(set: &dyn Display) -> String {
    format!("to go on with this revision nevertheless: yurt-ds ctl resume {set}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::fleet;

    #[test]
    fn going_back_comes_first_and_only_where_there_is_something_to_go_back_to() {
        let mut fleet = fleet(Vec::new());
        let words = way_on(&fleet, &"edge/web");
        assert!(
            words.starts_with("go back to revision old with: yurt-ds ctl undo edge/web; or "),
            "{words}"
        );
        fleet.earlier = None;
        let words = way_on(&fleet, &"edge/web");
        assert!(words.starts_with("repair the nodes, or "), "{words}");
        assert!(!words.contains("undo"), "{words}");
    }
}
