//! Rings, outboxes and collection.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use engine::CoreId;
use engine::gates::{Answer, Ask};

use super::sleep::Bed;
use crate::bounds::RING_PARCELS;

/// Names the exchange that waits for an answer, on the core that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What one core sends another.
#[derive(Debug)]
pub enum Parcel {
    /// To the owner of counters. A reserve or a read names the ticket its answer goes to; a settle or a void is
    /// not answered.
    Ask {
        /// Who waits, if anybody does.
        ticket: Option<Ticket>,
        /// What is asked.
        ask: Ask,
    },
    /// Back to the core that asked.
    Answer {
        /// Who waits.
        ticket: Ticket,
        /// What the owner says.
        answer: Answer,
    },
}

/// All rings of one process. Shared by its cores.
#[derive(Debug)]
pub struct Mesh {
    /// `rings[receiver][sender]`.
    rings: Vec<Vec<CachePadded<ArrayQueue<Parcel>>>>,
    beds: Vec<CachePadded<Bed>>,
    /// By core: rung for since it last listened.
    bells: Vec<CachePadded<AtomicBool>>,
}

impl Mesh {
    /// Rings between `cores` cores.
    pub fn new(cores: usize) -> Arc<Mesh> {
        let ring = |_| CachePadded::new(ArrayQueue::new(RING_PARCELS));
        Arc::new(Mesh {
            rings: (0..cores).map(|_| (0..cores).map(ring).collect()).collect(),
            beds: (0..cores).map(|_| CachePadded::new(Bed::default())).collect(),
            bells: (0..cores).map(|_| CachePadded::default()).collect(),
        })
    }

    /// Has a core look at what was published beside the rings, now if it sleeps, else before it sleeps again.
    pub fn ring(&self, core: CoreId) {
        self.bells[usize::from(core.0)].store(true, Ordering::Release);
        self.beds[usize::from(core.0)].wake();
    }
}

/// One core's end of the mesh.
#[derive(Debug)]
pub struct Post {
    mesh: Arc<Mesh>,
    me: usize,
    outboxes: Vec<RefCell<VecDeque<Parcel>>>,
}

impl Post {
    /// The end of core `me`.
    pub fn new(mesh: Arc<Mesh>, me: CoreId) -> Post {
        let outboxes = mesh.rings.iter().map(|_| RefCell::default()).collect();
        Post { mesh, me: usize::from(me.0), outboxes }
    }

    /// Sends `parcel` to core `to`, at once or, while its ring is full, as soon as there is room.
    pub fn send(&self, to: CoreId, parcel: Parcel) {
        let to = usize::from(to.0);
        let mut outbox = self.outboxes[to].borrow_mut();
        if !outbox.is_empty() {
            outbox.push_back(parcel);
        } else if let Err(parcel) = self.mesh.rings[to][self.me].push(parcel) {
            outbox.push_back(parcel);
        }
        drop(outbox);
        self.mesh.beds[to].wake();
    }

    /// Takes everything that has arrived, in an order that respects what happened before what (see the module's
    /// page), and moves waiting parcels of the outboxes on. Tells whether anything had arrived.
    pub fn collect(&self, mut take: impl FnMut(CoreId, Parcel)) -> bool {
        self.flush();
        if self.nothing_here() {
            return false;
        }
        let mut asks = Vec::new();
        self.sweep(&mut asks, &mut take);
        while !asks.is_empty() {
            let mut later = Vec::new();
            self.sweep(&mut later, &mut take);
            for (from, parcel) in asks {
                take(from, parcel);
            }
            asks = later;
        }
        true
    }

    /// One pass over all rings: what only releases or answers is taken at once, what asks for a verdict is put
    /// aside.
    fn sweep(&self, asks: &mut Vec<(CoreId, Parcel)>, take: &mut impl FnMut(CoreId, Parcel)) {
        for (sender, ring) in self.mesh.rings[self.me].iter().enumerate() {
            let from = CoreId(sender as u16);
            for _ in 0..ring.len() {
                match ring.pop() {
                    Some(parcel @ Parcel::Ask { ticket: Some(_), .. }) => asks.push((from, parcel)),
                    Some(parcel) => take(from, parcel),
                    None => break,
                }
            }
        }
    }

    fn nothing_here(&self) -> bool {
        self.mesh.rings[self.me].iter().all(|ring| ring.is_empty())
    }

    fn flush(&self) {
        for (to, outbox) in self.outboxes.iter().enumerate() {
            let mut outbox = outbox.borrow_mut();
            if outbox.is_empty() {
                continue;
            }
            while let Some(parcel) = outbox.pop_front() {
                if let Err(parcel) = self.mesh.rings[to][self.me].push(parcel) {
                    outbox.push_front(parcel);
                    break;
                }
            }
            self.mesh.beds[to].wake();
        }
    }

