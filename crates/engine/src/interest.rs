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

impl From<Subject> for Interest {
    fn from(subject: Subject) -> Interest {
        Interest::Subject(subject)
    }
}
