//! Where a page of a list ended, as a text that stands in a query string whatever ids hold: their bytes in hexadecimal.

use super::error::ApiError;
use crate::store::hexadecimal;

/// The cursor of a row's key.
pub fn write(key: &str) -> String {
    hexadecimal(key.as_bytes())
}

/// The key that a `cursor` was made of; an empty one begins at the beginning.
///
/// # Errors
/// 400 when no list made it.
pub fn after(cursor: Option<&str>) -> Result<Option<String>, ApiError> {
    cursor.filter(|cursor| !cursor.is_empty()).map(read).transpose()
}

fn read(cursor: &str) -> Result<String, ApiError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = cursor.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .ok_or_else(|| ApiError::invalid("cursor", "the cursor is not one that a list gave out"))
}

/// Cuts what was read of a list, one row more than asked for, down to the page; the cursor of its last row when
/// there was more.
pub fn cut<T>(mut rows: Vec<T>, count: usize, key: impl Fn(&T) -> String) -> (Vec<T>, Option<String>) {
    let more = rows.len() > count;
    rows.truncate(count);
    let next = rows.last().filter(|_| more).map(|row| write(&key(row)));
    (rows, next)
}
