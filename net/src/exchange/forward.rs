//! To the backend and back.

use std::pin::pin;
use std::sync::Arc;

use engine::Api;
use engine::Now;
use engine::metrics::Outcome;

use super::{Denied, Exchange, Routed};
use crate::answer;
use crate::bounds::{EXTRA_HEADERS, INTERIM_ANSWERS, ONE_WRITE, READ_ROOM};
use crate::charge::{Charge, Ending};
use crate::connection::Next;
use crate::http1::write::{
    AcceptEncoding, ClientFraming, ProviderCredential, RelayedHead, UpstreamRequest, write_request,
    write_response,
};
use crate::http1::{HeadBounds, HeadProgress, HeadSearch, Role};
use crate::json::{self, Asked};
use crate::relay::{Relay, Relayed};
use crate::rt::{Waited, Watch, watched, within};
use crate::snapshot::HttpBounds;
use crate::upstream::{self, Connection, Occupied, Picked, Target, Unreachable};
use crate::usage::{Seen, Tap};
use tracing::{info, warn};

/// How waiting for the backend's final head ended.
enum Answered {
    /// The client's connection holds it.
    Head,
    ClientGone,
    /// Nothing that could be called an answer came: nothing is consumed.
    Undelivered(Denied),
}

impl Exchange<'_> {
    /// Sends the request to its backend and relays what comes back. The charge ends in here, unless nothing was sent:
    /// then its drop gives everything back.
    pub(super) async fn forward(
        &mut self,
        routed: &Routed<'_>,
        body: Vec<u8>,
        charge: &mut Charge,
        admitted: Now,
    ) -> Result<Next, Denied> {
        let asks_usage = routed.facts.stream
            && routed.endpoint.has_stream_options()
            && routed.facts.include_usage == Asked::No;
        let rewritten = json::rewrite(&body, routed.facts, routed.route.served_model.as_deref(), asks_usage);
        let body = rewritten.unwrap_or(body);
        let (mut connection, occupied, body) = pin!(self.send(routed, body, admitted)).await?;
        charge.sent();
        let sent_at = self.core.shared.clock.monotonic();
        self.client.reuse(body);
        let answered = pin!(self.response_head(&mut connection)).await;
        let now = match answered {
            Answered::Head => {
                let now = self.core.now();
                self.core.meter.first_byte(&routed.backend.id, now.monotonic.since(sent_at));
                self.status = self.client.answer.status();
                now
            }
            Answered::ClientGone => {
                self.outcome = Some(Outcome::ClientGone);
                charge.end(Ending::Unreported(Seen::default()), self.core.now());
                return Ok(Next::Close);
            }
            Answered::Undelivered(denied) => {
                charge.end(Ending::Undelivered, self.core.now());
                self.unanswered(routed, &occupied);
                return Err(denied);
            }
        };
        if occupied.target().health.answered() {
            info!(provider = %routed.backend.id, host = %occupied.target().host, "a backend answers again");
        }
        pin!(self.relay(routed, connection, charge, asks_usage, now)).await
    }

    async fn relay(
        &mut self,
        routed: &Routed<'_>,
        mut connection: Connection,
        charge: &mut Charge,
        asked_usage: bool,
        now: Now,
    ) -> Result<Next, Denied> {
        let head = &self.client.answer;
        let tap = Tap::of_response(routed.endpoint.dialect(), head, asked_usage);
        let version = self.client.head.version();
        let framing = ClientFraming::choose(version, head.body(), tap.withholds());
        let keep = self.keeps_alive() && framing != ClientFraming::UntilClose;
        let (body, reusable_head) = (head.body(), head.keep_alive());
        let success = (200..300).contains(&head.status());
        let mut extra = Vec::with_capacity(EXTRA_HEADERS);
        let replaces = match success {
            true => self.success_headers(&mut extra, routed, charge, now),
            false => None,
        };
        write_response(
            &mut self.client.out,
            &RelayedHead {
                head: &self.client.answer,
                framing,
                version,
                keep_alive: keep,
                request_id: self.id.as_bytes(),
                extra: &extra,
                replaces,
            },
        );
        // Where nothing but the end of the connection ends the body, whatever ends it too early must not look like that:
        // a backend that breaks, a panic, the end of the process (RFC 9112 §8).
        let until_close = framing == ClientFraming::UntilClose;
        if until_close {
            self.client.stream.reset_at_close(true);
        }
        let mut relay = Relay {
            client: self.client,
            upstream: &mut connection,
            tap,
            framing,
            charge,
            success,
            http: self.http,
            passed: Vec::new(),
            core: self.core,
            fresh: Some(now),
        };
        let relayed = pin!(relay.run(body)).await;
        self.outcome = Some(match relayed {
            Relayed::Complete { .. } => Outcome::Complete,
            Relayed::ClientGone => Outcome::ClientGone,
            Relayed::BrokenOff | Relayed::BrokenBeforeAnything(_) => Outcome::BackendBroke,
        });
        if until_close && matches!(relayed, Relayed::Complete { .. } | Relayed::BrokenBeforeAnything(_)) {
            self.client.stream.reset_at_close(false);
        }
        match relayed {
            Relayed::Complete { reusable } => {
                if reusable && reusable_head && !connection.spoilt {
                    self.core.pool.keep(connection);
                }
                Ok(if keep { Next::Keep } else { Next::Close })
            }
            Relayed::ClientGone => Ok(Next::Close),
            Relayed::BrokenOff => Ok(Next::BreakOff),
            Relayed::BrokenBeforeAnything(reason) => Err(Denied::AnswerBroken(reason)),
        }
    }

    /// The alerts, and the room left under the tightest rates.
    fn success_headers(
        &self,
        extra: &mut Vec<u8>,
        routed: &Routed<'_>,
        charge: &Charge,
        now: Now,
    ) -> Option<Role> {
        let (admission, reservation) = (charge.admission()?, charge.reservation()?);
        for limit_id in admission.alerts().chain(reservation.alerts()) {
            answer::write_alert(extra, limit_id.as_str());
        }
        let (requests, tokens) = (admission.requests_left(now), reservation.tokens_left());
        answer::write_rate_headers(extra, routed.endpoint.dialect(), requests, tokens, now.wall)
    }

    /// Writes the request to the first target that takes it. Gives the body's buffer back.
    async fn send(
        &self,
        routed: &Routed<'_>,
        mut body: Vec<u8>,
        admitted: Now,
    ) -> Result<(Connection, Occupied, Vec<u8>), Denied> {
        let backend = routed.backend;
        let mut place = match &backend.room {
            None => None,
            Some(room) => Some(room.enter().ok_or_else(|| Denied::ProviderFull(backend.id.clone()))?),
        };
        let mut tried = Vec::new();
        let mut failure = None;
        let mut fresh = Some(admitted);
        loop {
            let now = fresh.take().unwrap_or_else(|| self.core.now()).monotonic;
            let turn = self.core.next_number() as usize;
            let picked = upstream::pick(&backend.targets.load(), &tried, now, turn);
            let Some(Picked { target, probes }) = picked else {
                return Err(failure.unwrap_or_else(|| Denied::NoBackend(backend.id.clone())));
            };
            let occupied = Occupied::new(&target, probes);
            loop {
                let mut connection = match self.connection(&target).await {
                    Ok(connection) => connection,
                    Err(unreachable) => {
                        self.unreachable(routed, &occupied, &unreachable);
                        failure = Some(Denied::Unreachable(backend.id.clone(), unreachable));
                        break;
                    }
                };
                let head = self.request_head(routed, &target, body.len());
                let (sent, returned) = write(&mut connection, head, body, &self.http).await;
                body = returned;
                match sent {
                    Sent::All => {
                        connection.place = place.take();
                        return Ok((connection, occupied, body));
                    }
                    // It died in the pool; another connection to the same target is as good as this one was.
                    Sent::Nothing if connection.pooled => {}
                    // The backend may have answered before it had read everything: its answer is still read.
                    Sent::Nothing | Sent::Part => {
                        connection.spoilt = true;
                        connection.place = place.take();
                        return Ok((connection, occupied, body));
                    }
                    Sent::Stalled => {
                        self.unanswered(routed, &occupied);
                        return Err(Denied::BackendSilent("the backend did not take the request in time"));
                    }
                }
            }
            tried.push(target);
        }
    }

    async fn connection(&self, target: &Arc<Target>) -> Result<Connection, Unreachable> {
        match self.core.pool.take(target) {
            Some(pooled) => Ok(pooled),
            None => {
                let connection = upstream::connect(target, &self.http).await?;
                if target.health.connected() {
                    info!(host = %target.host, address = %target.address, "a backend takes connections again");
                }
                Ok(connection)
            }
        }
    }

    /// Sets a target aside that could not be reached. Its name may have another address by now.
    fn unreachable(&self, routed: &Routed<'_>, occupied: &Occupied, why: &Unreachable) {
        let (now, target) = (self.core.now().monotonic, occupied.target());
        if let Some(aside) = target.health.unreachable(now, occupied.probes) {
            why.tell(&routed.backend.id, target, aside);
        }
        routed.backend.targets.doubt();
    }

    /// Sets a target aside that took one request after the other and answered none.
    fn unanswered(&self, routed: &Routed<'_>, occupied: &Occupied) {
        let (now, target) = (self.core.now().monotonic, occupied.target());
        if let Some(aside) = target.health.unanswered(now, occupied.probes) {
            let (provider, host, address) = (&routed.backend.id, &target.host, target.address);
            warn!(%provider, %host, %address, ?aside, "a backend takes requests and does not answer them");
            routed.backend.targets.doubt();
        }
    }

    fn request_head(&self, routed: &Routed<'_>, target: &Target, body_bytes: usize) -> Vec<u8> {
        let secret = routed.backend.credential.as_ref().map(|secret| secret.0.as_str());
        let credential = match (secret, routed.backend.api) {
            (None, _) => ProviderCredential::Absent,
            (Some(key), Api::Anthropic) => ProviderCredential::XApiKey(key),
            (Some(key), Api::OpenAi | Api::Ollama) => ProviderCredential::Bearer(key),
        };
        let mut out = Vec::with_capacity(1024);
        write_request(
            &mut out,
            &UpstreamRequest {
                head: &self.client.head,
                host: &target.host,
                prefix: &target.prefix,
                credential,
                accept_encoding: AcceptEncoding::Identity,
                body_bytes: Some(body_bytes as u64),
            },
        );
        out
    }

    /// Waits for the head of the final answer, skipping interim ones.
    async fn response_head(&mut self, connection: &mut Connection) -> Answered {
        let bounds = HeadBounds { max_bytes: self.http.max_head };
        let mut search = HeadSearch::default();
        let mut interim = 0;
        loop {
            match self.client.answer.parse(&connection.buffer, &bounds, &mut search, false) {
                HeadProgress::Complete { consumed, .. } => {
                    connection.buffer.drain(..consumed);
                    if !self.client.answer.is_interim() {
                        break;
                    }
                    interim += 1;
                    if interim > INTERIM_ANSWERS {
                        return failed("the backend sent one interim answer after another");
                    }
                    continue;
                }
                HeadProgress::Bad(error) => {
                    return failed(&format!("the backend sent what is no HTTP answer: {}", error.reason));
                }
                HeadProgress::Partial => {}
            }
            let watch = Watch { bound: self.http.first_byte_timeout };
            match watched(connection.read(READ_ROOM), &mut self.client.stream, watch).await {
                Waited::Ready(Ok(count)) if count > 0 => {}
                Waited::Ready(_) => {
                    return failed("the backend closed before it answered");
                }
                Waited::TimedOut => {
                    return undelivered(Denied::BackendSilent(
                        "the backend did not answer within http.first_byte_timeout",
                    ));
                }
                Waited::ClientGone => return Answered::ClientGone,
            }
        }
        if self.client.answer.status() == 101 {
            return failed("the backend switched protocols, which nobody asked for");
        }
        Answered::Head
    }
}

