//! The estimator against lists of all samples and RFC 6298's formulas over them, and what each of its bounds promises.

use std::collections::HashMap;

use proptest::prelude::*;

use super::smoothed::LARGEST;
use super::*;
use crate::glob::Glob;
use crate::routing::ProviderId;

fn route(model: &str) -> Route {
    Route {
        model: Glob::new(model).unwrap(),
        provider: ProviderId::new("p"),
        served_model: None,
        output_hold: Tokens(100),
        learns: true,
    }
}

fn kid(number: u64) -> Kid {
    Kid::parse(&format!("vk_{number:012}")).unwrap()
}

fn reported(input: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() }
}

/// A request with one choice: its prompt's estimate, and whether it has a cap.
fn lesson(input: u64, capped: bool) -> Lesson {
    Lesson::new(&route("*"), None, Tokens(input), 1, capped)
}

fn alone(lesson: &Lesson) -> Expected {
    let output = lesson.open_output.map_or(7, |hold| hold.0 * lesson.choices);
    Expected { input: lesson.input, output: Tokens(output), images: 3, characters: 4 }
}

fn raised(estimator: &Estimator, lesson: &Lesson) -> (u64, u64) {
    let raised = estimator.raise(lesson, alone(lesson), None);
    (raised.input.0, raised.output.0)
}

/// An estimator that was told of requests of one size, one after the other.
fn taught(input: u64, reports: impl IntoIterator<Item = (u64, u64)>) -> Estimator {
    let mut estimator = Estimator::default();
    for (read, written) in reports {
        estimator.learn(&lesson(input, false), &reported(read, written));
    }
    estimator
}

/// RFC 6298 §2 over all samples, but for the deviation of the first.
fn likely_most(samples: &[f64]) -> f64 {
    let Some((first, others)) = samples.split_first() else { return 0.0 };
    let begin = (*first, first / 8.0);
    let (mean, deviation) = others.iter().fold(begin, |(mean, deviation), sample| {
        (mean * 7.0 / 8.0 + sample / 8.0, deviation * 3.0 / 4.0 + (sample - mean).abs() / 4.0)
    });
    mean + 4.0 * deviation
}

/// What whole numbers may differ from that: the mean by less than two, four deviations by less than fourteen.
const ROUNDING: f64 = 16.0;

proptest! {
    #[test]
    fn the_smoothing_is_that_of_rfc_6298(values in proptest::collection::vec(1..=LARGEST, 0..200)) {
        let mut smoothed = Smoothed::default();
        let mut samples = Vec::new();
        for value in values {
            smoothed.add(value);
            samples.push(f64::from(value));
            let wanted = likely_most(&samples);
            prop_assert!((f64::from(smoothed.likely_most()) - wanted).abs() < ROUNDING, "{smoothed:?} {wanted}");
        }
    }

    /// Requests of three keys and two routes, with reports from nothing to absurd.
    #[test]
    fn random_histories_agree_with_lists(
        steps in proptest::collection::vec(
            (0..3u64, 0..2usize, 0..20u32, 1..9u64, any::<bool>(), 0..64u32, 0..64u32, any::<u64>()),
            0..300,
        ),
    ) {
        let routes = [route("a"), route("b")];
        let mut estimator = Estimator::default();
        let mut prompts: HashMap<_, Vec<f64>> = HashMap::new();
        let mut outputs: HashMap<_, Vec<f64>> = HashMap::new();
        for (key, on, input, choices, capped, read, written, noise) in steps {
            let input = (1u64 << input) - 1 + (noise & 1);
            let one = Lesson::new(&routes[on], Some(kid(key)), Tokens(input), choices, capped);
            let whole = alone(&one);
            let raised = estimator.raise(&one, whole, None);
            let short = estimator.raise(&one, whole, Some(Tokens(30)));

            prop_assert!(raised.input >= whole.input && raised.output >= whole.output);
            prop_assert!(raised.input <= raised_at_most(whole.input));
            prop_assert!(raised.output <= raised_at_most(Tokens(100)).saturating_mul(choices));
            prop_assert_eq!((raised.images, raised.characters), (3, 4));
            prop_assert_eq!(short.output, whole.output, "the model's own maximum");
            let (size, estimated) = (one.size(), input.max(1) as f64);
            let ratio = prompts.entry((key, on, size)).or_default();
            let wanted = (likely_most(ratio) / 4096.0 * estimated)
                .clamp(input as f64, raised_at_most(Tokens(input)).0 as f64);
            let off = ROUNDING / 4096.0 * estimated + 1.0;
            prop_assert!((raised.input.0 as f64 - wanted).abs() <= off, "{raised:?} {wanted}");
            let output = outputs.entry((key, on)).or_default();
            let each = likely_most(output).clamp(100.0, 16_384.0);
            let wanted = if capped { 7.0 } else { each * choices as f64 };
            let off = ROUNDING * choices as f64;
            prop_assert!((raised.output.0 as f64 - wanted).abs() <= off, "{raised:?} {wanted}");

            let (read, written) = (noise >> read, (noise ^ 0x5555) >> written);
            estimator.learn(&one, &reported(read, written));
            if (1..=TOKENS_A_REQUEST).contains(&read) {
                let believed = read.min(raised_at_most(Tokens(input)).0) as f64;
                ratio.push((believed * 4096.0 / estimated).ceil());
            }
            if !capped && (1..=TOKENS_A_REQUEST).contains(&written) {
                output.push(written.div_ceil(choices).min(16_384) as f64);
            }
        }
    }

    #[test]
    fn equal_answers_are_soon_held_exactly_whatever_came_before(
        input in 1..100_000u64, percent in 100..1600u64, written in 100..16_384u64,
        before in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..50),
    ) {
        let read = (input * percent).div_ceil(100);
        let new = taught(input, (0..16).map(|_| (read, written)));
        let (holds, holds_output) = raised(&new, &lesson(input, false));
        prop_assert!(holds >= read && holds <= read + read / 100 + 1, "{holds} for {read} after sixteen");
        prop_assert!(holds_output >= written && holds_output <= written + written / 100 + 1);
        let old = taught(input, before.into_iter().chain((0..250).map(|_| (read, written))));
        let (holds, holds_output) = raised(&old, &lesson(input, false));
        prop_assert!(holds >= read && holds <= read + input.div_ceil(ONE), "{holds} for {read}, others forgotten");
        prop_assert_eq!(holds_output, written);
    }
}

