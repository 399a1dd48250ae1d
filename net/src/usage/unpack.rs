//! Packed bodies: that of an answer, unpacked beside its relay so that its usage can be read while what is relayed stays packed;
//! and that of a request, unpacked as a [`whole`] before anything else.
//!
//! Memory is one piece of output and the coding's window: input is taken in small steps, and what a step unpacks to is
//! looked at before the next one. What is broken, wants a larger window than [`MAX_WINDOW_LOG`], or unpacks to more than
//! the bounds is given up: its usage is what was reported until there, and what was not unpacked is estimated.

use std::fmt;
use std::io::Write;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::tap::Coding;
use crate::bounds::{
    MAX_RATIO, MAX_UNPACKED_BYTES, MAX_WINDOW_LOG, UNPACK_STEP_BYTES, UNPACKED_CREDIT, UNPACKED_PIECE_BYTES,
};

/// The unpacking of one body.
#[derive(Debug)]
pub struct Unpacker {
    /// `None` once it is over or given up.
    decoder: Option<Format>,
    over: bool,
    /// Bytes that may still be looked at.
    left: usize,
    /// Bytes that may be looked at now: packed ones bring [`MAX_RATIO`] each.
    credit: usize,
    /// Packed bytes that were not unpacked.
    unread: u64,
}

enum Format {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>, Vec<u8>),
    /// Whether what was read so far ends with a frame.
    Zstd(Decoder<'static>, Vec<u8>, bool),
}

/// Whether a decoder can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    More,
    /// The body is over: so many bytes of the step, and whatever follows, are no part of it.
    Over(usize),
    GiveUp,
}

impl Unpacker {
    /// For a body in that coding; `None` when it is not packed, or in a way that is not read here.
    pub fn of(coding: Coding) -> Option<Unpacker> {
        Some(Unpacker {
            decoder: Some(Format::of(coding)?),
            over: false,
            left: MAX_UNPACKED_BYTES,
            credit: UNPACKED_CREDIT,
            unread: 0,
        })
    }

    /// Unpacks the next bytes and shows what they hold, piece by piece.
    pub fn feed(&mut self, chunk: &[u8], mut look: impl FnMut(&[u8])) {
        let brought = chunk.len().saturating_mul(MAX_RATIO);
        self.credit = self.credit.saturating_add(brought).min(UNPACKED_CREDIT);
        let mut now = self.credit.min(self.left);
        let mut steps = chunk.chunks(UNPACK_STEP_BYTES);
        while let Some(format) = &mut self.decoder {
            let Some(step) = steps.next() else { break };
            let before = now;
            let then = format.step(step, &mut |piece| {
                let seen = piece.len().min(now);
                look(&piece[..seen]);
                now -= seen;
                if now == 0 { Then::GiveUp } else { Then::More }
            });
            self.left -= before - now;
            self.credit -= before - now;
            match then {
                Then::More => {}
                Then::Over(_) => {
                    self.decoder = None;
                    self.over = true;
                }
                Then::GiveUp => {
                    self.decoder = None;
                    self.unread += step.len() as u64;
                }
            }
        }
        if !self.over {
            self.unread += steps.map(|step| step.len() as u64).sum::<u64>();
        }
    }

    /// Packed bytes that nobody could look into.
    pub fn unread(&self) -> u64 {
        self.unread
    }
}

/// Why a body is not unpacked as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotWhole {
    /// It unpacks to more than is taken.
    TooLarge,
    /// It is broken, ends too early, goes on behind its end, or is in a coding that is not read here.
    Broken,
}

