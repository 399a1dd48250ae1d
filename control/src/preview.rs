//! `govern preview`: what the compiled limits select, and why the rest was dropped.
//!
//! Without a node or key it lists every instance of every limit in evaluation order, both gates together; with one it
//! shows what one request would meet, gate 1 then gate 2, and a reason for each limit that it would not. It reads the
//! database if there is one and changes nothing.

use std::path::Path;

use engine::limits::Class;
use engine::{Attach, Chain, Dims, Gate, Instance, Limit, NodeId, Ruleset};
use serde_json::{Map, Number, Value, json};

use crate::arm::{self, Armed};
use crate::config::{Config, Credentials, Finding};
use crate::keys;
use crate::start::{StartError, dropped_line, located};
use crate::store::{RuntimePlane, Store};

/// Whose request is looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// Nobody's: the whole compiled set.
    Everything,
    /// A request counted at this node; `__global` is traffic without a key.
    Node(String),
    /// A request with this key.
    Key(String),
}

/// One compiled instance.
#[derive(Clone, Debug)]
pub struct Row {
    /// The instance.
    pub instance: Instance,
}

/// A limit that selects nothing here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dropped {
    /// The limit.
    pub limit_id: String,
    /// The node that is to blame, if one is.
    pub node: Option<String>,
    /// Why, in a sentence; begins with `inert: ` where no request could ever be selected.
    pub reason: String,
}

/// What there is to see.
#[derive(Debug)]
pub struct Preview {
    /// The instances, in evaluation order.
    pub instances: Vec<Row>,
    /// The limits without an instance, in ascending id.
    pub dropped: Vec<Dropped>,
    /// What loads and has no effect, each a line.
    pub warnings: Vec<String>,
}

/// Compiles and looks.
///
/// # Errors
/// A config that is wrong or does not compile; a key that does not exist.
pub fn preview(
    config_path: &Path,
    subject: &Subject,
    model: Option<&str>,
    endpoint: Option<&str>,
) -> Result<Preview, StartError> {
    let loaded = Config::load(config_path, Credentials::Unused)
        .map_err(|rejected| StartError::config(config_path, &rejected))?;
    let config = loaded.config;
    let store = Store::open_existing(&config.data_dir)?;
    let (runtime, rows) = match &store {
        Some(store) => (store.runtime_plane()?, store.keys()?),
        None => (RuntimePlane::default(), Vec::new()),
    };
    let Armed { ruleset, dropped } = arm::arm(1, &config, &runtime, &rows)?;
    let mut warnings: Vec<_> =
        loaded.warnings.iter().map(|finding: &Finding| located(config_path, finding)).collect();
    warnings.extend(dropped.iter().map(dropped_line));
    if !config.governance.enabled {
        warnings.push("governance is not enabled: nothing is limited".to_owned());
    }
    let chain = match subject {
        Subject::Everything => return Ok(everything(&ruleset, warnings)),
        Subject::Node(node) => chain_of_node(&config, &runtime, node, &mut warnings),
        Subject::Key(kid) => chain_of_key(store.as_ref(), kid, &mut warnings)?,
    };
    let provider = match model.map(|model| (model, config.routes.find(model))) {
        Some((_, Some(route))) => route.provider.as_str(),
        Some((model, None)) => {
            warnings.push(format!("no route takes the model {model:?}: such a request is a 404"));
            ""
        }
        None => "",
    };
    let dims = Dims { model: model.unwrap_or_default(), provider, endpoint: endpoint.unwrap_or_default() };
    let explanation = ruleset.explain(&chain, &dims);
    Ok(Preview {
        instances: explanation.instances.into_iter().map(|instance| Row { instance }).collect(),
        dropped: explanation
            .dropped
            .into_iter()
            .map(|dropped| Dropped {
                limit_id: dropped.limit.id.to_string(),
                node: dropped.node.map(|node| node.to_string()),
                reason: dropped.reason,
            })
            .collect(),
        warnings,
    })
}

