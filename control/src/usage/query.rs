//! A question about usage: read from the words of a command line or of a URL, the same for both.

use std::fmt;
use std::ops::Range;

use engine::{Glob, NodeId, Zone};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Group;
use crate::bounds;
use crate::store::{UsageRecord, hexadecimal};

/// Seconds of the rows' period.
const HOUR: i64 = 3600;

/// What usage can be grouped by.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Column {
    /// The node that owns the key.
    Node,
    /// The key.
    Key,
    /// The model asked for.
    Model,
    /// The model served.
    Served,
    /// Who served it.
    Provider,
    /// The normalised path.
    Endpoint,
    /// The hour of admission.
    Hour,
    /// The calendar day of admission.
    Day,
}

impl Column {
    /// All columns.
    pub const ALL: [Column; 8] = [
        Column::Node,
        Column::Key,
        Column::Model,
        Column::Served,
        Column::Provider,
        Column::Endpoint,
        Column::Hour,
        Column::Day,
    ];

    /// The word to ask for it by.
    pub const fn name(self) -> &'static str {
        match self {
            Column::Node => "node",
            Column::Key => "key",
            Column::Model => "model",
            Column::Served => "served",
            Column::Provider => "provider",
            Column::Endpoint => "endpoint",
            Column::Hour => "hour",
            Column::Day => "day",
        }
    }

    /// The member of a row that holds it: a key is shown by its kid.
    pub const fn member(self) -> &'static str {
        match self {
            Column::Key => "kid",
            other => other.name(),
        }
    }

    fn parse(text: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.name() == text || column.member() == text)
    }
}

/// A question as it is asked; what is absent has its default.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What to group by, separated by commas; `node,model,day`.
    pub by: Option<String>,
    /// Only this node and below.
    pub node: Option<String>,
    /// Only this key, by its kid.
    pub key: Option<String>,
    /// Only models asked for that match this pattern.
    pub model: Option<String>,
    /// From when on: a date, whose day begins in the zone, or a time, whose hour counts.
    pub from: Option<String>,
    /// Until when: a date, whose day counts, or a time, whose hour counts if it has begun by then.
    pub to: Option<String>,
    /// The zone of days; the config's `governance.timezone`.
    pub timezone: Option<String>,
    /// Whether a node's row holds what was spent below it too.
    pub subtree: bool,
    /// Rows of a page.
    pub limit: Option<usize>,
    /// Where the page begins: what the page before said.
    pub cursor: Option<String>,
}

/// What is wrong with a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wrong {
    /// The part that is wrong, by its name in [`Asked`].
    pub field: &'static str,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.field, self.reason)
    }
}

/// A question that can be answered.
#[derive(Clone, Debug)]
pub struct Query {
    /// What to group by; each column once.
    pub by: Vec<Column>,
    /// The zone of days.
    pub zone: Zone,
    /// Whether a node's row holds what was spent below it too.
    pub subtree: bool,
    /// Rows of a page.
    pub limit: usize,
    pub(super) node: Option<NodeId>,
    /// The node that the asker is bound to.
    bound: Option<NodeId>,
    kid: Option<String>,
    model: Option<Glob>,
    pub(super) hours: Range<i64>,
    pub(super) after: Option<Group>,
}

