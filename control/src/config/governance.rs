//! The `governance` block but for its limits: the switch, the zone, and the declared tree.

use std::collections::HashMap;

use engine::{NodeId, Zone};

use super::decode::{At, Decoder, Fields, shown};
use super::{Governance, limits};
use crate::bounds;
use crate::yaml::Node;

/// `governance`; an absent block is off.
pub fn governance(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Governance> {
    let Some(at) = fields.get("governance") else {
        return Some(Governance {
            enabled: false,
            timezone: Zone::utc(),
            key_nodes: false,
            nodes: Vec::new(),
            limits: Vec::new(),
        });
    };
    let fields = decoder.fields(at, &["enabled", "timezone", "key_nodes", "tenants", "limits"])?;
    let enabled = switch(decoder, &fields, "enabled");
    let key_nodes = switch(decoder, &fields, "key_nodes");
    let timezone = match fields.get("timezone") {
        None => Some(Zone::utc()),
        Some(at) => zone(decoder, &at),
    };
    let nodes = tenants(decoder, &fields);
    // A wrong zone is noted once, here; the limits are read with UTC so that their own errors are seen too.
    let shared = limits::Shared {
        zone: timezone.clone().unwrap_or_else(Zone::utc),
        key_nodes: key_nodes.unwrap_or(false),
    };
    let limits = limits::limits(decoder, &fields, &shared);
    Some(Governance {
        enabled: enabled?,
        timezone: timezone?,
        key_nodes: key_nodes?,
        nodes: nodes?,
        limits: limits?,
    })
}

fn switch(decoder: &mut Decoder<'_>, fields: &Fields<'_>, key: &str) -> Option<bool> {
    match fields.get(key) {
        None => Some(false),
        Some(at) => decoder.boolean(&at),
    }
}

/// A zone of the time zone database.
pub fn zone(decoder: &mut Decoder<'_>, at: &At<'_>) -> Option<Zone> {
    let text = decoder.string(at)?;
    let zone = Zone::named(&text);
    if zone.is_none() {
        decoder
            .error(at, format!("{} is no time zone; write a name such as UTC or Europe/Berlin", shown(at)));
    }
    zone
}

/// `tenants`, as node ids in file order.
fn tenants(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Vec<NodeId>> {
    let Some(at) = fields.get("tenants") else { return Some(Vec::new()) };
    let mut orgs = HashMap::new();
    let mut nodes = Vec::new();
    for item in decoder.list(&at)? {
        tenant(decoder, item, &mut orgs, &mut nodes);
    }
    Some(nodes)
}

/// One entry of `tenants`. What can be read is added even beside an error: the errors decide at the end.
fn tenant<'n>(
    decoder: &mut Decoder<'_>,
    item: At<'n>,
    orgs: &mut HashMap<String, &'n Node>,
    nodes: &mut Vec<NodeId>,
) {
    let Some(fields) = decoder.fields(item, &["org", "teams", "users"]) else { return };
    let org = match fields.spelt("org") {
        Some(at) => tenancy_id(decoder, &at, "org", orgs),
        None => {
            decoder.required(&fields, "org");
            None
        }
    };
    let mut teams = HashMap::new();
    if let Some(items) = fields.get("teams").and_then(|at| decoder.list(&at)) {
        for item in items {
            tenancy_id(decoder, &item, "team", &mut teams);
        }
    }
    let prefix = org.as_ref().map(|org| format!("org:{org}"));
    if let Some(prefix) = &prefix {
        nodes.push(NodeId::new(prefix));
        let mut in_order: Vec<_> = teams.iter().map(|(team, node)| (node.mark, team)).collect();
        in_order.sort_unstable();
        nodes.extend(in_order.iter().map(|(_, team)| NodeId::new(&format!("{prefix}/team:{team}"))));
    }
    users(decoder, &fields, &teams, prefix.as_deref(), nodes);
}

fn users(
    decoder: &mut Decoder<'_>,
    fields: &Fields<'_>,
    teams: &HashMap<String, &Node>,
    prefix: Option<&str>,
    nodes: &mut Vec<NodeId>,
) {
    let Some(at) = fields.get("users") else { return };
    let Some(groups) = decoder.entries(&at) else { return };
    for group in groups {
        let place = at.quoted(group);
        if !teams.contains_key(&group.key) {
            decoder.error_at(place.path.clone(), group.mark, "names a team not declared in teams");
        }
        let mut seen = HashMap::new();
        for item in decoder.list(&place).unwrap_or_default() {
            let user = tenancy_id(decoder, &item, "user", &mut seen);
            if let (Some(user), Some(prefix)) = (user, prefix) {
                nodes.push(NodeId::new(&format!("{prefix}/team:{}/user:{user}", group.key)));
            }
        }
    }
}

/// The id of an org, team or user: the page's charset, and not there before.
fn tenancy_id<'n>(
    decoder: &mut Decoder<'_>,
    at: &At<'n>,
    what: &str,
    seen: &mut HashMap<String, &'n Node>,
) -> Option<String> {
    let id = decoder.string(at)?;
    let wrong = if id == engine::tenancy::GLOBAL {
        "__global is the synthetic root and cannot be declared".to_owned()
    } else if id.len() > bounds::ID_BYTES {
        format!("is longer than {} characters", bounds::ID_BYTES)
    } else if !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_')) {
        format!("{} may have lowercase letters, digits, `-` and `_` only", shown(at))
    } else if let Some(first) = seen.get(&id) {
        format!("the {what} {id:?} is given twice (first on line {})", first.mark.line)
    } else {
        seen.insert(id.clone(), at.node);
        return Some(id);
    };
    decoder.error(at, wrong);
    None
}
