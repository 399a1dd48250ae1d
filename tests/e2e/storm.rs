//! A storm of 10^5 requests from 64 connections on two cores, with ends of every kind: then every count is exact.
//!
//! Each request is drawn from the seed: what its backend will do (the request says so in its prompt), and where its
//! client leaves. The backend notes who arrived. Once all is at rest each request's cost follows from SPEC §4.7: for
//! most it is one figure, and for clients that left after they had sent everything it lies between two. The sums of
//! each user must be what the gateway counted, in its caps, in its usage, and in its metrics. Half of the users only
//! do what has one cost, so theirs are exact.
//!
//! All the while the gateway is told to reload, five times a second. Four rounds, or as many as `TT_ROUNDS` says, then a
//! restart: what is of the calendar is what it was, the rest begins anew. A long storm restarts after every fiftieth
//! round, every other time by `kill -9`. Descriptors and memory are compared half way through each life and at its end;
//! its first round warms up.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::aborts::Random;
use super::support::backend::{Backend, Exchange, STREAM_HEAD, Script, Then, chat_answer, delta};
use super::support::client::{Connection, find};
use super::support::gateway::{Gateway, Key, chat_request, config, user_limit};
use super::support::rig::{held, observed};
use super::support::{until, until_within};

/// Connections at the same time.
const CLIENTS: u64 = 64;
/// Unless `TT_ROUNDS` says otherwise.
const ROUNDS: u64 = 4;
/// Rounds from one restart to the next.
const LIFE: u64 = 50;
/// After this long at rest every counter is written to the figure, however slow the machine: `kill -9` forgets nothing.
const WRITTEN: Duration = Duration::from_secs(3);
/// Requests of one client in one round: 100,352 in four.
const REQUESTS: u64 = 392;
/// Users of two teams; eight clients each. Those with an even number do only what has one cost.
const USERS: u64 = 8;
/// Tokens of each prompt: 23 bytes, four a token.
const PROMPT: u64 = 6;
/// Output tokens that each request allows itself.
const OUTPUT: u64 = 8;
/// Text of each event of a stream.
const WORD: &str = "word ";
/// What some of the exact users may use in all: requests an hour, requests, tokens, and thousandths of a USD.
const RATE: u64 = 9_000;
const QUOTA: u64 = 8_000;
const TOKENS: u64 = 25_000;
const MILLIS: u64 = 25_000;
/// Descriptors that may differ between two times of rest: idle connections to the backend, of which as many are kept
/// as were needed at once.
const DESCRIPTORS: usize = CLIENTS as usize;
/// KiB of memory that may differ: 50,000 requests that each left 64 bytes behind would be 3,125. What differs without a
/// leak is the database's cache of pages and what the allocator keeps for the next peak.
const MEMORY: u64 = 3_000;

/// What the backend does with a request.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Mood {
    Answers,
    Streams,
    /// Status 500 without usage.
    Fails,
    ClosesAtOnce,
    ResetsAtOnce,
    ClosesInBody,
    ClosesInStream,
    /// What had been sent may be lost with it.
    ResetsInStream,
}
use Mood::*;

/// Where the client leaves.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Leaves {
    Never,
    InHead,
    InBody,
    /// When everything was sent.
    Sent,
    /// After the head of the answer.
    Answered,
    /// After the first event of a stream, or the head of another answer.
    InStream,
}

/// One request of the storm; all that happens to it on purpose.
#[derive(Copy, Clone, Debug)]
struct Plan {
    number: u64,
    mood: Mood,
    /// Events of a stream.
    events: u64,
    leaves: Leaves,
    /// By a reset rather than a close.
    resets: bool,
}

/// What came of it, as the client saw.
#[derive(Debug)]
enum Seen {
    Left,
    /// An answer's head came, with this status, and then the client left.
    Begun(u16),
    Answer {
        status: u16,
        complete: bool,
        refused_by: String,
    },
    Nothing(String),
}

impl Plan {
    fn draw(seed: u64, number: u64, exact: bool) -> Plan {
        let mut random = Random((seed ^ (number + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93)) | 1);
        random.below(2);
        let mood = match random.below(if exact { 34 } else { 36 }) {
            0..16 => Answers,
            16..26 => Streams,
            26..28 => Fails,
            28 => ClosesAtOnce,
            29 => ResetsAtOnce,
            30..32 => ClosesInBody,
            32..34 => ClosesInStream,
            _ => ResetsInStream,
        };
        let leaves = match random.below(if exact { 12 } else { 24 }) {
            0 => Leaves::InHead,
            1 => Leaves::InBody,
            12..15 => Leaves::Sent,
            15..18 => Leaves::Answered,
            18..22 => Leaves::InStream,
            _ => Leaves::Never,
        };
        // A close leaves its port to rest for a minute, so most of them reset.
        Plan { number, mood, events: random.below(7), leaves, resets: random.below(4) > 0 }
    }

