//! Parties without a session: for a service with the scope `parties`, and single commands of a user with a token. Replies
//! have the shape that `docs/guides/parties.md` describes.

use super::{ApiParties, ApiRequest, checked};
use crate::Error;
use crate::address::encode;
use crate::auth::Auth;
use crate::party_snapshot::PartySnapshot;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The matchmaker's answer to a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketResult {
    /// A match was found.
    Matched,
    /// No match was found.
    Failed,
}

impl ApiParties<'_> {
    /// All parties.
    pub async fn list(&self) -> Result<Vec<PartySnapshot>, Error> {
        self.api.list(&["parties"], "parties").await
    }

    /// One party by its number; None: there is none.
    pub async fn get(&self, party: u64) -> Result<Option<PartySnapshot>, Error> {
        let answer: Value = self.api.call(ApiRequest::new("GET", &["parties", &party.to_string()])).await?;
        snapshot(answer)
    }

    /// The party of a user, if they are in one.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// if let Some(party) = api.parties().of("ann").await? {
    ///     println!("{} leads {} members", party.leader().unwrap_or("nobody"), party.members.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn of(&self, user: &str) -> Result<Option<PartySnapshot>, Error> {
        let answer: Value = self.api.call(ApiRequest::new("GET", &["users", user, "party"])).await?;
        snapshot(answer)
    }

    /// Runs a party command on behalf of a user.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// api.parties().command("ann", "invite", serde_json::json!({"user": "bob"})).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn command(&self, user: &str, cmd: &str, mut members: Value) -> Result<Value, Error> {
        members["cmd"] = json!(cmd);
        self.api.call(ApiRequest::new("POST", &["users", user, "party"]).body(&members)?).await
    }

    /// Answers a party's ticket. `details`, an object, is sent to the members.
    ///
    /// ```no_run
    /// # async fn example(api: tavern_client::Api) -> Result<(), tavern_client::Error> {
    /// use tavern_client::TicketResult;
    ///
    /// api.parties().answer_go(5, 7, TicketResult::Matched, serde_json::json!({"server": "eu-1:7777"})).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn answer_go(
        &self,
        party: u64,
        go_id: u64,
        result: TicketResult,
        mut details: Value,
    ) -> Result<Value, Error> {
        if !details.is_object() {
            return Err(Error::Invalid("`details` must be an object".to_owned()));
        }
        details["result"] = match result {
            TicketResult::Matched => json!("matched"),
            TicketResult::Failed => json!("failed"),
        };
        let (party, go_id) = (party.to_string(), go_id.to_string());
        self.api.call(ApiRequest::new("POST", &["parties", &party, "go", &go_id]).body(&details)?).await
    }

    /// Runs a party command of the user whose token (or, in dev mode, name) this `Api` has. It opens no session, so the user
    /// does not come online.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tavern_client::Error> {
    /// use tavern_client::{Api, Auth};
    ///
    /// let ann = Api::new("http://127.0.0.1:7400", Auth::User("ann".into()))?;
    /// let reply = ann.parties().own_command("invite", serde_json::json!({"user": "bob"})).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn own_command(&self, cmd: &str, members: Value) -> Result<Value, Error> {
        let Value::Object(members) = members else {
            return Err(Error::Invalid("the members of a command must be an object".to_owned()));
        };
        let query = match &self.api.shared.auth {
            Auth::Key(_) => {
                return Err(Error::Invalid(
                    "this command needs a user: use a token instead of an API key".to_owned(),
                ));
            }
            Auth::User(user) => vec![("user", user.clone())],
            Auth::Token(_) | Auth::Source(_) => Vec::new(),
        };
        let target = self.api.shared.address.target("/party", &query);
        let body = ("application/x-www-form-urlencoded", form(cmd, &members));
        let (status, body) = self.api.send("POST", &target, Some(body), Duration::ZERO).await?;
        let body = checked(status, body.clone()).map_err(|error| flat_refusal(&body).unwrap_or(error))?;
        serde_json::from_slice(&body).map_err(Error::unexpected)
    }
}

fn snapshot(mut answer: Value) -> Result<Option<PartySnapshot>, Error> {
    serde_json::from_value(answer["party"].take()).map_err(Error::unexpected)
}

/// The command as form fields; strings are written as they are, everything else as JSON.
fn form(cmd: &str, members: &Map<String, Value>) -> String {
    let mut form = format!("action=party&cmd={}", encode(cmd));
    for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
        let text = match value {
            Value::String(text) if name != "data" && name != "params" => text.clone(),
            value => value.to_string(),
        };
        form.push_str(&format!("&{}={}", encode(name), encode(&text)));
    }
    form
}

/// A refusal of `POST /party`: `error` is a string, and `code` is next to it.
fn flat_refusal(body: &[u8]) -> Option<Error> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let (code, message) = (answer["code"].as_str()?, answer["error"].as_str()?);
    let mut error = answer.clone();
    (error["code"], error["message"]) = (json!(code), json!(message));
    Some(Error::from_wire(Some(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_form_fields() {
        let members = json!({"user": "a&b", "message": null, "party_id": 5, "data": {"a": 1}, "params": "x"});
        let form = form("invite", members.as_object().expect("an object"));
        assert_eq!(
            form,
            "action=party&cmd=invite&data=%7B%22a%22%3A1%7D&params=%22x%22&party_id=5&user=a%26b"
        );
    }

    #[test]
    fn refusals_keep_code_and_party() {
        let error =
            flat_refusal(br#"{"error":"no","code":"party_full","party":{"party_id":5}}"#).expect("a refusal");
        assert_eq!((error.code(), error.message().as_str()), ("party_full", "no"));
        assert!(matches!(error, Error::Refused(refusal) if refusal.party.is_some()));
        assert!(flat_refusal(br#"{"error":{"code":"x","message":"y"}}"#).is_none());
    }
}
