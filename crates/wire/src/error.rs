//! The table of error codes: name, HTTP status, whether a retry can help, default message. The manual and the OpenAPI document
//! are checked against it. Must hold: a code has one row; names are unique and never change.

use std::borrow::Cow;

/// Why a command was refused: the same code on every transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    BadRequest,
    Unauthenticated,
    NotAllowed,
    NotFound,
    MethodNotAllowed,
    Conflict,
    Claimed,
    TooLarge,
    RateLimited,
    Blocked,
    Busy,
    Gone,
    Unavailable,
    Internal,
    NoSuchParty,
    NotMember,
    NotLeader,
    VersionConflict,
    NoSuchGo,
    SelfTarget,
    NoSuchUser,
    TargetNotMember,
    UserNotLogged,
    AlreadyMember,
    UserInParty,
    NoInvite,
    PartyFull,
}

struct CodeRow {
    code: Code,
    name: &'static str,
    status: u16,
    retry: bool,
    description: &'static str,
}

const fn row(code: Code, name: &'static str, status: u16, retry: bool, meaning: &'static str) -> CodeRow {
    CodeRow { code, name, status, retry, description: meaning }
}

/// In the order of the enum, so that a code finds its row by its number.
#[rustfmt::skip]
const TABLE: [CodeRow; 27] = [
    row(Code::BadRequest,      "bad_request",       400, false, "The request is malformed; the message says where."),
    row(Code::Unauthenticated, "unauthenticated",   401, false, "A valid token or key is needed."),
    row(Code::NotAllowed,      "not_allowed",       403, false, "The caller has no right to do this."),
    row(Code::NotFound,        "not_found",         404, false, "It does not exist."),
    row(Code::MethodNotAllowed, "method_not_allowed", 405, false, "The path does not support this method; the Allow header lists the supported ones."),
    row(Code::Conflict,        "conflict",          409, false, "It was changed in the meantime; read it again and retry."),
    row(Code::Claimed,         "claimed",           403, false, "The topic belongs to another publisher."),
    row(Code::TooLarge,        "too_large",         413, false, "A part of the request is larger than its limit."),
    row(Code::RateLimited,     "rate_limited",      429, true,  "Too many requests; wait for retry_after_ms."),
    row(Code::Blocked,         "blocked",           403, true,  "The caller is blocked: the app banned them, or they sent too much."),
    row(Code::Busy,            "busy",              409, true,  "Something else is in progress; it has to end first."),
    row(Code::Gone,            "gone",              410, false, "It existed and has ended."),
    row(Code::Unavailable,     "unavailable",       503, true,  "The server cannot do this now; nothing was changed, or the outcome is unknown."),
    row(Code::Internal,        "internal",          500, true,  "The server failed; its log says more."),
    row(Code::NoSuchParty,     "no_such_party",     404, false, "There is no such party."),
    row(Code::NotMember,       "not_member",        403, false, "The caller is not a member of the party."),
    row(Code::NotLeader,       "not_leader",        403, false, "Only the leader of the party may do this."),
    row(Code::VersionConflict, "version_conflict",  409, false, "The party's version differs from if_version."),
    row(Code::NoSuchGo,        "no_such_go",        404, false, "The party is not gathering or queued, or not with this go_id."),
    row(Code::SelfTarget,      "self_target",       400, false, "The caller cannot do this to themselves."),
    row(Code::NoSuchUser,      "no_such_user",      404, false, "The server does not know this user."),
    row(Code::TargetNotMember, "target_not_member", 404, false, "The user named is not a member of the party."),
    row(Code::UserNotLogged,   "user_not_logged",   409, true,  "The user named is not online."),
    row(Code::AlreadyMember,   "already_member",    409, false, "The user is already a member."),
    row(Code::UserInParty,     "user_in_party",     409, true,  "The user is in a party with others."),
    row(Code::NoInvite,        "no_invite",         404, false, "There is no open invite; it may have expired."),
    row(Code::PartyFull,       "party_full",        409, true,  "Every seat of the party is taken or reserved by an invite."),
];

const CODES: [Code; TABLE.len()] = {
    let mut codes = [Code::BadRequest; TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        codes[index] = TABLE[index].code;
        index += 1;
    }
    codes
};

impl Code {
    pub const ALL: &[Code] = &CODES;

    pub fn as_str(self) -> &'static str {
        TABLE[self as usize].name
    }

    pub fn parse(name: &str) -> Option<Code> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.code)
    }

    pub fn http_status(self) -> u16 {
        TABLE[self as usize].status
    }

    /// Whether the same request may succeed later.
    pub fn retry(self) -> bool {
        TABLE[self as usize].retry
    }

    /// One sentence: the default message, and the entry in the manual.
    pub fn description(self) -> &'static str {
        TABLE[self as usize].description
    }
}

/// A refused command: a code for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Refusal {
    pub code: Code,
    pub message: Cow<'static, str>,
    pub retry_after_ms: Option<u64>,
    /// The caller's party as JSON, for commands about parties.
    pub party: Option<Box<str>>,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { code, message: message.into(), retry_after_ms: None, party: None }
    }

    /// Adds the caller's party, so that a client can resynchronise.
    pub fn with_party(self, party: Box<str>) -> Refusal {
        Refusal { party: Some(party), ..self }
    }

    pub fn retry_after(self, ms: u64) -> Refusal {
        Refusal { retry_after_ms: Some(ms), ..self }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Refusal {
        Refusal::new(code, code.description())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_has_its_own_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, index, "{}", row.name);
            assert_eq!(Code::parse(row.name), Some(row.code));
            assert_eq!(row.code.as_str(), row.name);
        }
        assert_eq!(Code::PartyFull as usize + 1, TABLE.len(), "the last code is the last row");
        assert_eq!(Code::ALL.len(), TABLE.len());
        assert_eq!(Code::parse("no_such_code"), None);
    }

    #[test]
    fn names_are_unique_and_in_snake_case() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), TABLE.len());
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert!(!name.starts_with('_') && !name.ends_with('_') && !name.contains("__"), "{name}");
        }
    }

    #[test]
    fn statuses_are_errors_and_default_messages_are_sentences() {
        for code in Code::ALL {
            assert!((400..600).contains(&code.http_status()), "{code:?}");
            assert!(code.description().ends_with('.'), "{code:?}");
        }
    }

    #[test]
    fn a_refusal_is_displayed_as_code_and_message() {
        let refusal = Refusal::new(Code::RateLimited, "slow down").retry_after(250);
        assert_eq!(refusal.to_string(), "rate_limited: slow down");
        assert_eq!(refusal.retry_after_ms, Some(250));
    }
}
