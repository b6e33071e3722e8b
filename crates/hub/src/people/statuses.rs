//! Many statuses at once: the `statuses` event, the reply to `status`, and the digest by which nodes compare what a session
//! was sent.

use super::person::{followee_of, last_seen_of};
use crate::core::Core;
use crate::core::listener::ListenerId;
use std::sync::Arc;
use tavern_domain::presence::{Status, Viewer};
use tavern_store::UserSnapshot;
use tavern_wire::json::status::{self as json, UserStatusView};

/// The largest `statuses` event: a fraction of a mailbox's default size.
const EVENT_BYTES: usize = 512 * 1024;

/// A user, their name if it may be seen, and their status.
type UserStatus = (Arc<str>, Option<Arc<str>>, Status);

/// Sends statuses to a session, in several events when one would fill its mailbox.
pub(super) fn send_all(core: &mut Core, id: ListenerId, statuses: &[UserStatus]) {
    let mut tails = Vec::new();
    split(&as_json(statuses), &mut tails);
    for tail in tails {
        core.put_json(id, tail.into());
    }
}

fn split(statuses: &[UserStatusView<'_>], tails: &mut Vec<Vec<u8>>) {
    let mut tail = Vec::new();
    json::statuses_tail(&mut tail, statuses);
    if tail.len() <= EVENT_BYTES || statuses.len() < 2 {
        return tails.push(tail);
    }
    let (first, second) = statuses.split_at(statuses.len() / 2);
    split(first, tails);
    split(second, tails);
}

/// The reply to `status`: what a viewer may see of the users that were read for them. Users see the end of their own last
/// visit, so that apps can show them what is new since then.
pub(super) fn reply_for(core: &Core, viewer: &str, people: &[UserSnapshot]) -> Vec<u8> {
    let status = |person: &UserSnapshot| {
        let followee = followee_of(core.now, person);
        let viewer = match *viewer == *person.user {
            true => Viewer::Themselves,
            false => Viewer::Other { mutual: person.mutual },
        };
        match followee.visibility.shows(viewer) {
            true => {
                let mut status = followee.status(&core.node.settings.activities);
                if viewer == Viewer::Themselves {
                    status.last_seen = last_seen_of(person);
                }
                (person.user.clone(), followee.name, status)
            }
            false => (person.user.clone(), None, Status::default()),
        }
    };
    let statuses: Vec<UserStatus> = people.iter().map(status).collect();
    let mut body = Vec::new();
    json::statuses(&mut body, &as_json(&statuses));
    body
}

fn as_json(statuses: &[UserStatus]) -> Vec<UserStatusView<'_>> {
    let statuses = statuses.iter();
    statuses.map(|(user, name, status)| UserStatusView { user, name: name.as_deref(), status }).collect()
}

/// Equal for statuses that look equal to a client. It is sent between nodes, so it must not depend on the build.
pub(super) fn digest(status: &Status) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xff]) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(&[u8::from(status.online), u8::from(status.leaving)]);
    for activity in &status.activities {
        add(activity.activity.as_bytes());
        add(activity.channel.as_bytes());
        add(&activity.since.ms().to_le_bytes());
    }
    sum
}
