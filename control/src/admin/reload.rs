//! `POST reload`.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::caller::Caller;
use super::error::{ApiError, ErrorBody};
use super::input::{Body, Nothing};
use super::work::{self, Attempt};
use crate::management::{ReloadRefused, Trigger};

/// What a reload has brought in.
#[derive(Serialize, ToSchema)]
pub struct ReloadedBody {
    /// The version in force now.
    version: u64,
    /// Overrides that do not hold and are not in force.
    dropped_overrides: Vec<DroppedOverrideBody>,
    /// What loads and has no effect.
    warnings: Vec<String>,
}

/// An override that is not in force.
#[derive(Serialize, ToSchema)]
struct DroppedOverrideBody {
    /// The limit.
    limit_id: String,
    /// The node.
    node: String,
    /// Why.
    reason: String,
}

/// Reads the config and the runtime plane anew and puts both in force as a whole, or changes nothing and says why.
#[utoipa::path(
    post,
    path = "/tt/v1/admin/reload",
    operation_id = "reload",
    request_body(content = Option<Nothing>),
    responses(
        (status = 200, description = "In force", body = ReloadedBody),
        (status = 400, description = "The request is wrong", body = ErrorBody),
        (status = 401, description = "No credential", body = ErrorBody),
        (status = 403, description = "Only the root token may reload", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 422, description = "The config is wrong; the one in force stays", body = ErrorBody),
        (status = 503, description = "The database is not there", body = ErrorBody),
    )
)]
pub async fn run(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Body<Nothing>,
) -> Result<Json<ReloadedBody>, ApiError> {
    let attempt = Attempt::on("reload", "config", &body.raw);
    work::write(&app, caller, attempt, move |management, caller| {
        body.parsed?;
        caller.must_be_root("reload")?;
        let reloaded = management.reload(&Trigger::Api(caller.name().to_owned())).map_err(told)?;
        let dropped = reloaded.dropped.into_iter().map(|dropped| DroppedOverrideBody {
            limit_id: dropped.override_.limit_id.to_string(),
            node: dropped.override_.node.to_string(),
            reason: dropped.reason,
        });
        Ok(Json(ReloadedBody {
            version: reloaded.version,
            dropped_overrides: dropped.collect(),
            warnings: reloaded.warnings,
        }))
    })
    .await
}

fn told(refused: ReloadRefused) -> ApiError {
    match refused {
        ReloadRefused::Config(errors) => {
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            let more =
                if errors.len() > 1 { format!(" and {} more", errors.len() - 1) } else { String::new() };
            ApiError::config(format!("the config in force stays: {first}{more}"), errors)
        }
        ReloadRefused::Store(error) => ApiError::unavailable(error.to_string()),
    }
}
