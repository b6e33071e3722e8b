//! The queue between threads and a shard.

use crate::queue::{Full, HandoverQueue, Wake, Weigh};
use crate::sync::{AtomicUsize, Ordering};
use loom::sync::Arc;

struct Item;

impl Weigh for Item {
    fn weight(&self) -> usize {
        1
    }
}

/// Counts the wake-ups, as the poll of a shard remembers them until its next sleep.
#[derive(Clone)]
struct Wakeups(Arc<AtomicUsize>);

impl Wake for Wakeups {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn queue(bound: usize) -> (Arc<HandoverQueue<Item, Wakeups>>, Wakeups) {
    let wakeups = Wakeups(Arc::new(AtomicUsize::new(0)));
    (Arc::new(HandoverQueue::new(wakeups.clone(), bound)), wakeups)
}

fn take(queue: &HandoverQueue<Item, Wakeups>) -> usize {
    let mut items = Vec::new();
    queue.take(&mut items);
    items.len()
}

/// The shard falls asleep while another thread adds an input: it does not sleep, or it is woken.
#[test]
fn input_is_never_left_behind_a_sleeping_shard() {
    loom::model(|| {
        let (queue, wakeups) = queue(8);
        let sender = loom::thread::spawn({
            let queue = queue.clone();
            move || queue.put(Item).is_ok()
        });
        let before = take(&queue);
        let sleeps = queue.begin_sleep();
        assert!(sender.join().unwrap());
        let woken = wakeups.0.load(Ordering::SeqCst) > 0;
        assert!(before == 1 || !sleeps || woken, "the input waits for a shard that sleeps");
    });
}

/// Two threads add inputs quietly: one of them is told to wake the shard, and the shard wakes for both.
#[test]
fn quiet_inputs_are_followed_by_a_wake_up() {
    loom::model(|| {
        let (queue, wakeups) = queue(8);
        let quiet = |queue: Arc<HandoverQueue<Item, Wakeups>>| {
            if queue.put_quietly(Item).is_ok_and(|promised| promised) {
                queue.wake();
            }
        };
        let sender = loom::thread::spawn({
            let queue = queue.clone();
            move || quiet(queue)
        });
        let sleeps = queue.begin_sleep();
        quiet(queue.clone());
        sender.join().unwrap();
        let woken = wakeups.0.load(Ordering::SeqCst) > 0;
        assert!(!sleeps || woken, "two inputs wait for a shard that sleeps");
        assert_eq!(take(&queue), 2);
    });
}

/// A closed queue drops inputs, so that the sender of a request learns that no answer comes.
#[test]
fn closing_leaves_no_input_behind() {
    loom::model(|| {
        let (queue, _) = queue(8);
        let sender = loom::thread::spawn({
            let queue = queue.clone();
            move || queue.force(Item)
        });
        queue.close();
        sender.join().unwrap();
        assert!(queue.is_closed());
        assert_eq!(take(&queue), 0);
    });
}

/// Senders that race for the last room exceed the bound by at most one input each.
#[test]
fn full_queue_refuses_inputs() {
    loom::model(|| {
        let (queue, _) = queue(1);
        let sender = loom::thread::spawn({
            let queue = queue.clone();
            move || queue.put(Item).is_ok()
        });
        let here = queue.put(Item).is_ok();
        let there = sender.join().unwrap();
        assert!(here || there);
        assert!(matches!(queue.put(Item), Err(Full)));
        assert_eq!(take(&queue), usize::from(here) + usize::from(there));
        assert!(queue.put(Item).is_ok(), "taking makes room");
    });
}
