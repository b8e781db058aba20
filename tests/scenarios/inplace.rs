//! `rolling-update-type: InPlaceIfPossible`: the pod stays, and only what changed in it is started again.

use serde_json::{Value, json};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::Story;
use crate::support::suite::scenarios;

/// The usual DaemonSet, updated in place.
fn daemon() -> Daemon {
    Daemon::new().annotate("rolling-update-type", "InPlaceIfPossible")
}

/// A change that no running pod can take.
fn env(value: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "nginx", "env": [{ "name": "GREETING", "value": value }] },
    ] } } } })
}

scenarios! {
    /// Also spec/advanced-daemonset.md §10, 4 and 5.
    fn s98_given_in_place_if_possible_then_an_image_keeps_the_pod_and_any_other_change_makes_a_new_one(pace) {
        Story::on(4)
            .with(daemon())
            .image(NEW)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(renewed(1..=4).and(renewals(4)).and(no_deletions()).and(peak(1)))
            .pod_writes(4)
            // And back again.
            .image(OLD)
            .until(converged().and(condition("RolloutComplete", "True", ": complete")))
            .expect(renewed(1..=4))
            .pod_writes(8)
            .quiet(600, 5)
            .remember()
            .patch(env("hello"))
            .until(converged().and(replaced(1..=4)))
            .expect(deletions(4).and(renewals(0)))
            .pod_writes(4)
            .throughout(one_event("Normal", "pods are made anew, not updated in place: more than images"), pace.pick(60, 1))
    }
}
