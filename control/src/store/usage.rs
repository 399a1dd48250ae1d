//! Usage, rolled up by hour: written in batches, read by whoever wants to know what was spent.

use engine::{PicoUsd, UsageKey, UsageSum};
use rusqlite::params;

use super::{Store, StoreError};

/// Pico-dollars in a dollar.
const DOLLAR: u128 = 1_000_000_000_000;

/// A count as SQLite keeps it. The largest that fits stands for all beyond it: nine quintillion tokens.
fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whole dollars, and the pico-dollars beyond them.
fn split(cost: PicoUsd) -> (i64, i64) {
    let dollars = i64::try_from(cost.0 / DOLLAR).unwrap_or(i64::MAX);
    (dollars, (cost.0 % DOLLAR) as i64)
}

impl Store {
    /// Adds what was used to the rows of its hours, in one transaction.
    pub fn add_usage<'u>(
        &mut self,
        rows: impl IntoIterator<Item = (&'u UsageKey, &'u UsageSum)>,
    ) -> Result<(), StoreError> {
        self.transaction("write the usage", false, |transaction| {
            let mut statement = transaction.prepare_cached(
                "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
                 ON CONFLICT DO UPDATE SET
                     requests = requests + excluded.requests, estimated = estimated + excluded.estimated,
                     unpriced = unpriced + excluded.unpriced,
                     input_tokens = input_tokens + excluded.input_tokens,
                     cached_tokens = cached_tokens + excluded.cached_tokens,
                     output_tokens = output_tokens + excluded.output_tokens,
                     usd = usd + excluded.usd + (pico_usd + excluded.pico_usd) / 1000000000000,
                     pico_usd = (pico_usd + excluded.pico_usd) % 1000000000000",
            )?;
            for (key, sum) in rows {
                let (dollars, picos) = split(sum.cost);
                statement.execute(params![
                    key.hour,
                    key.node.as_str(),
                    key.kid.as_ref().map_or("", |kid| kid.as_str()),
                    &*key.model,
                    &*key.served,
                    key.provider.as_str(),
                    key.endpoint,
                    integer(sum.requests),
                    integer(sum.estimated),
                    integer(sum.unpriced),
                    integer(sum.input.0),
                    integer(sum.cached_input.0),
                    integer(sum.output.0),
                    dollars,
                    picos,
                ])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::{NodeId, ProviderId, Tokens};

    use super::*;

    fn key(model: &str) -> UsageKey {
        UsageKey {
            hour: 3600,
            kid: None,
            node: NodeId::global(),
            model: model.into(),
            served: model.into(),
            provider: ProviderId::new("local"),
            endpoint: "/v1/chat/completions",
        }
    }

    fn sum(output: u64, cost: u128) -> UsageSum {
        UsageSum { requests: 1, output: Tokens(output), cost: PicoUsd(cost), ..UsageSum::default() }
    }

    #[test]
    fn rows_of_one_identity_add_up_to_the_pico_dollar() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let batches = [
            [(key("a"), sum(3, DOLLAR - 1)), (key("b"), sum(5, 7))],
            [(key("a"), sum(4, 2)), (key("b"), sum(1, 0))],
        ];
        for batch in &batches {
            store.add_usage(batch.iter().map(|(key, sum)| (key, sum))).unwrap();
        }
        let rows: Vec<(String, i64, i64, i64, i64)> = store
            .doing("read", |connection| {
                let mut statement = connection.prepare(
                    "SELECT model, requests, output_tokens, usd, pico_usd FROM usage ORDER BY model",
                )?;
                let rows = statement.query_map([], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })?;
                rows.collect()
            })
            .unwrap();
        assert_eq!(rows, [("a".to_owned(), 2, 7, 1, 1), ("b".to_owned(), 2, 6, 0, 7)]);
    }
}
