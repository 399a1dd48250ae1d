//! Every bound of this crate, each with where it comes from.

use crate::units::Tokens;

/// Cores that a counter's owner may be named among. A machine beyond this is not a gateway's, and a core's number
/// must fit the 16 bits that lead a reservation id.
pub const CORES: usize = 1024;

/// Shards of a key ring. A change clones one shard, so 100,000 keys cost about 400 entries a change, while the table
/// of shards itself stays at two kilobytes.
pub const KEY_RING_SHARDS: usize = 256;

/// Bytes of a node id that a store should accept. Four levels of 100-character ids fit; a chain holds every cumulative
/// prefix, so its size is quadratic in this.
pub const NODE_ID_BYTES: usize = 512;

/// Bytes of a pattern that a config or a key scope should accept. A match costs at most pattern x text steps; model
/// names and paths stay below a few hundred bytes.
pub const PATTERN_BYTES: usize = 1024;

/// Counters that one shard keeps. A limit that matches on the model makes one for each model name that clients think of,
/// so the number must not be theirs to choose; at about 1.2 KB for the largest kind this is 300 MB a core.
pub const COUNTERS_A_SHARD: usize = 1 << 18;

/// Counters a shard holds before it first looks for some to forget: fewer are not worth the walk.
pub const COUNTERS_BEFORE_SWEEP: usize = 1 << 12;

/// Counters that a shard looks at in one go when it looks for some to forget: a fraction of a millisecond, while requests wait.
pub const COUNTERS_A_LOOK: usize = 1 << 12;

/// Tokens that one request can hold or use, 1.1e12: more is a false report. The holds of 2^24 requests then add up
/// within 64 bits.
pub const TOKENS_A_REQUEST: u64 = 1 << 40;

/// Pico-USD that one request can hold or cost, 1.2e18 USD. The holds of 2^27 requests then add up within 128 bits.
pub const PICO_USD_A_REQUEST: u128 = 1 << 100;

/// (route, key) pairs whose usage a core remembers, where routes learn: 88 bytes each, 1.4 MiB a core. As many as plans
/// that a core keeps; more at a time than this and some are estimated like new ones.
pub const LESSONS_A_CORE: usize = 1 << 14;

/// Of these, pairs that share a set. With half of all places taken, one pair in fifty finds its set full.
pub const LESSONS_A_SET: usize = 8;

/// Sizes of prompts that are told apart when tokens are learnt, each four times the one before; the last one is from 16,384
/// tokens up, where templates and tools no longer matter.
pub const PROMPT_SIZES: usize = 8;

/// How many times its size a learnt estimate may be. Four bytes of text are hardly ever more than four tokens (one a byte,
/// in scripts that a tokenizer does not know); the rest is room for what the estimate leaves out.
pub const RAISED_TIMES: u64 = 16;

/// Tokens that a learnt estimate of anything small may come to all the same: a prompt of one word with the schemas of a
/// hundred tools, or a long answer with much reasoning.
pub const RAISED_ABOVE_SHORT: Tokens = Tokens(16_384);

/// Windows that a counter steps forward to find the end of its own, when the wall clock was set back behind it.
pub const WINDOWS_AHEAD: usize = 512;

/// Lanes on which gate 1 says who is taking: one for each core that there can be. Few in the builds of the model
/// checkers, which pay for each and have four threads at most.
pub const LANES: usize = if cfg!(any(loom, shuttle)) { 4 } else { CORES };

/// How often an attempt of gate 1 looks, or takes, before it believes a refusal that it could not confirm. Each time
/// again is one that another request was faster, within some 100 ns; two cores in a race for every slot hardly come to
/// three. Without a bound in the builds of the model checkers.
pub const ATTEMPTS: u32 = if cfg!(any(loom, shuttle)) { u32::MAX } else { 64 };

/// Pauses that a refusal waits for those who are taking: some 10 to 50 us, by the processor. The taking itself is some
/// 50 ns; who takes longer was put to sleep. Without a bound in the builds of the model checkers.
pub const PATIENCE: u32 = if cfg!(any(loom, shuttle)) { u32::MAX } else { 1024 };
