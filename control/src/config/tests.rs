//! Configs and what is said about them.

use std::path::Path;

use super::*;

fn environment(name: &str) -> Option<String> {
    match name {
        "BACKEND_KEY" => Some("sk-1".to_owned()),
        "TOKEN" => Some("root-token".to_owned()),
        "HOST" => Some("127.0.0.1".to_owned()),
        "BUDGET" => Some("12.5".to_owned()),
        "EMPTY" => Some(String::new()),
        "BROKEN" => Some("two\nlines".to_owned()),
        _ => None,
    }
}

fn load(text: &str) -> Result<Loaded, Rejected> {
    Config::parse(text, Path::new("/etc/tt/gateway.yaml"), Credentials::Needed, &environment)
}

/// The findings as lines: `E line path: message` for errors, `W ...` for warnings.
fn findings(text: &str) -> Vec<String> {
    let (errors, warnings) = match load(text) {
        Ok(loaded) => (Vec::new(), loaded.warnings),
        Err(rejected) => (rejected.errors, rejected.warnings),
    };
    let line = |mark: &str, finding: &Finding| format!("{mark} {} {finding}", finding.line);
    errors.iter().map(|f| line("E", f)).chain(warnings.iter().map(|f| line("W", f))).collect()
}

/// Checks that a config has exactly these findings; a wanted line ending in `..` is a beginning.
fn check(text: &str, want: &[&str]) {
    let got = findings(text);
    let fits = got.len() == want.len()
        && got.iter().zip(want).all(|(got, want)| match want.strip_suffix("..") {
            Some(start) => got.starts_with(start),
            None => got == want,
        });
    assert!(fits, "for\n{text}\nwanted {want:#?}\ngot {got:#?}");
}

/// A config with one limit on line 4, in flow style.
fn with_limit(limit: &str) -> String {
    format!(
        "governance:\n  tenants: [ {{ org: acme, teams: [ml], users: {{ ml: [dev1] }} }} ]\n  limits:\n    - {{ {limit} }}\n"
    )
}

fn check_limit(limit: &str, want: &[&str]) {
    check(&with_limit(limit), want);
}

const PAGE: &str = r#"
governance:
  enabled: true
  tenants:
    - org: acme
      teams: [ml, search]
      users: { ml: [dev1, dev2] }
  limits:
    - id: acme_month
      attach: { level: org }
      type: budget_usd
      amount_usd: 1000
      period: month
      override: { allow: true, max_amount_usd: 5000 }
    - id: ml_daily
      attach: { node: "org:acme/team:ml" }
      type: budget_usd
      amount_usd: 200
      period: day
    - id: user_rpm
      attach: { level: user }
      type: rpm
      amount: 120
      period: 1m
    - id: global_rpm
      attach: { node: "__global" }
      type: rpm
      amount: 5000
      period: 1m
"#;

#[test]
fn the_page_example_is_right_and_complete() {
    check(PAGE, &[]);
    let config = load(PAGE).expect("right").config;
    let nodes: Vec<_> = config.governance.nodes.iter().map(NodeId::as_str).collect();
    assert_eq!(
        nodes,
        [
            "org:acme",
            "org:acme/team:ml",
            "org:acme/team:search",
            "org:acme/team:ml/user:dev1",
            "org:acme/team:ml/user:dev2"
        ]
    );
    let ids: Vec<_> = config.governance.limits.iter().map(|limit| limit.id.as_str().to_owned()).collect();
    assert_eq!(ids, ["acme_month", "ml_daily", "user_rpm", "global_rpm"]);
    assert_eq!(config.data_dir, Path::new("/etc/tt/tokentriage-data"));
    assert_eq!((config.workers, config.spin), (Workers::Auto, Duration::from_micros(100)));
}