/// The whole compiled set: every instance, and every limit that has none.
fn everything(ruleset: &Ruleset, warnings: Vec<String>) -> Preview {
    let without = ruleset.limits().iter().filter_map(|limit| {
        let reason = match limit.inert_reason(ruleset.key_nodes()) {
            Some(reason) => format!("inert: {reason}"),
            None => no_node(ruleset, limit)?,
        };
        Some(Dropped { limit_id: limit.id.to_string(), node: None, reason })
    });
    let dropped = without.collect();
    let instances = ruleset.all_instances().into_iter().map(|instance| Row { instance }).collect();
    Preview { instances, dropped, warnings }
}

/// A template over a level that is empty so far.
fn no_node(ruleset: &Ruleset, limit: &Limit) -> Option<String> {
    match &limit.attach {
        Attach::Level(level) if ruleset.tree().nodes_at(*level).is_empty() => {
            Some(format!("the tree has no node at level {level}"))
        }
        _ => None,
    }
}

fn chain_of_node(config: &Config, runtime: &RuntimePlane, node: &str, warnings: &mut Vec<String>) -> Chain {
    let node = NodeId::new(node);
    if node.is_global() {
        return Chain::anonymous();
    }
    if !arm::is_known_node(config, runtime, &node) {
        warnings.push(format!("node {:?} is not in the tenancy tree", node.as_str()));
    }
    Chain::of_node(&node)
}

fn chain_of_key(store: Option<&Store>, kid: &str, warnings: &mut Vec<String>) -> Result<Chain, StartError> {
    let row = match store {
        Some(store) => store.key(kid)?,
        None => None,
    };
    let row = row.ok_or_else(|| StartError::new(format!("there is no key {kid:?}")))?;
    match keys::state(&row, jiff::Timestamp::now()) {
        "active" => {}
        state => warnings.push(format!("key {kid} is {state}: its requests are a 401")),
    }
    Ok(Chain::of_key(&NodeId::new(&row.owner), kid))
}

impl Row {
    /// The gate that evaluates it: 1 or 2.
    pub fn gate(&self) -> u8 {
        match self.instance.limit.kind.gate() {
            Gate::One => 1,
            Gate::Two => 2,
        }
    }

    /// The amount in force, as digits.
    pub fn amount(&self) -> String {
        self.instance.limit.kind.figure(self.instance.amount).to_string()
    }

    /// Which requests it is about, in a few words; empty for all.
    pub fn matches(&self) -> String {
        let patterns = engine::limits::DIM_NAMES.into_iter().zip(self.instance.limit.matches.patterns());
        let asked = patterns.filter_map(|(dim, pattern)| Some(format!("{dim}={}", pattern?.pattern())));
        asked.collect::<Vec<_>>().join(" ")
    }

    fn json(&self) -> Value {
        let Instance { limit, node, .. } = &self.instance;
        let mut row = Map::new();
        let mut put = |key: &str, value: Value| _ = row.insert(key.to_owned(), value);
        put("limit_id", limit.id.to_string().into());
        put("node", node.to_string().into());
        put("type", limit.kind.name().into());
        put("gate", self.gate().into());
        let amount = serde_json::from_str::<Number>(&self.amount()).map_or(Value::Null, Value::Number);
        put(if limit.kind.class() == Class::Spend { "amount_usd" } else { "amount" }, amount);
        put("unit", limit.kind.unit().into());
        put("period", limit.window.period_text().into());
        put("posture", limit.posture.word().into());
        if limit.suspended {
            put("suspended", true.into());
        }
        let mut asked = Map::new();
        for (dim, pattern) in engine::limits::DIM_NAMES.into_iter().zip(limit.matches.patterns()) {
            if let Some(pattern) = pattern {
                asked.insert(dim.to_owned(), pattern.pattern().into());
            }
        }
        if !asked.is_empty() {
            put("match", asked.into());
        }
        Value::Object(row)
    }
}

