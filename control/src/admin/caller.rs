//! Who calls: the root, or a delegated admin who is bound to one node.
//!
//! A delegated admin acts on its node and below. Both ids are checked against the charset before they are compared, and
//! the comparison goes segment by segment: `org:acme/../org:evil` is refused for its `..`, and `org:acme` does not cover
//! `org:acme2`. A key that the data plane takes is no credential here, nor the other way round.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use constant_time_eq::constant_time_eq_n;
use engine::NodeId;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::{App, PREFIX, work};
use crate::keys;
use crate::secret::Secret;
use crate::store::Store;

/// The root token, kept as its hash: equal lengths make the comparison say nothing about the token's.
pub struct RootToken([u8; 32]);

impl RootToken {
    /// Of the token's text.
    pub fn new(token: &Secret) -> RootToken {
        RootToken(Sha256::digest(token.expose().as_bytes()).into())
    }

    fn allows(&self, presented: &str) -> bool {
        let presented: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        constant_time_eq_n(&self.0, &presented)
    }
}

/// Who calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Caller {
    /// The holder of the root token.
    Root,
    /// The holder of a delegated admin's key.
    Delegate {
        /// The key.
        kid: String,
        /// The node that it is bound to.
        node: NodeId,
        /// When it stops working.
        expires_at: Option<Timestamp>,
    },
}

impl Caller {
    /// As the audit trail names it.
    pub fn name(&self) -> &str {
        match self {
            Caller::Root => "root",
            Caller::Delegate { kid, .. } => kid,
        }
    }

    /// The node below which this caller sees, as lists filter by it; `None`: everything.
    pub fn bound(&self) -> Option<&NodeId> {
        match self {
            Caller::Root => None,
            Caller::Delegate { node, .. } => Some(node),
        }
    }

    /// Whether what lies at a node is shown to this caller.
    pub fn sees(&self, node: &NodeId) -> bool {
        self.bound().is_none_or(|own| own.in_charset() && node.in_charset() && own.covers(node))
    }

    /// Whether this caller may act on a node; `param` is the field that names it.
    ///
    /// # Errors
    /// 400 when the node is out of charset, 403 when it lies outside the caller's subtree.
    pub fn may_act_on(&self, param: &str, node: &str) -> Result<(), ApiError> {
        let Caller::Delegate { node: own, .. } = self else { return Ok(()) };
        let node = NodeId::new(node);
        if !node.is_global() && !node.in_charset() {
            return Err(ApiError::invalid(
                param,
                format!(
                    "{node:?} is out of charset: segments are <kind>:<id>, of lowercase letters, digits, - and _"
                ),
            ));
        }
        if own.covers(&node) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("{node:?} is outside of {own:?}, which this admin is bound to")))
    }

    /// Whether this caller is the root.
    ///
    /// # Errors
    /// 403 for everybody else.
    pub fn must_be_root(&self, what: &str) -> Result<(), ApiError> {
        match self {
            Caller::Root => Ok(()),
            Caller::Delegate { .. } => Err(ApiError::forbidden(format!("only the root token may {what}"))),
        }
    }

    /// A delegated admin makes or prolongs no admin that outlives its own key.
    ///
    /// # Errors
    /// 403 when the expiry is later than the caller's own.
    pub fn may_grant_admin_until(&self, expires_at: Option<Timestamp>) -> Result<(), ApiError> {
        match self {
            Caller::Delegate { expires_at: Some(own), .. } if expires_at.is_none_or(|at| at > *own) => {
                Err(ApiError::forbidden(format!("an admin key made by this one must expire by {own}")))
            }
            _ => Ok(()),
        }
    }
}

/// The middleware: every management path wants a credential, before anything is said about the path.
pub async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with(PREFIX) {
        return next.run(request).await;
    }
    let Some(presented) = bearer(request.headers()) else { return ApiError::unauthorized().into_response() };
    let caller = if app.token.allows(presented) {
        Ok(Some(Caller::Root))
    } else {
        let presented = Secret::new(presented.to_owned());
        work::read(&app, move |management| delegate(&management.state().store, &presented)).await
    };
    match caller {
        // Nothing can be told apart from it by segments: it covers nothing.
        Ok(Some(Caller::Delegate { node, .. })) if !node.in_charset() => {
            ApiError::forbidden(format!("this admin's own node {node:?} is out of charset")).into_response()
        }
        Ok(Some(caller)) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Ok(None) => ApiError::unauthorized().into_response(),
        Err(error) => error.into_response(),
    }
}

/// The one bearer credential of a request; the scheme in any case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, credential) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| credential.trim())
}

/// The delegated admin whose key this is: known, an admin's, neither revoked nor expired, and the right secret.
fn delegate(store: &Store, presented: &Secret) -> Result<Option<Caller>, ApiError> {
    let text = presented.expose();
    let Some((kid, _)) = text.strip_prefix("tt_").and_then(|rest| rest.rsplit_once('_')) else {
        return Ok(None);
    };
    let Some(row) = store.key(kid)? else { return Ok(None) };
    if !constant_time_eq_n(&keys::hash_credential(text), &row.secret_hash)
        || !row.admin
        || keys::state(&row, Timestamp::now()) != "active"
    {
        return Ok(None);
    }
    Ok(Some(Caller::Delegate { kid: row.kid, node: NodeId::new(&row.owner), expires_at: row.expires_at }))
}
