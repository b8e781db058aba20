//! The preDelete hook: another program removes a label or finalizer before a pod may be deleted (`lifecycle`, as in Kruise).

use serde_json::{Value, json};

use crate::support::checks::*;
use crate::support::objects::*;
use crate::support::story::{Scenario, Story, Writes};
use crate::support::suite::scenarios;

/// Hook for pods with a certain label.
const BY_LABEL: &str = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}}}"#;
/// Hook for pods with a certain finalizer.
const BY_FINALIZER: &str = r#"{"preDelete": {"finalizersHandler": ["example.io/drain"]}}"#;
/// Hook for pods with a certain label. It also makes the waiting pod not Ready.
const NOT_READY: &str =
    r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}, "markPodNotReady": true}}"#;
/// Readiness gate with which `markPodNotReady` makes a pod not Ready.
const GATE: &str = "KruisePodReady";

/// Returns a DaemonSet with this hook, whose pods have the hook's label.
fn hooked(lifecycle: &str) -> Daemon {
    let daemon = Daemon::new().annotate("lifecycle", lifecycle);
    daemon.pod_label("example.io/drain", "true")
}

/// Returns a story on this many nodes in which the pod of node 1 waits for its hook.
fn waiting(nodes: usize) -> Story {
    Story::on(nodes)
        .with(hooked(BY_LABEL))
        .writing(Writes::Marks)
        .image(NEW)
        .until(preparing([1]))
}

/// Removes the hook's label from the pod on a node, so that the pod may be deleted.
fn release(story: Story, node: usize) -> Story {
    story.step(crate::support::story::Step::PatchPod(node, labels(None)))
}

fn labels(value: Option<&str>) -> Value {
    json!({ "metadata": { "labels": { "example.io/drain": value } } })
}

fn finalizers(finalizers: &[&str]) -> Value {
    json!({ "metadata": { "finalizers": finalizers } })
}

