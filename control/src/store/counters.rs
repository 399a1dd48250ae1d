//! Calendar counters. One row an identity, holding its newest window: an older one can no longer admit or refuse
//! anything.

use engine::{CounterMark, Units, WindowIndex};
use rusqlite::params;
use rusqlite::types::Type;
use serde_json::Value;

use super::{Store, StoreError};

fn dims_json(mark: &CounterMark) -> String {
    let dim = |value: &Option<String>| value.clone().map_or(Value::Null, Value::String);
    Value::Array(vec![dim(&mark.model), dim(&mark.provider), dim(&mark.endpoint)]).to_string()
}

impl Store {
    /// Writes marks in one transaction. A mark of an older window than the stored one changes nothing, so that a
    /// late batch cannot bring a passed window back.
    pub fn write_counters<'m>(
        &mut self,
        marks: impl IntoIterator<Item = &'m CounterMark>,
    ) -> Result<(), StoreError> {
        self.transaction("write the counters", false, |transaction| {
            let mut statement = transaction.prepare_cached(
                "INSERT INTO counters
                     (limit_id, node, dims, period, algorithm, window_index, observed, estimated, unpriced,
                      high_water, uncertain)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT DO UPDATE SET
                     window_index = excluded.window_index, observed = excluded.observed,
                     high_water = excluded.high_water, uncertain = excluded.uncertain,
                     estimated = excluded.estimated, unpriced = excluded.unpriced
                 WHERE excluded.window_index >= window_index",
            )?;
            for mark in marks {
                statement.execute(params![
                    mark.limit_id,
                    mark.node,
                    dims_json(mark),
                    mark.period,
                    mark.algorithm,
                    mark.window.0,
                    mark.observed.0.to_string(),
                    mark.estimated,
                    mark.unpriced,
                    mark.high_water.0.to_string(),
                    mark.uncertain.0.to_string(),
                ])?;
            }
            Ok(())
        })
    }

    /// All counters.
    pub fn counters(&self) -> Result<Vec<CounterMark>, StoreError> {
        let unreadable =
            |column, what: String| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into());
        self.doing("read the counters", |connection| {
            let mut statement = connection.prepare(
                "SELECT limit_id, node, dims, period, algorithm, window_index, observed, estimated, unpriced,
                     high_water, uncertain
                 FROM counters ORDER BY limit_id, node, dims, period, algorithm",
            )?;
            let rows = statement.query_map([], |row| {
                let dims: String = row.get(2)?;
                let [model, provider, endpoint]: [Option<String>; 3] =
                    serde_json::from_str(&dims).map_err(|error| unreadable(2, error.to_string()))?;
                let units = |column| {
                    let digits: String = row.get(column)?;
                    let units = digits.parse().map(Units);
                    units.map_err(|error: std::num::ParseIntError| unreadable(column, error.to_string()))
                };
                Ok(CounterMark {
                    limit_id: row.get(0)?,
                    node: row.get(1)?,
                    model,
                    provider,
                    endpoint,
                    period: row.get(3)?,
                    algorithm: row.get(4)?,
                    window: WindowIndex(row.get(5)?),
                    observed: units(6)?,
                    high_water: units(9)?,
                    uncertain: units(10)?,
                    estimated: row.get(7)?,
                    unpriced: row.get(8)?,
                })
            })?;
            rows.collect()
        })
    }
}
