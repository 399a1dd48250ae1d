//! A world's tree, keys, limits and overrides, how they are edited in mid-flight, and the plans compiled from them.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, CellTable, Chain, Dims, Enforce, Fail, Gate, GateOnePlan,
    GateTwoPlan, Glob, Identity, Instance, Level, Limit, LimitType, Match, Mode, NodeId, Override,
    OverridePolicy, Ruleset, Selected, Tree, Units, Window, Zone,
};

use super::coverage::{Coverage, Kind};
use super::support::{SECOND, Seeded, calendar, limit, rolling};

const MODELS: [&str; 3] = ["gpt-4o", "gpt-5", "llama"];
const ENDPOINTS: [&str; 2] = ["/v1/chat/completions", "/v1/embeddings"];

/// What one request is: chain, model, endpoint, by place.
pub type Shape = (usize, usize, usize);

pub struct Rules {
    tree: Vec<NodeId>,
    key_nodes: bool,
    pub chains: Vec<Chain>,
    pub limits: Vec<Limit>,
    overrides: Vec<Override>,
    zones: Vec<Zone>,
    /// Zones are edited; else a limit of one id has one zone for ever, also when it is removed and comes again.
    pub rezones: bool,
    version: u64,
    ruleset: Ruleset,
    plans: HashMap<Shape, (Arc<GateOnePlan>, Arc<GateTwoPlan>)>,
    /// Every counter there ever was, as it is limited now or was last.
    watched: [Vec<Instance>; 2],
    places: HashMap<(Gate, Identity), usize>,
    pub watch_one: Arc<GateOnePlan>,
    pub watch_two: Arc<GateTwoPlan>,
    /// Ids that ever were edited, removed or added while the world ran.
    pub edited: Vec<String>,
}

impl Rules {
    pub fn new(seeded: &mut Seeded, zones: &[Zone], table: &CellTable, cores: usize) -> Rules {
        let key_nodes = seeded.one_in(4);
        let mut tree = Vec::new();
        for org in 0..seeded.between(1, 2) {
            tree.push(NodeId::new(&format!("org:o{org}")));
            for team in 0..seeded.below(3) {
                tree.push(NodeId::new(&format!("org:o{org}/team:t{team}")));
                if seeded.one_in(2) {
                    tree.push(NodeId::new(&format!("org:o{org}/team:t{team}/user:u")));
                }
            }
        }
        let mut chains = Vec::new();
        for key in 0..seeded.between(2, 4) {
            let owner = seeded.pick(&tree).clone();
            let kid = format!("vk_{key}");
            chains.push(Chain::of_key(&owner, &kid));
            if key_nodes {
                tree.push(owner.key_leaf(&kid));
            }
        }
        if seeded.one_in(3) {
            chains.push(Chain::anonymous());
        }
        let empty = Selected::default();
        let mut rules = Rules {
            tree,
            key_nodes,
            chains,
            limits: Vec::new(),
            overrides: Vec::new(),
            zones: zones.to_vec(),
            rezones: seeded.one_in(3),
            version: 0,
            ruleset: Ruleset::empty(0),
            plans: HashMap::new(),
            watched: [Vec::new(), Vec::new()],
            places: HashMap::new(),
            watch_one: table.plan(&empty),
            watch_two: GateTwoPlan::new(&empty, cores),
            edited: Vec::new(),
        };
        for id in 0..seeded.between(2, 7) {
            rules.add_limit(seeded, id);
        }
        rules.arm(table, cores);
        rules
    }

