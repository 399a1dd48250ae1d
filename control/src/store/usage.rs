//! Usage, rolled up by hour: written in batches, read by whoever wants to know what was spent.

use std::ops::Range;

use engine::{PicoUsd, Tokens, UsageKey, UsageSum};
use rusqlite::{Row, params};

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

/// A row as it is read: its names are borrowed, so that a scan copies only what it keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageRecord<'r> {
    /// The first second of its hour, since 1970, UTC.
    pub hour: i64,
    /// The key's owner; `__global` for keyless traffic.
    pub node: &'r str,
    /// The key; empty for keyless traffic.
    pub kid: &'r str,
    /// The model asked for.
    pub model: &'r str,
    /// The model served.
    pub served: &'r str,
    /// Who served it.
    pub provider: &'r str,
    /// The normalised path.
    pub endpoint: &'r str,
    /// What was used.
    pub sum: UsageSum,
}

impl<'r> UsageRecord<'r> {
    fn read(row: &'r Row<'_>) -> rusqlite::Result<UsageRecord<'r>> {
        let text = |column| row.get_ref(column).and_then(|value| Ok(value.as_str()?));
        // Nothing negative is ever written.
        let count = |column| row.get(column).map(|count: i64| u64::try_from(count).unwrap_or_default());
        let money = |dollars, picos| {
            Ok::<_, rusqlite::Error>(PicoUsd(
                u128::from(count(dollars)?) * DOLLAR + u128::from(count(picos)?),
            ))
        };
        Ok(UsageRecord {
            hour: row.get(0)?,
            node: text(1)?,
            kid: text(2)?,
            model: text(3)?,
            served: text(4)?,
            provider: text(5)?,
            endpoint: text(6)?,
            sum: UsageSum {
                requests: count(7)?,
                estimated: count(8)?,
                unpriced: count(9)?,
                input: Tokens(count(10)?),
                cached_input: Tokens(count(11)?),
                output: Tokens(count(12)?),
                cost: money(13, 14)?,
                cache_write: Tokens(count(15)?),
                audio_input: Tokens(count(16)?),
                image_input: Tokens(count(17)?),
                reasoning: Tokens(count(18)?),
                audio_output: Tokens(count(19)?),
                image_output: Tokens(count(20)?),
                images: count(21)?,
            },
        })
    }
}

