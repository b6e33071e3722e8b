//! The hand-over between shards.

use crate::name_entry::NameEntry;
use crate::publish_order::PublishOrder;
use crate::sync::{AtomicU64, Ordering};
use loom::sync::Arc;

const LISTENER: usize = 0;
const PUBLISHER: usize = 1;

/// A session moves to this shard and subscribes while another shard publishes. It either receives the message directly, or the
/// message is on the bus before the session's own next message.
#[test]
fn message_published_during_a_subscribe_is_not_lost() {
    loom::model(|| {
        let order = Arc::new(PublishOrder::new(2));
        let entry = Arc::new(NameEntry::new(b"room"));
        let on_bus = Arc::new(AtomicU64::new(0));
        let publisher = loom::thread::spawn({
            let (order, entry, on_bus) = (order.clone(), entry.clone(), on_bus.clone());
            move || {
                order.begin(PUBLISHER);
                let received = entry.mask() & 1 << LISTENER != 0;
                on_bus.fetch_add(1, Ordering::Relaxed);
                order.end(PUBLISHER);
                received
            }
        });
        entry.added(LISTENER, true);
        let pending = order.pending(LISTENER);
        while !order.is_published(&pending) {
            loom::thread::yield_now();
        }
        let published_before = on_bus.load(Ordering::Relaxed) == 1;
        let received = publisher.join().unwrap();
        assert!(received || published_before, "the message is lost");
    });
}

/// The next publish of a shard does not keep a listener waiting that it has seen.
#[test]
fn listener_waits_only_for_publishes_that_began_before_it() {
    loom::model(|| {
        let order = PublishOrder::new(3);
        assert_eq!(order.pending(0), []);
        order.begin(1);
        order.begin(0);
        let pending = order.pending(0);
        assert_eq!(pending, [(1, 1)], "a shard does not wait for itself");
        assert!(!order.is_published(&pending));
        order.end(1);
        order.begin(1);
        assert!(order.is_published(&pending));
    });
}

/// Two shards subscribe and unsubscribe the same name: the total and the bits agree at the end, and one of them is the last.
#[test]
fn last_subscription_of_a_name_is_noticed_once() {
    loom::model(|| {
        let entry = Arc::new(NameEntry::new(b"room"));
        entry.added(0, true);
        entry.added(1, true);
        let other = loom::thread::spawn({
            let entry = entry.clone();
            move || entry.removed(1, true)
        });
        let here = entry.removed(0, true);
        let there = other.join().unwrap();
        assert!(here != there, "exactly one shard notices the last subscription");
        assert_eq!((entry.total(), entry.mask()), (0, 0));
    });
}
