//! Where a value came from, and what is wrong with it. Every effective value has an origin; every error about something that
//! was given has one too.

use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// The default of dev mode, which differs.
    DevMode,
    File {
        path: Arc<str>,
        line: usize,
        column: usize,
    },
    Environment(String),
    Flag(String),
    /// Computed from something else, which is named.
    Derived(String),
}

impl Origin {
    /// How strong it is: a stronger one wins.
    pub(super) fn strength(&self) -> u8 {
        match self {
            Origin::Default | Origin::DevMode | Origin::Derived(_) => 0,
            Origin::File { .. } => 1,
            Origin::Environment(_) => 2,
            Origin::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::DevMode => f.write_str("dev mode"),
            Origin::File { path, line, .. } => write!(f, "{path}:{line}"),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::Flag(flag) => f.write_str(flag),
            Origin::Derived(from) => write!(f, "derived: {from}"),
        }
    }
}

/// One thing that is wrong, at its place. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub place: Option<Origin>,
    pub message: String,
}

impl ConfigError {
    pub fn at(place: &Origin, message: impl Into<String>) -> ConfigError {
        let written = place.strength() > 0;
        ConfigError { place: written.then(|| place.clone()), message: message.into() }
    }

    pub fn general(message: impl Into<String>) -> ConfigError {
        ConfigError { place: None, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            // Editors and terminals jump to `file:line:column`.
            Some(Origin::File { path, line, column }) => write!(f, "{path}:{line}:{column}: ")?,
            Some(place) => write!(f, "{place}: ")?,
            None => {}
        }
        f.write_str(&self.message)
    }
}

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid:")?;
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}
