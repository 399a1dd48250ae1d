//! Durations as the command line writes them: `250us`, `5ms`, `1.5s`, `2m`, `1h`.

use std::time::Duration;

/// Parses one duration. `0` needs no unit.
///
/// # Errors
/// A sentence that says what was given and what is expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write it as 250us, 5ms, 1.5s, 2m or 1h");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds_each = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds_each).map_err(|_| wrong())
}

/// Writes a duration with its largest fitting unit and three digits: `1.50 s`, `250 us`.
pub fn show(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n => (n / 1e3, "us"),
    };
    match value {
        v if v >= 100.0 => format!("{v:.0} {unit}"),
        v if v >= 10.0 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        fn check(text: &str, want: Option<Duration>) {
            assert_eq!(parse(text).ok(), want, "{text}");
        }
        check("0", Some(Duration::ZERO));
        check("250us", Some(Duration::from_micros(250)));
        check("1.5s", Some(Duration::from_millis(1500)));
        check("2m", Some(Duration::from_secs(120)));
        check("10", None);
        check("s", None);
        check("-1s", None);
        check("1.2.3s", None);
        check("1d", None);
    }

    #[test]
    fn durations_are_shown_with_three_digits() {
        fn check(micros: u64, want: &str) {
            assert_eq!(show(Duration::from_micros(micros)), want);
        }
        check(3, "3.00 us");
        check(250, "250 us");
        check(12_340, "12.3 ms");
        check(1_500_000, "1.50 s");
    }
}
