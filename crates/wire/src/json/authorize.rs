//! The authorize hook's request and response.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Serialize)]
pub struct HookRequest<'a> {
    pub user: Option<&'a str>,
    pub channel: &'a str,
    pub verb: &'static str,
}

impl HookRequest<'_> {
    pub fn encode(&self) -> Vec<u8> {
        super::api::encode(self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HookResponse {
    pub allow: bool,
    /// The channel to use instead.
    pub channel: Option<String>,
}

impl HookResponse {
    pub fn parse(body: &[u8]) -> Result<HookResponse, serde_json::Error> {
        serde_json::from_slice(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_app_is_asked_in_json_and_answers_in_it() {
        let request = HookRequest { user: None, channel: "game#1", verb: "join" };
        assert_eq!(request.encode(), br#"{"user":null,"channel":"game#1","verb":"join"}"#);
        let response = HookResponse::parse(br#"{"allow":true}"#).unwrap();
        assert_eq!(response, HookResponse { allow: true, channel: None });
        assert!(HookResponse::parse(br#"{"allow":1}"#).is_err());
    }
}
