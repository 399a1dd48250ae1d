//! The 429 that names the cap (SPEC §5), the same for both gates.
//!
//! `Retry-After` is when every tripped cap admits again, rounded up. A cap that never will (the request
//! asks for more than the whole cap, or its model has no price) gives a day: any finite number is a lie
//! there, and this one keeps clients away that obey the header, while `x-should-retry: false` stops the
//! SDKs that ignore delays above a minute.

use super::error::{close, open};
use super::headers::write_go_milliseconds;
use super::text::Text;
use super::{Escaped, To, whole_seconds, write_figure, write_json, write_resets_at};
use crate::bounds::NEVER_RETRY_AFTER_SECONDS;
use crate::endpoint::Dialect;
use crate::http1::write::write_number;
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
    let cap = Cap::of(first);
    let extra = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"X-Tt-Refused-By: ");
        cap.id.write_in_header(out);
        out.extend_from_slice(b"\r\nX-Tt-Refused-Node: ");
        cap.node.write_in_header(out);
        out.extend_from_slice(b"\r\nRetry-After: ");
        write_number(out, wait.as_secs_ceil().max(1));
        out.extend_from_slice(b"\r\nretry-after-ms: ");
        write_number(out, wait.as_millis_ceil().max(1));
        out.extend_from_slice(match retryable {
            true => b"\r\nx-should-retry: true\r\n",
            false => &b"\r\nx-should-retry: false\r\n"[..],
        });
    };
    write_json(out, to, 429, extra, |out| {
        let code = code_of(cap.kind);
        let kind = if to.dialect == Dialect::Anthropic { "rate_limit_error" } else { code };
        open(out, to, |out| write_sentence(out, &cap, first), kind, code, None);
        out.extend_from_slice(br#","refused_by":""#);
        cap.write(out);
        write_resets_at(out, first.resets_at);
        out.extend_from_slice(match retryable {
            true => br#","retryable":true,"tripped":["#,
            false => &br#","retryable":false,"tripped":["#[..],
        });
        write_tripped(out, &cap, first);
        for tripped in &refusal.tripped[1..] {
            out.push(b',');
            write_tripped(out, &Cap::of(tripped), tripped);
        }
        out.push(b']');
        close(out, to);
    });
}

/// What a cap is called.
struct Cap<'a> {
    id: Text<'a>,
    node: Text<'a>,
    kind: LimitType,
}

impl Cap<'_> {
    fn of(tripped: &Tripped) -> Cap<'_> {
        let Instance { limit, node, .. } = &tripped.instance;
        Cap { id: Text::new(limit.id.as_str()), node: Text::new(node.as_str()), kind: limit.kind }
    }

    /// Append what follows the quote in front of the id, up to the one behind the limit's type.
    fn write(&self, out: &mut Vec<u8>) {
        self.id.write_in_json(out);
        out.extend_from_slice(br#"","node":""#);
        self.node.write_in_json(out);
        out.extend_from_slice(br#"","limit_type":""#);
        out.extend_from_slice(self.kind.name().as_bytes());
        out.push(b'"');
    }
}

/// `insufficient_quota` for budgets and quotas: waiting a little does not help there.
fn code_of(kind: LimitType) -> &'static str {
    match kind {
        LimitType::QuotaRequests | LimitType::QuotaTokens | LimitType::BudgetUsd => "insufficient_quota",
        LimitType::Rpm | LimitType::Concurrency | LimitType::Tpm => "rate_limit_exceeded",
    }
}

fn write_tripped(out: &mut Vec<u8>, cap: &Cap<'_>, tripped: &Tripped) {
    let figure = |out: &mut Vec<u8>, units| write_figure(out, cap.kind.figure(units));
    out.extend_from_slice(br#"{"limit_id":""#);
    cap.write(out);
    out.extend_from_slice(br#","limit":"#);
    figure(out, tripped.instance.amount);
    out.extend_from_slice(br#","observed":"#);
    figure(out, tripped.observed);
    out.extend_from_slice(br#","held":"#);
    figure(out, tripped.held);
    write_resets_at(out, tripped.resets_at);
    out.push(b'}');
}

/// Append a refusal as a sentence, inside a JSON string: the limit, the node, what is used of what, and when that changes.
fn write_sentence(out: &mut Vec<u8>, cap: &Cap<'_>, tripped: &Tripped) {
    let instance = &tripped.instance;
    let figure = |out: &mut Vec<u8>, units| write_figure(out, cap.kind.figure(units));
    cap.id.write_in_json(out);
    out.extend_from_slice(b": ");
    cap.node.write_in_json(out);
    if cap.kind == LimitType::Concurrency {
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
        Text::new(instance.identity.period_text()).write_in_json(out);
    }
}
