//! Questions about usage against a naive oracle, and how questions are read.

use engine::{Glob, Kid, PicoUsd, ProviderId, Tokens, UsageKey, Zone};
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn zone(name: &str) -> Zone {
    Zone { name: name.into(), zone: TimeZone::get(name).expect("a zone") }
}

fn utc() -> Zone {
    zone("UTC")
}

fn read(asked: &Asked) -> Result<Query, String> {
    Query::read(asked, &utc()).map_err(|wrong| wrong.to_string())
}

const NODES: [&str; 6] =
    ["__global", "org:a", "org:a/team:x", "org:a/team:x/user:u", "org:ab", "org:ab/team:x"];
const KIDS: [&str; 3] = ["", "vk_AAAAAAAAAAAA", "vk_BBBBBBBBBBBB"];
const MODELS: [&str; 3] = ["gpt-4o", "gpt-4o-mini", "claude"];

/// What one stored row is of, as indices into the tables above.
type Choice = (i64, usize, usize, usize, bool);

fn row((hour, node, kid, model, other): Choice, figures: (u64, u64, u128)) -> (UsageKey, UsageSum) {
    let key = UsageKey {
        // Around a change of summer time in Berlin, on both sides of midnight there and in Kolkata.
        hour: (1_743_274_800 / 3600 + hour) * 3600,
        kid: Kid::parse(KIDS[kid]),
        node: NodeId::new(NODES[node]),
        model: MODELS[model].into(),
        served: MODELS[if other { 0 } else { model }].into(),
        provider: ProviderId::new(if other { "p2" } else { "p1" }),
        endpoint: "/v1/chat/completions",
    };
    let (requests, tokens, cost) = figures;
    let sum = UsageSum {
        requests,
        estimated: requests / 2,
        unpriced: requests / 3,
        input: Tokens(tokens),
        cached_input: Tokens(tokens / 4),
        output: Tokens(tokens / 3),
        reasoning: Tokens(tokens / 5),
        images: requests / 2,
        cost: PicoUsd(cost),
        ..UsageSum::default()
    };
    (key, sum)
}

/// What the module says, done row by row with no thought of memory.
fn oracle(rows: &[(UsageKey, UsageSum)], asked: &Asked) -> (Vec<(Group, UsageSum)>, UsageSum) {
    let zone = TimeZone::get(asked.timezone.as_deref().unwrap_or("UTC")).expect("a zone");
    let below = |above: &str, node: &str| {
        above == "__global" || node == above || node.starts_with(&format!("{above}/"))
    };
    let shown = |node: &str| asked.node.as_deref().is_none_or(|above| below(above, node));
    let mut groups: Vec<(Group, UsageSum)> = Vec::new();
    let mut totals = UsageSum::default();
    for (key, sum) in rows {
        let kid = key.kid.as_ref().map_or("", |kid| kid.as_str());
        let model = asked.model.as_deref().map(|pattern| Glob::new(pattern).expect("a pattern"));
        if !shown(key.node.as_str())
            || asked.key.as_deref().is_some_and(|asked| asked != kid)
            || model.is_some_and(|model| !model.matches(&key.model))
        {
            continue;
        }
        totals.add(sum);
        let by: Vec<&str> = asked.by.as_deref().expect("columns").split(',').collect();
        let mut nodes = vec![key.node.as_str()];
        if asked.subtree && by.contains(&"node") {
            nodes =
                NODES.into_iter().filter(|above| below(above, key.node.as_str()) && shown(above)).collect();
        }
        for node in nodes {
            let at = Timestamp::from_second(key.hour).expect("a time");
            let value = |column: &&str| match *column {
                "node" => node.to_owned(),
                "key" => kid.to_owned(),
                "model" => key.model.to_string(),
                "served" => key.served.to_string(),
                "provider" => key.provider.as_str().to_owned(),
                "endpoint" => key.endpoint.to_owned(),
                "hour" => at.to_string(),
                "day" => at.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d").to_string(),
                other => panic!("{other}"),
            };
            let group: Group = by.iter().map(value).collect();
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, known)) => known.add(sum),
                None => groups.push((group, *sum)),
            }
        }
    }
    groups.sort_by(|one, other| one.0.cmp(&other.0));
    (groups, totals)
}

/// All pages, one behind the other.
fn pages(store: &Store, asked: &Asked) -> (Vec<(Group, UsageSum)>, UsageSum) {
    let mut asked = asked.clone();
    let mut rows = Vec::new();
    loop {
        let query = read(&asked).expect("a question");
        let page = spent(store, &query).expect("read");
        assert!(page.rows.len() <= query.limit);
        assert!(page.next.is_none() || page.rows.len() == query.limit, "a page that is not the last is full");
        rows.extend(page.rows);
        match page.next {
            Some(next) => asked.cursor = Some(next),
            None => return (rows, page.totals),
        }
    }
}

