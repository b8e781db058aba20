//! OTA play: the owner of one of three nodes lists updates, pulls the image in advance, and confirms the upgrade. The play also
//! checks the guarantees of OTA.

use std::time::Duration;

use super::agents::is_agent;
use super::monitor::MonitorRecord;
use super::report::{DeviceOwner, Promise, TypedCommand};
use super::run::{DemoRun, RunEnd};
use super::scenario::{
    CommandPurpose, OwnerCommand, Rollout, RolloutEngine, Scenario, ScenarioEvent, ScenarioStep,
    seconds, step,
};
use super::shell::CommandRecord;
use crate::core::{IntOrPercent, Mode};
use crate::sim::cluster::Count;
use crate::sim::kubelet::Behaviour;

/// Node whose owner types commands.
const OWNED: &str = "edge-1";
/// Node whose owner types no commands.
const OTHER: &str = "edge-2";
/// Time that a node needs to pull the new image. The owner pulls in advance, so that the node has a pod during this time.
const PULL: Duration = seconds(12);

/// Returns the OTA play: a new image is released, and one of three node owners confirms the upgrade.
pub(super) fn story() -> Scenario {
    let new = Behaviour {
        pull: PULL,
        ..Behaviour::default()
    };
    Scenario {
        title: "OTA: the node owner decides".to_owned(),
        nodes: (1..=3).map(|number| format!("edge-{number}")).collect(),
        rollout: Rollout {
            engine: RolloutEngine::YurtDs(Mode::Ota),
            max_unavailable: IntOrPercent::Percent(10),
            min_ready: Duration::ZERO,
            old: "nginx:1.19.4".to_owned(),
            new: "nginx:1.19.5".to_owned(),
        },
        usual: Behaviour {
            pull: seconds(4),
            ..Behaviour::default()
        },
        new,
        steps: steps(),
        limit: seconds(300),
        in_full: true,
        doomed: false,
        speed: 4.0,
        in_background: false,
        owner: Some(OWNED.to_owned()),
    }
}

fn steps() -> Vec<ScenarioStep> {
    let typed = |at, aim, line: &str, say: &str| {
        let typing = OwnerCommand {
            node: OWNED.to_owned(),
            line: line.to_owned(),
            aim,
        };
        step(at, ScenarioEvent::Type(typing), say)
    };
    let own = |verb: &str, flags: &str| format!("yurt-ds ctl {verb} {{{OWNED}}}{flags}");
    vec![
        step(
            0,
            ScenarioEvent::Tell,
            "nginx:1.19.4 runs on three edge nodes; the DaemonSet has update-strategy: OTA. The owner of edge-1 \
             works on that node, and asks its ota-server which pods run there.",
        ),
        typed(3, CommandPurpose::Read, "yurt-ds ctl pods", ""),
        step(
            9,
            ScenarioEvent::SetImage,
            "The image changes to nginx:1.19.5. No pod is replaced: every pod gets the condition PodNeedUpgrade, and \
             the node owners decide.",
        ),
        typed(
            15,
            CommandPurpose::Ask,
            "yurt-ds ctl upgrade",
            "Which updates are available?",
        ),
        typed(
            21,
            CommandPurpose::Pull,
            &own("imagepull", " --wait"),
            "The owner requests the pull of the new image. The old pod keeps running.",
        ),
        typed(
            23,
            CommandPurpose::Slip,
            &format!("yurt-ds ctl upgrade {{{OTHER}}}"),
            "A mistake: this pod runs on edge-2, which has another owner.",
        ),
        step(
            25,
            ScenarioEvent::Cut(OWNED.to_owned()),
            "The connection to the cloud fails. The pods of this node can still be listed …",
        ),
        typed(26, CommandPurpose::Read, "yurt-ds ctl pods", ""),
        typed(
            27,
            CommandPurpose::Away,
            &own("upgrade", ""),
            "… but no pod is replaced, now or later.",
        ),
        step(28, ScenarioEvent::Mend, ""),
        typed(
            32,
            CommandPurpose::Confirm,
            &own("upgrade", " --wait"),
            "The connection is back. The owner confirms the upgrade: only this pod is replaced.",
        ),
        typed(33, CommandPurpose::Read, "yurt-ds ctl pods", ""),
        step(
            34,
            ScenarioEvent::Tell,
            "edge-1 runs nginx:1.19.5. The other two keep nginx:1.19.4 until their owners confirm.",
        ),
    ]
}

