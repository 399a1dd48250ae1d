//! What a core measures, until it is handed to the control plane: plain counts of one thread, no atomics.
//!
//! What people are to be told (a cap that was over and let a request pass) goes the same way, so that no request writes a
//! log line for it. Each core tells of a cap once a window, or once a minute for a cap in shadow or without a window; the
//! control plane, which hears all cores, leaves out what another one has told already.
//!
//! When a key was used last goes the same way, refused requests included, and is written down once a second: an entry a
//! key and report, and nothing else on the request path.
//!
//! Bounds: limits and providers are the config's; keys are those of the requests of one upkeep period, and exist; the caps told of are forgotten when there are
//! [`TOLD_CAPS`](crate::bounds::TOLD_CAPS), which at worst tells something twice, and a report tells of [`NOTICES`] at the
//! most.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, hash_map};
use std::mem::take;
use std::sync::Arc;

use engine::cells::GateOnePlan;
use engine::gates::GateTwoPlan;
use engine::metrics::{Gauges, LimitEvents, Metrics, Notice, Outcome};
use engine::{
    CoreId, Exchanges, Histogram, Instance, Kid, LimitId, Mode, Now, ProviderId, Span, UsageSum, Window,
    window_at,
};
use jiff::{SignedDuration, Timestamp};

use crate::bounds::{NOTICES, TOLD_CAPS};

/// How long a cap that has no window of its own is not told of again.
const QUIET: SignedDuration = SignedDuration::from_secs(60);

/// The counts of one core.
#[derive(Default)]
pub struct Meter {
    counts: RefCell<Counts>,
    plans: RefCell<Plans>,
    /// Admitted requests that are not settled yet.
    reservations: Cell<u64>,
    /// By a cap's hash: the second until which it is not told of again.
    told: RefCell<HashMap<u64, i64, ahash::RandomState>>,
    last_gauges: Cell<Gauges>,
}

/// What is begun anew with each report.
#[derive(Default)]
struct Counts {
    touched: bool,
    admitted: u64,
    limits: HashMap<LimitId, LimitEvents, ahash::RandomState>,
    exchanges: Exchanges,
    used: UsageSum,
    gate_one: Histogram,
    gate_two: Histogram,
    first_byte: Vec<(ProviderId, Histogram)>,
    notices: Vec<Notice>,
    key_uses: HashMap<Kid, Timestamp, ahash::RandomState>,
}

/// The plans of one gate, found by their addresses, and how many requests each admitted.
type PlanCounts<P> = HashMap<usize, (Arc<P>, u64), ahash::RandomState>;

/// Admitted requests by the plans of both gates: one look for each, however many caps it has. What they come to by limit is
/// worked out later.
#[derive(Default)]
struct Plans {
    gate_one: PlanCounts<GateOnePlan>,
    gate_two: PlanCounts<GateTwoPlan>,
    /// Those that are being worked out.
    leaving_one: hash_map::IntoIter<usize, (Arc<GateOnePlan>, u64)>,
    leaving_two: hash_map::IntoIter<usize, (Arc<GateTwoPlan>, u64)>,
}

impl Counts {
    fn limit(&mut self, id: &LimitId) -> &mut LimitEvents {
        if !self.limits.contains_key(id) {
            self.limits.insert(id.clone(), LimitEvents::default());
        }
        self.limits.get_mut(id).expect("it was put there")
    }

    /// So many requests met these caps.
    fn admitted_by<'c>(&mut self, caps: impl Iterator<Item = &'c Instance>, count: u64) {
        caps.filter(|cap| is_met(cap)).for_each(|cap| self.limit(&cap.limit.id).admitted += count);
    }
}

/// Whether a request that selects the cap meets it: it is neither off nor suspended.
pub fn is_met(cap: &Instance) -> bool {
    !cap.limit.suspended && cap.limit.posture.mode != Mode::Off
}

/// Counts one request for a plan. The entry holds what its address names, so no other plan can come to have it.
fn count_plan<P>(plans: &mut PlanCounts<P>, plan: &Arc<P>) {
    let address = Arc::as_ptr(plan) as usize;
    plans.entry(address).or_insert_with(|| (plan.clone(), 0)).1 += 1;
}

