//! Tests of complete plays, without pauses in real time.

use super::*;
use clap::Parser as _;

/// Returns the report of `yurt-ds sim` with these flags.
async fn played(flags: &str, seed: u64) -> DemoReport {
    let words = ["sim"].into_iter().chain(flags.split_whitespace());
    let args = Typed::parse_from(words).sim.play;
    let scenario = args.fleet(seed).unwrap().scenario();
    play(scenario, seed).await.unwrap()
}

#[derive(clap::Parser)]
struct Typed {
    #[command(flatten)]
    sim: SimArgs,
}

#[track_caller]
fn writes(report: &DemoReport) -> &report::WriteCounts {
    report.writes.as_ref().expect("yurt-ds writes")
}

#[track_caller]
fn assert_held(report: &DemoReport) {
    assert!(report.held(), "{}", report.text(true));
}

/// Returns the parts of a report that must be equal for all seeds.
fn without_chance(report: &DemoReport) -> (usize, usize, usize, usize, String) {
    (
        report.updated,
        report.most_down,
        report.offline,
        report.followed.len(),
        report.ending.clone(),
    )
}

#[tokio::test(start_paused = true)]
async fn two_offline_nodes_are_updated_one_at_a_time_when_they_return() {
    let report = play(scenario::three_nodes(), 1).await.unwrap();
    assert_held(&report);
    assert_eq!(
        (report.updated, report.most_down, report.allowed),
        (3, 1, 1)
    );
    let lines: Vec<&str> = report
        .timeline
        .iter()
        .map(|line| line.text.as_str())
        .collect();
    let position = |text: &str| {
        let at = lines.iter().position(|line| *line == text);
        at.unwrap_or_else(|| panic!("{text:?} is not told: {lines:#?}"))
    };
    let order = [
        position("edge-1: its old pod is deleted"),
        position("edge-1 runs nginx:1.19.5"),
        position("edge-2: its old pod is deleted"),
        position("edge-2 runs nginx:1.19.5"),
        position("edge-3: its old pod is deleted"),
        position("edge-3 runs nginx:1.19.5"),
    ];
    assert!(order.is_sorted(), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_owner_pulls_and_upgrades_and_other_nodes_are_unchanged() {
    let report = play(ota::story(), 1).await.unwrap();
    assert_held(&report);
    assert_eq!((report.updated, report.promises.len()), (1, 7));
    let owner = report.owner.as_ref().expect("an owner");
    let codes: Vec<Option<u8>> = owner.commands.iter().map(|typed| typed.code).collect();
    let well = |code: &&Option<u8>| **code == Some(0);
    assert_eq!(codes.iter().filter(well).count(), 6, "{codes:?}");
    let position = |text: &str| {
        let at = report
            .timeline
            .iter()
            .position(|line| line.text.contains(text));
        at.unwrap_or_else(|| panic!("{text:?} is not told: {}", report.text(true)))
    };
    let order = [
        position("edge-1 $ yurt-ds ctl pods"),
        position("The image changes"),
        position("edge-1 $ yurt-ds ctl upgrade"),
        position("edge-1 $ yurt-ds ctl imagepull nginx-daemonset-"),
        position("The connection is back"),
        position("edge-1: its old pod is deleted"),
        position("edge-1 runs nginx:1.19.5"),
    ];
    assert!(order.is_sorted(), "{}", report.text(true));
    assert!(!report.text(true).contains('{'), "{}", report.text(true));
}

/// Returns the report of the OTA play after `change` was applied to its scenario.
async fn played_with(change: impl FnOnce(&mut Scenario)) -> DemoReport {
    let mut scenario = ota::story();
    change(&mut scenario);
    play(scenario, 1).await.unwrap()
}

fn is_typed_for(step: &scenario::ScenarioStep, aim: scenario::CommandPurpose) -> bool {
    matches!(&step.event, scenario::ScenarioEvent::Type(typing) if typing.aim == aim)
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_without_an_earlier_pull_breaks_a_promise() {
    let without_pull = |scenario: &mut Scenario| {
        scenario
            .steps
            .retain(|step| !is_typed_for(step, scenario::CommandPurpose::Pull));
    };
    let report = played_with(without_pull).await;
    let broken = report.promises.iter().filter(|promise| !promise.held);
    let broken: Vec<&str> = broken.map(|promise| promise.text.as_str()).collect();
    assert_eq!(report.updated, 1, "{}", report.text(true));
    assert_eq!(
        broken,
        [
            "the image was pulled before: the upgrade did not wait for a pull",
            "one API write for the pull, and one for the upgrade"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_image_pull_keeps_the_old_pod_and_gives_exit_codes() {
    let report = played_with(|scenario| scenario.new.image_error = true).await;
    assert!(!report.held(), "{}", report.text(true));
    assert_eq!(report.updated, 0, "{}", report.text(true));
    let owner = report.owner.as_ref().expect("an owner");
    assert_eq!(owner.pod_deletions, 0, "{}", report.text(true));
    let failed = |verb: &str| {
        let typed = owner
            .commands
            .iter()
            .filter(|typed| typed.line.contains(verb));
        typed
            .filter(|typed| typed.line.contains("--wait"))
            .all(|typed| typed.code > Some(0))
    };
    assert!(
        failed("imagepull") && failed("upgrade"),
        "{}",
        report.text(true)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_confirmation_no_pod_is_replaced() {
    let unconfirmed = |scenario: &mut Scenario| {
        scenario
            .steps
            .retain(|step| !is_typed_for(step, scenario::CommandPurpose::Confirm));
    };
    let report = played_with(unconfirmed).await;
    assert!(!report.held(), "{}", report.text(true));
    assert_eq!((report.updated, report.most_down), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_report_to_the_last_byte() {
    #[track_caller]
    fn case<F: Future<Output = DemoReport>>(play: impl Fn(u64) -> F) {
        let report = |seed| {
            let report = own_runtime(false).unwrap().block_on(play(seed));
            serde_json::to_string_pretty(&report).unwrap()
        };
        let first = report(11);
        assert_eq!(first, report(11));
        assert_ne!(first, report(12));
    }
    case(|seed| played("--nodes 12 --offline 30% --flap 1 --min-ready 3s", seed));
    case(async |seed| play(ota::story(), seed).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn another_seed_changes_only_which_nodes_and_when() {
    let one = played("--nodes 20", 1).await;
    assert_held(&one);
    assert_eq!(
        without_chance(&one),
        (18, 2, 2, 2, "complete. 2 nodes are offline".to_owned())
    );
    let another = played("--nodes 20", 2).await;
    assert_eq!(without_chance(&one), without_chance(&another));
    assert_ne!(one.followed, another.followed);
}

#[tokio::test(start_paused = true)]
async fn fleets_without_offline_or_without_online_nodes_complete() {
    let none = played("--nodes 12 --offline 0", 1).await;
    assert_held(&none);
    assert_eq!((none.updated, none.ending.as_str()), (12, "complete"));
    let all = played("--nodes 6 --offline 100%", 1).await;
    assert_held(&all);
    assert_eq!((all.updated, all.offline_outdated), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn young_pods_and_flapping_nodes_do_not_overspend_the_budget() {
    let report = played("--nodes 20 --max-unavailable 3 --min-ready 10s --flap 4", 3).await;
    assert!(report.most_down <= 3, "{}", report.text(true));
}

#[tokio::test(start_paused = true)]
async fn a_bad_revision_stops_within_the_budget() {
    // With `kills-nodes`, the pod of a crashed node is not available before Kubernetes marks the node as NotReady, because
    // `--min-ready 60s` is longer than 40s. Failed nodes use no slots (nodes that may be down at once). So two more nodes are being
    // updated when the rollout stops after two failures.
    for (how, most) in [
        ("crash", 2),
        ("never-ready", 2),
        ("image-error", 2),
        ("kills-nodes --min-ready 60s", 4),
    ] {
        let flags = format!("--nodes 12 --max-unavailable 2 --bad-revision {how}");
        let report = played(&flags, 5).await;
        assert_held(&report);
        let deletions = writes(&report).pod_deletions;
        assert!(deletions <= most, "{how}: {}", report.text(true));
        // A node that was lost during its update does not count as offline with the old image.
        let between = report.lost_in_between;
        assert_eq!(between > 0, how.starts_with("kills"), "{how}");
        assert!(report.offline_outdated <= report.offline - between, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_ota_no_pod_is_replaced_and_every_node_is_offered_the_update() {
    let report = played("--nodes 10 --strategy OTA", 1).await;
    assert_held(&report);
    assert_eq!((report.updated, writes(&report).pod_deletions), (0, 0));
    assert!(writes(&report).pod_patches >= 10, "{}", report.text(true));
}

#[tokio::test(start_paused = true)]
async fn the_native_rolling_update_stalls_where_yurt_ds_completes() {
    let native = played("--nodes 20 --offline 20% --returning 0 --native", 1).await;
    assert_eq!(native.ending, "stuck at 0%: nothing changes any more");
    assert_eq!((native.offline_outdated, native.lost_in_between), (4, 0));
    let ours = played("--nodes 20 --offline 20% --returning 0", 1).await;
    assert_eq!(
        (ours.updated, ours.ending.as_str()),
        (16, "complete. 4 nodes are offline")
    );
}
