//! Reads the inbox of a user for their sessions on this shard. It keeps no copy: each session knows the last message that
//! it has, and the messages go into the mailboxes. Must hold: a session gets each message once, in order.

use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::replica::{PageLoad, Replica};
use crate::user::own_channel;
use std::sync::Arc;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, InboxPage, Read};
use tavern_wire::json::inbox as json;

#[derive(Default)]
pub(super) struct UnreadInbox {
    /// The read in progress begins after this message.
    after: u64,
}

impl Replica for UnreadInbox {
    type Host = Core;
    type Update = ();
    type Waiter = ();

    const KEEPS: bool = false;

    fn begin(&mut self, core: &mut Core, user: &Arc<str>) -> Option<Read> {
        let last = |id: &ListenerId| Some(core.session(*id)?.last_inbox_message);
        self.after = core.users.sessions(user).iter().filter_map(last).min()?;
        Some(Read::Inbox { user: user.clone(), after: self.after, limit: PAGE_ROWS })
    }

    fn load(&mut self, core: &mut Core, user: &Arc<str>, found: Found) -> PageLoad {
        let Found::Inbox(inbox) = found else { return PageLoad::Unusable };
        let mut again = inbox.page.more;
        for id in core.users.sessions(user).to_vec() {
            let Some(had) = core.session(id).map(|session| session.last_inbox_message) else { continue };
            // The session opened while the inbox was read, and needs older messages first.
            again |= had < self.after;
            if had >= self.after {
                deliver_page(core, id, user, &inbox, had);
            }
        }
        let next = if again { self.begin(core, user) } else { None };
        next.map_or(PageLoad::Complete, PageLoad::More)
    }

    fn is_used(&self, core: &Core, user: &Arc<str>) -> bool {
        !core.users.sessions(user).is_empty()
    }
}

fn deliver_page(core: &mut Core, id: ListenerId, user: &str, inbox: &InboxPage, had: u64) {
    if inbox.dropped > had {
        deliver(core, id, inbox.dropped, json::gap_tail(&own_channel(user), inbox.dropped));
    }
    for message in inbox.page.rows.iter().filter(|message| message.n > had) {
        deliver(core, id, message.n, json::tail(message.n, &message.body));
        core.stats.inbox_messages_delivered.add(1);
    }
}

/// Puts a message into the mailbox of a session.
pub(super) fn deliver(core: &mut Core, id: ListenerId, message_id: u64, tail: Vec<u8>) {
    core.put_json(id, tail.into_boxed_slice());
    // Bounded like the inbox itself: a session that never acknowledges forgets the oldest.
    let max = core.node.settings.inbox.messages;
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let seq = listener.mailbox.last();
    if let Some(session) = listener.session_mut() {
        session.last_inbox_message = session.last_inbox_message.max(message_id);
        let unacked = session.unacked_inbox.get_or_insert_default();
        unacked.push_back((seq, message_id));
        if unacked.len() > max {
            unacked.pop_front();
        }
    }
}
