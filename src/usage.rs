//! `usage`: what was spent.

use std::path::PathBuf;
use std::process::ExitCode;

use control::config::{Config, Credentials};
use control::start::{StartError, config_path};
use control::store::Store;
use control::usage::{Asked, Query, Spent, spent_in, total_tokens};
use engine::UsageSum;

use crate::arguments::UsageArguments;
use crate::output::print;
use crate::table::table_with_figures;

/// Prints what was spent, from the database, beside a running server or without one.
pub fn run(config: Option<PathBuf>, arguments: UsageArguments) -> Result<ExitCode, StartError> {
    let path = config_path(config)?;
    let loaded =
        Config::load(&path, Credentials::Unused).map_err(|rejected| StartError::config(&path, &rejected))?;
    let as_json = arguments.json;
    let asked = Asked {
        by: Some(arguments.by),
        node: arguments.node,
        key: arguments.key,
        model: arguments.model,
        from: arguments.from,
        to: arguments.to,
        timezone: arguments.timezone,
        subtree: arguments.subtree,
        limit: Some(arguments.limit),
        cursor: arguments.cursor,
    };
    let query = Query::read(&asked, &loaded.config.governance.timezone)
        .map_err(|wrong| StartError::new(format!("--{wrong}")))?;
    let store = Store::open_existing(&loaded.config.data_dir)?;
    let spent = spent_in(store.as_ref(), &query)?;
    if as_json {
        let shown = serde_json::to_string_pretty(&spent.body(&query));
        let shown =
            shown.map_err(|error| StartError::new(format!("what was spent cannot be shown: {error}")))?;
        print(&format!("{shown}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&text(&query, &spent))?;
    if spent.hours_cross_midnight {
        let zone = &query.zone.name;
        eprintln!("{zone} is not whole hours from UTC: the hour around midnight counts on the earlier day");
    }
    if let Some(next) = &spent.next {
        eprintln!("There are more rows; the totals hold them too. They follow with --cursor {next}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows and, under them, the totals.
fn text(query: &Query, spent: &Spent) -> String {
    let columns: Vec<String> = query.by.iter().map(|column| column.member().to_uppercase()).collect();
    let figures = ["REQUESTS", "INPUT", "CACHED", "OUTPUT", "TOKENS", "USD", "ESTIMATED", "UNPRICED"];
    let head: Vec<&str> = columns.iter().map(String::as_str).chain(figures).collect();
    let mut lines: Vec<Vec<String>> = spent.rows.iter().map(|(group, sum)| line(group, sum)).collect();
    let mut total = vec![String::new(); query.by.len()];
    "total".clone_into(&mut total[0]);
    lines.push(line(&total, &spent.totals));
    table_with_figures(&head, &lines, query.by.len())
}

fn line(group: &[String], sum: &UsageSum) -> Vec<String> {
    let figures = [
        sum.requests.to_string(),
        sum.input.0.to_string(),
        sum.cached_input.0.to_string(),
        sum.output.0.to_string(),
        total_tokens(sum).to_string(),
        sum.cost.to_string(),
        sum.estimated.to_string(),
        sum.unpriced.to_string(),
    ];
    group.iter().cloned().chain(figures).collect()
}

#[cfg(test)]
mod tests {
    use engine::{PicoUsd, Tokens, Zone};

    use super::*;

    #[test]
    fn the_table_ends_with_the_totals() {
        let zone = Zone { name: "UTC".into(), zone: jiff::tz::TimeZone::UTC };
        let asked = Asked { by: Some("key,day".to_owned()), ..Asked::default() };
        let query = Query::read(&asked, &zone).expect("a question");
        let sum = UsageSum {
            requests: 2,
            estimated: 1,
            input: Tokens(60),
            cached_input: Tokens(5),
            output: Tokens(34),
            cost: PicoUsd(12_600_000),
            ..UsageSum::default()
        };
        let group = vec!["vk_AAAAAAAAAAAA".to_owned(), "2026-08-01".to_owned()];
        let spent = Spent { rows: vec![(group, sum)], totals: sum, next: None, hours_cross_midnight: false };
        assert_eq!(
            text(&query, &spent),
            "KID              DAY         REQUESTS  INPUT  CACHED  OUTPUT  TOKENS        USD  ESTIMATED  UNPRICED\n\
             vk_AAAAAAAAAAAA  2026-08-01         2     60       5      34      94  0.0000126          1         0\n\
             total                               2     60       5      34      94  0.0000126          1         0\n"
        );
    }
}
