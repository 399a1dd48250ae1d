//! One request, from its head to its charge: the order of the rooms, and nothing of what they decide.
//!
//! ```text
//! head -> credential -> endpoint -> gate 1 -> body -> facts -> route, scopes -> gate 2 -> backend -> relay
//! ```
//!
//! Every step either hands something on or ends the exchange with a [`Denied`], which is answered in one place. What
//! was taken until then is given back by the drop of what the steps returned: a permit, a reservation, a charge.

mod denied;
mod forward;
mod local;
mod request_id;
mod trace;
mod unpack;

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

pub use denied::Denied;
use engine::cells::GateOneVerdict;
use engine::gates::Estimate;
use engine::metrics::Outcome;
use engine::{Chain, Key, Lesson, LimitId, Now, Route};

use crate::answer::To;
use crate::bounds::READ_ON_CORE;
use crate::charge::{Charge, Held};
use crate::connection::{BodyRead, Client, Next};
use crate::core::{Core, GateTwoVerdict};
use crate::endpoint::{Dialect, Endpoint, classify};
use crate::form;
use crate::http1::{BodyFraming, Version};
use crate::identity::Credential;
use crate::json::{self, BodyError, BodyFacts};
use crate::plans::Armed;
use crate::rt;
use crate::snapshot::{Backend, HttpBounds};
use crate::tally::Account;
use request_id::RequestId;
use trace::Trace;
use tracing::debug;

/// Takes the request whose head [`Client`] holds to its end.
pub async fn run(core: &Rc<Core>, client: &mut Client) -> Next {
    let armed = core.armed();
    let mut exchange = Exchange {
        http: armed.snapshot.http,
        id: RequestId::new(core.next_number()),
        body_unread: client.head.body() != BodyFraming::None,
        core,
        client,
        armed,
        status: 0,
        outcome: None,
        trace: Trace::begin(),
    };
    let governed = pin!(exchange.governed()).await;
    match governed {
        Ok(next) => {
            exchange.ended(None);
            next
        }
        Err(denied) => exchange.deny(denied).await,
    }
}

/// Answers what is no request at all. The connection cannot be used afterwards: where the next message would begin
/// is not known.
pub async fn answer_headless(core: &Rc<Core>, client: &mut Client, denied: Denied) -> Next {
    let http = core.armed().snapshot.http;
    let id = RequestId::new(core.next_number());
    let to = To {
        dialect: Dialect::OpenAi,
        request_id: id.as_bytes(),
        version: Version::Http11,
        keep_alive: false,
        head_only: false,
    };
    let status = denied.write(&mut client.out, &to);
    core.meter.ended(status, denied.outcome());
    match client.send(&http).await {
        true => Next::Linger,
        false => Next::Close,
    }
}

/// One request under way.
struct Exchange<'a> {
    core: &'a Rc<Core>,
    client: &'a mut Client,
    armed: Rc<Armed>,
    http: HttpBounds,
    id: RequestId,
    body_unread: bool,
    /// The status that the client was sent; 0 for none yet.
    status: u16,
    /// How a relay ended. The gateway's own pages have no outcome and are not counted.
    outcome: Option<Outcome>,
    trace: Option<Box<Trace>>,
}

/// A request that every check but gate 2 has passed.
struct Routed<'a> {
    endpoint: Endpoint,
    facts: &'a BodyFacts,
    route: &'a Route,
    backend: &'a Backend,
}

