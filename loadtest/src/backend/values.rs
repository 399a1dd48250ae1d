//! A backend's options as people write them: `5ms..20ms`, `503`, `close`.

use std::str::FromStr;
use std::time::Duration;

use super::{Failure, Latency};
use crate::duration;

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Latency, String> {
        let Some((low, high)) = text.split_once("..") else {
            return Ok(match duration::parse(text)? {
                Duration::ZERO => Latency::None,
                pause => Latency::Fixed(pause),
            });
        };
        let (low, high) = (duration::parse(low)?, duration::parse(high)?);
        if low > high {
            return Err(format!("{text:?}: the first end of the range is the larger"));
        }
        Ok(Latency::Uniform(low, high))
    }
}

impl FromStr for Failure {
    type Err = String;

    fn from_str(text: &str) -> Result<Failure, String> {
        if text == "close" {
            return Ok(Failure::Close);
        }
        text.parse()
            .ok()
            .filter(|status| (400..=599).contains(status))
            .map(Failure::Status)
            .ok_or_else(|| format!("{text:?} is neither a status from 400 to 599 nor \"close\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_failures_are_read_or_refused() {
        let millis = Duration::from_millis;
        assert_eq!("5ms..20ms".parse(), Ok(Latency::Uniform(millis(5), millis(20))));
        assert_eq!("5ms".parse(), Ok(Latency::Fixed(millis(5))));
        assert_eq!("0".parse(), Ok(Latency::None));
        assert!("20ms..5ms".parse::<Latency>().is_err() && "soon".parse::<Latency>().is_err());
        assert_eq!("close".parse(), Ok(Failure::Close));
        assert_eq!("429".parse(), Ok(Failure::Status(429)));
        assert!("200".parse::<Failure>().is_err() && "x".parse::<Failure>().is_err());
    }
}
