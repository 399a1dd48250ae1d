//! Names that clients choose must not choose how large the database grows: under a route for every model, each name that
//! is thought of would be a row of usage. So a key has so many models an hour to itself, and the rest in one row.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use engine::{Kid, UsageKey};

use crate::bounds::MODELS_A_KEY;

/// What is written in the place of a name beyond the bound. No model can be called so on purpose: it has a blank.
const OTHERS: &str = "(other models)";

/// So long an hour's names are remembered after it: an exchange is filed under the hour of its admission.
const KEPT_HOURS: i64 = 25;

/// The models of each key and hour.
#[derive(Debug, Default)]
pub struct Names {
    seen: HashMap<(i64, Option<Kid>), HashSet<Arc<str>>>,
    newest: i64,
}

impl Names {
    /// The row that usage under `key` belongs to.
    pub fn bounded(&mut self, key: UsageKey) -> UsageKey {
        if key.hour > self.newest {
            self.newest = key.hour;
            self.seen.retain(|(hour, _), _| *hour + KEPT_HOURS * 3600 > key.hour);
        }
        let models = self.seen.entry((key.hour, key.kid)).or_default();
        if models.contains(&key.model) {
            return key;
        }
        if models.len() < MODELS_A_KEY {
            models.insert(key.model.clone());
            return key;
        }
        UsageKey { model: OTHERS.into(), served: OTHERS.into(), ..key }
    }
}

#[cfg(test)]
mod tests {
    use engine::{NodeId, ProviderId};

    use super::*;

    fn key(hour: i64, kid: &str, model: &str) -> UsageKey {
        UsageKey {
            hour: hour * 3600,
            kid: Kid::parse(kid),
            node: NodeId::new("org:a"),
            model: model.into(),
            served: "served".into(),
            provider: ProviderId::new("p"),
            endpoint: "/v1/chat/completions",
        }
    }

    #[test]
    fn a_key_has_so_many_models_an_hour_and_known_ones_keep_their_rows() {
        let (one, other) = ("vk_AAAAAAAAAAAA", "vk_BBBBBBBBBBBB");
        let mut names = Names::default();
        for number in 0..MODELS_A_KEY {
            let row = key(1, one, &format!("m{number}"));
            assert_eq!(names.bounded(row.clone()), row);
        }
        let check = |names: &mut Names, row: UsageKey, kept: bool| {
            let written = names.bounded(row.clone());
            let wanted =
                if kept { row } else { UsageKey { model: OTHERS.into(), served: OTHERS.into(), ..row } };
            assert_eq!(written, wanted);
        };
        check(&mut names, key(1, one, "one more"), false);
        check(&mut names, key(1, one, "m0"), true);
        check(&mut names, key(1, other, "one more"), true);
        check(&mut names, key(2, one, "one more"), true);
        check(&mut names, key(1, one, "late"), false);
        check(&mut names, key(2 + KEPT_HOURS, one, "m"), true);
        assert_eq!(names.seen.len(), 1, "what is long over is forgotten");
    }
}
