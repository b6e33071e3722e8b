//! What Radar knows of a client, as the state of a Tavern client; and what a status or a message carries, as the data of a
//! Tavern message. Tavern's own clients see and write the same JSON.

use crate::json::{field, string};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A client as Radar shows it. Each part is JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDetails {
    /// The user's id as their client gave it: a number stays a number.
    pub user_id: Box<str>,
    pub user_type: Box<str>,
    pub user_data: Option<Box<str>>,
    pub client_data: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
struct StateFields<'a> {
    #[serde(borrow, default, rename = "userId")]
    user_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "userType")]
    user_type: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "userData")]
    user_data: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "clientData")]
    client_data: Option<&'a RawValue>,
}

impl ClientDetails {
    /// The details in a state. One that no Radar client wrote is the client's data.
    pub fn read(user: &str, state: Option<&str>) -> ClientDetails {
        let state = state.filter(|state| *state != "null");
        let fields: StateFields<'_> =
            state.and_then(|state| field::object(state.as_bytes()).ok()).unwrap_or_default();
        let StateFields { user_id, user_type, user_data, client_data } = fields;
        let boxed =
            |raw: Option<&RawValue>| raw.map(RawValue::get).filter(|json| *json != "null").map(Box::from);
        let is_radar =
            user_id.is_some() || user_type.is_some() || user_data.is_some() || client_data.is_some();
        let client_data = if is_radar { boxed(client_data) } else { state.map(Box::from) };
        let user_id = boxed(user_id).filter(|id| names(id, user));
        ClientDetails {
            user_id: user_id.unwrap_or_else(|| quoted(user)),
            user_type: boxed(user_type).unwrap_or_else(|| "0".into()),
            user_data: boxed(user_data),
            client_data,
        }
    }

    /// The state that has these details.
    pub fn write(&self) -> String {
        let mut state = format!("{{\"userId\":{},\"userType\":{}", self.user_id, self.user_type);
        for (name, data) in [("userData", &self.user_data), ("clientData", &self.client_data)] {
            if let Some(data) = data {
                state.push_str(&format!(",\"{name}\":{data}"));
            }
        }
        state.push('}');
        state
    }
}

/// Whether this JSON is the id of this user.
fn names(id: &str, user: &str) -> bool {
    id == user || serde_json::from_str::<String>(id).is_ok_and(|text| text == user)
}

pub(super) fn quoted(text: &str) -> Box<str> {
    let mut out = Vec::new();
    string(&mut out, text);
    String::from_utf8(out).unwrap_or_default().into()
}

/// The data of a message that was published: `{"value":…,"userData":…}`.
pub fn message_payload(value: &str, user_data: Option<&str>) -> String {
    let user_data = user_data.map(|data| format!(",\"userData\":{data}")).unwrap_or_default();
    format!("{{\"value\":{value}{user_data}}}")
}

/// The data of a status that was set: `{"key":…,"type":…,"value":…,"userData":…}`.
pub fn status_payload(key: &str, user_type: Option<&str>, value: &str, user_data: Option<&str>) -> String {
    let user_type = user_type.map(|kind| format!(",\"type\":{kind}")).unwrap_or_default();
    let user_data = user_data.map(|data| format!(",\"userData\":{data}")).unwrap_or_default();
    format!("{{\"key\":{key}{user_type},\"value\":{value}{user_data}}}")
}

/// The parts of such data.
#[derive(Default, Deserialize)]
pub(super) struct PayloadFields<'a> {
    #[serde(borrow, default)]
    pub key: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    pub user_type: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "field::present")]
    pub value: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "userData")]
    pub user_data: Option<&'a RawValue>,
}

impl<'a> PayloadFields<'a> {
    /// Data without a `value` was published by a client that is not Radar's: all of it is the value.
    pub fn read(data: &'a RawValue) -> PayloadFields<'a> {
        match field::object::<PayloadFields<'a>>(data.get().as_bytes()) {
            Ok(fields) if fields.value.is_some() => fields,
            _ => PayloadFields { value: Some(data), ..PayloadFields::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_read_as_they_were_written() {
        let details = ClientDetails {
            user_id: "7".into(),
            user_type: "2".into(),
            user_data: Some("{\"name\":\"bob\"}".into()),
            client_data: Some("{\"a\": 1}".into()),
        };
        let state = details.write();
        assert_eq!(state, r#"{"userId":7,"userType":2,"userData":{"name":"bob"},"clientData":{"a": 1}}"#);
        assert_eq!(ClientDetails::read("7", Some(&state)), details);
        let bare = ClientDetails { user_data: None, client_data: None, ..details };
        assert_eq!(ClientDetails::read("7", Some(&bare.write())), bare);
    }

    #[test]
    fn a_state_of_another_client_is_the_data_of_that_client() {
        let details = ClientDetails::read("ann", Some("{\"ready\":true}"));
        assert_eq!((&*details.user_id, &*details.user_type), ("\"ann\"", "0"));
        assert_eq!(details.client_data.as_deref(), Some("{\"ready\":true}"));
        assert_eq!(ClientDetails::read("ann", None).client_data, None);
        let forged = ClientDetails::read("ann", Some("{\"userId\":\"bob\",\"userType\":1}"));
        assert_eq!(&*forged.user_id, "\"ann\"", "a state does not change who the user is");
    }

    #[test]
    fn data_of_other_publishers_is_the_value() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        for (json, value) in [
            ("{\"value\":{\"x\":1},\"userData\":2}", "{\"x\":1}"),
            ("{\"value\":null}", "null"),
            ("{\"hi\":1}", "{\"hi\":1}"),
            ("[1]", "[1]"),
            ("\"text\"", "\"text\""),
        ] {
            let data = raw(json);
            assert_eq!(PayloadFields::read(&data).value.unwrap().get(), value, "{json}");
        }
        assert_eq!(message_payload("1", None), "{\"value\":1}");
        assert_eq!(
            status_payload("\"ann\"", Some("2"), "\"x\"", Some("{}")),
            r#"{"key":"ann","type":2,"value":"x","userData":{}}"#
        );
    }
}
