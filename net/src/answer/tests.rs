//! Answers, compared whole: heads line by line, bodies as the exact text.

use super::*;
use crate::bounds::NEVER_RETRY_AFTER_SECONDS;
use crate::http1::HeadError;
use crate::json::{BodyError, read_body};
use engine::{
    Admit, Algorithm, Attach, CalendarPeriod, Cause, Chain, Dims, Glob, Identity, Instance, Key, Kid, Limit,
    LimitId, LimitType, Match, NodeId, OverridePolicy, PicoUsd, Posture, ProviderId, RateLeft, Reading,
    Refusal, Route, Routes, Scopes, Span, Tokens, Tripped, Units, Wait, Window, Zone,
};
use jiff::Timestamp;
use std::sync::Arc;

const NODE: &str = "org:acme/team:ml";

fn to(dialect: Dialect) -> To<'static> {
    To { dialect, request_id: b"r1", version: Version::Http11, keep_alive: true, head_only: false }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn usd(text: &str) -> Units {
    Units(PicoUsd::parse_usd(text).unwrap().0)
}

fn instance(id: &str, kind: LimitType, amount: Units) -> Instance {
    let window = match kind {
        LimitType::Rpm | LimitType::Tpm => {
            Window::Rolling { period: Span::from_secs(60), algorithm: Algorithm::SlidingWindow }
        }
        LimitType::Concurrency => Window::Live,
        _ => Window::Calendar { period: CalendarPeriod::Day, zone: Zone::utc() },
    };
    let node = NodeId::new(NODE);
    let limit = Limit {
        id: LimitId::new(id),
        attach: Attach::Node(node.clone()),
        kind,
        amount,
        window,
        admit: Admit::WhileUnder,
        posture: Posture::default(),
        matches: Match::default(),
        overrides: OverridePolicy::default(),
        suspended: false,
    };
    let identity = Identity::new(&limit, &node, &Dims::default());
    Instance { limit: Arc::new(limit), node, amount, identity }
}

fn tripped(
    instance: Instance,
    observed: Units,
    held: Units,
    resets_at: Option<&str>,
    wait: Wait,
    cause: Cause,
) -> Tripped {
    Tripped { instance, observed, held, resets_at: resets_at.map(at), wait, cause }
}

