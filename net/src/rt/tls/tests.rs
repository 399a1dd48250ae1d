//! A client's session and a server's joined by a pipe in memory that carries pieces of any size, and is cut anywhere.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::client::Resumption;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, SupportedProtocolVersion};

use super::*;

/// The largest piece that one read or write carries.
const PIECES: [usize; 8] = [1, 2, 3, 5, 7, 700, 4096, usize::MAX];

const BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

// ---- a pipe ----------------------------------------------------------------------------------------------

/// One direction.
#[derive(Default)]
struct Half {
    bytes: VecDeque<u8>,
    carried: usize,
    /// It carries so many bytes and loses what comes after them.
    cut: Option<usize>,
    lost: bool,
    /// It takes so many bytes; then writing fails, or waits for ever.
    takes: Option<(usize, Stop)>,
    /// How it ended, for whoever reads.
    end: Option<io::Result<()>>,
}

#[derive(Copy, Clone)]
enum Stop {
    Fails,
    Waits,
}

impl Half {
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.cut.is_some_and(|cut| self.carried >= cut) {
                self.lost = true;
                self.end = Some(Ok(()));
                return;
            }
            self.bytes.push_back(*byte);
            self.carried += 1;
        }
    }

    /// `None`: nothing has come.
    fn take(&mut self, most: usize) -> Option<io::Result<Vec<u8>>> {
        match &self.end {
            _ if !self.bytes.is_empty() => {
                let count = most.min(self.bytes.len());
                Some(Ok(self.bytes.drain(..count).collect()))
            }
            None => None,
            Some(Ok(())) => Some(Ok(Vec::new())),
            Some(Err(error)) => Some(Err(error.kind().into())),
        }
    }
}

/// One side's end of a pipe.
struct End {
    incoming: Rc<RefCell<Half>>,
    outgoing: Rc<RefCell<Half>>,
    most: usize,
}

fn pipe(most: usize) -> (End, End) {
    let halves: [Rc<RefCell<Half>>; 2] = Default::default();
    let [one, other] = halves;
    (
        End { incoming: one.clone(), outgoing: other.clone(), most },
        End { incoming: other, outgoing: one, most },
    )
}

impl Carrier for End {
    async fn read_some(&mut self, mut buffer: Vec<u8>) -> Returned {
        let most = self.most.min(buffer.capacity() - buffer.len());
        let taken = poll_fn(|_| match self.incoming.borrow_mut().take(most) {
            None => Poll::Pending,
            Some(taken) => Poll::Ready(taken),
        });
        let taken = taken.await.map(|bytes| {
            buffer.extend_from_slice(&bytes);
            bytes.len()
        });
        (taken, buffer)
    }

    async fn write_some(&mut self, buffer: Vec<u8>, from: usize) -> Returned {
        let most = self.most.min(buffer.len() - from);
        let wrote = poll_fn(|_| {
            let mut half = self.outgoing.borrow_mut();
            let count = match half.takes {
                None => most,
                Some((takes, stop)) => match (takes - half.carried, stop) {
                    (0, Stop::Fails) => return Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
                    (0, Stop::Waits) => return Poll::Pending,
                    (room, _) => most.min(room),
                },
            };
            half.put(&buffer[from..from + count]);
            Poll::Ready(Ok(count))
        });
        (wrote.await, buffer)
    }

    fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let taken = self.incoming.borrow_mut().take(self.most.min(room.len()));
        let bytes = taken.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        room[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// What a future comes to that waits for nobody.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

/// What two futures come to that wait for each other.
fn together<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if first.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(&mut context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(&mut context)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() {
            break;
        }
    }
    (first.expect("the first waits for ever"), second.expect("the second waits for ever"))
}

// ---- sessions --------------------------------------------------------------------------------------------

struct Configs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// One certificate, which is its own root. Its signatures are all of one length.
fn configs(version: &'static SupportedProtocolVersion) -> Configs {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let params = CertificateParams::new(vec!["backend".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots);
    let mut client = builder.with_no_client_auth();
    client.resumption = Resumption::disabled();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_protocol_versions(&[version]).with_no_client_auth();
    let server = builder.with_single_cert(vec![certificate], key).unwrap();
    Configs { client: Arc::new(client), server: Arc::new(server) }
}

/// One side: its session and its end of the pipe.
struct Side {
    session: Session,
    io: End,
}

impl Configs {
    /// Before they shake hands: the client, then the server.
    fn begin(&self, most: usize) -> [Side; 2] {
        let (near, far) = pipe(most);
        let name = ServerName::try_from("backend").unwrap();
        let client = Session::client(self.client.clone(), name).unwrap();
        let server = Session::server(self.server.clone()).unwrap();
        [Side { session: client, io: near }, Side { session: server, io: far }]
    }