impl DemoRun {
    /// Returns the node owner's actions and their results; `None` if no owner types commands in the play.
    pub(super) fn owner(&self, record: &MonitorRecord) -> Option<DeviceOwner> {
        let node = self.scenario.owner.clone()?;
        let typed = self.typed();
        let seen = record.nodes.get(&node);
        let now = self.world.cluster.requests();
        let number = |verb: &str, resource: &str| {
            let (after, before) = (&now, &self.before);
            agents(after, verb, resource) - agents(before, verb, resource)
        };
        let took = |aim| {
            let one = typed.iter().find(|one| one.aim == aim)?;
            Some(one.ended?.0.saturating_sub(one.began).into())
        };
        Some(DeviceOwner {
            pulled_in: took(CommandPurpose::Pull),
            upgraded_in: took(CommandPurpose::Confirm),
            without_pod: seen
                .and_then(|seen| Some(seen.updated?.saturating_sub(seen.taken?).into())),
            pull: self.scenario.new.pull.into(),
            pod_deletions: number("delete", "pods"),
            pod_patches: number("patch", "pods"),
            commands: typed.iter().map(command).collect(),
            node,
        })
    }

    /// Returns the guarantees of OTA with the results of their checks.
    pub(super) fn promises_to(
        &self,
        owner: &DeviceOwner,
        record: &MonitorRecord,
        ending: &RunEnd,
    ) -> Vec<Promise> {
        let typed = self.typed();
        let of = |aim| {
            typed
                .iter()
                .filter(move |one: &&CommandRecord| one.aim == aim)
        };
        let ended_well = |aim| of(aim).all(|one| one.code() == Some(0)) && of(aim).count() > 0;
        let refused = |one: &CommandRecord| one.code().is_some_and(|code| code != 0);
        let confirmed = of(CommandPurpose::Confirm).next().map(|one| one.began);
        let pulled = of(CommandPurpose::Pull).next().and_then(|one| one.ended);
        let taken = |name: &str| record.nodes.get(name).and_then(|node| node.taken);
        let mut others = self
            .scenario
            .nodes
            .iter()
            .filter(|name| **name != owner.node);
        let uids = record.uids();
        let untouched = |name: &String| {
            let uid = uids.get(name);
            uid.is_some() && uid == self.uids.get(name) && taken(name).is_none()
        };
        let promise = |held: bool, text: String| Promise { text, held };
        let node = &owner.node;
        vec![
            promise(
                *ending == RunEnd::Announced
                    && ended_well(CommandPurpose::Confirm)
                    && record.replaced == 1
                    && confirmed.is_some()
                    && taken(node) >= confirmed,
                format!("the pod of {node} was replaced once, after its owner confirmed"),
            ),
            promise(
                ended_well(CommandPurpose::Pull)
                    && pulled.map(|(at, _)| at) <= confirmed
                    && owner.without_pod.is_some_and(|time| time < owner.pull),
                "the image was pulled before: the upgrade did not wait for a pull".to_owned(),
            ),
            promise(
                others.all(untouched),
                "the pods of the other nodes were not replaced (same UIDs)".to_owned(),
            ),
            promise(
                ended_well(CommandPurpose::Read)
                    && of(CommandPurpose::Read).all(|one| one.requests == 0),
                "ctl pods was answered from the node's cache, without an API request".to_owned(),
            ),
            promise(
                of(CommandPurpose::Slip).count() > 0
                    && of(CommandPurpose::Slip).all(|one| refused(one) && one.requests == 0),
                "an upgrade of another node's pod was rejected, without an API request".to_owned(),
            ),
            promise(
                of(CommandPurpose::Away).count() > 0 && of(CommandPurpose::Away).all(refused),
                "without the cloud, pods were listed and an upgrade was rejected".to_owned(),
            ),
            promise(
                (owner.pod_patches, owner.pod_deletions) == (1, 1),
                "one API write for the pull, and one for the upgrade".to_owned(),
            ),
        ]
    }
}

fn command(typed: &CommandRecord) -> TypedCommand {
    TypedCommand {
        at: typed.began.into(),
        node: typed.node.clone(),
        line: typed.line.clone(),
        code: typed.code(),
        requests: typed.requests,
    }
}

/// Returns the number of requests of all agents with this verb for this resource.
fn agents(requests: &[Count], verb: &str, resource: &str) -> u64 {
    let of = |count: &&Count| is_agent(count) && count.verb == verb && count.resource == resource;
    requests.iter().filter(of).map(|count| count.number).sum()
}
