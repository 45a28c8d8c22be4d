//! Page locks, naively: a lock is a flag and a queue.

use std::collections::VecDeque;

/// Somebody who waits, by number.
pub type Thread = usize;

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// The lock.
    Lock,
    /// That it is unlocked, or, of a bit, that it is clear.
    Unlock,
}

/// Somebody in a queue, or woken and not run since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Who.
    pub thread: Thread,
    /// What for.
    pub wants: Wants,
    /// How often somebody else had the lock when this one ran.
    pub overtaken: u32,
    /// The lock was given to it, or, if it does not want that, was seen unlocked for it.
    pub is_owner: bool,
}

/// A lock, or a bit.
#[derive(Clone, Debug, Default)]
pub struct NaiveLock {
    /// It is locked; of a bit: set.
    pub is_locked: bool,
    /// Who waits, oldest first.
    pub queue: VecDeque<Waiter>,
}

impl NaiveLock {
    /// Locks it unless it is locked; returns whether it did.
    pub fn try_lock(&mut self) -> bool {
        !std::mem::replace(&mut self.is_locked, true)
    }

    /// Somebody wants something, for the first time or again: returns whether it is there.
    pub fn want(&mut self, waiter: Waiter) -> bool {
        let is_there = match waiter.wants {
            Wants::Lock => self.try_lock(),
            Wants::Unlock => !self.is_locked,
        };
        if !is_there {
            self.queue.push_back(waiter);
        }
        is_there
    }

    /// Unlocks it; returns who is woken, or `None` if it was not locked. All who wait for that, and the first who
    /// wants the lock. Who was overtaken five times has what it wants at once.
    pub fn unlock(&mut self) -> Option<Vec<Waiter>> {
        if !std::mem::replace(&mut self.is_locked, false) {
            return None;
        }
        let wants_lock = |waiter: &Waiter| waiter.wants == Wants::Lock;
        let first = self.queue.iter().position(wants_lock);
        let mut woken = Vec::new();
        let mut at = 0;
        self.queue.retain(|waiter| {
            let is_first = first == Some(at);
            at += 1;
            let is_owner = waiter.overtaken >= 5;
            if is_first || !wants_lock(waiter) {
                self.is_locked |= is_owner && is_first;
                woken.push(Waiter { is_owner, ..*waiter });
                return false;
            }
            true
        });
        Some(woken)
    }

    /// Somebody who was woken runs: returns whether it has what it wants. Else it queues again.
    pub fn go_on(&mut self, waiter: Waiter) -> bool {
        waiter.is_owner || self.want(Waiter { overtaken: waiter.overtaken + 1, ..waiter })
    }

    /// Somebody gives up, woken or not: returns whether it has what it wants after all.
    pub fn give_up(&mut self, thread: Thread, woken: Option<Waiter>) -> bool {
        match woken {
            None => {
                self.queue.retain(|waiter| waiter.thread != thread);
                false
            }
            Some(Waiter { is_owner: true, .. }) => true,
            Some(Waiter { wants: Wants::Unlock, .. }) => !self.is_locked,
            Some(_) => self.try_lock(),
        }
    }
}
