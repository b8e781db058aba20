//! Permits of connections, and the order in which connections lose them when all are held and another one arrives.
//!
//! Connecting costs nothing, so a silent connection does not keep its permit. A new connection takes the permit of the peer
//! address with the most connections: its oldest one without work in progress. If all connections have work in progress,
//! the new one is turned away. HTTP libraries have no such rule, and a semaphore alone would let silent connections keep
//! all others out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What a connection is about, in the order in which permits are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionState {
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
pub(crate) enum PermitSignal {
    /// Nothing.
    Stay,
    /// Its permit is taken away.
    Leave,
    /// The server ends.
    End,
}

/// The limit of connections, and who holds its permits. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermits {
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
    peer: Option<IpAddr>,
    state: watch::Sender<ConnectionState>,
    signal: watch::Sender<PermitSignal>,
}

/// Leave to be connected; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    number: u64,
    permits: Option<ConnectionPermits>,
    state: watch::Sender<ConnectionState>,
    signal: watch::Receiver<PermitSignal>,
}

impl ConnectionPermits {
    /// So many.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Arc::default(),
            lingering: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Leave to close a connection slowly, so that its last answer is read.
    pub(crate) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.lingering.clone().try_acquire_owned().ok()
    }

    /// Returns a permit for a connection from `peer`, taken from another connection if necessary; `None` when all are busy.
    pub(crate) fn acquire(&self, peer: Option<IpAddr>) -> Option<ConnectionPermit> {
        let mut held = self.held();
        if held.holders.len() >= self.limit && !held.revoke_one() {
            return None;
        }
        let number = held.next;
        held.next += 1;
        let state = watch::Sender::new(ConnectionState::Silent);
        let (sender, signal) = watch::channel(PermitSignal::Stay);
        let holder = Holder {
            peer: peer.map(|address| address.to_canonical()),
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
    pub(crate) fn revoke_one(&self) {
        self.held().revoke_one();
    }

    /// Tells everybody that the server ends.
    pub(crate) fn end(&self) {
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
        let mut connections: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        for holder in self.holders.values() {
            *connections.entry(holder.peer).or_default() += 1;
        }
        let idle = self.holders.iter().filter_map(|(number, holder)| {
            let state = *holder.state.borrow();
            let crowd = connections.get(&holder.peer).copied();
            (state != ConnectionState::Busy).then_some((Reverse(crowd), state, *number))
        });
        let Some((_, _, oldest)) = idle.min() else {
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
    pub(crate) fn unlimited() -> Self {
        Self {
            number: 0,
            permits: None,
            state: watch::Sender::new(ConnectionState::Silent),
            signal: watch::channel(PermitSignal::Stay).1,
        }
    }

    /// As [`ConnectionPermits::linger`].
    pub(crate) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.as_ref()?.linger()
    }

    /// To say what its connection is about; clones are one.
    pub(crate) fn state(&self) -> watch::Sender<ConnectionState> {
        self.state.clone()
    }

    /// What its connection is about, also after the permit was taken away.
    pub(crate) fn current(&self) -> ConnectionState {
        *self.state.borrow()
    }

    /// Waits until the connection is told something.
    pub(crate) async fn signalled(&mut self) -> PermitSignal {
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
        let [first, second, third] = [0; 3].map(|_| permits.acquire(None).unwrap());
        first.state.send_replace(ConnectionState::Idle);
        let fourth = permits.acquire(None).unwrap();
        assert_eq!(
            (*first.signal.borrow(), *second.signal.borrow()),
            (PermitSignal::Stay, PermitSignal::Leave)
        );
        third.state.send_replace(ConnectionState::Busy);
        fourth.state.send_replace(ConnectionState::Slow);
        let fifth = permits.acquire(None).unwrap();
        assert_eq!(
            (*first.signal.borrow(), *fourth.signal.borrow()),
            (PermitSignal::Leave, PermitSignal::Stay)
        );
        fifth.state.send_replace(ConnectionState::Busy);
        let sixth = permits.acquire(None).unwrap();
        assert_eq!(*fourth.signal.borrow(), PermitSignal::Leave);
        sixth.state.send_replace(ConnectionState::Busy);
        assert!(permits.acquire(None).is_none());
        drop(third);
        assert!(permits.acquire(None).is_some());
        permits.end();
        assert_eq!(
            (*sixth.signal.borrow(), *first.signal.borrow()),
            (PermitSignal::End, PermitSignal::Leave)
        );
    }
    #[test]
    fn a_crowd_from_one_address_takes_no_permit_from_others() {
        let permits = ConnectionPermits::new(3);
        let [crowded, other] = ["10.0.0.1", "::ffff:10.0.0.2"].map(|ip| ip.parse().ok());
        let alone = permits.acquire(other).unwrap();
        let [first, second] = [0; 2].map(|_| permits.acquire(crowded).unwrap());
        let third = permits.acquire(crowded).unwrap();
        let fourth = permits.acquire("10.0.0.3".parse().ok()).unwrap();
        let told = |permit: &ConnectionPermit| *permit.signal.borrow();
        for loses in [&first, &second] {
            assert_eq!(told(loses), PermitSignal::Leave);
        }
        for keeps in [&alone, &third, &fourth] {
            assert_eq!(told(keeps), PermitSignal::Stay);
        }
    }
}
