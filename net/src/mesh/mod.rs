//! How cores talk: a bounded ring for each ordered pair of them, and a wake for a sleeper only.
//!
//! A parcel is pushed to the ring of (sender, receiver). A full ring is back-pressure, never a drop: the sender
//! keeps the rest in an outbox of its own, which holds at most one parcel for each exchange under way. The
//! receiver is woken only when it has said that it sleeps: waking a sleeping core costs the sender more than a
//! whole request.
//!
//! **Order.** What happened first is seen first: if core A settles a reservation, and because of that a client
//! sends its next request to core B, which asks the owner, then the owner applies the settlement before it
//! judges the ask, although the two came through different rings. [`Post::collect`] therefore looks through all
//! rings once more after it has taken the asks and before it hands them out.
//!
//! Rejected: one queue for all senders (they would contend on its tail), `MSG_RING` (not reachable through the
//! runtime), an unbounded channel.

mod post;
mod sleep;
mod sync;

pub use post::{Mesh, Parcel, Post, Ticket};
