//! What a figure depends on beside the target: the machine, its kernel, the commit, the command, the time.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Header names whose values are nobody's business.
const SECRET: [&str; 4] = ["authorization", "x-api-key", "api-key", "cookie"];

/// Of a word of the command line, so much is shown.
const WORD: usize = 120;

/// All of it; null where the system does not say.
pub fn about() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let cpu = read("/proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':').map(|(_, name)| name.trim().to_owned())
    });
    json!({
        "cpu": cpu,
        "processors": std::thread::available_parallelism().ok().map(usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
        "commit": commit(),
        "command": command(std::env::args()),
        "date": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

/// The commit of the repository that the command runs in, if it runs in one.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=12", "HEAD"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The command line, without credentials, and without most of a long body.
fn command(words: impl Iterator<Item = String>) -> String {
    let shown = words.enumerate().map(|(place, word)| {
        let word = match word.split_once(':') {
            Some((name, _))
                if SECRET.iter().any(|secret| name.trim().to_ascii_lowercase().ends_with(secret)) =>
            {
                format!("{name}: ...")
            }
            _ if place == 0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            _ => word,
        };
        let short: String = word.chars().take(WORD).collect();
        if short.len() < word.len() { format!("{short}...") } else { short }
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_what_is_secret_or_long() {
        let check = |words: &[&str], wanted: &str| {
            assert_eq!(command(words.iter().map(|word| (*word).to_owned())), wanted);
        };
        check(&["/opt/bin/loadtest", "run", "http://127.0.0.1:1/"], "loadtest run http://127.0.0.1:1/");
        check(&["loadtest", "-H", "Authorization: Bearer tt_1"], "loadtest -H Authorization: ...");
        check(
            &["loadtest", "-HX-Api-Key:secret", "-H", "Accept: */*"],
            "loadtest -HX-Api-Key: ... -H Accept: */*",
        );
        check(&["loadtest", &"x".repeat(200)], &format!("loadtest {}...", "x".repeat(120)));
    }

    #[test]
    fn the_machine_is_named() {
        let about = about();
        assert!(about["kernel"].is_string() && about["processors"].is_number(), "{about}");
    }
}