    /// After it.
    fn joined(&self, most: usize) -> [Side; 2] {
        let [mut client, mut server] = self.begin(most);
        let (one, other) = together(client.shake(), server.shake());
        one.unwrap();
        other.unwrap();
        // What a session has left to say of its handshake goes with what is written first.
        now(client.session.flush(&mut client.io)).unwrap();
        now(server.session.flush(&mut server.io)).unwrap();
        [client, server]
    }
}

impl Side {
    async fn shake(&mut self) -> Result<(), NoTls> {
        self.session.handshake(&mut self.io).await
    }

    async fn read(&mut self, buffer: Vec<u8>) -> Returned {
        let returned = self.session.read(&mut self.io, buffer, 1).await;
        assert!(returned.0.is_err() || !self.session.has_waiting(), "what has come is given out");
        returned
    }

    /// Everything up to the end, and how it ended: rightly, or with what.
    async fn read_all(&mut self) -> (Vec<u8>, Result<(), ErrorKind>) {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            let result;
            (result, all) = self.read(all).await;
            match result {
                Ok(0) => return (all, Ok(())),
                Ok(count) => assert_eq!(all.len(), before + count),
                Err(error) => return (all, Err(error.kind())),
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.write_rest(&mut self.io, bytes.to_vec(), 0).await.0
    }

    fn end(&self, how: io::Result<()>) {
        self.io.outgoing.borrow_mut().end.get_or_insert(how);
    }
}

fn text(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

// ---- what one side does, and what the other makes of it ------------------------------------------------------

/// Something that the speaking side does.
#[derive(Copy, Clone)]
enum Does {
    /// Writes so many bytes.
    Says(usize),
    /// Writes them, and on the way one bit of the last record changes.
    Garbled(usize),
    /// Announces the end.
    Closes,
    /// Changes its keys.
    NewKeys,
    /// Sends the alert of one who was sent nonsense.
    Alerts,
    /// Sends bytes that are none of its session.
    Raw(&'static [u8]),
    /// The connection ends.
    Ends,
    /// The connection is reset.
    Resets,
}
use Does::*;

impl Side {
    fn does(&mut self, what: Does, said: &mut usize) {
        match what {
            Says(bytes) | Garbled(bytes) => {
                let all = text(*said + bytes);
                assert_eq!(now(self.write(&all[*said..])).unwrap(), bytes);
                *said += bytes;
                if matches!(what, Garbled(_)) {
                    *self.io.outgoing.borrow_mut().bytes.back_mut().unwrap() ^= 1;
                }
            }
            Closes => now(self.session.close(&mut self.io)),
            NewKeys => {
                self.session.connection.refresh_traffic_keys().unwrap();
                now(self.session.flush(&mut self.io)).unwrap();
            }
            Alerts => {
                self.io.incoming.borrow_mut().put(b"nonsense, and no record at all");
                assert_eq!(now(self.read_all()), (Vec::new(), Err(ErrorKind::InvalidData)));
                now(self.session.close(&mut self.io));
            }
            Raw(bytes) => self.io.outgoing.borrow_mut().put(bytes),
            Ends => self.end(Ok(())),
            Resets => self.end(Err(ErrorKind::ConnectionReset.into())),
        }
    }
}

/// `deeds` of either side, in pieces of any size, looked at so often before it is read, are `bytes` of plaintext and this end.
fn check(
    name: &str,
    versions: &[&'static SupportedProtocolVersion],
    deeds: &[Does],
    bytes: usize,
    end: Result<(), ErrorKind>,
) {
    for version in versions {
        let configs = configs(version);
        for (speaker, most, looks) in [0, 1]
            .into_iter()
            .flat_map(|side| PIECES.map(|most| [0, 1, 3].map(|looks| (side, most, looks))))
            .flatten()
        {
            let mut sides = configs.joined(most);
            let mut said = 0;
            for deed in deeds {
                sides[speaker].does(*deed, &mut said);
            }
            let listener = &mut sides[1 - speaker];
            for _ in 0..looks {
                listener.session.look(&mut listener.io);
            }
            let (got, ended) = now(listener.read_all());
            let place = format!("{name}: {version:?}, side {speaker}, pieces of {most}, {looks} looks");
            assert_eq!((got.len(), ended), (bytes, end), "{place}");
            assert!(got == text(bytes), "{place}: other bytes");
            assert!(listener.session.is_over() && !listener.session.is_whole(), "{place}");
            // The end stays what it was.
            let (again, ended) = now(listener.read_all());
            assert_eq!((again.len(), ended), (0, end), "{place}: again");
        }
    }
}

#[test]
fn what_one_side_does_reaches_the_other_in_pieces_of_any_size() {
    let (whole, cut) = (Ok(()), Err(ErrorKind::UnexpectedEof));
    let (reset, wrong) = (Err(ErrorKind::ConnectionReset), Err(ErrorKind::InvalidData));
    check("a text", &BOTH, &[Says(5), Closes, Ends], 5, whole);
    check("three texts", &BOTH, &[Says(1), Says(300), Says(70), Closes, Ends], 371, whole);
    check("a largest record", &BOTH, &[Says(1 << 14), Closes, Ends], 1 << 14, whole);
    check("a byte more", &BOTH, &[Says((1 << 14) + 1), Closes, Ends], (1 << 14) + 1, whole);
    check("many records", &BOTH, &[Says(150_000), Closes, Ends], 150_000, whole);
    check("nothing", &BOTH, &[Closes, Ends], 0, whole);
    check("an end announced, the connection stays", &BOTH, &[Says(5), Closes], 5, whole);
    check("an end announced, then a reset", &BOTH, &[Says(5), Closes, Resets], 5, whole);
    check("noise behind the end", &BOTH, &[Says(5), Closes, Raw(b"noise"), Ends], 5, whole);
    check("an end that nobody announced", &BOTH, &[Says(5), Ends], 5, cut);
    check("no word at all", &BOTH, &[Ends], 0, cut);
    check("a reset", &BOTH, &[Says(5), Resets], 5, reset);
    check("a record that ends in its middle", &BOTH, &[Says(5), Raw(&[23, 3, 3, 0, 40, 1, 2]), Ends], 5, cut);
    check("a record's head that ends", &BOTH, &[Says(5), Raw(&[23, 3]), Ends], 5, cut);
    check("new keys", &[&TLS13], &[Says(5), NewKeys, Says(6), NewKeys, NewKeys, Says(7), Closes], 18, whole);
    check("new keys and no end", &[&TLS13], &[NewKeys, Ends], 0, cut);
    check("a bit that changed", &BOTH, &[Says(5), Garbled(100), Says(5), Closes], 5, wrong);
    check(
        "a bit that changed in the last of many",
        &BOTH,
        &[Says(1 << 15), Garbled(9), Closes],
        1 << 15,
        wrong,
    );
    check("an alert", &BOTH, &[Says(5), Alerts, Ends], 5, wrong);
    for (name, raw) in [
        ("plain text", &b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..]),
        ("zeros", &[0; 64]),
        ("a record longer than any", &[23, 3, 3, 0x48, 0x01, 0, 0, 0, 0, 0]),
        ("the longest length that there is", &[23, 3, 3, 0xff, 0xff, 0, 0, 0, 0, 0]),
        ("a record that is not encrypted", &[23, 3, 3, 0, 3, b'a', b'b', b'c']),
        ("an empty record that is not encrypted", &[23, 3, 3, 0, 0]),
        ("an end that is not encrypted", &[21, 3, 3, 0, 2, 1, 0]),
        ("a fatal alert that is not encrypted", &[21, 3, 3, 0, 2, 2, 40]),
        ("a wish for a new handshake", &[22, 3, 3, 0, 4, 0, 0, 0, 0]),
        ("a change of ciphers", &[20, 3, 3, 0, 1, 1]),
        (
            "a version that is none",
            &[23, 9, 9, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    ] {
        check(name, &BOTH, &[Says(5), Raw(raw), Says(5), Closes, Ends], 5, wrong);
    }
}

/// A request and an answer that closes, over a pipe that loses what comes after so many bytes of one direction: what was
/// lost is never taken for the end, and nobody waits for ever.
#[test]
fn a_connection_cut_at_any_byte_is_never_taken_for_one_that_ended() {
    let (request, answer) = (text(90), text(40));
    for version in BOTH {
        let configs = configs(version);
        for direction in 0..2 {
            let mut cut = 0;
            loop {
                let [mut client, mut server] = configs.begin(usize::MAX);
                let halves = [client.io.outgoing.clone(), server.io.outgoing.clone()];
                halves[direction].borrow_mut().cut = Some(cut);
                let asks = async {
                    let shaken = client.shake().await.is_ok();
                    let got = match shaken && client.write(&request).await.is_ok() {
                        true => client.read_all().await,
                        false => (Vec::new(), Err(ErrorKind::NotConnected)),
                    };
                    client.end(Ok(()));
                    got
                };
                let answers = async {
                    let mut got = Vec::new();
                    if server.shake().await.is_ok() {
                        while got.len() < request.len() {
                            let result;
                            (result, got) = server.read(got).await;
                            if !matches!(result, Ok(count) if count > 0) {
                                break;
                            }
                        }
                    }
                    if got.len() == request.len() && server.write(&answer).await.is_ok() {
                        server.session.close(&mut server.io).await;
                    }
                    server.end(Ok(()));
                    got
                };
                let ((got, ended), asked) = together(asks, answers);
                let lost = halves[direction].borrow().lost;
                let place = format!("{version:?}, direction {direction}, cut after {cut}");
                assert!(answer.starts_with(&got) && request.starts_with(&asked), "{place}");
                assert_eq!(ended.is_ok(), !lost, "{place}: {ended:?}");
                if !lost {
                    assert_eq!((&got, &asked), (&answer, &request), "{place}");
                    assert!(cut > 200, "a handshake takes some bytes");
                    break;
                }
                cut += 1;
            }
        }
    }
}

#[test]
fn a_handshake_with_somebody_else_says_what_it_met() {
    let check = |name: &str, version, raw: &[u8], server: &str, client: &str| {
        for most in PIECES {
            for (side, wanted) in [(0, client), (1, server)] {
                let mut sides = configs(version).begin(most);
                let other = &sides[1 - side].io;
                other.outgoing.borrow_mut().put(raw);
                other.outgoing.borrow_mut().end = Some(Ok(()));
                let met = match now(sides[side].shake()) {
                    Ok(()) => "nothing".to_owned(),
                    Err(NoTls::Plain(bytes)) => {
                        assert!(raw.starts_with(&bytes) && !bytes.is_empty());
                        "plain text".to_owned()
                    }
                    Err(NoTls::Broken(kind)) => format!("{kind:?}"),
                    Err(NoTls::Refused(_)) => "a refusal".to_owned(),
                };
                assert_eq!(met, wanted, "{name}, side {side}, pieces of {most}");
            }
        }
    };
    for version in BOTH {
        check("nobody", version, b"", "UnexpectedEof", "UnexpectedEof");
        check("a plain request", version, b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", "plain text", "a refusal");
        check("half a record", version, &[22, 3, 1, 0, 200, 1], "UnexpectedEof", "UnexpectedEof");
        check("a record that is no hello", version, &[22, 3, 1, 0, 4, 9, 0, 0, 0], "a refusal", "a refusal");
        check(
            "a record longer than any",
            version,
            &[22, 3, 1, 0xff, 0xff, 0, 0, 0],
            "a refusal",
            "a refusal",
        );
        check("an alert", version, &[21, 3, 3, 0, 2, 2, 40], "plain text", "a refusal");
    }
}

#[test]
fn a_look_takes_in_what_is_the_sessions_own_and_leaves_the_rest() {
    let check =
        |name: &str, versions: &[&'static SupportedProtocolVersion], deeds: &[Does], over: bool, waiting| {
            for version in versions {
                for speaker in [0, 1] {
                    let mut sides = configs(version).joined(usize::MAX);
                    let mut said = 0;
                    for deed in deeds {
                        sides[speaker].does(*deed, &mut said);
                    }
                    let Side { session, io } = &mut sides[1 - speaker];
                    session.look(io);
                    let seen = (session.is_over(), session.has_waiting(), session.is_whole());
                    assert_eq!(seen, (over, waiting, !over), "{name}: {version:?}, side {speaker}");
                }
            }
        };
    check("silence", &BOTH, &[], false, false);
    check("new keys", &[&TLS13], &[NewKeys, NewKeys], false, false);
    check("a text", &BOTH, &[Says(5)], false, true);
    check("half a record", &BOTH, &[Raw(&[23, 3, 3, 0, 40, 1, 2])], false, false);
    check("a text and its end", &BOTH, &[Says(5), Closes], true, true);
    check("an end", &BOTH, &[Closes], true, false);
    check("an end that nobody announced", &BOTH, &[Ends], true, false);
    check("a reset", &BOTH, &[Resets], true, false);
    check("noise", &BOTH, &[Raw(b"no record")], true, false);
    check("more than one look takes in, and an end", &BOTH, &[Says(400_000), Closes], false, true);
}

#[test]
fn a_read_that_was_dropped_leaves_a_session_that_nobody_uses() {
    for version in BOTH {
        let [mut client, mut server] = configs(version).joined(7);
        {
            let mut read = pin!(client.read(Vec::new()));
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert!(client.session.is_over() && !client.session.is_whole());
        now(server.write(b"too late")).unwrap();
        assert_eq!(now(client.read_all()), (Vec::new(), Err(ErrorKind::ConnectionAborted)));
        assert_eq!(now(client.write(b"more")).map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    }
}

#[test]
fn a_write_that_stopped_half_way_is_the_last_one_and_reading_goes_on() {
    for version in BOTH {
        let configs = configs(version);
        for (takes, stop) in
            [0, 1, 4, 5, 6, 40].into_iter().flat_map(|takes| [(takes, Stop::Fails), (takes, Stop::Waits)])
        {
            let once = |once: bool| {
                let [mut client, mut server] = configs.joined(7);
                let carried = client.io.outgoing.borrow().carried;
                client.io.outgoing.borrow_mut().takes = Some((carried + takes, stop));
                let outcome = {
                    let Side { session, io } = &mut client;
                    let write = async {
                        match once {
                            true => session.write_once(io, text(100)).await.0,
                            false => session.write_rest(io, text(100), 0).await.0,
                        }
                    };
                    let polled = pin!(write).poll(&mut Context::from_waker(Waker::noop()));
                    match polled {
                        Poll::Pending => None,
                        Poll::Ready(result) => Some(result.map_err(|error| error.kind())),
                    }
                };
                let wanted = match (stop, once, takes) {
                    (Stop::Waits, _, _) => None,
                    // The kernel took some of it, and the rest cannot follow.
                    (Stop::Fails, true, 1..) => Some(Ok(0)),
                    (Stop::Fails, _, _) => Some(Err(ErrorKind::BrokenPipe)),
                };
                assert_eq!(outcome, wanted, "{version:?}, {takes} bytes taken, once: {once}");
                client.io.outgoing.borrow_mut().takes = None;
                let later = now(client.write(b"more")).map_err(|error| error.kind());
                assert_eq!(later, Err(ErrorKind::BrokenPipe));
                assert!(!client.session.is_whole() && !client.session.is_over());
                now(server.write(b"an answer")).unwrap();
                now(server.session.close(&mut server.io));
                assert_eq!(now(client.read_all()), (b"an answer".to_vec(), Ok(())));
                client.end(Ok(()));
                assert_eq!(now(server.read_all()), (Vec::new(), Err(ErrorKind::UnexpectedEof)));
            };
            once(true);
            once(false);
        }
    }
}
