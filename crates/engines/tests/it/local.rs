//! The local bus between two nodes of one process: what is sent arrives, and when the folder cannot be written, the loss is
//! reported to the others as soon as something can be written.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tavern_domain::Epoch;
use tavern_engines::LogBounds;
use tavern_engines::{BusOptions, open_bus};
use tavern_store::{Bus, BusError, BusLoss, BusPacket, BusReceiver, Subject, SystemClock, Ticket, Writer};

#[derive(Default)]
struct RecordingReceiver {
    received: Mutex<Vec<String>>,
    arrived: Condvar,
}

impl RecordingReceiver {
    fn add(&self, what: String) {
        self.received.lock().unwrap().push(what);
        self.arrived.notify_all();
    }

    fn until(&self, count: usize) -> Vec<String> {
        let (received, waited) = self
            .arrived
            .wait_timeout_while(self.received.lock().unwrap(), Duration::from_secs(10), |received| {
                received.len() < count
            })
            .unwrap();
        assert!(!waited.timed_out(), "received only {received:?}");
        received.clone()
    }
}

impl BusReceiver for RecordingReceiver {
    fn confirmed(&self, _ticket: Ticket, outcome: Result<(), BusError>) {
        self.add(format!("confirmed {}", outcome.is_ok()));
    }

    fn messages(&self, messages: Vec<BusPacket>) {
        messages.iter().for_each(|message| self.add(String::from_utf8_lossy(&message.payload).into_owned()));
    }

    fn lost(&self, lost: BusLoss) {
        self.add(format!("{lost:?}"));
    }
}

fn node(name: &str, folder: &Path) -> (Arc<dyn Bus>, Arc<RecordingReceiver>) {
    let receiver = Arc::new(RecordingReceiver::default());
    let options = BusOptions { node: name, prefix: "tavern", folder, bounds: LogBounds::default() };
    (open_bus("local", &options, Arc::new(SystemClock), receiver.clone()).unwrap(), receiver)
}

fn message(n: u64, payload: &[u8]) -> Vec<BusPacket> {
    let subject = Subject::of_channel("tavern", b"game#A").unwrap();
    vec![BusPacket {
        subject,
        from: Writer::new("one", Epoch(1)),
        n,
        header: Arc::from([]),
        payload: payload.into(),
    }]
}

#[test]
fn messages_that_could_not_be_written_are_reported_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = node("one", folder.path());
    let (two, receiver) = node("two", folder.path());
    let subject = Subject::of_channel("tavern", b"game#A").unwrap();
    assert!(!two.subscribe(vec![subject.into()], Ticket(1)));
    assert_eq!(receiver.until(1), ["confirmed true"]);
    one.publish(message(1, b"before"));
    assert_eq!(receiver.until(2)[1], "before");
    // Too long for the folder, and not for the node: it cannot be written.
    let longest = LogBounds::default().message_bytes.max(tavern_local::MESSAGE_BYTES);
    one.publish(message(2, &vec![b'x'; longest + 1]));
    // The loss is reported although nothing follows.
    assert_eq!(receiver.until(3)[2], "Everything");
    one.publish(message(3, b"after"));
    assert_eq!(receiver.until(4)[3..], ["after"]);
    assert_eq!(two.counts().losses, 1);
    one.stop();
    two.stop();
}

/// Each message is a wake-up of its own: the thread that writes is asleep again.
#[test]
fn messages_sent_one_by_one_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = node("one", folder.path());
    let (two, receiver) = node("two", folder.path());
    let subject = Subject::of_channel("tavern", b"game#A").unwrap();
    assert!(!two.subscribe(vec![subject.into()], Ticket(1)));
    assert_eq!(receiver.until(1), ["confirmed true"]);
    for n in 1..=200 {
        one.publish(message(n, n.to_string().as_bytes()));
        assert_eq!(receiver.until(n as usize + 1)[n as usize], n.to_string());
    }
    one.stop();
    two.stop();
}
