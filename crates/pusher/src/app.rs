//! One app: its credentials, what its clients may do, and its part of Tavern's names.
//! Must hold: names of two apps never meet: an id holds no `-` and no `:`, which separate it from what follows.

use crate::signature;

/// Apps of one server. Each has kinds of its own in the configuration.
pub const APPS_MAX: usize = 32;
/// With the longest suffix the kind of an app has 32 bytes, the most that a kind may have.
const ID_BYTES: usize = 16;
const KEY_BYTES: usize = 64;

/// Not printed: it holds secrets.
#[derive(Clone)]
pub struct PusherApp {
    pub id: Box<str>,
    pub key: Box<str>,
    /// The first one signs webhooks; all of them are accepted.
    pub secrets: Vec<Box<str>>,
    pub client_events: bool,
    /// A connection must sign in, or subscribe with a signature.
    pub user_authentication: bool,
    /// Subscribers and servers are told how many subscriptions a channel has.
    pub subscription_count: bool,
}

/// Whether a text can be the id of an app.
pub fn is_app_id(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=ID_BYTES).contains(&text.len()) && text.bytes().all(valid)
}

/// Whether a text can be the key of an app: it is part of a path.
pub fn is_app_key(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=KEY_BYTES).contains(&text.len()) && text.bytes().all(valid)
}

/// The kinds of an app's channels: plain ones, those that keep their last event, and those of its users.
pub fn app_kinds(id: &str) -> [String; 3] {
    [format!("pusher-{id}"), format!("pusher-{id}-cache"), format!("pusher-{id}-user")]
}

impl PusherApp {
    /// The channel in which a server shows that a channel of this app has subscriptions there.
    pub fn occupied_channel(&self, name: &str) -> String {
        format!("pusher-{}-occupied#{name}", self.id)
    }

    /// The user as which servers are present there. No user of an app has this name: those have a colon.
    pub fn counter(&self) -> String {
        format!("pusher-{}", self.id)
    }

    /// The Tavern user behind a user id of this app. None: the id is not allowed.
    pub fn user(&self, id: &str) -> Option<String> {
        let user = format!("{}:{id}", self.id);
        (!id.is_empty() && !id.starts_with(OTHERS) && tavern_domain::is_user_id(&user)).then_some(user)
    }

    /// The user id that this app's clients see for a Tavern user. Users that are not of this app keep a mark, so that nobody can
    /// pass for one of its users.
    pub fn user_id(&self, user: &str) -> String {
        user_id_in(&self.id, user)
    }

    /// Whether `auth`, which is `KEY:SIGNATURE`, signs this text.
    pub fn has_signed(&self, auth: &str, text: &str) -> bool {
        let Some((key, signature)) = auth.split_once(':') else { return false };
        key == &*self.key && self.matches(signature, text)
    }

    /// Whether one of the secrets has made this signature.
    pub fn matches(&self, signature: &str, text: &str) -> bool {
        self.secrets.iter().any(|secret| signature::is_valid(secret, text, signature))
    }

    /// Signs a text with the current secret, as hexadecimal digits.
    pub fn sign(&self, text: &str) -> String {
        self.secrets.first().map(|secret| signature::sign(secret, text)).unwrap_or_default()
    }
}

/// `PusherApp::user_id` of the app with this id.
pub fn user_id_in(app: &str, user: &str) -> String {
    match user.split_once(':') {
        Some((own, id)) if own == app => id.to_owned(),
        _ => format!("{OTHERS}{user}"),
    }
}

/// In front of the names of users that are not of the app.
const OTHERS: &str = "tavern:";

#[cfg(test)]
pub(crate) fn sample() -> PusherApp {
    PusherApp {
        id: "3".into(),
        key: "278d425bdf160c739803".into(),
        secrets: vec!["7ad3773142a6692b25b8".into()],
        client_events: true,
        user_authentication: false,
        subscription_count: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_keys_have_a_grammar() {
        for (id, valid) in
            [("3", true), ("chat_1", true), ("", false), ("a-b", false), ("A", false), ("a:b", false)]
        {
            assert_eq!(is_app_id(id), valid, "{id:?}");
        }
        assert!(!is_app_id(&"a".repeat(17)));
        assert!(is_app_key("278d425bdf160c739803") && !is_app_key("a/b") && !is_app_key(""));
    }

    #[test]
    fn users_of_two_apps_are_different_and_names_come_back() {
        let (app, other) = (sample(), PusherApp { id: "4".into(), ..sample() });
        assert_eq!(app.user("ann").as_deref(), Some("3:ann"));
        assert_ne!(app.user("ann"), other.user("ann"));
        assert_eq!(app.user_id("3:ann"), "ann");
        assert_eq!(app.user_id("3:a:b"), "a:b");
        assert_eq!(app.user_id("4:ann"), "tavern:4:ann");
        assert_eq!(app.user_id("ann"), "tavern:ann");
        for wrong in ["", "a\nb", "tavern:ann", &"x".repeat(127)] {
            assert_eq!(app.user(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn every_secret_is_accepted_while_it_is_replaced() {
        let mut app = sample();
        let old = app.sign("1.2:private-a");
        app.secrets.insert(0, "fresh".into());
        assert!(app.has_signed(&format!("{}:{old}", app.key), "1.2:private-a"));
        assert_ne!(app.sign("1.2:private-a"), old);
        assert!(!app.has_signed(&format!("other:{old}"), "1.2:private-a"));
        assert!(!app.has_signed(&old, "1.2:private-a"));
    }
}
