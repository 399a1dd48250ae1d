//! One scenario from its start to its verdict.

use std::time::{Duration, Instant};

use super::Scenario;
use super::backend::{self, Ceiling};
use super::check::{self, Known, Verdict};
use super::disturbance::Watched;
use super::file::{Algorithm, Ramp};
use super::gateway::Gateway;
use super::outcome::{Checked, Driven, Outcome};
use super::ramp::{self, Found, Measured};
use super::views::{DataPlane, Key, Management, View};
use crate::backend::Backend;
use crate::bounds;
use crate::run::{self, Ledger, Pattern, Progress, Report, RunOptions, Target, Watch, cpu};

pub use super::gateway::Binary as Own;

/// Where the path of a chat completion is, on a target whose URL has none.
const CHAT: &str = "/v1/chat/completions";

/// A target that is already there.
#[derive(Clone, Debug)]
pub struct Existing {
    /// Where it is.
    pub target: Target,
    /// Bearer tokens of its keys; empty sends none.
    pub credentials: Vec<String>,
    /// Header fields of each request.
    pub headers: Vec<(String, String)>,
    /// Its management API and the token for it.
    pub management: Option<(Target, String)>,
}

/// What is driven.
#[derive(Clone, Debug)]
pub enum Where {
    /// A gateway that is started for it, in front of a backend of its own.
    Own(Own),
    /// What is already there.
    Existing(Box<Existing>),
}

/// A scenario and where it is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is run.
    pub scenario: Scenario,
    /// What is driven.
    pub target: Where,
    /// Threads of the generator.
    pub threads: usize,
    /// Their cores; empty pins nothing.
    pub cores: Vec<usize>,
    /// The backend's cores; empty pins nothing.
    pub backend_cores: Vec<usize>,
    /// How long the backend alone is driven first, to know what it can do; zero leaves it out.
    pub ceiling: Duration,
    /// Seed of what is drawn.
    pub seed: u64,
}

/// What is being done, for a progress line.
pub enum Step<'a> {
    /// Something beside the load.
    Doing(&'a str),
    /// Load is sent, at this rate if it is a ramp.
    Load(Progress, Option<f64>),
}

