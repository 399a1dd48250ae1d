//! Every bound of the data plane, each with where it comes from.

use std::time::Duration;

// ---- runtime -------------------------------------------------------------------------------------------

/// Entries of a core's submission ring: one operation a connection side, a thousand in flight between two
/// submissions; about 107 KiB of locked memory.
pub const RING_ENTRIES: u32 = 1024;
/// The smaller ring tried when the memory lock limit refuses the first: two fit into 64 KiB.
pub const SMALL_RING_ENTRIES: u32 = 256;
/// Connections that the kernel queues before they are accepted; the usual `somaxconn`.
pub const ACCEPT_BACKLOG: i32 = 4096;
/// How long a start waits for its address to be given up by a process that is ending: rings are taken apart within
/// milliseconds, but by threads of the kernel, which a machine that is busy lets wait for seconds.
pub const ADDRESS_PATIENCE: Duration = Duration::from_secs(10);
/// Milliseconds to wait when accepting fails (no descriptors left): long enough not to spin, short enough that
/// nobody notices once there are some.
pub const ACCEPT_BACK_OFF: u64 = 20;
/// A wait on the backend shorter than this does not look after the client: watching costs 3 to 7 microseconds,
/// and no generation worth stopping ends sooner. In whole [`PATIENCE_TICK`]s, as every bound on a wait.
pub const CLIENT_WATCH_DELAY: Duration = Duration::from_millis(15);
/// How often a core looks for waits that are over their bound: bounds are seconds, and up to two of these late.
pub const PATIENCE_TICK: Duration = Duration::from_millis(50);
/// Pauses between two looks of a core that has nothing to do: what shares its execution units gets on meanwhile.
pub const PAUSES_A_LOOK: u32 = 4;
/// Room for one read of a TLS connection: a record of the largest kind is 16 KiB of plaintext and at most 261 bytes more
/// (RFC 8446 §5.2).
pub const TLS_READ: usize = 17 * 1024;
/// Room for one read of a body over TLS: several records a call.
pub const TLS_READ_MOST: usize = 64 * 1024;
/// Bytes that a TLS session encrypts at most before they are written.
pub const TLS_BUFFER: usize = 64 * 1024;
/// Reads without waiting, at most, when it is looked what has come on a TLS connection.
pub const TLS_LOOKS: usize = 4;
/// How often a client that has sent bytes ahead is looked at for a close behind them.
pub const CLIENT_WATCH_TICK: Duration = Duration::from_millis(50);

// ---- mesh ----------------------------------------------------------------------------------------------

/// Parcels between one ordered pair of cores. An exchange has at most one ask or answer under way for each
/// owner, so this many exchanges can wait at once before the sender's outbox holds the rest.
pub const RING_PARCELS: usize = 1024;

// ---- exchanges -----------------------------------------------------------------------------------------

/// Bytes set aside for the headers that the gateway adds to a success: six rate headers, and an alert.
pub const EXTRA_HEADERS: usize = 320;