    fn streams(&self) -> bool {
        matches!(self.mood, Streams | ClosesInStream | ResetsInStream)
    }

    fn body(&self) -> String {
        let Plan { number, events, .. } = self;
        let (mood, stream) = (self.mood as u8, self.streams());
        format!(
            "{{\"model\":\"m1\",\"max_tokens\":{OUTPUT},\"stream\":{stream},\"messages\":[{{\"role\":\"user\",\
             \"content\":\"storm {number:08} mood {mood} {events}\"}}]}}"
        )
    }

    /// Input and output tokens that the backend reports.
    fn usage(&self) -> (u64, u64) {
        (3 + self.number % 5, self.number % OUTPUT)
    }

    /// Plays the client.
    fn run(&self, gateway: &Gateway, key: &Key, kept: &mut Option<Connection>) -> Seen {
        let bytes = chat_request(key, &self.body());
        let mut connection = kept.take().unwrap_or_else(|| gateway.connect());
        let head = find(&bytes, b"\r\n\r\n").expect("a head") + 4;
        let part = |from: usize, to: usize| from + self.number as usize * 7 % (to - from);
        let sent = match self.leaves {
            Leaves::InHead => part(0, head),
            Leaves::InBody => part(head, bytes.len()),
            _ => bytes.len(),
        };
        connection.send(&bytes[..sent]);
        let seen = match self.leaves {
            Leaves::Never => match connection.try_read() {
                Ok(answer) => {
                    let refused_by = answer.error_text("refused_by");
                    if answer.complete && answer.header("connection").is_none_or(|value| value != "close") {
                        *kept = Some(connection);
                        return Seen::Answer { status: answer.status, complete: true, refused_by };
                    }
                    Seen::Answer { status: answer.status, complete: answer.complete, refused_by }
                }
                Err(why) => Seen::Nothing(why),
            },
            Leaves::Answered | Leaves::InStream => match connection.read_head() {
                Ok(head) => {
                    if self.leaves == Leaves::InStream && head.status == 200 && self.streams() {
                        // There may be none.
                        let _ = connection.read_until(b"data: ");
                    }
                    Seen::Begun(head.status)
                }
                Err(why) => Seen::Nothing(why),
            },
            _ => {
                std::thread::sleep(Duration::from_micros(self.number % 8 * 250));
                Seen::Left
            }
        };
        if self.resets {
            connection.reset();
        }
        seen
    }

    /// What it must have cost, by what the client saw and whether it arrived.
    fn cost(&self, seen: &Seen, arrived: bool) -> Cost {
        let about = || format!("{self:?}: {seen:?}, arrived: {arrived}");
        let (input, output) = self.usage();
        let text = self.events * WORD.len() as u64;
        // By the way that the exchange takes when nobody leaves.
        let whole = match self.mood {
            Answers | Streams => Cost::of(1, input + output),
            Fails => Cost::of(1, 0),
            ClosesAtOnce | ResetsAtOnce => Cost::of(0, 0),
            ClosesInBody => Cost::of(1, PROMPT + 3),
            ClosesInStream => Cost::of(1, PROMPT + text.div_ceil(4)),
            ResetsInStream => Cost { requests: [0, 1], tokens: [0, PROMPT + text.div_ceil(4)] },
        };
        if let Seen::Answer { status, complete, refused_by } = seen {
            let expected = match self.mood {
                _ if !arrived => *status == 429 && !refused_by.is_empty(),
                Answers | Streams => *status == 200 && *complete,
                Fails => *status == 500 && *complete,
                ClosesAtOnce | ResetsAtOnce => *status == 502 && *complete,
                _ => *status == 502 || (*status == 200 && !complete),
            };
            assert!(expected, "{}", about());
        }
        if let (Seen::Nothing(why), Leaves::Never) = (seen, self.leaves) {
            let broken = !arrived || matches!(self.mood, ClosesInBody | ClosesInStream | ResetsInStream);
            assert!(broken, "{why}: {}", about());
        }
        match (self.leaves, arrived) {
            (Leaves::InHead | Leaves::InBody, true) => panic!("half a request arrived: {}", about()),
            (Leaves::InHead | Leaves::InBody | Leaves::Never, false) => Cost::of(0, 0),
            (Leaves::Never, true) => whole,
            // Refused, or on its way when the client left.
            (_, false) => match seen {
                Seen::Begun(_) => Cost::of(0, 0),
                _ => Cost { requests: [0, 1], tokens: [0, PROMPT] },
            },
            // Gone at any stage: before a first byte, with what was relayed, or after a report.
            (_, true) => {
                let relayed = match self.mood {
                    Answers => chat_answer(input, output).len() as u64,
                    _ => text,
                };
                let relayed = PROMPT + relayed.div_ceil(4);
                let [least, most] = whole.tokens;
                let delivered = whole.requests[0].max(u64::from(matches!(seen, Seen::Begun(200))));
                Cost { requests: [delivered, 1], tokens: [least.min(PROMPT * delivered), most.max(relayed)] }
            }
        }
    }
}

