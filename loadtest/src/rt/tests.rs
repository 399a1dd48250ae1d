//! Tests of the runtime room, on io_uring and on epoll.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::*;

/// Runs the same future on each driver.
fn on_each_driver<F: Future<Output = ()>>(work: impl Fn() -> F) {
    block_on(work()).expect("a runtime");
    block_on_epoll(work()).expect("a runtime on epoll");
}

#[test]
fn an_alarm_wakes_in_the_order_of_its_deadlines_and_never_early() {
    on_each_driver(|| async {
        let (tasks, drivers) = (Tasks::new(), Tasks::new());
        let alarm = Alarm::start(&drivers).expect("an alarm");
        let order: Rc<RefCell<Vec<u64>>> = Rc::default();
        let start = Instant::now();
        // The second is earlier than the first: the timer must be armed anew. Two are due at once, one already was.
        for millis in [30, 10, 20, 10, 0] {
            let (alarm, order) = (alarm.clone(), order.clone());
            tasks.start(async move {
                let deadline = start + Duration::from_millis(millis);
                alarm.until(deadline).await;
                assert!(Instant::now() >= deadline, "{millis} ms came early");
                order.borrow_mut().push(millis);
            });
        }
        assert!(tasks.ended(Duration::from_secs(5)).await);
        assert_eq!(*order.borrow(), [0, 10, 10, 20, 30]);
        assert_eq!(tasks.panics(), 0);
        alarm.close();
        assert!(drivers.ended(Duration::from_secs(5)).await, "the driver ends when closed");
    });
}

#[test]
fn a_closed_alarm_wakes_whoever_waits() {
    on_each_driver(|| async {
        let (tasks, drivers) = (Tasks::new(), Tasks::new());
        let alarm = Alarm::start(&drivers).expect("an alarm");
        let waiting = alarm.clone();
        tasks.start(async move { waiting.until(Instant::now() + Duration::from_secs(600)).await });
        sleep(Duration::from_millis(5)).await;
        assert_eq!(tasks.live(), 1);
        alarm.close();
        assert!(tasks.ended(Duration::from_secs(5)).await);
        assert!(drivers.ended(Duration::from_secs(5)).await);
    });
}

#[test]
fn a_task_that_panics_ends_alone() {
    on_each_driver(|| async {
        let tasks = Tasks::new();
        tasks.start(async {
            sleep(Duration::from_millis(2)).await;
            panic!("as the test wants it");
        });
        let done = Rc::new(RefCell::new(false));
        let end = done.clone();
        tasks.start(async move {
            sleep(Duration::from_millis(10)).await;
            *end.borrow_mut() = true;
        });
        assert!(tasks.ended(Duration::from_secs(5)).await);
        assert_eq!((tasks.panics(), *done.borrow()), (1, true));
    });
}

#[test]
fn the_first_of_two_and_what_is_late() {
    on_each_driver(|| async {
        let never = std::future::pending::<()>;
        assert!(matches!(either(never(), async { 1 }).await, Either::Second(1)));
        assert!(matches!(either(async { 1 }, async { 2 }).await, Either::First(1)));
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(before(soon, never()).await, None);
        assert_eq!(before(soon, async { 3 }).await, Some(3));
    });
}

#[test]
fn a_listener_serves_until_it_is_stopped() {
    on_each_driver(|| async {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(local, false).expect("a port");
        let address = listener.address().expect("an address");
        let (stop, signal) = stop_signal().expect("a signal");
        let serving = Tasks::new();
        serving.start(async move {
            let echo = |mut connection: Connection| async move {
                let mut buffer = Vec::new();
                while matches!(connection.read_more(&mut buffer).await, Ok(1..)) {
                    buffer = connection.write_all(buffer).await.1;
                    buffer.clear();
                }
            };
            listener.serve(signal, echo).await.expect("served");
        });
        let mut connection = connect(address).await.expect("a connection");
        for _ in 0..3 {
            let (sent, _) = connection.write_all(b"hello".to_vec()).await;
            sent.expect("sent");
            let mut buffer = Vec::new();
            while buffer.len() < 5 {
                assert!(connection.read_more(&mut buffer).await.expect("read") > 0);
            }
            assert_eq!(buffer, b"hello");
        }
        drop(stop);
        assert!(serving.ended(Duration::from_secs(5)).await);
        assert_eq!(connection.read_more(&mut Vec::new()).await.expect("an end"), 0);
        assert!(connect(address).await.is_err(), "it still listens");
    });
}