impl Exchange<'_> {
    async fn governed(&mut self) -> Result<Next, Denied> {
        if let Some(answered) = self.health().await {
            return Ok(answered);
        }
        let arrived = self.core.now();
        let key = self.authenticate(arrived)?;
        if let Some(trace) = &mut self.trace {
            trace.owner(key.as_deref());
        }
        if let Some(key) = &key {
            self.core.meter.key_used(key.kid, arrived.wall);
        }
        if let Some(answered) = self.own_pages(key.as_deref()).await? {
            return Ok(answered);
        }
        let endpoint = self.endpoint(key.as_deref())?;
        let anonymous = Chain::anonymous();
        let chain = key.as_deref().map_or(&anonymous, |key| &key.chain);
        let mut charge = Charge::begin(self.core.clone(), self.trace.is_some());
        self.gate_one(chain, endpoint, arrived, &mut charge)?;
        let body = self.body().await?;
        let body = self.unpacked(body).await?;
        let (body, facts) = self.facts(body, endpoint).await;
        let facts = facts.map_err(Denied::BadBody)?;
        let armed = self.armed.clone();
        let model = facts.model(&body);
        let routed = route(&armed, key.as_deref(), endpoint, &facts, model)?;
        let admitted = pin!(self.gate_two(key.as_deref(), &routed, model, &mut charge)).await?;
        let forwarded = pin!(self.forward(&routed, body, &mut charge, admitted)).await;
        if let Some(trace) = &mut self.trace {
            trace.used(charge.used());
        }
        forwarded
    }

    fn authenticate(&mut self, now: Now) -> Result<Option<Arc<Key>>, Denied> {
        let Client { head, proof, .. } = &mut *self.client;
        match Credential::of(head) {
            Credential::Absent if self.armed.snapshot.require_key => Err(Denied::KeyMissing),
            Credential::Absent => Ok(None),
            Credential::Conflicting => Err(Denied::TwoCredentials),
            Credential::Presented(presented) => self
                .core
                .with_keys(|keys| proof.verify(keys, presented, now.wall))
                .map(Some)
                .ok_or(Denied::KeyInvalid),
        }
    }

    fn endpoint(&self, key: Option<&Key>) -> Result<Endpoint, Denied> {
        let path = self.client.head.path();
        let endpoint = classify(path).ok_or_else(|| Denied::UnknownEndpoint(path.to_owned()))?;
        if self.client.head.method() != b"POST" {
            return Err(Denied::MethodNotAllowed("POST"));
        }
        if key.is_some_and(|key| !key.scopes.allows_endpoint(endpoint.path())) {
            return Err(Denied::OutOfScope("endpoint", path.to_owned()));
        }
        Ok(endpoint)
    }

    /// Gate 1 judges at the instant at which the request was read: see [`crate::clock`].
    fn gate_one(
        &mut self,
        chain: &Chain,
        endpoint: Endpoint,
        now: Now,
        charge: &mut Charge,
    ) -> Result<(), Denied> {
        let plan = self.armed.gate_one(chain, endpoint.path());
        if let Some(trace) = &mut self.trace {
            trace.endpoint(endpoint.path());
            trace.caps(plan.instances());
        }
        let verdict = plan.admit(now);
        self.core.meter.gate_one(self.core.shared.clock.monotonic().since(now.monotonic));
        match verdict {
            GateOneVerdict::Admitted(admission) => {
                charge.admitted(admission);
                Ok(())
            }
            GateOneVerdict::Refused(refusal) => Err(Denied::Capped(refusal)),
        }
    }

    async fn body(&mut self) -> Result<Vec<u8>, Denied> {
        if self.body_unread && self.client.head.expects_continue() && !self.client.has_input() {
            self.client.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            if !self.client.send(&self.http).await {
                return Err(Denied::ClientGone);
            }
        }
        match self.client.read_body(&self.http).await {
            BodyRead::Body(body) => {
                self.body_unread = false;
                Ok(body)
            }
            BodyRead::TooLarge => Err(Denied::BodyTooLarge(self.http.max_body)),
            BodyRead::Bad(reason) => Err(Denied::BadFraming(reason)),
            BodyRead::Gone => Err(Denied::ClientGone),
        }
    }

    /// What the body says. A large one is read beside the cores: a hostile 64 MiB of tiny tokens takes a second.
    async fn facts(&self, body: Vec<u8>, endpoint: Endpoint) -> (Vec<u8>, Result<BodyFacts, BodyError>) {
        let small = body.len() <= READ_ON_CORE;
        let content_type = match endpoint.takes_forms() {
            true => self.client.head.header("content-type"),
            false => None,
        };
        let boundary = content_type.and_then(form::boundary).map(|boundary| boundary.map(str::to_owned));
        let read = move || {
            let facts = match boundary {
                None => json::read_body(&body, endpoint),
                Some(Ok(boundary)) => form::read(&body, &boundary, endpoint),
                Some(Err(reason)) => Err(BodyError::NotAForm(reason)),
            };
            (body, facts)
        };
        if small { read() } else { rt::offload(&self.core.shared.offload, read).await }
    }

    /// Tells when it admitted.
    async fn gate_two(
        &mut self,
        key: Option<&Key>,
        routed: &Routed<'_>,
        model: &str,
        charge: &mut Charge,
    ) -> Result<Now, Denied> {
        let resolved = self.armed.resolved(key, model, routed.route, routed.endpoint.path());
        let price = resolved.price.as_ref();
        let most = price.and_then(|price| price.max_output);
        let alone = json::expected(routed.facts, routed.endpoint, routed.route.output_hold, most);
        let lesson = routed.route.learns.then(|| {
            let BodyFacts { n, output_cap, .. } = *routed.facts;
            Lesson::new(routed.route, key.map(|key| key.kid), alone.input, n, output_cap.is_some())
        });
        let expected = match &lesson {
            None => alone,
            Some(lesson) => self.core.estimator.borrow().raise(lesson, alone, most),
        };
        let estimate = Estimate {
            tokens: expected.input.saturating_add(expected.output),
            money: price.map(|price| price.estimate(&expected)),
        };
        if let Some(trace) = &mut self.trace {
            trace.resolved(&resolved);
            trace.caps(resolved.plan.instances());
        }
        let meter = &self.core.meter;
        let asked = self.core.now();
        let verdict = pin!(self.core.reserve(&resolved.plan, estimate, asked)).await;
        let now = self.core.now();
        let gate_two = now.monotonic.since(asked.monotonic);
        let reservation = match verdict {
            GateTwoVerdict::Admitted(reservation) => reservation,
            GateTwoVerdict::Refused(refusal) => {
                meter.gate_two_refused(gate_two);
                return Err(Denied::Capped(refusal));
            }
        };
        meter.admitted(gate_two);
        let gate_one = charge.admission().into_iter().flat_map(|admission| admission.overlooked());
        for instance in gate_one.chain(reservation.overlooked()) {
            meter.overlooked(instance, now);
        }
        let account = Account { resolved, kid: key.map(|key| key.kid), admitted_at: now.wall };
        charge.hold(Held { reservation, estimated: alone, lesson, account });
        Ok(now)
    }

    /// Whether the connection outlives this exchange, as far as the client and the process want it to.
    fn keeps_alive(&self) -> bool {
        self.client.head.keep_alive() && !self.core.is_draining()
    }

    /// Writes the answer to a denied request and says what becomes of the connection.
    async fn deny(&mut self, denied: Denied) -> Next {
        self.outcome = Some(denied.outcome());
        let mut refused_by = None;
        match &denied {
            Denied::ClientGone => {
                self.ended(None);
                return Next::Close;
            }
            Denied::Capped(refusal) => {
                debug!(request = self.id.as_str(), %refusal, "capped");
                let limit = &refusal.refused_by().instance.limit.id;
                self.core.meter.refused_by(limit);
                refused_by = Some(limit);
            }
            _ => {}
        }
        let framing_holds = !matches!(denied, Denied::BadFraming(_));
        let skippable = !self.body_unread || self.client.can_skip_body();
        let keep = self.keeps_alive() && framing_holds && skippable;
        self.status = self.write_answer(keep, |out, to| denied.write(out, to));
        self.ended(refused_by);
        self.answered(keep).await
    }

    /// Counts the exchange, and tells of it whoever listens.
    fn ended(&mut self, refused_by: Option<&LimitId>) {
        let Some(outcome) = self.outcome.take() else { return };
        self.core.meter.ended(self.status, outcome);
        if let Some(trace) = &self.trace {
            trace.end(&self.id, self.status, outcome, refused_by);
        }
    }

    /// Appends an answer of the gateway's own.
    fn write_answer<T>(&mut self, keep_alive: bool, write: impl FnOnce(&mut Vec<u8>, &To<'_>) -> T) -> T {
        let head = &self.client.head;
        let to = To {
            dialect: Dialect::of_path(head.path()),
            request_id: self.id.as_bytes(),
            version: head.version(),
            keep_alive,
            head_only: head.method() == b"HEAD",
        };
        write(&mut self.client.out, &to)
    }

    /// Sends an answer of the gateway's own.
    async fn answered(&mut self, keep: bool) -> Next {
        if !self.client.send(&self.http).await {
            return Next::Close;
        }
        match (self.body_unread, keep) {
            (false, true) => Next::Keep,
            (false, false) => Next::Close,
            (true, true) => self.client.skip_body(&self.http).await,
            (true, false) => Next::Linger,
        }
    }
}

/// Which backend serves the request, if the key may use it. A scope that denies comes before a route that is
/// missing (SPEC §10).
fn route<'a>(
    armed: &'a Armed,
    key: Option<&Key>,
    endpoint: Endpoint,
    facts: &'a BodyFacts,
    model: &str,
) -> Result<Routed<'a>, Denied> {
    let allows = |what: &dyn Fn(&engine::Scopes) -> bool| key.is_none_or(|key| what(&key.scopes));
    if !allows(&|scopes| scopes.allows_model(model)) {
        return Err(Denied::OutOfScope("model", model.to_owned()));
    }
    let route = armed.snapshot.routes.find(model).ok_or_else(|| Denied::ModelNotFound(model.to_owned()))?;
    if !allows(&|scopes| scopes.allows_provider(route.provider.as_str())) {
        return Err(Denied::OutOfScope("provider", route.provider.as_str().to_owned()));
    }
    if !allows(&|scopes| scopes.allows_model(route.served(model))) {
        return Err(Denied::OutOfScope("model", route.served(model).to_owned()));
    }
    let backend =
        armed.snapshot.backend(&route.provider).ok_or_else(|| Denied::NoBackend(route.provider.clone()))?;
    Ok(Routed { endpoint, facts, route, backend })
}