#[test]
fn the_whole_schema_is_read() {
    let text = r#"
listen: 0.0.0.0:80
admin: { listen: "[::1]:81", token_env: TOKEN }
workers: 3
spin: 250us
data_dir: ./data
require_key: on
http: { max_head: 8KiB, max_body: 1GiB, header_timeout: 1s, idle_timeout: 1m30s, connect_timeout: 200ms,
        first_byte_timeout: 1h, between_bytes_timeout: 2s, drain_timeout: 3s }
providers:
  - { id: no, api: ollama, base_urls: ["http://${HOST}:9/api/", "http://[::1]", http://box], api_key_env: BACKEND_KEY }
routes:
  - { model: "gpt-4o", provider: no, served_model: gpt-4o-mini, output_hold: 10, estimate: learned }
  - { model: "g*", provider: no, estimate: request }
  - { model: "*", provider: no }
prices:
  models: { gpt-4o-mini: { input: 0.15, cached_input: 0.075, output: 0.60 }, 7: { input: 1e3, output: 0 } }
governance:
  enabled: true
  timezone: Europe/Berlin
  key_nodes: true
  tenants: [ { org: 007, teams: [1e3], users: { 1e3: [no] } } ]
  limits:
    - { id: 1e3, attach: { level: key }, type: tpm, amount: 1e6, period: 90s, algorithm: token_bucket,
        admit: if_fits, posture: { mode: shadow, enforce: alert_only, fail: closed }, match: { model: "gpt-*" } }
    - { id: b, attach: { node: __global }, type: budget_usd, amount_usd: "${BUDGET}", period: year,
        timezone: Asia/Tokyo }
"#;
    check(text, &[]);
    let loaded = load(text).expect("right");
    let config = loaded.config;
    assert_eq!((config.listen.port(), config.require_key), (80, true));
    assert_eq!(config.admin.as_ref().and_then(|a| a.token.as_ref()).map(Secret::expose), Some("root-token"));
    assert_eq!((config.workers, config.spin), (Workers::Count(3), Duration::from_micros(250)));
    assert_eq!((config.http.max_head, config.http.max_body), (8 << 10, 1 << 30));
    assert_eq!(config.http.idle_timeout, Duration::from_secs(90));
    let urls: Vec<_> =
        config.providers[0].base_urls.iter().map(|u| (u.host_header.as_str(), u.prefix.as_str())).collect();
    assert_eq!(urls, [("127.0.0.1:9", "/api"), ("[::1]", ""), ("box", "")]);
    assert_eq!(config.providers[0].id.as_str(), "no");
    let routes: Vec<_> = config.routes.iter().map(|route| (route.output_hold.0, route.learns)).collect();
    assert_eq!(routes, [(10, true), (256, false), (256, false)]);
    assert_eq!(config.prices.find("7").map(|price| price.rates().input.0), Some(1_000_000_000));
    let nodes: Vec<_> = config.governance.nodes.iter().map(NodeId::as_str).collect();
    assert_eq!(nodes, ["org:007", "org:007/team:1e3", "org:007/team:1e3/user:no"]);
    let limits = &config.governance.limits;
    assert_eq!((limits[0].id.as_str(), limits[0].amount.0), ("1e3", 1_000_000));
    assert_eq!(limits[0].window.period_text(), "1m30s");
    assert_eq!(limits[1].amount.0, 12_500_000_000_000);
    assert!(!format!("{config:?}").contains("root-token") && !format!("{config:?}").contains("sk-1"));
}

#[test]
fn what_is_no_config_is_one_error() {
    for (text, want) in [
        ("", "E 1 the config is empty"),
        ("# nothing\n", "E 1 the config is empty"),
        ("~", "E 1 the config is empty"),
        ("governance: [ {{{", "E 2 not YAML:.."),
        ("- a\n", "E 1 must be a mapping, not a list"),
        ("just text", "E 1 must be a mapping, not a scalar"),
        ("a: 1\n---\nb: 2\n", "E 2 a second YAML document begins here; one file is one document"),
    ] {
        check(text, &[want]);
    }
    check("{}", &[]);
    check("governance:\n", &[]);
}

#[test]
fn every_error_has_its_path_and_line() {
    check(
        "listenn: x\nlisten: 1\nhttp:\n  max_hed: 1KiB\n  max_body: 1MB\n  idle_timeout: 5\nworkers: 0\nrequire_key: yes\nlisten: 2\n",
        &[
            "E 1 listenn: unknown key; did you mean `listen`?",
            "E 2 listen: must be an IP address and a port, such as 127.0.0.1:8790, not \"1\"",
            "E 4 http.max_hed: unknown key; did you mean `max_head`?",
            "E 5 http.max_body: must be a size such as 64KiB, 1MiB or a number of bytes, not \"1MB\"",
            "E 6 http.idle_timeout: must be a duration such as 30s, 1m or 1h30m, not \"5\"..",
            "E 7 workers: must be above zero",
            "E 8 require_key: must be on or off, not \"yes\"",
            "E 9 listen: the key is given twice (first on line 2)",
        ],
    );
    check("spin: 0", &[]);
    check("spin: 1ms", &[]);
    for (text, want) in [
        ("1001us", "E 1 spin: must be at most 1ms"),
        ("100", "E 1 spin: must be a duration such as 30s, 1m or 1h30m, not \"100\".."),
        ("off", "E 1 spin: must be a duration such as 30s, 1m or 1h30m, not \"off\".."),
        ("-1us", "E 1 spin: must be a duration such as 30s, 1m or 1h30m, not \"-1us\".."),
    ] {
        check(&format!("spin: {text}"), &[want]);
    }
    check("workers: many", &["E 1 workers: must be auto or a number of cores, not \"many\""]);
    check(
        "http: { max_head: 10, connect_timeout: 0 }",
        &[
            "E 1 http.max_head: is out of range: from 1024 to 1048576 bytes",
            "E 1 http.connect_timeout: must be at least 1ms",
        ],
    );
}

#[test]
fn environment_variables_must_be_set() {
    check("admin: { token_env: NOPE }", &["E 1 admin.token_env: environment variable NOPE is not set"]);
    check("admin: { token_env: EMPTY }", &["E 1 admin.token_env: environment variable EMPTY is empty"]);
    check("admin: {}", &["E 1 admin.token_env: is missing"]);
    let provider = |more: &str| format!("providers:\n  - {{ id: a, api: openai, {more} }}\n");
    check(
        &provider("base_urls: [\"http://${NOPE}:9\"], api_key_env: ALSO_NOT"),
        &[
            "E 2 providers[0].base_urls[0]: environment variable NOPE is not set",
            "E 2 providers[0].api_key_env: environment variable ALSO_NOT is not set",
        ],
    );
    check(
        &provider("base_urls: [http://a], api_key_env: BROKEN"),
        &[
            "E 2 providers[0].api_key_env: environment variable BROKEN holds a character that cannot stand in a header",
        ],
    );
    let unused = Config::parse(
        &provider("base_urls: [http://a], api_key_env: NOPE"),
        Path::new("x.yaml"),
        Credentials::Unused,
        &environment,
    );
    assert!(unused.is_ok(), "an offline verb needs no secret");
}

#[test]
fn providers_and_routes_are_checked_against_each_other() {
    check(
        "providers:\n  - { id: a, api: openai, base_urls: [\"https://a..b\"] }\n  - { id: a, api: grpc, base_urls: [] }\n  - { id: b }\nroutes:\n  - { model: \"[\", provider: a }\n  - { model: \"*\", provider: zz }\n  - { provider: b }\n",
        &[
            "E 2 providers[0].base_urls[0]: has a host that no certificate can be for",
            "E 3 providers[1].id: the id \"a\" is given twice (first on line 2)",
            "E 3 providers[1].api: must be openai, anthropic or ollama, not \"grpc\"",
            "E 3 providers[1].base_urls: must name at least one URL",
            "E 4 providers[2].api: is missing",
            "E 4 providers[2].base_urls: is missing",
            "E 6 routes[0].model: \"[\" is not a pattern:..",
            "E 7 routes[1].provider: names a provider that is not declared: \"zz\"",
            "E 8 routes[2].model: is missing",
        ],
    );
    check(
        "providers: [ { id: a, api: openai, base_urls: [http://x] } ]\nroutes:\n  - { model: a, provider: a, estimate: guessed, output_hold: -1 }\n  - { model: b, provider: a, estimate: ~ }\n  - { model: c, provider: a, estimate: [], estimates: learned }\n",
        &[
            "E 3 routes[0].output_hold: must not be negative",
            "E 3 routes[0].estimate: must be request or learned, not \"guessed\"",
            "E 5 routes[2].estimates: unknown key; did you mean `estimate`?",
            "E 5 routes[2].estimate: must be a single value, not a list",
        ],
    );
    check(
        "providers: [ { id: a, api: openai, base_urls: [http://x] } ]\nroutes:\n  - { model: m, provider: a }\n  - { model: m, provider: a }\n",
        &["W 4 routes[1].model: is never reached: line 3 has the same pattern, and the first match wins"],
    );
}

#[test]
fn base_urls_have_one_form() {
    for (text, want) in [
        ("http://127.0.0.1:8000", Ok(("127.0.0.1", 8000, "", "127.0.0.1:8000"))),
        ("http://localhost", Ok(("localhost", 80, "", "localhost"))),
        ("http://[::1]:80/v1/", Ok(("::1", 80, "/v1", "[::1]"))),
        ("http://[::1]:8080", Ok(("::1", 8080, "", "[::1]:8080"))),
        ("http://my-box.lan/a/b", Ok(("my-box.lan", 80, "/a/b", "my-box.lan"))),
        ("https://x", Ok(("x", 443, "", "x"))),
        ("https://x:443/v1", Ok(("x", 443, "/v1", "x"))),
        ("https://x:80", Ok(("x", 80, "", "x:80"))),
        ("http://x:443", Ok(("x", 443, "", "x:443"))),
        ("https://[::1]", Ok(("::1", 443, "", "[::1]"))),
        ("https://a..b", Err("has a host that no certificate")),
        ("HTTPS://x", Err("must be a URL")),
        ("ftp://x", Err("must be a URL")),
        ("127.0.0.1:80", Err("must be a URL")),
        ("http://", Err("has no host")),
        ("http://:80", Err("has no host")),
        ("http://u:p@x", Err("must not hold a user name")),
        ("http://x?a", Err("must not have a query")),
        ("http://x/a#b", Err("must not have a query")),
        ("http://x:0", Err("has a port")),
        ("http://x:65536", Err("has a port")),
        ("http://x:+80", Err("has a port")),
        ("http://x:080", Err("has a port")),
        ("http://x:", Err("has a port")),
        ("http://a:1:2", Err("has a port")),
        ("http://[::1", Err("has `[`")),
        ("http://[x]", Err("has no IPv6")),
        ("http://[::1]x", Err("has text")),
        ("http://a b", Err("holds a character")),
        ("http://x/../y", Err("has an empty")),
        ("http://x//y", Err("has an empty")),
    ] {
        let got = providers::base_url(text);
        let got = got
            .as_ref()
            .map(|url| (url.host.as_str(), url.port, url.prefix.as_str(), url.host_header.as_str()));
        match (got, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
            (Err(got), Err(want)) => assert!(got.starts_with(want), "{text}: {got}"),
            (got, want) => panic!("{text}: wanted {want:?}, got {got:?}"),
        }
    }
}

#[test]
fn tenants_are_a_tree_in_the_charset() {
    check(
        "governance:\n  tenants:\n    - { org: acme, teams: [ml, ml, Big], users: { nope: [x], ml: [d, d, a b] } }\n    - { org: __global }\n    - { org: acme }\n    - { teams: [a], extra: 1 }\n    - { org: , teams: x }\n",
        &[
            "E 3 governance.tenants[0].teams[1]: the team \"ml\" is given twice (first on line 3)",
            "E 3 governance.tenants[0].teams[2]: \"Big\" may have lowercase letters, digits, `-` and `_` only",
            "E 3 governance.tenants[0].users[\"nope\"]: names a team not declared in teams",
            "E 3 governance.tenants[0].users[\"ml\"][1]: the user \"d\" is given twice (first on line 3)",
            "E 3 governance.tenants[0].users[\"ml\"][2]: \"a b\" may have lowercase letters, digits, `-` and `_` only",
            "E 4 governance.tenants[1].org: __global is the synthetic root and cannot be declared",
            "E 5 governance.tenants[2].org: the org \"acme\" is given twice (first on line 3)",
            "E 6 governance.tenants[3].extra: unknown key; the keys here are org, teams, users",
            "E 6 governance.tenants[3].org: is missing",
            "E 7 governance.tenants[4].org: is empty",
            "E 7 governance.tenants[4].teams: must be a list, not a scalar",
        ],
    );
    check(
        "governance:\n  enabled: \"true\"\n  timezone: Mars/Base\n",
        &[
            "E 2 governance.enabled: must be true or false, not \"true\"",
            "E 3 governance.timezone: \"Mars/Base\" is no time zone; write a name such as UTC or Europe/Berlin",
        ],
    );
}

#[test]
fn attach_sets_exactly_one() {
    let want = ["E 4 governance.limits[0].attach: must set exactly one of {node, level}"];
    let rest = "type: rpm, amount: 1, period: 1m";
    for attach in [
        "",
        "attach: {},",
        "attach: ,",
        "attach: { node: \"org:acme\", level: org },",
        "attach: { node: ~ },",
    ] {
        check_limit(&format!("id: a, {attach} {rest}"), &want);
    }
    check_limit(
        &format!("id: a, attach: {{ level: {{}} }}, {rest}"),
        &["E 4 governance.limits[0].attach.level: must be a single value, not a mapping"],
    );
    check_limit(
        &format!("id: a, attach: {{ level: squad }}, {rest}"),
        &["E 4 governance.limits[0].attach.level: must be org, team, user, key or global, not \"squad\""],
    );
    check_limit(&format!("id: a, attach: {{ node: \"org:acme/team:nope\" }}, {rest}"), &[]);
}

#[test]
fn each_type_takes_its_own_keys() {
    let path = "E 4 governance.limits[0]";
    for (limit, want) in [
        ("rpm, amount: 1, period: 1m", vec![]),
        ("rpm, amount: 0, period: 1m", vec![".amount: must be above zero"]),
        ("rpm, amount: -1, period: 1m", vec![".amount: must not be negative"]),
        ("rpm, amount: 1.5, period: 1m", vec![".amount: must be a whole number"]),
        ("rpm, amount: ten, period: 1m", vec![".amount: must be a number, not \"ten\""]),
        ("rpm, amount: \"5\", period: 1m", vec![".amount: must be a number, not a string in quotes"]),
        ("rpm, amount: 4294967296, period: 1m", vec![".amount: is out of range: at most 4294967295"]),
        (
            "rpm, amount: 5, period: day",
            vec![".period: rpm and tpm take a duration such as 30s, 1m or 1h, not \"day\""],
        ),
        (
            "tpm, amount: 5, period: 60",
            vec![".period: must be a duration such as 30s, 1m or 1h30m, not \"60\".."],
        ),
        ("tpm, amount: 5, period: 0s", vec![".period: must be at least 1s"]),
        ("tpm, amount: 5, period: 745h", vec![".period: must be at most 744h0m0s"]),
        ("tpm, amount: 5", vec![".period: is missing"]),
        ("tpm, period: 1m", vec![".amount: is missing"]),
        (
            "rpm, amount: 5, period: 1m, admit: if_fits",
            vec![".admit: is for tpm, quota_tokens and budget_usd only, not for rpm"],
        ),
        (
            "rpm, amount: 5, period: 1m, timezone: UTC",
            vec![".timezone: is for calendar periods only; a rpm limit has none"],
        ),
        ("concurrency, amount: 5", vec![]),
        ("concurrency", vec![".amount: is missing"]),
        (
            "concurrency, amount: 5, period: 1m",
            vec![".period: a concurrency limit counts what is in flight now and takes no period"],
        ),
        (
            "concurrency, amount: 5, algorithm: sliding_window",
            vec![".algorithm: is for rpm and tpm only, not for concurrency"],
        ),
        ("quota_requests, amount: 9223372036854775807, period: week", vec![]),
        (
            "quota_tokens, amount: 99999999999999999999999999, period: day",
            vec![".amount: is out of range: at most 9223372036854775807"],
        ),
        (
            "quota_tokens, amount: 9223372036854775808, period: day",
            vec![".amount: is out of range: at most 9223372036854775807"],
        ),
        (
            "quota_requests, amount: 5, period: fortnight",
            vec![".period: must be hour, day, week, month or year, not \"fortnight\""],
        ),
        (
            "quota_requests, amount: 5, period: 1h",
            vec![".period: a quota_requests limit takes hour, day, week, month or year, not \"1h\""],
        ),
        (
            "quota_requests, amount: 5, period: day, algorithm: fixed_window",
            vec![".algorithm: is for rpm and tpm only, not for quota_requests"],
        ),
        (
            "quota_tokens, amount_usd: 5, period: day",
            vec![".amount_usd: a quota_tokens limit takes amount, not amount_usd"],
        ),
        (
            "budget_usd, amount: 5, period: day",
            vec![".amount: a budget_usd limit takes amount_usd, not amount"],
        ),
        (
            "budget_usd, amount: 5, amount_usd: 5, period: day",
            vec![".amount: a budget_usd limit takes amount_usd, not amount"],
        ),
        ("budget_usd, amount_usd: 0, period: day", vec![".amount_usd: must be above zero"]),
        ("budget_usd, amount_usd: -0.5, period: day", vec![".amount_usd: must not be negative"]),
        ("budget_usd, amount_usd: .inf, period: day", vec![".amount_usd: must be a finite number"]),
        ("budget_usd, amount_usd: .nan, period: day", vec![".amount_usd: must be a finite number"]),
        ("budget_usd, amount_usd: 1e300, period: day", vec![".amount_usd: is too large to count"]),
        (
            "budget_usd, amount_usd: 1e-13, period: day",
            vec![".amount_usd: is finer than one pico-USD (1e-12 USD)"],
        ),
        ("budget_usd, amount_usd: 0.000001, period: day", vec![]),
        (
            "nonsense, amount: 5",
            vec![
                ".type: must be rpm, concurrency, tpm, quota_requests, quota_tokens or budget_usd, not \"nonsense\"",
            ],
        ),
        ("rpm, amount: 1, period: 1m, amout: 7", vec![".amout: unknown key; did you mean `amount`?"]),
        (
            "rpm, amount: 1, period: 1m, posture: { mode: of, enforce: soft, fail: ajar }",
            vec![
                ".posture.mode: must be off, shadow or on, not \"of\"",
                ".posture.enforce: must be hard or alert_only, not \"soft\"",
                ".posture.fail: must be open or closed, not \"ajar\"",
            ],
        ),
        (
            "tpm, amount: 1, period: 1m, match: { model: \"[\", region: eu }",
            vec![
                ".match.region: unknown key; the keys here are model, provider, endpoint",
                ".match.model: \"[\" is not a pattern:..",
            ],
        ),
    ] {
        let want: Vec<_> = want.iter().map(|message| format!("{path}{message}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        check_limit(&format!("id: a, attach: {{ level: org }}, type: {limit}"), &want);
    }
}

#[test]
fn overrides_need_a_type_that_takes_them_and_a_possible_ceiling() {
    let path = "E 4 governance.limits[0].override";
    for (limit, want) in [
        (
            "budget_usd, amount_usd: 1000, period: month, override: { allow: true, max_amount_usd: 1000 }",
            vec![],
        ),
        (
            "budget_usd, amount_usd: 1000, period: month, override: { allow: true, max_amount_usd: 999 }",
            vec![".max_amount_usd: below the template amount_usd 1000 (an impossible ceiling)"],
        ),
        (
            "quota_tokens, amount: 5, period: month, override: { allow: true, max_amount: 4 }",
            vec![".max_amount: below the template amount 5 (an impossible ceiling)"],
        ),
        (
            "quota_tokens, amount: 5, period: month, override: { allow: true, max_amount_usd: 9 }",
            vec![".max_amount_usd: a quota_tokens limit takes max_amount, not max_amount_usd"],
        ),
        (
            "rpm, amount: 5, period: 1m, override: { allow: true, max_amount: 9 }",
            vec![
                ": a rpm limit takes no overrides: its amount is baked into a per-window store when it compiles; pin a separate limit at the node",
            ],
        ),
        (
            "concurrency, amount: 5, override: { allow: true }",
            vec![
                ": a concurrency limit takes no overrides: its amount is baked into a live gauge when it compiles; pin a separate limit at the node",
            ],
        ),
        ("rpm, amount: 5, period: 1m, override: { allow: false }", vec![]),
        (
            "quota_tokens, amount: 5, period: day, override: { allow: maybe }",
            vec![".allow: must be true or false, not \"maybe\""],
        ),
    ] {
        let want: Vec<_> = want.iter().map(|message| format!("{path}{message}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        check_limit(&format!("id: a, attach: {{ level: org }}, type: {limit}"), &want);
    }
}

#[test]
fn shapes_that_stop_nothing_are_warned_about() {
    for (limit, want) in [
        ("attach: { level: key }, type: rpm, amount: 1, period: 1m", Some("inert: attach level key")),
        ("attach: { level: global }, type: rpm, amount: 1, period: 1m", Some("inert: attach level global")),
        (
            "attach: { level: org }, type: rpm, amount: 1, period: 1m, match: { model: \"gpt-*\" }",
            Some("inert: match.model"),
        ),
        (
            "attach: { level: org }, type: concurrency, amount: 1, match: { provider: \"loc*\" }",
            Some("inert: match.provider"),
        ),
        ("attach: { level: org }, type: rpm, amount: 1, period: 1m, match: { model: \"*\" }", None),
        ("attach: { level: org }, type: tpm, amount: 1, period: 1m, match: { model: \"gpt-*\" }", None),
        (
            "attach: { level: org }, type: quota_tokens, amount: 1, period: day, override: { allow: true }",
            Some("allows overrides without a ceiling"),
        ),
        (
            "attach: { level: org }, type: quota_tokens, amount: 1, period: day, override: { allow: true, max_amount: 0 }",
            Some("allows overrides without a ceiling"),
        ),
    ] {
        let want = want.map(|what| {
            let verb = if what.starts_with("inert") { "is " } else { "" };
            format!("W 4 governance.limits[0]: limit \"a\" {verb}{what}..")
        });
        check_limit(&format!("id: a, {limit}"), &want.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn limits_with_one_id_are_an_error() {
    let one = "{ id: twice, attach: { level: org }, type: rpm, amount: 5, period: 1m }";
    check(
        &format!("governance:\n  limits:\n    - {one}\n    - {one}\n    - {{ id: \"a b\" }}\n"),
        &[
            "E 4 governance.limits[1].id: the id \"twice\" is given twice (first on line 3)",
            "E 5 governance.limits[2].id: \"a b\" may have letters, digits, `-`, `_` and `.` only",
            "E 5 governance.limits[2].attach: must set exactly one of {node, level}",
            "E 5 governance.limits[2].type: is missing",
        ],
    );
}

mod prices;
mod random;

#[test]
fn the_example_passes_strictly() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/acme.yaml"));
    let loaded = Config::load_with(path, Credentials::Needed, &|_| None).expect("the example is right");
    assert_eq!(loaded.warnings, []);
    let armed = crate::arm::arm(1, &loaded.config, &Default::default(), &[]).expect("it compiles");
    assert_eq!(armed.ruleset.all_instances().len(), 13);
}

/// A folder with a certificate, its key, another key and something else.
fn pem_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
    let own = rcgen::generate_simple_self_signed(vec!["gateway".to_owned()]).expect("a certificate");
    write("cert.pem", own.cert.pem());
    write("key.pem", own.signing_key.serialize_pem());
    write("other.pem", rcgen::KeyPair::generate().expect("a key").serialize_pem());
    write("noise.pem", "nothing of the kind".to_owned());
    folder
}

#[test]
fn certificates_and_keys_are_read_and_fit_together() {
    let folder = pem_folder();
    let path = folder.path().join("gateway.yaml");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let absent = format!(
        "E 1 tls.cert_file: {}: cannot be read: No such file or directory (os error 2)",
        at("absent")
    );
    let noise = at("noise.pem");
    let no_certificate =
        format!("E 1 tls.cert_file: {noise}: holds no certificate (-----BEGIN CERTIFICATE-----)");
    let no_key = format!(
        "E 1 tls.key_file: {noise}: holds no private key that is not encrypted (-----BEGIN PRIVATE KEY-----)"
    );
    let other = format!(
        "E 1 tls.key_file: {}: is not the key of the certificate in {}",
        at("other.pem"),
        at("cert.pem")
    );
    for (cert, key, want) in [
        ("cert.pem", "key.pem", vec![]),
        ("absent", "key.pem", vec![absent.clone()]),
        ("absent", "noise.pem", vec![absent, no_key.clone()]),
        ("noise.pem", "key.pem", vec![no_certificate]),
        ("cert.pem", "noise.pem", vec![no_key]),
        ("cert.pem", "other.pem", vec![other]),
    ] {
        for place in ["", "admin."] {
            let block = format!("{{ cert_file: {cert}, key_file: {key} }}");
            let text = match place {
                "" => format!("tls: {block}"),
                _ => format!("admin: {{ token_env: TOKEN, tls: {block} }}"),
            };
            let loaded = Config::parse(&text, &path, Credentials::Needed, &environment);
            let errors = loaded.err().map(|rejected| rejected.errors).unwrap_or_default();
            let got: Vec<_> = errors.iter().map(|found| format!("E {} {found}", found.line)).collect();
            let want: Vec<_> =
                want.iter().map(|line| line.replace("tls.", &format!("{place}tls."))).collect();
            assert_eq!(got, want, "{text}");
            let unused = Config::parse(&text, &path, Credentials::Unused, &environment);
            assert!(unused.is_ok(), "the files are not looked at: {text}");
        }
    }
    check(
        "tls: { cert_file: a }",
        &["E 1 tls.key_file: is missing", "E 1 tls.cert_file: /etc/tt/a: cannot be read.."],
    );
}

#[test]
fn the_roots_of_a_provider_are_a_file_of_certificates() {
    let folder = pem_folder();
    let path = folder.path().join("gateway.yaml");
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (url, file, want) in [
        ("https://x", "cert.pem", vec![]),
        (
            "http://x",
            "cert.pem",
            vec![
                "W 1 providers[0].tls: has no effect: no base URL of this provider begins with https://"
                    .to_owned(),
            ],
        ),
        (
            "https://x",
            "noise.pem",
            vec![format!(
                "E 1 providers[0].tls.ca_file: {}: holds no certificate (-----BEGIN CERTIFICATE-----)",
                at("noise.pem")
            )],
        ),
    ] {
        let text = format!(
            "providers: [ {{ id: a, api: openai, base_urls: [\"{url}\"], tls: {{ ca_file: {file} }} }} ]"
        );
        let (errors, warnings) = match Config::parse(&text, &path, Credentials::Needed, &environment) {
            Ok(loaded) => (Vec::new(), loaded.warnings),
            Err(rejected) => (rejected.errors, rejected.warnings),
        };
        let errors = errors.iter().map(|found| format!("E {} {found}", found.line));
        let got: Vec<_> =
            errors.chain(warnings.iter().map(|found| format!("W {} {found}", found.line))).collect();
        assert_eq!(got, want, "{text}");
    }
}
