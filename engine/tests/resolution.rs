//! Resolution against its specification written out: the hierarchy page's steps 1 to 6, taken literally, on random
//! trees, limits, overrides and chains; and its cost over a large tree.

use std::sync::Arc;

use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, Chain, Dims, Gate, Glob, Level, Limit, LimitId, LimitType,
    Match, NodeId, Override, OverridePolicy, Posture, Ruleset, Span, Tree, Units, Window, Zone,
};

/// A small generator, so that one seed names one world.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const KIDS: [&str; 2] = ["vk_000000000001", "vk_000000000002"];
const MODELS: [&str; 5] = ["", "gpt-4o", "gpt-4o-mini", "a/llama", "m1"];
const PROVIDERS: [&str; 3] = ["", "east", "west"];
const ENDPOINTS: [&str; 3] = ["/v1/chat/completions", "/v1/embeddings", ""];
const PATTERNS: [&str; 8] = ["*", "gpt-*", "m?", "a/*", "we*", "[^e]*", "/v1/*", "/v1/chat/*"];

/// Owners as people give them: good, mistyped, out of charset, oddly nested.
fn node(random: &mut Random) -> NodeId {
    let segments = [
        ["org:a", "org:b", "org:Acme", "region:eu"],
        ["team:ml", "team:search", "team:typo", "org:a"],
        ["user:dev1", "user:dev2", "..", "team:ml"],
        ["key:vk_000000000001", "user:x", "", "key:vk_000000000002"],
    ];
    let depth = 1 + random.below(4);
    let parts: Vec<&str> = segments[..depth].iter().map(|choices| *random.one(choices)).collect();
    NodeId::new(&parts.join("/"))
}

fn limit(random: &mut Random, number: usize, tree_nodes: &[NodeId]) -> Limit {
    let kind = *random.one(&LimitType::ALL);
    let window = match kind {
        LimitType::Rpm | LimitType::Tpm => {
            Window::Rolling { period: Span::from_secs(60), algorithm: Algorithm::SlidingWindow }
        }
        LimitType::Concurrency => Window::Live,
        _ => Window::Calendar { period: CalendarPeriod::Day, zone: Zone::utc() },
    };
    let attach = if random.chance(40) {
        Attach::Node(if random.chance(25) { NodeId::global() } else { random.one(tree_nodes).clone() })
    } else {
        Attach::Level(*random.one(&Level::ALL))
    };
    let mut pattern = |percent| {
        let chosen = random.chance(percent);
        chosen.then(|| Glob::new(PATTERNS[random.below(PATTERNS.len())]).unwrap())
    };
    let matches = Match { model: pattern(25), provider: pattern(15), endpoint: pattern(25) };
    Limit {
        id: LimitId::new(&format!("l{}_{number}", random.below(20))),
        attach,
        kind,
        amount: Units(1 + random.below(100) as u128),
        window,
        admit: Admit::WhileUnder,
        posture: Posture::default(),
        matches,
        overrides: OverridePolicy {
            allow: random.chance(70),
            ceiling: random.chance(60).then(|| Units(random.below(150) as u128)),
        },
        suspended: random.chance(10),
    }
}

/// One world: everything that a ruleset is compiled from.
struct World {
    nodes: Vec<NodeId>,
    limits: Vec<Limit>,
    overrides: Vec<Override>,
    key_nodes: bool,
}

fn world(random: &mut Random) -> World {
    let key_nodes = random.chance(30);
    let mut nodes: Vec<NodeId> = (0..1 + random.below(25)).map(|_| node(random)).collect();
    nodes.retain(|node| key_nodes || node.level() != Some(Level::Key));
    nodes.push(NodeId::new("org:a"));
    let limits: Vec<Limit> = (0..random.below(20)).map(|number| limit(random, number, &nodes)).collect();
    let mut overrides = Vec::new();
    while !limits.is_empty() && random.chance(90) {
        let limit = random.one(&limits);
        let node = match (&limit.attach, random.below(4)) {
            (Attach::Node(node), 0) => node.clone(),
            (_, 1) => node(random),
            _ => random.one(&nodes).clone(),
        };
        let amount = Units(random.below(200) as u128);
        overrides.push(Override { limit_id: limit.id.clone(), node, amount });
    }
    World { nodes, limits, overrides, key_nodes }
}

