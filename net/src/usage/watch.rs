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
/// Prompt tokens read from a cache, beside INPUT (Anthropic).
pub(super) const CACHE_READ: u8 = 4;
/// Prompt tokens written to a cache, beside INPUT (Anthropic).
pub(super) const CACHE_CREATION: u8 = 5;
/// llama.cpp's timings: prompt tokens evaluated.
pub(super) const TIMED_PROMPT: u8 = 6;
/// llama.cpp's timings: prompt tokens from its cache.
pub(super) const TIMED_CACHE: u8 = 7;
/// llama.cpp's timings: tokens generated.
pub(super) const TIMED_OUTPUT: u8 = 8;
/// Slots that hold a number.
pub(super) const NUMBERS: usize = 9;
/// A `usage` object.
pub(super) const USAGE: u8 = 9;
/// `choices`.
pub(super) const CHOICES: u8 = 10;
/// Generated text.
pub(super) const TEXT: u8 = 11;
/// Vectors, which are no generated text.
pub(super) const VECTORS: u8 = 12;

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
    Watch { slot: Some(slot), members: &[], elements: None }
}

const fn object(members: &'static [(&'static str, &'static Watch)]) -> Watch {
    Watch { slot: None, members, elements: None }
}

const fn array(elements: &'static Watch) -> Watch {
    Watch { slot: None, members: &[], elements: Some(elements) }
}

static INPUT_LEAF: Watch = leaf(INPUT);
static OUTPUT_LEAF: Watch = leaf(OUTPUT);
static TEXT_LEAF: Watch = leaf(TEXT);
static CACHED_DETAILS: Watch = object(&[("cached_tokens", &leaf(CACHED))]);

static USAGE_OBJECT: Watch = Watch {
    slot: Some(USAGE),
    members: &[
        ("prompt_tokens", &INPUT_LEAF),
        ("input_tokens", &INPUT_LEAF),
        ("completion_tokens", &OUTPUT_LEAF),
        ("output_tokens", &OUTPUT_LEAF),
        ("total_tokens", &leaf(TOTAL)),
        ("prompt_tokens_details", &CACHED_DETAILS),
        ("input_tokens_details", &CACHED_DETAILS),
        ("cache_read_input_tokens", &leaf(CACHE_READ)),
        ("cache_creation_input_tokens", &leaf(CACHE_CREATION)),
    ],
    elements: None,
};

static MESSAGE: Watch = object(&[
    ("content", &TEXT_LEAF),
    ("reasoning_content", &TEXT_LEAF),
    ("reasoning", &TEXT_LEAF),
    ("refusal", &TEXT_LEAF),
    ("tool_calls", &array(&object(&[("function", &object(&[("arguments", &TEXT_LEAF)]))]))),
]);

static OPENAI: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    (
        "choices",
        &Watch {
            slot: Some(CHOICES),
            members: &[],
            elements: Some(&object(&[("delta", &MESSAGE), ("message", &MESSAGE), ("text", &TEXT_LEAF)])),
        },
    ),
    (
        "timings",
        &object(&[
            ("prompt_n", &leaf(TIMED_PROMPT)),
            ("cache_n", &leaf(TIMED_CACHE)),
            ("predicted_n", &leaf(TIMED_OUTPUT)),
        ]),
    ),
    ("data", &array(&leaf(VECTORS))),
]);

/// Streams give `delta` at the top and the whole answer once more below `response`; single answers have
/// `output` at the top. So nothing is counted twice.
static RESPONSES: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    ("response", &object(&[("usage", &USAGE_OBJECT)])),
    ("delta", &TEXT_LEAF),
    (
        "output",
        &array(&object(&[("content", &array(&object(&[("text", &TEXT_LEAF)]))), ("arguments", &TEXT_LEAF)])),
    ),
]);

static ANTHROPIC_PART: Watch =
    object(&[("text", &TEXT_LEAF), ("thinking", &TEXT_LEAF), ("partial_json", &TEXT_LEAF)]);

static ANTHROPIC: Watch = object(&[
    ("usage", &USAGE_OBJECT),
    ("message", &object(&[("usage", &USAGE_OBJECT)])),
    ("content", &array(&ANTHROPIC_PART)),
    ("delta", &ANTHROPIC_PART),
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
]);
