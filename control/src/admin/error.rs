//! What a refused request is told: always JSON, always with the field that is to blame when one is.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::config::Finding;
use crate::start::StartError;
use crate::store::StoreError;

/// Why a request is not done.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// The status of the answer.
    pub status: StatusCode,
    code: &'static str,
    /// The reason, in a sentence.
    pub message: String,
    param: Option<String>,
    errors: Vec<Finding>,
    /// Whether whoever made it has written the audit row.
    pub audited: bool,
}

/// The answer to a request that is not done.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    error: ErrorMembers,
}

#[derive(Serialize, ToSchema)]
struct ErrorMembers {
    /// The kind of refusal, for programs.
    code: &'static str,
    /// Why, in a sentence.
    message: String,
    /// The field that is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    param: Option<String>,
    /// Every error of a config that was not taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FindingBody>,
}

/// One error of a config.
#[derive(Serialize, ToSchema)]
struct FindingBody {
    /// The path of the value; empty for the file as a whole.
    path: String,
    /// The line in the file, from 1.
    line: usize,
    /// What is wrong.
    message: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), param: None, errors: Vec::new(), audited: false }
    }

    /// 400: the request is not one that could ever be done.
    pub fn invalid(param: &str, message: impl Into<String>) -> ApiError {
        let param = (!param.is_empty()).then(|| param.to_owned());
        ApiError { param, ..ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", message) }
    }

    /// 401.
    pub fn unauthorized() -> ApiError {
        let message = "the management API needs the header `Authorization: Bearer` with the root token, or with the key \
                       of a delegated admin";
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// 404.
    pub fn not_found(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, code, message)
    }

    /// 405.
    pub fn method_not_allowed(path: &str) -> ApiError {
        let message = format!("{path} does not take this method");
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    /// 408: the body did not come in time.
    pub fn too_slow() -> ApiError {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the body did not come in time")
    }

    /// 409: it stands against what is there.
    pub fn conflict(param: &str, message: impl Into<String>) -> ApiError {
        let param = Some(param.to_owned());
        ApiError { param, ..ApiError::new(StatusCode::CONFLICT, "conflict", message) }
    }

    /// 413.
    pub fn too_large(bound: usize) -> ApiError {
        let message = format!("the body is larger than {bound} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// 422: understood, and turned down with its reason.
    pub fn refused(code: &'static str, param: &str, message: impl Into<String>) -> ApiError {
        let param = (!param.is_empty()).then(|| param.to_owned());
        ApiError { param, ..ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message) }
    }

    /// 422: a config with these errors.
    pub fn config(message: impl Into<String>, errors: Vec<Finding>) -> ApiError {
        let refused = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "config_refused", message);
        ApiError { errors, audited: true, ..refused }
    }

    /// 500: it is not the caller's fault. The reason is logged, not told.
    pub fn internal(reason: impl std::fmt::Display) -> ApiError {
        tracing::error!(%reason, "a management request failed");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "it failed; the log says why")
    }

    /// 503: the database or the data plane cannot do it now.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        tracing::error!(%error, "the database does not do what the management API needs");
        ApiError::unavailable(error.to_string())
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> ApiError {
        ApiError::internal(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError { status, code, message, param, errors, .. } = self;
        let errors = errors
            .into_iter()
            .map(|Finding { path, line, message }| FindingBody { path, line, message })
            .collect();
        let body = ErrorBody { error: ErrorMembers { code, message, param, errors } };
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