/// The head's lines and the body; the length in the head must be the body's.
fn parts(out: &[u8]) -> (Vec<String>, String) {
    let text = std::str::from_utf8(out).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    serde_json::from_str::<serde_json::Value>(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    (head.split("\r\n").map(str::to_owned).collect(), body.to_owned())
}

#[test]
fn the_429_is_that_of_the_specification() {
    let refusal = Refusal {
        tripped: vec![
            tripped(
                instance("ml_daily", LimitType::BudgetUsd, usd("200")),
                usd("200.4"),
                usd("0"),
                Some("2026-09-01T00:00:00Z"),
                Wait::For(Span::from_millis(7_200_500)),
                Cause::Over,
            ),
            tripped(
                instance("tokens", LimitType::Tpm, Units(20_000)),
                Units(20_001),
                Units(7),
                None,
                Wait::For(Span(1)),
                Cause::Over,
            ),
        ],
    };
    let members = r#""refused_by":"ml_daily","node":"org:acme/team:ml","limit_type":"budget_usd","resets_at":"2026-09-01T00:00:00Z","retryable":false,"tripped":[{"limit_id":"ml_daily","node":"org:acme/team:ml","limit_type":"budget_usd","limit":200,"observed":200.4,"held":0,"resets_at":"2026-09-01T00:00:00Z"},{"limit_id":"tokens","node":"org:acme/team:ml","limit_type":"tpm","limit":20000,"observed":20001,"held":7,"resets_at":null}]}"#;
    let message =
        "ml_daily: org:acme/team:ml has used 200.4 of 200 USD per day; it resets at 2026-09-01T00:00:00Z.";
    for (dialect, front, back) in [
        (
            Dialect::OpenAi,
            format!(
                r#"{{"error":{{"message":"{message}","type":"insufficient_quota","param":null,"code":"insufficient_quota","#
            ),
            "}",
        ),
        (
            Dialect::Anthropic,
            format!(
                r#"{{"type":"error","error":{{"type":"rate_limit_error","message":"{message}","param":null,"code":"insufficient_quota","#
            ),
            r#","request_id":"r1"}"#,
        ),
    ] {
        let mut out = Vec::new();
        write_refusal(&mut out, &to(dialect), &refusal);
        let (head, body) = parts(&out);
        assert_eq!(body, format!("{front}{members}{back}"));
        assert_eq!(head[0], "HTTP/1.1 429 Too Many Requests");
        for line in [
            "Content-Type: application/json",
            "x-request-id: r1",
            "X-Tt-Refused-By: ml_daily",
            "X-Tt-Refused-Node: org:acme/team:ml",
            "Retry-After: 7201",
            "retry-after-ms: 7200500",
            "x-should-retry: false",
        ] {
            assert!(head.iter().any(|found| found == line), "{line} in {head:?}");
        }
        assert_eq!(head.iter().any(|line| line == "request-id: r1"), dialect == Dialect::Anthropic);
    }
}

#[test]
fn each_kind_of_cap_says_in_a_sentence_what_stopped_the_request() {
    use LimitType::{BudgetUsd, Concurrency, QuotaRequests, QuotaTokens, Rpm, Tpm};
    let (second, day) = (Wait::For(Span::from_secs(1)), Wait::For(Span::from_secs(86_400)));
    let reset = Some("2026-09-01T00:00:00Z");
    // kind, amount, observed, held, resets, wait, cause; code, Retry-After, ms, retry, message
    for (kind, figures, resets_at, wait, cause, code, after, millis, retry, message) in [
        (
            Rpm,
            [2, 2, 0],
            None,
            Wait::For(Span(1_200_000_001)),
            Cause::Over,
            "rate_limit_exceeded",
            2,
            1201,
            true,
            "id: org:acme/team:ml has used 2 of 2 requests per 1m0s; it admits again in 1.201s.",
        ),
        (
            Rpm,
            [2, 2, 0],
            None,
            Wait::For(Span(1)),
            Cause::Over,
            "rate_limit_exceeded",
            1,
            1,
            true,
            "id: org:acme/team:ml has used 2 of 2 requests per 1m0s; it admits again in 1ms.",
        ),
        (
            Concurrency,
            [10, 10, 0],
            None,
            second,
            Cause::Over,
            "rate_limit_exceeded",
            1,
            1000,
            true,
            "id: org:acme/team:ml has 10 of 10 concurrent requests in flight; try again when one of them has ended.",
        ),
        (
            Tpm,
            [100, 60, 50],
            None,
            second,
            Cause::HeldOnly,
            "rate_limit_exceeded",
            1,
            1000,
            true,
            "id: org:acme/team:ml has used 60 of 100 tokens per 1m0s, and requests in flight hold 50 more; try again \
             when some of them have ended.",
        ),
        (
            QuotaRequests,
            [5, 5, 0],
            reset,
            day,
            Cause::Over,
            "insufficient_quota",
            86_400,
            86_400_000,
            false,
            "id: org:acme/team:ml has used 5 of 5 requests per day; it resets at 2026-09-01T00:00:00Z.",
        ),
        (
            QuotaTokens,
            [100, 90, 0],
            reset,
            day,
            Cause::Over,
            "insufficient_quota",
            86_400,
            86_400_000,
            false,
            "id: org:acme/team:ml has used 90 of 100 tokens per day, which leaves too little for this request; it \
             resets at 2026-09-01T00:00:00Z.",
        ),
        (
            QuotaTokens,
            [100, 0, 0],
            reset,
            Wait::Never,
            Cause::Over,
            "insufficient_quota",
            NEVER_RETRY_AFTER_SECONDS,
            NEVER_RETRY_AFTER_SECONDS * 1000,
            false,
            "id: org:acme/team:ml has used 0 of 100 tokens per day; this request alone asks for more than that, so \
             make it smaller; it resets at 2026-09-01T00:00:00Z.",
        ),
        (
            BudgetUsd,
            [200_000_000, 100_000_000, 0],
            reset,
            Wait::Never,
            Cause::Unpriced,
            "insufficient_quota",
            NEVER_RETRY_AFTER_SECONDS,
            NEVER_RETRY_AFTER_SECONDS * 1000,
            false,
            "id: org:acme/team:ml has used 0.0001 of 0.0002 USD per day, and the model has no price, which this limit \
             does not admit; ask for a price for it or use another model; it resets at 2026-09-01T00:00:00Z.",
        ),
    ] {
        let [amount, observed, held] = figures.map(Units);
        let one = tripped(instance("id", kind, amount), observed, held, resets_at, wait, cause);
        let mut out = Vec::new();
        write_refusal(&mut out, &to(Dialect::OpenAi), &Refusal { tripped: vec![one] });
        let (head, body) = parts(&out);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["error"]["message"], message);
        assert_eq!(
            (&body["error"]["type"], &body["error"]["code"]),
            (&code.into(), &code.into()),
            "{message}"
        );
        assert_eq!(body["error"]["retryable"], retry, "{message}");
        for line in [
            format!("Retry-After: {after}"),
            format!("retry-after-ms: {millis}"),
            format!("x-should-retry: {retry}"),
        ] {
            assert!(head.contains(&line), "{line} in {head:?}");
        }
    }
}

