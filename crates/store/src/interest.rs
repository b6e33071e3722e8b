//! What a node subscribes to on the bus. An engine that cannot match globs subscribes to more; the hub drops what no
//! listener needs.

use crate::subject::Subject;
use std::sync::Arc;
use tavern_domain::pattern;

/// What a node subscribes to.
///
/// ```
/// use tavern_store::{Interest, Subject};
///
/// let interest = Interest::Channels { prefix: "tavern".into(), glob: (*b"game#*").into() };
/// assert!(interest.matches(&Subject::of_channel("tavern", b"game#1").unwrap()));
/// assert!(!interest.matches(&Subject::of_channel("tavern", b"lobby").unwrap()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interest {
    /// One subject, or many when it is wide.
    Subject(Subject),
    /// The channels whose names match a Redis glob.
    Channels { prefix: Arc<str>, glob: Arc<[u8]> },
}

impl Interest {
    /// Whether it includes messages on a subject.
    pub fn matches(&self, subject: &Subject) -> bool {
        match self {
            Interest::Subject(own) => own.matches(subject),
            Interest::Channels { prefix, glob } => {
                subject.prefix() == &**prefix
                    && subject.channel().is_some_and(|name| pattern::matches(glob, &name))
            }
        }
    }

    /// The subject, if it is exactly one.
    pub fn exact(&self) -> Option<&Subject> {
        match self {
            Interest::Subject(subject) if !subject.is_wide() => Some(subject),
            _ => None,
        }
    }
}

impl Interest {
    /// The subjects to subscribe to on a server that cannot match globs: together they receive at least as much.
    pub fn subjects(&self) -> Vec<Subject> {
        match self {
            Interest::Subject(subject) => vec![subject.clone()],
            Interest::Channels { prefix, glob } => {
                let literal = pattern::literal_prefix(glob);
                if literal.len() == glob.len() {
                    return Subject::of_channel(prefix, glob).into_iter().collect();
                }
                match literal.iter().position(|&byte| byte == b'#') {
                    Some(end) => Subject::of_kind(prefix, &literal[..end]),
                    None => Subject::everything(prefix).into_iter().collect(),
                }
            }
        }
    }
}

impl From<Subject> for Interest {
    fn from(subject: Subject) -> Interest {
        Interest::Subject(subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_of_a_pattern_match_all_that_it_matches() {
        let names: [&[u8]; 9] =
            [b"game#a", b"game#", b"game", b"game#\xff", b"", b"_people#a", b"x", b"\xffz", b"a.b#c"];
        let globs: [&[u8]; 11] = [
            b"game#*",
            b"game#a",
            b"game*",
            b"*",
            b"?ame#a",
            b"g[a]me#a",
            b"",
            b"_people#*",
            b"\\game#*",
            b"\xff*",
            b"a.b#?",
        ];
        for glob in globs {
            let interest = Interest::Channels { prefix: "p".into(), glob: glob.into() };
            let subjects = interest.subjects();
            for name in names {
                let message = Subject::of_channel("p", name).unwrap();
                let received = subjects.iter().any(|subject| subject.matches(&message));
                assert!(received || !interest.matches(&message), "{:?} of {glob:?}", message);
            }
        }
        let narrow = Interest::Channels { prefix: "p".into(), glob: (*b"game#a*").into() };
        assert!(!narrow.subjects().contains(&Subject::everything("p").unwrap()));
    }
}
