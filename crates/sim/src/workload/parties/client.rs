//! A member of a party, or somebody who wants to be one: what they asked for and what they were told.

use super::snapshot::Snapshot;
use crate::session_client::SessionClient;
use tavern_domain::Time;

pub struct Client {
    pub link: SessionClient<Command>,
    /// The last inbox message that this session was told.
    pub message_id: u64,
    /// Parties that they were invited to, as far as was told.
    pub invites: Vec<u64>,
    /// The ticket that was told last.
    pub go_id: u64,
    /// Their party as it was told; none: it must be asked for.
    pub party: Option<Option<Snapshot>>,
    /// Asked for, and the outcome is not known: it is asked for again under the same request id.
    pub order: Option<Order>,
    /// The last order whose outcome is known.
    pub done: Option<Order>,
    /// When the command under way was sent.
    pub sent_at: Time,
    /// Since when they are connected and greeted.
    pub here_since: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Hello,
    Get,
    Ack,
    Bye,
    Say(u64),
    Order(Order),
}

/// A command that changes something, with a request id made from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub verb: Verb,
    /// A user, a party or a ticket.
    pub target: u64,
    pub number: u64,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Invite,
    CancelInvite,
    Accept,
    Decline,
    Kick,
    Leave,
    Promote,
    Disband,
    SetData,
    Go,
    CancelGo,
    Ready,
    Block,
    Unblock,
}

impl Verb {
    /// Each with its share of a hundred orders.
    pub const SHARES: [(Verb, &str, usize); 14] = [
        (Verb::Invite, "invite", 30),
        (Verb::Accept, "accept", 24),
        (Verb::Decline, "decline", 4),
        (Verb::CancelInvite, "cancel_invite", 3),
        (Verb::Kick, "kick", 3),
        (Verb::Leave, "leave", 4),
        (Verb::Promote, "promote", 4),
        (Verb::Disband, "disband", 2),
        (Verb::SetData, "set_data", 6),
        (Verb::Go, "go", 8),
        (Verb::CancelGo, "cancel_go", 3),
        (Verb::Ready, "ready", 6),
        (Verb::Block, "block", 1),
        (Verb::Unblock, "unblock", 2),
    ];

    pub fn parse(text: &str) -> Option<Verb> {
        Verb::SHARES.iter().find(|(_, name, _)| *name == text).map(|(verb, ..)| *verb)
    }

    pub fn text(self) -> &'static str {
        Verb::SHARES.iter().find(|(verb, ..)| *verb == self).map_or("", |(_, name, _)| *name)
    }
}

impl Order {
    /// The frame without its id. What the order says names its number, so that its traces can be found.
    pub fn body(&self) -> String {
        let Order { verb, target, number, .. } = self;
        let (op, user) = (verb.text(), format!(r#""user":"user{target}""#));
        let message = format!(r#""message":"m{number}""#);
        let more = match verb {
            Verb::Invite | Verb::CancelInvite | Verb::Promote | Verb::Block | Verb::Unblock => user,
            Verb::Kick => format!("{user},{message}"),
            Verb::Accept => format!(r#""party_id":{target}"#),
            Verb::Decline => format!(r#""party_id":{target},{message}"#),
            Verb::Leave | Verb::Disband => message,
            Verb::SetData => format!(r#""data":{{"n":{number}}}"#),
            Verb::Go => format!(r#""params":{number}"#),
            Verb::CancelGo => String::from(r#""x":0"#),
            Verb::Ready => format!(r#""go_id":{target}"#),
        };
        format!(r#""op":"party.{op}",{more},"rid":"r{number}""#)
    }
}

impl Client {
    pub fn new(user: String) -> Client {
        Client {
            link: SessionClient::new(user),
            message_id: 0,
            invites: Vec::new(),
            go_id: 1,
            party: None,
            order: None,
            done: None,
            sent_at: Time(0),
            here_since: None,
        }
    }

    /// What must be asked so that everything is known.
    pub fn catch_up(&mut self) {
        let todo = &mut self.link.todo;
        todo.clear();
        todo.extend(self.order.map(Command::Order));
        if self.party.is_none() {
            todo.push_back(Command::Get);
        }
    }

    /// The connection is gone.
    pub fn cut_off(&mut self) {
        self.here_since = None;
        self.link.cut_off();
    }
}