fn columns() -> impl Strategy<Value = String> {
    let names: Vec<_> = Column::ALL.into_iter().map(Column::name).collect();
    proptest::sample::subsequence(names, 1..=5).prop_shuffle().prop_map(|names| names.join(","))
}

fn asked() -> impl Strategy<Value = Asked> {
    let some = |values: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(values).prop_map(str::to_owned))
    };
    let zones = some(&["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland"]);
    let patterns = some(&["gpt-*", "claude", "*-mini", "nothing"]);
    (columns(), some(&NODES), some(&KIDS[1..]), patterns, zones, any::<bool>(), 1usize..8).prop_map(
        |(by, node, key, model, timezone, subtree, limit)| Asked {
            by: Some(by),
            node,
            key,
            model,
            timezone,
            subtree,
            limit: Some(limit),
            ..Asked::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_grouping_agrees_with_the_oracle(
        rows in proptest::collection::vec(
            ((0i64..60, 0..NODES.len(), 0..KIDS.len(), 0..MODELS.len(), any::<bool>()),
             (0u64..9, 0u64..1000, prop_oneof![0u128..50, Just(999_999_999_999), Just(7_000_000_000_000_000_003)])),
            0..60,
        ),
        questions in proptest::collection::vec(asked(), 1..6),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(folder.path()).expect("a database");
        let rows: Vec<_> = rows.into_iter().map(|(choice, figures)| row(choice, figures)).collect();
        // One by one, so that rows of one identity meet in the database.
        for (key, sum) in &rows {
            store.add_usage([(key, sum)]).expect("written");
        }
        for asked in &questions {
            prop_assert_eq!(pages(&store, asked), oracle(&rows, asked), "{:?}", asked);
        }
    }
}

#[test]
fn money_is_exact_beyond_sixty_three_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a database");
    let most = 9_000_000_000_000_000_000_999_999_999_999;
    for model in 0..3 {
        let (key, sum) = row((0, 1, 1, model, false), (1, 1, most));
        store.add_usage([(&key, &sum)]).expect("written");
    }
    let query = read(&Asked { by: Some("node".to_owned()), ..Asked::default() }).expect("a question");
    let seen = spent(&store, &query).expect("read");
    assert_eq!(seen.totals.cost, PicoUsd(3 * most));
    let shown = serde_json::to_string(&seen.body(&query)).expect("JSON");
    assert!(shown.contains("\"usd\":27000000000000000002.999999999997"), "{shown}");
}

#[test]
fn a_document_names_what_it_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a database");
    for kid in 0..2 {
        let (key, sum) = row((0, 2, kid, 0, true), (6, 100, 12_600_000));
        store.add_usage([(&key, &sum)]).expect("written");
    }
    let query = read(&Asked { by: Some("kid,served,hour".to_owned()), limit: Some(1), ..Asked::default() })
        .expect("a question");
    let document = serde_json::to_value(spent(&store, &query).expect("read").body(&query)).expect("JSON");
    let row = &document["usage"][0];
    let names: Vec<_> = row.as_object().expect("a row").keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "kid",
            "served",
            "hour",
            "requests",
            "estimated_requests",
            "unpriced_requests",
            "input_tokens",
            "cached_input_tokens",
            "cache_write_tokens",
            "audio_input_tokens",
            "image_input_tokens",
            "output_tokens",
            "reasoning_tokens",
            "audio_output_tokens",
            "image_output_tokens",
            "images",
            "total_tokens",
            "usd"
        ]
    );
    assert_eq!((&row["kid"], &row["hour"]), (&Value::Null, &json!("2025-03-29T19:00:00Z")));
    assert_eq!(row["usd"].to_string(), "0.0000126");
    assert_eq!((&row["total_tokens"], &document["totals"]["total_tokens"]), (&json!(133), &json!(266)));
    assert!(document["next_cursor"].is_string());
}

#[test]
fn no_database_is_no_usage() {
    let query = read(&Asked::default()).expect("a question");
    let seen = spent_in(None, &query).expect("nothing");
    assert_eq!((seen.rows.len(), seen.totals, seen.next), (0, UsageSum::default(), None));
}

#[test]
fn who_is_bound_to_a_node_sees_it_and_below() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::open(folder.path()).expect("a database");
    let nodes = ["__global", "org:a", "org:a/team:x", "org:a/../org:ab", "org:ab", "org:A", "org:A/team:x"];
    for node in nodes {
        let (mut key, sum) = row((0, 0, 0, 0, false), (1, 1, 1));
        key.node = NodeId::new(node);
        store.add_usage([(&key, &sum)]).expect("written");
    }
    let table = [
        (None, None, &nodes[..]),
        (Some("org:a"), None, &["org:a", "org:a/team:x"][..]),
        (Some("org:a"), Some("org:a/team:x"), &["org:a/team:x"]),
        (Some("org:a"), Some("__global"), &["org:a", "org:a/team:x"]),
        (Some("org:a"), Some("org:ab"), &[]),
        (Some("org:A"), None, &[]),
        (Some("__global"), None, &[]),
    ];
    for (bound, asked, wanted) in table {
        for subtree in [false, true] {
            let question = Asked {
                by: Some("node".to_owned()),
                node: asked.map(str::to_owned),
                subtree,
                ..Asked::default()
            };
            let query = read(&question).expect("a question").seen_by(bound.map(NodeId::new).as_ref());
            let seen = spent(&store, &query).expect("read");
            let mut found: Vec<_> = seen.rows.iter().map(|(group, _)| group[0].as_str()).collect();
            found.retain(|node| nodes.contains(node));
            let mut wanted = wanted.to_vec();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{bound:?} {asked:?} {subtree}");
            assert_eq!(seen.totals.requests, wanted.len() as u64, "{bound:?} {asked:?} {subtree}");
        }
    }
}

