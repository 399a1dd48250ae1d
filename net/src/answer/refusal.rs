//! The 429 that names the cap (SPEC §5), the same for both gates.
//!
//! `Retry-After` is when every tripped cap admits again, rounded up. A cap that never will (the request
//! asks for more than the whole cap, or its model has no price) gives a day: any finite number is a lie
//! there, and this one keeps clients away that obey the header, while `x-should-retry: false` stops the
//! SDKs that ignore delays above a minute.

use super::error::{close, open};
use super::headers::{write_number_header, write_text_header};
use super::{To, whole_seconds, write_json, write_member, write_raw, write_time};
use crate::bounds::NEVER_RETRY_AFTER_SECONDS;
use crate::endpoint::Dialect;
use crate::http1::write::write_header;
use engine::{Cause, LimitType, Refusal, Span, Tripped, Wait, Window};
use std::fmt;

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
        open(out, to, &Sentence(first), kind, code, None);
        write_member(out, "refused_by", &first.instance.limit.id);
        write_member(out, "node", &first.instance.node);
        write_member(out, "limit_type", first.instance.limit.kind);
        write_time(out, "resets_at", first.resets_at);
        write_raw(out, "retryable", retryable);
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
    write_member(out, "limit_id", &limit.id);
    write_member(out, "node", &tripped.instance.node);
    write_member(out, "limit_type", limit.kind);
    write_raw(out, "limit", limit.kind.figure(tripped.instance.amount));
    write_raw(out, "observed", limit.kind.figure(tripped.observed));
    write_raw(out, "held", limit.kind.figure(tripped.held));
    write_time(out, "resets_at", tripped.resets_at);
    out.push(b'}');
}

/// A refusal as a sentence: the limit, the node, what is used of what, and when that changes.
struct Sentence<'a>(&'a Tripped);

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tripped = self.0;
        let (limit, node) = (&tripped.instance.limit, &tripped.instance.node);
        let figure = |units| limit.kind.figure(units);
        let amount = figure(tripped.instance.amount);
        write!(f, "{}: {node} ", limit.id)?;
        if limit.kind == LimitType::Concurrency {
            write!(
                f,
                "has {} of {amount} concurrent requests in flight; try again when one of them has ended",
                figure(tripped.observed)
            )?;
            return f.write_str(".");
        }
        let used =
            format_args!("has used {} of {amount} {}", figure(tripped.observed), Per(tripped)).to_string();
        match tripped.cause {
            Cause::Unpriced => write!(
                f,
                "{used}, and the model has no price, which this limit does not admit; ask for a price for it or use \
                 another model"
            )?,
            Cause::Unavailable => {
                write!(
                    f,
                    "{used}, and this limit cannot be evaluated now, which it does not admit; try again"
                )?;
            }
            Cause::HeldOnly => write!(
                f,
                "{used}, and requests in flight hold {} more; try again when some of them have ended",
                figure(tripped.held)
            )?,
            Cause::Over => {
                f.write_str(&used)?;
                if tripped.wait == Wait::Never {
                    f.write_str("; this request alone asks for more than that, so make it smaller")?;
                } else if tripped.observed < tripped.instance.amount {
                    f.write_str(", which leaves too little for this request")?;
                }
            }
        }
        match (tripped.resets_at, tripped.wait) {
            (Some(at), _) => write!(f, "; it resets at {}", whole_seconds(at))?,
            (None, Wait::For(wait)) if tripped.cause == Cause::Over => {
                write!(
                    f,
                    "; it admits again in {}",
                    Span::from_millis(wait.as_millis_ceil().max(1)).go_string()
                )?;
            }
            _ => {}
        }
        f.write_str(".")
    }
}

/// The unit and the period: `USD per day`, `requests per 1m0s`.
struct Per<'a>(&'a Tripped);

impl fmt::Display for Per<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = &self.0.instance.limit;
        f.write_str(if limit.kind == LimitType::BudgetUsd { "USD" } else { limit.kind.unit() })?;
        match limit.window {
            Window::Live => Ok(()),
            _ => write!(f, " per {}", limit.window.period_text()),
        }
    }
}
