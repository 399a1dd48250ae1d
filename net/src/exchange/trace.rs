//! The access event: one line a request, for those who ask for it (`TT_LOG=access=debug`).
//!
//! Collected only while somebody listens: otherwise a request pays for one look at a flag. It names the key by its kid
//! and never holds a credential or anything of a body but the model's name. It is written by the core itself, so
//! it is a tool for finding out, not for billing: that is what usage is for.

use std::rc::Rc;

use engine::metrics::Outcome;
use engine::{Instance, Key, Kid, LimitId, NodeId, UsageSum};
use tracing::{Level, debug, enabled};

use super::request_id::RequestId;
use crate::meter::is_met;
use crate::plans::Resolved;

/// What is known of a request so far.
#[derive(Default)]
pub struct Trace {
    kid: Option<Kid>,
    node: Option<NodeId>,
    endpoint: Option<&'static str>,
    resolved: Option<Rc<Resolved>>,
    caps: Vec<LimitId>,
    used: Option<UsageSum>,
}

impl Trace {
    /// A trace, if anybody listens.
    pub fn begin() -> Option<Box<Trace>> {
        enabled!(target: "access", Level::DEBUG).then(Box::default)
    }

    /// Whose request it is.
    pub fn owner(&mut self, key: Option<&Key>) {
        self.kid = key.map(|key| key.kid);
        self.node = Some(key.map_or_else(NodeId::global, |key| key.owner.clone()));
    }

    /// What it asks for.
    pub fn endpoint(&mut self, endpoint: &'static str) {
        self.endpoint = Some(endpoint);
    }

    /// Where it goes.
    pub fn resolved(&mut self, resolved: &Rc<Resolved>) {
        self.resolved = Some(resolved.clone());
    }

    /// Caps that it meets, of those that it selects.
    pub fn caps<'i>(&mut self, instances: impl Iterator<Item = &'i Instance>) {
        self.caps.extend(instances.filter(|cap| is_met(cap)).map(|cap| cap.limit.id.clone()));
    }

    /// What it used.
    pub fn used(&mut self, used: Option<UsageSum>) {
        self.used = used;
    }

    /// Writes the event. `refused_by` is the cap that refused.
    pub fn end(&self, id: &RequestId, status: u16, outcome: Outcome, refused_by: Option<&LimitId>) {
        let resolved = self.resolved.as_deref();
        let caps: Vec<&str> = self.caps.iter().map(LimitId::as_str).collect();
        let used = self.used.as_ref();
        debug!(
            target: "access",
            request = id.as_str(),
            kid = self.kid.as_ref().map(Kid::as_str),
            node = self.node.as_ref().map(NodeId::as_str),
            endpoint = self.endpoint,
            model = resolved.map(|resolved| &*resolved.model),
            served = resolved.map(|resolved| &*resolved.served),
            provider = resolved.map(|resolved| resolved.provider.as_str()),
            status,
            ending = outcome.name(),
            refused_by = refused_by.map(LimitId::as_str),
            input_tokens = used.map(|used| used.input.0),
            cached_input_tokens = used.map(|used| used.cached_input.0),
            output_tokens = used.map(|used| used.output.0),
            usd = used.map(|used| tracing::field::display(used.cost)),
            estimated = used.map(|used| used.estimated > 0),
            unpriced = used.map(|used| used.unpriced > 0),
            caps = caps.join(","),
            "request"
        );
    }
}