    fn add_limit(&mut self, seeded: &mut Seeded, id: u64) {
        let kind = *seeded.pick(&[
            LimitType::Rpm,
            LimitType::Concurrency,
            LimitType::Tpm,
            LimitType::Tpm,
            LimitType::QuotaRequests,
            LimitType::QuotaTokens,
            LimitType::BudgetUsd,
            LimitType::BudgetUsd,
        ]);
        let mut made = limit(&format!("l{id}"), kind, 1, Window::Live);
        self.rotate(seeded, &mut made);
        made.attach = match seeded.below(6) {
            0 | 1 => Attach::Node(NodeId::global()),
            2 => Attach::Node(seeded.pick(&self.tree).clone()),
            3 => Attach::Level(Level::Team),
            4 => Attach::Level(Level::Key),
            _ => Attach::Level(Level::Org),
        };
        let pattern = |text: &'static str| Some(Glob::new(text).unwrap());
        made.matches = Match {
            model: match kind.gate() {
                Gate::Two if seeded.one_in(3) => {
                    pattern(seeded.pick::<&str>(&["gpt-*", "*", "gpt-?", "llama"]))
                }
                Gate::One if seeded.one_in(8) => pattern("*"),
                _ => None,
            },
            provider: None,
            endpoint: if seeded.one_in(6) {
                pattern(seeded.pick::<&str>(&["/v1/*", "/v1/*/*"]))
            } else {
                None
            },
        };
        let ceiling = seeded.one_in(2).then_some(Units(100));
        made.overrides = OverridePolicy { allow: seeded.one_in(2), ceiling };
        edit_amount(seeded, &mut made);
        edit_posture(seeded, &mut made);
        self.limits.push(made);
    }

    /// Another period or algorithm: another counter.
    fn rotate(&self, seeded: &mut Seeded, limit: &mut Limit) {
        limit.window = match limit.kind {
            LimitType::Concurrency => Window::Live,
            LimitType::Rpm | LimitType::Tpm => {
                rolling(*seeded.pick(&[SECOND, 60 * SECOND, 61, 10 * SECOND]), *seeded.pick(&Algorithm::ALL))
            }
            _ => match calendar(*seeded.pick(&CalendarPeriod::ALL)) {
                Window::Calendar { period, .. } => {
                    let own = usize::from(*limit.id.as_str().as_bytes().last().unwrap()) % self.zones.len();
                    let place =
                        if self.rezones { seeded.below(self.zones.len() as u64) as usize } else { own };
                    Window::Calendar { period, zone: self.zones[place].clone() }
                }
                other => other,
            },
        };
    }

    /// An edit of the rules, of some kind.
    pub fn reload(&mut self, seeded: &mut Seeded, cover: &mut Coverage) {
        cover.note(Kind::Reloaded);
        for _ in 0..seeded.between(1, 3) {
            if seeded.one_in(10) && self.limits.len() < 9 {
                let taken = |id: u64| self.limits.iter().any(|limit| limit.id.as_str() == format!("l{id}"));
                let id = (0..).find(|id| !taken(*id)).unwrap();
                self.add_limit(seeded, id);
                self.edited.push(format!("l{id}"));
                cover.note(Kind::LimitAdded);
                continue;
            }
            if self.limits.is_empty() {
                continue;
            }
            let place = seeded.below(self.limits.len() as u64) as usize;
            self.edited.push(self.limits[place].id.to_string());
            let mut edited = self.limits[place].clone();
            match seeded.below(12) {
                0 if self.limits.len() > 2 => {
                    self.limits.remove(place);
                    cover.note(Kind::LimitRemoved);
                    continue;
                }
                1 => {
                    self.rotate(seeded, &mut edited);
                    cover.note(Kind::Rotated);
                }
                2 if self.rezones => {
                    if let Window::Calendar { zone, .. } = &mut edited.window {
                        *zone = seeded.pick(&self.zones).clone();
                        cover.note(Kind::Rezoned);
                    }
                }
                3..6 => {
                    edit_posture(seeded, &mut edited);
                    cover.note(Kind::PostureEdited);
                }
                6 | 7 => {
                    let nodes = seeded.pick(&self.chains).nodes();
                    let node = seeded.pick(nodes).clone();
                    let amount = Units(seeded.between(1, 120).into());
                    self.overrides.retain(|old| old.limit_id != edited.id || old.node != node);
                    if !seeded.one_in(4) {
                        self.overrides.push(Override { limit_id: edited.id.clone(), node, amount });
                    }
                    cover.note(Kind::Overridden);
                }
                _ => {
                    edit_amount(seeded, &mut edited);
                    cover.note(Kind::AmountEdited);
                }
            }
            self.limits[place] = edited;
        }
    }

