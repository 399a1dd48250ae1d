//! The journal under every fault that a disk has: nothing is told to be written that is not, and what was told is there.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use engine::{Marks, Units};
use rusqlite::Connection;

use super::*;
use crate::store::{self, FILE};

fn mark(limit_id: &str, observed: u128) -> CounterMark {
    CounterMark {
        high_water: Units(observed + 5),
        uncertain: Units(observed / 2),
        ..store::tests::mark(limit_id, None, 2026, observed)
    }
}

/// A running writer, and what it has told.
struct House {
    folder: tempfile::TempDir,
    reports: Option<Sender<Report>>,
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<JournalNews>>>,
    thread: Option<std::thread::JoinHandle<Result<(), StartError>>>,
}

impl House {
    /// `prepare` is done to the writer's own database before it starts.
    fn start(prepare: impl FnOnce(&Store)) -> House {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path()).expect("opened");
        prepare(&store);
        let (reports, receiver) = channel();
        let (stop, told) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (stopping, telling) = (stop.clone(), told.clone());
        let thread = std::thread::spawn(move || {
            let tell = move |news: &JournalNews| telling.lock().expect("a lock").push(news.clone());
            run(store, &receiver, &stopping, &Board::default(), &Health::default(), &tell)
        });
        House { folder, reports: Some(reports), stop, told, thread: Some(thread) }
    }

    fn send(&self, number: u64, marks: Vec<CounterMark>) {
        let batch = Report::Marks(CoreId(0), Marks { number: MarkNumber(number), marks });
        self.reports.as_ref().expect("a sender").send(batch).expect("sent");
    }

    fn wait_for(&self, wanted: &JournalNews) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.told.lock().expect("a lock").contains(wanted) {
            assert!(Instant::now() < until, "{wanted:?} is not told: {:?}", self.told);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn told(&self, wanted: &JournalNews) -> bool {
        self.told.lock().expect("a lock").contains(wanted)
    }

    fn stop(&mut self) -> Result<(), StartError> {
        drop(self.reports.take());
        self.thread.take().expect("running").join().expect("no panic")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn written(number: u64) -> JournalNews {
    JournalNews::Written(vec![(CoreId(0), MarkNumber(number))])
}

fn counters(folder: &Path) -> Vec<CounterMark> {
    Store::open(folder).and_then(|store| store.counters()).expect("read")
}

#[test]
fn what_is_told_to_be_written_is_there_for_others() {
    let mut house = House::start(|_| ());
    for number in 1..=50u64 {
        house.send(number, vec![mark("a", number.into()), mark("b", 7)]);
        house.wait_for(&written(number));
        assert_eq!(counters(house.folder.path()), [mark("a", number.into()), mark("b", 7)]);
    }
    house.stop().expect("stopped");
}

#[test]
fn a_locked_database_is_waited_for() {
    let mut house = House::start(|_| ());
    let other = Connection::open(house.folder.path().join(FILE)).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    house.send(1, vec![mark("a", 1)]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!house.told(&written(1)), "told while the database is locked");
    other.execute_batch("COMMIT").expect("unlocked");
    house.wait_for(&written(1));
    house.stop().expect("stopped");
}

/// A disk that is full, for SQLite: the file may not grow.
#[test]
fn a_full_disk_is_told_and_nothing_is_lost_when_there_is_room_again() {
    let mut house = House::start(|store| {
        store.limit_pages(1).expect("limited");
    });
    let many = |observed| (0..500).map(|number| mark(&format!("l{number:03}"), observed)).collect::<Vec<_>>();
    house.send(1, many(1));
    house.wait_for(&JournalNews::Failing);
    assert!(!house.told(&written(1)));
    house.send(2, many(2));
    assert!(counters(house.folder.path()).is_empty(), "half a batch is written");
    let error = house.stop().expect_err("the last marks are lost").to_string();
    assert!(error.contains("500 counters"), "{error}");
}

/// A kill between any two writes to the log, and in the middle of one: the log is cut at every length, and a byte of each
/// frame is turned over. What comes up is what some commit left, the last whole one before the damage, and never less.
#[test]
fn a_torn_log_gives_the_last_whole_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("opened");
    store.never_checkpoint().expect("set up");
    store.checkpoint().expect("checkpointed");
    let log = folder.path().join(format!("{FILE}-wal"));
    let length = || std::fs::metadata(&log).map_or(0, |log| log.len() as usize);
    // By the length of the log: what was committed by then.
    let mut commits = vec![(0, 0u128)];
    for observed in 1..=12 {
        store.write_counters(&[mark("a", observed), mark("b", observed)]).expect("written");
        commits.push((length(), observed));
    }
    let whole = std::fs::read(&log).expect("a log");
    let database = std::fs::read(folder.path().join(FILE)).expect("a database");
    let comes_up = |log: &[u8]| {
        let copy = tempfile::tempdir().expect("a folder");
        std::fs::write(copy.path().join(FILE), &database).expect("copied");
        std::fs::write(copy.path().join(format!("{FILE}-wal")), log).expect("copied");
        let counters = counters(copy.path());
        match counters.as_slice() {
            [] => 0,
            [a, b] if a.observed == b.observed && *a == mark("a", a.observed.0) => a.observed.0,
            other => panic!("half a commit: {other:?}"),
        }
    };
    let committed = |bytes: usize| commits.iter().rev().find(|(end, _)| *end <= bytes).expect("the first").1;
    assert_eq!(comes_up(&whole), 12);
    for bytes in (0..whole.len()).step_by(509) {
        assert_eq!(comes_up(&whole[..bytes]), committed(bytes), "cut at {bytes}");
    }
    for (end, observed) in &commits[1..] {
        assert_eq!(comes_up(&whole[..*end]), *observed, "cut at a commit");
        let mut damaged = whole.clone();
        damaged[end - 100] ^= 1;
        assert_eq!(comes_up(&damaged), observed - 1, "a byte turned over before {end}");
    }
}

#[test]
fn a_sync_moves_the_log_into_the_database_beside_a_writer() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("opened");
    store.never_checkpoint().expect("set up");
    let (syncing, health) = (Store::open(folder.path()).expect("opened"), Arc::new(Health::default()));
    let (stop, stopped) = channel();
    let thread = std::thread::spawn({
        let health = health.clone();
        move || sync(&syncing, &stopped, &health, &|news| panic!("{news:?}"))
    });
    store.write_counters(&[mark("a", 3)]).expect("written");
    health.unsynced.store(true, Ordering::Release);
    let until = Instant::now() + Duration::from_secs(30);
    let moved = || {
        let copy = tempfile::tempdir().expect("a folder");
        std::fs::copy(folder.path().join(FILE), copy.path().join(FILE)).expect("copied");
        counters(copy.path()) == [mark("a", 3)]
    };
    while !moved() {
        assert!(Instant::now() < until, "the database alone does not have what was written");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(stop);
    thread.join().expect("no panic");
}

/// A disk that takes writes and refuses to sync, for SQLite: the syncing connection may not write.
#[test]
fn a_failed_sync_is_told_until_one_succeeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("opened");
    store.never_checkpoint().expect("set up");
    store.write_counters(&[mark("a", 3)]).expect("written");
    let health = Health::default();
    let told = Mutex::new(Vec::new());
    let tell = |news: &JournalNews| told.lock().expect("a lock").push(news.clone());
    let read_only = Store::open_existing(folder.path()).expect("opened").expect("there");
    health.unsynced.store(true, Ordering::Release);
    sync_once(&read_only, &health, &tell);
    assert_eq!(*told.lock().expect("a lock"), [JournalNews::Failing]);
    assert!(health.sync_failed.load(Ordering::Acquire), "what is written meanwhile is told as failing too");
    sync_once(&store, &health, &tell);
    let recovered = [JournalNews::Failing, JournalNews::Written(Vec::new())];
    assert_eq!(*told.lock().expect("a lock"), recovered);
    sync_once(&read_only, &health, &tell);
    assert_eq!(*told.lock().expect("a lock"), recovered, "nothing was written, so nothing is synced");
}
