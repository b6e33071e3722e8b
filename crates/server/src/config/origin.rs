//! The origin of a value, and errors. Every effective value has an origin; every error about a value that was set has one
//! too.

use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
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
    /// Derived from something else, which is named.
    Derived(String),
}

impl ValueSource {
    /// Its precedence: the higher one wins.
    pub(super) fn precedence(&self) -> u8 {
        match self {
            ValueSource::Default | ValueSource::DevMode | ValueSource::Derived(_) => 0,
            ValueSource::File { .. } => 1,
            ValueSource::Environment(_) => 2,
            ValueSource::Flag(_) => 3,
        }
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::DevMode => f.write_str("dev mode"),
            ValueSource::File { path, line, .. } => write!(f, "{path}:{line}"),
            ValueSource::Environment(variable) => f.write_str(variable),
            ValueSource::Flag(flag) => f.write_str(flag),
            ValueSource::Derived(from) => write!(f, "derived: {from}"),
        }
    }
}

/// One error with its location. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub place: Option<ValueSource>,
    pub message: String,
}

impl ConfigError {
    pub fn at(place: &ValueSource, message: impl Into<String>) -> ConfigError {
        let written = place.precedence() > 0;
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
            Some(ValueSource::File { path, line, column }) => write!(f, "{path}:{line}:{column}: ")?,
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