#[test]
fn ids_cannot_leave_their_header_or_their_string() {
    let mut odd = instance("a\r\nX-Evil: 1\"\\", LimitType::Rpm, Units(1));
    odd.node = NodeId::new("org:\u{1}\"");
    let one = tripped(odd, Units(1), Units(0), None, Wait::For(Span(1)), Cause::Over);
    let mut out = Vec::new();
    write_refusal(&mut out, &to(Dialect::OpenAi), &Refusal { tripped: vec![one] });
    let (head, body) = parts(&out);
    assert!(head.iter().any(|line| line == "X-Tt-Refused-By: a%0D%0AX-Evil: 1\"\\"), "{head:?}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["error"]["refused_by"], "a\r\nX-Evil: 1\"\\");
    assert_eq!(body["error"]["node"], "org:\u{1}\"");
}

#[test]
fn failures_are_worded_in_the_clients_dialect() {
    let body_error = read_body(b"{}", crate::endpoint::Endpoint::ChatCompletions).unwrap_err();
    assert_eq!(body_error, BodyError::NoModel);
    // failure, status, code, OpenAI's type, Anthropic's type, param, part of the message
    for (failure, status, code, openai, anthropic, param, message) in [
        (
            Failure::Body(&body_error),
            400,
            "invalid_request_body",
            "invalid_request_error",
            "invalid_request_error",
            Some("model"),
            "no member \"model\"",
        ),
        (
            Failure::Head(HeadError { status: 431, reason: "too much" }),
            431,
            "request_headers_too_large",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "too much",
        ),
        (
            Failure::Head(HeadError { status: 505, reason: "x" }),
            505,
            "http_version_not_supported",
            "server_error",
            "api_error",
            None,
            "x",
        ),
        (
            Failure::InvalidKey,
            401,
            "invalid_api_key",
            "invalid_request_error",
            "authentication_error",
            None,
            "not valid",
        ),
        (
            Failure::NoCredential,
            401,
            "invalid_api_key",
            "invalid_request_error",
            "authentication_error",
            None,
            "Bearer",
        ),
        (
            Failure::ConflictingCredentials,
            400,
            "conflicting_credentials",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "give one",
        ),
        (
            Failure::ScopeDenied("model", "gpt-4o"),
            403,
            "scope_denied",
            "invalid_request_error",
            "permission_error",
            Some("model"),
            "gpt-4o",
        ),
        (
            Failure::ScopeDenied("provider", "west"),
            403,
            "scope_denied",
            "invalid_request_error",
            "permission_error",
            None,
            "west",
        ),
        (
            Failure::ModelNotFound("m\"2"),
            404,
            "model_not_found",
            "invalid_request_error",
            "not_found_error",
            Some("model"),
            "m\"2",
        ),
        (
            Failure::UnknownEndpoint("/v1/x"),
            404,
            "unknown_endpoint",
            "invalid_request_error",
            "not_found_error",
            None,
            "/v1/x",
        ),
        (
            Failure::Method("POST"),
            405,
            "method_not_allowed",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "POST",
        ),
        (
            Failure::BodyTooLarge(65_536),
            413,
            "request_too_large",
            "invalid_request_error",
            "request_too_large",
            None,
            "65536",
        ),
        (
            Failure::Slow,
            408,
            "request_timeout",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "time",
        ),
        (
            Failure::UnknownCoding,
            415,
            "unsupported_content_encoding",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "gzip",
        ),
        (
            Failure::BrokenCoding,
            400,
            "invalid_request_body",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "not whole",
        ),
        (
            Failure::Framing("odd chunk"),
            400,
            "malformed_request",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "odd chunk",
        ),
        (
            Failure::Head(HeadError { status: 417, reason: "x" }),
            417,
            "malformed_request",
            "invalid_request_error",
            "invalid_request_error",
            None,
            "x",
        ),
        (
            Failure::Head(HeadError { status: 501, reason: "x" }),
            501,
            "not_implemented",
            "server_error",
            "api_error",
            None,
            "x",
        ),
        (Failure::BrokenAnswer("cut"), 502, "bad_gateway", "server_error", "api_error", None, "was charged"),
        (Failure::BadGateway("refused"), 502, "bad_gateway", "server_error", "api_error", None, "refused"),
        (Failure::Unavailable("full"), 503, "unavailable", "server_error", "overloaded_error", None, "full"),
        (
            Failure::GatewayTimeout("slow"),
            504,
            "gateway_timeout",
            "server_error",
            "timeout_error",
            None,
            "slow",
        ),
    ] {
        for (dialect, kind) in [
            (Dialect::OpenAi, openai),
            (Dialect::Responses, openai),
            (Dialect::Ollama, openai),
            (Dialect::Anthropic, anthropic),
        ] {
            let mut out = Vec::new();
            write_failure(&mut out, &to(dialect), &failure);
            let (head, body) = parts(&out);
            assert!(head[0].starts_with(&format!("HTTP/1.1 {status} ")), "{}", head[0]);
            assert!(
                !head[0].ends_with(" Error"),
                "{} has a reason phrase of its own (RFC 9110 §15)",
                head[0]
            );
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let error = &body["error"];
            assert_eq!((&error["code"], &error["type"]), (&code.into(), &kind.into()), "{failure:?}");
            assert_eq!(error["param"], param.map_or(serde_json::Value::Null, Into::into), "{failure:?}");
            assert!(error["message"].as_str().unwrap().contains(message), "{failure:?}: {body}");
            assert_eq!(body.get("request_id").is_some(), dialect == Dialect::Anthropic);
        }
    }
}

