//! The management API, asked without a socket, on a folder of its own and a data plane that remembers what it is told.

use std::sync::Mutex;

use axum::body::Body;
use axum::http::Request;
use engine::{KeyRing, ProbeAnswer, Ruleset};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::management::{Publish, Ready, Trigger};
use crate::start::{Prepared, prepare};
use crate::store::Verified;

const LIMITS: &str = r#"
    - { id: a_rpm, attach: { level: team }, type: rpm, amount: 2, period: 1m, posture: { enforce: alert_only } }
    - { id: b_month, attach: { level: team }, type: budget_usd, amount_usd: 0.1, period: month, override: { allow: true, max_amount_usd: 5 } }
    - { id: c_org, attach: { node: "org:acme" }, type: quota_tokens, amount: 7, period: day, override: { allow: true, max_amount: 90 } }
    - { id: d_shut, attach: { level: team }, type: quota_requests, amount: 7, period: day }
"#;

const ML: &str = "org:acme/team:ml";
const ROOT: &str = "the-root-token";

/// What the data plane was told last.
#[derive(Default)]
struct Told {
    ring: Option<Arc<KeyRing>>,
    ruleset: Option<Arc<Ruleset>>,
    configs: usize,
}

struct House {
    folder: tempfile::TempDir,
    management: Arc<Management>,
    router: Router,
    told: Arc<Mutex<Told>>,
    runtime: tokio::runtime::Runtime,
}

fn config(limits: &str, more: &str) -> String {
    format!(
        "data_dir: data\n\
         providers: [ {{ id: local, api: openai, base_urls: [\"http://127.0.0.1:9\"] }} ]\n\
         routes: [ {{ model: \"m*\", provider: local }} ]\n{more}\
         governance:\n  enabled: true\n  tenants: [ {{ org: acme, teams: [ml, search], users: {{ ml: [dev1] }} }} ]\n\
         \x20 limits:{limits}"
    )
}

impl House {
    fn build() -> House {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("gateway.yaml"), config(LIMITS, "")).expect("written");
        House::open(folder)
    }

    fn open(folder: tempfile::TempDir) -> House {
        let Prepared { in_force, store, .. } =
            prepare(&folder.path().join("gateway.yaml")).expect("prepared");
        let told: Arc<Mutex<Told>> = Arc::default();
        let (keys, ruleset, whole) = (Arc::clone(&told), Arc::clone(&told), Arc::clone(&told));
        let publish = Publish {
            keys: Box::new(move |ring| keys.lock().expect("a lock").ring = Some(ring)),
            ruleset: Box::new(move |next| ruleset.lock().expect("a lock").ruleset = Some(next)),
            config: Box::new(move |_| {
                let told = Arc::clone(&whole);
                let ready: Ready = Box::new(move |next| {
                    let mut told = told.lock().expect("a lock");
                    (told.ruleset, told.configs) = (Some(next), told.configs + 1);
                });
                Ok(ready)
            }),
            names: Box::new(|| {}),
            journal: Arc::new(|_| ()),
            probe: Box::new(|_| Some(ProbeAnswer { caps: Vec::new(), refusal: None })),
        };
        let management = Arc::new(Management::new(store, in_force, publish));
        let router = router(Arc::clone(&management), &Secret::new(ROOT.to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        House { folder, management, router, told, runtime }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("gateway.yaml"), text).expect("written");
    }

    fn send(&self, token: &str, line: &str, body: &str) -> (u16, Value) {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let request = Request::builder()
            .method(method)
            .uri(format!("{PREFIX}{path}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Body::from(body.to_owned()))
            .expect("a request");
        self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request).await.expect("infallible");
            let status = answer.status().as_u16();
            let bytes = axum::body::to_bytes(answer.into_body(), 1 << 24).await.expect("a body");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let document =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"));
            (status, document)
        })
    }

    /// Sends and wants a status, and that the answer holds each of some texts.
    fn check(&self, token: &str, line: &str, body: &str, status: u16, parts: &[&str]) -> Value {
        let (got, document) = self.send(token, line, body);
        let text = document.to_string();
        assert_eq!(got, status, "{line} {body}: {text}");
        for part in parts {
            assert!(text.contains(part), "{line} {body}: no {part:?} in {text}");
        }
        document
    }

    fn mint(&self, body: &Value) -> (String, String) {
        let minted = self.check(ROOT, "POST keys", &body.to_string(), 201, &["tt_vk_"]);
        let text = |member: &str| minted[member].as_str().expect("a text").to_owned();
        (text("kid"), text("key"))
    }

    fn delegate(&self, owner: &str) -> String {
        self.mint(&json!({ "owner": owner, "admin": true })).1
    }

    fn known(&self, kid: &str) -> bool {
        let told = self.told.lock().expect("a lock");
        told.ring.as_ref().is_some_and(|ring| ring.find(kid).is_some())
    }

    fn version(&self) -> u64 {
        self.management.ruleset().version()
    }

    /// The newest row of the trail, as one text.
    fn newest(&self) -> String {
        self.check(ROOT, "GET audit?limit=1", "", 200, &[])["audit"][0].to_string()
    }
}

