//! Virtual keys: their ids, scopes, and the ring that finds them.
//!
//! Every core looks keys up in an immutable [`KeyRing`] snapshot. A mint or a revocation makes a new ring that shares
//! all but one of its shards with the old one, so that a change stays cheap with many keys. One big map was rejected:
//! cloning it costs as much as there are keys. Secrets never come here, only their hash; comparing it in constant time
//! is the caller's duty.

use std::fmt;
use std::sync::Arc;

use ahash::AHashMap;

use crate::bounds::KEY_RING_SHARDS;
use crate::glob::Glob;
use crate::tenancy::{Chain, NodeId};

/// Letters and digits after `vk_`.
const KID_RANDOM: usize = 12;
const KID_PREFIX: &str = "vk_";
const KID_LENGTH: usize = KID_PREFIX.len() + KID_RANDOM;

/// The public id of a virtual key: `vk_` and 12 ASCII letters or digits.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Kid([u8; KID_LENGTH]);

impl Kid {
    /// The id of that spelling; `None` when it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Kid> {
        let random = text.strip_prefix(KID_PREFIX)?;
        let fits = random.len() == KID_RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if fits { text.as_bytes().try_into().ok().map(Kid) } else { None }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Made from ASCII text only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// FNV-1a, folded onto the shards.
    fn shard(&self) -> usize {
        let hash = self
            .0
            .iter()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        (hash ^ (hash >> 16)) as usize % KEY_RING_SHARDS
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Kid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// What a key may be used for. An absent list allows everything, an empty one nothing.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Scopes {
    /// Models, checked on the asked and on the served one.
    pub models: Option<Vec<Glob>>,
    /// Provider ids.
    pub providers: Option<Vec<Glob>>,
    /// Normalised paths.
    pub endpoints: Option<Vec<Glob>>,
    /// Whether paths that the gateway does not understand may be relayed.
    pub allow_passthrough: bool,
}

impl Scopes {
    /// Whether the model may be used.
    #[must_use]
    pub fn allows_model(&self, model: &str) -> bool {
        allows(self.models.as_deref(), model)
    }

    /// Whether the provider may be used.
    #[must_use]
    pub fn allows_provider(&self, provider: &str) -> bool {
        allows(self.providers.as_deref(), provider)
    }

    /// Whether the path may be used.
    #[must_use]
    pub fn allows_endpoint(&self, endpoint: &str) -> bool {
        allows(self.endpoints.as_deref(), endpoint)
    }
}

fn allows(patterns: Option<&[Glob]>, value: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(value)))
}

/// One virtual key.
#[derive(Clone)]
pub struct Key {
    /// Its public id.
    pub kid: Kid,
    /// The node that it is counted through, as given at mint.
    pub owner: NodeId,
    /// [`Chain::of_key`] of the two.
    pub chain: Chain,
    /// What it may be used for.
    pub scopes: Scopes,
    /// SHA-256 of the whole presented credential.
    pub secret_hash: [u8; 32],
    /// From when on it is refused.
    pub expires_at: Option<jiff::Timestamp>,
}

impl Key {
    /// Whether it is no longer valid at that time.
    #[must_use]
    pub fn is_expired(&self, at: jiff::Timestamp) -> bool {
        self.expires_at.is_some_and(|expiry| at >= expiry)
    }
}

/// Shows all but the hash of the secret.
impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Key")
            .field("kid", &self.kid)
            .field("owner", &self.owner)
            .field("scopes", &self.scopes)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

type Shard = Arc<AHashMap<Kid, Arc<Key>>>;

/// All keys that are minted and not revoked: an immutable snapshot with a version.
#[derive(Clone)]
pub struct KeyRing {
    version: u64,
    shards: Arc<[Shard]>,
    len: usize,
}

impl KeyRing {
    /// The ring of these keys, at version 1. Of two keys with one id the later stays.
    #[must_use]
    pub fn from_keys(keys: impl IntoIterator<Item = Key>) -> KeyRing {
        let mut shards = vec![AHashMap::new(); KEY_RING_SHARDS];
        for key in keys {
            shards[key.kid.shard()].insert(key.kid, Arc::new(key));
        }
        let len = shards.iter().map(|shard| shard.len()).sum();
        KeyRing { version: 1, shards: shards.into_iter().map(Arc::new).collect(), len }
    }

    /// Grows by one with every change; a core that sees a new one drops what it remembered.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key of that id, expired or not.
    #[must_use]
    pub fn find(&self, kid: &str) -> Option<&Arc<Key>> {
        self.get(&Kid::parse(kid)?)
    }

    /// The key of that id, expired or not.
    #[must_use]
    pub fn get(&self, kid: &Kid) -> Option<&Arc<Key>> {
        self.shards[kid.shard()].get(kid)
    }

    /// The ring with this key added, or put in place of the one with its id.
    #[must_use]
    pub fn with(&self, key: Key) -> KeyRing {
        let place = key.kid.shard();
        self.changed(place, |shard| {
            shard.insert(key.kid, Arc::new(key));
        })
    }

    /// The ring without that key. Its version is new even when there was none.
    #[must_use]
    pub fn without(&self, kid: &Kid) -> KeyRing {
        self.changed(kid.shard(), |shard| {
            shard.remove(kid);
        })
    }

    /// All keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.shards.iter().flat_map(|shard| shard.values())
    }

    fn changed(&self, place: usize, change: impl FnOnce(&mut AHashMap<Kid, Arc<Key>>)) -> KeyRing {
        let mut shard = AHashMap::clone(&self.shards[place]);
        let before = shard.len();
        change(&mut shard);
        let len = self.len - before + shard.len();
        let mut shards = self.shards.to_vec();
        shards[place] = Arc::new(shard);
        KeyRing { version: self.version + 1, shards: shards.into(), len }
    }

    /// Asserts that every key sits in its shard and that the count is right.
    pub fn invariants(&self) {
        assert_eq!(self.shards.len(), KEY_RING_SHARDS);
        assert_eq!(self.iter().count(), self.len);
        for (place, shard) in self.shards.iter().enumerate() {
            assert!(shard.iter().all(|(kid, key)| *kid == key.kid && kid.shard() == place));
        }
    }
}

impl Default for KeyRing {
    fn default() -> KeyRing {
        KeyRing::from_keys([])
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyRing(version {}, {} keys)", self.version, self.len)
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
