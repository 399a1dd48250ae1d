//! Rust source without its comments and literals, so that a word is found only where it is code.

/// `source` with every comment, string and character literal blanked; the lines stay as they are.
pub fn code_of(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let skipped = match rest {
            [b'/', b'/', ..] => position(rest, b"\n").unwrap_or(rest.len()),
            [b'/', b'*', ..] => block_comment(rest),
            [b'"', ..] => quoted(rest),
            [b'r', b'"' | b'#', ..] if !in_word(bytes, at) => raw_string(rest),
            [b'b', b'r', b'"' | b'#', ..] if !in_word(bytes, at) => 1 + raw_string(&rest[1..]),
            [b'\'', ..] => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            code.push(char::from(rest[0]));
            at += 1;
            continue;
        }
        code.extend(rest[..skipped].iter().filter(|byte| **byte == b'\n').map(|_| '\n'));
        code.push(' ');
        at += skipped;
    }
    code
}

/// Whether `word` stands in `line` as a whole word.
pub fn has_word(line: &str, word: &str) -> bool {
    let part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| line.as_bytes().get(at));
        !part(before) && !part(line.as_bytes().get(at + word.len()))
    })
}

fn position(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

fn in_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of `r"..."` or `r#"..."#`; 0 when it is a raw identifier.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close: Vec<u8> = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let begin = hashes + 2;
    position(&rest[begin..], &close).map_or(rest.len(), |at| begin + at + close.len())
}

/// The length of a character literal; 0 when the quote begins a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return position(&rest[2..], b"'").map_or(0, |at| if at == 0 { 4 } else { at + 3 });
    }
    let width = match rest.get(1) {
        Some(byte) if byte.is_ascii() => 1,
        Some(byte) => byte.leading_ones() as usize,
        None => return 0,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

#[test]
fn literals_and_comments_are_no_code() {
    for (source, wanted) in [
        ("a // unsafe\nb", "a  \nb"),
        ("/* x /* y */ z */ c", "  c"),
        ("f(\"a \\\" b\", 'x', '\\'', '\\n')", "f( ,  ,  ,  )"),
        ("fn f<'a>(r: &'a str)", "fn f<'a>(r: &'a str)"),
        ("r#\"unsafe \" \"# + br\"x\" + r\"y\"", "  +   +  "),
        ("let r#type = \"é\"; 'é'", "let r#type =  ;  "),
        ("\"one\ntwo\"", "\n "),
    ] {
        assert_eq!(code_of(source), wanted, "{source:?}");
    }
    assert!(has_word("an unsafe fn", "unsafe"));
    assert!(!has_word("unsafe_code", "unsafe"));
}
