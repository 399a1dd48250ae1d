//! What was spent, as a document: the same from the command line and from the management API.

use engine::UsageSum;
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use super::{Column, Query, Spent};

/// What was spent.
#[derive(Serialize, ToSchema)]
pub struct UsageBody {
    /// What it is grouped by.
    by: Vec<&'static str>,
    /// The zone of its days.
    timezone: String,
    /// Whether a node's row holds what was spent below it too.
    subtree: bool,
    /// Ascending by the columns, in their order.
    usage: Vec<UsageRowBody>,
    /// Everything that the filters let pass, on whatever page, each exchange once.
    totals: UsageFigures,
    /// The zone is not whole hours from UTC: the hour around midnight counts on the earlier day.
    hours_cross_midnight: bool,
    /// Where the next page begins; null on the last one.
    next_cursor: Option<String>,
}

/// One group. It has the members that it is grouped by.
#[derive(Default, Serialize, ToSchema)]
pub struct UsageRowBody {
    /// The node that owns the key; `__global` for keyless traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// The key; null for keyless traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    kid: Option<Option<String>>,
    /// The model asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    model: Option<String>,
    /// The model served.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    served: Option<String>,
    /// Who served it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    provider: Option<String>,
    /// The normalised path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    endpoint: Option<String>,
    /// The hour of admission, by its first second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hour: Option<String>,
    /// The calendar day of admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    day: Option<String>,
    #[serde(flatten)]
    figures: UsageFigures,
}

/// What exchanges used.
#[derive(Default, Serialize, ToSchema)]
pub struct UsageFigures {
    /// Exchanges that were delivered.
    requests: u64,
    /// Of these, those whose usage was estimated.
    estimated_requests: u64,
    /// Of these, those of a model without a price.
    unpriced_requests: u64,
    /// Tokens read, of all kinds.
    input_tokens: u64,
    /// Of these, tokens read from the provider's cache.
    cached_input_tokens: u64,
    /// Of these, tokens written to the provider's cache.
    cache_write_tokens: u64,
    /// Of these, tokens of audio.
    audio_input_tokens: u64,
    /// Of these, tokens of images.
    image_input_tokens: u64,
    /// Tokens written, of all kinds.
    output_tokens: u64,
    /// Of these, tokens of reasoning.
    reasoning_tokens: u64,
    /// Of these, tokens of audio.
    audio_output_tokens: u64,
    /// Of these, tokens of images.
    image_output_tokens: u64,
    /// Images made.
    images: u64,
    /// Tokens read and written.
    total_tokens: u64,
    /// What they cost, with every digit.
    #[schema(value_type = f64)]
    usd: Option<Number>,
}

impl From<&UsageSum> for UsageFigures {
    fn from(sum: &UsageSum) -> UsageFigures {
        UsageFigures {
            requests: sum.requests,
            estimated_requests: sum.estimated,
            unpriced_requests: sum.unpriced,
            input_tokens: sum.input.0,
            cached_input_tokens: sum.cached_input.0,
            cache_write_tokens: sum.cache_write.0,
            audio_input_tokens: sum.audio_input.0,
            image_input_tokens: sum.image_input.0,
            output_tokens: sum.output.0,
            reasoning_tokens: sum.reasoning.0,
            audio_output_tokens: sum.audio_output.0,
            image_output_tokens: sum.image_output.0,
            images: sum.images,
            total_tokens: total_tokens(sum),
            usd: sum.cost.to_string().parse().ok(),
        }
    }
}

/// Tokens read and written; the cached ones are among those read.
pub fn total_tokens(sum: &UsageSum) -> u64 {
    sum.input.0.saturating_add(sum.output.0)
}

impl UsageRowBody {
    fn of(query: &Query, group: &[String], sum: &UsageSum) -> UsageRowBody {
        let mut row = UsageRowBody { figures: sum.into(), ..UsageRowBody::default() };
        for (column, text) in query.by.iter().zip(group) {
            let text = text.clone();
            match column {
                Column::Node => row.node = Some(text),
                Column::Key => row.kid = Some(Some(text).filter(|kid| !kid.is_empty())),
                Column::Model => row.model = Some(text),
                Column::Served => row.served = Some(text),
                Column::Provider => row.provider = Some(text),
                Column::Endpoint => row.endpoint = Some(text),
                Column::Hour => row.hour = Some(text),
                Column::Day => row.day = Some(text),
            }
        }
        row
    }
}

impl Spent {
    /// As a document.
    pub fn body(&self, query: &Query) -> UsageBody {
        UsageBody {
            by: query.by.iter().map(|column| column.member()).collect(),
            timezone: query.zone.name.to_string(),
            subtree: query.subtree,
            usage: self.rows.iter().map(|(group, sum)| UsageRowBody::of(query, group, sum)).collect(),
            totals: (&self.totals).into(),
            hours_cross_midnight: self.hours_cross_midnight,
            next_cursor: self.next.clone(),
        }
    }
}
