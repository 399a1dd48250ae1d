//! Who asks: the credential in a request's head, and the key that it proves (SPEC §7).
//!
//! A credential is `tt_<kid>_<secret>`; what is stored is SHA-256 of that whole string, so the secret of
//! 32 and more random characters needs no slow hash and nobody who reads the store can present it. The
//! comparison takes the same time whether the key is unknown or the secret wrong.
//!
//! Nothing here keeps, prints or returns a credential beyond the borrow of the head.

use crate::http1::{RequestHead, Role};
use engine::{Key, KeyRing};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::ConstantTimeEq;

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
    /// One, perhaps said more than once. It may be anything; only [`verify`] knows.
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

/// The key that a credential proves; None when it is malformed, unknown, revoked, wrong or expired.
pub fn verify(ring: &KeyRing, presented: &[u8], now: Timestamp) -> Option<Arc<Key>> {
    let key = kid_of(presented).and_then(|kid| ring.find(kid));
    let stored = key.map_or([0; 32], |key| key.secret_hash);
    let proven = bool::from(hash_secret(presented).ct_eq(&stored));
    key.filter(|key| proven && !key.is_expired(now)).cloned()
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
            let found = verify(&ring, presented.as_bytes(), at(seconds));
            assert_eq!(found.is_some(), proves, "{presented} at {seconds}");
        }
        assert!(verify(&ring.without(&kid), KEY.as_bytes(), at(0)).is_none(), "revoked");
        assert_eq!(format!("{:?}", Credential::Presented(KEY.as_bytes())), "Presented(..)");
    }
}