#[test]
fn an_answer_is_framed_for_its_connection() {
    for (version, keep_alive, head_only, line) in [
        (Version::Http11, true, false, None),
        (Version::Http11, false, false, Some("Connection: close")),
        (Version::Http10, true, false, Some("Connection: keep-alive")),
        (Version::Http10, false, true, Some("Connection: close")),
    ] {
        let mut out = b"before".to_vec();
        let to = To { version, keep_alive, head_only, ..to(Dialect::OpenAi) };
        write_document(&mut out, &to, 200, "{\"status\":\"ok\"}");
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.strip_prefix("before").unwrap().split_once("\r\n\r\n").unwrap();
        assert_eq!(body, if head_only { "" } else { "{\"status\":\"ok\"}" });
        assert!(head.contains("Content-Length: 15"), "{head}");
        assert_eq!(head.lines().find(|line| line.starts_with("Connection")), line);
    }
}

#[test]
fn rate_headers_have_the_names_and_durations_of_the_dialect() {
    let left = |limit, remaining, reset| RateLeft { limit: Units(limit), remaining: Units(remaining), reset };
    let requests = Some(left(60, 59, Span::from_millis(360_000)));
    let tokens = Some(left(9000, 0, Span(11_000_001)));
    for (dialect, requests, tokens, wanted) in [
        (Dialect::OpenAi, None, None, ""),
        (
            Dialect::OpenAi,
            requests,
            tokens,
            "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\nx-ratelimit-reset-requests: 6m0s\r\n\
             x-ratelimit-limit-tokens: 9000\r\nx-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 12ms\r\n",
        ),
        (
            Dialect::Ollama,
            Some(left(1, 1, Span(0))),
            None,
            "x-ratelimit-limit-requests: 1\r\nx-ratelimit-remaining-requests: 1\r\nx-ratelimit-reset-requests: 0s\r\n",
        ),
        (
            Dialect::Anthropic,
            None,
            tokens,
            "anthropic-ratelimit-tokens-limit: 9000\r\nanthropic-ratelimit-tokens-remaining: 0\r\n\
             anthropic-ratelimit-tokens-reset: 2026-08-31T23:59:59Z\r\n",
        ),
    ] {
        let mut out = Vec::new();
        let role = write_rate_headers(&mut out, dialect, requests, tokens, at("2026-08-31T23:59:58.5Z"));
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        assert_eq!(role.is_some(), !wanted.is_empty());
    }
    let mut out = Vec::new();
    write_alert(&mut out, "soft");
    assert_eq!(out, b"X-Tt-Alert: soft\r\n");
}

