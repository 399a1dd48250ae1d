//! The 429 that names the cap (SPEC §5), the same for both gates.
//!
//! `Retry-After` is when every tripped cap admits again, rounded up. A cap that never will (the request
//! asks for more than the whole cap, or its model has no price) gives a day: any finite number is a lie
//! there, and this one keeps clients away that obey the header, while `x-should-retry: false` stops the
//! SDKs that ignore delays above a minute.

use super::error::{close, open};
use super::headers::{write_go_milliseconds, write_number_header, write_text_header};
use super::{
    Escaped, To, whole_seconds, write_figure, write_figure_member, write_flag, write_json, write_member,
    write_raw, write_time,
};
use crate::bounds::NEVER_RETRY_AFTER_SECONDS;
use crate::endpoint::Dialect;
use crate::http1::write::write_header;
use crate::json::rewrite::write_escaped;
use engine::{Cause, Instance, LimitType, Refusal, Span, Tripped, Wait, Window};
use std::fmt::Write;

/// Append the whole answer to a request that a gate refused.
pub fn write_refusal(out: &mut Vec<u8>, to: &To<'_>, refusal: &Refusal) {
    let first = refusal.refused_by();
    let retryable = refusal.retryable();
    let wait = match refusal.wait() {
        Wait::For(span) => span,
        Wait::Never => Span::from_secs(NEVER_RETRY_AFTER_SECONDS),
    };
    let extra = |out: &mut Vec<u8>| {
        write_text_header(out, "X-Tt-Refused-By", first.instance.limit.id.as_str());
        write_text_header(out, "X-Tt-Refused-Node", first.instance.node.as_str());
        write_number_header(out, "Retry-After", wait.as_secs_ceil().max(1));
        write_number_header(out, "retry-after-ms", wait.as_millis_ceil().max(1));
        write_header(out, "x-should-retry", if retryable { b"true" } else { b"false" });
    };
    write_json(out, to, 429, extra, |out| {
        let code = code_of(first.instance.limit.kind);
        let kind = if to.dialect == Dialect::Anthropic { "rate_limit_error" } else { code };
        open(out, to, |out| write_sentence(out, first), kind, code, None);
        write_member(out, "refused_by", first.instance.limit.id.as_str());
        write_member(out, "node", first.instance.node.as_str());
        write_member(out, "limit_type", first.instance.limit.kind.name());
        write_time(out, "resets_at", first.resets_at);
        write_flag(out, "retryable", retryable);
        write_raw(out, "tripped", "[");
        for (at, tripped) in refusal.tripped.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_tripped(out, tripped);
        }
        out.push(b']');
        close(out, to);
    });
}

/// `insufficient_quota` for budgets and quotas: waiting a little does not help there.
fn code_of(kind: LimitType) -> &'static str {
    match kind {
        LimitType::QuotaRequests | LimitType::QuotaTokens | LimitType::BudgetUsd => "insufficient_quota",
        LimitType::Rpm | LimitType::Concurrency | LimitType::Tpm => "rate_limit_exceeded",
    }
}

fn write_tripped(out: &mut Vec<u8>, tripped: &Tripped) {
    let limit = &tripped.instance.limit;
    out.push(b'{');
    write_member(out, "limit_id", limit.id.as_str());
    write_member(out, "node", tripped.instance.node.as_str());
    write_member(out, "limit_type", limit.kind.name());
    write_figure_member(out, "limit", limit.kind.figure(tripped.instance.amount));
    write_figure_member(out, "observed", limit.kind.figure(tripped.observed));
    write_figure_member(out, "held", limit.kind.figure(tripped.held));
    write_time(out, "resets_at", tripped.resets_at);
    out.push(b'}');
}

/// Append a refusal as a sentence, inside a JSON string: the limit, the node, what is used of what, and when that changes.
fn write_sentence(out: &mut Vec<u8>, tripped: &Tripped) {
    let instance = &tripped.instance;
    let limit = &*instance.limit;
    let figure = |out: &mut Vec<u8>, units| write_figure(out, limit.kind.figure(units));
    write_escaped(out, limit.id.as_str());
    out.extend_from_slice(b": ");
    write_escaped(out, instance.node.as_str());
    if limit.kind == LimitType::Concurrency {
        out.extend_from_slice(b" has ");
        figure(out, tripped.observed);
        out.extend_from_slice(b" of ");
        figure(out, instance.amount);
        return out
            .extend_from_slice(b" concurrent requests in flight; try again when one of them has ended.");
    }
    out.extend_from_slice(b" has used ");
    figure(out, tripped.observed);
    out.extend_from_slice(b" of ");
    figure(out, instance.amount);
    out.push(b' ');
    write_per(out, instance);
    match tripped.cause {
        Cause::Unpriced => out.extend_from_slice(
            b", and the model has no price, which this limit does not admit; ask for a price for it or use another model",
        ),
        Cause::Unavailable => out
            .extend_from_slice(b", and this limit cannot be evaluated now, which it does not admit; try again"),
        Cause::HeldOnly => {
            out.extend_from_slice(b", and requests in flight hold ");
            figure(out, tripped.held);
            out.extend_from_slice(b" more; try again when some of them have ended");
        }
        Cause::Over if tripped.wait == Wait::Never => out
            .extend_from_slice(b"; this request alone asks for more than that, so make it smaller"),
        Cause::Over if tripped.observed < instance.amount => {
            out.extend_from_slice(b", which leaves too little for this request");
        }
        Cause::Over => {}
    }
    match (tripped.resets_at, tripped.wait) {
        (Some(at), _) => {
            // Writing into a vector cannot fail.
            let _ = write!(Escaped(out), "; it resets at {}", whole_seconds(at));
        }
        (None, Wait::For(wait)) if tripped.cause == Cause::Over => {
            out.extend_from_slice(b"; it admits again in ");
            write_go_milliseconds(out, wait.as_millis_ceil().max(1));
        }
        _ => {}
    }
    out.push(b'.');
}

/// The unit and the period: `USD per day`, `requests per 1m0s`.
fn write_per(out: &mut Vec<u8>, instance: &Instance) {
    let kind = instance.limit.kind;
    let unit = if kind == LimitType::BudgetUsd { "USD" } else { kind.unit() };
    out.extend_from_slice(unit.as_bytes());
    if instance.limit.window != Window::Live {
        out.extend_from_slice(b" per ");
        write_escaped(out, instance.identity.period_text());
    }
}
