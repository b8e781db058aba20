//! Tests of expectations, with events of the API server and of the watch in every order.

use super::*;
use crate::core::{InPlacePatch, Pod};
use crate::index::expectations::Expectations;
use crate::index::pod::{PodRecord, SharedParts};

/// Maximum number of events in one sequence. After these events, nothing fails any more.
const LONGEST: usize = 7;

/// Event of a test. Each takes one second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The controller decides, and sends the write unless it knows of it already.
    Pass,
    /// The API server executes the write. Its response comes later.
    Execute,
    /// The API server reports success, after it carried out the write.
    Accept,
    /// The API server rejects the write.
    Refuse,
    /// The API server rejects the write because the pod has changed.
    Conflict,
    /// The response of the API server is lost.
    Lose,
    /// The task that waits for the response panics.
    Fail,
    /// Another client changes the pod.
    Touch,
    /// The watch reports the next change.
    Show,
    /// The watch loses all changes that it has not reported yet.
    Miss,
    /// The watch restarts with a list.
    Restart,
    /// The watch completes the list.
    Listed,
    /// 30 seconds pass.
    Wait,
}

const EVENTS: [Event; 13] = [
    Event::Pass,
    Event::Execute,
    Event::Accept,
    Event::Refuse,
    Event::Conflict,
    Event::Lose,
    Event::Fail,
    Event::Touch,
    Event::Show,
    Event::Miss,
    Event::Restart,
    Event::Listed,
    Event::Wait,
];

/// State of the pod at the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    version: u32,
    /// True if the write was carried out.
    is_done: bool,
}

/// Kind of write, with its effect.
struct Kind {
    action: fn(PodRef) -> Action,
    /// Applies the write to a pod.
    perform: fn(&mut Value),
    /// Returns true if a decision sees the effect of the write.
    is_done: fn(&Pod) -> bool,
    /// True if the write has a precondition on the version. While its result is unknown, it counts as carried out.
    is_careful: bool,
}

const KINDS: [Kind; 6] = [
    Kind {
        action: Action::Delete,
        perform: |pod| pod["metadata"]["deletionTimestamp"] = json!(CREATED),
        is_done: |pod| pod.terminating,
        is_careful: true,
    },
    Kind {
        action: Action::Evict,
        perform: |pod| pod["metadata"]["deletionTimestamp"] = json!(CREATED),
        is_done: |pod| pod.terminating,
        is_careful: true,
    },
    Kind {
        action: |pod| Action::Mark {
            pod,
            preparing: Some(true),
            gate: None,
        },
        perform: |pod| {
            pod["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] = json!("PreparingDelete");
        },
        is_done: |pod| pod.exit.preparing.is_some(),
        is_careful: true,
    },
    Kind {
        action: |pod| Action::UpdateInPlace {
            pod,
            patch: InPlacePatch {
                revision: "bbb".into(),
                change: Arc::default(),
                before: BTreeMap::new(),
                reverts: None,
                gate: None,
            },
        },
        perform: |pod| pod["metadata"]["labels"]["controller-revision-hash"] = json!("bbb"),
        is_done: |pod| pod.in_place.revision == Some("bbb".into()),
        is_careful: true,
    },
    Kind {
        action: |pod| Action::AskForImages {
            pod,
            revision: "bbb".into(),
            anew: true,
        },
        perform: |pod| {
            pod["status"]["conditions"] = json!([{ "type": "PodImageReady", "status": "False",
                "reason": "WaitPullImage", "message": "controllerrevision: bbb" }]);
        },
        is_done: |pod| pod.image_ready.as_ref().is_some_and(|image| image.waits),
        is_careful: false,
    },
    Kind {
        action: |pod| Action::SetNeedUpgrade {
            pod,
            needed: true,
            revision: "bbb".into(),
            flips: true,
            repelled: false,
            stale_image: None,
        },
        perform: |pod| {
            pod["status"]["conditions"] = json!([{ "type": "PodNeedUpgrade", "status": "True",
                "message": "controllerrevision: bbb" }]);
        },
        is_done: |pod| pod.need_upgrade.as_ref().is_some_and(|told| told.status),
        is_careful: false,
    },
];

/// Write that the controller has sent, without an answer so far.
#[derive(Clone, Debug)]
struct Request {
    action: Action,
    /// Version of the pod that the write has as a precondition.
    version: u32,
    is_executed: bool,
}

/// Simulated API server, watch and controller.
#[derive(Clone)]
struct World<'a> {
    kind: &'a Kind,
    /// Pod before and after the write.
    pods: &'a [k8s::Pod; 2],
    now: i64,
    state: State,
    request: Option<Request>,
    /// Request whose answer is lost, with the time until which the API server may still carry it out.
    late: Option<(Request, i64)>,
    unshown: Vec<State>,
    /// List in progress: its start, and the state of the pod that it will contain.
    list: Option<(i64, State)>,
    seen: PodRecord,
    seen_version: u32,
    expectations: Expectations,
    /// True if the answer to a repeatable write was lost, so that the write may be carried out twice.
    is_lost: bool,
    history: Vec<Event>,
}