fn key(scopes: Scopes) -> Key {
    let (kid, owner) = (Kid::parse("vk_FEKZdMs2UQRi").unwrap(), NodeId::new("org:acme/team:ml/user:dev1"));
    let chain = Chain::of_key(&owner, kid.as_str());
    Key { kid, owner, chain, scopes, secret_hash: [0; 32], expires_at: None }
}

#[test]
fn me_is_the_pages_json_with_held_added() {
    let reading = |observed, held, estimated| Reading {
        observed: Units(observed),
        held: Units(held),
        estimated,
        unpriced: false,
        uncertain: Units(held / 2),
        resets_at: None,
    };
    let budget = instance("org_monthly_budget", LimitType::BudgetUsd, usd("0.000001"));
    let mut slots = instance("user_concurrency", LimitType::Concurrency, Units(10));
    let mut suspended = (*slots.limit).clone();
    suspended.suspended = true;
    slots.limit = Arc::new(suspended);
    let rate = instance("team_rpm", LimitType::Rpm, Units(3));
    let mut out = Vec::new();
    let caps = [
        (&budget, reading(12_600_000, 5, true)),
        (&slots, reading(0, 0, false)),
        (&rate, reading(2, 0, false)),
    ];
    write_me(&mut out, &to(Dialect::OpenAi), &key(Scopes::default()), caps, at("2026-08-31T12:00:00Z"));
    let (head, body) = parts(&out);
    assert_eq!(head[0], "HTTP/1.1 200 OK");
    let posture = r#""posture":{"mode":"on","enforce":"hard","fail":"open"}"#;
    assert_eq!(
        body,
        format!(
            "{}{}{}{}",
            r#"{"kid":"vk_FEKZdMs2UQRi","node":"org:acme/team:ml/user:dev1","chain":["org:acme/team:ml/user:dev1/key:vk_FEKZdMs2UQRi","org:acme/team:ml/user:dev1","org:acme/team:ml","org:acme","__global"],"scopes":{"models":null,"providers":null,"endpoints":null,"allow_passthrough":false},"limits":["#,
            format_args!(
                r#"{{"limit_id":"org_monthly_budget","type":"budget_usd","class":"spend","unit":"usd","node":"org:acme/team:ml","period":"day","resets_at":"2026-09-01T00:00:00Z","suspended":false,{posture},"limit_usd":{{"usd":0.000001,"estimated":false,"unpriced":false}},"observed_usd":{{"usd":0.0000126,"estimated":true,"unpriced":false}},"remaining_usd":{{"usd":0,"estimated":true,"unpriced":false}},"held_usd":{{"usd":0.000000000005,"estimated":true,"unpriced":false}},"uncertain_usd":{{"usd":0.000000000002,"estimated":true,"unpriced":false}}}},"#
            ),
            format_args!(
                r#"{{"limit_id":"user_concurrency","type":"concurrency","class":"count","unit":"concurrent-requests","node":"org:acme/team:ml","period":"","suspended":true,{posture},"amount":10,"observed":0,"remaining":10,"held":0}},"#
            ),
            format_args!(
                r#"{{"limit_id":"team_rpm","type":"rpm","class":"count","unit":"requests","node":"org:acme/team:ml","period":"1m0s","suspended":false,{posture},"amount":3,"observed":2,"remaining":1,"held":0}}]}}"#
            ),
        )
    );
}

