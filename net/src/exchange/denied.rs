//! Why a request is answered here and not by a backend.

use engine::ProviderId;
use engine::metrics::Outcome;
use engine::verdict::Refusal;

use crate::answer::{Failure, To, write_failure, write_refusal};
use crate::http1::HeadError;
use crate::json::BodyError;
use crate::upstream::Unreachable;

/// One reason. Owns what it tells, because what it was taken from may be gone when it is told.
#[derive(Debug)]
pub enum Denied {
    /// The client has left; there is nobody to tell.
    ClientGone,
    /// A gate refused.
    Capped(Refusal),
    /// The head is refused.
    BadHead(HeadError),
    /// It did not come in time.
    HeadTimedOut,
    /// The body's framing is broken.
    BadFraming(&'static str),
    /// The body is refused.
    BadBody(BodyError),
    /// The body's coding is broken.
    BrokenCoding,
    /// The body has a coding that is not read here.
    UnknownCoding,
    /// The body is larger than so many bytes.
    BodyTooLarge(u64),
    /// Two different credentials.
    TwoCredentials,
    /// None where one is needed.
    KeyMissing,
    /// Unknown, revoked, expired or garbled.
    KeyInvalid,
    /// The key's scope leaves out a model, a provider or an endpoint of this name.
    OutOfScope(&'static str, String),
    /// No route takes this model.
    ModelNotFound(String),
    /// No endpoint has this path.
    UnknownEndpoint(String),
    /// Only these methods are served on the path.
    MethodNotAllowed(&'static str),
    /// A provider has no base URL left to try.
    NoBackend(ProviderId),
    /// A provider has so many exchanges under way as `max_connections` allows.
    ProviderFull(ProviderId),
    /// No connection.
    Unreachable(ProviderId, Unreachable),
    /// The backend ended the connection, or sent what is no HTTP, before it had answered.
    BackendFailed(String),
    /// The backend broke off inside its answer, of which nothing had been sent on.
    AnswerBroken(&'static str),
    /// The backend let a time-out pass.
    BackendSilent(&'static str),
}

impl Denied {
    /// How the exchange ended.
    pub fn outcome(&self) -> Outcome {
        match self {
            Denied::ClientGone => Outcome::ClientGone,
            Denied::Capped(_) => Outcome::Capped,
            Denied::AnswerBroken(_) => Outcome::BackendBroke,
            Denied::NoBackend(_)
            | Denied::ProviderFull(_)
            | Denied::Unreachable(..)
            | Denied::BackendFailed(_)
            | Denied::BackendSilent(_) => Outcome::Undelivered,
            _ => Outcome::Refused,
        }
    }

    /// Appends the answer; returns its status, 0 for none.
    pub fn write(&self, out: &mut Vec<u8>, to: &To<'_>) -> u16 {
        let silent;
        let failure = match self {
            Denied::ClientGone => return 0,
            Denied::Capped(refusal) => {
                write_refusal(out, to, refusal);
                return 429;
            }
            Denied::BadHead(error) => Failure::Head(*error),
            Denied::HeadTimedOut => Failure::Slow,
            Denied::BadFraming(reason) => Failure::Framing(reason),
            Denied::BadBody(error) => Failure::Body(error),
            Denied::BrokenCoding => Failure::BrokenCoding,
            Denied::UnknownCoding => Failure::UnknownCoding,
            Denied::BodyTooLarge(bound) => Failure::BodyTooLarge(*bound),
            Denied::TwoCredentials => Failure::ConflictingCredentials,
            Denied::KeyMissing => Failure::NoCredential,
            Denied::KeyInvalid => Failure::InvalidKey,
            Denied::OutOfScope(what, name) => Failure::ScopeDenied(what, name),
            Denied::ModelNotFound(model) => Failure::ModelNotFound(model),
            Denied::UnknownEndpoint(path) => Failure::UnknownEndpoint(path),
            Denied::MethodNotAllowed(allowed) => Failure::Method(allowed),
            Denied::NoBackend(provider) => {
                silent = format!("the provider `{provider}` has no base URL to try");
                Failure::Unavailable(&silent)
            }
            Denied::ProviderFull(provider) => {
                silent = format!("the provider `{provider}` has max_connections requests under way");
                Failure::Unavailable(&silent)
            }
            Denied::Unreachable(provider, Unreachable::TimedOut) => {
                silent = format!("the provider `{provider}` took no connection within http.connect_timeout");
                Failure::GatewayTimeout(&silent)
            }
            Denied::Unreachable(provider, Unreachable::Refused(kind)) => {
                silent = format!("no connection to the provider `{provider}`: {kind}");
                Failure::BadGateway(&silent)
            }
            Denied::Unreachable(provider, Unreachable::Tls(fault)) => {
                silent = format!("no connection to the provider `{provider}`: {}", fault.what);
                Failure::BadGateway(&silent)
            }
            Denied::BackendFailed(reason) => Failure::BadGateway(reason),
            Denied::AnswerBroken(reason) => Failure::BrokenAnswer(reason),
            Denied::BackendSilent(reason) => Failure::GatewayTimeout(reason),
        };
        write_failure(out, to, &failure);
        failure.status()
    }
}