impl Preview {
    /// The JSON of `--json`.
    pub fn json(&self) -> Value {
        let dropped = self.dropped.iter().map(|dropped| {
            let mut row = Map::new();
            row.insert("limit_id".to_owned(), dropped.limit_id.clone().into());
            if let Some(node) = &dropped.node {
                row.insert("node".to_owned(), node.clone().into());
            }
            row.insert("reason".to_owned(), dropped.reason.clone().into());
            Value::Object(row)
        });
        json!({
            "instances": self.instances.iter().map(Row::json).collect::<Vec<_>>(),
            "dropped": dropped.collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
providers: [ { id: local, api: openai, base_urls: ["http://127.0.0.1:9"] } ]
routes: [ { model: "gpt-*", provider: local } ]
governance:
  enabled: true
  tenants: [ { org: acme, teams: [ml, search], users: { ml: [dev1] } } ]
  limits:
    - { id: a_key, attach: { level: key }, type: rpm, amount: 1, period: 1m }
    - { id: b_user, attach: { level: user }, type: rpm, amount: 5, period: 90s }
    - { id: c_team, attach: { level: team }, type: budget_usd, amount_usd: 0.1, period: day, match: { provider: local } }
    - { id: d_all, attach: { node: __global }, type: quota_tokens, amount: 7, period: month }
    - { id: e_search, attach: { node: "org:acme/team:search" }, type: concurrency, amount: 2 }
"#;

    fn check(subject: Subject, model: Option<&str>, instances: &[&str], dropped: &[&str], warnings: usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gateway.yaml");
        std::fs::write(&path, CONFIG).expect("written");
        let seen = preview(&path, &subject, model, None).expect("compiles");
        let rows: Vec<_> = seen
            .instances
            .iter()
            .map(|row| {
                format!("{} {} {} {}", row.gate(), row.instance.limit.id, row.instance.node, row.amount())
            })
            .collect();
        assert_eq!(rows, instances, "{subject:?}");
        let fits = seen.dropped.len() == dropped.len()
            && seen
                .dropped
                .iter()
                .zip(dropped)
                .all(|(got, want)| format!("{} {}", got.limit_id, got.reason).starts_with(want));
        assert!(fits, "{subject:?}: wanted {dropped:?}, got {:?}", seen.dropped);
        assert_eq!(seen.warnings.len(), warnings, "{:?}", seen.warnings);
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 1, "nothing was made");
    }

    #[test]
    fn everything_is_listed_in_evaluation_order() {
        let instances = [
            "1 b_user org:acme/team:ml/user:dev1 5",
            "2 c_team org:acme/team:ml 0.1",
            "2 c_team org:acme/team:search 0.1",
            "1 e_search org:acme/team:search 2",
            "2 d_all __global 7",
        ];
        check(Subject::Everything, None, &instances, &["a_key inert: attach level key"], 1);
    }

    #[test]
    fn one_request_meets_its_chain_and_the_rest_has_a_reason() {
        check(
            Subject::Node("org:acme/team:ml/user:dev1".to_owned()),
            Some("gpt-4o"),
            &["1 b_user org:acme/team:ml/user:dev1 5", "2 c_team org:acme/team:ml 0.1", "2 d_all __global 7"],
            &["a_key inert: attach level key", "e_search pinned node"],
            1,
        );
        check(
            Subject::Node("org:acme/team:nope".to_owned()),
            Some("other"),
            &["2 d_all __global 7"],
            &["a_key inert", "b_user the request's chain", "c_team match.provider", "e_search pinned"],
            3,
        );
        check(
            Subject::Node("__global".to_owned()),
            None,
            &["2 d_all __global 7"],
            &["a_key inert", "b_user the request's chain", "c_team match.provider", "e_search pinned"],
            1,
        );
    }

    #[test]
    fn a_key_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gateway.yaml");
        std::fs::write(&path, CONFIG).expect("written");
        let error =
            preview(&path, &Subject::Key("vk_AAAAAAAAAAAA".to_owned()), None, None).expect_err("no key");
        assert_eq!(error.to_string(), "there is no key \"vk_AAAAAAAAAAAA\"");
    }
}
