//! Single values of the command line.

use std::path::Path;

/// A header field.
pub fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} is no header field: write it as \"Name: value\""))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn number(text: &str, what: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    text.parse().ok().filter(|value| fits(*value)).ok_or_else(|| format!("{text:?} is not {what}"))
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, "a number above 0", |value| value.is_finite() && value > 0.0)
}

/// A number from 0 on.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, "a number, 0 or more", |value| value.is_finite() && value >= 0.0)
}

/// A share.
pub fn fraction(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value))
}

/// The bytes of a file.
pub fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The lines of a file of bearer tokens, or none without a file.
pub fn bearers(path: Option<&Path>) -> Result<Vec<String>, String> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let text = String::from_utf8(read_file(path)?);
    let text = text.map_err(|_| format!("{}: it is no text", path.display()))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return Err(format!("{}: it has no line", path.display()));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(header("A:b: c"), Ok(("A".into(), "b: c".into())));
        assert!(header("A").is_err());
        assert!(fraction("1.5").is_err() && positive("0").is_err() && not_negative("inf").is_err());
        let error = bearers(Some(Path::new("/no/such/file"))).expect_err("no file");
        assert!(error.starts_with("/no/such/file: "), "{error}");
    }
}
