//! Finding a scenario, reading it, and changing it from the command line.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use toml::Spanned;

use super::file::{BackendPart, DrawName, File, Governance, Keys, Limit, LimitType, Load, LoadPattern, Ramp};
use crate::backend::{Failure, expected};
use crate::bounds;
use crate::run::Draw;

/// The scenarios that are built in, with their files.
pub const BUILT_IN: [(&str, &str); 11] = [
    ("steady", include_str!("../../scenarios/steady.toml")),
    ("hot_key", include_str!("../../scenarios/hot_key.toml")),
    ("zipf", include_str!("../../scenarios/zipf.toml")),
    ("deep_chain", include_str!("../../scenarios/deep_chain.toml")),
    ("deny_storm", include_str!("../../scenarios/deny_storm.toml")),
    ("held_budget", include_str!("../../scenarios/held_budget.toml")),
    ("slow_upstream", include_str!("../../scenarios/slow_upstream.toml")),
    ("stream", include_str!("../../scenarios/stream.toml")),
    ("churn", include_str!("../../scenarios/churn.toml")),
    ("ramp", include_str!("../../scenarios/ramp.toml")),
    ("soak", include_str!("../../scenarios/soak.toml")),
];

/// What is asked for when the file names no model.
const MODEL: &str = "gpt-4o-mini";
/// What is asked when the file has no prompt.
const PROMPT: &str = "Say in one sentence how the river turns the mill.";
/// The output cap when the file has none.
const MAX_TOKENS: u64 = 16;
/// Tokens that an answer may be charged beyond twice its output: what broke off before any text came is estimated by its bytes.
const BROKEN_OFF: u64 = 256;

/// A scenario, read and found sound.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: the built-in one's, or the file's without its ending.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// What is sent.
    pub load: Load,
    /// How many keys, and how they are drawn.
    pub keys: Keys,
    /// What the backend does.
    pub backend: BackendPart,
    /// What governs the requests.
    pub governance: Governance,
    /// What a ramp looks for; `None` for the other patterns.
    pub ramp: Option<Ramp>,
    /// The body of each request.
    pub body: Vec<u8>,
    /// The model that the body asks for.
    pub model: String,
    /// The most tokens that one request can be charged, however it ends.
    pub most_tokens: u64,
}

/// What the command line may change of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Requests a second, in an open loop; of a ramp, the highest that is tried.
    pub rate: Option<f64>,
    /// Measured time; of a ramp, of each step.
    pub duration: Option<Duration>,
    /// Time before it.
    pub warm_up: Option<Duration>,
    /// Connections.
    pub connections: Option<usize>,
    /// Keys.
    pub keys: Option<usize>,
    /// Governance on or off.
    pub governance: Option<bool>,
    /// Steps of a ramp.
    pub steps: Option<usize>,
}

/// Something wrong, and where in the text.
struct Fault {
    span: Range<usize>,
    message: String,
}

fn fault(span: Range<usize>, message: impl Into<String>) -> Fault {
    Fault { span, message: message.into() }
}

