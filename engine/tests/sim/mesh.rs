//! The rings between the cores, as the real mesh has them: one bounded queue for each ordered pair, an outbox at the
//! sender for what does not fit, and a collection that takes what only releases or answers at once, and what asks for a
//! verdict after it has looked through all rings once more. A collection goes in steps, so that others send in between.

use std::collections::VecDeque;

use engine::{Answer, Ask};

pub enum Parcel {
    /// To an owner. Of the exchange of that number.
    Ask { exchange: usize, ask: Ask },
    /// Back to the core that asked.
    Answer { exchange: usize, answer: Answer },
}

impl Parcel {
    /// Whether it asks for a verdict or for figures.
    fn waits(&self) -> bool {
        matches!(self, Parcel::Ask { ask: Ask::Reserve { .. } | Ask::Check { .. } | Ask::Read { .. }, .. })
    }

    fn releases(&self) -> bool {
        matches!(self, Parcel::Ask { ask: Ask::Settle { .. } | Ask::Void { .. }, .. })
    }
}

/// A parcel that was put into a ring at that count of all pushes.
pub struct Stamped {
    pub from: usize,
    pub stamp: u64,
    pub parcel: Parcel,
}

pub struct Mesh {
    /// `rings[receiver][sender]`.
    rings: Vec<Vec<VecDeque<Stamped>>>,
    /// `outboxes[sender][receiver]`.
    outboxes: Vec<Vec<VecDeque<Parcel>>>,
    bound: usize,
    pushes: u64,
}

impl Mesh {
    pub fn new(cores: usize, bound: usize) -> Mesh {
        let rings = || (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        let outboxes = (0..cores).map(|_| (0..cores).map(|_| VecDeque::new()).collect()).collect();
        Mesh { rings: rings(), outboxes, bound, pushes: 0 }
    }

    /// Sends, or keeps for later; `false` if there was no room.
    pub fn send(&mut self, from: usize, to: usize, parcel: Parcel) -> bool {
        let outbox = &mut self.outboxes[from][to];
        let room = outbox.is_empty() && self.rings[to][from].len() < self.bound;
        if room {
            self.push(from, to, parcel);
        } else {
            outbox.push_back(parcel);
        }
        room
    }

    fn push(&mut self, from: usize, to: usize, parcel: Parcel) {
        self.pushes += 1;
        self.rings[to][from].push_back(Stamped { from, stamp: self.pushes, parcel });
    }

    /// Moves on what waits at the sender.
    pub fn flush(&mut self, from: usize) {
        for to in 0..self.rings.len() {
            while self.rings[to][from].len() < self.bound
                && let Some(parcel) = self.outboxes[from][to].pop_front()
            {
                self.push(from, to, parcel);
            }
        }
    }

    /// Forgets what waits at a sender; tells how many.
    pub fn lose_outboxes(&mut self, from: usize) -> usize {
        self.outboxes[from].iter_mut().map(|outbox| outbox.drain(..).count()).sum()
    }

    pub fn is_empty(&self) -> bool {
        let empty = |queues: &Vec<VecDeque<_>>| queues.iter().all(VecDeque::is_empty);
        self.rings.iter().all(empty)
            && self.outboxes.iter().all(|queues| queues.iter().all(VecDeque::is_empty))
    }

    /// Asserts that what was released before an ask was sent has been taken before it.
    pub fn assert_released_before(&self, me: usize, stamp: u64) {
        for waiting in self.rings[me].iter().flatten() {
            let earlier = waiting.parcel.releases() && waiting.stamp < stamp;
            assert!(!earlier, "an ask was taken before a release that was sent before it");
        }
    }
}

/// One collection under way.
pub struct Collection {
    /// To be taken once all rings have been looked through again.
    ready: VecDeque<Stamped>,
    later: VecDeque<Stamped>,
    sender: usize,
    left: usize,
    taking: bool,
}

pub enum Progress {
    Took(Stamped),
    /// An ask was put aside.
    PutAside,
    Finished,
}

impl Collection {
    pub fn new() -> Collection {
        Collection { ready: VecDeque::new(), later: VecDeque::new(), sender: 0, left: 0, taking: false }
    }

    /// Parcels that would be lost with it.
    pub fn pending(&self) -> usize {
        self.ready.len() + self.later.len()
    }

    pub fn advance(&mut self, mesh: &mut Mesh, me: usize) -> Progress {
        loop {
            if self.taking {
                if let Some(stamped) = self.ready.pop_front() {
                    return Progress::Took(stamped);
                }
                self.taking = false;
                (self.ready, self.sender) = (std::mem::take(&mut self.later), 0);
                if self.ready.is_empty() {
                    return Progress::Finished;
                }
            }
            while self.sender < mesh.rings.len() {
                let ring = &mut mesh.rings[me][self.sender];
                if self.left == 0 {
                    self.left = ring.len();
                }
                let Some(stamped) = ring.pop_front() else {
                    (self.sender, self.left) = (self.sender + 1, 0);
                    continue;
                };
                self.left -= 1;
                if self.left == 0 {
                    self.sender += 1;
                }
                if stamped.parcel.waits() {
                    self.later.push_back(stamped);
                    return Progress::PutAside;
                }
                return Progress::Took(stamped);
            }
            if self.ready.is_empty() {
                (self.ready, self.sender) = (std::mem::take(&mut self.later), 0);
                if self.ready.is_empty() {
                    return Progress::Finished;
                }
            } else {
                self.taking = true;
            }
        }
    }
}