/// What one or many requests cost: from, to.
#[derive(Copy, Clone, Default, Debug)]
struct Cost {
    requests: [u64; 2],
    tokens: [u64; 2],
}

impl Cost {
    fn of(requests: u64, tokens: u64) -> Cost {
        Cost { requests: [requests; 2], tokens: [tokens; 2] }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        for (sum, part) in self.requests.iter_mut().zip(other.requests) {
            *sum += part;
        }
        for (sum, part) in self.tokens.iter_mut().zip(other.tokens) {
            *sum += part;
        }
    }
}

/// The backend: does as the prompt says, and notes how often each request arrived.
fn backend(arrived: Arc<Vec<AtomicU8>>) -> Script {
    const MOODS: [Mood; 8] =
        [Answers, Streams, Fails, ClosesAtOnce, ResetsAtOnce, ClosesInBody, ClosesInStream, ResetsInStream];
    Arc::new(move |exchange| {
        let at = find(&exchange.request.body, b"storm ").expect("one of the storm");
        let words = String::from_utf8_lossy(&exchange.request.body[at..at + 23]).into_owned();
        let words: Vec<usize> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [number, mood, events] = words[..] else { panic!("not three numbers: {words:?}") };
        arrived[number].fetch_add(1, Ordering::Relaxed);
        let plan = Plan {
            number: number as u64,
            mood: MOODS[mood],
            events: events as u64,
            leaves: Leaves::Never,
            resets: false,
        };
        answer(&plan, exchange)
    })
}

fn answer(plan: &Plan, exchange: &mut Exchange) -> Then {
    let (input, output) = plan.usage();
    match plan.mood {
        Answers => {
            exchange.reply(200, &chat_answer(input, output));
            Then::Keep
        }
        Fails => {
            exchange.reply(500, "{\"error\":{\"message\":\"out of order\"}}");
            Then::Keep
        }
        ClosesAtOnce => Then::Close,
        ResetsAtOnce => Then::Reset,
        ClosesInBody => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n";
            exchange.send(format!("{head}{{\"id\":\"r\",").as_bytes());
            Then::Close
        }
        Streams | ClosesInStream | ResetsInStream => {
            exchange.send(STREAM_HEAD.as_bytes());
            for event in 0..plan.events {
                if !exchange.chunk(&delta(WORD)) {
                    return Then::Close;
                }
                std::thread::sleep(Duration::from_micros((plan.number + event) % 4 * 300));
            }
            match plan.mood {
                ClosesInStream => return Then::Close,
                ResetsInStream => return Then::Reset,
                _ => {}
            }
            exchange.chunk(&format!(
                "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output}}}}}\n\n"
            ));
            exchange.chunk("data: [DONE]\n\n");
            exchange.send(b"0\r\n\r\n");
            Then::Keep
        }
    }
}