impl Scenario {
    /// The built-in one of this name, or else the one in this file.
    ///
    /// # Errors
    /// No such scenario or file, or what is wrong in it, with its line.
    pub fn find(name: &str) -> Result<Scenario, String> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Scenario::read(name, &format!("{name}.toml"), text);
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|error| {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            format!(
                "{name}: {error}; give the path of a scenario file, or one of those built in: {}",
                names.join(", ")
            )
        })?;
        let stem =
            path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        Scenario::read(&stem, name, &text)
    }

    /// Reads the text of a scenario; errors call the file `shown`.
    ///
    /// # Errors
    /// What is wrong, as `file:line: what`, with the line itself below.
    pub fn read(name: &str, shown: &str, text: &str) -> Result<Scenario, String> {
        let file: Result<File, toml::de::Error> = toml::from_str(text);
        let sound = file
            .map_err(|error| fault(error.span().unwrap_or(0..0), error.message()))
            .and_then(|file| sound(name, file));
        sound.map_err(|Fault { span, message }| {
            let before = &text[..span.start.min(text.len())];
            let number = before.matches('\n').count() + 1;
            let line = text.lines().nth(number - 1).unwrap_or_default().trim_end();
            format!("{shown}:{number}: {message}\n    {line}")
        })
    }

    /// Changes what the command line changes.
    ///
    /// # Errors
    /// A change that this scenario has no use for.
    pub fn change(&mut self, changes: &Changes) -> Result<(), String> {
        if let Some(rate) = changes.rate {
            match &mut self.ramp {
                Some(ramp) => {
                    ramp.to = rate;
                    ramp.from = ramp.from.min(rate);
                }
                None => (self.load.pattern, self.load.rate) = (LoadPattern::Open, Some(rate)),
            }
        }
        match (&mut self.ramp, changes.steps) {
            (Some(ramp), Some(steps)) => ramp.steps = steps,
            (None, Some(_)) => {
                return Err(format!("--steps: {} is no ramp and has no steps; leave it out", self.name));
            }
            (_, None) => {}
        }
        self.load.duration = changes.duration.unwrap_or(self.load.duration);
        self.load.warm_up = changes.warm_up.unwrap_or(self.load.warm_up);
        self.load.connections = changes.connections.unwrap_or(self.load.connections);
        self.governance.enabled = changes.governance.unwrap_or(self.governance.enabled);
        self.keys.count = changes.keys.unwrap_or(self.keys.count);
        match self.keys.count {
            1..=bounds::MAX_KEYS => Ok(()),
            count => Err(format!("--keys: {count} is not a number from 1 to {}", bounds::MAX_KEYS)),
        }
    }

    /// How keys are drawn.
    pub fn draw(&self) -> Draw {
        match self.keys.draw {
            DrawName::InTurn => Draw::InTurn,
            DrawName::One => Draw::One,
            DrawName::Zipf => Draw::Zipf { exponent: self.keys.exponent.unwrap_or(1.0) },
            DrawName::Hot => Draw::Hot { share: self.keys.hot_share.unwrap_or(0.9) },
        }
    }

    /// The status that the backend fails with, when it is told to fail with one.
    pub fn backend_fails_with(&self) -> Option<u16> {
        match self.backend.failure {
            Failure::Status(status) if self.backend.failure_rate > 0.0 => Some(status),
            _ => None,
        }
    }
}

/// A file whose parts fit together.
fn sound(name: &str, file: File) -> Result<Scenario, Fault> {
    let (load_span, load) = (file.load.span(), file.load.into_inner());
    let wrong = |message: &str| Err(fault(load_span.clone(), message));
    match (load.pattern, load.rate, &file.ramp) {
        (LoadPattern::Open, None, _) => {
            return wrong("load.rate is missing: an open loop needs its requests a second");
        }
        (LoadPattern::Closed | LoadPattern::Ramp, Some(_), _) => {
            return wrong("load.rate goes with pattern = \"open\" only; leave it out");
        }
        (LoadPattern::Open | LoadPattern::Closed, _, Some(_)) => {
            return wrong("[ramp] goes with pattern = \"ramp\" only; leave it out, or change load.pattern");
        }
        _ => {}
    }
    let ramp = match load.pattern {
        LoadPattern::Ramp => Some(file.ramp.unwrap_or_default()),
        _ => None,
    };
    if let Some(ramp) = &ramp {
        let goals_fit =
            !ramp.goals_ms.is_empty() && ramp.goals_ms.iter().all(|goal| goal.is_finite() && *goal > 0.0);
        if !goals_fit {
            return wrong("ramp.goals_ms: give one or more p99 in milliseconds, each above 0");
        }
        if !(0.01..=1.0).contains(&ramp.precision) {
            return wrong("ramp.precision must be from 0.01 to 1: finer than a hundredth no measurement is");
        }
        if ramp.from > ramp.to || ramp.steps == 0 {
            return wrong("ramp.from is above ramp.to, or ramp.steps is 0: no rate would be tried");
        }
    }
    let (model, body) = body(&load).map_err(|message| fault(load_span.clone(), message))?;
    let expected = expected(&body, file.backend.tokens).map_err(|message| fault(load_span, message))?;
    let written = (2 * expected.output).max(file.backend.answer_bytes as u64 / 4);
    let keys = sound_keys(file.keys)?;
    let tree = &file.governance;
    let users = tree.orgs.saturating_mul(tree.teams_an_org).saturating_mul(tree.users_a_team);
    if !(1..=bounds::MAX_USERS).contains(&users) {
        let message = format!(
            "governance.orgs x teams_an_org x users_a_team is {users}: it must be from 1 to {}",
            bounds::MAX_USERS
        );
        return Err(fault(0..0, message));
    }
    for limit in &tree.limits {
        sound_limit(limit.get_ref()).map_err(|message| fault(limit.span(), message))?;
    }
    Ok(Scenario {
        name: name.to_owned(),
        about: file.about,
        load,
        keys,
        backend: file.backend,
        governance: file.governance,
        ramp,
        body,
        model,
        most_tokens: expected.input + written * expected.choices + BROKEN_OFF,
    })
}

