//! Key ids, scopes, and the ring against a plain map.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn key(number: u32, mark: u8) -> Key {
    let kid = kid(number);
    let owner = NodeId::new("org:acme/team:ml");
    let chain = Chain::of_key(&owner, kid.as_str());
    Key { kid, owner, chain, scopes: Scopes::default(), secret_hash: [mark; 32], expires_at: None }
}

fn kid(number: u32) -> Kid {
    Kid::parse(&format!("vk_{number:012}")).unwrap()
}

#[test]
fn a_kid_is_vk_and_twelve_letters_or_digits() {
    for good in ["vk_FEKZdMs2UQRi", "vk_000000000000"] {
        assert_eq!(Kid::parse(good).map(|kid| kid.to_string()).as_deref(), Some(good));
    }
    let bad = [
        "",
        "vk_",
        "vk_FEKZdMs2UQR",
        "vk_FEKZdMs2UQRix",
        "VK_FEKZdMs2UQRi",
        "vk-FEKZdMs2UQRi",
        "vk_FEKZdMs2UQR_",
        "vk_FEKZdMs2UQ\u{e9}",
        " vk_FEKZdMs2UQRi",
    ];
    for text in bad {
        assert_eq!(Kid::parse(text), None, "{text:?}");
    }
}

#[test]
fn an_absent_scope_allows_all_and_an_empty_one_nothing() {
    let globs = |patterns: &[&str]| Some(patterns.iter().map(|text| Glob::new(text).unwrap()).collect());
    let open = Scopes::default();
    assert!(open.allows_model("any/thing") && open.allows_provider("") && open.allows_endpoint("/x"));
    assert!(!open.allow_passthrough);
    let scopes = Scopes {
        models: globs(&["gpt-*", "m1"]),
        providers: globs(&[]),
        endpoints: globs(&["/v1/chat/*"]),
        allow_passthrough: true,
    };
    assert!(scopes.allows_model("gpt-4o") && scopes.allows_model("m1") && !scopes.allows_model("m2"));
    assert!(!scopes.allows_provider("local"));
    assert!(scopes.allows_endpoint("/v1/chat/completions") && !scopes.allows_endpoint("/v1/embeddings"));
}

#[test]
fn a_key_expires_at_its_very_instant() {
    let expiry: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let tick = jiff::SignedDuration::from_nanos(1);
    let mut one = key(1, 0);
    assert!(!one.is_expired(jiff::Timestamp::MAX));
    one.expires_at = Some(expiry);
    assert!(!one.is_expired(expiry - tick) && one.is_expired(expiry));
}

#[test]
fn the_secret_s_hash_is_never_shown() {
    let shown = format!("{:?}", key(1, 0xab));
    assert!(shown.contains("vk_000000000001") && !shown.contains("171"), "{shown}");
}

#[test]
fn a_change_shares_every_other_shard() {
    let ring = KeyRing::from_keys((0..5000).map(|number| key(number, 0)));
    let changed = ring.with(key(9999, 0));
    let kept =
        ring.shards.iter().zip(changed.shards.iter()).filter(|(old, new)| Arc::ptr_eq(old, new)).count();
    assert_eq!(kept, KEY_RING_SHARDS - 1);
    assert!(ring.find("vk_000000009999").is_none(), "the old ring is as it was");
    assert_eq!((ring.len(), changed.len(), changed.version()), (5000, 5001, 2));
    let largest = ring.shards.iter().map(|shard| shard.len()).max();
    assert!(largest < Some(80), "5000 keys over 256 shards, yet {largest:?} in one");
}

proptest! {
    #[test]
    fn a_ring_is_a_map(
        start in proptest::collection::vec((0u32..40, any::<u8>()), 0..20),
        steps in proptest::collection::vec((any::<bool>(), 0u32..40, any::<u8>()), 0..60),
    ) {
        let mut ring = KeyRing::from_keys(start.iter().map(|(number, mark)| key(*number, *mark)));
        let mut map: HashMap<u32, u8> = start.into_iter().collect();
        for (mint, number, mark) in steps {
            let before = ring.version();
            if mint {
                ring = ring.with(key(number, mark));
                map.insert(number, mark);
            } else {
                ring = ring.without(&kid(number));
                map.remove(&number);
            }
            ring.invariants();
            prop_assert_eq!(ring.version(), before + 1);
            prop_assert_eq!((ring.len(), ring.is_empty()), (map.len(), map.is_empty()));
            for number in 0..40 {
                let found = ring.find(kid(number).as_str()).map(|key| key.secret_hash[0]);
                prop_assert_eq!(found, map.get(&number).copied());
            }
        }
        prop_assert!(ring.find("not a kid").is_none());
    }
}
