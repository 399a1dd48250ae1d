//! Headers that the gateway adds to a success: the tightest rate caps and the alerts (SPEC §5).

use super::text::Text;
use crate::endpoint::Dialect;
use crate::http1::Role;
use crate::http1::write::write_number;
use engine::{RateLeft, Span, Units};
use jiff::Timestamp;
use std::io::Write;

/// What stands in front of limit, remaining and reset: of requests, then of tokens.
const OPENAI: [[&str; 3]; 2] = [
    [
        "x-ratelimit-limit-requests: ",
        "\r\nx-ratelimit-remaining-requests: ",
        "\r\nx-ratelimit-reset-requests: ",
    ],
    ["x-ratelimit-limit-tokens: ", "\r\nx-ratelimit-remaining-tokens: ", "\r\nx-ratelimit-reset-tokens: "],
];
const ANTHROPIC: [[&str; 3]; 2] = [
    [
        "anthropic-ratelimit-requests-limit: ",
        "\r\nanthropic-ratelimit-requests-remaining: ",
        "\r\nanthropic-ratelimit-requests-reset: ",
    ],
    [
        "anthropic-ratelimit-tokens-limit: ",
        "\r\nanthropic-ratelimit-tokens-remaining: ",
        "\r\nanthropic-ratelimit-tokens-reset: ",
    ],
];

/// Append the rate headers for the tightest rpm and tpm of the chain, as whole lines.
///
/// OpenAI's names with Go durations, rounded up to the millisecond so that they stay ASCII; on Anthropic
/// paths its names with the moment of the reset, rounded up to the second. Returns the role of the
/// backend's headers that these stand in for, as [`crate::http1::write::RelayedHead::replaces`] wants it.
pub fn write_rate_headers(
    out: &mut Vec<u8>,
    dialect: Dialect,
    requests: Option<RateLeft>,
    tokens: Option<RateLeft>,
    now: Timestamp,
) -> Option<Role> {
    let anthropic = dialect == Dialect::Anthropic;
    let (names, role) =
        if anthropic { (&ANTHROPIC, Role::AnthropicRateLimit) } else { (&OPENAI, Role::RateLimit) };
    // Counts are configured as u64.
    let count = |units: Units| u64::try_from(units.0).unwrap_or(u64::MAX);
    for ([limit, remaining, reset], left) in names.iter().zip([requests, tokens]) {
        let Some(left) = left else { continue };
        out.extend_from_slice(limit.as_bytes());
        write_number(out, count(left.limit));
        out.extend_from_slice(remaining.as_bytes());
        write_number(out, count(left.remaining));
        out.extend_from_slice(reset.as_bytes());
        match anthropic {
            // Writing into a vector cannot fail.
            true => _ = write!(out, "{}", moment(now, left.reset)),
            false => write_go_milliseconds(out, left.reset.as_millis_ceil()),
        }
        out.extend_from_slice(b"\r\n");
    }
    requests.or(tokens).map(|_| role)
}

/// Append a duration as Go prints it, as the engine's `Span::go_string` does for people: that one goes through the standard
/// formatter, which the path of every request does without.
pub(super) fn write_go_milliseconds(out: &mut Vec<u8>, milliseconds: u64) {
    if (1..1000).contains(&milliseconds) {
        write_number(out, milliseconds);
        return out.extend_from_slice(b"ms");
    }
    let (minutes, left) = (milliseconds / 60_000, (milliseconds % 60_000) as u32);
    if minutes >= 60 {
        write_number(out, minutes / 60);
        out.push(b'h');
    }
    if minutes > 0 {
        write_number(out, minutes % 60);
        out.push(b'm');
    }
    let [tens, ones, tenths, hundredths, thousandths] =
        [10_000, 1000, 100, 10, 1].map(|place| b'0' + (left / place % 10) as u8);
    let mut text = [tens, ones, b'.', tenths, hundredths, thousandths, b's'];
    // Neither a zero in front of the seconds nor one behind their fraction, nor a point behind which nothing is left.
    let from = usize::from(left < 10_000);
    let end = match left % 1000 {
        0 => 2,
        below if below % 100 == 0 => 4,
        below if below % 10 == 0 => 5,
        _ => 6,
    };
    text[end] = b's';
    out.extend_from_slice(&text[from..=end]);
}

/// The first whole second at which `wait` is over.
fn moment(now: Timestamp, wait: Span) -> Timestamp {
    let at = now.as_nanosecond() + i128::from(wait.0);
    let second = i64::try_from(at.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    let up = i64::from(at.rem_euclid(1_000_000_000) > 0);
    Timestamp::from_second(second.saturating_add(up)).unwrap_or(Timestamp::MAX)
}

/// Append `X-Tt-Alert: <limit id>`.
pub fn write_alert(out: &mut Vec<u8>, limit_id: &str) {
    out.extend_from_slice(b"X-Tt-Alert: ");
    Text::new(limit_id).write_in_header(out);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_engine_prints_them() {
        let steps =
            [0, 1, 9, 10, 99, 100, 120, 999, 1000, 1001, 1010, 1100, 59_999, 60_000, 61_500, 3_599_999];
        let long = [3_600_000, 3_600_007, 86_400_000, 90_061_230, 2_678_400_000];
        for milliseconds in steps.into_iter().chain(long).chain((0..400).map(|step| step * 97_531)) {
            let mut out = Vec::new();
            write_go_milliseconds(&mut out, milliseconds);
            let wanted = Span::from_millis(milliseconds).go_string().to_string();
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{milliseconds} ms");
        }
    }
}
