//! A gzip body, unpacked beside its relay so that its usage can be read. What is relayed stays packed.
//!
//! Memory is one piece of output: input is taken in small slices, and what a slice unpacks to is looked at before the
//! next one. A body that unpacks to more than [`MAX_UNPACKED_BYTES`] is not read to its end, nor is one that is broken:
//! its usage then is what was reported until there.

use std::io::Write;

use flate2::write::MultiGzDecoder;

use crate::bounds::{MAX_UNPACKED_BYTES, UNPACK_STEP_BYTES};

/// The unpacking of one body.
#[derive(Debug)]
pub struct Gunzip {
    /// `None` once it is given up.
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    left: usize,
}

impl Default for Gunzip {
    fn default() -> Self {
        Gunzip { decoder: Some(MultiGzDecoder::new(Vec::new())), left: MAX_UNPACKED_BYTES }
    }
}

impl Gunzip {
    /// Unpacks the next bytes and shows what they hold, piece by piece.
    pub fn feed(&mut self, chunk: &[u8], mut look: impl FnMut(&[u8])) {
        for step in chunk.chunks(UNPACK_STEP_BYTES) {
            let Some(decoder) = &mut self.decoder else { return };
            let whole = decoder.write_all(step).and_then(|()| decoder.flush()).is_ok();
            let unpacked = decoder.get_mut();
            let seen = unpacked.len().min(self.left);
            look(&unpacked[..seen]);
            self.left -= seen;
            unpacked.clear();
            if !whole || self.left == 0 {
                self.decoder = None;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    pub(crate) fn pack(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(packed: &[u8], step: usize) -> Vec<u8> {
        let mut gunzip = Gunzip::default();
        let mut seen = Vec::new();
        for chunk in packed.chunks(step) {
            gunzip.feed(chunk, |piece| seen.extend_from_slice(piece));
        }
        seen
    }

    #[test]
    fn any_split_gives_the_same_bytes() {
        let plain: Vec<u8> = (0..20_000u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        let one = pack(&plain);
        let two = [pack(b"first "), pack(b"second")].concat();
        for (packed, wanted) in [(one, plain), (pack(b""), Vec::new()), (two, b"first second".into())] {
            for step in [1, 2, 7, 64, 4096, packed.len().max(1)] {
                assert_eq!(unpack(&packed, step), wanted, "in steps of {step}");
            }
        }
        let noise: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut broken = pack(&noise);
        let middle = broken.len() / 2;
        broken[middle..middle + 8].fill(0xff);
        let seen = unpack(&broken, 100);
        assert!(
            seen.len() >= 1_000 && noise.starts_with(&seen[..1_000]),
            "what came before the break was read"
        );
        assert_eq!(unpack(b"this is not gzip", 5), b"");
    }

    #[test]
    fn a_bomb_is_given_up_at_the_bound() {
        let packed = pack(&vec![0; MAX_UNPACKED_BYTES + 1_000_000]);
        let (mut gunzip, mut seen, mut largest) = (Gunzip::default(), 0, 0);
        for chunk in packed.chunks(16 * 1024) {
            gunzip.feed(chunk, |piece| {
                seen += piece.len();
                largest = largest.max(piece.len());
            });
        }
        assert_eq!(seen, MAX_UNPACKED_BYTES);
        assert!(largest <= 1100 * UNPACK_STEP_BYTES, "one step unpacked to {largest} bytes");
    }
}
