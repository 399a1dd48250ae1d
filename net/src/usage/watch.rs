//! Which members of a response matter, for each dialect, as static trees for [`crate::json::capture`].
//!
//! Every dialect reads all spellings of a `usage` object, because backends mix them; what the fields mean
//! (whether `input_tokens` holds the cached ones) is the dialect's and decided in `report`.

use crate::endpoint::Dialect;
use crate::json::capture::Watch;

/// Prompt tokens.
pub(super) const INPUT: u8 = 0;
/// Completion tokens.
pub(super) const OUTPUT: u8 = 1;
/// Both together.
pub(super) const TOTAL: u8 = 2;
/// Prompt tokens read from a cache, counted in INPUT too (OpenAI).
pub(super) const CACHED: u8 = 3;
/// Prompt tokens written to a cache, counted in INPUT too (OpenAI).
pub(super) const CACHE_WRITE: u8 = 4;
/// Prompt tokens read from a cache, beside INPUT (Anthropic).
pub(super) const CACHE_READ: u8 = 5;
/// Prompt tokens written to a cache, beside INPUT (Anthropic).
pub(super) const CACHE_CREATION: u8 = 6;
/// Of these, those kept for five minutes.
pub(super) const CREATED_MINUTES: u8 = 7;
/// Of these, those kept for an hour.
pub(super) const CREATED_HOUR: u8 = 8;
/// Prompt tokens of audio.
pub(super) const AUDIO_INPUT: u8 = 9;
/// Prompt tokens of images.
pub(super) const IMAGE_INPUT: u8 = 10;
/// Completion tokens of reasoning.
pub(super) const REASONING: u8 = 11;
/// Completion tokens of audio.
pub(super) const AUDIO_OUTPUT: u8 = 12;
/// Completion tokens of images.
pub(super) const IMAGE_OUTPUT: u8 = 13;
/// Completion tokens as a stream's first event has them, before anything is written (Anthropic).
pub(super) const OUTPUT_AT_START: u8 = 14;
/// Seconds of audio; kept in thousandths.
pub(super) const SECONDS: u8 = 15;
/// llama.cpp's own completion: prompt tokens.
pub(super) const NATIVE_INPUT: u8 = 16;
/// llama.cpp's own completion: tokens generated.
pub(super) const NATIVE_OUTPUT: u8 = 17;
/// llama.cpp's timings: prompt tokens evaluated.
pub(super) const TIMED_PROMPT: u8 = 18;
/// llama.cpp's timings: prompt tokens from its cache.
pub(super) const TIMED_CACHE: u8 = 19;
/// llama.cpp's timings: tokens generated.
pub(super) const TIMED_OUTPUT: u8 = 20;
/// Slots that hold a number.
pub(super) const NUMBERS: usize = 21;
/// A `usage` object.
pub(super) const USAGE: u8 = 21;
/// `choices`.
pub(super) const CHOICES: u8 = 22;
/// Generated text.
pub(super) const TEXT: u8 = 23;
/// Vectors and images: they are no generated text.
pub(super) const VECTORS: u8 = 24;
/// An image: its bytes or its address.
pub(super) const IMAGE: u8 = 25;
/// What went wrong.
pub(super) const ERROR: u8 = 26;

/// The tree for a dialect.
pub(super) fn of(dialect: Dialect) -> &'static Watch {
    match dialect {
        Dialect::OpenAi => &OPENAI,
        Dialect::Responses => &RESPONSES,
        Dialect::Anthropic => &ANTHROPIC,
        Dialect::Ollama => &OLLAMA,
    }
}

const fn leaf(slot: u8) -> Watch {
    Watch::new(Some(slot), &[], None)
}

const fn object(members: &'static [(&'static str, &'static Watch)]) -> Watch {
    Watch::new(None, members, None)
}

const fn array(elements: &'static Watch) -> Watch {
    Watch::new(None, &[], Some(elements))
}

static INPUT_LEAF: Watch = leaf(INPUT);
static OUTPUT_LEAF: Watch = leaf(OUTPUT);
static TEXT_LEAF: Watch = leaf(TEXT);
static IMAGE_LEAF: Watch = leaf(IMAGE);
static ERROR_LEAF: Watch = leaf(ERROR);

static INPUT_DETAILS: Watch = object(&[
    ("cached_tokens", &leaf(CACHED)),
    ("cache_write_tokens", &leaf(CACHE_WRITE)),
    ("audio_tokens", &leaf(AUDIO_INPUT)),
    ("image_tokens", &leaf(IMAGE_INPUT)),
]);

static OUTPUT_DETAILS: Watch = object(&[
    ("reasoning_tokens", &leaf(REASONING)),
    ("audio_tokens", &leaf(AUDIO_OUTPUT)),
    ("image_tokens", &leaf(IMAGE_OUTPUT)),
]);