scenarios! {
    vary because "readiness gates and labels are patched into pods whose status others write, too";
    fn s100_given_a_hooked_pod_then_it_is_marked_once_and_goes_only_when_its_hook_is_gone(pace) {
        let by_label = waiting(3)
            .throughout(untouched(1..=3).and(preparing([1])), pace.pick(300, 8))
            .pod_writes(1);
        let by_label = release(by_label, 1)
            .until(replaced([1]).and(preparing([2])))
            .expect(untouched(2..=3))
            // Without `lifecycle`, the waiting pods have no hook to wait for, so they are deleted.
            .unannotate("lifecycle")
            .until(converged())
            .expect(deletions(3).and(preparing([])));
        let by_finalizer = Story::on(2)
            .with(Daemon::new().annotate("lifecycle", BY_FINALIZER))
            .writing(Writes::Marks)
            .step(crate::support::story::Step::PatchPod(1, finalizers(&["example.io/drain"])))
            .image(NEW)
            .until(preparing([1]))
            .throughout(untouched(1..=2), pace.pick(300, 5))
            .step(crate::support::story::Step::PatchPod(1, finalizers(&[])))
            .until(converged())
            .expect(deletions(2));
        // The pods have the hook's label with another value. So the hook doesn't apply to them, and they are replaced at once.
        let not_hooked = Story::on(2)
            .with(Daemon::new().annotate("lifecycle", BY_LABEL).pod_label("example.io/drain", "yes"))
            .image(NEW)
            .until(converged())
            .expect(deletions(2));
        let two = Story::on(4)
            .with(hooked(BY_LABEL).max_unavailable("2"))
            .writing(Writes::Marks)
            .allowed(2)
            .image(NEW)
            .until(preparing([1, 2]))
            .throughout(untouched(1..=4).and(preparing([1, 2])), pace.pick(300, 5));
        let two = release(two, 2).until(replaced([2]).and(preparing([1, 3])));
        vec![by_label, by_finalizer, not_hooked, two]
    }

    /// Covers the cases of Kruise's function `IsPodHooked`, which decides if a hook keeps a pod.
    fn a186_given_a_hook_by_label_and_by_finalizer_then_either_keeps_the_pod_and_an_empty_hook_none(pace) {
        use crate::support::story::Step;
        let both = r#"{"preDelete": {"labelsHandler": {"example.io/drain": "true"}, "finalizersHandler": ["example.io/drain"]}}"#;
        let waits = Story::on(2)
            .with(hooked(both))
            .writing(Writes::Marks)
            .step(Step::PatchPod(1, finalizers(&["example.io/drain"])))
            .image(NEW)
            .until(preparing([1]));
        let waits = release(waits, 1)
            .throughout(untouched(1..=2).and(preparing([1])), pace.pick(300, 5))
            .step(Step::PatchPod(1, finalizers(&[])))
            .until(replaced([1]).and(preparing([2])));
        let nobody = |hook: &str| Story::on(2)
            .with(hooked(hook))
            .image(NEW)
            .until(converged())
            .expect(deletions(2));
        vec![waits, nobody("{}"), nobody(r#"{"preDelete": {}}"#)]
    }

    fn s100_given_mark_pod_not_ready_then_only_a_pod_with_the_gate_turns_not_ready_and_back_when_abandoned(pace) {
        let with_gate = Story::on(2)
            .with(hooked(NOT_READY).gate(GATE))
            .writing(Writes::Marks)
            .expect(pod_condition(1, GATE, "True", ""))
            .image(NEW)
            .until(preparing([1]).and(pod_condition(1, "Ready", "False", GATE)))
            .expect(pod_condition(1, GATE, "False", r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#))
            .expect(pod_condition(2, "Ready", "True", ""))
            .throughout(untouched(1..=2), pace.pick(60, 3))
            .image(OLD)
            .until(preparing([]).and(pod_condition(1, "Ready", "True", "")))
            .throughout(untouched(1..=2), pace.pick(60, 3))
            .image(NEW)
            .until(preparing([1]).and(pod_condition(1, "Ready", "False", GATE)));
        let with_gate = release(with_gate, 1).until(replaced([1]).and(preparing([2])));
        let without_gate = Story::on(2)
            .with(hooked(NOT_READY))
            .writing(Writes::Marks)
            .image(NEW)
            .until(preparing([1]))
            .throughout(all_available(2), pace.pick(60, 3))
            .pod_writes(1);
        vec![with_gate, without_gate]
    }

    fn s100_given_a_hold_on_a_node_whose_pod_is_out_of_service_for_its_hook_then_nobody_follows_before_it_serves(pace) {
        let hold = json!({ "metadata": { "annotations": { format!("{FAMILY}/hold"): "calibration" } } });
        let daemon = hooked(NOT_READY).gate(GATE).min_ready(pace.pick(120, 8));
        Story::on(3)
            .with(daemon)
            .writing(Writes::Marks)
            .image(NEW)
            .until(preparing([1]).and(pod_condition(1, "Ready", "False", GATE)))
            .patch_node(1, hold)
            .until(preparing([]))
            .throughout(preparing([]), pace.pick(100, 3))
            .until(preparing([2]))
            .expect(untouched(1..=3))
    }

    fn s100_given_a_pod_that_is_wanted_again_then_it_stays_and_loses_its_mark(pace) {
        let stays = |story: Story| {
            story
                .until(preparing([]).and(all_available(3)))
                .throughout(untouched(1..=3), pace.pick(60, 3))
                .expect(deletions(0))
        };
        let rolled_back = stays(waiting(3).image(OLD));
        let kept = stays(waiting(3).annotate("partition", "100%"));
        // The selector changes to node 3. The pod of node 1 loses its mark, and the pod of node 3 is marked instead.
        let elsewhere = json!({ "metadata": { "labels": { "pool": "elsewhere" } } });
        let not_selected = waiting(3)
            .patch_node(3, elsewhere)
            .annotate("selector", "pool=elsewhere")
            .until(preparing([3]).and(all_available(3)))
            .throughout(untouched(1..=3), pace.pick(60, 3))
            .expect(deletions(0));
        let not_ours = stays(waiting(3).unannotate("update-strategy"));
        let ota = stays(waiting(3).annotate("update-strategy", "OTA"));
        // After another change of the image, the pod still waits for its hook. When the hook releases the pod, a pod of NEWER
        // replaces it.
        let newer = release(waiting(2).image(NEWER).until(observed()), 1)
            .until(replaced([1]).and(preparing([2])))
            .expect(deletions(1));
        vec![rolled_back, kept, not_selected, not_ours, ota, newer]
    }

    fn s100_given_a_pause_then_a_waiting_pod_waits_on_whatever_becomes_of_its_hook(pace) {
        let paused = waiting(2).annotate("paused", "true").wait(2).remember();
        release(paused, 1)
            .throughout(untouched(1..=2).and(preparing([1])), pace.pick(600, 8))
            .pod_writes(0)
            .unannotate("paused")
            .until(replaced([1]).and(preparing([2])))
    }

    fn s100_given_a_node_that_goes_offline_while_it_waits_then_others_go_on_and_it_follows(pace) {
        let story = waiting(3).offline([1]).until(preparing([1, 2]));
        let story = release(release(story, 1), 2)
            .until(replaced([2]).and(preparing([1, 3])))
            .throughout(at_most_deletions_on(1, 0), pace.pick(60, 3))
            .online([1]);
        release(story, 3).until(converged()).expect(deletions(3))
    }

    /// Covers Kruise's end-to-end test of a hook by label.
    fn hook_given_a_controller_that_restarts_then_waiting_pods_are_found_and_no_second_one_waits(pace) {
        let story = waiting(3)
            .controller(false)
            .wait(1)
            .controller(true)
            .throughout(preparing([1]).and(untouched(1..=3)), pace.pick(60, 5))
            .controller(false);
        let story = release(story, 1)
            .controller(true)
            .until(replaced([1]).and(preparing([2])))
            .expect(deletions(1));
        Scenario::from(story).alone()
    }

    /// A pod whose hook has been removed is replaced, even if it could now be updated in place. As in Kruise, the program behind
    /// the hook expects a new pod.
    fn hook_given_a_marked_pod_that_could_be_updated_in_place_by_now_then_it_waits_and_goes_all_the_same(pace) {
        let story = waiting(2)
            .annotate("image-predownload-parallelism", "0")
            .annotate("rolling-update-type", "InPlaceIfPossible")
            .throughout(preparing([1]).and(untouched(1..=2)), pace.pick(60, 5))
            .pod_writes(1);
        release(story, 1)
            .until(replaced([1]))
            // The pod of node 2 was not marked when the settings changed, so it is updated in place.
            .until(converged().and(untouched([2])))
            .expect(deletions(1).and(renewals(1)))
    }

    fn hook_given_a_hook_that_is_never_released_then_it_is_told_once_and_nothing_is_forced(_pace) {
        let story = waiting(3)
            .throughout(untouched(1..=3), 590)
            .expect(not_condition("Stalled"))
            .until_within(condition("Stalled", "True", "label example.io/drain=true"), 30)
            .throughout(untouched(1..=3).and(preparing([1])), 3 * 3600)
            .expect(one_event("Warning", "preDelete hooks take longer than 10m on"))
            .pod_writes(1);
        Scenario::from(release(story, 1).until(replaced([1]))).only_embedded("it takes ten minutes")
    }

    fn hook_given_a_lifecycle_that_cannot_be_used_then_nothing_is_touched(pace) {
        let case = |value: &'static str, says: &'static str| {
            Story::on(2)
                .with(Daemon::new().annotate("lifecycle", value))
                .image(NEW)
                .until(condition("InvalidSettings", "True", says))
                .throughout(untouched(1..=2), pace.pick(600, 4))
                .pod_writes(0)
        };
        vec![
            case(r#"{"inPlaceUpdate": {"finalizersHandler": ["x"]}}"#, "inPlaceUpdate is not supported for DaemonSets"),
            case(r#"{"preDelete": {"labelHandler": {}}}"#, "unknown field preDelete.labelHandler"),
            case("drain", "which is not JSON"),
        ]
    }
}
