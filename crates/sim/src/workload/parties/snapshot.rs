//! A party as clients receive it and as it is stored, in one form so that both can be compared.

use serde_json::{Value, json};
use tavern_domain::party::Party;

#[derive(Clone, Debug, PartialEq)]
pub struct PartySnapshot {
    pub id: u64,
    pub version: u64,
    /// With whether they are online. The first one leads.
    pub members: Vec<(String, bool)>,
    /// The invited users, and their inviters.
    pub pending: Vec<(String, String)>,
    pub state: String,
    pub go_id: Option<u64>,
    pub data: Value,
}

impl PartySnapshot {
    /// As a client receives it: null when there is none.
    pub fn received(party: &Value) -> Result<Option<PartySnapshot>, String> {
        if party.is_null() {
            return Ok(None);
        }
        let malformed = || format!("not a party: {party}");
        let list = |name: &str| party[name].as_array().ok_or_else(malformed);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let member = |member: &Value| (text(&member["user"]), member["online"] == true);
        let pending = |pending: &Value| (text(&pending["user"]), text(&pending["by"]));
        Ok(Some(PartySnapshot {
            id: party["party_id"].as_u64().ok_or_else(malformed)?,
            version: party["version"].as_u64().ok_or_else(malformed)?,
            members: list("members")?.iter().map(member).collect(),
            pending: list("pending")?.iter().map(pending).collect(),
            state: text(&party["state"]),
            go_id: party["go_id"].as_u64(),
            data: party["data"].clone(),
        }))
    }

    /// Whether a member with this snapshot knows the current party. Their own loss and return is sent only to the
    /// other members.
    pub fn is_known_to(&self, user: &str, now: &PartySnapshot) -> bool {
        PartySnapshot { version: now.version, ..self.as_shown_to(user) } == *now
            && self.version <= now.version
    }

    /// The same with this user online.
    pub fn as_shown_to(&self, user: &str) -> PartySnapshot {
        let mut shown = self.clone();
        for (member, online) in &mut shown.members {
            *online |= member == user;
        }
        shown
    }

    pub fn stored(party: &Party) -> PartySnapshot {
        let member =
            |member: &tavern_domain::party::PartyMember| (member.user.to_string(), member.away.is_none());
        let state = match &party.go {
            Some(go) if go.until.is_some() => "gathering",
            Some(_) => "queued",
            None if party.members.len() == 1 => "forming",
            None => "idle",
        };
        let data = party.data.as_ref().and_then(|data| serde_json::from_str(data).ok());
        PartySnapshot {
            id: party.id,
            version: party.version,
            members: party.members.iter().map(member).collect(),
            pending: party.pending.iter().map(|one| (one.user.to_string(), one.by.to_string())).collect(),
            state: state.into(),
            go_id: party.go.as_ref().map(|go| go.id),
            data: data.unwrap_or_else(|| json!({})),
        }
    }
}