#[test]
fn what_is_wrong_with_a_request_is_told_with_its_field() {
    let house = House::build();
    for (line, body, status, parts) in [
        ("POST nodes", "{", 400, &["not JSON"][..]),
        ("POST nodes", "[\"org:x\"]", 400, &["must be a JSON object"]),
        ("POST reload", "[]", 400, &["must be a JSON object"]),
        ("POST nodes", "null", 400, &["\"param\":\"node\""]),
        ("POST nodes", "{}", 400, &["\"param\":\"node\"", "missing field"]),
        ("POST nodes", r#"{"node":"org:x","nod":1}"#, 400, &["\"param\":\"nod\"", "unknown field"]),
        ("POST nodes", r#"{"node":7}"#, 400, &["\"param\":\"node\""]),
        ("POST nodes", r#"{"node":""}"#, 400, &["\"param\":\"node\"", "empty"]),
        ("POST nodes", r#"{"node":"a\nb"}"#, 400, &["control character"]),
        ("POST nodes", r#"{"node":"__global"}"#, 400, &["__global"]),
        ("POST nodes", r#"{"node":"a","node":"b"}"#, 400, &["\"param\":\"node\"", "duplicate"]),
        ("GET nodes?limit=0", "", 400, &["\"param\":\"limit\""]),
        ("GET nodes?limit=1001", "", 400, &["\"param\":\"limit\""]),
        ("GET nodes?limit=x", "", 400, &["\"param\":\"limit\""]),
        ("GET nodes?cursor=zz", "", 400, &["\"param\":\"cursor\""]),
        ("GET nodes?cursor=7", "", 400, &["\"param\":\"cursor\""]),
        ("GET audit?cursor=61", "", 400, &["\"param\":\"cursor\""]),
        ("GET nodes?page=2", "", 400, &["\"param\":\"page\""]),
        ("DELETE nodes", "", 400, &["\"param\":\"node\""]),
        ("DELETE nodes?node=org:acme", "", 404, &["declared in the config"]),
        ("POST keys", r#"{"owner":"org:acme","models":["["]}"#, 400, &["\"param\":\"models[0]\""]),
        ("POST keys", r#"{"owner":"org:acme","models":"m"}"#, 400, &["\"param\":\"models\""]),
        ("POST keys", r#"{"owner":"org:acme","expires":"soon"}"#, 400, &["\"param\":\"expires\""]),
        ("POST keys", r#"{"owner":"org:acme","expires":"2020-01-01T00:00:00Z"}"#, 400, &["passed"]),
        ("PATCH keys/vk_AAAAAAAAAAAA", "{}", 404, &["key_not_found"]),
        ("POST keys/vk_AAAAAAAAAAAA/rotate", "", 404, &["key_not_found"]),
        ("DELETE keys/vk_AAAAAAAAAAAA", "", 404, &["key_not_found"]),
        ("POST overrides", r#"{"limit_id":"nope","node":"org:acme","amount":1}"#, 404, &["limit_not_found"]),
        ("POST limits/nope/suspend", "", 404, &["limit_not_found"]),
        ("POST limits/a_rpm/suspend", r#"{"for":"1h"}"#, 400, &["\"param\":\"for\""]),
        ("POST probe", "{}", 400, &["\"param\":\"key\""]),
        ("POST probe", r#"{"key":"a","node":"b"}"#, 400, &["\"param\":\"node\""]),
        ("POST probe", r#"{"key":"vk_AAAAAAAAAAAA"}"#, 404, &["key_not_found"]),
        ("POST reload", r#"{"now":true}"#, 400, &["\"param\":\"now\""]),
        ("PUT nodes", "", 405, &["method_not_allowed"]),
        ("GET elsewhere", "", 404, &["not_found"]),
    ] {
        house.check(ROOT, line, body, status, parts);
    }
    let large = format!("{{\"node\":\"{}\"}}", "a".repeat(crate::bounds::ADMIN_BODY_BYTES));
    house.check(ROOT, "POST nodes", &large, 413, &["too_large"]);
    assert_eq!(house.version(), 1, "nothing was armed");
    assert!(house.management.state().store.nodes().expect("read").is_empty(), "nothing was written");
}

#[test]
fn limits_are_the_page_s_rows() {
    let house = House::build();
    let document =
        house.check(ROOT, "GET limits", "", 200, &["definitions are the ARMED limits enforced now;"]);
    let page = json!({
        "limit_id": "a_rpm", "limit_type": "rpm", "class": "count", "unit": "requests", "period": "1m0s",
        "posture": "alert_only", "attach": "template", "level": "team", "amount_count": 2, "override_allowed": false,
    });
    assert_eq!(document["limits"][0], page, "a plain limit has the page's members and no other");
    assert_eq!(document["limits"][1]["amount_usd"].to_string(), "0.1");
    assert_eq!(document["limits"][1]["override_max_usd"].to_string(), "5");
    assert_eq!(document["limits"][2]["node"], "org:acme");
    let first = house.check(ROOT, "GET limits?limit=3", "", 200, &[]);
    let cursor = first["next_cursor"].as_str().expect("more");
    let second = house.check(ROOT, &format!("GET limits?limit=3&cursor={cursor}"), "", 200, &["d_shut"]);
    assert_eq!((second["limits"].as_array().map(Vec::len), &second["next_cursor"]), (Some(1), &Value::Null));
}

#[test]
fn an_override_is_judged_alone_and_waits_for_the_reload() {
    let house = House::build();
    let body = |limit: &str, node: &str, amount: &str| {
        format!("{{\"limit_id\":\"{limit}\",\"node\":\"{node}\",{amount}}}")
    };
    for (limit, node, amount, status, part) in [
        ("a_rpm", ML, "\"amount\":3", 422, "takes no override"),
        ("d_shut", ML, "\"amount\":3", 422, "does not allow overrides"),
        ("b_month", ML, "\"amount\":3", 400, "give amount_usd"),
        ("c_org", "org:acme", "\"amount_usd\":3", 400, "give amount"),
        ("b_month", ML, "\"amount_usd\":0", 422, "above zero"),
        ("b_month", ML, "\"amount_usd\":-1", 422, "negative"),
        ("b_month", ML, "\"amount_usd\":0.0000000000001", 422, "finer than one pico-USD"),
        ("b_month", ML, "\"amount_usd\":5.000000000001", 422, "above the ceiling 5"),
        ("b_month", ML, "\"amount_usd\":\"2\"", 400, "amount_usd"),
        ("b_month", ML, "\"amount_usd\":null", 400, "amount_usd"),
        ("c_org", "org:acme", "\"amount\":1.5", 422, "whole number"),
        ("c_org", ML, "\"amount\":5", 422, "no instance at node"),
        ("b_month", "org:acme/team:nope", "\"amount_usd\":2", 422, "not in the tenancy tree"),
        ("b_month", ML, "\"amount_usd\":0.3", 201, "\"pending\":\"create\""),
        ("b_month", ML, "\"amount_usd\":2.000000000001", 201, "\"amount_usd\":2.000000000001"),
        ("c_org", "org:acme", "\"amount\":9e1", 201, "\"amount\":90"),
    ] {
        house.check(ROOT, "POST overrides", &body(limit, node, amount), status, &[part]);
        let row = house.newest();
        let outcome = if status == 201 { "\"done\"" } else { "refused: " };
        assert!(row.contains(outcome) && row.contains(limit) && row.contains(node), "{row}");
    }
    let amount = |house: &House, limit: &str| {
        let ruleset = house.management.ruleset();
        let found = ruleset.all_instances().into_iter().find(|instance| instance.limit.id.as_str() == limit);
        let instance = found.expect("an instance");
        instance.limit.kind.figure(instance.amount).to_string()
    };
    assert_eq!(amount(&house, "b_month"), "0.1");
    let limits = house.check(ROOT, "GET limits", "", 200, &["2.000000000001"]);
    assert_eq!(limits["pending_overrides"].as_array().map(Vec::len), Some(2));
    assert!(!limits["limits"].to_string().contains("2.000000000001"));
    house.check(ROOT, "POST reload", "{}", 200, &["\"version\":2", "\"dropped_overrides\":[]"]);
    assert_eq!((amount(&house, "b_month"), amount(&house, "c_org")), ("2.000000000001".into(), "90".into()));
    house.check(ROOT, "GET overrides", "", 200, &["\"in_force\":true,\"pending\":null"]);
    // A ceiling that is lowered drops the one override and lets the other stand.
    house.write(&config(&LIMITS.replace("max_amount_usd: 5", "max_amount_usd: 1"), ""));
    let reload = house.check(ROOT, "POST reload", "", 200, &["above the ceiling 1"]);
    assert_eq!(reload["dropped_overrides"][0]["node"], ML);
    assert_eq!((amount(&house, "b_month"), amount(&house, "c_org")), ("0.1".into(), "90".into()));
    house.check(ROOT, "GET overrides", "", 200, &["\"in_force\":false", "\"dropped\":\"the amount"]);
    house.check(ROOT, "DELETE overrides?limit_id=c_org&node=org:acme", "", 200, &["\"pending\":\"delete\""]);
    house.check(ROOT, "DELETE overrides?limit_id=c_org&node=org:acme", "", 404, &["override_not_found"]);
    assert_eq!(amount(&house, "c_org"), "90", "in force until the reload");
    house.check(ROOT, "POST reload", "", 200, &[]);
    assert_eq!(amount(&house, "c_org"), "7");
}

#[test]
fn a_node_of_run_time_is_in_force_from_the_reload_to_the_reload() {
    let house = House::build();
    let ops = "org:acme/team:ops";
    house.check(ROOT, "POST nodes", &json!({ "node": ops }).to_string(), 201, &["\"pending\":\"create\""]);
    house.check(ROOT, "POST nodes", &json!({ "node": ops }).to_string(), 409, &["created before"]);
    house.check(ROOT, "POST nodes", &json!({ "node": ML }).to_string(), 201, &["\"source\":\"config\""]);
    for (odd, warning) in [
        ("org:Acme/team:Ops", "\"warnings\":[\"node \\\"org:Acme/team:Ops\\\" is out of charset"),
        ("org:nope/team:x", "\"warnings\":[\"its parent \\\"org:nope\\\" is not in the tenancy tree\"]"),
        ("dept:x", "\"warnings\":[\"node \\\"dept:x\\\" is at no level"),
    ] {
        house.check(ROOT, "POST nodes", &json!({ "node": odd }).to_string(), 201, &[warning]);
    }
    let of_ops = format!("{{\"limit_id\":\"b_month\",\"node\":\"{ops}\",\"amount_usd\":1}}");
    house.check(ROOT, "POST overrides", &of_ops, 201, &[]);
    assert!(!house.management.ruleset().tree().contains(&engine::NodeId::new(ops)));
    house.check(ROOT, "POST reload", "", 200, &["\"dropped_overrides\":[]"]);
    assert!(house.management.ruleset().tree().contains(&engine::NodeId::new(ops)));
    house.check(ROOT, &format!("DELETE nodes?node={ops}"), "", 200, &["\"pending\":\"delete\""]);
    let mut names = Vec::new();
    let mut line = "GET nodes?limit=2".to_owned();
    loop {
        let page = house.check(ROOT, &line, "", 200, &[]);
        let rows = page["nodes"].as_array().expect("rows");
        assert!(rows.len() <= 2);
        names.extend(rows.iter().map(|row| row["node"].as_str().expect("a name").to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        line = format!("GET nodes?limit=2&cursor={cursor}");
    }
    let wanted = [
        "dept:x",
        "org:Acme/team:Ops",
        "org:acme",
        ML,
        ops,
        "org:acme/team:ml/user:dev1",
        "org:acme/team:search",
        "org:nope/team:x",
    ];
    let mut wanted: Vec<_> = wanted.into();
    wanted.sort_unstable();
    assert_eq!(names, wanted, "each once, also the removed one that is still armed");
}

#[test]
fn a_delegate_acts_on_its_node_and_below() {
    let house = House::build();
    let token = house.delegate(ML);
    let org = house.delegate("org:acme");
    let outside = house.mint(&json!({ "owner": "org:acme/team:search" })).0;
    let own = house.mint(&json!({ "owner": ML })).0;
    let override_at = |limit: &str, node: &str, amount: &str| {
        format!("{{\"limit_id\":\"{limit}\",\"node\":\"{node}\",{amount}}}")
    };
    let mint_at = |owner: &str| json!({ "owner": owner }).to_string();
    for (line, body, status) in [
        ("POST overrides", override_at("b_month", ML, "\"amount_usd\":2"), 201),
        ("POST overrides", override_at("b_month", "org:acme/team:search", "\"amount_usd\":2"), 403),
        ("POST overrides", override_at("c_org", "org:acme", "\"amount\":9"), 403),
        ("POST overrides", override_at("b_month", "org:acme/team:ml2", "\"amount_usd\":2"), 403),
        (
            "POST overrides",
            override_at("b_month", "org:acme/team:ml/../team:search", "\"amount_usd\":2"),
            400,
        ),
        ("POST overrides", override_at("b_month", "__global", "\"amount_usd\":2"), 403),
        ("DELETE overrides?limit_id=b_month&node=org:acme/team:search", String::new(), 403),
        ("POST keys", mint_at("org:acme/team:ml/user:dev1"), 201),
        ("POST keys", mint_at("org:acme/team:ml/user:DEV"), 400),
        ("POST keys", mint_at("org:acme"), 403),
        ("POST keys", mint_at("org:acme/team:mlx"), 403),
        ("POST nodes", json!({ "node": "org:acme/team:ml/user:new" }).to_string(), 201),
        ("POST nodes", json!({ "node": "org:acme/team:mine" }).to_string(), 403),
        ("DELETE nodes?node=org:acme/team:search", String::new(), 403),
        ("POST probe", json!({ "node": "org:acme/team:ml/user:dev1" }).to_string(), 200),
        ("POST probe", json!({ "node": "org:acme" }).to_string(), 403),
        ("GET keys?owner=org:acme", String::new(), 403),
        ("GET audit?node=org:acme", String::new(), 403),
        ("POST reload", String::new(), 403),
        ("POST limits/b_month/suspend", String::new(), 403),
    ] {
        house.check(&token, line, &body, status, &[]);
        let writes = !line.starts_with("GET") && !line.contains("probe");
        if writes && status >= 400 {
            let row = house.newest();
            assert!(row.contains("refused: ") && !row.contains("\"root\""), "{line} {body}: {row}");
        }
    }
    for (path, method) in
        [("", "GET"), ("", "PATCH"), ("", "DELETE"), ("/rotate", "POST"), ("/revoke", "POST")]
    {
        house.check(&token, &format!("{method} keys/{outside}{path}"), "{}", 403, &["outside"]);
    }
    house.check(&token, &format!("DELETE keys/{own}"), "", 200, &["\"state\":\"revoked\""]);
    let evil = override_at("b_month", "org:acme/../org:evil", "\"amount_usd\":2");
    house.check(&org, "POST overrides", &evil, 400, &["out of charset"]);
    // What it reads is what lies there.
    for line in ["GET keys", "GET nodes", "GET overrides", "GET audit", "GET limits"] {
        let text = house.check(&token, line, "", 200, &[]).to_string();
        assert!(!text.contains("team:search"), "{line}: {text}");
    }
    let limits = house.check(&token, "GET limits", "", 200, &["a_rpm", "b_month", "d_shut"]);
    assert!(!limits.to_string().contains("c_org"), "pinned above");
}

#[test]
fn credentials_are_told_apart() {
    let house = House::build();
    let (_, data_key) = house.mint(&json!({ "owner": ML }));
    let (admin_kid, admin_key) = house.mint(&json!({ "owner": ML, "admin": true }));
    let (_, odd_key) = house.mint(&json!({ "owner": "org:Acme", "admin": true }));
    let (_, root_key) = house.mint(&json!({ "owner": "__global", "admin": true }));
    let (all_but_one, last) = admin_key.split_at(admin_key.len() - 1);
    let wrong_secret = format!("{all_but_one}{}", if last == "x" { "y" } else { "x" });
    for (token, status) in [
        (ROOT, 200),
        (admin_key.as_str(), 200),
        ("", 401),
        ("the-root-toke", 401),
        ("the-root-token2", 401),
        ("tt_vk_AAAAAAAAAAAA_x", 401),
        (&data_key, 401),
        (&wrong_secret, 401),
        (&odd_key, 403),
        (&root_key, 403),
    ] {
        house.check(token, "GET limits", "", status, &[]);
    }
    assert!(!house.known(&admin_kid), "an admin's key is nothing on the data plane");
    house.check(ROOT, &format!("DELETE keys/{admin_kid}"), "", 200, &[]);
    house.check(&admin_key, "GET limits", "", 401, &[]);
}

#[test]
fn a_delegate_makes_no_admin_that_outlives_it() {
    let house = House::build();
    let short = house.mint(&json!({ "owner": ML, "admin": true, "expires": "1h" })).1;
    for (line, body, status) in [
        ("POST keys", json!({ "owner": ML, "admin": true }), 403),
        ("POST keys", json!({ "owner": ML, "admin": true, "expires": "2h" }), 403),
        ("POST keys", json!({ "owner": ML, "admin": true, "expires": "10m" }), 201),
        ("POST keys", json!({ "owner": ML }), 201),
    ] {
        house.check(&short, line, &body.to_string(), status, &[]);
    }
    let kid = &short["tt_".len()..][..15];
    house.check(&short, &format!("PATCH keys/{kid}"), r#"{"expires":null}"#, 403, &[]);
    house.check(&short, &format!("PATCH keys/{kid}"), r#"{"name":"mine"}"#, 200, &["\"name\":\"mine\""]);
}

#[test]
fn keys_live_change_and_end_at_once() {
    let house = House::build();
    let (kid, key) =
        house.mint(&json!({ "owner": ML, "name": "laptop", "models": ["m1"], "expires": "30d" }));
    assert!(house.known(&kid));
    let before = house.check(ROOT, &format!("GET keys/{kid}"), "", 200, &["\"state\":\"active\""]);
    house.check(ROOT, &format!("PATCH keys/{kid}"), "{}", 200, &[]);
    assert_eq!(house.check(ROOT, &format!("GET keys/{kid}"), "", 200, &[]), before, "absent fields stay");
    house.check(ROOT, &format!("PATCH keys/{kid}"), r#"{"name":null}"#, 200, &["\"name\":null", "[\"m1\"]"]);
    house.check(ROOT, &format!("PATCH keys/{kid}"), r#"{"models":null}"#, 200, &["\"models\":null"]);
    house.check(ROOT, &format!("PATCH keys/{kid}"), r#"{"expires":null}"#, 200, &["\"expires_at\":null"]);
    house.check(ROOT, &format!("PATCH keys/{kid}"), r#"{"owner":"org:acme"}"#, 400, &["unknown field"]);
    house.check(
        ROOT,
        &format!("PATCH keys/{kid}"),
        r#"{"models":["m2"],"allow_passthrough":true}"#,
        200,
        &[],
    );
    let told = house.told.lock().expect("a lock").ring.clone().expect("a ring");
    let scopes = &told.find(&kid).expect("known").scopes;
    assert!(scopes.allows_model("m2") && !scopes.allows_model("m1") && scopes.allow_passthrough);
    let line = format!("POST keys/{kid}/rotate");
    let new = house.check(ROOT, &line, r#"{"overlap":"1h"}"#, 201, &["tt_vk_", "[\"m2\"]"]);
    let new_kid = new["kid"].as_str().expect("a kid");
    let told = house.told.lock().expect("a lock").ring.clone().expect("a ring");
    assert!(told.find(new_kid).is_some() && told.find(&kid).expect("still there").expires_at.is_some());
    assert_eq!(new["expires_at"], Value::Null, "the new one expires as the old one did");
    house.check(ROOT, &format!("POST keys/{new_kid}/rotate"), r#"{"overlap":"0s"}"#, 201, &[]);
    house.check(ROOT, &format!("POST keys/{new_kid}/rotate"), "", 409, &["expired"]);
    for _ in 0..2 {
        house.check(ROOT, &format!("POST keys/{kid}/revoke"), "", 200, &["\"state\":\"revoked\""]);
    }
    assert!(!house.known(&kid));
    house.check(ROOT, &format!("PATCH keys/{kid}"), "{}", 409, &["revoked"]);
    let trail =
        house.check(ROOT, "GET audit", "", 200, &["key.rotate", "replaced_by", "key.change"]).to_string();
    let secret = key.rsplit('_').next().expect("a secret");
    assert!(!trail.contains(secret) && !trail.contains("hash\":null"));
    let page = house.check(ROOT, "GET keys?limit=2", "", 200, &[]);
    let next = page["next_cursor"].as_str().expect("more");
    let rest = house.check(ROOT, &format!("GET keys?limit=2&cursor={next}"), "", 200, &[]);
    assert_eq!(rest["keys"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_credential_in_the_wrong_field_is_not_kept() {
    let house = House::build();
    let (_, key) = house.mint(&json!({ "owner": ML }));
    house.check(
        ROOT,
        "POST overrides",
        &json!({ "limit_id": key, "node": key, "amount": 1 }).to_string(),
        404,
        &[],
    );
    house.check(ROOT, "POST nodes", &json!({ "node": ML, "x": [{ "y": key }] }).to_string(), 400, &[]);
    let trail = house.check(ROOT, "GET audit", "", 200, &["left out"]).to_string();
    assert!(!trail.contains(key.rsplit('_').next().expect("a secret")), "{trail}");
}

#[test]
fn a_suspended_limit_is_so_at_once_and_after_a_restart_and_nothing_else_comes_in() {
    let house = House::build();
    let suspended = |house: &House, id: &str| {
        house.management.ruleset().limit(&engine::LimitId::new(id)).expect("armed").suspended
    };
    house.check(ROOT, "POST nodes", r#"{"node":"org:acme/team:ops"}"#, 201, &[]);
    house.write(&config(&LIMITS.replace("amount: 7", "amount: 8"), ""));
    for _ in 0..2 {
        house.check(ROOT, "POST limits/c_org/suspend", "{}", 200, &["\"suspended\":true"]);
    }
    assert!(suspended(&house, "c_org") && !suspended(&house, "a_rpm"));
    let told = house.told.lock().expect("a lock").ruleset.clone().expect("published");
    assert_eq!(told.version(), house.version());
    assert!(!told.tree().contains(&engine::NodeId::new("org:acme/team:ops")), "it waits for the reload");
    assert_eq!(told.limits()[2].amount, engine::Units(7), "so does the file");
    house.check(ROOT, "GET limits", "", 200, &["\"suspended\":true"]);
    house.check(ROOT, "POST reload", "", 200, &[]);
    assert!(suspended(&house, "c_org"), "a reload keeps it");
    let House { folder, .. } = house;
    let house = House::open(folder);
    assert!(suspended(&house, "c_org"), "a restart keeps it");
    house.check(ROOT, "POST limits/c_org/resume", "", 200, &["\"suspended\":false"]);
    assert!(!suspended(&house, "c_org"));
}

#[test]
fn a_reload_is_whole_or_nothing_and_says_every_reason() {
    let house = House::build();
    let lost =
        "\n    - { id: lost, attach: { node: \"org:acme/team:nope\" }, type: rpm, amount: 1, period: 1m }";
    let typing = "\n    - { id: x, attach: { level: team }, type: rpm, amout: 1, period: 1m }\n    - { id: y, attach: {}, type: rpm, amount: 1, period: 1m }";
    for (text, parts) in [
        (
            config(&format!("{LIMITS}{lost}"), ""),
            &["governance: compile limits: govern: limit", "governance.limits[4].attach.node", "\"line\":13"]
                [..],
        ),
        (
            config(&format!("{LIMITS}{typing}"), ""),
            &["amout", "must set exactly one of {node, level}", "\"line\":14"],
        ),
        (
            config(LIMITS, "listen: 127.0.0.1:1\nworkers: 3\nspin: 0\n"),
            &["\"path\":\"listen\"", "\"path\":\"workers\"", "\"path\":\"spin\"", "\"line\":5"],
        ),
        (
            config(LIMITS, "admin: { listen: \"127.0.0.1:2\", token_env: PATH }\n"),
            &["admin.listen", "admin.token_env"],
        ),
        (
            config(LIMITS, "").replace("data_dir: data", "data_dir: other"),
            &["\"path\":\"data_dir\"", "\"line\":1"],
        ),
        (String::new(), &["the config is empty"]),
        ("governance: [ {{{".to_owned(), &["config_refused"]),
    ] {
        house.write(&text);
        house.check(ROOT, "POST reload", "{}", 422, parts);
        assert!(house.newest().contains("refused: "), "audited");
        assert_eq!((house.version(), house.told.lock().expect("a lock").configs), (1, 0), "{text}");
    }
    std::fs::remove_file(house.folder.path().join("gateway.yaml")).expect("removed");
    house.check(ROOT, "POST reload", "", 422, &["cannot be read"]);
    house.write(&config(LIMITS, "require_key: on\n"));
    house.check(ROOT, "POST reload", "", 200, &["\"version\":2"]);
    assert_eq!(house.told.lock().expect("a lock").configs, 1);
    assert!(house.management.config().require_key);
}

#[test]
fn a_changed_file_is_taken_once_and_a_touched_one_not_at_all() {
    let house = House::build();
    let path = house.folder.path().join("gateway.yaml");
    let changed = |house: &House| house.management.reload_if_changed().map(|outcome| outcome.is_ok());
    assert_eq!(changed(&house), None, "as at the start");
    house.write(&config(LIMITS, ""));
    assert_eq!(changed(&house), None, "written anew with the same content");
    house.write(&config(LIMITS, "require_key: on\n"));
    assert_eq!((changed(&house), changed(&house)), (Some(true), None));
    house.write("half: [");
    assert_eq!((changed(&house), changed(&house)), (Some(false), None), "tried once, told once");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(changed(&house), None, "gone is not changed");
    let prices = house.folder.path().join("prices.json");
    std::fs::write(&prices, "{}").expect("written");
    house.write(&config(LIMITS, "prices: { file: prices.json }\n"));
    assert_eq!((changed(&house), changed(&house)), (Some(true), None));
    std::fs::write(&prices, r#"{"m1":{"input_cost_per_token":1e-6}}"#).expect("written");
    assert_eq!((changed(&house), changed(&house)), (Some(true), None), "the price map counts too");
    assert!(house.management.config().prices.find("m1").is_some());
    assert!(house.management.reload(&Trigger::Signal).is_ok(), "a signal reloads whatever the content");
    assert_eq!(house.version(), 5);
    let rows =
        house.check(ROOT, "GET audit?action=reload", "", 200, &["\"signal\"", "\"file\"", "refused: "]);
    assert_eq!(rows["audit"].as_array().map(Vec::len), Some(5));
    let verified = house.management.state().store.verify_audit(None).expect("read");
    assert!(matches!(verified, Verified::Whole { .. }), "{verified:?}");
}

#[test]
fn the_trail_is_filtered_and_paged() {
    let house = House::build();
    for index in 0..5 {
        house.check(ROOT, "POST nodes", &json!({ "node": format!("org:o{index}") }).to_string(), 201, &[]);
    }
    house.check(ROOT, "POST nodes", r#"{"node":"org:o1"}"#, 409, &[]);
    let page =
        house.check(ROOT, "GET audit?limit=4&action=node.create&actor=root", "", 200, &["org:o4", "refused"]);
    let cursor = page["next_cursor"].as_str().expect("more");
    let rest =
        house.check(ROOT, &format!("GET audit?limit=4&action=node.create&cursor={cursor}"), "", 200, &[]);
    let seqs: Vec<_> = [&page, &rest]
        .iter()
        .flat_map(|page| page["audit"].as_array().expect("rows"))
        .map(|row| row["seq"].as_i64().expect("a number"))
        .collect();
    assert_eq!(seqs, [6, 5, 4, 3, 2, 1]);
    let one = house.check(ROOT, "GET audit?target=org:o1", "", 200, &[]);
    assert_eq!(one["audit"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_probe_lists_what_binds_and_why_the_rest_does_not() {
    let house = House::build();
    let (kid, _) = house.mint(&json!({ "owner": ML, "models": ["m*"], "endpoints": ["/v1/chat/*"] }));
    let (revoked, _) = house.mint(&json!({ "owner": ML }));
    house.check(ROOT, &format!("DELETE keys/{revoked}"), "", 200, &[]);
    let asked = |key: &str, model: &str, endpoint: &str| {
        json!({ "key": key, "model": model, "endpoint": endpoint }).to_string()
    };
    for (body, status, parts) in [
        (
            asked(&kid, "m1", "/v1/chat/completions"),
            200,
            &["\"served_model\":\"m1\"", "\"provider\":\"local\""][..],
        ),
        (asked(&kid, "x1", "/v1/chat/completions"), 403, &["does not allow the model"]),
        (asked(&kid, "m1", "/v1/embeddings"), 403, &["does not allow the endpoint"]),
        (asked(&revoked, "m1", ""), 401, &["is revoked"]),
        (json!({ "node": ML, "model": "zzz" }).to_string(), 404, &["no route takes the model"]),
        (json!({ "node": "__global", "model": "m1" }).to_string(), 200, &["\"chain\":[\"__global\"]"]),
        (
            json!({ "node": "org:nope", "model": "m1" }).to_string(),
            200,
            &["not in the tenancy tree that is armed"],
        ),
    ] {
        let document = house.check(ROOT, "POST probe", &body, 200, parts);
        assert_eq!(document["verdict"]["status"], status, "{body}: {document}");
    }
    let trail = house.check(ROOT, "GET audit?action=probe", "", 200, &[]);
    assert_eq!(trail["audit"], json!([]), "a dry run is no write");
}

#[test]
fn the_api_describes_what_it_has() {
    let house = House::build();
    let document = house.check(ROOT, "GET openapi.json", "", 200, &["bearer"]);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    for (path, methods) in [
        ("limits", &["get"][..]),
        ("limits/{limit_id}/suspend", &["post"]),
        ("limits/{limit_id}/resume", &["post"]),
        ("nodes", &["delete", "get", "post"]),
        ("overrides", &["delete", "get", "post"]),
        ("keys", &["get", "post"]),
        ("keys/{kid}", &["delete", "get", "patch"]),
        ("keys/{kid}/revoke", &["post"]),
        ("keys/{kid}/rotate", &["post"]),
        ("audit", &["get"]),
        ("probe", &["post"]),
        ("reload", &["post"]),
    ] {
        let operations = document["paths"][format!("{PREFIX}{path}")].as_object().expect(path);
        let mut found: Vec<_> = operations.keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, methods, "{path}");
        for operation in operations.values() {
            assert!(operation["responses"]["401"].is_object(), "{path}: every path wants a credential");
        }
    }
}