/// Caps that count and never refuse, one of each type for each user, and small ones of which each refuses some.
fn limits() -> Value {
    let small = |id: &str, kind: &str, amount: u64, period: &str, node: &str, more: Value| {
        let mut limit = user_limit(id, kind, amount, period);
        limit["attach"] = json!({ "node": format!("org:acme{node}") });
        for (name, value) in more.as_object().expect("an object") {
            limit[name] = value.clone();
        }
        limit
    };
    let mut limits = super::support::rig::all_types(100_000_000);
    limits.as_array_mut().expect("a list").extend([
        small("small_rate", "rpm", RATE, "1h", "/team:ml/user:u0", json!({})),
        small("small_quota", "quota_requests", QUOTA, "year", "/team:ml/user:u2", json!({})),
        small("small_tokens", "tpm", TOKENS, "1h", "/team:search/user:u4", json!({ "admit": "if_fits" })),
        small("small_money", "budget_usd", MILLIS / 1000, "year", "/team:search/user:u6", json!({})),
        small("small_slots", "concurrency", 10, "", "/team:search", json!({})),
        // Whether these refuse is a matter of how fast it goes.
        small("brief", "rpm", 800, "1s", "/team:ml/user:u1", json!({ "algorithm": "token_bucket" })),
        small("briefer", "tpm", 2_000, "1s", "/team:ml/user:u3", json!({})),
        small("all_slots", "concurrency", 56, "", "", json!({})),
    ]);
    limits
}

fn user(number: u64) -> String {
    format!("org:acme/team:{}/user:u{number}", if number < USERS / 2 { "ml" } else { "search" })
}

/// All clients of one round; what each request came to.
fn round(gateway: &Gateway, keys: &[Key], seed: u64, round: u64) -> Vec<(u64, Plan, Seen)> {
    let client = |client: u64| {
        let mut kept = None;
        let owner = client % USERS;
        (0..REQUESTS)
            .map(|turn| {
                let number = (round * CLIENTS + client) * REQUESTS + turn;
                let plan = Plan::draw(seed, number, owner.is_multiple_of(2));
                (owner, plan, plan.run(gateway, &keys[owner as usize], &mut kept))
            })
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client thread")).collect()
    })
}

fn is_at_rest(caps: &[Value]) -> bool {
    caps.iter().all(|cap| held(cap) == 0 && !(cap["type"] == "concurrency" && observed(cap) > 0))
}

/// Requests and tokens of each user that the gateway had counted when it was last started.
type Before = [[u64; 2]; USERS as usize];

/// Each user's caps against the sums of its requests.
fn check_counts(gateway: &Gateway, keys: &[Key], costs: &[Cost], before: &Before) {
    for (number, (key, cost)) in keys.iter().zip(costs).enumerate() {
        let caps = until_within(Duration::from_secs(20), "nothing is held", || {
            Some(gateway.caps(key)).filter(|caps| is_at_rest(caps))
        });
        let cap = |id: &str| observed(caps.iter().find(|cap| cap["limit_id"] == id).expect("the cap"));
        let about = format!("user {number}: {cost:?} and {caps:#?}");
        let [rpm, requests] = [cap("rpm"), cap("requests")];
        assert_eq!(rpm, requests - before[number][0], "{about}");
        assert!(
            cost.requests[0] <= requests && requests <= cost.requests[1],
            "{requests} requests of {about}"
        );
        let [tpm, tokens, money] = [cap("tpm"), cap("tokens"), cap("money")];
        assert_eq!([tpm, money], [tokens - before[number][1], tokens], "{about}");
        assert!(cost.tokens[0] <= tokens && tokens <= cost.tokens[1], "{tokens} tokens of {about}");
        if number % 2 == 0 {
            assert_eq!((cost.requests[0], cost.tokens[0]), (cost.requests[1], cost.tokens[1]), "{about}");
        }
        // No request uses more than it held, so only what is admitted while under can go over, by one request's.
        let (small, figure, most) = match number {
            0 => ("small_rate", rpm, RATE),
            2 => ("small_quota", requests, QUOTA),
            4 => ("small_tokens", tpm, TOKENS),
            6 => ("small_money", money, MILLIS - 1 + PROMPT + OUTPUT),
            _ => continue,
        };
        assert!(cap(small) == figure && figure <= most, "{figure} of {most}: {about}");
    }
}

/// Requests and tokens that the calendar caps of a key have counted.
fn counted(gateway: &Gateway, key: &Key) -> [u64; 2] {
    let caps = gateway.caps(key);
    ["requests", "tokens"].map(|id| observed(caps.iter().find(|cap| cap["limit_id"] == id).expect("the cap")))
}

