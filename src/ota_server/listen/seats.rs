//! The seats: who is connected, and who has to go when all are taken and somebody else asks.
//!
//! Connecting costs nothing, so a seat is not kept by being silent: a newcomer gets the seat of the oldest connection
//! that nothing is being done for. Only when something is being done for all of them is the newcomer turned away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What a connection is about, in the order in which seats are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
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
pub(super) enum Order {
    /// Nothing.
    Stay,
    /// Its seat is taken.
    Leave,
    /// The server ends.
    End,
}

/// All seats. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Seats {
    table: Arc<Mutex<Table>>,
    /// How many may still listen to their last word; others are cut off behind it.
    patience: Arc<Semaphore>,
}

#[derive(Debug)]
struct Table {
    limit: usize,
    next: u64,
    taken: BTreeMap<u64, Taken>,
}

#[derive(Debug)]
struct Taken {
    mark: Mark,
    orders: watch::Sender<Order>,
}

/// One seat; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    seats: Option<Seats>,
    mark: Mark,
    orders: watch::Receiver<Order>,
}

/// What the connection of a seat is about. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Mark(watch::Sender<Phase>);

impl Mark {
    fn new() -> Self {
        Self(watch::Sender::new(Phase::Silent))
    }

    /// Says what it is about.
    pub(super) fn set(&self, phase: Phase) {
        self.0.send_replace(phase);
    }

    fn phase(&self) -> Phase {
        *self.0.borrow()
    }
}

impl Seats {
    /// So many.
    pub(super) fn new(limit: usize) -> Self {
        let table = Table {
            limit,
            next: 0,
            taken: BTreeMap::new(),
        };
        Self {
            table: Arc::new(Mutex::new(table)),
            patience: Arc::new(Semaphore::new(limit)),
        }
    }

    /// Leave to wait until a last word is heard.
    pub(super) fn patience(&self) -> Option<OwnedSemaphorePermit> {
        self.patience.clone().try_acquire_owned().ok()
    }

    /// A seat, somebody else's if need be; `None` when all are busy.
    pub(super) fn take(&self) -> Option<Seat> {
        let mut table = self.table();
        if table.taken.len() >= table.limit && !table.free_one() {
            return None;
        }
        let number = table.next;
        table.next += 1;
        let (sender, orders) = watch::channel(Order::Stay);
        let mark = Mark::new();
        let taken = Taken {
            mark: mark.clone(),
            orders: sender,
        };
        table.taken.insert(number, taken);
        Some(Seat {
            number,
            seats: Some(self.clone()),
            mark,
            orders,
        })
    }

    /// Takes a seat away for other reasons than a newcomer; false when all are busy or empty.
    pub(super) fn free_one(&self) -> bool {
        self.table().free_one()
    }

    /// Tells everybody that the server ends.
    pub(super) fn end(&self) {
        for taken in self.table().taken.values() {
            taken.orders.send_replace(Order::End);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn free_one(&mut self) -> bool {
        let free = self
            .taken
            .iter()
            .filter(|(_, taken)| taken.mark.phase() != Phase::Busy);
        let oldest = free.min_by_key(|(number, taken)| (taken.mark.phase(), **number));
        let Some((&number, _)) = oldest else {
            return false;
        };
        if let Some(taken) = self.taken.remove(&number) {
            taken.orders.send_replace(Order::Leave);
        }
        true
    }
}

impl Seat {
    /// A seat that nobody takes away.
    pub(super) fn alone() -> Self {
        Self {
            number: 0,
            seats: None,
            mark: Mark::new(),
            orders: watch::channel(Order::Stay).1,
        }
    }

    /// As [`Seats::patience`].
    pub(super) fn patience(&self) -> Option<OwnedSemaphorePermit> {
        self.seats.as_ref()?.patience()
    }

    /// To say what its connection is about.
    pub(super) fn mark(&self) -> Mark {
        self.mark.clone()
    }

    /// What its connection is about, also after the seat was taken away.
    pub(super) fn phase(&self) -> Phase {
        self.mark.phase()
    }

    /// Waits until the connection is told something.
    pub(super) async fn ordered(&mut self) -> Order {
        let told = self.orders.wait_for(|order| *order != Order::Stay).await;
        let told = told.map(|order| *order);
        match told {
            Ok(order) => order,
            Err(_) => std::future::pending().await, // alone
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = &self.seats {
            seats.table().taken.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nothing_is_done_for_makes_room() {
        let seats = Seats::new(3);
        let [first, second, third] = [0; 3].map(|_| seats.take().unwrap());
        first.mark().set(Phase::Idle);
        let fourth = seats.take().unwrap();
        assert_eq!(
            (*first.orders.borrow(), *second.orders.borrow()),
            (Order::Stay, Order::Leave)
        );
        third.mark().set(Phase::Busy);
        fourth.mark().set(Phase::Slow);
        let fifth = seats.take().unwrap();
        assert_eq!(
            (*first.orders.borrow(), *fourth.orders.borrow()),
            (Order::Leave, Order::Stay)
        );
        fifth.mark().set(Phase::Busy);
        let sixth = seats.take().unwrap();
        assert_eq!(*fourth.orders.borrow(), Order::Leave);
        sixth.mark().set(Phase::Busy);
        assert!(seats.take().is_none());
        drop(third);
        assert!(seats.take().is_some());
        seats.end();
        assert_eq!(
            (*sixth.orders.borrow(), *first.orders.borrow()),
            (Order::End, Order::Leave)
        );
    }
}