impl Meter {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.borrow_mut();
        counts.touched = true;
        change(&mut counts);
    }

    /// A request came with this key, whatever becomes of it.
    pub fn key_used(&self, kid: Kid, at: Timestamp) {
        self.count(|counts| {
            counts.key_uses.insert(kid, at);
        });
    }

    /// Gate 1 judged, and took that long from the head read: the key proved, the caps found, and all of them asked.
    pub fn gate_one(&self, took: Span) {
        self.count(|counts| counts.gate_one.observe(took));
    }

    /// Both gates admitted; gate 2 took that long.
    pub fn admitted(&self, gate_two: Span) {
        self.count(|counts| {
            counts.admitted += 1;
            counts.gate_two.observe(gate_two);
        });
    }

    /// The plans by which both gates admitted a request.
    pub fn admitted_by(&self, gate_one: &Arc<GateOnePlan>, gate_two: &Arc<GateTwoPlan>) {
        let mut plans = self.plans.borrow_mut();
        count_plan(&mut plans.gate_one, gate_one);
        count_plan(&mut plans.gate_two, gate_two);
    }

    /// Works out what at most so many plans of each gate come to by limit, and tells whether others of the round that was
    /// begun are left.
    pub fn unfold_plans(&self, most: usize) -> bool {
        let plans = &mut *self.plans.borrow_mut();
        if plans.leaving_one.len() == 0 && plans.leaving_two.len() == 0 {
            plans.leaving_one = take(&mut plans.gate_one).into_iter();
            plans.leaving_two = take(&mut plans.gate_two).into_iter();
        }
        let counts = &mut *self.counts.borrow_mut();
        for (_, (plan, count)) in plans.leaving_one.by_ref().take(most) {
            counts.admitted_by(plan.instances(), count);
            counts.touched = true;
        }
        for (_, (plan, count)) in plans.leaving_two.by_ref().take(most) {
            counts.admitted_by(plan.instances(), count);
        }
        plans.leaving_one.len() > 0 || plans.leaving_two.len() > 0
    }

    /// Gate 2 refused after that long.
    pub fn gate_two_refused(&self, gate_two: Span) {
        self.count(|counts| counts.gate_two.observe(gate_two));
    }

    /// A cap refused, the first of those that were over.
    pub fn refused_by(&self, limit: &LimitId) {
        self.count(|counts| counts.limit(limit).refused += 1);
    }

    /// A cap was over and let the admitted request pass.
    pub fn overlooked(&self, instance: &Instance, now: Now) {
        let shadow = instance.limit.posture.mode == Mode::Shadow;
        let full = self.counts.borrow().notices.len() >= NOTICES;
        let untold = if full { None } else { self.is_untold(instance, shadow, now.wall) };
        self.count(|counts| {
            let events = counts.limit(&instance.limit.id);
            let figure = if shadow { &mut events.shadow_refused } else { &mut events.alerted };
            *figure += 1;
            if let Some(until) = untold {
                counts.notices.push(Notice { instance: instance.clone(), at: now.wall, until });
            }
        });
    }

    /// Until when a cap that is told of now need not be told again; `None` while it need not.
    fn is_untold(&self, instance: &Instance, shadow: bool, now: Timestamp) -> Option<Timestamp> {
        let mut told = self.told.borrow_mut();
        let cap = instance.identity.hash64() ^ u64::from(shadow);
        if told.get(&cap).is_some_and(|until| now.as_second() < *until) {
            return None;
        }
        let until = match &instance.limit.window {
            Window::Calendar { period, zone } if !shadow => window_at(*period, &zone.zone, now).resets_at,
            Window::Rolling { period, .. } if !shadow => {
                now.saturating_add(SignedDuration::from_nanos(period.0 as i64)).unwrap_or(Timestamp::MAX)
            }
            _ => now.saturating_add(QUIET).unwrap_or(Timestamp::MAX),
        };
        if told.len() >= TOLD_CAPS {
            told.clear();
        }
        told.insert(cap, until.as_second());
        Some(until)
    }

    /// A request is under way behind both gates.
    pub fn reservation_begins(&self) {
        self.reservations.set(self.reservations.get() + 1);
    }

    /// It is settled or voided.
    pub fn reservation_ends(&self) {
        self.reservations.set(self.reservations.get().saturating_sub(1));
    }

    /// An exchange used this.
    pub fn used(&self, sum: &UsageSum) {
        self.count(|counts| counts.used.add(sum));
    }

    /// The backend's head came that long after the request was sent.
    pub fn first_byte(&self, provider: &ProviderId, after: Span) {
        self.count(|counts| {
            let place = counts.first_byte.iter().position(|(known, _)| known == provider);
            let place = place.unwrap_or_else(|| {
                counts.first_byte.push((provider.clone(), Histogram::default()));
                counts.first_byte.len() - 1
            });
            counts.first_byte[place].1.observe(after);
        });
    }

    /// An exchange ended; `status` is 0 when the client was sent none.
    pub fn ended(&self, status: u16, outcome: Outcome) {
        self.count(|counts| counts.exchanges.count(status, outcome));
    }

    /// What was counted since the last call; `None` when that is nothing and the core stands as before. `gauges` has what
    /// this meter does not know.
    pub fn take(&self, core: CoreId, gauges: Gauges) -> Option<Box<Metrics>> {
        let gauges = Gauges { reservations: self.reservations.get(), ..gauges };
        let stands = self.last_gauges.replace(gauges) == gauges;
        if stands && !self.counts.borrow().touched {
            return None;
        }
        let counts = self.counts.take();
        Some(Box::new(Metrics {
            core,
            admitted: counts.admitted,
            limits: counts.limits.into_iter().collect(),
            exchanges: counts.exchanges,
            used: counts.used,
            gate_one: counts.gate_one,
            gate_two: counts.gate_two,
            first_byte: counts.first_byte,
            notices: counts.notices,
            key_uses: counts.key_uses,
            gauges,
        }))
    }
}