#[test]
fn me_shows_the_scopes_as_minted() {
    let globs = |patterns: &[&str]| Some(patterns.iter().map(|one| Glob::new(one).unwrap()).collect());
    let scopes = Scopes {
        models: globs(&["gpt-*", "m1"]),
        providers: globs(&["local"]),
        endpoints: globs(&[]),
        allow_passthrough: true,
    };
    let mut out = Vec::new();
    write_me(&mut out, &to(Dialect::OpenAi), &key(scopes), [], at("2026-08-31T12:00:00Z"));
    let (_, body) = parts(&out);
    let wanted = r#""scopes":{"models":["gpt-*","m1"],"providers":["local"],"endpoints":[],"allow_passthrough":true},"limits":[]}"#;
    assert!(body.ends_with(wanted), "{body}");
}

#[test]
fn models_are_the_routes_that_a_key_may_use() {
    let route = |model: &str, provider: &str, served: Option<&str>| Route {
        model: Glob::new(model).unwrap(),
        provider: ProviderId::new(provider),
        served_model: served.map(Into::into),
        output_hold: Tokens(256),
        learns: false,
    };
    let routes = Routes::new(vec![
        route("gpt-4o", "west", Some("tiny")),
        route("m1", "east", None),
        route("m1", "west", None),
        route("m*", "west", None),
        route("m2", "east", None),
        route("*", "east", None),
    ]);
    let globs = |patterns: &[&str]| Some(patterns.iter().map(|one| Glob::new(one).unwrap()).collect());
    let models = |models: &[&str]| Some(Scopes { models: globs(models), ..Scopes::default() });
    for (scopes, wanted) in [
        (None, &["gpt-4o", "m1", "m*", "m2", "*"][..]),
        (Some(Scopes::default()), &["gpt-4o", "m1", "m*", "m2", "*"]),
        (models(&["m?"]), &["m1", "m*", "m2"]),
        (models(&["gpt-*"]), &[]),
        (models(&["gpt-*", "tiny"]), &["gpt-4o"]),
        (models(&[]), &[]),
        (Some(Scopes { providers: globs(&["east"]), ..Scopes::default() }), &["m1", "*"]),
    ] {
        let mut out = Vec::new();
        write_models(&mut out, &to(Dialect::OpenAi), &routes, scopes.as_ref());
        let (_, body) = parts(&out);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let ids: Vec<_> =
            body["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!((ids.as_slice(), &body["object"]), (wanted, &"list".into()), "{scopes:?}");
    }
}
