//! Who a caller is and what they may do, as read from a token or an API key. Signatures are checked elsewhere.

use crate::limits;
use crate::rights::Rights;
use crate::time::Time;
use alloc::sync::Arc;

/// The rules of a user id, for error messages.
pub const USER_ID_RULES: &str = "a user id has 1 to 128 bytes, no control, zero-width or text direction characters, and is not `.` or `..`";

/// Whether a text is a valid user id. Invisible characters would make two ids look alike; `.` and `..` cannot be
/// a segment of a path.
pub fn is_user_id(text: &str) -> bool {
    (1..=limits::USER_BYTES).contains(&text.len())
        && !text.chars().any(|letter| letter.is_control() || is_invisible(letter))
        && text != "."
        && text != ".."
}

/// Zero-width characters, and characters that only change the direction of a text.
fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `None`: anonymous.
    pub user: Option<Arc<str>>,
    /// The display name.
    pub name: Option<Arc<str>>,
    /// What the token grants; the configured defaults per kind are added.
    pub rights: Arc<Rights>,
    /// The session ends at this time, unless a fresh token arrives first. In node time; `NEVER`: no token.
    pub expires: Time,
    /// When the token was issued, in seconds since 1970; 0: it does not say. Every session has an identity, so this is small.
    pub issued_s: u32,
    /// API keys and dev mode have no rate limit.
    pub unlimited: bool,
    /// The scopes of an API key; none for tokens.
    pub scopes: Scopes,
    /// The id of the API key, which owns what is created with it.
    pub key: Option<Arc<str>>,
}

impl Identity {
    /// It was proved by a user's token or by an API key: everyone who acts for it must prove it again. Anonymous
    /// users and names of dev mode prove nothing.
    pub fn is_proved(&self) -> bool {
        self.key.is_some() || (self.user.is_some() && self.expires != Time::NEVER)
    }

    /// Whether both are the same user, or the same API key.
    pub fn is_same_caller(&self, other: &Identity) -> bool {
        self.user == other.user && self.key == other.key
    }
}

/// What an API key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    Publish = 1,
    Events = 2,
    Subscriptions = 4,
    Presence = 8,
    Parties = 16,
    Admin = 32,
    Users = 64,
}

impl Scope {
    pub const ALL: [Scope; 7] = [
        Scope::Publish,
        Scope::Events,
        Scope::Subscriptions,
        Scope::Presence,
        Scope::Parties,
        Scope::Users,
        Scope::Admin,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Publish => "publish",
            Scope::Events => "events",
            Scope::Subscriptions => "subscriptions",
            Scope::Presence => "presence",
            Scope::Parties => "parties",
            Scope::Users => "users",
            Scope::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// A set of scopes. `admin` does not imply the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    pub const NONE: Scopes = Scopes(0);
    pub const ALL: Scopes = Scopes(127);

    pub fn with(self, scope: Scope) -> Scopes {
        Scopes(self.0 | scope as u8)
    }

    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope as u8 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |&scope| self.has(scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().fold(Scopes::NONE, Scopes::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
            assert!(Scopes::ALL.has(scope));
            assert!(!Scopes::NONE.has(scope));
        }
        let two: Scopes = [Scope::Publish, Scope::Admin].into_iter().collect();
        assert!(two.iter().eq([Scope::Publish, Scope::Admin]));
        assert!(!two.has(Scope::Events));
        assert!(Scopes::NONE.is_empty() && !two.is_empty());
    }

    fn caller(user: Option<&str>, key: Option<&str>, expires: Time) -> Identity {
        Identity {
            user: user.map(Arc::from),
            name: None,
            rights: Arc::default(),
            expires,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::NONE,
            key: key.map(Arc::from),
        }
    }

    #[test]
    fn only_a_token_or_a_key_proves_a_caller() {
        for (user, key, expires, proved) in [
            (None, None, Time::NEVER, false),
            (None, None, Time(9), false),
            (Some("ann"), None, Time::NEVER, false),
            (Some("ann"), None, Time(9), true),
            (None, Some("k1"), Time::NEVER, true),
            (Some("ann"), Some("k1"), Time::NEVER, true),
        ] {
            assert_eq!(caller(user, key, expires).is_proved(), proved, "{user:?} {key:?} {expires:?}");
        }
    }

    #[test]
    fn callers_are_the_same_by_user_and_key() {
        let ann = caller(Some("ann"), None, Time(9));
        for (user, key, same) in [
            (Some("ann"), None, true),
            (Some("bob"), None, false),
            (Some("ann"), Some("k1"), false),
            (None, None, false),
        ] {
            assert_eq!(ann.is_same_caller(&caller(user, key, Time(20))), same, "{user:?} {key:?}");
        }
    }
}
