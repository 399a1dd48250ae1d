//! Single values of a scenario file, refused where they stand.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::{bounds, duration};

/// A default that is a whole number.
pub fn of<T: TryFrom<u64> + Default, const N: u64>() -> T {
    T::try_from(N).unwrap_or_default()
}

/// A default that is a time.
pub fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

fn number<'de, D: Deserializer<'de>>(from: D, what: &str, fits: fn(f64) -> bool) -> Result<f64, D::Error> {
    let value = f64::deserialize(from)?;
    match fits(value) {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not {what}"))),
    }
}

/// A number above 0.
pub fn positive<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, "a number above 0", |value| value.is_finite() && value > 0.0)
}

/// A number above 0, of a field that may be absent.
pub fn some_positive<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    positive(from).map(Some)
}

/// A number from 0 on.
pub fn not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, "a number, 0 or more", |value| value.is_finite() && value >= 0.0)
}

/// The same of a field that may be absent.
pub fn some_not_negative<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    not_negative(from).map(Some)
}

/// A share.
pub fn fraction<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    number(from, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

/// The same of a field that may be absent.
pub fn some_fraction<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    fraction(from).map(Some)
}

/// A duration, 0 too.
pub fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration::parse(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// A duration above 0.
pub fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match time(from)? {
        Duration::ZERO => Err(D::Error::custom("it must be longer than 0: write it as 500ms, 10s or 1h")),
        duration => Ok(duration),
    }
}

/// Whatever is written as a text.
pub fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn bounded<'de, D: Deserializer<'de>>(from: D, low: usize, high: usize) -> Result<usize, D::Error> {
    let value = usize::deserialize(from)?;
    match (low..=high).contains(&value) {
        true => Ok(value),
        false => Err(D::Error::custom(format!("{value} is not a number from {low} to {high}"))),
    }
}

/// Connections of a run.
pub fn connections<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    bounded(from, 1, bounds::MAX_CONNECTIONS)
}

/// Bytes of an answer's text.
pub fn answer_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    bounded(from, 0, bounds::MAX_ANSWER_BYTES)
}
