//! What a node wants to hear from the others. An engine that cannot match patterns listens wider; the hub hears only
//! what its own listeners want anyway.

use crate::subject::Subject;
use std::sync::Arc;
use tavern_domain::pattern;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interest {
    /// One subject, or many when it is wide.
    Subject(Subject),
    /// The channels whose names match a Redis glob.
    Channels { prefix: Arc<str>, glob: Arc<[u8]> },
}

impl Interest {
    pub fn hears(&self, subject: &Subject) -> bool {
        match self {
            Interest::Subject(own) => own.hears(subject),
            Interest::Channels { prefix, glob } => {
                subject.prefix() == &**prefix
                    && subject.channel().is_some_and(|name| pattern::matches(glob, &name))
            }
        }
    }

    /// It names exactly one subject.
    pub fn exact(&self) -> Option<&Subject> {
        match self {
            Interest::Subject(subject) if !subject.is_wide() => Some(subject),
            _ => None,
        }
    }
}

impl Interest {
    /// What to listen to on a server that knows subjects alone: all of these together hear at least as much.
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
    fn the_subjects_of_a_pattern_hear_all_that_it_hears() {
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
                let word = Subject::of_channel("p", name).unwrap();
                let heard = subjects.iter().any(|subject| subject.hears(&word));
                assert!(heard || !interest.hears(&word), "{:?} of {glob:?}", word);
            }
        }
        let narrow = Interest::Channels { prefix: "p".into(), glob: (*b"game#a*").into() };
        assert!(!narrow.subjects().contains(&Subject::everything("p").unwrap()));
    }
}
