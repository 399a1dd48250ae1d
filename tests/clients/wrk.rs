//! `wrk`, a load generator on its own HTTP: many requests on few connections, all of them answered and counted.

use std::process::{Command, Stdio};

use super::support::gateway::{CHAT, chat_body};
use super::support::rig::Rig;
use super::{INPUT, OUTPUT, model};

const CONNECTIONS: u64 = 8;

#[test]
fn wrk_is_answered_and_every_request_is_counted() {
    if Command::new("wrk").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        eprintln!("wrk is not installed: nothing is shown");
        return;
    }
    let rig = Rig::wide(model());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("post.lua");
    let bearer = rig.key.bearer();
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['Authorization'] = '{bearer}'\n\
         wrk.headers['Content-Type'] = 'application/json'\nwrk.body = [[{}]]\n",
        chat_body()
    );
    std::fs::write(&script, text).expect("a writable folder");
    let mut wrk = Command::new("wrk");
    wrk.args(["-t", "1", "-d", "1s", "-c"]).arg(CONNECTIONS.to_string()).arg("-s").arg(&script);
    let run = wrk.arg(format!("http://127.0.0.1:{}{CHAT}", rig.gateway.port)).output().expect("wrk runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
    let line = said.lines().find(|line| line.contains(" requests in ")).expect("a count");
    let answered: u64 = line.trim().split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    let counted = rig.at_rest();
    // It leaves with one request under way on each connection.
    assert!(
        answered > 0 && (answered..=answered + CONNECTIONS).contains(&counted.requests),
        "{counted:?}\n{said}"
    );
    assert_eq!(counted.rpm, counted.requests);
    let whole = counted.requests.min(answered) * (INPUT + OUTPUT);
    assert!(counted.tokens >= whole, "{counted:?}, {answered} answered");
}
