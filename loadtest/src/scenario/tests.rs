//! Scenario files: what is read, and what is refused with its place.

use std::time::Duration;

use super::*;
use crate::run::Draw;

/// The least that a scenario has.
const LEAST: &str = "about = \"x\"\n[load]\npattern = \"closed\"\n";

#[test]
fn every_built_in_scenario_is_sound() {
    for (name, _) in BUILT_IN {
        let scenario = Scenario::find(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, name);
        assert!(scenario.governance.enabled && !scenario.governance.limits.is_empty(), "{name}");
        assert_eq!(scenario.ramp.is_some(), name == "ramp");
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let files = std::fs::read_dir(folder).expect("the folder of scenarios").count();
    assert_eq!(files, BUILT_IN.len(), "each file in scenarios/ is built in");
}

#[test]
fn a_scenario_says_what_it_is_made_for() {
    let of = |name: &str| Scenario::find(name).expect(name);
    assert_eq!(of("deep_chain").governance.limits.len(), 16);
    let zipf = of("zipf");
    assert_eq!((zipf.keys.count, zipf.draw()), (10_000, Draw::Zipf { exponent: 1.0 }));
    assert_eq!(of("churn").load.requests_per_connection.map(u64::from), Some(1));
    assert_eq!(of("slow_upstream").backend_fails_with(), Some(500));
    assert_eq!(of("steady").backend_fails_with(), None);
    let body = String::from_utf8(of("stream").body).expect("text");
    assert!(body.contains("\"stream\":true") && body.contains("\"include_usage\":true"), "{body}");
    assert_eq!(of("ramp").ramp.expect("a ramp").goals_ms, [0.5, 1.0, 5.0, 10.0]);
}

#[test]
fn what_is_left_out_has_a_default() {
    let scenario = Scenario::read("x", "x.toml", LEAST).expect("a scenario");
    assert_eq!((scenario.load.connections, scenario.keys.count), (32, 1));
    assert_eq!(scenario.load.duration, Duration::from_secs(10));
    assert_eq!(scenario.model, "gpt-4o-mini");
    let body = String::from_utf8(scenario.body).expect("text");
    assert!(body.contains("\"max_tokens\":16"), "{body}");
    // 49 bytes of prompt are 13 tokens; 16 of output, twice; and what may be estimated of an answer that broke off.
    assert_eq!(scenario.most_tokens, 13 + 32 + 256);
}

/// What is wrong with `LEAST` and these lines behind it: the line, and words of the message.
fn check(lines: &str, line: usize, words: &[&str]) {
    let text = format!("{LEAST}{lines}\n");
    let error = Scenario::read("x", "some/x.toml", &text).expect_err(lines);
    assert!(error.starts_with(&format!("some/x.toml:{line}: ")), "{lines}\n{error}");
    for word in words {
        assert!(error.contains(word), "{word} in {error}");
    }
    // The line itself is shown.
    let shown = text.lines().nth(line - 1).expect("a line of it").trim_end();
    assert!(error.ends_with(shown), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    check("rat = 5", 4, &["unknown field", "rat", "expected one of", "connections"]);
    check("connections = 0", 4, &["0 is not a number from 1 to"]);
    check("connections = \"many\"", 4, &["invalid type"]);
    check("duration = \"10 minutes\"", 4, &["no duration", "write it as"]);
    check("duration = \"0\"", 4, &["longer than 0"]);
    check("requests_per_connection = 0", 4, &["invalid value", "nonzero"]);
    check("[backend]\nfailure_rate = 1.5", 5, &["1.5 is not a number from 0 to 1"]);
    check("[backend]\nlatency = \"20ms..5ms\"", 5, &["the first end of the range is the larger"]);
    check("[backend]\nfailure = \"200\"", 5, &["neither a status from 400 to 599 nor"]);
    check("[backend]\nanswer_bytes = 1_000_000_000", 5, &["is not a number from 0 to"]);
    check("[keys]\ncount = 4\ndraw = \"random\"", 6, &["unknown variant", "zipf"]);
    check(
        "[governance]\nlimits = [\n{ id = \"a\", attach = { level = \"user\" }, type = \"rps\" } ]",
        6,
        &["rps", "rpm"],
    );
    check("[governance]\nteams = 5", 5, &["unknown field", "teams_an_org"]);
    check("[load]", 4, &["duplicate"]);
    check("connections = ", 4, &[]);
}

#[test]
fn what_does_not_fit_together_is_said_with_its_place() {
    check("rate = 5", 2, &["pattern = \"open\" only"]);
    check("body = \"{}\"", 2, &["names no model"]);
    check("body = \"{\"", 2, &["no JSON"]);
    check("prompt = \"x\"\nprompt_bytes = 5", 2, &["exclude each other"]);
    check("body = '{\"model\":\"m\",\"messages\":[]}'\nmax_tokens = 5", 2, &["leave out"]);
    check("body = '{\"model\":\"m\",\"messages\":5}'", 2, &["messages must be a list"]);
    check("[ramp]\nsteps = 5", 2, &["pattern = \"ramp\" only"]);
    check("[keys]\ncount = 4\nexponent = 1.0", 4, &["draw = \"zipf\" only"]);
    check("[keys]\ncount = 4\nhot_share = 0.5", 4, &["draw = \"hot\" only"]);
    check("[keys]\ncount = 0", 4, &["keys.count must be from 1 to"]);
    check("[governance]\norgs = 0", 1, &["it must be from 1 to"]);
    let limit = |rest: &str| format!("[governance]\nlimits = [\n    {{ id = \"a\", {rest} }},\n]");
    let user = "attach = { level = \"user\" }";
    let whole = |rest: &str| limit(&format!("{user}, {rest}"));
    check(&limit("attach = {}, type = \"rpm\", amount = 1, period = \"1m\""), 6, &["one of level and node"]);
    check(&whole("type = \"rpm\", period = \"1m\""), 6, &["has amount, and only that"]);
    check(&whole("type = \"rpm\", amount_usd = 1, period = \"1m\""), 6, &["has amount"]);
    check(&whole("type = \"budget_usd\", amount = 1, period = \"day\""), 6, &["has amount_usd"]);
    check(&whole("type = \"rpm\", amount = 1"), 6, &["has a period"]);
    check(&whole("type = \"concurrency\", amount = 1, period = \"1m\""), 6, &["every limit but concurrency"]);
    check(
        &whole("type = \"quota_tokens\", amount = 1, period = \"day\", algorithm = \"fixed_window\""),
        6,
        &["rpm and tpm only"],
    );
}

#[test]
fn a_ramp_that_would_find_nothing_is_refused() {
    fn check(lines: &str, word: &str) {
        let text = format!("about = \"x\"\n[load]\npattern = \"ramp\"\n[ramp]\n{lines}\n");
        let error = Scenario::read("x", "x.toml", &text).expect_err(lines);
        assert!(error.starts_with("x.toml:") && error.contains(word), "{error}");
    }
    check("goals_ms = []", "ramp.goals_ms");
    check("goals_ms = [0.5, -1]", "ramp.goals_ms");
    check("from = 10\nto = 5", "ramp.from");
    check("steps = 0", "ramp.steps");
    check("precision = 0.001", "ramp.precision");
    check("from = 0", "0 is not a number above 0");
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = Scenario::find("no/such.toml").expect_err("no such file");
    assert!(error.contains("no/such.toml") && error.contains("deny_storm"), "{error}");
}

#[test]
fn the_command_line_changes_a_scenario() {
    let changed = |name: &str, changes: Changes| {
        let mut scenario = Scenario::find(name).expect(name);
        scenario.change(&changes).map(|()| scenario)
    };
    let second = Some(Duration::from_secs(1));
    let scenario =
        changed("steady", Changes { duration: second, governance: Some(false), ..Changes::default() });
    let scenario = scenario.expect("changed");
    assert_eq!((scenario.load.duration, scenario.governance.enabled), (Duration::from_secs(1), false));
    let scenario = changed("ramp", Changes { rate: Some(100.0), steps: Some(3), ..Changes::default() })
        .expect("changed");
    let ramp = scenario.ramp.expect("a ramp");
    assert_eq!((ramp.from, ramp.to, ramp.steps), (100.0, 100.0, 3));
    let wrong = changed("steady", Changes { steps: Some(3), ..Changes::default() }).expect_err("no ramp");
    assert!(wrong.contains("steady is no ramp"), "{wrong}");
    assert!(changed("steady", Changes { keys: Some(0), ..Changes::default() }).is_err());
}

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/loadtest.md");
    std::fs::read_to_string(path).expect("docs/loadtest.md")
}

/// The names of a table's fields: what an unknown one is told. `text` has one called `zzz` in it.
fn fields(prefix: &str, text: &str) -> Vec<String> {
    let error = Scenario::read("x", "x.toml", text).expect_err(text);
    let names = error.split("expected").nth(1).unwrap_or_else(|| panic!("{error}"));
    let names = names.lines().next().expect("a line").split('`').skip(1).step_by(2);
    names.map(|name| format!("{prefix}{name}")).collect()
}

#[test]
fn the_document_describes_each_field_and_no_other() {
    let limit = |rest: &str| format!("{LEAST}[governance]\nlimits = [{{ id = \"a\", {rest} }}]\n");
    let mut known: Vec<String> = [
        fields("", &format!("zzz = 1\n{LEAST}")),
        fields("load.", &format!("{LEAST}zzz = 1\n")),
        fields("keys.", &format!("{LEAST}[keys]\nzzz = 1\n")),
        fields("backend.", &format!("{LEAST}[backend]\nzzz = 1\n")),
        fields("governance.", &format!("{LEAST}[governance]\nzzz = 1\n")),
        fields("governance.limits.", &limit("zzz = 1")),
        fields("governance.limits.attach.", &limit("attach = { zzz = 1 }")),
        fields("ramp.", &format!("{LEAST}[ramp]\nzzz = 1\n")),
    ]
    .concat();
    // The tables themselves are no fields.
    known.retain(|name| !["load", "keys", "backend", "governance", "ramp"].contains(&name.as_str()));
    assert!(known.len() >= 50 && known.contains(&"load.rate".to_owned()), "{known:?}");
    let document = document();
    let rows = document.lines().skip_while(|line| !line.starts_with("| field |")).skip(2);
    let mut described: Vec<&str> =
        rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    known.sort_unstable();
    described.sort_unstable();
    assert_eq!(described, known);
}

#[test]
fn the_document_lists_each_scenario_and_its_example_can_be_run() {
    let document = document();
    let rows = document.lines().skip_while(|line| !line.starts_with("| name |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let listed: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(listed, BUILT_IN.map(|(name, _)| name));
    let example =
        document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let scenario =
        Scenario::read("example", "docs/loadtest.md", example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.draw(), Draw::Zipf { exponent: 1.1 });
}
