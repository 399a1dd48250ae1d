//! `governance.limits`: each entry checked against what its type takes.

use std::collections::HashMap;

use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, Enforce, Fail, Level, Limit, LimitId, LimitType, Match, Mode,
    NodeId, OverridePolicy, PicoUsd, Posture, Span, Units, Window, Zone,
};

use super::decode::{At, Decoder, Fields, shown};
use super::{governance, providers, server};
use crate::bounds;

/// What all limits of one config share.
pub struct Shared {
    /// The zone of calendar periods that name none.
    pub zone: Zone,
    /// Whether keys are nodes, which decides what is inert.
    pub key_nodes: bool,
}

const KEYS: [&str; 12] = [
    "id",
    "attach",
    "type",
    "amount",
    "amount_usd",
    "period",
    "timezone",
    "match",
    "algorithm",
    "admit",
    "posture",
    "override",
];

const TYPES: [(&str, LimitType); 6] = [
    ("rpm", LimitType::Rpm),
    ("concurrency", LimitType::Concurrency),
    ("tpm", LimitType::Tpm),
    ("quota_requests", LimitType::QuotaRequests),
    ("quota_tokens", LimitType::QuotaTokens),
    ("budget_usd", LimitType::BudgetUsd),
];

const PERIODS: [(&str, CalendarPeriod); 5] = [
    ("hour", CalendarPeriod::Hour),
    ("day", CalendarPeriod::Day),
    ("week", CalendarPeriod::Week),
    ("month", CalendarPeriod::Month),
    ("year", CalendarPeriod::Year),
];

const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("sliding_window", Algorithm::SlidingWindow),
    ("fixed_window", Algorithm::FixedWindow),
    ("token_bucket", Algorithm::TokenBucket),
];

const LEVELS: [(&str, Level); 5] = [
    ("org", Level::Org),
    ("team", Level::Team),
    ("user", Level::User),
    ("key", Level::Key),
    ("global", Level::Global),
];

/// All limits, in file order.
pub fn limits(decoder: &mut Decoder<'_>, fields: &Fields<'_>, shared: &Shared) -> Option<Vec<Limit>> {
    let Some(at) = fields.get("limits") else { return Some(Vec::new()) };
    let items = decoder.list(&at)?;
    let mut seen = HashMap::new();
    let read: Vec<_> = items.into_iter().map(|item| limit(decoder, item, &mut seen, shared)).collect();
    read.into_iter().collect()
}

fn limit(
    decoder: &mut Decoder<'_>,
    item: At<'_>,
    seen: &mut HashMap<String, usize>,
    shared: &Shared,
) -> Option<Limit> {
    let fields = decoder.fields(item, &KEYS)?;
    let id = providers::required_id(decoder, &fields, "id")
        .filter(|id| fields.spelt("id").is_none_or(|at| providers::is_new(decoder, seen, id, &at)));
    let attach = attach(decoder, &fields);
    let matches = matches(decoder, &fields);
    let posture = posture(decoder, &fields);
    let kind = decoder.required(&fields, "type").and_then(|at| decoder.word(&at, &TYPES));
    // Everything below depends on the type; without one there is nothing more to say about this limit.
    let kind = kind?;
    let amount = amount(decoder, &fields, kind);
    let window = window(decoder, &fields, kind, shared);
    let admit = admit(decoder, &fields, kind);
    let overrides = overrides(decoder, &fields, kind, amount);
    let limit = Limit {
        id: LimitId::new(&id?),
        attach: attach?,
        kind,
        amount: amount?,
        window: window?,
        admit: admit?,
        posture: posture?,
        matches: matches?,
        overrides: overrides?,
        suspended: false,
    };
    warn_of_traps(decoder, fields.at(), &limit, shared);
    Some(limit)
}

/// The page's shapes that load and stop nothing, and the override without a ceiling.
fn warn_of_traps(decoder: &mut Decoder<'_>, at: &At<'_>, limit: &Limit, shared: &Shared) {
    if let Some(reason) = limit.inert_reason(shared.key_nodes) {
        decoder.warn(at, format!("limit \"{}\" is inert: {reason}", limit.id));
    }
    if limit.overrides.is_unbounded() {
        let ceiling = ceiling_key(limit.kind);
        decoder.warn(
            at,
            format!(
                "limit \"{}\" allows overrides without a ceiling: any amount is accepted; set {ceiling}",
                limit.id
            ),
        );
    }
}

