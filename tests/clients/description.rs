//! The management API against its own description, by `schemathesis`: every operation is asked with what the description
//! allows and with what it does not, at the edges of each field, with and without a credential, and in sequences that follow
//! the links between operations. Whatever it answers must stand in the description, and nothing may be a server error.

use std::process::Command;

use serde_json::{Value, json};

use super::support::client::request;
use super::support::gateway::{Gateway, config, free_port, user_limit};
use super::support::{python, repository};

/// The tester's checks that cannot hold here. `positive_data_acceptance` takes a request that fits the description and is
/// refused with 400 for a defect; but no JSON schema can say what a `path.Match` pattern is, that a list of fields has no
/// empty one, that one of two fields is needed, or that the unit of an amount is the limit's.
const NOT_APPLICABLE: &str = "positive_data_acceptance";
/// Requests an operation and phase; beside them the edges of every field, which are not counted by it.
const EXAMPLES: &str = "20";
/// Every run makes the same requests.
const SEED: &str = "1";

/// A gateway with something in each list.
fn gateway() -> Gateway {
    let mut money = user_limit("money", "budget_usd", 10, "month");
    money["override"] = json!({ "allow": true, "max_amount_usd": 100 });
    let limits = json!([user_limit("rate", "rpm", 10, "1m"), money]);
    Gateway::start(&config(free_port(), limits))
}

/// Runs the tester with this credential.
fn check(gateway: &Gateway, who: &str, credential: &str) {
    let requirements = repository().join("tests/clients/schemathesis.txt");
    let python = python::environment("schemathesis", &requirements);
    let reports = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(python.with_file_name("schemathesis"));
    // It keeps failures it has found in the folder that it runs in.
    command.current_dir(reports.path()).env("NO_PROXY", "127.0.0.1");
    command.args(["run", &format!("http://127.0.0.1:{}/tt/v1/admin/openapi.json", gateway.admin_port)]);
    command.args(["--header", &format!("Authorization: Bearer {credential}")]);
    command.args(["--checks", "all", "--exclude-checks", NOT_APPLICABLE, "--continue-on-failure"]);
    command.args([
        "--max-examples",
        EXAMPLES,
        "--seed",
        SEED,
        "--no-shrink",
        "--no-color",
        "--warnings",
        "off",
    ]);
    let output = command.output().expect("the environment has the tester");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "as {who}: {told}{errors}");
    println!("as {who}: {told}");
    // It must have found the operations and asked them: a run of nothing would succeed as well.
    let operations = gateway.get_admin("/tt/v1/admin/openapi.json").json();
    let paths = operations["paths"].as_object().expect("paths").values();
    let count: usize = paths.map(|path| path.as_object().map_or(0, serde_json::Map::len)).sum();
    assert!(told.contains(&format!("Tested: {count}\n")), "as {who}: not {count} operations: {told}");
}

#[test]
fn the_management_api_answers_as_it_is_described() {
    let gateway = gateway();
    check(&gateway, "the root", "root-token-for-tests");

    // A delegated admin is refused more.
    let input = json!({ "owner": "org:acme/team:ml", "admin": true }).to_string();
    let minted = gateway.ask_admin("POST", "/tt/v1/admin/keys", &input);
    assert_eq!(minted.status, 201, "{}", minted.text());
    let credential = minted.json()["key"].as_str().expect("a credential").to_owned();
    check(&gateway, "a delegated admin", &credential);

    // What was tried is in the trail, which is whole. That nothing panicked is looked for when the gateway goes.
    let verified = gateway.run(&["audit", "verify"]);
    assert!(verified.status.success(), "{verified:?}");
    let page: Value = gateway.get_admin("/tt/v1/admin/audit?limit=1000").json();
    let written = page["audit"].as_array().map_or(0, Vec::len);
    assert!(written > 300, "writes were audited: {written}");
    let healthy = gateway.connect().ask(&request("GET", "/tt/v1/readyz", &[], b""));
    assert_eq!(healthy.status, 200);
}
