//! A name looked up among a few that are known when the program is compiled.
//!
//! Its length and two of its letters say where it would stand, so most names that are not among them cost one look, and
//! one that is costs one comparison. Rejected: comparing with one after the other, which costs most for the names that
//! are of no interest, and those are most of a document's.

/// Where names stand.
#[derive(Debug)]
pub struct Names {
    /// Chosen so that no two names stand in one place.
    factor: u32,
    /// The index of the name that stands there.
    index: [u8; Names::PLACES],
}

impl Names {
    const PLACES: usize = 32;
    const NOBODY: u8 = u8::MAX;
    /// Factors that are tried before names are taken for such as cannot be kept apart.
    const FACTORS: u32 = 10_000;

    /// Of these names, none of them empty.
    ///
    /// # Panics
    ///
    /// While it is compiled, when no factor keeps them apart: there are too many, or two share their length and both letters.
    pub const fn of(names: &[&str]) -> Names {
        let mut factor = 0x9e37_79b1_u32;
        let mut tried = 0;
        while tried < Names::FACTORS {
            let mut index = [Names::NOBODY; Names::PLACES];
            let (mut apart, mut at) = (true, 0);
            while at < names.len() {
                let place = Names::place(names[at].as_bytes(), factor);
                apart &= index[place] == Names::NOBODY;
                index[place] = at as u8;
                at += 1;
            }
            if apart {
                return Names { factor, index };
            }
            factor = factor.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            tried += 1;
        }
        panic!("these names cannot be kept apart by their length and two letters")
    }

    /// The index of the only name that `name` can be, in whatever case: whether it is that one is to be compared.
    #[inline(always)]
    pub fn candidate(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let index = self.index[Names::place(name, self.factor)];
        (index != Names::NOBODY).then_some(index as usize)
    }

    #[inline(always)]
    const fn place(name: &[u8], factor: u32) -> usize {
        const CASES: u32 = 0x20 << 8 | 0x20 << 16;
        // Names of one length that begin alike mostly differ a little before the middle.
        let (first, middle) = (name[0] as u32, name[name.len() * 7 / 16] as u32);
        let traits = (first << 8 | middle << 16 | CASES) ^ name.len() as u32;
        (traits.wrapping_mul(factor) >> 27) as usize
    }
}

/// Whether both are the same. Most names are at most two words, which need no call.
#[inline(always)]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    match (one.len(), one.len() == other.len()) {
        (_, false) => false,
        (4..8, _) => ends::<4>(one) == ends::<4>(other),
        (8..=16, _) => ends::<8>(one) == ends::<8>(other),
        _ => one == other,
    }
}

#[inline(always)]
fn ends<const N: usize>(name: &[u8]) -> (Option<&[u8; N]>, Option<&[u8; N]>) {
    (name.first_chunk(), name.last_chunk())
}

const _: () = assert!(Names::PLACES == 1 << (32 - 27));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_stands_in_any_case_and_no_other_is_taken_for_it() {
        const KNOWN: [&str; 5] = ["n", "model", "choices", "content", "max_completion_tokens"];
        static NAMES: Names = Names::of(&KNOWN);
        for (index, known) in KNOWN.iter().enumerate() {
            assert_eq!(NAMES.candidate(known.as_bytes()), Some(index), "{known}");
            assert_eq!(NAMES.candidate(known.to_ascii_uppercase().as_bytes()), Some(index), "{known}");
        }
        assert_eq!(NAMES.candidate(b""), None);
        for other in ["m", "modem", "choicer", "max_completion_token", "\u{e9}"] {
            let found = NAMES
                .candidate(other.as_bytes())
                .is_some_and(|at| same(KNOWN[at].as_bytes(), other.as_bytes()));
            assert!(!found, "{other}");
        }
    }

    #[test]
    fn names_of_every_length_are_compared_to_their_last_letter() {
        let name: Vec<u8> = (0..40).map(|at| b'a' + at % 26).collect();
        for length in 0..=name.len() {
            assert!(same(&name[..length], &name.clone()[..length]));
            assert!(!same(&name[..length], &name[..length.saturating_sub(1)]) || length == 0);
            for changed in 0..length {
                let mut other = name[..length].to_vec();
                other[changed] ^= 0x20;
                assert!(!same(&name[..length], &other), "{length} letters, the one at {changed} changed");
            }
        }
    }
}
