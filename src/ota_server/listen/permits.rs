//! Permits to be connected: who has one, and who has to give it back when all are held and somebody else connects.
//!
//! Connecting costs nothing, so a permit is not kept by being silent: a newcomer gets that of the oldest connection
//! that nothing is being done for. Only when something is being done for all of them is the newcomer turned away. No library for
//! HTTP servers takes an idle connection back; a semaphore alone would let silent ones keep everybody else out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What a connection is about, in the order in which permits are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionState {
    /// It never asked for anything.
    Silent,
    /// It asked before, and does not ask now or is slow to take its answer.
    Idle,
    /// It is slow to send a body.
    Slow,
    /// Its request is being worked on.
    Busy,
}

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PermitSignal {
    /// Nothing.
    Stay,
    /// Its permit is taken away.
    Leave,
    /// The server ends.
    End,
}

/// The limit of connections, and who holds its permits. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPermits {
    limit: usize,
    held: Arc<Mutex<Held>>,
    /// How many connections may be closed slowly; others are cut off behind their answer.
    lingering: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    holders: BTreeMap<u64, Holder>,
}

/// The other ends of the channels of a permit.
#[derive(Debug)]
struct Holder {
    state: watch::Sender<ConnectionState>,
    signal: watch::Sender<PermitSignal>,
}

/// Leave to be connected; given back when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    number: u64,
    permits: Option<ConnectionPermits>,
    state: watch::Sender<ConnectionState>,
    signal: watch::Receiver<PermitSignal>,
}

impl ConnectionPermits {
    /// So many.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Arc::default(),
            lingering: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Leave to close a connection slowly, so that its last answer is read.
    pub(super) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.lingering.clone().try_acquire_owned().ok()
    }

    /// A permit, somebody else's if need be; `None` when all connections are busy.
    pub(super) fn acquire(&self) -> Option<ConnectionPermit> {
        let mut held = self.held();
        if held.holders.len() >= self.limit && !held.revoke_one() {
            return None;
        }
        let number = held.next;
        held.next += 1;
        let state = watch::Sender::new(ConnectionState::Silent);
        let (sender, signal) = watch::channel(PermitSignal::Stay);
        let holder = Holder {
            state: state.clone(),
            signal: sender,
        };
        held.holders.insert(number, holder);
        Some(ConnectionPermit {
            number,
            permits: Some(self.clone()),
            state,
            signal,
        })
    }

    /// Takes a permit away for other reasons than a newcomer, if there is one that nothing is being done for.
    pub(super) fn revoke_one(&self) {
        self.held().revoke_one();
    }

    /// Tells everybody that the server ends.
    pub(super) fn end(&self) {
        for holder in self.held().holders.values() {
            holder.signal.send_replace(PermitSignal::End);
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// False when all are busy, or there is none.
    fn revoke_one(&mut self) -> bool {
        let states = self.holders.iter();
        let states = states.map(|(number, holder)| (*holder.state.borrow(), *number));
        let idle = states.filter(|(state, _)| *state != ConnectionState::Busy);
        let Some((_, oldest)) = idle.min() else {
            return false;
        };
        if let Some(holder) = self.holders.remove(&oldest) {
            holder.signal.send_replace(PermitSignal::Leave);
        }
        true
    }
}

impl ConnectionPermit {
    /// One that nobody takes away.
    pub(super) fn unlimited() -> Self {
        Self {
            number: 0,
            permits: None,
            state: watch::Sender::new(ConnectionState::Silent),
            signal: watch::channel(PermitSignal::Stay).1,
        }
    }

    /// As [`ConnectionPermits::linger`].
    pub(super) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.as_ref()?.linger()
    }

    /// To say what its connection is about; clones are one.
    pub(super) fn state(&self) -> watch::Sender<ConnectionState> {
        self.state.clone()
    }

    /// What its connection is about, also after the permit was taken away.
    pub(super) fn current(&self) -> ConnectionState {
        *self.state.borrow()
    }

    /// Waits until the connection is told something.
    pub(super) async fn signalled(&mut self) -> PermitSignal {
        let told = self
            .signal
            .wait_for(|signal| *signal != PermitSignal::Stay)
            .await;
        let told = told.map(|signal| *signal);
        match told {
            Ok(signal) => signal,
            Err(_) => std::future::pending().await, // unlimited
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(permits) = &self.permits {
            permits.held().holders.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nothing_is_done_for_makes_room() {
        let permits = ConnectionPermits::new(3);
        let [first, second, third] = [0; 3].map(|_| permits.acquire().unwrap());
        first.state.send_replace(ConnectionState::Idle);
        let fourth = permits.acquire().unwrap();
        assert_eq!(
            (*first.signal.borrow(), *second.signal.borrow()),
            (PermitSignal::Stay, PermitSignal::Leave)
        );
        third.state.send_replace(ConnectionState::Busy);
        fourth.state.send_replace(ConnectionState::Slow);
        let fifth = permits.acquire().unwrap();
        assert_eq!(
            (*first.signal.borrow(), *fourth.signal.borrow()),
            (PermitSignal::Leave, PermitSignal::Stay)
        );
        fifth.state.send_replace(ConnectionState::Busy);
        let sixth = permits.acquire().unwrap();
        assert_eq!(*fourth.signal.borrow(), PermitSignal::Leave);
        sixth.state.send_replace(ConnectionState::Busy);
        assert!(permits.acquire().is_none());
        drop(third);
        assert!(permits.acquire().is_some());
        permits.end();
        assert_eq!(
            (*sixth.signal.borrow(), *first.signal.borrow()),
            (PermitSignal::End, PermitSignal::Leave)
        );
    }
}