fn undelivered(denied: Denied) -> Answered {
    Answered::Undelivered(denied)
}

fn failed(reason: &str) -> Answered {
    undelivered(Denied::BackendFailed(reason.to_owned()))
}

/// How far a request got.
enum Sent {
    All,
    /// The kernel took no byte of it: it may be sent again.
    Nothing,
    /// Part of it is out: it may not.
    Part,
    Stalled,
}

/// Writes head and body, in one call when they are small. Gives the body back.
async fn write(
    connection: &mut Connection,
    mut head: Vec<u8>,
    body: Vec<u8>,
    http: &HttpBounds,
) -> (Sent, Vec<u8>) {
    let together = head.len() + body.len() <= ONE_WRITE;
    if together {
        head.extend_from_slice(&body);
    }
    let whole = head.len();
    let Ok((first, head)) = within(http.between_bytes_timeout, connection.stream.write_once(head)).await
    else {
        return (Sent::Stalled, body);
    };
    let mut sent = match first {
        Err(_) => return (Sent::Nothing, body),
        Ok(count) if count < whole => match connection.stream.write_rest(head, count).await.0 {
            Ok(_) => Sent::All,
            Err(_) => Sent::Part,
        },
        Ok(_) => Sent::All,
    };
    if together || body.is_empty() || !matches!(sent, Sent::All) {
        return (sent, body);
    }
    match within(http.between_bytes_timeout, connection.stream.write_all(body)).await {
        Ok((Ok(_), body)) => (sent, body),
        Ok((Err(_), body)) => {
            sent = Sent::Part;
            (sent, body)
        }
        Err(_) => (Sent::Stalled, Vec::new()),
    }
}
