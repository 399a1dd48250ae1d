//! The system calls that neither the runtime nor the standard library offers: the crate's only `unsafe` code.
//!
//! Every function takes a plain descriptor number that its caller keeps open for the length of the call, and
//! none of them blocks.

use std::io;
use std::os::fd::RawFd;

/// Whether the peer has closed or half-closed its side, or reset the connection, no matter how many bytes are
/// still unread in front of that.
pub fn peer_closed(descriptor: RawFd) -> bool {
    let wanted = libc::POLLRDHUP;
    let mut entry = libc::pollfd { fd: descriptor, events: wanted, revents: 0 };
    // SAFETY: `entry` is one valid pollfd for the whole call, and a time-out of 0 returns at once.
    let ready = unsafe { libc::poll(&mut entry, 1, 0) };
    ready > 0 && entry.revents & (wanted | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}

/// Whether anything can be read now: bytes, an end of stream, or an error. An idle pooled connection for which
/// this is true is unusable: its backend has closed it, or has sent bytes that nobody asked for.
pub fn readable_now(descriptor: RawFd) -> bool {
    let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
    // SAFETY: as in `peer_closed`.
    let ready = unsafe { libc::poll(&mut entry, 1, 0) };
    ready > 0
}

/// Ends the receiving half of a connection: a read that waits on it returns what has arrived, then the end.
pub fn shutdown_read(descriptor: RawFd) {
    // SAFETY: no memory is passed; a stale descriptor only makes the call fail, which is of no consequence.
    unsafe {
        libc::shutdown(descriptor, libc::SHUT_RD);
    }
}

/// How long this machine has been suspended since it booted, in nanoseconds: what the monotonic clock leaves out.
pub fn nanoseconds_asleep() -> i64 {
    read_clock(libc::CLOCK_BOOTTIME) - read_clock(libc::CLOCK_MONOTONIC)
}

fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is one valid timespec for the whole call. A clock that is not there leaves it at zero.
    unsafe {
        libc::clock_gettime(clock, &mut time);
    }
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The processors this process may run on, in ascending order.
///
/// # Errors
/// What the kernel says when it refuses to tell.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: `cpu_set_t` is a plain array of integers, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a set of the stated size that lives for the whole call.
    let answer = unsafe { libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &mut set) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let every = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: `cpu` is below CPU_SETSIZE, so inside the set.
    Ok(every.filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}
