//! The thread that reads the folder and hands messages to the node.

use super::name;
use super::shared::{Job, LocalShared};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tavern_local::{Local, Message};
use tavern_store::{BusLoss, BusPacket};

/// Messages delivered together.
const DELIVER_BATCH: usize = 256;
/// After this long without a message of another process, the bus subscribes to everything again.
const WIDEN_AFTER: Duration = Duration::from_secs(30);
/// The longest wait for a message.
const WAIT: Duration = Duration::from_secs(1);

pub fn run(shared: &LocalShared, local: &Local) {
    let mut heard_at = Instant::now();
    let mut last_id = 0;
    while !shared.is_stopping.load(Ordering::SeqCst) {
        match local.wait(WAIT) {
            Ok(Some(message)) => {
                heard_at = Instant::now();
                deliver(shared, local, message, &mut last_id);
            }
            Ok(None) => {
                if local.take_narrow_request() {
                    heard_at = Instant::now();
                    shared.add(Job::Narrow);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the bus folder");
                std::thread::sleep(WAIT);
            }
        }
        if heard_at.elapsed() >= WIDEN_AFTER && !shared.is_wide() {
            heard_at = Instant::now();
            shared.add(Job::Widen);
        }
    }
}

/// Gives the node one message and those that follow it. A message that matches several subscriptions arrives several
/// times.
fn deliver(shared: &LocalShared, local: &Local, first: Message, last_id: &mut u64) {
    let mut messages = Vec::new();
    let mut next = Some(first);
    while let Some(message) = next.take() {
        match message.publication() {
            Some(publication) if publication.id() == *last_id => {}
            Some(publication) if !name::is_loss(&shared.prefix, publication) => {
                *last_id = publication.id();
                messages.extend(name::message(&shared.prefix, publication));
            }
            // The log was trimmed before this node had read it, or another node could not write.
            loss => {
                *last_id = loss.map_or(*last_id, |publication| publication.id());
                hand_over(shared, std::mem::take(&mut messages));
                shared.counts.losses.fetch_add(1, Ordering::Relaxed);
                shared.receiver.lost(BusLoss::Everything);
            }
        }
        if messages.len() < DELIVER_BATCH {
            // An error here is returned again by the next wait.
            next = local.poll().unwrap_or(None);
        }
    }
    hand_over(shared, messages);
}

fn hand_over(shared: &LocalShared, messages: Vec<BusPacket>) {
    if !messages.is_empty() {
        shared.counts.received.fetch_add(messages.len() as u64, Ordering::Relaxed);
        shared.receiver.messages(messages);
    }
}
