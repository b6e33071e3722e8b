//! The stored records of parties and of users for parties.

use super::{RecordError, read, write};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{
    CompletedRequest, MatchTicket, MemberDisconnect, Membership, Party, PartyInvite, PartyMember,
    PartyRefusal, PartyReply,
};

/// The kinds of documents: parties by id, memberships by user.
pub const PARTY: &str = "party";
pub const MEMBERSHIP: &str = "membership";
/// One document under the name `next`: the next unused party id.
pub const PARTIES: &str = "parties";
pub const NEXT: &str = "next";

type Text = Arc<str>;

#[derive(Serialize, Deserialize)]
struct StoredParty {
    version: u64,
    members: Vec<StoredMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pending: Vec<StoredInvite>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    go: Option<StoredTicket>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct StoredMember {
    user: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Text>,
    since: u64,
    /// Since when they are away, and until when they may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    away: Option<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct StoredInvite {
    user: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Text>,
    by: Text,
    expires_at: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dark: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredTicket {
    go_id: u64,
    members: Vec<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ready: Vec<Text>,
    /// Until when all members must be ready. `None`: queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredMembership {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    party: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    invites: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    declined: Vec<(Text, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sent: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done: Vec<StoredRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logged_out: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredRequest {
    rid: Text,
    at: u64,
    reply: StoredPartyReply,
}

/// A stored reply, without the party.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredPartyReply {
    Ok,
    Party,
    Invited(u64),
    Gone(u64),
    Refused(Text),
}

pub fn write_party(party: &Party) -> Vec<u8> {
    let member = |member: &PartyMember| StoredMember {
        user: member.user.clone(),
        name: member.name.clone(),
        since: member.since.ms(),
        away: member.away.map(|away| (away.since.ms(), away.until.ms())),
    };
    let pending = |pending: &PartyInvite| StoredInvite {
        user: pending.user.clone(),
        name: pending.name.clone(),
        by: pending.by.clone(),
        expires_at: pending.expires.ms(),
        dark: pending.hidden,
    };
    let go = |go: &MatchTicket| StoredTicket {
        go_id: go.id,
        members: go.members.clone(),
        params: go.params.as_deref().and_then(raw),
        ready: go.ready.clone(),
        until: go.until.map(Time::ms),
    };
    write(&StoredParty {
        version: party.version,
        members: party.members.iter().map(member).collect(),
        pending: party.pending.iter().map(pending).collect(),
        go: party.go.as_ref().map(go),
        data: party.data.as_deref().and_then(raw),
    })
}

/// Values from clients were checked to be JSON.
fn raw(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

/// `id` is the name of its document.
pub fn read_party(id: u64, bytes: &[u8]) -> Result<Party, RecordError> {
    let stored: StoredParty = read(bytes)?;
    let member = |stored: StoredMember| PartyMember {
        user: stored.user,
        name: stored.name,
        since: Time(stored.since),
        away: stored.away.map(|(since, until)| MemberDisconnect { since: Time(since), until: Time(until) }),
    };
    let pending = |stored: StoredInvite| PartyInvite {
        user: stored.user,
        name: stored.name,
        by: stored.by,
        expires: Time(stored.expires_at),
        hidden: stored.dark,
    };
    let go = |stored: StoredTicket| MatchTicket {
        id: stored.go_id,
        members: stored.members,
        params: stored.params.map(|raw| raw.get().into()),
        ready: stored.ready,
        until: stored.until.map(Time),
    };
    if stored.members.is_empty() {
        return Err(RecordError::Empty);
    }
    Ok(Party {
        id,
        version: stored.version,
        members: stored.members.into_iter().map(member).collect(),
        pending: stored.pending.into_iter().map(pending).collect(),
        go: stored.go.map(go),
        data: stored.data.map(|raw| raw.get().into()),
    })
}

pub fn write_membership(membership: &Membership) -> Vec<u8> {
    let done = |done: &CompletedRequest| StoredRequest {
        rid: done.rid.clone(),
        at: done.at.ms(),
        reply: match &done.reply {
            PartyReply::Nothing => StoredPartyReply::Ok,
            PartyReply::Party(_) => StoredPartyReply::Party,
            PartyReply::Invited { party_id } => StoredPartyReply::Invited(*party_id),
            PartyReply::Gone { go_id } => StoredPartyReply::Gone(*go_id),
            PartyReply::Refused { why, .. } => StoredPartyReply::Refused(why.as_str().into()),
        },
    };
    write(&StoredMembership {
        party: membership.party,
        invites: membership.invites.clone(),
        blocks: membership.blocks.clone(),
        declined: membership.declined.iter().map(|(user, until)| (user.clone(), until.ms())).collect(),
        sent: membership.sent.iter().map(|at| at.ms()).collect(),
        done: membership.done.iter().map(done).collect(),
        logged_out: membership.logged_out.map(Time::ms),
    })
}

pub fn read_membership(bytes: &[u8]) -> Result<Membership, RecordError> {
    let stored: StoredMembership = read(bytes)?;
    let done = |stored: StoredRequest| {
        let reply = match stored.reply {
            StoredPartyReply::Ok => PartyReply::Nothing,
            StoredPartyReply::Party => PartyReply::Party(None),
            StoredPartyReply::Invited(party_id) => PartyReply::Invited { party_id },
            StoredPartyReply::Gone(go_id) => PartyReply::Gone { go_id },
            StoredPartyReply::Refused(code) => {
                let why = PartyRefusal::parse(&code).ok_or(RecordError::Word)?;
                PartyReply::Refused { why, retry_after_ms: None, party: None }
            }
        };
        Ok(CompletedRequest { rid: stored.rid, at: Time(stored.at), reply })
    };
    Ok(Membership {
        party: stored.party,
        invites: stored.invites,
        blocks: stored.blocks,
        declined: stored.declined.into_iter().map(|(user, until)| (user, Time(until))).collect(),
        sent: stored.sent.into_iter().map(Time).collect(),
        done: stored.done.into_iter().map(done).collect::<Result<_, RecordError>>()?,
        logged_out: stored.logged_out.map(Time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party() -> Party {
        let member = |user: &str, away| PartyMember {
            user: user.into(),
            name: Some(user.to_uppercase().into()),
            since: Time(1),
            away,
        };
        Party {
            id: 7,
            version: 3,
            members: vec![
                member("ann", None),
                member("bob", Some(MemberDisconnect { since: Time(4), until: Time(5) })),
            ],
            pending: vec![PartyInvite {
                user: "cy".into(),
                name: None,
                by: "ann".into(),
                expires: Time(9),
                hidden: true,
            }],
            go: Some(MatchTicket {
                id: 2,
                members: vec!["ann".into(), "bob".into()],
                params: Some(r#"{"map": 1}"#.into()),
                ready: vec!["ann".into()],
                until: Some(Time(8)),
            }),
            data: Some(r#"{"a": [1]}"#.into()),
        }
    }

    #[test]
    fn a_party_is_read_back_as_it_was_written() {
        let party = party();
        assert_eq!(read_party(7, &write_party(&party)).unwrap(), party);
        let small = Party { pending: Vec::new(), go: None, data: None, ..party };
        assert_eq!(read_party(7, &write_party(&small)).unwrap(), small);
    }

    #[test]
    fn a_user_record_is_read_back_as_it_was_written() {
        let refused = PartyReply::Refused { why: PartyRefusal::PartyFull, retry_after_ms: None, party: None };
        let replies = [
            PartyReply::Nothing,
            PartyReply::Party(None),
            PartyReply::Invited { party_id: 5 },
            PartyReply::Gone { go_id: 6 },
            refused,
        ];
        let done = |reply| CompletedRequest { rid: "r".into(), at: Time(2), reply };
        let membership = Membership {
            party: Some(7),
            invites: vec![8, 9],
            blocks: vec!["x".into()],
            declined: vec![("y".into(), Time(3))],
            sent: vec![Time(4)],
            done: replies.into_iter().map(done).collect(),
            logged_out: Some(Time(5)),
        };
        assert_eq!(read_membership(&write_membership(&membership)).unwrap(), membership);
        assert_eq!(read_membership(b"{}").unwrap(), Membership::default());
    }

    #[test]
    fn invalid_records_are_refused() {
        for bad in ["", "[]", r#"{"version":1,"members":[]}"#, r#"{"version":1}"#] {
            assert!(read_party(1, bad.as_bytes()).is_err(), "{bad}");
        }
        let bad = r#"{"done":[{"rid":"a","at":1,"reply":{"refused":"no_such_word"}}]}"#;
        assert!(read_membership(bad.as_bytes()).is_err());
    }
}
