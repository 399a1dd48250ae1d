//! Every bound of this crate, with the reason for its size.

use std::time::Duration;

/// Header fields a head may have. Proxies add a handful to the dozen a client sends.
pub const MAX_HEADERS: usize = 96;

/// Bytes a request or response head may have: the 64 KiB that large cookies and tokens need.
pub const MAX_HEAD: usize = 64 * 1024;

/// Bytes a request body may have unless the options say otherwise: a long prompt is a megabyte, inline images are more.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// Bytes a chunk-size line may have: 16 hexadecimal digits and room for an extension.
pub const MAX_CHUNK_LINE: usize = 256;

/// Bytes the trailer part of a chunked body may have.
pub const MAX_TRAILER: usize = 8 * 1024;

/// Room for one read. A chat exchange fits whole; a flood of events needs few calls.
pub const READ_SIZE: usize = 16 * 1024;

/// Bytes of events collected before they are written: larger writes gain nothing, smaller ones cost system calls.
pub const WRITE_SIZE: usize = 16 * 1024;

/// Bytes a client may send ahead of the answer that is being paced. Beyond that they stay in the kernel.
pub const MAX_PIPELINED: usize = 64 * 1024;

/// Choices (`n`) one request may ask for, as in the OpenAI API.
pub const MAX_CHOICES: u64 = 128;

/// Inputs one embeddings request may carry, as in the OpenAI API.
pub const MAX_INPUTS: usize = 2048;

/// Numbers one embedding may have.
pub const MAX_DIMENSIONS: u64 = 4096;

/// Tokens one answer may have, whatever its options say: 32 bits would be gigabytes of text.
pub const MAX_TOKENS: u64 = 1_000_000;

/// Bytes of text that one answer may be told to have at least: the largest body that a gateway takes by default.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Pause after an accept that failed for lack of descriptors: it fails again at once until one is closed.
pub const ACCEPT_BACK_OFF: Duration = Duration::from_millis(10);

/// Pause of a closed-loop connection after a failed connect, so that a dead server is not hammered.
pub const CONNECT_BACK_OFF: Duration = Duration::from_millis(10);

/// How long a stopping thread waits for its connections to notice.
pub const STOP_GRACE: Duration = Duration::from_secs(2);

/// Ring entries a thread asks for first; each needs about 100 bytes of locked memory.
pub const RING_ENTRIES: u32 = 2048;

/// Ring entries when the first size is refused (locked-memory limit).
pub const SMALL_RING_ENTRIES: u32 = 256;

/// How long bytes of a refused request are read and thrown away, so that its client can read the refusal.
pub const REFUSAL_LINGER: Duration = Duration::from_millis(300);

/// Seconds of a run that are told apart: two hours.
pub const SECONDS_KEPT: usize = 7_200;

/// The longest latency that is told apart, in nanoseconds: an hour.
pub const LONGEST_LATENCY: u64 = 3_600_000_000_000;

/// Connections of one scenario: what one address has ports for.
pub const MAX_CONNECTIONS: usize = 28_000;

/// Keys of one scenario. Each is minted by a request of a few milliseconds, and has a request's bytes of its own.
pub const MAX_KEYS: usize = 100_000;

/// Users of one scenario's tree: as many as the keys that could be theirs.
pub const MAX_USERS: usize = MAX_KEYS;

/// Bytes of the gateway's answer to a management request: a page of a thousand rows of usage is half a megabyte.
pub const MAX_MANAGEMENT_ANSWER: usize = 16 * 1024 * 1024;

/// How long a management request may take: a snapshot of many keys is published in milliseconds, on a busy machine in more.
pub const MANAGEMENT_PATIENCE: Duration = Duration::from_secs(30);

/// How long a gateway that was started may take to be ready, or one that was told to end to be gone.
pub const GATEWAY_PATIENCE: Duration = Duration::from_secs(30);

/// How long counters may take to come to what clients saw: usage is written about a second late, and a backend that its client has
/// left is given up within milliseconds.
pub const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// How late usage is written at the most, while nothing disturbs the machine: a second, and half of one more.
pub const USAGE_LATENESS: Duration = Duration::from_millis(1500);

/// Differences that a table shows; the number of all is said.
pub const DIFFERENCES_SHOWN: usize = 20;

/// The share of the machine that others may have while something is measured: what a quiet system does of itself is a hundredth or two.
pub const QUIET_MACHINE: f64 = 0.1;