impl Query {
    /// Reads a question. `zone` holds where none is named.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub fn read(asked: &Asked, zone: &Zone) -> Result<Query, Wrong> {
        let by = columns(asked.by.as_deref().unwrap_or("node,model,day"))?;
        let zone = asked.timezone.as_deref().map_or(Ok(zone.clone()), named_zone)?;
        let limit = asked.limit.unwrap_or(bounds::PAGE_ROWS);
        if !(1..=bounds::USAGE_ROWS).contains(&limit) {
            return Err(wrong("limit", format!("{limit} is not between 1 and {}", bounds::USAGE_ROWS)));
        }
        let model = asked.model.as_deref().map(|pattern| {
            Glob::new(pattern).map_err(|error| wrong("model", format!("{pattern:?}: {error}")))
        });
        let after = asked.cursor.as_deref().map(|text| {
            read_cursor(text, &by)
                .ok_or_else(|| wrong("cursor", "it is not one that this question gave out".to_owned()))
        });
        Ok(Query {
            hours: hours(asked, &zone.zone)?,
            node: asked.node.as_deref().map(NodeId::new),
            bound: None,
            kid: asked.key.clone(),
            model: model.transpose()?,
            after: after.transpose()?,
            subtree: asked.subtree,
            by,
            zone,
            limit,
        })
    }

    /// The same question of somebody who is bound to a node: nothing outside of it counts, nor what is out of charset.
    /// Whether the asker may ask for the node that the question names is to be checked before.
    #[must_use]
    pub fn seen_by(self, bound: Option<&NodeId>) -> Query {
        Query { bound: bound.cloned(), ..self }
    }

    /// Whether the row counts.
    pub(super) fn lets_pass(&self, row: &UsageRecord<'_>, node: &NodeId) -> bool {
        self.shows(node)
            && self.kid.as_deref().is_none_or(|kid| kid == row.kid)
            && self.model.as_ref().is_none_or(|model| model.matches(row.model))
    }

    /// Whether the node is the one asked for or below it, and the asker may see it.
    pub(super) fn shows(&self, node: &NodeId) -> bool {
        self.node.as_ref().is_none_or(|asked| asked.covers(node))
            && self.bound.as_ref().is_none_or(|own| own.in_charset() && node.in_charset() && own.covers(node))
    }

    /// The cursor behind a group: the columns and their values, so that a cursor of another grouping is seen to be one.
    pub(super) fn cursor(&self, group: &[String]) -> String {
        let names = self.by.iter().map(|column| column.name());
        let parts: Vec<&str> = names.chain(group.iter().map(String::as_str)).collect();
        hexadecimal(serde_json::Value::from(parts).to_string().as_bytes())
    }
}

fn wrong(field: &'static str, reason: String) -> Wrong {
    Wrong { field, reason }
}

fn columns(text: &str) -> Result<Vec<Column>, Wrong> {
    let mut by = Vec::new();
    for name in text.split(',') {
        let column = Column::parse(name.trim()).ok_or_else(|| {
            let names = Column::ALL.map(Column::name).join(", ");
            wrong("by", format!("{name:?} is none of {names}"))
        })?;
        if by.contains(&column) {
            return Err(wrong("by", format!("{} is named twice", column.name())));
        }
        by.push(column);
    }
    Ok(by)
}

fn named_zone(name: &str) -> Result<Zone, Wrong> {
    let zone = TimeZone::get(name).map_err(|error| wrong("timezone", error.to_string()))?;
    Ok(Zone { name: name.into(), zone })
}

/// The hours between the two times.
fn hours(asked: &Asked, zone: &TimeZone) -> Result<Range<i64>, Wrong> {
    let bound = |field, text: &Option<String>, end| {
        text.as_deref().map(|text| hour(text, zone, end).map_err(|reason| wrong(field, reason))).transpose()
    };
    let from = bound("from", &asked.from, false)?.unwrap_or(i64::MIN);
    let to = bound("to", &asked.to, true)?.unwrap_or(i64::MAX);
    if to <= from {
        return Err(wrong("to", "it is not after `from`".to_owned()));
    }
    Ok(from..to)
}

/// The first hour of a span that begins with `text`, or the first one behind a span that ends with it.
fn hour(text: &str, zone: &TimeZone, end: bool) -> Result<i64, String> {
    let up = |second: i64| second.div_euclid(HOUR) + i64::from(second.rem_euclid(HOUR) > 0);
    if let Ok(at) = text.parse::<Timestamp>() {
        let second = at.as_second() + i64::from(at.subsec_nanosecond() > 0 && end);
        return Ok(HOUR * if end { up(second) } else { second.div_euclid(HOUR) });
    }
    // A date with a time but no offset would be read as the date alone.
    let date = text.parse::<Date>().ok().filter(|_| text.len() == "2026-08-01".len());
    let date = date.ok_or_else(|| {
        format!("{text:?} is neither a date, such as 2026-08-01, nor a time, such as 2026-08-01T10:00:00Z")
    })?;
    let day = if end { date.tomorrow() } else { Ok(date) };
    let start = day
        .and_then(|day| day.to_zoned_datetime(zone.clone()))
        .map_err(|error| format!("{text:?}: {error}"))?;
    // An hour is of the day in which it begins.
    Ok(HOUR * up(start.timestamp().as_second()))
}

fn read_cursor(text: &str, by: &[Column]) -> Option<Group> {
    if text.len() > bounds::USAGE_CURSOR_BYTES || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let parts: Vec<String> = serde_json::from_slice(&bytes.collect::<Option<Vec<u8>>>()?).ok()?;
    let (names, group) = parts.split_at_checked(by.len())?;
    let same = group.len() == by.len() && names.iter().zip(by).all(|(name, column)| *name == column.name());
    same.then(|| group.to_vec())
}
