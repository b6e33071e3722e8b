//! The user's party: its commands, and a snapshot that party events keep up to date.
//! Must hold: a command that changes something has a request id, so the server executes it once even if it is sent
//! again.

use crate::Error;
use crate::backoff::random;
use crate::shared::{Handle, OnSuccess};
use serde_json::{Value, json};

/// The user's party.
pub struct Party {
    handle: Handle,
}

impl Party {
    pub(crate) fn new(handle: Handle) -> Party {
        Party { handle }
    }

    /// The live snapshot in the shape of the protocol; None: the user is in no party.
    pub fn current(&self) -> Option<Value> {
        self.handle.shared.party.borrow().clone()
    }

    /// A receiver of the snapshot that can be awaited for changes.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Option<Value>> {
        self.handle.shared.party.subscribe()
    }

    /// Reads the party's snapshot.
    pub async fn get(&self) -> Result<Option<Value>, Error> {
        let mut ok = self.command("get", json!({})).await?;
        Ok(Some(ok["party"].take()).filter(Value::is_object))
    }

    /// Invites a user; without a party this creates one.
    pub async fn invite(&self, user: &str) -> Result<Value, Error> {
        self.command("invite", json!({"user": user})).await
    }

    /// Cancels an invite.
    pub async fn cancel_invite(&self, user: &str) -> Result<Value, Error> {
        self.command("cancel_invite", json!({"user": user})).await
    }

    /// Accepts the invite of this party.
    pub async fn accept(&self, party_id: u64) -> Result<Value, Error> {
        self.command("accept", json!({"party_id": party_id})).await
    }

    /// Declines the invite of this party.
    pub async fn decline(&self, party_id: u64, message: Option<&str>) -> Result<Value, Error> {
        self.command("decline", json!({"party_id": party_id, "message": message})).await
    }

    /// Removes a member; leader only.
    pub async fn kick(&self, user: &str, message: Option<&str>) -> Result<Value, Error> {
        self.command("kick", json!({"user": user, "message": message})).await
    }

    /// Leaves the party.
    pub async fn leave(&self, message: Option<&str>) -> Result<Value, Error> {
        self.command("leave", json!({"message": message})).await
    }

    /// Makes another member the leader.
    pub async fn promote(&self, user: &str) -> Result<Value, Error> {
        self.command("promote", json!({"user": user})).await
    }

    /// Ends the party; leader only.
    pub async fn disband(&self, message: Option<&str>) -> Result<Value, Error> {
        self.command("disband", json!({"message": message})).await
    }

    /// Replaces the party's data, an object.
    pub async fn set_data(&self, data: Value) -> Result<Value, Error> {
        self.command("set_data", json!({"data": data})).await
    }

    /// Creates a ticket for the matchmaker; leader only.
    pub async fn go(&self, params: Option<Value>) -> Result<Value, Error> {
        self.command("go", json!({"params": params})).await
    }

    /// Cancels the ticket.
    pub async fn cancel_go(&self) -> Result<Value, Error> {
        self.command("cancel_go", json!({})).await
    }

    /// Confirms that the user is ready for this ticket.
    pub async fn ready(&self, go_id: u64) -> Result<Value, Error> {
        self.command("ready", json!({"go_id": go_id})).await
    }

    /// Blocks invites from a user.
    pub async fn block(&self, user: &str) -> Result<Value, Error> {
        self.command("block", json!({"user": user})).await
    }

    /// Allows invites from a user again.
    pub async fn unblock(&self, user: &str) -> Result<Value, Error> {
        self.command("unblock", json!({"user": user})).await
    }

    /// Sends a message to the members. Not retried after a lost connection.
    pub async fn say(&self, data: Value) -> Result<Value, Error> {
        self.command("say", json!({"data": data})).await
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
        self.handle.ask(&format!("party.{cmd}"), members, cmd != "say", on_success).await
    }
}
