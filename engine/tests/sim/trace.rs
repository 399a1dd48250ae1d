//! What happened in a world, as one number; and, when a seed is replayed, as text.

use std::collections::VecDeque;

/// Events that a replay shows.
const SHOWN: usize = 60;

pub struct Trace {
    hash: u64,
    shown: Option<VecDeque<String>>,
}

impl Trace {
    pub fn new(replayed: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, shown: replayed.then(VecDeque::new) }
    }

    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// An event: numbers that say it whole, and a text for people.
    pub fn event(&mut self, numbers: &[u64], text: impl FnOnce() -> String) {
        numbers.iter().for_each(|number| self.number(*number));
        if let Some(shown) = &mut self.shown {
            shown.push_back(text());
            if shown.len() > SHOWN {
                shown.pop_front();
            }
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(shown) = &self.shown
        {
            eprintln!("the last events:");
            shown.iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}