impl<'a> World<'a> {
    fn new(kind: &'a Kind, pods: &'a [k8s::Pod; 2]) -> Self {
        let state = State {
            version: 1,
            is_done: false,
        };
        Self {
            kind,
            pods,
            now: 0,
            state,
            request: None,
            late: None,
            unshown: Vec::new(),
            list: None,
            seen: record(pods, state, None, at(0)),
            seen_version: 1,
            expectations: Expectations::default(),
            is_lost: false,
            history: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        at(self.now)
    }

    /// Makes an event happen. Returns false if it is impossible in the current state.
    fn happens(&mut self, event: Event) -> bool {
        self.history.push(event);
        self.now += 1;
        match event {
            Event::Pass => self.request.is_none() && self.list.is_none() && self.pass(),
            Event::Execute => self.execute(),
            Event::Accept => self.is_executed() == Some(true) && self.answer(WriteAnswer::Accepted),
            Event::Refuse => self.is_executed() == Some(false) && self.answer(WriteAnswer::Refused),
            Event::Conflict => self.is_outdated() && self.answer(WriteAnswer::Conflict),
            Event::Lose => {
                self.is_lost |= self.request.is_some() && !self.kind.is_careful;
                self.lose() && self.answer(WriteAnswer::Unanswered)
            }
            Event::Fail => {
                let fails = self.lose();
                self.request = None;
                self.expectations.lose_answers(self.now());
                fails
            }
            Event::Touch => {
                self.change(self.state.is_done);
                self.history.iter().filter(|known| **known == event).count() == 1
            }
            Event::Show => {
                let next = (!self.unshown.is_empty()).then(|| self.unshown.remove(0));
                self.list.is_none() && next.is_some_and(|state| self.see(state))
            }
            Event::Miss => !std::mem::take(&mut self.unshown).is_empty(),
            Event::Restart => self.list.is_none() && self.begin_list(),
            Event::Listed => self.list.take().is_some_and(|list| self.listed(list)),
            Event::Wait => {
                self.now += 30;
                self.expectations.due().is_some()
            }
        }
    }

    /// Does what the engine does: lists the pods if the watch should already have shown a write; otherwise sends missing writes.
    fn pass(&mut self) -> bool {
        if self.expectations.due().is_some_and(|due| due <= self.now()) {
            return self.begin_list();
        }
        let sent = self.expectations.without_pending(self.wanted());
        let sends = !sent.is_empty();
        for action in sent {
            assert!(
                !self.state.is_done || self.is_lost,
                "written twice: {:?}",
                self.history
            );
            self.expectations
                .begin(&action, Some(&self.seen), self.now());
            self.request = Some(Request {
                action,
                version: self.seen_version,
                is_executed: false,
            });
        }
        sends
    }

    fn wanted(&self) -> Vec<Action> {
        let pod = self.expectations.shown(&self.seen.pod);
        if (self.kind.is_done)(&pod) {
            Vec::new()
        } else {
            vec![self.request_of(&pod)]
        }
    }

    fn request_of(&self, pod: &Pod) -> Action {
        (self.kind.action)(PodRef {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        })
    }

    fn change(&mut self, is_done: bool) {
        self.state = State {
            version: self.state.version + 1,
            is_done,
        };
        self.unshown.push(self.state);
    }

    fn execute(&mut self) -> bool {
        let late = self.late.take().filter(|(_, until)| self.now < *until);
        if let Some((request, _)) = late {
            return self.carry_out(&request);
        }
        let request = self.request.clone();
        let Some(mut request) = request.filter(|request| !request.is_executed) else {
            return false;
        };
        let is_executed = self.carry_out(&request);
        request.is_executed = is_executed;
        self.request = Some(request);
        is_executed
    }

    fn carry_out(&mut self, request: &Request) -> bool {
        let may = !self.kind.is_careful || request.version == self.state.version;
        if may {
            self.change(true);
        }
        may
    }

    fn is_executed(&self) -> Option<bool> {
        Some(self.request.as_ref()?.is_executed)
    }

    fn is_outdated(&self) -> bool {
        let version = self.state.version;
        let is_outdated = |request: &Request| !request.is_executed && request.version != version;
        self.kind.is_careful && self.request.as_ref().is_some_and(is_outdated)
    }

    fn answer(&mut self, answer: WriteAnswer) -> bool {
        let Some(request) = self.request.take() else {
            return false;
        };
        let now = self.now();
        self.expectations
            .answer(&request.action, answer, Some(&self.seen), now);
        true
    }

    /// Makes the answer to the request get lost.
    fn lose(&mut self) -> bool {
        let open = self.request.clone();
        self.late = open
            .filter(|request| !request.is_executed)
            .map(|request| (request, self.now + 15));
        self.request.is_some()
    }

    fn see(&mut self, state: State) -> bool {
        let before = Some(&self.seen);
        self.seen = record(self.pods, state, before, self.now());
        self.seen_version = state.version;
        self.expectations.settle(&self.seen);
        let is_told_by_the_decision = matches!(
            self.request_of(&self.seen.pod),
            Action::SetNeedUpgrade { .. }
        );
        assert!(
            !state.is_done || is_told_by_the_decision || self.expectations.due().is_none(),
            "it shows: {:?}",
            self.history
        );
        true
    }

    fn begin_list(&mut self) -> bool {
        self.unshown.clear();
        self.list = Some((self.now, self.state));
        true
    }

    fn listed(&mut self, (began, state): (i64, State)) -> bool {
        self.see(state);
        self.expectations.retain_since(Some(at(began)), |_| true);
        true
    }

    /// Checks that the write is carried out and all expectations are dropped if nothing fails any more.
    fn settles(mut self) {
        let history = self.history.clone();
        self.late = None;
        for _ in 0..8 {
            for event in [
                Event::Execute,
                Event::Accept,
                Event::Conflict,
                Event::Listed,
            ] {
                let mut next = self.clone();
                if next.happens(event) {
                    self = next;
                }
            }
            while !self.unshown.is_empty() {
                self.happens(Event::Show);
            }
            self.happens(Event::Wait);
            if !self.happens(Event::Pass) && self.expectations.due().is_none() {
                break;
            }
        }
        assert!(self.state.is_done, "held back for ever: {history:?}");
        assert!((self.kind.is_done)(&self.seen.pod));
        assert_eq!(
            self.expectations.due(),
            None,
            "never forgotten: {history:?}"
        );
    }

    /// Tries every sequence of `events` events from this state. Returns the number of sequences.
    fn explore(self, events: usize) -> usize {
        if events == 0 {
            self.settles();
            return 1;
        }
        let mut orders = 0;
        for event in EVENTS {
            let mut next = self.clone();
            if next.happens(event) {
                orders += next.explore(events - 1);
            }
        }
        orders
    }
}

fn record(
    pods: &[k8s::Pod; 2],
    state: State,
    before: Option<&PodRecord>,
    now: Timestamp,
) -> PodRecord {
    let mut pod = pods[usize::from(state.is_done)].clone();
    pod.metadata.resource_version = Some(state.version.to_string());
    let read = PodRecord::read(
        &pod,
        false,
        before,
        &mut SharedParts::default(),
        std::time::Duration::ZERO,
        now,
    );
    read.expect("a pod")
}

/// A late watch must not cause a second write. A lost answer must not block anything permanently.
#[test]
fn in_any_event_order_a_write_is_sent_once_and_takes_effect() {
    for kind in &KINDS {
        let before = pod("n1", "aaa").0;
        let mut after = before.clone();
        (kind.perform)(&mut after);
        let pods = [parsed(before), parsed(after)];
        let orders = World::new(kind, &pods).explore(LONGEST);
        assert!(orders > 1000, "{orders}");
    }
}