/// No exchange lasts longer: a stream still running then is cut. A day is beyond any generation.
pub const EXCHANGE_BOUND: Duration = Duration::from_secs(24 * 3600);
/// A request's body comes within this time, or its client counts as gone: who sends a byte now and then would hold a slot
/// for as long as he likes. The largest default body, 64 MiB, needs 110 KB a second.
pub const BODY_BOUND: Duration = Duration::from_secs(600);
/// A hold's deadline lies this much behind the end of the longest exchange, so that no hold is voided while
/// money is being spent.
pub const HOLD_MARGIN: Duration = Duration::from_secs(3600);
/// Unread request body that is read and dropped after an early refusal, so that the connection can be kept.
pub const DRAIN_BODY: u64 = 64 * 1024;
/// Bytes read and dropped, at most, before a connection with an unread body is closed: the client can read the
/// answer only if its own sending is not met with a reset.
pub const LINGER_BYTES: u64 = 8 * 1024 * 1024;
/// How long that may take.
pub const LINGER_TIME: Duration = Duration::from_secs(2);
/// A body up to this size is read on the core, which takes a few milliseconds at the worst; a larger one beside it.
pub const READ_ON_CORE: usize = 256 * 1024;
/// Threads that read large bodies, for all cores together.
pub const OFFLOAD_THREADS: usize = 2;
/// Room for one read from a client or a backend.
pub const READ_ROOM: usize = 16 * 1024;
/// A buffer larger than this is given back to the allocator between two exchanges of a connection.
pub const KEPT_BUFFER: usize = 64 * 1024;
/// Request head and body go out in one write up to this size; beyond it, copying costs more than a second call.
pub const ONE_WRITE: usize = 32 * 1024;
/// Compiled plans that a core keeps; more distinct (owner, endpoint, model) than this and they are made anew.
pub const KEPT_PLANS: usize = 16 * 1024;
/// Plans of no use any more that each look for a plan frees: more than it may make, and two or three microseconds.
pub const FREED_PLANS: usize = 8;
/// How often it is looked whether the cores have let go of what was published before.
pub const RETIRE_PERIOD: Duration = Duration::from_millis(100);
/// Caps that a core remembers to have told people of; a few times the limits of a large config, at 16 bytes each.
pub const TOLD_CAPS: usize = 16 * 1024;

/// Caps that one report tells people of; the rest is counted, and told of in a later report if it goes on. Each becomes a
/// line of the log, four times a second and core, and whoever may choose a model's name may make a cap of it.
pub const NOTICES: usize = 32;

/// Dry runs that may wait for an answer at once; the management API has few users.
pub const OPEN_PROBES: usize = 64;

// ---- upstream ------------------------------------------------------------------------------------------

/// Idle connections that a core keeps to one backend address.
pub const POOLED_CONNECTIONS: usize = 256;
/// How long an address that could not be reached is passed over the first time while another one is left: a process that
/// is restarted is back within seconds.
pub const SET_ASIDE: Duration = Duration::from_secs(1);
/// How long at the most, after doubling: how late a backend that is back is noticed.
pub const SET_ASIDE_MOST: Duration = Duration::from_secs(30);
/// Requests in a row that an address may leave unanswered. One or two can be the requests' own fault.
pub const UNANSWERED_IN_A_ROW: u32 = 3;
/// How long others wait for a probe to find out. A generation can take longer than this before its first byte.
pub const PROBE_LEASE: Duration = Duration::from_secs(30);
/// Interim (1xx) answers that a backend may send before its final one.
pub const INTERIM_ANSWERS: usize = 8;

// ---- upkeep --------------------------------------------------------------------------------------------

/// A wall clock further away than this from where elapsed time puts it was stepped, not slewed: slewing moves it by
/// half a millisecond a second, and it is looked at several times a second.
pub const CLOCK_STEP: Duration = Duration::from_secs(2);
/// How long a request waits for its mark to be written before the journal counts as failing: a disk that is merely slow
/// syncs within a second.
pub const JOURNAL_PATIENCE: Duration = Duration::from_secs(2);
/// How long a core runs at a time while other threads want its processor: the shortest that there is, so that a core that
/// wakes goes in front of what runs there. Without it a request waited for the next tick of the kernel, up to four
/// milliseconds, whenever a reload or the journal shared the processor.
pub const CORE_SLICE: Duration = Duration::from_micros(100);
/// How often a core hands its changed counters to the journal and lets overdue holds go.
pub const UPKEEP_PERIOD: Duration = Duration::from_millis(250);
/// Counters, rows of usage and plans, of each so many, that a core looks at in one turn of its upkeep: about a tenth of a
/// millisecond. Requests come first between two turns.
pub const LOOKED_AT_A_TURN: usize = 128;
/// Between two turns. A round over 20,000 counters takes a third of a second.
pub const BETWEEN_TURNS: Duration = Duration::from_millis(1);
/// Every so many of those rounds (five seconds) dead pooled connections are closed and idle cells let go: both only
/// cost memory until then.
pub const ROUNDS_A_SWEEP: u64 = 20;

