//! What a request is likely to use, learnt from the exchanges before it, for routes that ask for it (`estimate: learned`).
//!
//! The estimate of SPEC §4.5 follows from a request alone: a token for each four bytes of text, and the cap asked for or
//! the route's `output_hold`. Text that is not English prose, chat templates, tool schemas and images make a prompt longer
//! than that, and an answer without a cap has no bound. Where the estimate is below the usage, `if_fits` lets more pass than
//! fits. So an [`Estimator`] keeps for each (route, key) how many tokens prompts had for each token estimated, and
//! how many tokens answers without a cap had, and raises an estimate to that. It never lowers one: SPEC §4.4 holds with it
//! on as it does without.
//!
//! - **What is kept** is a mean and a mean deviation, smoothed as RFC 6298 does with round trips; an estimate is their mean
//!   and four deviations ([`Smoothed`]). A largest value that fades was rejected: one rare answer would refuse others
//!   for as long as it takes to fade, while an answer that is not rare shows in the deviation. A quantile was rejected: it
//!   needs many samples before it says anything about its tail, and most keys have few.
//! - **By size.** A template or a schema of tools adds the same tokens to every prompt, so the ratio of short prompts says
//!   nothing about long ones. Prompts are told apart by their size, in steps of four ([`PROMPT_SIZES`]).
//! - **What teaches.** A number that a backend reported, above zero and up to [`TOKENS_A_REQUEST`]; the caller keeps away what
//!   was only estimated. Output with a cap teaches nothing, and is not raised: the cap bounds it already.
//! - **How far.** No estimate is raised, and no report believed, beyond [`raised_at_most`] of what the request alone says.
//! - **Room.** [`LESSONS_A_CORE`] pairs in sets of [`LESSONS_A_SET`]; in a full set the one taught least recently is
//!   forgotten, and its requests are estimated by themselves until they have taught again. All room is taken by the first lesson.
//!
//! One core's estimator belongs to that core alone and learns from the exchanges that it settled: no lock, no message. Nothing of it
//! outlives the process. All arithmetic is of whole numbers.

mod smoothed;
#[cfg(test)]
mod tests;

use ahash::RandomState;

use crate::bounds::{
    LESSONS_A_CORE, LESSONS_A_SET, PROMPT_SIZES, RAISED_ABOVE_SHORT, RAISED_TIMES, TOKENS_A_REQUEST,
};
use crate::identity::Kid;
use crate::prices::Expected;
use crate::routing::Route;
use crate::units::Tokens;
use crate::usage::Usage;
use smoothed::Smoothed;

/// One token for each token estimated, as it is kept. An estimate is so exact to a part in 4096.
const ONE: u64 = 1 << 12;

/// What one request asks an estimator, and what its answer teaches.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Lesson {
    subject: u64,
    /// What the prompt is estimated at by itself.
    input: Tokens,
    /// What each choice is held at by itself, where no cap bounds it.
    open_output: Option<Tokens>,
    choices: u64,
}

impl Lesson {
    /// Of a request of `kid` on `route` whose prompt is estimated at `input` tokens, for so many `choices`. `capped`: it
    /// asks for an output cap.
    #[must_use]
    pub fn new(route: &Route, kid: Option<Kid>, input: Tokens, choices: u64, capped: bool) -> Lesson {
        // Whoever could choose keys that collide with others' would make their holds like his own, within the bound.
        let hasher = RandomState::with_seeds(0x7a3c, 0x51e9, 0x0d42, 0xb68f);
        let subject = hasher.hash_one((
            route.model.pattern(),
            route.provider.as_str(),
            route.served_model.as_deref(),
            kid,
        ));
        Lesson {
            subject: subject.max(1),
            input,
            open_output: (!capped).then_some(route.output_hold),
            choices: choices.max(1),
        }
    }

    /// A prompt without text counts as one token: it may still have a template, tools or images.
    fn prompt(&self) -> u64 {
        self.input.0.max(1)
    }

    /// Which prompts it is compared with.
    fn size(&self) -> usize {
        let size = self.prompt().ilog2() as usize / 2;
        size.min(PROMPT_SIZES - 1)
    }
}