#[test]
fn times_are_whole_hours_of_the_zone() {
    let table = [
        // zone, from, to, the first hour that counts, the first one that does not
        ("UTC", "2026-08-01", "2026-08-01", "2026-08-01T00:00:00Z", "2026-08-02T00:00:00Z"),
        ("Europe/Berlin", "2026-08-01", "2026-08-02", "2026-07-31T22:00:00Z", "2026-08-02T22:00:00Z"),
        // A day of 23 hours.
        ("Europe/Berlin", "2025-03-30", "2025-03-30", "2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z"),
        // Midnight is at half past six: the hour that began before it is of the day before.
        ("Asia/Kolkata", "2026-08-01", "2026-08-01", "2026-07-31T19:00:00Z", "2026-08-01T19:00:00Z"),
        (
            "UTC",
            "2026-08-01T10:30:00Z",
            "2026-08-01T10:30:01Z",
            "2026-08-01T10:00:00Z",
            "2026-08-01T11:00:00Z",
        ),
        (
            "UTC",
            "2026-08-01T12:00:00+02:00",
            "2026-08-01T11:00:00Z",
            "2026-08-01T10:00:00Z",
            "2026-08-01T11:00:00Z",
        ),
        (
            "UTC",
            "2026-08-01T10:00:00Z",
            "2026-08-01T11:00:00.5Z",
            "2026-08-01T10:00:00Z",
            "2026-08-01T12:00:00Z",
        ),
    ];
    for (zone, from, to, first, after) in table {
        let asked = Asked {
            from: Some(from.to_owned()),
            to: Some(to.to_owned()),
            timezone: Some(zone.to_owned()),
            ..Asked::default()
        };
        let hours = read(&asked).expect("a question").hours;
        let text = |second| Timestamp::from_second(second).expect("a time").to_string();
        assert_eq!(
            (text(hours.start), text(hours.end)),
            (first.to_owned(), after.to_owned()),
            "{zone} {from} {to}"
        );
    }
}

#[test]
fn a_wrong_question_says_which_part_is_wrong() {
    type Change = fn(&mut Asked, String);
    let by: Change = |asked, text| asked.by = Some(text);
    let model: Change = |asked, text| asked.model = Some(text);
    let from: Change = |asked, text| asked.from = Some(text);
    let to: Change = |asked, text| asked.to = Some(text);
    let timezone: Change = |asked, text| asked.timezone = Some(text);
    let limit: Change = |asked, text| asked.limit = text.parse().ok();
    let cursor: Change = |asked, text| asked.cursor = Some(text);
    let table = [
        (by, "", "by: \"\" is none of node, key, model,"),
        (by, "node,colour", "by: \"colour\" is none of"),
        (by, "key,kid", "by: key is named twice"),
        (model, "[", "model: \"[\": "),
        (from, "yesterday", "from: \"yesterday\" is neither a date"),
        (from, "2026-02-30", "from: \"2026-02-30\" is neither"),
        (from, "2026-08-01T10:00:00", "from: \"2026-08-01T10:00:00\" is neither"),
        (to, "1969-12-31", "to: it is not after `from`"),
        (timezone, "Mars/Olympus", "timezone: "),
        (limit, "0", "limit: 0 is not between 1 and 10000"),
        (limit, "10001", "limit: 10001 is not between"),
        (cursor, "zz", "cursor: "),
        (cursor, "5b5", "cursor: "),
        (cursor, "5b5d", "cursor: "),
        (cursor, "\u{e4}", "cursor: "),
    ];
    for (change, text, wanted) in table {
        let mut asked = Asked { from: Some("1970-01-01".to_owned()), ..Asked::default() };
        change(&mut asked, text.to_owned());
        let got = read(&asked).map(|_| ()).expect_err(text);
        assert!(got.starts_with(wanted), "{text}: {got}");
    }
    let other = read(&Asked::default()).expect("a question").cursor(&["a", "b", "c"].map(String::from));
    let asked = Asked { by: Some("node,model,hour".to_owned()), cursor: Some(other), ..Asked::default() };
    assert_eq!(read(&asked).map(|_| ()), Err("cursor: it is not one that this question gave out".to_owned()));
}