    /// Compiles what stands now.
    pub fn arm(&mut self, table: &CellTable, cores: usize) {
        self.version += 1;
        let tree = Tree::new(self.tree.iter().cloned());
        let (limits, overrides) = (self.limits.clone(), self.overrides.clone());
        let (ruleset, dropped) =
            Ruleset::compile(self.version, tree, limits, overrides, self.key_nodes).expect("it compiles");
        self.ruleset = ruleset;
        self.plans.clear();
        for chain in 0..self.chains.len() {
            for (model, endpoint) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
                for gate in [Gate::One, Gate::Two] {
                    for instance in self.resolve((chain, model, endpoint), gate).0 {
                        let over = |over: &&Override| {
                            over.limit_id == instance.limit.id
                                && over.node == instance.node
                                && !dropped.iter().any(|drop| drop.override_ == **over)
                        };
                        let over = self.overrides.iter().find(over).map(|over| over.amount);
                        assert_eq!(instance.amount, over.unwrap_or(instance.limit.amount));
                        self.watch(gate, instance);
                    }
                }
            }
        }
        self.watch_one = table.plan(&Selected(self.watched[0].clone()));
        self.watch_two = GateTwoPlan::new(&Selected(self.watched[1].clone()), cores);
    }

    /// Lets go of all cells of gate 1; to be armed again.
    pub fn forget_plans(&mut self, table: &CellTable) {
        self.plans.clear();
        self.watch_one = table.plan(&Selected::default());
    }

    fn watch(&mut self, gate: Gate, instance: Instance) {
        let list = &mut self.watched[gate as usize];
        let place = self.places.entry((gate, instance.identity.clone())).or_insert(list.len());
        if *place == list.len() {
            list.push(instance);
        } else {
            list[*place] = instance;
        }
    }

    fn resolve(&self, shape: Shape, gate: Gate) -> Selected {
        let dims = Dims { model: MODELS[shape.1], provider: "p", endpoint: ENDPOINTS[shape.2] };
        self.ruleset.resolve(&self.chains[shape.0], gate, &dims)
    }

    pub fn random_shape(&self, seeded: &mut Seeded) -> Shape {
        (seeded.below(self.chains.len() as u64) as usize, seeded.below(3) as usize, seeded.below(2) as usize)
    }

    /// The plans of a request, compiled once a ruleset.
    pub fn plans(
        &mut self,
        shape: Shape,
        table: &CellTable,
        cores: usize,
    ) -> (Arc<GateOnePlan>, Arc<GateTwoPlan>) {
        if let Some(plans) = self.plans.get(&shape) {
            return plans.clone();
        }
        let one = table.plan(&self.resolve(shape, Gate::One));
        let two = GateTwoPlan::new(&self.resolve(shape, Gate::Two), cores);
        self.plans.insert(shape, (Arc::clone(&one), Arc::clone(&two)));
        (one, two)
    }
}

fn edit_amount(seeded: &mut Seeded, limit: &mut Limit) {
    limit.amount = Units(match limit.kind {
        LimitType::Rpm | LimitType::Concurrency | LimitType::QuotaRequests => seeded.between(1, 6).into(),
        _ => seeded.between(1, 60).into(),
    });
}

fn edit_posture(seeded: &mut Seeded, limit: &mut Limit) {
    limit.posture.mode =
        *seeded.pick(&[Mode::On, Mode::On, Mode::On, Mode::On, Mode::On, Mode::Shadow, Mode::Off]);
    limit.posture.enforce = if seeded.one_in(6) { Enforce::AlertOnly } else { Enforce::Hard };
    limit.posture.fail = *seeded.pick(&[Fail::Open, Fail::Closed]);
    limit.suspended = seeded.one_in(12);
    if limit.kind.gate() == Gate::Two {
        limit.admit = *seeded.pick(&[Admit::WhileUnder, Admit::WhileUnder, Admit::IfFits]);
    }
}
