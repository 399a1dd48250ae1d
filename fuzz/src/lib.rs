//! Drives fuzz targets as ordinary tests on the stable toolchain.
//!
//! A target is a function that must not panic on any bytes. Its corpus, `corpus/<target>`, is replayed first; then
//! entries of it are edited at random for `FUZZ_SECONDS` (10 without that variable). Which edits follows from `FUZZ_SEED` (0 without
//! it): the tests fail for what was changed, and not for luck, and another seed looks elsewhere. What makes the target panic is
//! shrunk by `proptest`, written to the corpus as `found-<hash>`, and shown: from then on every run replays it.
//!
//! Rejected: `cargo fuzz` and `bolero` with libFuzzer, whose coverage wants a nightly compiler; bolero's own random engine, which
//! makes inputs from nothing, so that none of them is ever nearly a request. A corpus that is nearly right, edited, goes deeper.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Inputs longer than this teach nothing that shorter ones do not.
const LONGEST: usize = 64 * 1024;
/// Inputs between two looks at the clock.
const ROUND: u32 = 64;
/// Edits of one input.
const EDITS: usize = 8;

/// Replays the corpus of `target`, then edits it until the time is over. `dictionary`: what is worth putting in.
///
/// # Panics
/// When `check` does, with the smallest input found that makes it.
pub fn fuzz(target: &str, dictionary: &'static [&'static str], check: impl Fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut corpus = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        corpus.insert(path.clone(), std::fs::read(&path).expect("read"));
    }
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    for (path, input) in &corpus {
        let _replayed = Shown(path);
        check(input);
    }
    let number = |name: &str, otherwise: u64| {
        std::env::var(name)
            .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a whole number")))
    };
    let (seconds, seed) = (number("FUZZ_SECONDS", 10), number("FUZZ_SEED", 0));
    let end = Instant::now() + Duration::from_secs(seconds);
    let inputs = edited(corpus.into_values().collect(), dictionary);
    let mut tried = 0u64;
    while Instant::now() < end {
        let config = Config { cases: ROUND, failure_persistence: None, ..Config::default() };
        let found = TestRunner::new_with_rng(config, random(seed, tried)).run(&inputs, |input| {
            check(&input);
            Ok::<_, TestCaseError>(())
        });
        tried += u64::from(ROUND);
        if let Err(TestError::Fail(reason, input)) = found {
            let mut hash = DefaultHasher::new();
            input.hash(&mut hash);
            let path = folder.join(format!("found-{:016x}", hash.finish()));
            std::fs::write(&path, &input).expect("written");
            panic!("{target}: {reason}\n  {}\nis kept as {}", input.escape_ascii(), path.display());
        }
    }
    println!("{target}: {tried} inputs in {seconds} s");
}

/// The randomness of the round that begins with input number `tried`.
fn random(seed: u64, tried: u64) -> TestRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&tried.to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Says which entry of a corpus it was, when a replay panics.
struct Shown<'a>(&'a std::path::Path);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replaying {}", self.0.display());
        }
    }
}

/// One change; places are fractions of the input's length.
#[derive(Clone, Debug)]
enum Edit {
    Set(u16, u8),
    Flip(u16, u8),
    Insert(u16, &'static str),
    InsertByte(u16, u8),
    Delete(u16, u16),
    Double(u16, u16),
    Cut(u16),
    /// From the place on, another entry of the corpus from a place of its own.
    Splice(u16, usize, u16),
}

fn edited(corpus: Vec<Vec<u8>>, dictionary: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let entries = corpus.len();
    let words = if dictionary.is_empty() { &["0"] } else { dictionary };
    let edit = prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (any::<u16>(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<u16>(), proptest::sample::select(words)).prop_map(|(at, word)| Edit::Insert(at, word)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Edit::InsertByte(at, byte)),
        (any::<u16>(), 1u16..40).prop_map(|(at, length)| Edit::Delete(at, length)),
        (any::<u16>(), 1u16..200).prop_map(|(at, length)| Edit::Double(at, length)),
        any::<u16>().prop_map(Edit::Cut),
        (any::<u16>(), 0..entries, any::<u16>()).prop_map(|(at, entry, from)| Edit::Splice(at, entry, from)),
    ];
    (0..entries, vec(edit, 1..EDITS)).prop_map(move |(entry, edits)| {
        let mut input = corpus[entry].clone();
        for edit in &edits {
            apply(&mut input, edit, &corpus);
        }
        input.truncate(LONGEST);
        input
    })
}

fn apply(input: &mut Vec<u8>, edit: &Edit, corpus: &[Vec<u8>]) {
    let place = |fraction: &u16, length: usize| usize::from(*fraction) * length / (usize::from(u16::MAX) + 1);
    let length = input.len();
    let span = |at: &u16, wanted: &u16| {
        let from = place(at, length);
        from..(from + usize::from(*wanted)).min(length)
    };
    match edit {
        Edit::Set(at, byte) if length > 0 => input[place(at, length)] = *byte,
        Edit::Flip(at, bit) if length > 0 => input[place(at, length)] ^= 1 << bit,
        Edit::Set(..) | Edit::Flip(..) => {}
        Edit::Insert(at, word) => {
            let at = place(at, length + 1);
            input.splice(at..at, word.bytes());
        }
        Edit::InsertByte(at, byte) => input.insert(place(at, length + 1), *byte),
        Edit::Delete(at, wanted) => drop(input.drain(span(at, wanted))),
        Edit::Double(at, wanted) => {
            let span = span(at, wanted);
            let copy = input[span.clone()].to_vec();
            input.splice(span.end..span.end, copy);
        }
        Edit::Cut(at) => input.truncate(place(at, length + 1)),
        Edit::Splice(at, entry, from) => {
            input.truncate(place(at, length + 1));
            let other = &corpus[*entry];
            input.extend_from_slice(&other[place(from, other.len() + 1)..]);
        }
    }
}

/// Ways in which `input` may arrive: whole, byte by byte, and in two pieces at places that the input itself decides (all
/// places of a short one).
pub fn arrivals(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![input], input.chunks(1).collect(), input.chunks(7).collect()];
    let mut hash = DefaultHasher::new();
    input.hash(&mut hash);
    let places: Vec<usize> = match input.len() {
        length @ 0..=48 => (0..=length).collect(),
        length => (0..6).map(|turn| (hash.finish().rotate_left(turn * 11) as usize) % length).collect(),
    };
    ways.extend(places.into_iter().map(|place| vec![&input[..place], &input[place..]]));
    ways
}
