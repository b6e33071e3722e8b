//! What servers tell each other about the number of subscriptions of a channel.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The number of subscriptions on all servers. The greater version is the newer one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountMessage<'a> {
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    pub version: u64,
    pub count: u64,
}

impl<'a> CountMessage<'a> {
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn read(data: &'a RawValue) -> Option<CountMessage<'a>> {
        serde_json::from_str(data.get()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_back_as_it_was_written() {
        let message = CountMessage { channel: "private-a".into(), version: 7, count: 3 };
        let text = message.write();
        assert_eq!(CountMessage::read(serde_json::from_str(&text).unwrap()), Some(message));
        assert_eq!(CountMessage::read(serde_json::from_str("7").unwrap()), None);
    }
}