#[cfg(test)]
mod tests {
    use engine::cells::CellTable;
    use engine::resolve::Selected;
    use engine::{
        Admit, Attach, CalendarPeriod, Enforce, Identity, Limit, LimitType, Match, Monotonic, NodeId,
        OverridePolicy, Posture, Units, Zone,
    };

    use super::*;

    fn cap(kind: LimitType, window: Window, mode: Mode, enforce: Enforce) -> Instance {
        let node = NodeId::new("org:a");
        let limit = Limit {
            id: LimitId::new("cap"),
            attach: Attach::Node(node.clone()),
            kind,
            amount: Units(1),
            window,
            admit: Admit::WhileUnder,
            posture: Posture { mode, enforce, ..Posture::default() },
            matches: Match::default(),
            overrides: OverridePolicy::default(),
            suspended: false,
        };
        let identity = Identity::new(&limit, &node, &engine::Dims { model: "", provider: "", endpoint: "" });
        Instance { amount: limit.amount, limit: Arc::new(limit), node, identity }
    }

    fn at(text: &str) -> Now {
        Now { monotonic: Monotonic(0), wall: text.parse().expect("a time") }
    }

    #[test]
    fn a_cap_is_told_of_once_a_window_and_counted_each_time() {
        let zone = Zone { name: "UTC".into(), zone: jiff::tz::TimeZone::UTC };
        let day = Window::Calendar { period: CalendarPeriod::Day, zone };
        let minute = Window::Rolling {
            period: Span(10 * 60 * 1_000_000_000),
            algorithm: engine::Algorithm::SlidingWindow,
        };
        let times =
            ["2026-08-01T10:00:00Z", "2026-08-01T10:00:59Z", "2026-08-01T10:09:00Z", "2026-08-02T00:00:00Z"];
        let alert = (Mode::On, Enforce::AlertOnly);
        let shadow = (Mode::Shadow, Enforce::Hard);
        for (name, kind, window, (mode, enforce), told) in [
            ("a day", LimitType::BudgetUsd, day.clone(), alert, vec![times[0], times[3]]),
            ("ten minutes", LimitType::Rpm, minute, alert, vec![times[0], times[3]]),
            ("no window", LimitType::Concurrency, Window::Live, alert, vec![times[0], times[2], times[3]]),
            ("shadow", LimitType::BudgetUsd, day, shadow, vec![times[0], times[2], times[3]]),
        ] {
            let meter = Meter::default();
            let cap = cap(kind, window, mode, enforce);
            for time in times {
                meter.overlooked(&cap, at(time));
            }
            let metrics = meter.take(CoreId(0), Gauges::default()).expect("something was counted");
            let seen: Vec<_> = metrics.notices.iter().map(|notice| notice.at.to_string()).collect();
            assert_eq!(seen, told, "{name}");
            let (_, events) = metrics.limits[0];
            let wanted = if mode == Mode::Shadow { (0, 4) } else { (4, 0) };
            assert_eq!((events.alerted, events.shadow_refused), wanted, "{name}");
        }
    }