type Row = (String, String, u128);

impl World {
    /// Steps 1 to 6, each over everything there is.
    fn resolve(&self, chain: &Chain, gate: Gate, dims: &Dims<'_>) -> Vec<Row> {
        let dims = match gate {
            Gate::One => Dims { model: "", provider: "", endpoint: dims.endpoint },
            Gate::Two => *dims,
        };
        // 1. Walk the limits in ascending id.
        let mut limits: Vec<&Limit> = self.limits.iter().filter(|limit| limit.kind.gate() == gate).collect();
        limits.sort_by_key(|limit| limit.id.as_str());
        let mut rows = Vec::new();
        for limit in limits {
            // 2. Drop a limit whose match the request does not satisfy.
            let fits =
                |pattern: &Option<Glob>, value| pattern.as_ref().is_none_or(|glob| glob.matches(value));
            if !fits(&limit.matches.model, dims.model)
                || !fits(&limit.matches.provider, dims.provider)
                || !fits(&limit.matches.endpoint, dims.endpoint)
            {
                continue;
            }
            // 3. Expand into nodes.  4. Keep those in the chain.
            for node in self.expand(limit) {
                if chain.nodes().contains(&node) {
                    // 5. Substitute the override.
                    rows.push((limit.id.to_string(), node.to_string(), self.amount(limit, &node)));
                }
            }
        }
        // 6. Order.
        rows.sort_by_key(|(id, node, _)| (std::cmp::Reverse(segments(node)), id.clone(), node.clone()));
        rows
    }

    fn expand(&self, limit: &Limit) -> Vec<NodeId> {
        match &limit.attach {
            Attach::Node(node) => vec![node.clone()],
            Attach::Level(level) => {
                let prefix = format!("{level}:");
                let at_level =
                    |node: &&NodeId| node.as_str().rsplit('/').next().unwrap().starts_with(prefix.as_str());
                let mut nodes: Vec<NodeId> = self.nodes.iter().filter(at_level).cloned().collect();
                nodes.sort();
                nodes.dedup();
                nodes
            }
        }
    }

    fn amount(&self, limit: &Limit, node: &NodeId) -> u128 {
        let mut amount = limit.amount.0;
        let takes =
            matches!(limit.kind, LimitType::QuotaRequests | LimitType::QuotaTokens | LimitType::BudgetUsd);
        for other in &self.overrides {
            let ceiling = limit.overrides.ceiling.map_or(0, |ceiling| ceiling.0);
            if other.limit_id == limit.id
                && other.node == *node
                && takes
                && limit.overrides.allow
                && other.amount.0 > 0
                && (ceiling == 0 || other.amount.0 <= ceiling)
            {
                amount = other.amount.0;
            }
        }
        amount
    }
}

fn segments(node: &str) -> usize {
    if node == "__global" { 0 } else { node.split('/').count() }
}

fn rows(instances: &[engine::Instance]) -> Vec<Row> {
    instances.iter().map(|one| (one.limit.id.to_string(), one.node.to_string(), one.amount.0)).collect()
}

#[test]
fn every_request_resolves_as_the_page_s_steps_say() {
    let mut selected_in_all = 0;
    let mut overridden = 0;
    for seed in 0..3000 {
        let random = &mut Random(seed);
        let world = world(random);
        let tree = Tree::new(world.nodes.iter().cloned());
        let compiled =
            Ruleset::compile(seed, tree, world.limits.clone(), world.overrides.clone(), world.key_nodes);
        let (ruleset, dropped) = compiled.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(dropped.len() <= world.overrides.len());
        for _ in 0..12 {
            let owner = if random.chance(60) { random.one(&world.nodes).clone() } else { node(random) };
            let chain = match random.below(10) {
                0 => Chain::anonymous(),
                1 => Chain::of_node(&owner),
                _ => Chain::of_key(&owner, KIDS[random.below(KIDS.len())]),
            };
            let dims = Dims {
                model: MODELS[random.below(MODELS.len())],
                provider: PROVIDERS[random.below(PROVIDERS.len())],
                endpoint: ENDPOINTS[random.below(ENDPOINTS.len())],
            };
            let mut both = Vec::new();
            for gate in [Gate::One, Gate::Two] {
                let found = ruleset.resolve(&chain, gate, &dims);
                let wanted = world.resolve(&chain, gate, &dims);
                assert_eq!(rows(&found.0), wanted, "seed {seed}, {gate:?}, {chain:?}, {dims:?}");
                overridden += found.0.iter().filter(|one| one.amount != one.limit.amount).count();
                selected_in_all += wanted.len();
                both.extend(found.0);
            }
            check_explanation(&ruleset, &chain, &dims, both, seed);
        }
        check_listing(&ruleset, &world, seed);
    }
    assert!(selected_in_all > 10_000 && overridden > 500, "the worlds are too empty to tell anything");
}