fn sound_keys(keys: Option<Spanned<Keys>>) -> Result<Keys, Fault> {
    let Some(keys) = keys else {
        return Ok(Keys { count: 1, draw: DrawName::InTurn, exponent: None, hot_share: None });
    };
    let (span, keys) = (keys.span(), keys.into_inner());
    if !(1..=bounds::MAX_KEYS).contains(&keys.count) {
        return Err(fault(span, format!("keys.count must be from 1 to {}", bounds::MAX_KEYS)));
    }
    if keys.exponent.is_some() && keys.draw != DrawName::Zipf {
        return Err(fault(span, "keys.exponent goes with draw = \"zipf\" only; leave it out"));
    }
    if keys.hot_share.is_some() && keys.draw != DrawName::Hot {
        return Err(fault(span, "keys.hot_share goes with draw = \"hot\" only; leave it out"));
    }
    Ok(keys)
}

fn sound_limit(limit: &Limit) -> Result<(), String> {
    let id = &limit.id;
    if limit.attach.level.is_some() == limit.attach.node.is_some() {
        return Err(format!("{id}: attach must set one of level and node, and only one"));
    }
    let wanted = if limit.kind == LimitType::BudgetUsd { "amount_usd" } else { "amount" };
    if limit.amount.is_some() == (wanted == "amount_usd")
        || limit.amount_usd.is_none() == (wanted == "amount_usd")
    {
        return Err(format!("{id}: a limit of type {} has {wanted}, and only that", limit.kind.name()));
    }
    if limit.period.is_some() == (limit.kind == LimitType::Concurrency) {
        return Err(format!("{id}: every limit but concurrency has a period"));
    }
    if limit.algorithm.is_some() && !matches!(limit.kind, LimitType::Rpm | LimitType::Tpm) {
        return Err(format!("{id}: algorithm goes with rpm and tpm only; leave it out"));
    }
    Ok(())
}

/// The model, and the body of each request.
fn body(load: &Load) -> Result<(String, Vec<u8>), String> {
    if let Some(body) = &load.body {
        let parts = load.model.is_some()
            || load.prompt.is_some()
            || load.prompt_bytes.is_some()
            || load.max_tokens.is_some()
            || load.stream.is_some();
        if parts {
            return Err(
                "load.body is the whole body: leave out model, prompt, prompt_bytes, max_tokens and stream"
                    .into(),
            );
        }
        let value: serde_json::Value =
            serde_json::from_str(body).map_err(|error| format!("load.body is no JSON: {error}"))?;
        let model = value["model"].as_str().ok_or("load.body names no model")?;
        return Ok((model.to_owned(), body.clone().into_bytes()));
    }
    let prompt = match (&load.prompt, load.prompt_bytes) {
        (Some(_), Some(_)) => return Err("load.prompt and load.prompt_bytes exclude each other".into()),
        (None, Some(bytes)) if bytes > bounds::MAX_BODY => {
            return Err(format!("load.prompt_bytes is above {}", bounds::MAX_BODY));
        }
        (None, Some(bytes)) => PROMPT.chars().cycle().take(bytes).collect(),
        (Some(prompt), None) => prompt.clone(),
        (None, None) => PROMPT.to_owned(),
    };
    let model = load.model.clone().unwrap_or_else(|| MODEL.to_owned());
    let mut body = json!({
        "model": model,
        "messages": [{ "role": "user", "content": prompt }],
        "max_tokens": load.max_tokens.unwrap_or(MAX_TOKENS),
    });
    if load.stream.unwrap_or(false) {
        body["stream"] = json!(true);
        // Without the report at its end a client could not say what a stream used.
        body["stream_options"] = json!({ "include_usage": true });
    }
    Ok((model, body.to_string().into_bytes()))
}
