//! A user of parties: the commands they sent and what they received.

use super::snapshot::PartySnapshot;
use crate::session_client::SessionClient;
use tavern_domain::Time;

pub struct PartiesClient {
    pub link: SessionClient<PartiesCommand>,
    /// The last inbox message that this session received.
    pub message_id: u64,
    /// Parties that they were invited to, as far as they know.
    pub invites: Vec<u64>,
    /// The last ticket they received.
    pub go_id: u64,
    /// Their party as last received; none: it must be queried.
    pub party: Option<Option<PartySnapshot>>,
    /// Another session of the user has acknowledged messages up to this one: what this session had not received by then
    /// it may never get.
    pub acknowledged: u64,
    /// The pending command was sent before the party changed: its reply may show an older one.
    pub outdated: bool,
    /// A command whose outcome is unknown: it is sent again under the same request id.
    pub order: Option<PartyOrder>,
    /// The last order whose outcome is known.
    pub done: Option<PartyOrder>,
    /// When the pending command was sent.
    pub sent_at: Time,
    /// Since when they are connected and their hello answered.
    pub here_since: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartiesCommand {
    Hello,
    Get,
    Ack,
    Bye,
    Say(u64),
    Order(PartyOrder),
}

/// A command that changes something, with a request id made from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartyOrder {
    pub verb: PartyVerb,
    /// A user, a party or a ticket.
    pub target: u64,
    pub number: u64,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartyVerb {
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

impl PartyVerb {
    /// Each with its share of a hundred orders.
    pub const SHARES: [(PartyVerb, &str, usize); 14] = [
        (PartyVerb::Invite, "invite", 30),
        (PartyVerb::Accept, "accept", 24),
        (PartyVerb::Decline, "decline", 4),
        (PartyVerb::CancelInvite, "cancel_invite", 3),
        (PartyVerb::Kick, "kick", 3),
        (PartyVerb::Leave, "leave", 4),
        (PartyVerb::Promote, "promote", 4),
        (PartyVerb::Disband, "disband", 2),
        (PartyVerb::SetData, "set_data", 6),
        (PartyVerb::Go, "go", 8),
        (PartyVerb::CancelGo, "cancel_go", 3),
        (PartyVerb::Ready, "ready", 6),
        (PartyVerb::Block, "block", 1),
        (PartyVerb::Unblock, "unblock", 2),
    ];

    pub fn parse(text: &str) -> Option<PartyVerb> {
        PartyVerb::SHARES.iter().find(|(_, name, _)| *name == text).map(|(verb, ..)| *verb)
    }

    pub fn text(self) -> &'static str {
        PartyVerb::SHARES.iter().find(|(verb, ..)| *verb == self).map_or("", |(_, name, _)| *name)
    }
}

impl PartyOrder {
    /// The frame without its id. Its data contains the order's number, so that its effects can be found.
    pub fn body(&self) -> String {
        let PartyOrder { verb, target, number, .. } = self;
        let (op, user) = (verb.text(), format!(r#""user":"user{target}""#));
        let message = format!(r#""message":"m{number}""#);
        let more = match verb {
            PartyVerb::Invite
            | PartyVerb::CancelInvite
            | PartyVerb::Promote
            | PartyVerb::Block
            | PartyVerb::Unblock => user,
            PartyVerb::Kick => format!("{user},{message}"),
            PartyVerb::Accept => format!(r#""party_id":{target}"#),
            PartyVerb::Decline => format!(r#""party_id":{target},{message}"#),
            PartyVerb::Leave | PartyVerb::Disband => message,
            PartyVerb::SetData => format!(r#""data":{{"n":{number}}}"#),
            PartyVerb::Go => format!(r#""params":{number}"#),
            PartyVerb::CancelGo => String::from(r#""x":0"#),
            PartyVerb::Ready => format!(r#""go_id":{target}"#),
        };
        format!(r#""op":"party.{op}",{more},"rid":"r{number}""#)
    }
}

impl PartiesClient {
    pub fn new(user: String) -> PartiesClient {
        PartiesClient {
            link: SessionClient::new(user),
            message_id: 0,
            invites: Vec::new(),
            go_id: 1,
            party: None,
            acknowledged: 0,
            outdated: false,
            order: None,
            done: None,
            sent_at: Time(0),
            here_since: None,
        }
    }

    /// Queues the commands that find out everything that is not known.
    pub fn catch_up(&mut self) {
        let todo = &mut self.link.todo;
        todo.clear();
        todo.extend(self.order.map(PartiesCommand::Order));
        if self.party.is_none() {
            todo.push_back(PartiesCommand::Get);
        }
    }

    /// The party has changed, or another session of the user was told of a change.
    pub fn outdate(&mut self) {
        self.outdated = !self.link.is_idle();
    }

    /// A reply shows their party. It is ignored if they know a later version.
    pub fn learn_party(&mut self, party: Option<PartySnapshot>) {
        if self.outdated {
            self.party = None;
            if !self.link.todo.contains(&PartiesCommand::Get) {
                self.link.todo.push_back(PartiesCommand::Get);
            }
            return;
        }
        let known = self.party.as_ref().and_then(|known| known.as_ref());
        let is_old = match (&party, known) {
            (Some(party), Some(known)) => party.id == known.id && party.version < known.version,
            _ => false,
        };
        if !is_old {
            self.party = Some(party);
            self.acknowledged = 0;
        }
    }

    /// The connection is closed.
    pub fn cut_off(&mut self) {
        self.here_since = None;
        self.link.cut_off();
    }
}
