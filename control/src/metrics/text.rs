//! The board as text, in the format that Prometheus reads.

use std::fmt;

use engine::Histogram;
use prometheus_client::collector::Collector;
pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Figures, InForce};

/// What every name begins with.
const PREFIX: &str = "tokentriage";

#[derive(Debug)]
struct Shown {
    figures: Figures,
    in_force: InForce,
}

/// Writes all of it.
pub(super) fn write(figures: Figures, in_force: InForce) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Shown { figures, in_force }));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

/// One figure of a metric, with its labels.
type Sample<'l, V> = (Vec<(&'static str, &'l str)>, V);

struct Sheet<'e>(DescriptorEncoder<'e>);

impl Sheet<'_> {
    fn samples<'l, V>(
        &mut self,
        (kind, name, help): (MetricType, &str, &str),
        samples: impl IntoIterator<Item = Sample<'l, V>>,
        mut encode: impl FnMut(&mut MetricEncoder<'_>, &V) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                encode(&mut metric, &value)?;
            } else {
                encode(&mut metric.encode_family(&labels)?, &value)?;
            }
        }
        Ok(())
    }

    fn counters<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'l, u64>>,
    ) -> fmt::Result {
        self.samples((MetricType::Counter, name, help), samples, |metric, value| {
            metric.encode_counter::<NoLabelSet, u64, f64>(value, None)
        })
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(vec![], value)])
    }

    fn gauges<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'l, f64>>,
    ) -> fmt::Result {
        self.samples((MetricType::Gauge, name, help), samples, |metric, value| {
            // Whole numbers are shown as such.
            if value.fract() == 0.0 && value.abs() < 9e15 {
                metric.encode_gauge(&(*value as i64))
            } else {
                metric.encode_gauge(value)
            }
        })
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.gauges(name, help, [(vec![], value)])
    }

    fn histograms<'l>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'l, &'l Histogram>>,
    ) -> fmt::Result {
        const NANOSECONDS: f64 = 1e9;
        self.samples((MetricType::Histogram, name, help), samples, |metric, histogram| {
            let buckets: Vec<(f64, u64)> = histogram
                .buckets()
                .map(|(bound, count)| {
                    (bound.map_or(f64::INFINITY, |bound| bound as f64 / NANOSECONDS), count)
                })
                .collect();
            let sum = histogram.sum_nanoseconds() as f64 / NANOSECONDS;
            metric.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets, None)
        })
    }
}

impl Collector for Shown {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = Sheet(encoder);
        self.requests(&mut sheet)?;
        self.usage(&mut sheet)?;
        self.durations(&mut sheet)?;
        self.standing(&mut sheet)?;
        self.control(&mut sheet)
    }
}

