//! `GET /tt/v1/me`: a key's chain, scopes and caps, field for field as the hierarchy page shows it.
//!
//! Added to each cap: `held` (counts) or `held_usd` (spend), what requests in flight hold; and, in a window that a crash
//! fell into, `uncertain` or `uncertain_usd`, the part of `observed` that was set aside to be spent and may not have
//! been. `remaining` is what is not observed, and never below zero.

use super::{
    To, write_figure_member, write_flag, write_json, write_member, write_name, write_raw, write_resets_at,
};
use crate::json::rewrite::write_string;
use engine::{Class, Glob, Instance, Key, Reading, Units, Window, window_at};
use jiff::Timestamp;

/// Append the whole answer. `caps`: gate 1 first, then gate 2, each in evaluation order.
pub fn write_me<'c>(
    out: &mut Vec<u8>,
    to: &To<'_>,
    key: &Key,
    caps: impl IntoIterator<Item = (&'c Instance, Reading)>,
    now: Timestamp,
) {
    write_json(
        out,
        to,
        200,
        |_| {},
        |out| {
            out.push(b'{');
            write_member(out, "kid", key.kid.as_str());
            write_member(out, "node", key.owner.as_str());
            write_list(out, "chain", key.chain.nodes().iter().map(|node| node.as_str()));
            write_raw(out, "scopes", "{");
            write_globs(out, "models", key.scopes.models.as_deref());
            write_globs(out, "providers", key.scopes.providers.as_deref());
            write_globs(out, "endpoints", key.scopes.endpoints.as_deref());
            write_flag(out, "allow_passthrough", key.scopes.allow_passthrough);
            out.push(b'}');
            write_raw(out, "limits", "[");
            for (at, (instance, reading)) in caps.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_cap(out, instance, &reading, now);
            }
            out.extend_from_slice(b"]}");
        },
    );
}

fn write_globs(out: &mut Vec<u8>, name: &str, globs: Option<&[Glob]>) {
    match globs {
        Some(globs) => write_list(out, name, globs.iter().map(Glob::pattern)),
        None => write_raw(out, name, "null"),
    }
}

fn write_list<'t>(out: &mut Vec<u8>, name: &str, texts: impl Iterator<Item = &'t str>) {
    write_name(out, name);
    out.push(b'[');
    for (at, text) in texts.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, text);
    }
    out.push(b']');
}

fn write_cap(out: &mut Vec<u8>, instance: &Instance, reading: &Reading, now: Timestamp) {
    let limit = &*instance.limit;
    out.push(b'{');
    write_member(out, "limit_id", limit.id.as_str());
    write_member(out, "type", limit.kind.name());
    write_member(out, "class", limit.kind.class().name());
    write_member(out, "unit", limit.kind.unit());
    write_member(out, "node", instance.node.as_str());
    write_member(out, "period", &limit.window.period_text());
    if let Window::Calendar { period, zone } = &limit.window {
        let resets_at = reading.resets_at.unwrap_or_else(|| window_at(*period, &zone.zone, now).resets_at);
        write_resets_at(out, Some(resets_at));
    }
    write_flag(out, "suspended", limit.suspended);
    write_raw(out, "posture", "{");
    write_member(out, "mode", limit.posture.mode.name());
    write_member(out, "enforce", limit.posture.enforce.name());
    write_member(out, "fail", limit.posture.fail.name());
    out.push(b'}');
    let remaining = instance.amount.saturating_sub(reading.observed);
    match limit.kind.class() {
        Class::Count => {
            for (name, units) in [
                ("amount", instance.amount),
                ("observed", reading.observed),
                ("remaining", remaining),
                ("held", reading.held),
            ] {
                write_figure_member(out, name, limit.kind.figure(units));
            }
            if reading.uncertain > Units::ZERO {
                write_figure_member(out, "uncertain", limit.kind.figure(reading.uncertain));
            }
        }
        Class::Spend => {
            let (estimated, unpriced) = (reading.estimated, reading.unpriced);
            let held = reading.held > Units::ZERO; // a hold is an estimate by its nature
            write_money(out, "limit_usd", instance, instance.amount, (false, false));
            write_money(out, "observed_usd", instance, reading.observed, (estimated, unpriced));
            write_money(out, "remaining_usd", instance, remaining, (estimated, unpriced));
            write_money(out, "held_usd", instance, reading.held, (held, false));
            if reading.uncertain > Units::ZERO {
                write_money(out, "uncertain_usd", instance, reading.uncertain, (true, false));
            }
        }
    }
    out.push(b'}');
}

fn write_money(out: &mut Vec<u8>, name: &str, of: &Instance, units: Units, flags: (bool, bool)) {
    write_raw(out, name, "{");
    write_figure_member(out, "usd", of.limit.kind.figure(units));
    write_flag(out, "estimated", flags.0);
    write_flag(out, "unpriced", flags.1);
    out.push(b'}');
}
