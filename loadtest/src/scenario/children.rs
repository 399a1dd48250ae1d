//! Processes that are started here, with their temporary folders: ended when their owner lets go of them, by return, error or panic,
//! and all at once when the command is told to stop.
//!
//! They are killed: what they wrote is thrown away with the folder. One that is to end by itself is asked to first ([`Process::end`]).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// One that runs.
struct Live {
    number: u64,
    child: Child,
    // Removed when it is dropped, which is after the child's end.
    _home: TempDir,
}

impl Live {
    fn end(mut self) {
        // It may have ended of itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of them.
struct Family {
    last: u64,
    live: Vec<Live>,
    /// Nothing is started any more.
    closed: bool,
}

static FAMILY: Mutex<Family> = Mutex::new(Family { last: 0, live: Vec::new(), closed: false });

fn family() -> MutexGuard<'static, Family> {
    // A panic elsewhere must not keep children from being ended.
    FAMILY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every child there is, removes their folders, and lets none be started any more. For the command's own end.
pub fn end_all() {
    let mut family = family();
    family.closed = true;
    let all = std::mem::take(&mut family.live);
    all.into_iter().for_each(Live::end);
}

/// A child process, ended when dropped.
#[derive(Debug)]
pub struct Process {
    number: u64,
    /// Its process id.
    pub pid: u32,
    /// Its folder.
    pub home: PathBuf,
}

impl Process {
    /// Starts `command`, whose folder is `home` from then on. With `cores` it and its threads run on these only.
    ///
    /// # Errors
    /// In words: the command cannot be started, or a core does not exist.
    pub fn start(mut command: Command, home: TempDir, cores: &[usize]) -> Result<Process, String> {
        let shown = Path::new(command.get_program()).display().to_string();
        let cores = cores.to_vec();
        // A child inherits the cores of the thread that starts it.
        let started = std::thread::spawn(move || {
            if !cores.is_empty() {
                crate::rt::pin_to_cores(&cores)?;
            }
            // Under the lock, so that a child cannot be missed by an end of all.
            let mut family = family();
            if family.closed {
                return Err(std::io::Error::other("the command is being ended"));
            }
            let child = command.spawn()?;
            family.last += 1;
            let number = family.last;
            let process = Process { number, pid: child.id(), home: home.path().to_owned() };
            family.live.push(Live { number, child, _home: home });
            std::io::Result::Ok(process)
        });
        let started = started.join().map_err(|_| format!("{shown}: the thread that starts it panicked"))?;
        started.map_err(|error| format!("{shown}: {error}"))
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        let mut family = family();
        let mine = family.live.iter_mut().find(|one| one.number == self.number)?;
        mine.child.try_wait().ok().flatten()
    }

    /// Asks it to end (SIGTERM) and waits until it has; `None` if it has not after `patience`.
    pub fn end(&self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        // While it is locked nobody else is told of its end, so the id is this one's still.
        if let Some(mine) = family().live.iter_mut().find(|one| one.number == self.number)
            && matches!(mine.child.try_wait(), Ok(None))
        {
            let _ = kill_process(Pid::from_child(&mine.child), Signal::TERM);
        }
        loop {
            match self.ended() {
                Some(status) => return Some(status),
                None if Instant::now() >= until => return None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mine = {
            let mut family = family();
            let place = family.live.iter().position(|one| one.number == self.number);
            place.map(|place| family.live.swap_remove(place))
        };
        if let Some(mine) = mine {
            mine.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_child_and_its_folder_go_with_their_owner() {
        fn check(how: impl FnOnce(Process) + std::panic::UnwindSafe) {
            let mut sleep = Command::new("sleep");
            sleep.arg("600");
            let home = tempfile::tempdir().expect("a folder");
            let folder = home.path().to_owned();
            let process = Process::start(sleep, home, &[]).expect("the system has sleep");
            let status = PathBuf::from(format!("/proc/{}", process.pid));
            assert!(status.exists() && folder.exists() && process.ended().is_none());
            let _panicked = std::panic::catch_unwind(|| how(process));
            assert!(!status.exists() && !folder.exists());
        }
        check(drop);
        check(|process| panic!("with {process:?}"));
        let home = tempfile::tempdir().expect("a folder");
        let wrong = Process::start(Command::new("/no/such/command"), home, &[]).expect_err("no such command");
        assert!(wrong.starts_with("/no/such/command: "), "{wrong}");
    }

    fn start(script: &str) -> Process {
        let home = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(home.path());
        Process::start(command, home, &[]).expect("the system has sh")
    }

    fn until(what: &str, mut is: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn an_end_is_seen_whether_it_was_asked_for_or_not() {
        let long = Duration::from_secs(10);
        let of_its_own = start("exit 3");
        until("it ends", || of_its_own.ended().is_some());
        assert_eq!(of_its_own.end(long).and_then(|status| status.code()), Some(3), "it had ended before");
        assert_eq!(start("exec sleep 600").end(long).and_then(|status| status.signal()), Some(15));
        let deaf = start("trap '' TERM; touch deaf; while true; do sleep 0.01; done");
        until("it hears no signal any more", || deaf.home.join("deaf").exists());
        assert_eq!(deaf.end(Duration::from_millis(50)), None);
    }
}
