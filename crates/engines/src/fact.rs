//! What an operator should know about the servers behind a store and a bus: versions, settings, tables. For `tavern
//! doctor`. Must hold: a check changes nothing; missing tables are not created.

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    pub health: CheckHealth,
    /// What was checked, in one or two words.
    pub about: &'static str,
    /// What was found and, if it is a problem, what to do.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckHealth {
    Good,
    Warning,
    Bad,
}

/// The results of checking a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    pub facts: Vec<CheckResult>,
    /// The tables are as this program creates them: opening the store changes nothing.
    pub is_made: bool,
}

impl CheckResult {
    pub(crate) fn ok(about: &'static str, text: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckHealth::Good, about, text: text.into() }
    }

    pub(crate) fn doubtful(about: &'static str, text: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckHealth::Warning, about, text: text.into() }
    }

    pub(crate) fn bad(about: &'static str, text: impl Into<String>) -> CheckResult {
        CheckResult { health: CheckHealth::Bad, about, text: text.into() }
    }
}

/// Whether the connection is encrypted. On one machine that does not matter.
pub(crate) fn encryption(is_tls: bool, hosts: &[&str], remedy: &str) -> CheckResult {
    let on_loopback = |host: &&str| {
        **host == *"localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    match is_tls {
        true => CheckResult::ok("tls", "the connection is encrypted"),
        false if hosts.iter().all(on_loopback) => CheckResult::ok("tls", "none, on this machine only"),
        false => CheckResult::doubtful(
            "tls",
            format!(
                "none: passwords and messages are sent in plain text; {remedy}, or use a private network"
            ),
        ),
    }
}

/// Parses `7.0.15` and the like, to compare versions.
pub(crate) fn version_number(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
