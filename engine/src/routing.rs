//! Which provider serves a model: the first route whose pattern matches.
//!
//! Routes are few and ordered, so they are walked; an index by literal name was rejected, because a pattern further up
//! may shadow it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::glob::Glob;
use crate::units::Tokens;

/// The id of a provider. Cheap to clone.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct ProviderId(Arc<str>);

impl ProviderId {
    /// The id spelt so.
    #[must_use]
    pub fn new(text: &str) -> ProviderId {
        ProviderId(text.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ProviderId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for ProviderId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", &*self.0)
    }
}

/// The API that a provider speaks.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Api {
    /// OpenAI's, and what imitates it.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Ollama's own.
    Ollama,
}

impl Api {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Api::OpenAi => "openai",
            Api::Anthropic => "anthropic",
            Api::Ollama => "ollama",
        }
    }

    /// The API of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Api> {
        [Api::OpenAi, Api::Anthropic, Api::Ollama].into_iter().find(|api| api.name() == text)
    }
}

/// One route.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Route {
    /// Which asked models it takes.
    pub model: Glob,
    /// Who serves them.
    pub provider: ProviderId,
    /// The model to ask the provider for; absent: the one asked.
    pub served_model: Option<Arc<str>>,
    /// Output tokens to hold when a request names no cap.
    pub output_hold: Tokens,
    /// Whether holds are raised to what earlier exchanges came to ([`crate::estimator`]).
    pub learns: bool,
}

impl Route {
    /// The output hold of a route that gives none (SPEC section 4.5).
    pub const DEFAULT_OUTPUT_HOLD: Tokens = Tokens(256);

    /// The model that serves a request for `asked`.
    #[must_use]
    pub fn served<'a>(&'a self, asked: &'a str) -> &'a str {
        self.served_model.as_deref().unwrap_or(asked)
    }
}

/// The routes, in the order of the config.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub struct Routes(Arc<[Route]>);

impl Routes {
    /// Routes in their order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Routes {
        Routes(routes.into())
    }

    /// The first route that takes the model.
    #[must_use]
    pub fn find(&self, model: &str) -> Option<&Route> {
        self.0.iter().find(|route| route.model.matches(model))
    }

    /// All routes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_route_wins() {
        let route = |model: &str, provider: &str, served: Option<&str>| Route {
            model: Glob::new(model).unwrap(),
            provider: ProviderId::new(provider),
            served_model: served.map(Arc::from),
            output_hold: Route::DEFAULT_OUTPUT_HOLD,
            learns: false,
        };
        let routes = Routes::new(vec![
            route("gpt-4o", "a", Some("gpt-4o-mini")),
            route("gpt-*", "b", None),
            route("*", "c", None),
        ]);
        let check = |model: &str, wanted: Option<(&str, &str)>| {
            let found = routes.find(model).map(|route| (route.provider.as_str(), route.served(model)));
            assert_eq!(found, wanted, "{model}");
        };
        check("gpt-4o", Some(("a", "gpt-4o-mini")));
        check("gpt-4o-mini", Some(("b", "gpt-4o-mini")));
        check("llama", Some(("c", "llama")));
        check("meta/llama", None);
        assert_eq!(routes.iter().count(), 3);
    }

    #[test]
    fn api_names_read_back() {
        for api in [Api::OpenAi, Api::Anthropic, Api::Ollama] {
            assert_eq!(Api::parse(api.name()), Some(api));
        }
        assert_eq!(Api::parse("OpenAI"), None);
    }
}