    /// Parcels under way from here: those in the rings, and those that wait for room in one.
    pub fn depth(&self) -> usize {
        self.mesh.rings.iter().map(|rings| rings[self.me].len()).sum::<usize>() + self.backlog()
    }

    /// Parcels that wait for room in a ring.
    pub fn backlog(&self) -> usize {
        self.outboxes.iter().map(|outbox| outbox.borrow().len()).sum()
    }

    /// Sleeps until there is something to collect, or [`Mesh::ring`] was called.
    pub async fn arrival(&self) {
        let (bed, bell) = (&self.mesh.beds[self.me], &self.mesh.bells[self.me]);
        let mut slept = false;
        let nothing_here = || self.nothing_here() && !bell.load(Ordering::Acquire);
        poll_fn(|context| bed.rest(&mut slept, context.waker(), nothing_here)).await;
        // Who rings after this is heard by the next call: what was published before is looked at after this one.
        bell.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;

    use engine::gates::ReservationId;

    fn void(id: u64) -> Parcel {
        Parcel::Ask { ticket: None, ask: Ask::Void { id: ReservationId(id) } }
    }

    fn id_of(parcel: &Parcel) -> u64 {
        match parcel {
            Parcel::Ask { ask: Ask::Void { id }, .. } => id.0,
            other => panic!("not a void: {other:?}"),
        }
    }

    fn collected(post: &Post) -> Vec<(u16, u64)> {
        let mut seen = Vec::new();
        post.collect(|from, parcel| seen.push((from.0, id_of(&parcel))));
        seen
    }

    #[test]
    fn a_full_ring_keeps_every_parcel_in_order() {
        let mesh = Mesh::new(2);
        let (sender, receiver) = (Post::new(mesh.clone(), CoreId(0)), Post::new(mesh, CoreId(1)));
        let count = 3 * RING_PARCELS as u64 + 7;
        for id in 0..count {
            sender.send(CoreId(1), void(id));
        }
        assert_eq!(sender.backlog(), count as usize - RING_PARCELS);
        assert_eq!(sender.depth(), count as usize);
        let mut seen = Vec::new();
        while seen.len() < count as usize {
            let more = collected(&receiver);
            assert!(!more.is_empty(), "stuck after {} parcels", seen.len());
            seen.extend(more);
            sender.collect(|_, _| panic!("nothing was sent to core 0"));
        }
        assert_eq!(seen, (0..count).map(|id| (0, id)).collect::<Vec<_>>());
        assert_eq!(sender.backlog(), 0);
    }

    #[test]
    fn a_release_is_taken_before_an_ask_that_came_first() {
        let mesh = Mesh::new(3);
        let plan = engine::gates::GateTwoPlan::new(&engine::Selected(Vec::new()), 3);
        let posts: Vec<_> = (0..3).map(|core| Post::new(mesh.clone(), CoreId(core))).collect();
        posts[0].send(CoreId(2), Parcel::Ask { ticket: Some(Ticket(1)), ask: Ask::Read { plan } });
        posts[1].send(CoreId(2), void(7));
        let mut order = Vec::new();
        posts[2].collect(|_, parcel| {
            order.push(matches!(parcel, Parcel::Ask { ask: Ask::Void { .. }, .. }));
        });
        assert_eq!(order, [true, false]);
    }

    #[test]
    fn a_sleeper_is_woken_by_another_thread() {
        let mesh = Mesh::new(2);
        let receiver = Post::new(mesh.clone(), CoreId(1));
        for round in 0..200 {
            let mesh = mesh.clone();
            let sender = std::thread::spawn(move || {
                Post::new(mesh, CoreId(0)).send(CoreId(1), void(round));
            });
            block_on_thread(receiver.arrival());
            sender.join().unwrap();
            assert_eq!(collected(&receiver), [(0, round)]);
        }
    }

    #[test]
    fn a_bell_that_rang_while_awake_is_heard() {
        let mesh = Mesh::new(1);
        let post = Post::new(mesh.clone(), CoreId(0));
        mesh.ring(CoreId(0));
        let woken = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(woken);
        assert!(std::pin::pin!(post.arrival()).poll(&mut context).is_ready(), "before it sleeps");
        let mut second = std::pin::pin!(post.arrival());
        assert!(second.as_mut().poll(&mut context).is_pending(), "once is once");
        mesh.ring(CoreId(0));
        assert!(second.poll(&mut context).is_ready(), "while it sleeps");
    }

    /// A minimal executor: parks the thread between polls.
    fn block_on_thread(work: impl std::future::Future<Output = ()>) {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = std::task::Context::from_waker(&waker);
        let mut work = std::pin::pin!(work);
        while work.as_mut().poll(&mut context).is_pending() {
            std::thread::park_timeout(std::time::Duration::from_secs(5));
        }
    }
}
