//! Forms as clients send them, and as they must not be.

use super::*;

const BOUNDARY: &str = "-----f0rm";

fn part(disposition: &str, content: &str) -> String {
    format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
}

fn field(name: &str, content: &str) -> String {
    part(&format!("name=\"{name}\""), content)
}

fn form(parts: &[String]) -> Vec<u8> {
    format!("{}--{BOUNDARY}--\r\n", parts.concat()).into_bytes()
}

fn file(content: &str) -> String {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\n"
    );
    format!("{head}Content-Type: audio/wav\r\n\r\n{content}\r\n")
}

#[test]
fn the_fields_of_a_form_are_read() {
    let whole = form(&[
        file("RIFF\r\n--\r\n-----f0r\r\nname=\"model\"\r\n\r\nother"),
        field("prompt", "zwölf"),
        field("model", "whisper-1"),
        field("stream", "true"),
        field("n", "3"),
        field("response_format", "json"),
        field("image[]", ""),
    ]);
    let facts = read(&whole, BOUNDARY, Endpoint::ImagesEdits).expect("a form");
    assert_eq!(facts.model(&whole), "whisper-1");
    assert_eq!((facts.stream, facts.n, facts.prompt_bytes), (true, 3, 6));
    assert_eq!(&whole[facts.model_span.clone()], b"whisper-1");
    let plain = form(&[field("model", "m"), field("prompt", "")]);
    let facts = read(&plain, BOUNDARY, Endpoint::AudioTranscriptions).expect("a form");
    assert_eq!((facts.model(&plain), facts.stream, facts.n, facts.prompt_bytes), ("m", false, 1, 0));
}

#[test]
fn the_model_is_exchanged_and_every_other_byte_stays() {
    let body = form(&[file("abc"), field("model", "alias"), field("prompt", "alias")]);
    let facts = read(&body, BOUNDARY, Endpoint::AudioTranscriptions).expect("a form");
    let sent = crate::json::rewrite(&body, &facts, Some("served-1"), false).expect("another body");
    assert_eq!(sent, form(&[file("abc"), field("model", "served-1"), field("prompt", "alias")]));
    assert_eq!(crate::json::rewrite(&body, &facts, Some("alias"), false), None);
}

#[test]
fn a_form_that_could_be_read_in_two_ways_is_refused() {
    let model = || field("model", "m");
    let check = |name: &str, body: Vec<u8>| {
        let outcome = read(&body, BOUNDARY, Endpoint::AudioTranscriptions);
        assert!(outcome.is_err(), "{name}: {outcome:?}");
    };
    check("nothing", Vec::new());
    check("no model", form(&[field("prompt", "a")]));
    check("two models", form(&[model(), model()]));
    check("a model in another case", form(&[field("Model", "m")]));
    check("a model that is a file", form(&[part("name=\"model\"; filename=\"m\"", "m")]));
    check(
        "a model that is a file in another spelling",
        form(&[part("name=\"model\"; filename*=utf-8''m", "m")]),
    );
    check("an empty model", form(&[field("model", "")]));
    check("a model of two lines", form(&[field("model", "m\r\nx")]));
    check("two names", form(&[part("name=\"model\"; name=\"prompt\"", "m")]));
    check("an escaped name", form(&[model(), part("name=\"mo\\\"del\"", "m")]));
    check("no name", form(&[model(), part("x=\"y\"", "m")]));
    check("a name without its end", form(&[model(), part("name=\"model", "m")]));
    check("a stream in other words", form(&[model(), field("stream", "1")]));
    check("n of zero", form(&[model(), field("n", "0")]));
    check("n with a sign", form(&[model(), field("n", "+1")]));
    check("something in front", [b"preamble\r\n".to_vec(), form(&[model()])].concat());
    check("something behind", [form(&[model()]), b"epilogue".to_vec()].concat());
    check("no last boundary", form(&[model()])[..model().len()].to_vec());
    check("a last boundary in half", form(&[model()])[..model().len() + 4].to_vec());
    check("a line like the boundary", form(&[model(), field("file", "a\r\n-------f0rmX")]));
    let headed = |line: &str| {
        format!("--{BOUNDARY}\r\n{line}Content-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n")
    };
    assert!(read(&form(&[headed("X: y\r\n")]), BOUNDARY, Endpoint::AudioTranscriptions).is_ok());
    check("a line like the boundary in a head", form(&[headed(&format!("--{BOUNDARY}X: y\r\n"))]));
    check("a boundary in a head", form(&[headed(&format!("--{BOUNDARY}\r\n"))]));
    check("a blank behind a boundary", form(&[model().replacen("f0rm\r\n", "f0rm \r\n", 1)]));
    check(
        "line ends of LF",
        String::from_utf8(form(&[model()])).expect("text").replace("\r\n", "\n").into_bytes(),
    );
    let coded = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"model\"\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ==\r\n"
    );
    check("a model in base64", form(&[coded]));
    let folded = format!("--{BOUNDARY}\r\nContent-Disposition: form-data;\r\n name=\"model\"\r\n\r\nm\r\n");
    check("a folded head", form(&[folded]));
    check("a head without an end", form(&[model(), format!("--{BOUNDARY}\r\nX: {}", "a".repeat(10_000))]));
    check("parts without an end", form(&vec![field("x", "y"); 200]));
    check(
        "another boundary",
        form(&[model()]).iter().map(|byte| if *byte == b'0' { b'o' } else { *byte }).collect(),
    );
}

/// Whatever is cut off or changed, nothing panics, and a model that is found is one that is there.
#[test]
fn damage_is_refused_or_harmless() {
    let whole = form(&[file("abc"), model_part(), field("stream", "false")]);
    for at in 0..whole.len() {
        assert!(
            read(&whole[..at], BOUNDARY, Endpoint::ImagesEdits).is_err() || at >= whole.len() - 2,
            "cut at {at}"
        );
        for byte in [0, b'\r', b'\n', b'-', b'"', b';', 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            if let Ok(facts) = read(&damaged, BOUNDARY, Endpoint::ImagesEdits) {
                assert!(!facts.model(&damaged).is_empty(), "{byte} at {at}");
            }
        }
    }
}

fn model_part() -> String {
    field("model", "whisper-1")
}

#[test]
fn the_boundary_is_read_from_the_content_type() {
    let check = |content_type: &str, wanted: Option<Option<&str>>| {
        let found = boundary(content_type.as_bytes()).map(Result::ok);
        assert_eq!(found, wanted, "{content_type}");
    };
    check("multipart/form-data; boundary=abc", Some(Some("abc")));
    check("Multipart/Form-Data;charset=utf-8; Boundary=\"a:b\"", Some(Some("a:b")));
    check("application/json", None);
    check("multipart/mixed; boundary=abc", None);
    check("multipart/form-data", Some(None));
    check("multipart/form-data; boundary=", Some(None));
    check("multipart/form-data; boundary=a; boundary=b", Some(None));
    check("multipart/form-data; boundary=a\"b", Some(None));
    check(&format!("multipart/form-data; boundary={}", "a".repeat(71)), Some(None));
}