/// All that `packed` holds, at most `most` bytes of it; nothing may be missing, and nothing follow.
///
/// # Errors
/// [`NotWhole`]; a bomb is known by the first piece beyond the bound.
pub fn whole(coding: Coding, packed: &[u8], most: usize) -> Result<Vec<u8>, NotWhole> {
    let mut format = Format::of(coding).ok_or(NotWhole::Broken)?;
    let mut plain = Vec::new();
    let mut steps = packed.chunks(UNPACK_STEP_BYTES);
    let mut over = false;
    while !over && let Some(step) = steps.next() {
        let then = format.step(step, &mut |piece| {
            plain.extend_from_slice(piece);
            if plain.len() > most { Then::GiveUp } else { Then::More }
        });
        match then {
            _ if plain.len() > most => return Err(NotWhole::TooLarge),
            Then::More => {}
            Then::Over(0) if steps.len() == 0 => over = true,
            Then::Over(_) | Then::GiveUp => return Err(NotWhole::Broken),
        }
    }
    if over || format.ends(&mut plain) { Ok(plain) } else { Err(NotWhole::Broken) }
}

impl Format {
    fn of(coding: Coding) -> Option<Format> {
        let piece = || vec![0; UNPACKED_PIECE_BYTES];
        let alloc = StandardAlloc::default;
        Some(match coding {
            Coding::Identity | Coding::Other => return None,
            Coding::Gzip => Format::Gzip(MultiGzDecoder::new(Vec::new())),
            Coding::Deflate => Format::Deflate(ZlibDecoder::new(Vec::new())),
            Coding::Brotli => {
                Format::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())), piece())
            }
            Coding::Zstd => {
                let mut decoder = Decoder::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).ok()?;
                Format::Zstd(decoder, piece(), false)
            }
        })
    }

    /// Whether what was read is a whole; what its end still held back goes behind `plain`. Of zlib's format that is not
    /// known, and brotli's is over by itself.
    fn ends(&mut self, plain: &mut Vec<u8>) -> bool {
        match self {
            Format::Gzip(decoder) => {
                let whole = decoder.try_finish().is_ok();
                plain.append(decoder.get_mut());
                whole
            }
            Format::Zstd(_, _, ended) => *ended,
            Format::Deflate(_) | Format::Brotli(..) => false,
        }
    }

    fn step(&mut self, step: &[u8], look: &mut dyn FnMut(&[u8]) -> Then) -> Then {
        match self {
            Format::Gzip(decoder) => {
                let whole = decoder.write_all(step).and_then(|()| decoder.flush()).is_ok();
                show(decoder.get_mut(), whole, look)
            }
            Format::Deflate(decoder) => {
                let whole = decoder.write_all(step).and_then(|()| decoder.flush()).is_ok();
                show(decoder.get_mut(), whole, look)
            }
            Format::Brotli(state, piece) => brotli(state, step, piece, look),
            Format::Zstd(decoder, piece, ended) => zstandard(decoder, step, piece, ended, look),
        }
    }
}

fn show(unpacked: &mut Vec<u8>, whole: bool, look: &mut dyn FnMut(&[u8]) -> Then) -> Then {
    let then = look(unpacked);
    unpacked.clear();
    if whole { then } else { Then::GiveUp }
}

fn brotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    step: &[u8],
    piece: &mut [u8],
    look: &mut dyn FnMut(&[u8]) -> Then,
) -> Then {
    let (mut left, mut at, mut total) = (step.len(), 0, 0);
    loop {
        let (mut room, mut written) = (piece.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut at,
            step,
            &mut room,
            &mut written,
            piece,
            &mut total,
            state,
        );
        let then = look(&piece[..written]);
        match result {
            BrotliResult::NeedsMoreOutput if then == Then::More => {}
            BrotliResult::NeedsMoreInput => return then,
            BrotliResult::ResultSuccess if then == Then::More => return Then::Over(left),
            _ => return Then::GiveUp,
        }
    }
}

