//! The members of a request's body that are read, and how a name is taken for one of them.
//!
//! A name that only differs in case is known too, so that it can be refused.

use super::names::{Names, same};
use super::scan::Text;

/// The members that are read, and what may not be ambiguous among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Member {
    Model,
    Stream,
    N,
    StreamOptions,
    /// An output cap that a negative number does not make sense for.
    Cap(&'static str),
    /// An output cap where a negative number means none (Ollama, llama.cpp).
    LooseCap(&'static str),
    /// Prompt text; twice is no lie: both are counted.
    Prompt,
    /// Ollama's `options`, which holds `num_predict`.
    Options,
}

pub(super) const MEMBERS: [(&str, Member); 14] = [
    ("model", Member::Model),
    ("stream", Member::Stream),
    ("n", Member::N),
    ("stream_options", Member::StreamOptions),
    ("max_completion_tokens", Member::Cap("max_completion_tokens")),
    ("max_tokens", Member::Cap("max_tokens")),
    ("max_output_tokens", Member::Cap("max_output_tokens")),
    ("n_predict", Member::LooseCap("n_predict")),
    ("num_predict", Member::LooseCap("num_predict")),
    ("messages", Member::Prompt),
    ("input", Member::Prompt),
    ("prompt", Member::Prompt),
    ("system", Member::Prompt),
    ("options", Member::Options),
];

/// Where in MEMBERS a name would be.
static NAMES: Names = Names::of(&{
    let mut names = [""; MEMBERS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = MEMBERS[at].0;
        at += 1;
    }
    names
});

/// Which member a name is: its index in MEMBERS, and whether it is spelt as there. `ascii`: that is known of the name.
pub(super) fn member_of(key: &Text<'_>, ascii: bool) -> Option<(usize, bool)> {
    if !key.is_escaped() && (ascii || key.raw.is_ascii()) {
        let at = NAMES.candidate(key.raw)?;
        let known = MEMBERS[at].0.as_bytes();
        let exact = same(known, key.raw);
        return (exact || known.eq_ignore_ascii_case(key.raw)).then_some((at, exact));
    }
    let name = key.decoded()?;
    let at = MEMBERS.iter().position(|(known, _)| folds_to(&name, known))?;
    Some((at, MEMBERS[at].0 == name))
}

/// Equality under the simple case folding that Go's decoder uses: ASCII, the long s and the Kelvin sign.
fn folds_to(name: &str, known: &str) -> bool {
    let folded = name.chars().map(|one| match one {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(known.chars())
}
