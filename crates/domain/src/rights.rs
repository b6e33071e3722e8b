//! Rights: which verbs are allowed on which channels. Deny by default; grants only add.

use crate::pattern;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What a caller may do in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Verb {
    Subscribe = 1,
    Publish = 2,
    Join = 4,
    Presence = 8,
    History = 16,
}

impl Verb {
    pub const ALL: [Verb; 5] = [Verb::Subscribe, Verb::Publish, Verb::Join, Verb::Presence, Verb::History];

    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Subscribe => "subscribe",
            Verb::Publish => "publish",
            Verb::Join => "join",
            Verb::Presence => "presence",
            Verb::History => "history",
        }
    }

    pub fn parse(text: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == text)
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verbs(u8);

impl Verbs {
    pub const NONE: Verbs = Verbs(0);
    pub const ALL: Verbs = Verbs(31);

    pub fn with(self, verb: Verb) -> Verbs {
        Verbs(self.0 | verb as u8)
    }

    pub fn has(self, verb: Verb) -> bool {
        self.0 & verb as u8 != 0
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Verbs {
        verbs.into_iter().fold(Verbs::NONE, Verbs::with)
    }
}

/// One grant of a token: these verbs on the channels that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub pattern: Box<[u8]>,
    pub verbs: Verbs,
}

/// The rights of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    pub grants: Vec<Grant>,
}

impl Rights {
    /// Every right, for API keys with the scope and for dev mode.
    pub fn all() -> Rights {
        Rights { grants: alloc::vec![Grant { pattern: Box::from(*b"*"), verbs: Verbs::ALL }] }
    }

    pub fn allows(&self, verb: Verb, name: &[u8]) -> bool {
        self.grants.iter().any(|grant| grant.verbs.has(verb) && grant.covers_name(name))
    }

    /// Whether a subscription to a pattern is allowed.
    pub fn allows_pattern(&self, verb: Verb, asked: &[u8]) -> bool {
        self.grants.iter().any(|grant| grant.verbs.has(verb) && pattern::covers(&grant.pattern, asked))
    }
}

impl Grant {
    fn covers_name(&self, name: &[u8]) -> bool {
        // `*` means everything here, also the empty name, which it does not match as a glob.
        &*self.pattern == b"*" || pattern::matches(&self.pattern, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(lines: &[(&str, &[Verb])]) -> Rights {
        let grant = |(pattern, verbs): &(&str, &[Verb])| Grant {
            pattern: pattern.as_bytes().into(),
            verbs: verbs.iter().copied().collect(),
        };
        Rights { grants: lines.iter().map(grant).collect() }
    }

    #[test]
    fn nothing_is_allowed_unless_granted() {
        assert!(!Rights::default().allows(Verb::Subscribe, b"game#1"));
        let rights = rights(&[("game#*", &[Verb::Subscribe]), ("game#1", &[Verb::Publish])]);
        assert!(rights.allows(Verb::Subscribe, b"game#2"));
        assert!(rights.allows(Verb::Publish, b"game#1"));
        assert!(!rights.allows(Verb::Publish, b"game#2"));
        assert!(!rights.allows(Verb::Join, b"game#1"));
        assert!(!rights.allows(Verb::Subscribe, b"lobby"));
        assert!(rights.allows_pattern(Verb::Subscribe, b"game#A*"));
        assert!(!rights.allows_pattern(Verb::Subscribe, b"*"));
        assert!(!rights.allows_pattern(Verb::Publish, b"game#A*"));
    }

    #[test]
    fn all_rights_include_the_empty_name() {
        assert!(Rights::all().allows(Verb::Publish, b""));
        assert!(Rights::all().allows_pattern(Verb::Subscribe, b"x*"));
    }

    #[test]
    fn verbs_are_read_as_they_are_written() {
        for verb in Verb::ALL {
            assert_eq!(Verb::parse(verb.as_str()), Some(verb));
        }
        assert_eq!(Verb::parse("admin"), None);
    }
}