fn zstandard(
    decoder: &mut Decoder<'static>,
    mut step: &[u8],
    piece: &mut [u8],
    ended: &mut bool,
    look: &mut dyn FnMut(&[u8]) -> Then,
) -> Then {
    loop {
        let Ok(status) = decoder.run_on_buffers(step, piece) else { return Then::GiveUp };
        step = &step[status.bytes_read..];
        *ended = status.remaining == 0;
        if look(&piece[..status.bytes_written]) == Then::GiveUp {
            return Then::GiveUp;
        }
        let drained = status.bytes_written < piece.len();
        if drained && (step.is_empty() || status.bytes_read == 0) {
            return if step.is_empty() { Then::More } else { Then::GiveUp };
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Format::Gzip(_) => "Gzip",
            Format::Deflate(_) => "Deflate",
            Format::Brotli(..) => "Brotli",
            Format::Zstd(..) => "Zstd",
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    pub(crate) const CODINGS: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

    pub(crate) fn pack(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Identity | Coding::Other => plain.to_vec(),
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Brotli => {
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
                encoder.write_all(plain).unwrap();
                encoder.into_inner()
            }
            Coding::Zstd => zstd::encode_all(plain, 3).unwrap(),
        }
    }

    fn unpack(coding: Coding, packed: &[u8], step: usize) -> (Vec<u8>, u64) {
        let mut unpacker = Unpacker::of(coding).unwrap();
        let mut seen = Vec::new();
        for chunk in packed.chunks(step) {
            unpacker.feed(chunk, |piece| seen.extend_from_slice(piece));
        }
        (seen, unpacker.unread())
    }

    fn noise(bytes: u32) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn any_split_gives_the_same_bytes() {
        let plain: Vec<u8> = (0..20_000u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        for coding in CODINGS {
            for wanted in [plain.clone(), noise(200_000), b"x".to_vec(), Vec::new()] {
                let packed = pack(coding, &wanted);
                for step in [1, 2, 7, 64, 4096, packed.len().max(1)] {
                    let (seen, unread) = unpack(coding, &packed, step);
                    assert!(seen == wanted, "{coding:?}: {} bytes in steps of {step}", wanted.len());
                    assert_eq!(unread, 0, "{coding:?} in steps of {step}");
                }
            }
        }
        for coding in [Coding::Gzip, Coding::Zstd] {
            let two = [pack(coding, b"first "), pack(coding, b"second")].concat();
            for step in [1, 7, two.len()] {
                assert_eq!(unpack(coding, &two, step).0, b"first second", "{coding:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn a_whole_is_everything_or_nothing() {
        let plain: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for coding in [Coding::Gzip, Coding::Brotli, Coding::Zstd] {
            let packed = pack(coding, &plain);
            let check = |name: &str, packed: &[u8], most: usize, wanted: Result<&[u8], NotWhole>| {
                assert_eq!(
                    whole(coding, packed, most).as_deref(),
                    wanted.as_ref().copied(),
                    "{coding:?}, {name}"
                );
            };
            let (broken, too_large) = (Err(NotWhole::Broken), Err(NotWhole::TooLarge));
            check("whole", &packed, plain.len(), Ok(&plain));
            check("empty", &pack(coding, b""), 0, Ok(b""));
            check("a byte too many", &packed, plain.len() - 1, too_large);
            check("a bomb", &pack(coding, &vec![b' '; 64 << 20]), 1 << 20, too_large);
            for cut in (0..packed.len()).rev().step_by(997).chain([packed.len() - 1, 1]) {
                check("cut", &packed[..cut], plain.len(), broken);
            }
            check("plain", b"{\"model\":\"m\"}", 100, broken);
            check("noise behind it", &[&packed[..], b"noise"].concat(), plain.len(), broken);
            let two = [pack(coding, &plain[..7]), pack(coding, &plain[7..])].concat();
            // Members and frames may follow each other; in brotli nothing may.
            check("two", &two, plain.len(), if coding == Coding::Brotli { broken } else { Ok(&plain) });
        }
        let mut damaged = pack(Coding::Gzip, &plain);
        let last = damaged.len() - 6;
        damaged[last] ^= 1;
        assert_eq!(whole(Coding::Gzip, &damaged, plain.len()), Err(NotWhole::Broken), "a wrong checksum");
        for coding in [Coding::Identity, Coding::Other, Coding::Deflate] {
            assert_eq!(whole(coding, &pack(coding, b"{}"), 100), Err(NotWhole::Broken), "{coding:?}");
        }
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0x00, 0x00];
        assert_eq!(whole(Coding::Zstd, &wide, 100), Err(NotWhole::Broken), "a window of 1 GiB");
    }

    #[test]
    fn what_came_before_a_break_was_read_and_what_comes_after_is_known_to_be_unread() {
        let noise = noise(400_000);
        for coding in CODINGS {
            let mut broken = pack(coding, &noise);
            let middle = broken.len() / 2;
            let packed_bytes = broken.len() as u64;
            broken[middle..].fill(0xff);
            let (seen, unread) = unpack(coding, &broken, 100);
            assert!(seen.len() >= 100_000, "{coding:?}: only {} bytes were read", seen.len());
            assert!(noise.starts_with(&seen[..100_000]), "{coding:?}");
            assert!((1..packed_bytes).contains(&unread), "{coding:?}: {unread} of {packed_bytes} unread");
            let (seen, unread) = unpack(coding, b"this is in no coding of ours, and goes on", 5);
            assert!(seen.len() < 16 && unread >= 20, "{coding:?}: {seen:?}, {unread} unread");
        }
    }

    #[test]
    fn a_bomb_is_given_up_at_the_bounds() {
        for coding in CODINGS {
            let packed = pack(coding, &vec![0; 2 * MAX_UNPACKED_BYTES]);
            // However it is cut: what it brings with it is all that it may unpack to.
            let brings = |bytes: usize| UNPACKED_CREDIT + bytes * MAX_RATIO;
            for (chunk_bytes, most) in
                [(packed.len(), UNPACKED_CREDIT), (1, brings(packed.len())), (100, brings(packed.len()))]
            {
                let (mut seen, mut largest) = (0, 0);
                let mut unpacker = Unpacker::of(coding).unwrap();
                for chunk in packed.chunks(chunk_bytes) {
                    unpacker.feed(chunk, |piece| {
                        seen += piece.len();
                        largest = largest.max(piece.len());
                    });
                }
                let most = most.min(MAX_UNPACKED_BYTES);
                assert!(unpacker.decoder.is_none() && seen <= most, "{coding:?}: {seen} bytes were read");
                assert!(largest <= 1100 * UNPACK_STEP_BYTES, "{coding:?}: {largest} bytes at once");
            }
        }
    }

    #[test]
    fn a_long_answer_is_read_to_the_bound_of_the_whole() {
        let noise = noise(100_000);
        let chunk = pack(Coding::Gzip, &[&noise[..], &[b' '; 400_000]].concat());
        let mut unpacker = Unpacker::of(Coding::Gzip).unwrap();
        let mut seen = 0;
        for _ in 0..MAX_UNPACKED_BYTES / 500_000 + 1 {
            unpacker.feed(&chunk, |piece| seen += piece.len());
        }
        assert_eq!(seen, MAX_UNPACKED_BYTES);
        assert!(unpacker.decoder.is_none() && unpacker.unread() > 0);
    }

    #[test]
    fn a_window_that_is_too_large_is_not_allocated() {
        // zstd: a frame with a window of 2^30; brotli: a stream that asks for a window beyond the standard's 2^24.
        let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0x00, 0x00];
        let brotli = [0x11, 0x1e, 0x80, 0x00, 0x00, 0x00];
        for (coding, packed) in [(Coding::Zstd, &zstd[..]), (Coding::Brotli, &brotli)] {
            let mut unpacker = Unpacker::of(coding).unwrap();
            unpacker.feed(packed, |piece| assert_eq!(piece, b"", "{coding:?}"));
            assert!(unpacker.decoder.is_none(), "{coding:?}");
        }
    }
}