/// Runs it.
///
/// # Errors
/// In words: something cannot be started, or ended before its time. A difference between counts is no error here: see
/// [`Outcome::passed`].
pub fn run(settings: &Settings, progress: &mut dyn FnMut(Step<'_>)) -> Result<Outcome, String> {
    match &settings.target {
        Where::Own(own) => run_own(settings, own, progress),
        Where::Existing(existing) => run_existing(settings, existing, progress),
    }
}

fn run_own(settings: &Settings, own: &Own, progress: &mut dyn FnMut(Step<'_>)) -> Result<Outcome, String> {
    let backend = backend::start(&settings.scenario, &settings.backend_cores, settings.seed)?;
    progress(Step::Doing("starting the gateway"));
    let mut gateway = Gateway::start(own, &settings.scenario, backend.addr())?;
    let outcome = drive_own(settings, own, &backend, &mut gateway, progress);
    // If it has ended, that is the reason of whatever else went wrong.
    gateway.is_well()?;
    let outcome = outcome?;
    progress(Step::Doing("ending the gateway"));
    gateway.end()?;
    backend.stop();
    Ok(outcome)
}

fn drive_own(
    settings: &Settings,
    own: &Own,
    backend: &Backend,
    gateway: &mut Gateway,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Outcome, String> {
    let scenario = &settings.scenario;
    let keys = gateway.mint(scenario, |number| {
        if number % 100 == 0 {
            progress(Step::Doing(&format!("minting keys: {number} of {}", scenario.keys.count)));
        }
    })?;
    let target = Target::parse(&format!("http://{}{CHAT}", gateway.address))?;
    let load = load(settings, target, keys.iter().map(|key| key.credential.clone()).collect(), Vec::new());
    let ceiling = measured_ceiling(settings, &load, progress)?;
    let version = gateway.version.clone();
    let pid = gateway.pid();
    let mut views = Views {
        keys,
        data: DataPlane::new(gateway.address, &gateway.address.to_string()),
        management: Some(&mut gateway.management),
    };
    let (before, began) = (views.take()?, Instant::now());
    let at = || (Instant::now(), cpu::of_process(&pid.to_string()), resident(pid));
    let (first, asked) = (at(), backend.stats().requests);
    let watched = Watched::begin(pid);
    let sent = send(scenario, &load, Some(pid), progress)?;
    let others = watched.others();
    let last = at();
    let asked = backend.stats().requests - asked;
    let known = known(scenario, true);
    let verdict = settled(&mut views, &before, &sent.report.ledger, known, began, progress)?;
    let took = (last.0 - first.0).as_secs_f64();
    let driven = Driven {
        what: own.path.display().to_string(),
        version,
        cpu: Some((last.1).saturating_sub(first.1)),
        resident: first.2.zip(last.2),
        backend_rate: Some(asked as f64 / took),
        others,
    };
    Ok(Outcome::new(settings, sent.report, sent.found, driven, ceiling, Checked::Compared(verdict)))
}

fn run_existing(
    settings: &Settings,
    existing: &Existing,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Outcome, String> {
    let mut target = existing.target.clone();
    if target.path == "/" {
        target = Target::parse(&format!("{}{CHAT}", target.url.trim_end_matches('/')))?;
    }
    let scenario = &settings.scenario;
    let load = load(settings, target.clone(), existing.credentials.clone(), existing.headers.clone());
    let management = existing.management.as_ref();
    let mut management =
        management.map(|(target, token)| Management::new(target.address, &target.host, token.clone()));
    let key = |credential: &String| Key { kid: String::new(), credential: credential.clone() };
    let mut views = Views {
        keys: existing.credentials.iter().map(key).collect(),
        data: DataPlane::new(target.address, &target.host),
        management: management.as_mut(),
    };
    // A target that was said to have a management API must show its counters; of others it is not expected.
    let before = match views.keys.is_empty() {
        true => Err("no keys were given".to_owned()),
        false => views.take_at_rest(),
    };
    let before = match before {
        Err(why) if views.management.is_some() => return Err(why),
        before => before,
    };
    let began = Instant::now();
    let sent = send(scenario, &load, None, progress)?;
    let checked = match before {
        Err(why) => Checked::Not(why),
        Ok(before) => {
            let known = known(scenario, false);
            Checked::Compared(settled(&mut views, &before, &sent.report.ledger, known, began, progress)?)
        }
    };
    let driven = Driven { what: target.url, ..Driven::default() };
    Ok(Outcome::new(settings, sent.report, sent.found, driven, None, checked))
}

/// The load as the generator takes it.
fn load(
    settings: &Settings,
    target: Target,
    credentials: Vec<String>,
    headers: Vec<(String, String)>,
) -> RunOptions {
    let (scenario, load) = (&settings.scenario, &settings.scenario.load);
    RunOptions {
        method: "POST".into(),
        headers,
        credentials,
        draw: scenario.draw(),
        seed: settings.seed,
        watch: Some(Watch { backend_fails_with: scenario.backend_fails_with() }),
        body: scenario.body.clone(),
        pattern: load.rate.map_or(Pattern::Closed, |rate| Pattern::Open { rate }),
        connections: load.connections,
        requests_per_connection: load.requests_per_connection.map(u64::from),
        threads: settings.threads,
        cores: settings.cores.clone(),
        warm_up: load.warm_up,
        duration: Some(load.duration),
        timeout: load.timeout,
        grace: load.grace,
        ..RunOptions::to(target)
    }
}

fn measured_ceiling(
    settings: &Settings,
    load: &RunOptions,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Option<Ceiling>, String> {
    if settings.ceiling.is_zero() {
        return Ok(None);
    }
    progress(Step::Doing("measuring what the backend alone can do"));
    backend::ceiling(&settings.scenario, load, &settings.backend_cores, settings.ceiling)
}

/// What was sent, and what a ramp found.
struct Sent {
    report: Report,
    found: Option<Found>,
}

/// Sends all of it. With the gateway's process id it is known what else ran meanwhile.
fn send(
    scenario: &Scenario,
    load: &RunOptions,
    gateway: Option<u32>,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Sent, String> {
    let Some(ramp) = &scenario.ramp else {
        let report =
            run::run(load, |now| progress(Step::Load(now, None))).map_err(|error| error.to_string())?;
        return Ok(Sent { report, found: None });
    };
    let mut ledger = Ledger::default();
    let mut reports = Reports::new(ramp);
    let found = ramp::search(ramp, |rate| {
        let at_rate = RunOptions { pattern: Pattern::Open { rate }, ..load.clone() };
        let watched = gateway.map(Watched::begin);
        let report = run::run(&at_rate, |now| progress(Step::Load(now, Some(rate))));
        let report = report.map_err(|error| error.to_string())?;
        ledger.merge(&report.ledger);
        let others = watched.and_then(|watched| watched.others()).unwrap_or(0.0);
        let measured = measured(rate, &report, others > bounds::QUIET_MACHINE);
        reports.add(&measured, report);
        Ok::<_, String>(measured)
    })?;
    let mut report = reports.into_shown(&found).ok_or("the ramp has no steps")?;
    report.ledger = ledger;
    Ok(Sent { report, found: Some(found) })
}

/// The runs of a ramp of which one is to be shown: the last one that kept the loosest goal, at each rate.
struct Reports {
    loosest: Duration,
    kept: Vec<(f64, Report)>,
    /// For a ramp that found nothing.
    last: Option<Report>,
}

impl Reports {
    fn new(ramp: &Ramp) -> Reports {
        let loosest = ramp.goals_ms.iter().fold(0.0, |most: f64, goal| most.max(*goal));
        Reports { loosest: Duration::from_secs_f64(loosest / 1000.0), kept: Vec::new(), last: None }
    }

    fn add(&mut self, measured: &Measured, report: Report) {
        if measured.clean && measured.p99 <= self.loosest {
            self.kept.retain(|(rate, _)| *rate != measured.rate);
            self.kept.push((measured.rate, report));
        } else {
            self.last = Some(report);
        }
    }

    /// The one at the rate that was found for the loosest goal.
    fn into_shown(self, found: &Found) -> Option<Report> {
        let goal = found.goals.iter().find(|goal| goal.p99 == self.loosest);
        let rate = goal.and_then(|goal| goal.rate);
        let at_rate = self.kept.into_iter().find(|(at, _)| Some(*at) == rate);
        at_rate.map(|(_, report)| report).or(self.last)
    }
}

fn measured(rate: f64, report: &Report, disturbed: bool) -> Measured {
    let tally = &report.tally;
    let succeeded = tally.statuses.iter().all(|(status, _)| *status < 400);
    let clean = succeeded && tally.answers() > 0 && tally.all_failures() == 0 && tally.not_sent == 0;
    Measured { rate, p99: tally.latency().percentile(99.0), clean, disturbed }
}

/// What is known of the target beside its answers; of one that is not ours, that is little.
fn known(scenario: &Scenario, ours: bool) -> Known {
    let slides = |limit: &super::file::Limit| limit.algorithm.unwrap_or_default() == Algorithm::SlidingWindow;
    let governance = &scenario.governance;
    // A million tokens at one USD are 10^12 pico-dollars.
    let pico = |price: f64| (price * 1e6).round() as u128;
    let limits = governance.limits.iter().map(|limit| limit.get_ref());
    Known {
        prices: ours.then(|| (pico(governance.input_price), pico(governance.output_price))),
        sliding: limits.filter(|limit| ours && slides(limit)).map(|limit| limit.id.clone()).collect(),
        most_tokens: scenario.most_tokens,
        elapsed: Duration::ZERO,
    }
}

/// Where what was counted is looked up.
struct Views<'a> {
    keys: Vec<Key>,
    data: DataPlane,
    management: Option<&'a mut Management>,
}

impl Views<'_> {
    fn take(&mut self) -> Result<View, String> {
        let mut caps = Vec::with_capacity(self.keys.len());
        for key in &mut self.keys {
            let (kid, of_key) = self.data.me(&key.credential)?;
            key.kid = kid;
            caps.push(of_key);
        }
        let usage = self.management.as_mut().map(|management| management.usage()).transpose()?;
        Ok(View { caps, usage })
    }

    /// What is counted once all that came before is written. If somebody goes on, the check will say so.
    fn take_at_rest(&mut self) -> Result<View, String> {
        let end = Instant::now() + bounds::SETTLE_PATIENCE;
        let mut view = self.take()?;
        while view.usage.is_some() && Instant::now() < end {
            std::thread::sleep(bounds::USAGE_LATENESS);
            let later = self.take()?;
            if later.usage == view.usage {
                return Ok(later);
            }
            view = later;
        }
        Ok(view)
    }
}

/// Compares again and again until nothing differs, or the patience is over.
fn settled(
    views: &mut Views<'_>,
    before: &View,
    ledger: &Ledger,
    known: Known,
    began: Instant,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Verdict, String> {
    progress(Step::Doing("comparing the counters with what clients saw"));
    // What is largest of what was seen and what can be expected: another target's models may count their own way.
    let most_tokens = known.most_tokens.max(2 * ledger.largest);
    let end = Instant::now() + bounds::SETTLE_PATIENCE;
    loop {
        let after = views.take()?;
        let known = Known { elapsed: began.elapsed(), most_tokens, ..known.clone() };
        let verdict = check::compare(&views.keys, before, &after, ledger, &known);
        if verdict.differences.is_empty() || Instant::now() >= end {
            return Ok(verdict);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Memory of a process that is resident, in bytes.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}