// ---- heads, bodies, reports, answers: what nothing may allocate or walk beyond -------------------------

/// Header lines of one head. Browsers and SDKs send 10 to 40; nginx and hyper stop near 100.
pub const MAX_HEADER_LINES: usize = 128;

/// Empty lines tolerated in front of a request line (RFC 9112 §2.2 asks for at least one: old clients
/// send a CRLF after a body). More is a peer that is not speaking HTTP.
pub const MAX_LEADING_EMPTY_LINES: usize = 4;

/// Bytes of one chunk-size line with its extensions and CRLF. Sixteen digits suffice; the rest is room
/// for extensions, which are read and dropped.
pub const MAX_CHUNK_LINE_BYTES: usize = 1024;

/// Bytes of all trailer lines of one chunked body. They are dropped, so only signatures need to fit.
pub const MAX_TRAILER_BYTES: usize = 8 * 1024;

/// Containers open at once in a JSON body. Tool schemas reach 20 to 30; what is deeper than this only
/// wears out the parsers behind us. One bit a level, so at most 128 bytes.
pub const MAX_JSON_DEPTH: usize = 1024;

/// Bytes of a model's name. It becomes part of counter identities, so it may not be a body of its own.
pub const MAX_MODEL_BYTES: usize = 256;

/// Parts of a form. The largest known request has sixteen images and a dozen fields.
pub const MAX_FORM_PARTS: usize = 128;
/// Bytes of the head of one part of a form: a name, a file's name and a type.
pub const MAX_PART_HEAD: usize = 4096;

/// Bytes of one server-sent event that is held back until it is known whether the client may see it.
/// A closing usage event has 200 to 600 bytes; a larger event is no such event and passes at once.
pub const MAX_WITHHELD_EVENT_BYTES: usize = 64 * 1024;

/// Bytes of a packed answer, unpacked, that are read for its usage: no completion is that long, and what is longer is
/// meant to wear the core out.
pub const MAX_UNPACKED_BYTES: usize = 64 * 1024 * 1024;

/// Of these, bytes that a packed answer may unpack to at once, whatever it brings: a few milliseconds of the core.
pub const UNPACKED_CREDIT: usize = 1024 * 1024;

/// Bytes that each packed byte may unpack to, beyond that: text of models packs to a third or a tenth, and one read from a
/// backend (16 KiB) brings the core a few milliseconds at the most.
pub const MAX_RATIO: usize = 64;

/// Packed bytes taken in one step. In gzip they unpack to a thousand times as much at the most.
pub const UNPACK_STEP_BYTES: usize = 512;

/// Bytes that a decoder of brotli or zstd gives out at a time: in these a few bytes can stand for megabytes.
pub const UNPACKED_PIECE_BYTES: usize = 16 * 1024;

/// The largest window of zstd in an answer, as a power of two: 8 MiB, which RFC 9659 allows as a content coding. That of
/// brotli is 16 MiB by its own standard; either is allocated only as far as the answer fills it.
pub const MAX_WINDOW_LOG: u32 = 23;

/// Bytes of one reported number. u64 needs twenty; a longer one saturates.
pub const MAX_NUMBER_BYTES: usize = 40;

/// Seconds in `Retry-After` when a cap will never admit the request (it asks for more than the whole
/// cap, or its model has no price). A day keeps every client away that obeys the header, and
/// `x-should-retry: false` stops the SDKs that ignore delays above a minute.
pub const NEVER_RETRY_AFTER_SECONDS: u64 = 86_400;

/// Seconds up to which a refused request is worth retrying by itself (SPEC §5): the SDKs wait no longer.
pub const RETRYABLE_SECONDS: u64 = 60;
