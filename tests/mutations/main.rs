//! Do the tests notice when a rule is broken? Each entry of [`rules`] names a rule of the counting, a change of one piece
//! of text that breaks it, and the test that must fail then.
//!
//! The default run only proves that the list is still true of the code: each text stands in its file exactly once. The
//! whole takes a quarter of an hour, since each mutant compiles the engine again, and is for a night:
//!
//! ```sh
//! cargo test --release --test mutations -- --ignored --nocapture
//! ```
//!
//! It works on a copy under `target/mutants`, first without a mutation, where every named test must pass. A mutant that
//! does not compile is a fault of the list. One that hangs is noticed. `MUTATIONS_ONLY=<word>` takes the rules, files or
//! tests that contain it. The last results are in `docs/mutations.md`.

mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rules::MUTATIONS;

/// One rule broken on purpose.
pub struct Mutation {
    /// The rule, in a sentence.
    pub rule: &'static str,
    /// What the mutant does instead.
    pub broken: &'static str,
    /// Where it stands.
    pub file: &'static str,
    /// The text that is replaced.
    pub text: &'static str,
    /// What stands there instead.
    pub instead: &'static str,
    /// What runs the test.
    pub tool: Tool,
    /// Test target and name.
    pub test: (&'static str, &'static str),
}

/// The build that a test needs: as the test command and `engine/tests/interleavings.rs` have it.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub enum Tool {
    /// The ordinary one.
    Plain,
    /// `--cfg loom`.
    Loom,
    /// `--cfg shuttle`.
    Shuttle,
}

/// Longer than any of the tests takes, with a margin for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_rule_to_break_still_stands_once() {
    let mut faults = Vec::new();
    for Mutation { rule, file, text, instead, test: (target, name), .. } in MUTATIONS {
        let source = fs::read_to_string(repository().join(file)).unwrap_or_default();
        match source.matches(text).count() {
            1 => {}
            count => faults.push(format!("{rule}: its text stands {count} times in {file}")),
        }
        if text == instead {
            faults.push(format!("{rule}: is not broken"));
        }
        let tests = match *target {
            "--lib" => file.replace(".rs", "_tests.rs"),
            target => format!("engine/tests/{target}.rs"),
        };
        let tests = fs::read_to_string(repository().join(&tests)).unwrap_or_default();
        if !tests.contains(&format!("fn {name}()")) {
            faults.push(format!("{rule}: there is no test {name} in {target}"));
        }
    }
    assert!(faults.is_empty(), "{} faults\n  {}", faults.len(), faults.join("\n  "));
}

/// A copy of the working tree, without what was built.
struct Scratch {
    root: PathBuf,
    builds: PathBuf,
}

#[derive(Eq, PartialEq, Debug)]
enum Outcome {
    Passed,
    Failed,
    Hung,
    NotCompiled(String),
}

impl Scratch {
    fn make() -> Scratch {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("mutants");
        let copy = Scratch { root: home.join("tree"), builds: home.join("build") };
        let mut list = Command::new("git");
        list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(repository());
        let names = String::from_utf8(list.output().expect("the system has git").stdout).expect("UTF-8");
        let _ = fs::remove_dir_all(&copy.root);
        for name in names.split('\0').filter(|name| repository().join(name).is_file()) {
            let to = copy.root.join(name);
            fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder is made");
            fs::copy(repository().join(name), to).expect("a file is copied");
        }
        copy
    }

    fn run(&self, tool: Tool, (target, name): (&str, &str)) -> Outcome {
        let build = self.cargo(tool, target, &["--no-run"], &[]).output().expect("cargo runs");
        if !build.status.success() {
            return Outcome::NotCompiled(String::from_utf8_lossy(&build.stderr).into_owned());
        }
        let mut command = self.cargo(tool, target, &[], &["--exact"]);
        let name = if target == "--lib" { format!("ruleset::tests::{name}") } else { name.to_owned() };
        let mut running = command
            .arg(&name)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group_of_its_own()
            .spawn()
            .expect("cargo runs");
        let begun = Instant::now();
        loop {
            match running.try_wait().expect("the child can be waited for") {
                Some(status) if status.success() => return Outcome::Passed,
                Some(_) => return Outcome::Failed,
                None if begun.elapsed() > PATIENCE => {
                    end_group(&running);
                    let _ = running.wait();
                    return Outcome::Hung;
                }
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn cargo(&self, tool: Tool, target: &str, options: &[&str], of_test: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command.args(["test", "--release", "--locked", "--quiet", "--package", "engine"]);
        match target {
            "--lib" => command.arg("--lib"),
            target => command.args(["--test", target]),
        };
        command.args(options).arg("--").args(of_test);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
        let (folder, flags, assertions) = match tool {
            Tool::Plain => ("plain", "", "false"),
            Tool::Loom => ("loom", "--cfg loom", "true"),
            Tool::Shuttle => ("shuttle", "--cfg shuttle", "true"),
        };
        command
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", self.builds.join(folder))
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", assertions)
            .current_dir(&self.root);
        command
    }

    /// Runs the mutation's test on its mutant.
    fn try_out(&self, mutation: &Mutation) -> Outcome {
        let path = self.root.join(mutation.file);
        let sound = fs::read_to_string(&path).expect("the file is there");
        fs::write(&path, sound.replacen(mutation.text, mutation.instead, 1)).expect("the mutant is written");
        let outcome = self.run(mutation.tool, mutation.test);
        fs::write(&path, sound).expect("the file is put back");
        outcome
    }
}

/// Cargo and the test that it runs are ended together.
trait GroupOfItsOwn {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl GroupOfItsOwn for Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

fn end_group(child: &std::process::Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
}

#[test]
#[ignore = "nightly: compiles the engine once for each mutant"]
fn every_broken_rule_is_noticed() {
    let only = std::env::var("MUTATIONS_ONLY").unwrap_or_default();
    let asked =
        |of: &&Mutation| [of.rule, of.file, of.test.0, of.test.1].iter().any(|text| text.contains(&only));
    let mutations: Vec<_> = MUTATIONS.iter().filter(asked).collect();
    let copy = Scratch::make();
    let tests: BTreeSet<_> = mutations.iter().map(|mutation| (mutation.tool, mutation.test)).collect();
    for (tool, test) in tests {
        let outcome = copy.run(tool, test);
        assert_eq!(outcome, Outcome::Passed, "{test:?} under {tool:?}, with nothing broken");
    }
    let mut missed = Vec::new();
    for mutation in mutations {
        let begun = Instant::now();
        let outcome = copy.try_out(mutation);
        let Mutation { rule, broken, file, test: (target, name), tool, .. } = mutation;
        let seconds = begun.elapsed().as_secs();
        println!(
            "| {rule} | {broken} | `{file}` | `{target}`: `{name}` ({tool:?}) | {outcome:?} | {seconds} s |"
        );
        if !matches!(outcome, Outcome::Failed | Outcome::Hung) {
            missed.push(format!("{rule}: {outcome:?}"));
        }
    }
    assert!(missed.is_empty(), "not noticed: {}\n  {}", missed.len(), missed.join("\n  "));
}