    #[test]
    fn a_report_tells_of_so_many_caps_and_the_next_one_of_the_rest() {
        let meter = Meter::default();
        let caps: Vec<_> = (0..NOTICES + 3)
            .map(|number| {
                let cap = cap(LimitType::Concurrency, Window::Live, Mode::Shadow, Enforce::Hard);
                let node = NodeId::new(&format!("org:a{number}"));
                let dims = engine::Dims { model: "", provider: "", endpoint: "" };
                Instance { identity: Identity::new(&cap.limit, &node, &dims), node, ..cap }
            })
            .collect();
        for told in [NOTICES, 3, 0] {
            caps.iter().for_each(|cap| meter.overlooked(cap, at("2026-08-01T10:00:00Z")));
            let metrics = meter.take(CoreId(0), Gauges::default()).expect("something was counted");
            assert_eq!(metrics.notices.len(), told);
            assert_eq!(metrics.limits[0].1.shadow_refused, caps.len() as u64, "all are counted");
        }
    }

    #[test]
    fn a_limit_admits_what_meets_it() {
        let hour =
            Window::Rolling { period: Span(1_000_000_000), algorithm: engine::Algorithm::SlidingWindow };
        let zone = Zone { name: "UTC".into(), zone: jiff::tz::TimeZone::UTC };
        let year = Window::Calendar { period: CalendarPeriod::Year, zone };
        let named = |id: &str, cap: Instance| {
            let limit = Limit { id: LimitId::new(id), ..(*cap.limit).clone() };
            Instance { limit: Arc::new(limit), ..cap }
        };
        let rate = named("rate", cap(LimitType::Rpm, hour, Mode::On, Enforce::Hard));
        let money = |id, mode| named(id, cap(LimitType::BudgetUsd, year.clone(), mode, Enforce::Hard));
        let mut suspended = money("suspended", Mode::On);
        Arc::make_mut(&mut suspended.limit).suspended = true;
        let one = CellTable::new(Span(0)).plan(&Selected(vec![rate]));
        let caps =
            vec![money("money", Mode::On), money("off", Mode::Off), money("shadow", Mode::Shadow), suspended];
        let plans = [GateTwoPlan::new(&Selected(caps), 1), GateTwoPlan::new(&Selected(Vec::new()), 1)];
        let meter = Meter::default();
        for plan in [0, 0, 1] {
            meter.admitted_by(&one, &plans[plan]);
        }
        // A plan a turn; what comes between belongs to the next round.
        assert!(meter.unfold_plans(1));
        meter.admitted_by(&one, &plans[0]);
        while meter.unfold_plans(1) {}
        let mut metrics = meter.take(CoreId(0), Gauges::default()).expect("something was counted");
        metrics.limits.sort_by(|one, other| one.0.cmp(&other.0));
        let seen: Vec<_> = metrics.limits.iter().map(|(id, events)| (id.as_str(), events.admitted)).collect();
        assert_eq!(seen, [("money", 2), ("rate", 3), ("shadow", 2)]);
    }

    #[test]
    fn a_report_holds_what_came_since_the_last_one() {
        let meter = Meter::default();
        let take = || meter.take(CoreId(3), Gauges::default());
        assert!(take().is_none(), "nothing was counted and nothing has changed");
        meter.admitted(Span(5_000));
        meter.reservation_begins();
        meter.refused_by(&LimitId::new("cap"));
        for provider in ["p1", "p2", "p1"] {
            meter.first_byte(&ProviderId::new(provider), Span(1));
        }
        meter.ended(200, Outcome::Complete);
        let metrics = take().expect("something was counted");
        assert_eq!((metrics.core, metrics.admitted, metrics.gate_two.count()), (CoreId(3), 1, 1));
        let counts: Vec<u64> = metrics.first_byte.iter().map(|(_, histogram)| histogram.count()).collect();
        assert_eq!((counts, metrics.gauges.reservations), (vec![2, 1], 1));
        assert_eq!(metrics.limits, [(LimitId::new("cap"), LimitEvents { refused: 1, ..Default::default() })]);
        assert!(take().is_none());
        meter.reservation_ends();
        let metrics = take().expect("a gauge has changed");
        assert_eq!((metrics.admitted, metrics.gauges.reservations), (0, 0));
    }

    #[test]
    fn a_key_is_told_of_once_a_report_with_its_last_use() {
        let meter = Meter::default();
        let kids = ["vk_AAAAAAAAAAAA", "vk_BBBBBBBBBBBB"].map(|text| Kid::parse(text).expect("a kid"));
        for (kid, second) in [(0, 1), (1, 2), (0, 3), (0, 4)] {
            meter.key_used(kids[kid], Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second));
        }
        let metrics = meter.take(CoreId(0), Gauges::default()).expect("keys were used");
        let mut seen: Vec<_> = metrics.key_uses.iter().map(|(kid, at)| (*kid, at.as_second())).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(kids[0], 4), (kids[1], 2)]);
        assert!(meter.take(CoreId(0), Gauges::default()).is_none());
    }
}