/// The most that something estimated at `tokens` by itself is raised to.
#[must_use]
pub fn raised_at_most(tokens: Tokens) -> Tokens {
    tokens.saturating_mul(RAISED_TIMES).max(RAISED_ABOVE_SHORT)
}

/// What one (route, key) has taught.
#[derive(Copy, Clone, Default, Debug)]
struct Learnt {
    /// Whose it is; 0 is nobody's.
    subject: u64,
    /// The number of its last lesson.
    taught: u64,
    /// Tokens for each token estimated, in parts of [`ONE`], by the size of the prompt.
    prompts: [Smoothed; PROMPT_SIZES],
    /// Tokens of a choice without a cap.
    output: Smoothed,
}

/// What one core has learnt.
#[derive(Default, Debug)]
pub struct Estimator {
    /// Sets of [`LESSONS_A_SET`]; empty before the first lesson.
    sets: Vec<[Learnt; LESSONS_A_SET]>,
    /// Lessons taken.
    taught: u64,
}

impl Estimator {
    /// `alone`, which follows from the request, raised to what requests like it came to. `maximum`: the most that the served
    /// model writes for one choice, where it is known.
    #[must_use]
    pub fn raise(&self, lesson: &Lesson, alone: Expected, maximum: Option<Tokens>) -> Expected {
        let set = self.set(lesson.subject).and_then(|set| self.sets.get(set));
        let Some(learnt) = set.and_then(|set| set.iter().find(|one| one.subject == lesson.subject)) else {
            return alone;
        };
        let parts = u128::from(learnt.prompts[lesson.size()].likely_most()) * u128::from(lesson.prompt());
        let input = Tokens(u64::try_from(parts.div_ceil(u128::from(ONE))).unwrap_or(u64::MAX))
            .min(raised_at_most(lesson.input));
        let output = lesson.open_output.map_or(Tokens::ZERO, |hold| {
            let each = Tokens(learnt.output.likely_most().into()).min(raised_at_most(hold));
            maximum.map_or(each, |most| each.min(most)).saturating_mul(lesson.choices)
        });
        Expected { input: alone.input.max(input), output: alone.output.max(output), ..alone }
    }

    /// Takes in what a backend reported for the request.
    pub fn learn(&mut self, lesson: &Lesson, reported: &Usage) {
        let believed = 1..=TOKENS_A_REQUEST;
        let ratio = believed.contains(&reported.input.0).then(|| {
            let tokens = reported.input.min(raised_at_most(lesson.input)).0;
            u32::try_from((tokens.saturating_mul(ONE)).div_ceil(lesson.prompt())).unwrap_or(u32::MAX)
        });
        let output = lesson.open_output.filter(|_| believed.contains(&reported.output.0)).map(|hold| {
            let each = Tokens(reported.output.0.div_ceil(lesson.choices)).min(raised_at_most(hold)).0;
            u32::try_from(each).unwrap_or(u32::MAX)
        });
        if ratio.is_none() && output.is_none() {
            return;
        }
        let learnt = self.place(lesson.subject);
        if let Some(ratio) = ratio {
            learnt.prompts[lesson.size()].add(ratio);
        }
        if let Some(output) = output {
            learnt.output.add(output);
        }
    }

    fn set(&self, subject: u64) -> Option<usize> {
        let sets = self.sets.len() as u64;
        usize::try_from(subject.checked_rem(sets)?).ok()
    }

    /// The place of a subject, that of another if there is none left.
    fn place(&mut self, subject: u64) -> &mut Learnt {
        if self.sets.is_empty() {
            self.sets.resize(LESSONS_A_CORE / LESSONS_A_SET, Default::default());
        }
        self.taught += 1;
        let set = self.set(subject).unwrap_or(0);
        let set = &mut self.sets[set];
        let own = set.iter().position(|one| one.subject == subject);
        let oldest = || (0..LESSONS_A_SET).min_by_key(|&at| set[at].taught).unwrap_or(0);
        let at = own.unwrap_or_else(oldest);
        let learnt = &mut set[at];
        if own.is_none() {
            *learnt = Learnt { subject, ..Learnt::default() };
        }
        learnt.taught = self.taught;
        learnt
    }
}
