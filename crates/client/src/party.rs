//! The user's party: its commands, and a snapshot that party events keep up to date.
//! Must hold: a command that changes something has a request id, so the server executes it once even if it is sent
//! again.

use crate::Error;
use crate::decisions::is_repeatable;
use crate::party_snapshot::PartySnapshot;
use crate::random::random;
use crate::shared::{Handle, OnSuccess};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The user's party.
pub struct Party {
    handle: Handle,
}

impl Party {
    pub(crate) fn new(handle: Handle) -> Party {
        Party { handle }
    }

    /// The live snapshot; None: the user is in no party.
    pub fn current(&self) -> Option<PartySnapshot> {
        self.handle.shared.party.borrow().clone()
    }

    /// A receiver of the snapshot that can be awaited for changes.
    pub fn watch(&self) -> watch::Receiver<Option<PartySnapshot>> {
        self.handle.shared.party.subscribe()
    }

    /// Reads the party's snapshot.
    pub async fn get(&self) -> Result<Option<PartySnapshot>, Error> {
        let mut ok = self.command("get", json!({})).await?;
        serde_json::from_value(ok["party"].take()).map_err(Error::unexpected)
    }

    /// Invites a user; without a party this creates one. Returns the number of the party.
    pub async fn invite(&self, user: &str) -> Result<u64, Error> {
        self.number("invite", json!({"user": user}), "party_id").await
    }

    /// Cancels an invite.
    pub async fn cancel_invite(&self, user: &str) -> Result<(), Error> {
        self.execute("cancel_invite", json!({"user": user})).await
    }

    /// Accepts the invite of this party.
    pub async fn accept(&self, party_id: u64) -> Result<(), Error> {
        self.execute("accept", json!({"party_id": party_id})).await
    }

    /// Declines the invite of this party.
    pub async fn decline(&self, party_id: u64, message: Option<&str>) -> Result<(), Error> {
        self.execute("decline", json!({"party_id": party_id, "message": message})).await
    }

    /// Removes a member; leader only.
    pub async fn kick(&self, user: &str, message: Option<&str>) -> Result<(), Error> {
        self.execute("kick", json!({"user": user, "message": message})).await
    }

    /// Leaves the party.
    pub async fn leave(&self, message: Option<&str>) -> Result<(), Error> {
        self.execute("leave", json!({"message": message})).await
    }

    /// Makes another member the leader.
    pub async fn promote(&self, user: &str) -> Result<(), Error> {
        self.execute("promote", json!({"user": user})).await
    }

    /// Ends the party; leader only.
    pub async fn disband(&self, message: Option<&str>) -> Result<(), Error> {
        self.execute("disband", json!({"message": message})).await
    }

    /// Replaces the party's data, an object.
    pub async fn set_data(&self, data: impl Serialize) -> Result<(), Error> {
        let data = serde_json::to_value(data).map_err(Error::unsendable)?;
        self.execute("set_data", json!({"data": data})).await
    }

    /// Creates a ticket for the matchmaker and returns its number; leader only.
    pub async fn go(&self, params: Option<Value>) -> Result<u64, Error> {
        self.number("go", json!({"params": params}), "go_id").await
    }

    /// Cancels the ticket.
    pub async fn cancel_go(&self) -> Result<(), Error> {
        self.execute("cancel_go", json!({})).await
    }

    /// Confirms that the user is ready for this ticket.
    pub async fn ready(&self, go_id: u64) -> Result<(), Error> {
        self.execute("ready", json!({"go_id": go_id})).await
    }

    /// Blocks invites from a user.
    pub async fn block(&self, user: &str) -> Result<(), Error> {
        self.execute("block", json!({"user": user})).await
    }

    /// Allows invites from a user again.
    pub async fn unblock(&self, user: &str) -> Result<(), Error> {
        self.execute("unblock", json!({"user": user})).await
    }

    /// Sends a message to the members. Not retried after a lost connection.
    pub async fn say(&self, data: impl Serialize) -> Result<(), Error> {
        let data = serde_json::to_value(data).map_err(Error::unsendable)?;
        self.execute("say", json!({"data": data})).await
    }

    async fn execute(&self, cmd: &str, members: Value) -> Result<(), Error> {
        self.command(cmd, members).await.map(drop)
    }

    async fn number(&self, cmd: &str, members: Value, name: &str) -> Result<u64, Error> {
        let ok = self.command(cmd, members).await?;
        ok[name]
            .as_u64()
            .ok_or_else(|| Error::UnexpectedAnswer(format!("the reply to party.{cmd} has no {name}")))
    }

    /// Any `party.…` command by its name, with its members as an object; members that are null are left out.
    pub async fn command(&self, cmd: &str, mut members: Value) -> Result<Value, Error> {
        if let Value::Object(members) = &mut members {
            members.retain(|_, value| !value.is_null());
            if !["get", "say"].contains(&cmd) {
                members
                    .entry("rid")
                    .or_insert_with(|| json!(format!("{:032x}", u128::from_le_bytes(random()))));
            }
        }
        let on_success = OnSuccess::Party { changes: !["get", "say", "block", "unblock"].contains(&cmd) };
        let op = format!("party.{cmd}");
        let safe = is_repeatable(&op, &members);
        self.handle.ask(&op, members, safe, on_success).await
    }
}
