//! The paths that the data plane serves, and the API dialect each of them speaks.
//!
//! Only exact spellings count: `/V1/...` or a trailing slash is an unknown endpoint, because a path that
//! the caps do not know must not reach a backend that does.

/// The wire dialect of an API: how it reports usage and how it words an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// Chat Completions, Completions, Embeddings and their kin.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Anthropic,
    /// Ollama's own API.
    Ollama,
}

impl Dialect {
    /// The dialect to answer in on a path, also on one that is no endpoint.
    pub fn of_path(path: &str) -> Dialect {
        match classify(path) {
            Some(endpoint) => endpoint.dialect(),
            None if path.starts_with("/v1/messages") => Dialect::Anthropic,
            None if path.starts_with("/api/") => Dialect::Ollama,
            None => Dialect::OpenAi,
        }
    }
}

/// An endpoint that is governed and forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/moderations`
    Moderations,
    /// `/v1/images/generations`
    ImagesGenerations,
    /// `/v1/images/edits`
    ImagesEdits,
    /// `/v1/images/variations`
    ImagesVariations,
    /// `/v1/audio/speech`
    AudioSpeech,
    /// `/v1/audio/transcriptions`
    AudioTranscriptions,
    /// `/v1/audio/translations`
    AudioTranslations,
    /// `/v1/messages`
    Messages,
    /// `/api/chat`
    OllamaChat,
    /// `/api/generate`
    OllamaGenerate,
    /// `/api/embed`
    OllamaEmbed,
    /// `/api/embeddings`
    OllamaEmbeddings,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Endpoint; 16] = [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::Embeddings,
        Endpoint::Responses,
        Endpoint::Moderations,
        Endpoint::ImagesGenerations,
        Endpoint::ImagesEdits,
        Endpoint::ImagesVariations,
        Endpoint::AudioSpeech,
        Endpoint::AudioTranscriptions,
        Endpoint::AudioTranslations,
        Endpoint::Messages,
        Endpoint::OllamaChat,
        Endpoint::OllamaGenerate,
        Endpoint::OllamaEmbed,
        Endpoint::OllamaEmbeddings,
    ];

    /// The normalised path; the `endpoint` dim.
    pub const fn path(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
            Endpoint::Embeddings => "/v1/embeddings",
            Endpoint::Responses => "/v1/responses",
            Endpoint::Moderations => "/v1/moderations",
            Endpoint::ImagesGenerations => "/v1/images/generations",
            Endpoint::ImagesEdits => "/v1/images/edits",
            Endpoint::ImagesVariations => "/v1/images/variations",
            Endpoint::AudioSpeech => "/v1/audio/speech",
            Endpoint::AudioTranscriptions => "/v1/audio/transcriptions",
            Endpoint::AudioTranslations => "/v1/audio/translations",
            Endpoint::Messages => "/v1/messages",
            Endpoint::OllamaChat => "/api/chat",
            Endpoint::OllamaGenerate => "/api/generate",
            Endpoint::OllamaEmbed => "/api/embed",
            Endpoint::OllamaEmbeddings => "/api/embeddings",
        }
    }

    /// How it reports usage and words errors.
    pub const fn dialect(self) -> Dialect {
        match self {
            Endpoint::Responses => Dialect::Responses,
            Endpoint::Messages => Dialect::Anthropic,
            Endpoint::OllamaChat
            | Endpoint::OllamaGenerate
            | Endpoint::OllamaEmbed
            | Endpoint::OllamaEmbeddings => Dialect::Ollama,
            _ => Dialect::OpenAi,
        }
    }

    /// Whether a missing `stream` means true: Ollama streams unless told not to.
    pub const fn streams_by_default(self) -> bool {
        matches!(self, Endpoint::OllamaChat | Endpoint::OllamaGenerate)
    }

    /// Whether its requests ask for images, `n` of them.
    pub const fn makes_images(self) -> bool {
        matches!(self, Endpoint::ImagesGenerations | Endpoint::ImagesEdits | Endpoint::ImagesVariations)
    }

    /// Whether its requests may come as forms, with files.
    pub const fn takes_forms(self) -> bool {
        matches!(
            self,
            Endpoint::ImagesEdits
                | Endpoint::ImagesVariations
                | Endpoint::AudioTranscriptions
                | Endpoint::AudioTranslations
        )
    }

    /// Whether vendors may bill it by the characters of the prompt: its answers report nothing.
    pub const fn is_paid_by_characters(self) -> bool {
        matches!(self, Endpoint::AudioSpeech)
    }

    /// Whether `stream_options.include_usage` is a member of its requests.
    pub const fn has_stream_options(self) -> bool {
        matches!(self, Endpoint::ChatCompletions | Endpoint::Completions)
    }
}

/// The endpoint of a normalised path.
pub fn classify(path: &str) -> Option<Endpoint> {
    Endpoint::ALL.into_iter().find(|endpoint| endpoint.path() == path)
}

/// Where a request on the data plane goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Governed and forwarded (POST).
    Governed(Endpoint),
    /// `GET /tt/v1/me`
    Me,
    /// `GET /v1/models`
    Models,
    /// `GET /tt/v1/healthz`
    Healthz,
    /// `GET /tt/v1/readyz`
    Readyz,
}

/// The destination of a normalised path; None is a 404 `unknown_endpoint`.
pub fn destination(path: &str) -> Option<Destination> {
    match path {
        "/tt/v1/me" => Some(Destination::Me),
        "/v1/models" => Some(Destination::Models),
        "/tt/v1/healthz" => Some(Destination::Healthz),
        "/tt/v1/readyz" => Some(Destination::Readyz),
        _ => classify(path).map(Destination::Governed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_spellings_are_endpoints() {
        for endpoint in Endpoint::ALL {
            assert_eq!(classify(endpoint.path()), Some(endpoint));
            assert_eq!(destination(endpoint.path()), Some(Destination::Governed(endpoint)));
            assert_eq!(classify(&endpoint.path().to_uppercase()), None);
            assert_eq!(classify(&format!("{}/", endpoint.path())), None);
        }
        for path in
            ["/V1/chat/completions", "/v1/chat/completions/x", "/v2/chat/completions", "/v1/", "/", "*"]
        {
            assert_eq!(destination(path), None, "{path}");
        }
    }

    #[test]
    fn errors_are_worded_in_the_dialect_of_the_path() {
        for (path, dialect) in [
            ("/v1/messages", Dialect::Anthropic),
            ("/v1/messages/batches", Dialect::Anthropic),
            ("/api/nothing", Dialect::Ollama),
            ("/v1/nothing", Dialect::OpenAi),
            ("/v1/responses", Dialect::Responses),
        ] {
            assert_eq!(Dialect::of_path(path), dialect, "{path}");
        }
    }
}
