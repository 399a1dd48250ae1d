//! `GET /v1/models`: the routes that this key may use, in OpenAI's list form (SPEC §6).
//!
//! A route with a literal pattern is a model; one with wildcards is listed by its pattern, because the
//! models behind it are not known here. A scope must allow what is listed: the model asked for, the model
//! served, and the provider.

use super::{To, write_json, write_member, write_raw};
use engine::{Routes, Scopes};

/// Append the whole answer. No scopes: a client without a key, which sees all routes.
pub fn write_models(out: &mut Vec<u8>, to: &To<'_>, routes: &Routes, scopes: Option<&Scopes>) {
    write_json(
        out,
        to,
        200,
        |_| {},
        |out| {
            out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
            let mut first = true;
            for (at, listed) in routes.iter().enumerate() {
                let id = listed.model.pattern();
                // The first match wins: what a route before this one takes is that one's.
                let route = if is_literal(id) { routes.find(id).unwrap_or(listed) } else { listed };
                let repeated = routes.iter().take(at).any(|before| before.model.pattern() == id);
                let allowed = scopes.is_none_or(|scopes| {
                    scopes.allows_model(id)
                        && scopes.allows_model(route.served(id))
                        && scopes.allows_provider(route.provider.as_str())
                });
                if repeated || !allowed {
                    continue;
                }
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                out.push(b'{');
                write_member(out, "id", id);
                write_member(out, "object", "model");
                write_raw(out, "created", "0");
                write_member(out, "owned_by", route.provider.as_str());
                out.push(b'}');
            }
            out.extend_from_slice(b"]}");
        },
    );
}

fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '\\'])
}
