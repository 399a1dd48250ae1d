//! What lies in the database: rows that a program of another time, or nobody at all, has written.

use std::cell::RefCell;

use control::store::Store;
use engine::{CoreId, CounterMark, Now, Shard, Units, WindowIndex};
use fuzz::fuzz;
use rusqlite::{Connection, params};

/// The lines of an input, as the columns of one counter.
struct Columns<'a>(Vec<&'a str>);

impl<'a> Columns<'a> {
    fn of(input: &'a [u8]) -> Option<Columns<'a>> {
        Some(Columns(std::str::from_utf8(input).ok()?.split('\n').collect()))
    }

    fn text(&self, at: usize) -> &'a str {
        self.0.get(at).copied().unwrap_or("")
    }

    fn integer(&self, at: usize) -> i64 {
        self.text(at).parse().unwrap_or(0)
    }
}

fn now() -> Now {
    Now { monotonic: engine::Monotonic(1_000_000_000), wall: "2026-08-01T10:00:00Z".parse().expect("a time") }
}

/// Rows are read or refused with a reason; what is read is taken up or left out; and what was taken up is written and read
/// back as it was.
#[test]
fn counter_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = RefCell::new(Store::open(folder.path()).expect("made"));
    let raw = Connection::open(folder.path().join("governance.db")).expect("opened");
    raw.pragma_update(None, "synchronous", "OFF").expect("set");
    let words = &[
        "\n",
        "[null,null,null]",
        "[\"m\",null,\"/v1/x\"]",
        "day",
        "month",
        "week",
        "hour",
        "year",
        "calendar_tokens",
        "calendar_usd",
        "1m0s",
        "sliding_window",
        "token_bucket",
        "340282366920938463463374607431768211455",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "org:acme",
        "__global",
        "[",
        "null",
        "1e5",
        "\0",
    ];
    fuzz("counter_rows", words, |input| {
        let Some(columns) = Columns::of(input) else { return };
        raw.execute("DELETE FROM counters", []).expect("emptied");
        raw.execute(
            "INSERT INTO counters (limit_id, node, dims, period, algorithm, window_index, observed, estimated, unpriced,
                 high_water, uncertain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                columns.text(0),
                columns.text(1),
                columns.text(2),
                columns.text(3),
                columns.text(4),
                columns.integer(5),
                columns.text(6),
                columns.integer(7),
                columns.integer(8),
                columns.text(9),
                columns.text(10),
            ],
        )
        .expect("any text is a row");
        let read = store.borrow().counters();
        let Ok(marks) = read else { return };
        let mut shard = Shard::new(CoreId(0), 1);
        for mark in &marks {
            // Twice: a row may be told of twice, and a counter never sinks by it.
            let taken = shard.restore(now(), mark.clone());
            assert_eq!(shard.restore(now(), mark.clone()), taken);
        }
        shard.invariants();
        assert!(shard.counters() <= marks.len());
        store.borrow_mut().write_counters(&marks).expect("written");
        // A row whose dims are spelt in another way than this program's stays beside the one that is written.
        let again = store.borrow().counters().expect("read");
        assert!(marks.iter().all(|mark| again.contains(mark)), "{marks:?} became {again:?}");
    });
}

/// A mark of any content is taken up or not, whatever came before it for the same counter, and never panics.
#[test]
fn restored_marks() {
    let words = &[
        "\n",
        "day",
        "month",
        "calendar_tokens",
        "calendar_usd",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
    ];
    fuzz("restored_marks", words, |input| {
        let Some(columns) = Columns::of(input) else { return };
        let mut shard = Shard::new(CoreId(0), 1);
        for at in 0..4 {
            let figure = |place: usize| Units(columns.text(5 * at + place).parse().unwrap_or(0));
            let mark = CounterMark {
                limit_id: "l".to_owned(),
                node: columns.text(0).to_owned(),
                model: None,
                provider: None,
                endpoint: None,
                period: columns.text(1).to_owned(),
                algorithm: columns.text(2).to_owned(),
                window: WindowIndex(columns.integer(5 * at + 3)),
                observed: figure(4),
                high_water: figure(5),
                uncertain: figure(6),
                estimated: at % 2 == 0,
                unpriced: at % 3 == 0,
            };
            shard.restore(now(), mark);
            shard.invariants();
        }
        assert!(shard.counters() <= 1);
        _ = shard.take_marks(now().monotonic, 4);
        shard.expire(now());
        shard.invariants();
    });
}
