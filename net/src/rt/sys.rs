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

/// Receives what has come into `room`, without waiting.
///
/// # Errors
/// `WouldBlock` when nothing has; else what the kernel reports.
pub fn receive_now(descriptor: RawFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length are those of one exclusive slice, which the kernel writes within the call.
    let count = unsafe { libc::recv(descriptor, room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Ends the receiving half of a connection: a read that waits on it returns what has arrived, then the end.
pub fn shutdown_read(descriptor: RawFd) {
    // SAFETY: no memory is passed; a stale descriptor only makes the call fail, which is of no consequence.
    unsafe {
        libc::shutdown(descriptor, libc::SHUT_RD);
    }
}

/// Whether the connection is reset when its descriptor is closed, by whom and why ever, with what is not sent yet thrown away;
/// else the peer sees an end. A failure leaves it as it was.
pub fn reset_at_close(descriptor: RawFd, reset: bool) {
    let linger = libc::linger { l_onoff: reset.into(), l_linger: 0 };
    let length = std::mem::size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the pointer is to a value of the stated size and type that lives for the whole call.
    unsafe {
        libc::setsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            length,
        );
    }
}

/// How long this machine has been suspended since it booted, in nanoseconds: what the monotonic clock leaves out.
pub fn nanoseconds_asleep() -> i64 {
    read_clock(libc::CLOCK_BOOTTIME) - read_clock(libc::CLOCK_MONOTONIC)
}

/// The monotonic clock, in nanoseconds since some fixed moment. What `Instant` reads, without the arithmetic on seconds and
/// nanoseconds that its differences take.
pub fn monotonic_nanoseconds() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC) as u64
}

fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is one valid timespec for the whole call. A clock that is not there leaves it at zero.
    unsafe {
        libc::clock_gettime(clock, &mut time);
    }
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Asks the kernel to run the calling thread as soon as it wakes, in front of threads that may run longer at a time: it
/// gets its processor time in slices of `slice` nanoseconds (0.1 to 100 ms). Its share stays what it is. Kernels before
/// 6.12 have one slice for all and ignore it.
///
/// # Errors
/// The thread has a real-time policy, or a sandbox forbids the call.
pub fn run_in_slices(slice: u64) -> io::Result<()> {
    let mut attributes = scheduling()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    attributes.sched_runtime = slice;
    // SAFETY: the pointer is to a record that states its size; the kernel only reads it. Thread 0 is the calling one.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets whoever waits for the calling thread's processor have it; nobody waits: goes on at once.
pub fn give_way() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::sched_yield();
    }
}

/// How often the calling thread has had to leave its processor to another one while it could have gone on.
pub fn times_displaced() -> i64 {
    // SAFETY: a plain record of integers, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is one valid record for the whole call. A failure leaves it at zero.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
    }
    usage.ru_nivcsw
}

/// How the calling thread is scheduled.
fn scheduling() -> io::Result<libc::sched_attr> {
    // SAFETY: a plain record of integers, for which all zeros is a valid value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::sched_attr>() as u32;
    // SAFETY: the pointer is to a record of the stated size that lives for the whole call. Thread 0 is the calling one.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows slices answers with the one that was asked for; an older one answers as before.
    #[test]
    fn a_thread_that_runs_in_slices_keeps_its_share() {
        let before = scheduling().expect("a thread may ask about itself");
        if run_in_slices(100_000).is_err() {
            return;
        }
        let after = scheduling().expect("it still may");
        assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        assert!([before.sched_runtime, 100_000].contains(&after.sched_runtime), "{}", after.sched_runtime);
    }
}