#[test]
fn what_is_no_report_teaches_nothing() {
    let check = |name: &str, input: u64, report: (u64, u64), wanted: (u64, u64)| {
        let estimator = taught(input, [report; 100]);
        assert_eq!(raised(&estimator, &lesson(input, false)), wanted, "{name}");
    };
    check("zeros", 10, (0, 0), (10, 100));
    check("a number beyond all", 10, (u64::MAX, u64::MAX), (10, 100));
    check("one beyond what a request can use", 10, (TOKENS_A_REQUEST + 1, TOKENS_A_REQUEST + 1), (10, 100));
    check("less than estimated", 10, (1, 1), (10, 100));
    check("only what was read", 1000, (2000, 0), (2000, 100));
    check("only what was written", 1000, (0, 500), (1000, 500));
    check("the most that is believed, of little", 10, (TOKENS_A_REQUEST, TOKENS_A_REQUEST), (16_384, 16_384));
    check("the most that is believed, of much", 100_000, (TOKENS_A_REQUEST, 100), (1_600_000, 100));
    check("a prompt without text", 0, (1100, 100), (1100, 100));
    check("the largest prompt", u64::MAX, (5, 5), (u64::MAX, 100));
}

#[test]
fn a_cap_stands_and_prompts_of_other_sizes_learn_nothing() {
    let estimator = taught(1000, [(3000, 900); 30]);
    for (input, capped, wanted) in [
        (1000, false, (3000, 900)),
        (1000, true, (3000, 7)),
        (257, true, (771, 7)),
        (255, false, (255, 900)),
        (1024, false, (1024, 900)),
    ] {
        assert_eq!(raised(&estimator, &lesson(input, capped)), wanted, "{input} {capped}");
    }
    let several = Lesson::new(&route("*"), None, Tokens(1000), 4, false);
    assert_eq!(raised(&estimator, &several), (3000, 3600));
    for other in [
        Lesson::new(&route("b"), None, Tokens(1000), 1, false),
        Lesson::new(&route("*"), Some(kid(1)), Tokens(1000), 1, false),
    ] {
        assert_eq!(raised(&estimator, &other), (1000, 100));
    }
}

#[test]
fn one_answer_that_is_not_like_the_others_fades() {
    let usual = std::iter::repeat_n((1200, 200), 40);
    let odd = usual.chain([(TOKENS_A_REQUEST, TOKENS_A_REQUEST)]);
    let holds = |after: usize| {
        let estimator = taught(1000, odd.clone().chain(std::iter::repeat_n((1200, 200), after)));
        raised(&estimator, &lesson(1000, false))
    };
    assert_eq!(holds(0), (16_384, 16_384), "what was reported, within the bound");
    let (input, output) = holds(40);
    assert!(input < 1320 && output < 320, "{input} {output}: within a tenth of what was odd");
}

#[test]
fn room_is_bounded_and_the_last_taught_stay() {
    let mut estimator = Estimator::default();
    let of = |number: u64| Lesson::new(&route("*"), Some(kid(number)), Tokens(1000), 1, true);
    let knows = |estimator: &Estimator, number| raised(estimator, &of(number)).0 != 1000;
    assert_eq!(estimator.sets.capacity(), 0, "nobody has learnt anything");
    let many = 3 * LESSONS_A_CORE as u64;
    for number in 0..many {
        estimator.learn(&of(number), &reported(2000, 1));
        assert!(knows(&estimator, number));
        estimator.learn(&of(0), &reported(2000, 1));
        assert!(knows(&estimator, 0), "the one that is taught all the time, after {number}");
    }
    assert_eq!(estimator.sets.len() * LESSONS_A_SET, LESSONS_A_CORE);
    let known = (0..many).filter(|&number| knows(&estimator, number)).count();
    assert!(known > LESSONS_A_CORE * 9 / 10 && known <= LESSONS_A_CORE, "{known}");
    assert!(size_of::<Learnt>() <= 88, "{}", size_of::<Learnt>());
}
