//! What a limit may ask of a request: the closed vocabulary of model, provider and endpoint.

use crate::glob::Glob;
use crate::limit_types::Gate;

/// The closed vocabulary of dims, in the order of every table of three.
pub const DIM_NAMES: [&str; 3] = ["model", "provider", "endpoint"];

/// What one request is, as far as a limit may ask.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Dims<'a> {
    /// The model that the client asked for.
    pub model: &'a str,
    /// The id of the route's provider.
    pub provider: &'a str,
    /// The normalised path.
    pub endpoint: &'a str,
}

impl<'a> Dims<'a> {
    /// In the order of [`DIM_NAMES`].
    #[must_use]
    pub const fn values(&self) -> [&'a str; 3] {
        [self.model, self.provider, self.endpoint]
    }

    /// What a gate sees of them: before the body is read, only the endpoint.
    #[must_use]
    pub const fn seen_at(&self, gate: Gate) -> Dims<'a> {
        match gate {
            Gate::One => Dims { model: "", provider: "", endpoint: self.endpoint },
            Gate::Two => *self,
        }
    }
}

/// Which requests a limit is about; an absent dim is not asked.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Match {
    /// On the model asked for.
    pub model: Option<Glob>,
    /// On the route's provider id.
    pub provider: Option<Glob>,
    /// On the normalised path.
    pub endpoint: Option<Glob>,
}

impl Match {
    /// In the order of [`DIM_NAMES`].
    #[must_use]
    pub fn patterns(&self) -> [Option<&Glob>; 3] {
        [self.model.as_ref(), self.provider.as_ref(), self.endpoint.as_ref()]
    }

    /// Whether a request satisfies all of it.
    #[must_use]
    pub fn fits(&self, dims: &Dims<'_>) -> bool {
        self.first_unfit(dims).is_none()
    }

    /// The first dim that does not fit: its name, the pattern, the request's value.
    #[must_use]
    pub fn first_unfit<'d>(&self, dims: &Dims<'d>) -> Option<(&'static str, &Glob, &'d str)> {
        let asked = DIM_NAMES.into_iter().zip(self.patterns()).zip(dims.values());
        asked.into_iter().find_map(|((name, pattern), value)| {
            let pattern = pattern?;
            (!pattern.matches(value)).then_some((name, pattern, value))
        })
    }
}