impl Store {
    /// Shows `each` the rows whose hour begins in `hours`, by ascending hour, as they stand at one moment.
    pub fn each_usage(
        &self,
        hours: Range<i64>,
        mut each: impl FnMut(&UsageRecord<'_>),
    ) -> Result<(), StoreError> {
        self.doing("read the usage", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT hour, node, kid, model, served, provider, endpoint, requests, estimated, unpriced,
                     input_tokens, cached_tokens, output_tokens, usd, pico_usd, cache_write_tokens,
                     audio_input_tokens, image_input_tokens, reasoning_tokens, audio_output_tokens,
                     image_output_tokens, images
                 FROM usage WHERE hour >= ?1 AND hour < ?2 ORDER BY hour",
            )?;
            let mut rows = statement.query([hours.start, hours.end])?;
            while let Some(row) = rows.next()? {
                each(&UsageRecord::read(row)?);
            }
            Ok(())
        })
    }

    /// Adds what was used to the rows of its hours, in one transaction.
    ///
    /// Sums stop at the largest integer: SQLite would go on as a float, which the column refuses, and a backend that
    /// reports nonsense twice would keep everybody's usage from being written.
    pub fn add_usage<'u>(
        &mut self,
        rows: impl IntoIterator<Item = (&'u UsageKey, &'u UsageSum)>,
    ) -> Result<(), StoreError> {
        self.transaction("write the usage", false, |transaction| {
            let mut statement = transaction.prepare_cached(
                "INSERT INTO usage VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
                     ?20, ?21, ?22, ?23)
                 ON CONFLICT DO UPDATE SET
                     requests = min(requests + excluded.requests, ?1),
                     estimated = min(estimated + excluded.estimated, ?1),
                     unpriced = min(unpriced + excluded.unpriced, ?1),
                     input_tokens = min(input_tokens + excluded.input_tokens, ?1),
                     cached_tokens = min(cached_tokens + excluded.cached_tokens, ?1),
                     output_tokens = min(output_tokens + excluded.output_tokens, ?1),
                     cache_write_tokens = min(cache_write_tokens + excluded.cache_write_tokens, ?1),
                     audio_input_tokens = min(audio_input_tokens + excluded.audio_input_tokens, ?1),
                     image_input_tokens = min(image_input_tokens + excluded.image_input_tokens, ?1),
                     reasoning_tokens = min(reasoning_tokens + excluded.reasoning_tokens, ?1),
                     audio_output_tokens = min(audio_output_tokens + excluded.audio_output_tokens, ?1),
                     image_output_tokens = min(image_output_tokens + excluded.image_output_tokens, ?1),
                     images = min(images + excluded.images, ?1),
                     usd = min(usd + excluded.usd + (pico_usd + excluded.pico_usd) / 1000000000000, ?1),
                     pico_usd = (pico_usd + excluded.pico_usd) % 1000000000000",
            )?;
            for (key, sum) in rows {
                let (dollars, picos) = split(sum.cost);
                statement.execute(params![
                    i64::MAX,
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
                    integer(sum.cache_write.0),
                    integer(sum.audio_input.0),
                    integer(sum.image_input.0),
                    integer(sum.reasoning.0),
                    integer(sum.audio_output.0),
                    integer(sum.image_output.0),
                    integer(sum.images),
                ])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use engine::{NodeId, ProviderId};

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
        let mut rows = Vec::new();
        store.each_usage(3600..3601, |row| rows.push((row.model.to_owned(), row.sum))).unwrap();
        let wanted = |output, cost| UsageSum { requests: 2, ..sum(output, cost) };
        assert_eq!(rows, [("a".to_owned(), wanted(7, DOLLAR + 1)), ("b".to_owned(), wanted(6, 7))]);
        for hours in [0..3600, 3601..i64::MAX] {
            store.each_usage(hours, |row| panic!("{row:?}")).unwrap();
        }
    }

    #[test]
    fn each_kind_of_tokens_keeps_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let kinds = UsageSum {
            requests: 1,
            estimated: 2,
            unpriced: 3,
            input: Tokens(4),
            cached_input: Tokens(5),
            cache_write: Tokens(6),
            audio_input: Tokens(7),
            image_input: Tokens(8),
            output: Tokens(9),
            reasoning: Tokens(10),
            audio_output: Tokens(11),
            image_output: Tokens(12),
            images: 13,
            cost: PicoUsd(14),
        };
        let mut twice = kinds;
        twice.add(&kinds);
        for wanted in [kinds, twice] {
            store.add_usage([(&key("a"), &kinds)]).unwrap();
            store.each_usage(0..i64::MAX, |row| assert_eq!(row.sum, wanted)).unwrap();
        }
    }

    #[test]
    fn rows_from_before_kinds_were_told_apart_stay_and_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let old = super::super::schema::made_by(folder.path(), 4);
        old.execute_batch(
            "INSERT INTO usage VALUES (3600, '__global', '', 'a', 'a', 'local', '/v1/chat/completions', 1, 0, 0, 5, 2, 3, 0, 7)",
        )
        .unwrap();
        drop(old);
        let mut store = Store::open(folder.path()).unwrap();
        let before = UsageSum { input: Tokens(5), cached_input: Tokens(2), ..sum(3, 7) };
        store.each_usage(0..i64::MAX, |row| assert_eq!(row.sum, before)).unwrap();
        let more = UsageSum { reasoning: Tokens(1), ..sum(3, 7) };
        store.add_usage([(&key("a"), &more)]).unwrap();
        let mut wanted = before;
        wanted.add(&more);
        store.each_usage(0..i64::MAX, |row| assert_eq!(row.sum, wanted)).unwrap();
    }

    #[test]
    fn sums_stop_at_the_largest_integer_and_keep_nobody_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        let huge = UsageSum {
            requests: u64::MAX,
            estimated: u64::MAX,
            unpriced: u64::MAX,
            input: Tokens(u64::MAX),
            cached_input: Tokens(u64::MAX),
            cache_write: Tokens(u64::MAX),
            audio_input: Tokens(u64::MAX),
            image_input: Tokens(u64::MAX),
            output: Tokens(u64::MAX),
            reasoning: Tokens(u64::MAX),
            audio_output: Tokens(u64::MAX),
            image_output: Tokens(u64::MAX),
            images: u64::MAX,
            cost: PicoUsd(u128::MAX),
        };
        let other = sum(3, 5);
        for _ in 0..3 {
            store.add_usage([(&key("a"), &huge), (&key("b"), &other)]).unwrap();
        }
        let mut rows = Vec::new();
        store.each_usage(3600..3601, |row| rows.push(row.sum)).unwrap();
        let most = i64::MAX as u64;
        assert_eq!((rows[0].requests, rows[0].estimated, rows[0].unpriced), (most, most, most));
        let (found, all) = (rows[0], Tokens(most));
        assert_eq!([found.input, found.cached_input, found.cache_write, found.audio_input], [all; 4]);
        assert_eq!([found.output, found.reasoning, found.audio_output, found.image_output], [all; 4]);
        assert_eq!((found.image_input, found.images), (all, most));
        assert_eq!(rows[0].cost.0 / DOLLAR, u128::from(most));
        assert_eq!(rows[1], UsageSum { requests: 3, ..sum(9, 15) });
    }
}
