//! Where the work of a request is done: on a thread that may wait for the lock and the disk. Refused writes are audited
//! here.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::App;
use super::caller::Caller;
use super::error::ApiError;
use crate::bounds;
use crate::management::{Management, cut};
use crate::store::AuditEntry;

/// What a write is about, known before it is done.
#[derive(Clone, Debug)]
pub struct Attempt {
    action: &'static str,
    target: String,
    node: Option<String>,
    tried: Value,
}

impl Attempt {
    /// Of an action on a target that the path names.
    pub fn on(action: &'static str, target: &str, tried: &Value) -> Attempt {
        Attempt { action, target: target.to_owned(), node: None, tried: tried.clone() }
    }

    /// Of an action that the body says everything about: these members of it name the target and the node.
    pub fn of_body(action: &'static str, target: &str, node: &str, tried: &Value) -> Attempt {
        let text = |member: &str| tried.get(member).and_then(Value::as_str).map(str::to_owned);
        Attempt {
            action,
            target: text(target).unwrap_or_default(),
            node: text(node).filter(|node| node.len() <= bounds::NODE_BYTES),
            tried: tried.clone(),
        }
    }

    /// The same, about a node.
    pub fn at(self, node: &str) -> Attempt {
        Attempt { node: Some(node.to_owned()), ..self }
    }
}

/// Does a read.
pub async fn read<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&Management) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let management = app.management.clone();
    tokio::task::spawn_blocking(move || work(&management))
        .await
        .unwrap_or_else(|error| Err(ApiError::internal(error)))
}

/// Does a write. One that is refused changes nothing and is audited with what was tried.
pub async fn write<T: Send + 'static>(
    app: &App,
    caller: Caller,
    attempt: Attempt,
    work: impl FnOnce(&Management, &Caller) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let outcome = read(app, move |management| {
        let outcome = work(management, &caller);
        if let Err(error) = &outcome
            && error.status.is_client_error()
            && !error.audited
        {
            audit_refusal(management, &caller, &attempt, error)?;
        }
        outcome
    });
    outcome.await
}

fn audit_refusal(
    management: &Management,
    caller: &Caller,
    attempt: &Attempt,
    error: &ApiError,
) -> Result<(), ApiError> {
    let result = format!("refused: {}", without_credentials(&error.message));
    let target = without_credentials(&attempt.target);
    let node = attempt.node.as_deref().map(without_credentials);
    let entry = AuditEntry {
        at: Timestamp::now(),
        actor: caller.name(),
        action: attempt.action,
        target: cut(&target, bounds::NODE_BYTES),
        node: node.as_deref(),
        before: None,
        after: Some(shown(&attempt.tried)),
        result: cut(&result, bounds::AUDITED_RESULT_BYTES),
    };
    Ok(management.state().store.audit(&entry)?)
}

/// A text as it may be kept: whoever pastes a credential into the wrong field has not given it to the trail.
fn without_credentials(text: &str) -> Cow<'_, str> {
    if text.contains("tt_vk_") { Cow::Borrowed("(a credential, left out)") } else { Cow::Borrowed(text) }
}

fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_credentials(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(shown).collect()),
        Value::Object(members) => {
            let members = members.iter();
            let members: Map<_, _> =
                members.map(|(name, value)| (without_credentials(name).into_owned(), shown(value))).collect();
            Value::Object(members)
        }
        other => other.clone(),
    }
}
