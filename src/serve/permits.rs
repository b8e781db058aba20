//! Permits for connections. If all permits are in use and a new connection arrives, an old connection loses its permit.
//!
//! Connecting costs a client nothing, so a connection without requests must not keep its permit. A new connection takes the permit
//! of a connection without work in progress, from the peer address with the most connections. Of these, the first in the order of
//! [`ConnectionState`] loses its permit, and among several the oldest. If all connections have work in progress, the new one is
//! rejected. HTTP libraries have no such rule: with a plain semaphore, silent connections would keep out all others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// State of a connection. Of the connections of one peer, those in an earlier state lose their permits first. Busy connections keep
/// their permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionState {
    /// No request has been received yet.
    Silent,
    /// No request is in progress, or the client is reading the response slowly.
    Idle,
    /// The client is sending a request body slowly.
    Slow,
    /// A request is in progress.
    Busy,
}

/// Signal to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitSignal {
    /// No signal.
    Stay,
    /// The permit is revoked.
    Leave,
    /// The server is shutting down.
    End,
}

/// Limited number of permits, and the connections that hold them. Cheap to clone; all clones share one limit.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermits {
    limit: usize,
    held: Arc<Mutex<Held>>,
    /// Limits the connections that wait for the client to read the last response. Others are closed right after the response.
    lingering: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    holders: BTreeMap<u64, Holder>,
}

/// Server's record of a connection that holds a permit.
#[derive(Debug)]
struct Holder {
    peer: Option<IpAddr>,
    state: watch::Sender<ConnectionState>,
    signal: watch::Sender<PermitSignal>,
}

/// Permit of a connection. Dropping it makes the permit available again.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    number: u64,
    permits: Option<ConnectionPermits>,
    state: watch::Sender<ConnectionState>,
    signal: watch::Receiver<PermitSignal>,
}

impl ConnectionPermits {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Arc::default(),
            lingering: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Returns a permit to keep a connection open until the client has read the last response; `None` if too many connections
    /// wait for that.
    pub(crate) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.lingering.clone().try_acquire_owned().ok()
    }

    /// Returns a permit for a connection from `peer`. If necessary, revokes another one; returns `None` if all connections are
    /// busy.
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

    /// Revokes the permit of a connection without work in progress. Used if accepting a connection fails.
    pub(crate) fn revoke_one(&self) {
        self.held().revoke_one();
    }

    /// Signals the shutdown to all connections with a permit.
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
    /// Revokes one permit. Returns false if there is no connection without work in progress.
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
    /// Creates a permit that is never revoked.
    pub(crate) fn unlimited() -> Self {
        Self {
            number: 0,
            permits: None,
            state: watch::Sender::new(ConnectionState::Silent),
            signal: watch::channel(PermitSignal::Stay).1,
        }
    }

    /// Returns a permit to wait for the client; see [`ConnectionPermits::linger`].
    pub(crate) fn linger(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.as_ref()?.linger()
    }

    /// Returns the sender of the connection's state. All clones share one state.
    pub(crate) fn state(&self) -> watch::Sender<ConnectionState> {
        self.state.clone()
    }

    /// Returns the state of the connection. It can also be read after the permit was revoked.
    pub(crate) fn current(&self) -> ConnectionState {
        *self.state.borrow()
    }

    /// Waits for a signal from the server.
    pub(crate) async fn signalled(&mut self) -> PermitSignal {
        let signal = self
            .signal
            .wait_for(|signal| *signal != PermitSignal::Stay)
            .await;
        let signal = signal.map(|signal| *signal);
        match signal {
            Ok(signal) => signal,
            Err(_) => std::future::pending().await, // an unlimited permit has no server, so no signal comes
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
    fn the_oldest_idle_connection_makes_room() {
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
    fn many_connections_from_one_address_take_no_permit_from_others() {
        let permits = ConnectionPermits::new(3);
        let [crowded, other] = ["10.0.0.1", "::ffff:10.0.0.2"].map(|ip| ip.parse().ok());
        let alone = permits.acquire(other).unwrap();
        let [first, second] = [0; 2].map(|_| permits.acquire(crowded).unwrap());
        let third = permits.acquire(crowded).unwrap();
        let fourth = permits.acquire("10.0.0.3".parse().ok()).unwrap();
        let signal_of = |permit: &ConnectionPermit| *permit.signal.borrow();
        for loses in [&first, &second] {
            assert_eq!(signal_of(loses), PermitSignal::Leave);
        }
        for keeps in [&alone, &third, &fourth] {
            assert_eq!(signal_of(keeps), PermitSignal::Stay);
        }
    }
}
