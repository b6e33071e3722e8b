//! The user's party: its commands, and a snapshot that the letters keep up to date.
//! Must hold: a command that changes something carries a name of its own, so the server does it once however often it is asked.

use crate::Error;
use crate::backoff::random;
use crate::shared::{Handle, Note};
use serde_json::{Value, json};

pub struct Party {
    handle: Handle,
}

impl Party {
    pub(crate) fn new(handle: Handle) -> Party {
        Party { handle }
    }

    /// The live snapshot, or nothing. Its shape is that of the protocol.
    pub fn current(&self) -> Option<Value> {
        self.handle.shared.party.borrow().clone()
    }

    /// The snapshot each time it has changed: a receiver that can be awaited.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<Option<Value>> {
        self.handle.shared.party.subscribe()
    }

    pub async fn get(&self) -> Result<Option<Value>, Error> {
        let mut ok = self.command("get", json!({})).await?;
        Ok(Some(ok["party"].take()).filter(Value::is_object))
    }

    pub async fn invite(&self, user: &str) -> Result<Value, Error> {
        self.command("invite", json!({"user": user})).await
    }

    pub async fn cancel_invite(&self, user: &str) -> Result<Value, Error> {
        self.command("cancel_invite", json!({"user": user})).await
    }

    pub async fn accept(&self, party_id: u64) -> Result<Value, Error> {
        self.command("accept", json!({"party_id": party_id})).await
    }

    pub async fn decline(&self, party_id: u64, message: Option<&str>) -> Result<Value, Error> {
        self.command("decline", json!({"party_id": party_id, "message": message})).await
    }

    pub async fn kick(&self, user: &str, message: Option<&str>) -> Result<Value, Error> {
        self.command("kick", json!({"user": user, "message": message})).await
    }

    pub async fn leave(&self, message: Option<&str>) -> Result<Value, Error> {
        self.command("leave", json!({"message": message})).await
    }

    pub async fn promote(&self, user: &str) -> Result<Value, Error> {
        self.command("promote", json!({"user": user})).await
    }

    pub async fn disband(&self, message: Option<&str>) -> Result<Value, Error> {
        self.command("disband", json!({"message": message})).await
    }

    /// Replaces the party's data, an object.
    pub async fn set_data(&self, data: Value) -> Result<Value, Error> {
        self.command("set_data", json!({"data": data})).await
    }

    pub async fn go(&self, params: Option<Value>) -> Result<Value, Error> {
        self.command("go", json!({"params": params})).await
    }

    pub async fn cancel_go(&self) -> Result<Value, Error> {
        self.command("cancel_go", json!({})).await
    }

    pub async fn ready(&self, go_id: u64) -> Result<Value, Error> {
        self.command("ready", json!({"go_id": go_id})).await
    }

    pub async fn block(&self, user: &str) -> Result<Value, Error> {
        self.command("block", json!({"user": user})).await
    }

    pub async fn unblock(&self, user: &str) -> Result<Value, Error> {
        self.command("unblock", json!({"user": user})).await
    }

    /// Says something to the members. Not repeated after a lost link.
    pub async fn say(&self, data: Value) -> Result<Value, Error> {
        self.command("say", json!({"data": data})).await
    }

    /// Any `party.…` command by its name, with its members as an object; those that are null are left out.
    pub async fn command(&self, cmd: &str, mut members: Value) -> Result<Value, Error> {
        if let Value::Object(members) = &mut members {
            members.retain(|_, value| !value.is_null());
            if !["get", "say"].contains(&cmd) {
                members
                    .entry("rid")
                    .or_insert_with(|| json!(format!("{:032x}", u128::from_le_bytes(random()))));
            }
        }
        let note = Note::Party { changes: !["get", "say", "block", "unblock"].contains(&cmd) };
        self.handle.ask(&format!("party.{cmd}"), members, cmd != "say", note).await
    }
}
