//! The test kit against itself, without a gateway: a client that missed a cut would prove nothing.

use super::support::backend::{Backend, STREAM_HEAD, Script, Then, answers, delta, exactly};
use super::support::client::{Connection, request};
use super::support::until;

/// What the client must make of a backend's answer.
fn check(name: &str, script: Script, status: u16, complete: bool) {
    let backend = Backend::start(script);
    let mut client = Connection::open(backend.port);
    let answer = client.ask(&request("POST", "/v1/chat/completions", &[], b"{}"));
    assert_eq!((answer.status, answer.complete), (status, complete), "{name}: {answer:?}");
    assert_eq!(backend.count(), 1, "{name}");
    assert_eq!(backend.requests()[0].body, b"{}", "{name}");
    drop(client);
    until("the connection is gone", || (backend.connections() == 0).then_some(()));
}

#[test]
fn the_client_sees_how_an_answer_ends() {
    let event = delta("hello");
    let begun = format!("{STREAM_HEAD}{:x}\r\n{event}\r\n", event.len());
    let whole = format!("{begun}0\r\n\r\n");
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n";
    check("a JSON answer", answers(1, 1), 200, true);
    check("a whole stream", exactly(whole, Then::Keep), 200, true);
    check("a stream that is closed", exactly(begun.clone(), Then::Close), 200, false);
    check("a stream that is reset", exactly(begun, Then::Reset), 200, false);
    check("a body cut short", exactly(short, Then::Close), 200, false);
    check("an interim answer", exactly(early, Then::Keep), 202, true);
}

#[test]
fn the_client_sees_that_it_was_hung_up_on() {
    let backend = Backend::start(exactly("", Then::Close));
    let mut client = Connection::open(backend.port);
    client.send(&request("GET", "/", &[], b""));
    assert!(client.is_closed_by_peer());
}