impl Shown {
    fn requests(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let figures = &self.figures;
        sheet.counter("requests_admitted", "Requests that both gates admitted", figures.admitted)?;
        let limits = |name, help, figure: fn(&engine::LimitEvents) -> u64, sheet: &mut Sheet<'_>| {
            let events = figures.limits.iter().map(|(limit, events)| (limit, figure(events)));
            let events = events.filter(|(_, count)| *count > 0);
            sheet.counters(name, help, events.map(|(limit, count)| (vec![("limit", limit.as_str())], count)))
        };
        limits("limit_admitted", "Admitted requests that met the limit", |events| events.admitted, sheet)?;
        limits(
            "limit_refused",
            "Requests that the limit refused, as the first of those that were over",
            |events| events.refused,
            sheet,
        )?;
        limits(
            "limit_shadow_refused",
            "Admitted requests that the limit would have refused were it not in shadow",
            |events| events.shadow_refused,
            sheet,
        )?;
        limits(
            "limit_alerted",
            "Admitted requests that the limit would have refused were it not for alerts only",
            |events| events.alerted,
            sheet,
        )?;
        let exchanges = figures.exchanges.iter();
        sheet.counters(
            "exchanges",
            "Exchanges that ended, by the class of the status that the client was sent, and how they ended",
            exchanges
                .map(|(class, outcome, count)| (vec![("status", class), ("ending", outcome.name())], count)),
        )
    }

    fn usage(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let used = &self.figures.used;
        sheet.counters(
            "tokens",
            "Tokens that exchanges used; all other kinds are among the input and the output",
            [
                ("input", used.input),
                ("cached_input", used.cached_input),
                ("cache_write", used.cache_write),
                ("audio_input", used.audio_input),
                ("image_input", used.image_input),
                ("output", used.output),
                ("reasoning", used.reasoning),
                ("audio_output", used.audio_output),
                ("image_output", used.image_output),
            ]
            .map(|(kind, count)| (vec![("kind", kind)], count.0)),
        )?;
        let descriptor = (
            MetricType::Counter,
            "cost_pico_usd",
            "What exchanges cost, in millionths of a millionth of a USD",
        );
        sheet.samples(descriptor, [(vec![], used.cost.0)], |metric, pico| match u64::try_from(*pico) {
            Ok(pico) => metric.encode_counter::<NoLabelSet, u64, f64>(&pico, None),
            // Beyond 18 million USD only the leading digits are shown.
            Err(_) => metric.encode_counter::<NoLabelSet, f64, f64>(&(*pico as f64), None),
        })?;
        sheet.counter("usage_requests", "Exchanges that were delivered and counted", used.requests)?;
        sheet.counter("usage_estimated_requests", "Of these, with estimated usage", used.estimated)?;
        sheet.counter("usage_unpriced_requests", "Of these, of a model without a price", used.unpriced)
    }

    fn durations(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let figures = &self.figures;
        sheet.histograms(
            "gate_one_seconds",
            "From the head read to the verdict of gate 1: whose request it is, then requests and slots",
            [(vec![], &figures.gate_one)],
        )?;
        sheet.histograms(
            "gate_two_seconds",
            "From the ask to the verdict of gate 2, which holds tokens and money",
            [(vec![], &figures.gate_two)],
        )?;
        sheet.histograms(
            "first_byte_seconds",
            "From the request sent to the head of the backend's answer",
            figures
                .first_byte
                .iter()
                .map(|(provider, histogram)| (vec![("provider", provider.as_str())], histogram)),
        )
    }

    fn standing(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let cores = &self.figures.gauges;
        let sum = |figure: fn(&engine::Gauges) -> u64| cores.values().map(figure).sum::<u64>() as f64;
        sheet.gauge("cores", "Cores that have reported", cores.len() as f64)?;
        sheet.gauge("connections", "Connections of clients", sum(|core| core.connections))?;
        let help = "Admitted requests that are not settled yet";
        sheet.gauge("reservations", help, sum(|core| core.reservations))?;
        let help = "Reservations that hold something, each counted at every core that owns a counter of it";
        sheet.gauge("holds", help, sum(|core| core.holds))?;
        let help = "Slots taken of all concurrency limits, as of the last few seconds";
        sheet.gauge("live_slots", help, sum(|core| core.live_slots.unwrap_or_default()))?;
        sheet.gauge("counters", "Token and calendar counters in memory", sum(|core| core.counters))?;
        let help = "Parcels under way between cores";
        sheet.gauge("mesh_backlog", help, sum(|core| core.mesh_backlog))
    }

    fn control(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let (writes, reloads) = (&self.figures.writes, &self.figures.reloads);
        sheet.gauges(
            "unwritten_rows",
            "What was reported and is not in the database yet",
            [
                (vec![("kind", "counters")], writes.unwritten_counters as f64),
                (vec![("kind", "usage")], writes.unwritten_usage as f64),
            ],
        )?;
        let lag = writes.failing_since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let help = "For how long the database could not be written; 0 while it can";
        sheet.gauge("write_lag_seconds", help, lag)?;
        sheet.counter("write_failures", "Writes to the database that failed", writes.failed)?;
        sheet.counters(
            "reloads",
            "Reloads since the start",
            [(vec![("result", "done")], reloads.done), (vec![("result", "refused")], reloads.refused)],
        )?;
        let help =
            "Whether the last reload was refused, so that the config in force is not the one in the file";
        sheet.gauge("reload_refused", help, f64::from(u8::from(reloads.last_was_refused)))?;
        let InForce { version, limits, nodes, keys } = self.in_force;
        sheet.gauge("ruleset_version", "The version of the rules in force", version as f64)?;
        sheet.gauge("ruleset_limits", "Limits in force", limits as f64)?;
        sheet.gauge("ruleset_nodes", "Nodes in force", nodes as f64)?;
        sheet.gauge("keys", "Keys that the data plane knows", keys as f64)
    }
}
