//! The runtime plane: nodes and overrides created while the gateway runs. Read at each arm and folded into the tree.

use rusqlite::types::Type;

use super::{Store, StoreError};

/// What the runtime plane holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RuntimePlane {
    /// Node ids, as given, in lexical order.
    pub nodes: Vec<String>,
    /// Limit id, node, and the amount: a count or pico-USD.
    pub overrides: Vec<(String, String, u128)>,
    /// The number of the last audit row when this was read: whoever reads on from here misses no write.
    pub as_of: i64,
}

impl Store {
    /// The whole runtime plane.
    pub fn runtime_plane(&self) -> Result<RuntimePlane, StoreError> {
        let as_of = self.last_audit_row()?;
        self.doing("read the runtime plane", |connection| {
            let mut statement = connection.prepare("SELECT node FROM nodes ORDER BY node")?;
            let nodes = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let mut statement =
                connection.prepare("SELECT limit_id, node, amount FROM overrides ORDER BY limit_id, node")?;
            let overrides = statement
                .query_map([], |row| {
                    let amount: String = row.get(2)?;
                    let amount = amount.parse().map_err(|error| {
                        rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error))
                    })?;
                    Ok((row.get(0)?, row.get(1)?, amount))
                })?
                .collect::<rusqlite::Result<_>>()?;
            Ok(RuntimePlane { nodes, overrides, as_of })
        })
    }
}
