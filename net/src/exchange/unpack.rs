//! A packed request body, unpacked before it is read and forwarded (SPEC §9, §10; RFC 9110 §8.4).
//!
//! What is forwarded is always plain: the gateway may have to rewrite it, and most backends take nothing else. The
//! unpacking is bounded by `http.max_body`, like a body that comes plain, and done beside the cores: a small packed body
//! may be a large plain one.

use std::io::Write;

use flate2::write::MultiGzDecoder;

use super::{Denied, Exchange};
use crate::bounds::UNPACK_STEP_BYTES;
use crate::http1::Role;
use crate::rt;
use crate::usage::Coding;

/// Why a body cannot be unpacked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Packed {
    /// It unpacks to more than is taken.
    TooLarge,
    /// It is broken, or ends too early.
    Broken,
}

impl Exchange<'_> {
    /// The body as it is meant.
    pub(super) async fn unpacked(&self, body: Vec<u8>) -> Result<Vec<u8>, Denied> {
        let mut codings = self.client.head.values(Role::ContentEncoding).map(|value| Coding::of(Some(value)));
        match (codings.next().unwrap_or(Coding::Identity), codings.next()) {
            (Coding::Identity, None) => Ok(body),
            (Coding::Gzip, None) => {
                let most = self.http.max_body;
                let work = move || gunzip(&body, usize::try_from(most).unwrap_or(usize::MAX));
                rt::offload(&self.core.shared.offload, work).await.map_err(|packed| match packed {
                    Packed::TooLarge => Denied::BodyTooLarge(most),
                    Packed::Broken => Denied::BrokenCoding,
                })
            }
            _ => Err(Denied::UnknownCoding),
        }
    }
}

fn gunzip(packed: &[u8], most: usize) -> Result<Vec<u8>, Packed> {
    let mut decoder = MultiGzDecoder::new(Vec::new());
    for step in packed.chunks(UNPACK_STEP_BYTES) {
        decoder.write_all(step).and_then(|()| decoder.flush()).map_err(|_| Packed::Broken)?;
        if decoder.get_ref().len() > most {
            return Err(Packed::TooLarge);
        }
    }
    let plain = decoder.finish().map_err(|_| Packed::Broken)?;
    if plain.len() > most { Err(Packed::TooLarge) } else { Ok(plain) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::unpack::tests;

    fn pack(plain: &[u8]) -> Vec<u8> {
        tests::pack(Coding::Gzip, plain)
    }

    #[test]
    fn bodies_are_unpacked_within_the_bound() {
        let plain: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let packed = pack(&plain);
        let two = [pack(&plain[..7]), pack(&plain[7..])].concat();
        let bomb = pack(&vec![b' '; 64 << 20]);
        let mut damaged = packed.clone();
        let last = damaged.len() - 6;
        damaged[last] ^= 1;
        let check = |name: &str, packed: &[u8], most: usize, wanted: Result<&[u8], Packed>| {
            assert_eq!(gunzip(packed, most).as_deref(), wanted.as_ref().copied(), "{name}");
        };
        check("whole", &packed, plain.len(), Ok(&plain));
        check("two members", &two, plain.len(), Ok(&plain));
        check("empty", &pack(b""), 0, Ok(b""));
        check("a byte too many", &packed, plain.len() - 1, Err(Packed::TooLarge));
        check("a bomb", &bomb, 1 << 20, Err(Packed::TooLarge));
        check("cut", &packed[..packed.len() - 1], plain.len(), Err(Packed::Broken));
        check("no gzip", b"{}", 100, Err(Packed::Broken));
        check("a wrong checksum", &damaged, plain.len(), Err(Packed::Broken));
        check("nothing at all", b"", 100, Err(Packed::Broken));
    }
}
