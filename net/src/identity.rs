//! Who asks: the credential in a request's head, and the key that it proves (SPEC §7).
//!
//! A credential is `tt_<kid>_<secret>`; what is stored is SHA-256 of that whole string, so the secret of
//! 32 and more random characters needs no slow hash and nobody who reads the store can present it. The
//! comparison takes the same time whether the key is unknown or the secret wrong.
//!
//! A connection remembers the credential that it proved last ([`Proof`]): the next request with the same one is not hashed
//! again. Nothing here prints or returns a credential.

use crate::http1::{RequestHead, Role};
use constant_time_eq::{constant_time_eq, constant_time_eq_n};
use engine::{Key, KeyRing};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What stands in front of every virtual key.
const PREFIX: &str = "tt_";
/// Letters of a kid with its `vk_`.
const KID_BYTES: usize = 15;
/// The shortest secret.
const SECRET_BYTES: usize = 32;

/// The credential of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// None of the three headers is there.
    Absent,
    /// Two headers carry different ones: a 400.
    Conflicting,
    /// One, perhaps said more than once. It may be anything; only [`Proof::verify`] knows.
    Presented(&'a [u8]),
}

impl<'a> Credential<'a> {
    /// The credential in `Authorization`, `x-api-key` and `api-key`.
    ///
    /// An `Authorization` of another scheme than Bearer is presented whole, and so is no key.
    pub fn of(head: &'a RequestHead) -> Credential<'a> {
        let mut found = Credential::Absent;
        for (role, value) in head.roles() {
            let presented = match role {
                Role::Authorization => bearer(value).unwrap_or(value),
                Role::XApiKey | Role::ApiKey => value,
                _ => continue,
            };
            found = match found {
                Credential::Absent => Credential::Presented(presented),
                Credential::Presented(before) if before == presented => found,
                _ => return Credential::Conflicting,
            };
        }
        found
    }
}

impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::Absent => "Absent",
            Credential::Conflicting => "Conflicting",
            Credential::Presented(_) => "Presented(..)",
        })
    }
}

/// The token of a `Bearer` credential, the scheme in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(6)?;
    let blank = token.is_empty() || token[0] == b' ' || token[0] == b'\t';
    (scheme.eq_ignore_ascii_case(b"bearer") && blank).then(|| token.trim_ascii())
}

/// SHA-256 of a whole credential string: what is stored of a key.
pub fn hash_secret(credential: &[u8]) -> [u8; 32] {
    Sha256::digest(credential).into()
}

/// The kid inside a credential of the right form.
pub fn kid_of(credential: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(credential).ok()?.strip_prefix(PREFIX)?;
    let (kid, rest) = text.split_at_checked(KID_BYTES)?;
    let secret = rest.strip_prefix('_')?;
    (secret.len() >= SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_graphic())).then_some(kid)
}

/// What the last credential of a connection proved.
///
/// Invariant: the SHA-256 of `credential` is the hash stored in `key`, and a key's hash never changes: a key that is rotated
/// or minted anew is another `Arc`.
#[derive(Default)]
pub struct Proof {
    credential: Vec<u8>,
    key: Option<Arc<Key>>,
}

impl Proof {
    /// The key that a credential proves; None when it is malformed, unknown, revoked, wrong or expired.
    pub fn verify(&mut self, ring: &KeyRing, presented: &[u8], now: Timestamp) -> Option<Arc<Key>> {
        if !self.stands(ring, presented) {
            self.key = None;
            let key = kid_of(presented).and_then(|kid| ring.find(kid));
            let stored = key.map_or([0; 32], |key| key.secret_hash);
            let proven = constant_time_eq_n(&hash_secret(presented), &stored);
            self.key = key.filter(|_| proven).cloned();
            self.credential.clear();
            if self.key.is_some() {
                self.credential.extend_from_slice(presented);
            }
        }
        self.key.as_ref().filter(|key| !key.is_expired(now)).cloned()
    }