static TOTAL_LEAF: Watch = leaf(TOTAL);
static CACHE_READ_LEAF: Watch = leaf(CACHE_READ);
static CACHE_CREATION_LEAF: Watch = leaf(CACHE_CREATION);
static CREATIONS: Watch = object(&[
    ("ephemeral_5m_input_tokens", &leaf(CREATED_MINUTES)),
    ("ephemeral_1h_input_tokens", &leaf(CREATED_HOUR)),
]);
static SECONDS_LEAF: Watch = leaf(SECONDS);

/// The members of a `usage` object, with `output_tokens` in a slot of its own.
const fn usage_members(output: &'static Watch) -> [(&'static str, &'static Watch); 15] {
    [
        ("prompt_tokens", &INPUT_LEAF),
        ("input_tokens", &INPUT_LEAF),
        ("completion_tokens", &OUTPUT_LEAF),
        ("output_tokens", output),
        ("total_tokens", &TOTAL_LEAF),
        ("prompt_tokens_details", &INPUT_DETAILS),
        ("input_tokens_details", &INPUT_DETAILS),
        ("input_token_details", &INPUT_DETAILS),
        ("completion_tokens_details", &OUTPUT_DETAILS),
        ("output_tokens_details", &OUTPUT_DETAILS),
        ("output_token_details", &OUTPUT_DETAILS),
        ("cache_read_input_tokens", &CACHE_READ_LEAF),
        ("cache_creation_input_tokens", &CACHE_CREATION_LEAF),
        ("cache_creation", &CREATIONS),
        ("seconds", &SECONDS_LEAF),
    ]
}

static USAGE_OBJECT: Watch = Watch::new(Some(USAGE), &usage_members(&OUTPUT_LEAF), None);

static OUTPUT_AT_START_LEAF: Watch = leaf(OUTPUT_AT_START);

static USAGE_AT_START: Watch = Watch::new(Some(USAGE), &usage_members(&OUTPUT_AT_START_LEAF), None);

static MESSAGE: Watch = object(&[
    ("content", &TEXT_LEAF),
    ("reasoning_content", &TEXT_LEAF),
    ("reasoning", &TEXT_LEAF),
    ("refusal", &TEXT_LEAF),
    ("tool_calls", &array(&object(&[("function", &object(&[("arguments", &TEXT_LEAF)]))]))),
]);

/// Chat, completions, embeddings, images, transcriptions; llama.cpp's own completion has `content` at the top, a stream
/// of an image `b64_json`, one of a transcription `delta`.
static OPENAI: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    (
        "choices",
        &Watch::new(
            Some(CHOICES),
            &[],
            Some(&object(&[("delta", &MESSAGE), ("message", &MESSAGE), ("text", &TEXT_LEAF)])),
        ),
    ),
    (
        "timings",
        &object(&[
            ("prompt_n", &leaf(TIMED_PROMPT)),
            ("cache_n", &leaf(TIMED_CACHE)),
            ("predicted_n", &leaf(TIMED_OUTPUT)),
        ]),
    ),
    ("tokens_evaluated", &leaf(NATIVE_INPUT)),
    ("tokens_predicted", &leaf(NATIVE_OUTPUT)),
    ("content", &TEXT_LEAF),
    ("delta", &TEXT_LEAF),
    ("data", &array(&Watch::new(Some(VECTORS), &[("b64_json", &IMAGE_LEAF), ("url", &IMAGE_LEAF)], None))),
    ("b64_json", &IMAGE_LEAF),
    ("error", &ERROR_LEAF),
]);

/// Streams give `delta` at the top and the whole answer once more below `response`; single answers have
/// `output` at the top. So nothing is counted twice.
static RESPONSES: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    ("response", &object(&[("usage", &USAGE_OBJECT), ("error", &ERROR_LEAF)])),
    ("delta", &TEXT_LEAF),
    (
        "output",
        &array(&object(&[("content", &array(&object(&[("text", &TEXT_LEAF)]))), ("arguments", &TEXT_LEAF)])),
    ),
    ("error", &ERROR_LEAF),
]);

static ANTHROPIC_PART: Watch =
    object(&[("text", &TEXT_LEAF), ("thinking", &TEXT_LEAF), ("partial_json", &TEXT_LEAF)]);

static ANTHROPIC: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    ("message", &object(&[("usage", &USAGE_AT_START)])),
    ("content", &array(&ANTHROPIC_PART)),
    ("delta", &ANTHROPIC_PART),
    ("error", &ERROR_LEAF),
]);

static OLLAMA: Watch = object(&[
    ("prompt_eval_count", &INPUT_LEAF),
    ("eval_count", &OUTPUT_LEAF),
    ("usage", &USAGE_OBJECT),
    ("message", &object(&[("content", &TEXT_LEAF), ("thinking", &TEXT_LEAF)])),
    ("response", &TEXT_LEAF),
    ("thinking", &TEXT_LEAF),
    ("embedding", &array(&leaf(VECTORS))),
    ("embeddings", &array(&array(&leaf(VECTORS)))),
    ("error", &ERROR_LEAF),
]);