/// The explanation selects the same, and names every other limit exactly once.
fn check_explanation(
    ruleset: &Ruleset,
    chain: &Chain,
    dims: &Dims<'_>,
    both: Vec<engine::Instance>,
    seed: u64,
) {
    let explanation = ruleset.explain(chain, dims);
    assert_eq!(explanation.instances, both, "seed {seed}");
    for limit in ruleset.limits() {
        let selected = both.iter().any(|one| Arc::ptr_eq(&one.limit, limit));
        let dropped = explanation.dropped.iter().filter(|one| Arc::ptr_eq(&one.limit, limit)).count();
        assert_eq!(dropped, usize::from(!selected), "seed {seed}: {limit:?} on {chain:?}");
    }
    assert!(explanation.dropped.iter().all(|one| !one.reason.is_empty()));
}

/// The listing without a request is the expansion of every limit that is not inert.
fn check_listing(ruleset: &Ruleset, world: &World, seed: u64) {
    let mut wanted: Vec<Row> = Vec::new();
    for limit in &world.limits {
        if limit.inert_reason(world.key_nodes).is_none() {
            let nodes = world.expand(limit).into_iter();
            wanted.extend(
                nodes.map(|node| (limit.id.to_string(), node.to_string(), world.amount(limit, &node))),
            );
        }
    }
    wanted.sort_by_key(|(id, node, _)| (std::cmp::Reverse(segments(node)), id.clone(), node.clone()));
    assert_eq!(rows(&ruleset.all_instances()), wanted, "seed {seed}");
}

#[test]
fn a_large_tree_costs_a_request_nothing() {
    let teams = (0..100_000).map(|number| NodeId::new(&format!("org:o{}/team:t{number}", number % 100)));
    let orgs = (0..100).map(|number| NodeId::new(&format!("org:o{number}")));
    let tree = Tree::new(teams.chain(orgs));
    let mut random = Random(1);
    let pinned = [NodeId::new("org:o1"), NodeId::new("org:o1/team:t101")];
    let mut limits: Vec<Limit> = (0..2000).map(|number| limit(&mut random, number, &pinned)).collect();
    limits.retain(|limit| matches!(limit.attach, Attach::Node(_)));
    limits.push(Limit {
        id: LimitId::new("template"),
        attach: Attach::Level(Level::Team),
        kind: LimitType::QuotaTokens,
        window: Window::Calendar { period: CalendarPeriod::Day, zone: Zone::utc() },
        matches: Match::default(),
        ..limits[0].clone()
    });
    let (ruleset, _) = Ruleset::compile(1, tree, limits, Vec::new(), false).unwrap();
    let chain = Chain::of_key(&NodeId::new("org:o7/team:t7"), KIDS[0]);
    let dims = Dims { model: "none/such", provider: "x", endpoint: "y" };
    let started = std::time::Instant::now();
    for _ in 0..1000 {
        assert!(
            ruleset.resolve(&chain, Gate::Two, &dims).0.iter().any(|one| one.limit.id.as_str() == "template")
        );
    }
    // Expanding the template over the tree would take minutes; this takes some tens of milliseconds.
    assert!(started.elapsed().as_secs() < 10, "1000 resolutions took {:?}", started.elapsed());
}