fn attach(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Attach> {
    const EXACTLY_ONE: &str = "must set exactly one of {node, level}";
    let Some(at) = fields.get("attach") else {
        decoder.error_at(fields.path_of("attach"), fields.mark_of("attach"), EXACTLY_ONE);
        return None;
    };
    let inner = decoder.fields(at.clone(), &["node", "level"])?;
    match (inner.get("node"), inner.get("level")) {
        (Some(node), None) => {
            let text = decoder.string(&node)?;
            if text.len() > bounds::NODE_BYTES {
                decoder.error(&node, format!("is longer than {} bytes", bounds::NODE_BYTES));
                return None;
            }
            Some(Attach::Node(NodeId::new(&text)))
        }
        (None, Some(level)) => decoder.word(&level, &LEVELS).map(Attach::Level),
        _ => {
            decoder.error(&at, EXACTLY_ONE);
            None
        }
    }
}

fn matches(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Match> {
    let Some(at) = fields.get("match") else { return Some(Match::default()) };
    let fields = decoder.fields(at, &engine::limits::DIM_NAMES)?;
    let [model, provider, endpoint] = engine::limits::DIM_NAMES.map(|dim| match fields.get(dim) {
        None => Some(None),
        Some(at) => providers::glob(decoder, &at).map(Some),
    });
    Some(Match { model: model?, provider: provider?, endpoint: endpoint? })
}

fn posture(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Posture> {
    let Some(at) = fields.get("posture") else { return Some(Posture::default()) };
    let fields = decoder.fields(at, &["mode", "enforce", "fail"])?;
    let mode = word_or_default(
        decoder,
        &fields,
        "mode",
        &[Mode::Off, Mode::Shadow, Mode::On].map(|m| (m.name(), m)),
    );
    let enforce = word_or_default(
        decoder,
        &fields,
        "enforce",
        &[Enforce::Hard, Enforce::AlertOnly].map(|e| (e.name(), e)),
    );
    let fail = word_or_default(decoder, &fields, "fail", &[Fail::Open, Fail::Closed].map(|f| (f.name(), f)));
    Some(Posture { mode: mode?, enforce: enforce?, fail: fail? })
}

fn word_or_default<T: Copy + Default>(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    key: &str,
    words: &[(&str, T)],
) -> Option<T> {
    match fields.get(key) {
        None => Some(T::default()),
        Some(at) => decoder.word(&at, words),
    }
}

/// The key of the amount, and of what is no amount for this type.
fn amount_keys(kind: LimitType) -> (&'static str, &'static str) {
    match kind {
        LimitType::BudgetUsd => ("amount_usd", "amount"),
        _ => ("amount", "amount_usd"),
    }
}

fn ceiling_key(kind: LimitType) -> &'static str {
    match kind {
        LimitType::BudgetUsd => "max_amount_usd",
        _ => "max_amount",
    }
}

fn amount(decoder: &mut Decoder<'_>, fields: &Fields<'_>, kind: LimitType) -> Option<Units> {
    let (right, wrong) = amount_keys(kind);
    if let Some(at) = fields.get(wrong) {
        decoder.error(&at, format!("a {kind} limit takes {right}, not {wrong}"));
        fields.get(right)?;
    }
    let at = decoder.required(fields, right)?;
    units(decoder, &at, kind, 1)
}

/// An amount in the type's own unit, at least `low` (0 or 1 of its smallest).
fn units(decoder: &mut Decoder<'_>, at: &At<'_>, kind: LimitType, low: u128) -> Option<Units> {
    let high = match kind {
        LimitType::BudgetUsd => return usd(decoder, at, low),
        LimitType::Rpm | LimitType::Concurrency | LimitType::Tpm => bounds::RATE_AMOUNT_MAX,
        LimitType::QuotaRequests | LimitType::QuotaTokens => bounds::QUOTA_AMOUNT_MAX,
    };
    decoder.integer(at, low, high).map(Units)
}

fn usd(decoder: &mut Decoder<'_>, at: &At<'_>, low: u128) -> Option<Units> {
    let text = decoder.decimal(at)?;
    let wrong = match PicoUsd::parse_usd(&text) {
        Ok(PicoUsd(pico)) if pico < low => "must be above zero".to_owned(),
        Ok(PicoUsd(pico)) => return Some(Units(pico)),
        Err(error) => error.to_string(),
    };
    decoder.error(at, wrong);
    None
}

fn window(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    kind: LimitType,
    shared: &Shared,
) -> Option<Window> {
    let rate = matches!(kind, LimitType::Rpm | LimitType::Tpm);
    let algorithm = match fields.get("algorithm") {
        None => Some(Algorithm::default()),
        Some(at) if rate => decoder.word(&at, &ALGORITHMS),
        Some(at) => {
            decoder.error(&at, format!("is for rpm and tpm only, not for {kind}"));
            None
        }
    };
    let zone = match fields.get("timezone") {
        None => Some(shared.zone.clone()),
        Some(at) if !rate && kind != LimitType::Concurrency => governance::zone(decoder, &at),
        Some(at) => {
            decoder.error(&at, format!("is for calendar periods only; a {kind} limit has none"));
            None
        }
    };
    if kind == LimitType::Concurrency {
        if let Some(at) = fields.get("period") {
            decoder.error(&at, "a concurrency limit counts what is in flight now and takes no period");
            return None;
        }
        return algorithm.and(zone).map(|_| Window::Live);
    }
    let at = decoder.required(fields, "period")?;
    if rate {
        let period = rolling_period(decoder, &at);
        return Some(Window::Rolling { period: period?, algorithm: algorithm? });
    }
    let period = calendar_period(decoder, &at, kind);
    algorithm?;
    Some(Window::Calendar { period: period?, zone: zone? })
}

fn rolling_period(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<Span> {
    let (text, _) = decoder.scalar(at)?;
    if CalendarPeriod::parse(&text).is_some() {
        decoder.error(at, format!("rpm and tpm take a duration such as 30s, 1m or 1h, not {}", shown(at)));
        return None;
    }
    let (low, high) =
        (Span::from_secs(bounds::RATE_PERIOD_MIN_SECS), Span::from_secs(bounds::RATE_PERIOD_MAX_SECS));
    server::duration(decoder, at, low, high)
}

fn calendar_period(decoder: &mut Decoder<'_>, at: &At<'_>, kind: LimitType) -> Option<CalendarPeriod> {
    let (text, _) = decoder.scalar(at)?;
    if Span::parse_go(&text).is_ok() {
        decoder.error(at, format!("a {kind} limit takes hour, day, week, month or year, not {}", shown(at)));
        return None;
    }
    decoder.word(at, &PERIODS)
}

fn admit(decoder: &mut Decoder<'_>, fields: &Fields<'_>, kind: LimitType) -> Option<Admit> {
    let Some(at) = fields.get("admit") else { return Some(Admit::default()) };
    if !matches!(kind, LimitType::Tpm | LimitType::QuotaTokens | LimitType::BudgetUsd) {
        decoder.error(&at, format!("is for tpm, quota_tokens and budget_usd only, not for {kind}"));
        return None;
    }
    decoder.word(&at, &[Admit::WhileUnder, Admit::IfFits].map(|admit| (admit.name(), admit)))
}

fn overrides(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    kind: LimitType,
    template: Option<Units>,
) -> Option<OverridePolicy> {
    let Some(at) = fields.get("override") else { return Some(OverridePolicy::default()) };
    let inner = decoder.fields(at.clone(), &["allow", "max_amount", "max_amount_usd"])?;
    let allow = match inner.get("allow") {
        None => Some(false),
        Some(at) => decoder.boolean(&at),
    };
    if allow == Some(true) && !kind.overridable() {
        let reason = match kind {
            LimitType::Concurrency => "its amount is baked into a live gauge",
            _ => "its amount is baked into a per-window store",
        };
        decoder.error(
            &at,
            format!("a {kind} limit takes no overrides: {reason} when it compiles; pin a separate limit at the node"),
        );
        return None;
    }
    let right = ceiling_key(kind);
    let wrong = if right == "max_amount" { "max_amount_usd" } else { "max_amount" };
    let mut ok = true;
    if let Some(at) = inner.get(wrong) {
        decoder.error(&at, format!("a {kind} limit takes {right}, not {wrong}"));
        ok = false;
    }
    let ceiling = match inner.get(right) {
        None => Some(None),
        // Zero is what an omitted ceiling leaves behind, and means the same.
        Some(at) => units(decoder, &at, kind, 0)
            .and_then(|ceiling| above_template(decoder, &at, kind, ceiling, template)),
    };
    let (allow, ceiling) = (allow?, ceiling?);
    ok.then_some(OverridePolicy { allow, ceiling })
}

fn above_template(
    decoder: &mut Decoder<'_>,
    at: &At<'_>,
    kind: LimitType,
    ceiling: Units,
    template: Option<Units>,
) -> Option<Option<Units>> {
    if ceiling == Units::ZERO {
        return Some(None);
    }
    match template {
        Some(template) if ceiling < template => {
            let (key, _) = amount_keys(kind);
            let message =
                format!("below the template {key} {} (an impossible ceiling)", kind.figure(template));
            decoder.error(at, message);
            None
        }
        _ => Some(Some(ceiling)),
    }
}