    /// Whether `presented` is the credential that was proved, of a key that is in force still.
    fn stands(&self, ring: &KeyRing, presented: &[u8]) -> bool {
        self.key.as_ref().is_some_and(|known| {
            constant_time_eq(&self.credential, presented)
                && ring.get(&known.kid).is_some_and(|key| Arc::ptr_eq(key, known))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadBounds, HeadProgress, head::parse_request};
    use engine::{Chain, Kid, NodeId, Scopes};

    const KEY: &str = "tt_vk_FEKZdMs2UQRi_0123456789abcdef0123456789abcdef";

    fn with_headers(lines: &str, see: impl FnOnce(Credential<'_>)) {
        let head = format!("POST /v1/embeddings HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        match parse_request(head.as_bytes(), &HeadBounds { max_bytes: 65_536 }) {
            HeadProgress::Complete { head, .. } => see(Credential::of(&head)),
            other => panic!("{other:?}"),
        }
    }

    impl PartialEq for RequestHead {
        fn eq(&self, other: &Self) -> bool {
            self.raw_target() == other.raw_target() && self.headers().eq(other.headers())
        }
    }

    #[test]
    fn three_headers_carry_a_credential_and_two_different_ones_conflict() {
        for (lines, wanted) in [
            ("", Credential::Absent),
            ("Authorization: Bearer k\r\n", Credential::Presented(b"k")),
            ("authorization: bearer   k \r\n", Credential::Presented(b"k")),
            ("AUTHORIZATION: BEARER\tk\r\n", Credential::Presented(b"k")),
            ("X-Api-Key: k\r\n", Credential::Presented(b"k")),
            ("api-key: k\r\n", Credential::Presented(b"k")),
            ("Authorization: Bearer k\r\nx-api-key: k\r\napi-key: k\r\n", Credential::Presented(b"k")),
            ("Authorization: Bearer k\r\nx-api-key: K\r\n", Credential::Conflicting),
            ("Authorization: Bearer k\r\nAuthorization: Bearer j\r\n", Credential::Conflicting),
            ("Authorization: Basic eA==\r\n", Credential::Presented(b"Basic eA==")),
            ("Authorization: Bearerk\r\n", Credential::Presented(b"Bearerk")),
            ("Authorization: Bearer\r\n", Credential::Presented(b"")),
            ("Authorization:\r\n", Credential::Presented(b"")),
            ("Authorization: Bearer k\r\nx-api-key:\r\n", Credential::Conflicting),
        ] {
            with_headers(lines, |found| assert!(found == wanted, "{lines:?}: {found:?}"));
        }
    }

    #[test]
    fn only_the_exact_credential_of_a_live_key_proves_it() {
        let kid = Kid::parse("vk_FEKZdMs2UQRi").unwrap();
        let owner = NodeId::new("org:acme");
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let key = Key {
            kid,
            chain: Chain::of_key(&owner, kid.as_str()),
            owner,
            scopes: Scopes::default(),
            secret_hash: hash_secret(KEY.as_bytes()),
            expires_at: Some(at(1000)),
        };
        let ring = KeyRing::from_keys([key]);
        let unknown = KEY.replace("FEKZ", "AAAA");
        let (short, long, upper) = (&KEY[..KEY.len() - 1], format!("{KEY}x"), KEY.to_uppercase());
        for (presented, seconds, proves) in [
            (KEY, 999, true),
            (KEY, 1000, false),
            (unknown.as_str(), 0, false),
            (short, 0, false),
            (long.as_str(), 0, false),
            (upper.as_str(), 0, false),
            ("sk-something", 0, false),
            ("tt_", 0, false),
            ("", 0, false),
            ("tt_vk_FEKZdMs2UQRi_", 0, false),
            ("tt_vk_FEKZdMs2UQR\u{e9}_0123456789abcdef0123456789abcdef", 0, false),
        ] {
            let mut before = Proof::default();
            assert!(before.verify(&ring, KEY.as_bytes(), at(0)).is_some());
            for (mut proof, what) in [(Proof::default(), "first"), (before, "after the right one")] {
                for _ in 0..2 {
                    let found = proof.verify(&ring, presented.as_bytes(), at(seconds));
                    assert_eq!(found.is_some(), proves, "{presented} at {seconds}, {what}");
                }
                assert!(proof.verify(&ring, KEY.as_bytes(), at(0)).is_some(), "after {presented}");
            }
        }
        assert_eq!(format!("{:?}", Credential::Presented(KEY.as_bytes())), "Presented(..)");
    }

    /// Against what a connection without a memory finds, over rings in which two keys come, go, expire and change.
    #[test]
    fn what_was_proved_before_changes_no_verdict() {
        const OTHER: &str = "tt_vk_AAAAAAAAAAAA_0123456789abcdef0123456789abcdef";
        let owner = NodeId::new("org:acme");
        let key = |credential: &str, expires: Option<i64>| {
            let kid = Kid::parse(kid_of(credential.as_bytes()).expect("a kid")).expect("a kid");
            Key {
                kid,
                chain: Chain::of_key(&owner, kid.as_str()),
                owner: owner.clone(),
                scopes: Scopes::default(),
                secret_hash: hash_secret(credential.as_bytes()),
                expires_at: expires.map(|second| Timestamp::from_second(second).unwrap()),
            }
        };
        let rotated = KEY.replace("0123", "9876");
        let presented = [KEY, OTHER, &rotated, "tt_vk_FEKZdMs2UQRi_x"];
        let mut random = crate::seeded::seeded();
        let (mut ring, mut proof, mut verdicts) = (KeyRing::default(), Proof::default(), [0, 0]);
        for _ in 0..20_000 {
            match random(8) {
                0 => ring = ring.with(key(KEY, None)),
                1 => ring = ring.with(key(&rotated, None)),
                2 => ring = ring.with(key(OTHER, Some(50))),
                3 => ring = ring.without(&key([KEY, OTHER][random(2) as usize], None).kid),
                _ => {}
            }
            let credential = presented[random(4) as usize].as_bytes();
            let at = Timestamp::from_second(random(100) as i64).unwrap();
            let found = proof.verify(&ring, credential, at).map(|key| key.secret_hash);
            let wanted = Proof::default().verify(&ring, credential, at).map(|key| key.secret_hash);
            assert_eq!(found, wanted, "{credential:?} at {at}");
            verdicts[usize::from(found.is_some())] += 1;
        }
        assert!(verdicts.iter().all(|count| *count > 1000), "{verdicts:?}");
    }
}