/// The usage that was written, against the caps; and what the metrics say is under way.
fn check_views(gateway: &Gateway, keys: &[Key]) {
    let counted: BTreeMap<&str, [u64; 2]> =
        keys.iter().map(|key| (key.kid.as_str(), counted(gateway, key))).collect();
    until("the usage of each key is what was counted", || {
        let answer = gateway.get_admin("/tt/v1/admin/usage?by=key").json();
        let rows = answer["usage"].as_array().expect("rows");
        let figure = |row: &Value, name: &str| row[name].as_u64().expect("a count");
        let same = rows.iter().all(|row| {
            let wanted = counted[row["kid"].as_str().expect("a kid")];
            [figure(row, "requests"), figure(row, "total_tokens")] == wanted
        });
        (same && rows.len() == keys.len()).then_some(())
    });
    until("the metrics are at rest", || {
        let text = gateway.get_admin("/metrics").text();
        let is_zero = |name: &str| text.lines().any(|line| line == format!("tokentriage_{name} 0"));
        (is_zero("reservations") && is_zero("holds")).then_some(())
    });
}

/// Ends the gateway at rest, in order or by force, and starts it again. Tells what it had counted before.
fn restart(gateway: &mut Gateway, keys: &[Key], by_force: bool) -> Before {
    let before = std::array::from_fn(|user| counted(gateway, &keys[user]));
    if by_force {
        std::thread::sleep(WRITTEN);
        gateway.kill();
    } else {
        gateway.stop();
    }
    gateway.launch();
    before
}

/// Neither descriptors nor memory (KiB) grow from the middle of a gateway's life to its end.
fn check_growth(figures: &[(usize, u64)]) {
    let (descriptors, memory) = figures[figures.len() / 2 - 1];
    let (last_descriptors, last_memory) = figures[figures.len() - 1];
    assert!(last_descriptors <= descriptors + DESCRIPTORS, "descriptors: {figures:?}");
    assert!(last_memory <= memory + MEMORY, "memory in KiB: {figures:?}");
}

/// Does `work` while the gateway reloads its config again and again; all of it stays as it is.
fn while_reloading<T>(gateway: &Gateway, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                gateway.signal("HUP");
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_hundred_thousand_requests_and_every_count_exact() {
    let seed = std::env::var("TT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_902);
    println!("replay with TT_SEED={seed}");
    let rounds = std::env::var("TT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let all = (CLIENTS * rounds * REQUESTS) as usize;
    let arrived: Arc<Vec<AtomicU8>> = Arc::new((0..all).map(|_| AtomicU8::new(0)).collect());
    let backend = Backend::start(backend(arrived.clone()));
    let mut document = config(backend.port, limits());
    let users = |from: u64| (from..from + USERS / 2).map(|number| format!("u{number}")).collect::<Vec<_>>();
    document["governance"]["tenants"] = json!([{ "org": "acme", "teams": ["ml", "search"],
        "users": { "ml": users(0), "search": users(USERS / 2) } }]);
    let mut gateway = Gateway::start(&document);
    let keys: Vec<Key> = (0..USERS).map(|number| gateway.mint(&user(number), &[])).collect();

    let mut costs = [Cost::default(); USERS as usize];
    let mut refusals: BTreeMap<String, u64> = BTreeMap::new();
    let mut figures = Vec::new();
    let mut before = Before::default();
    for number in 0..rounds {
        let seen = while_reloading(&gateway, || round(&gateway, &keys, seed, number));
        backend.forget_requests();
        for key in &keys {
            until("nothing is under way", || is_at_rest(&gateway.caps(key)).then_some(()));
        }
        for (owner, plan, seen) in &seen {
            let times = arrived[plan.number as usize].load(Ordering::Relaxed);
            assert!(times <= 1, "{plan:?} arrived {times} times");
            costs[*owner as usize] += plan.cost(seen, times == 1);
            if let Seen::Answer { refused_by, .. } = seen
                && !refused_by.is_empty()
            {
                *refusals.entry(refused_by.clone()).or_default() += 1;
            }
        }
        check_counts(&gateway, &keys, &costs, &before);
        check_views(&gateway, &keys);
        figures.push((gateway.descriptors(), gateway.resident()));
        let done = number + 1;
        if done == rounds || (done % LIFE == 0 && rounds - done >= LIFE) {
            println!("round {done}: descriptors and KiB after each round: {figures:?}");
            check_growth(&figures);
            figures.clear();
            before = restart(&mut gateway, &keys, done < rounds && done / LIFE % 2 == 1);
            check_counts(&gateway, &keys, &costs, &before);
        }
    }
    println!("refused by {refusals:?}");
    println!("requests and tokens of each user, from and to: {costs:?}");
    for id in ["small_rate", "small_quota", "small_tokens", "small_money", "small_slots"] {
        assert!(refusals.contains_key(id), "{id} refused nothing: {refusals:?}");
    }
}
