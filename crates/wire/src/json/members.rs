//! Which members each op has. Must hold: a member of another op is refused by its name, so that nobody takes a member without
//! effect for one that works.

use super::field::refuse;
use crate::error::Refusal;
use crate::nearest;

/// Members that every op may have; `session` when it is sent by an HTTP request of its own.
const ALL: [&str; 3] = ["id", "op", "session"];
const PARTY: [&str; 3] = ["party_id", "if_version", "rid"];

/// The other members of an op. None: there is no such op.
fn members_of(op: &str) -> Option<&'static [&'static str]> {
    Some(match op {
        "publish" => &["channel", "data", "message_id", "retain"],
        "ack" => &["seq"],
        "subscribe" => &["channel", "pattern", "presence", "since", "last"],
        "unsubscribe" => &["channel", "pattern"],
        "join" | "update" => &["channel", "state"],
        "leave" => &["channel"],
        "who" => &["channel", "counts_only", "after", "limit"],
        "history" => &["channel", "after", "before", "limit"],
        "follow" | "unfollow" => &["user"],
        "following" | "followers" => &["after", "limit"],
        "status" => &["users"],
        "visibility" => &["value"],
        "hello" => &["token", "seq", "status"],
        "party.invite" | "party.cancel_invite" | "party.promote" | "party.block" | "party.unblock" => {
            &["user"]
        }
        "party.kick" => &["user", "message"],
        "party.decline" | "party.leave" | "party.disband" => &["message"],
        "party.set_data" | "party.say" => &["data"],
        "party.go" => &["params"],
        "party.ready" => &["go_id"],
        "bye" | "ping" | "party.get" | "party.accept" | "party.cancel_go" => &[],
        _ => return None,
    })
}

/// Refuses a member that does not belong to an op. An unknown op is refused elsewhere.
pub(super) fn check<'a>(op: &str, mut given: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    let Some(own) = members_of(op) else { return Ok(()) };
    let shared: &[&str] = if op.starts_with("party.") { &PARTY } else { &[] };
    let belongs = |name: &&str| ALL.contains(name) || own.contains(name) || shared.contains(name);
    let Some(member) = given.find(|name| !belongs(name)) else { return Ok(()) };
    let known = own.iter().chain(shared).copied();
    let hint = match nearest(member, known.clone()) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if own.is_empty() && shared.is_empty() => "; it has none".to_owned(),
        None => format!("; it has {}", known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Err(refuse(format!("`{op}` has no field `{member}`{hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::request::OPS;

    #[test]
    fn every_op_has_a_list() {
        for op in OPS {
            assert!(members_of(op).is_some(), "{op}");
        }
        for command in crate::json::party::COMMANDS {
            assert!(members_of(&format!("party.{command}")).is_some(), "{command}");
        }
    }

    #[test]
    fn member_of_another_op_is_refused_by_name() {
        let refusal =
            |op, member| check(op, ["id", "op", member].into_iter()).map_err(|refused| refused.message);
        assert_eq!(refusal("publish", "data"), Ok(()));
        assert_eq!(refusal("party.leave", "rid"), Ok(()));
        assert_eq!(refusal("leave", "session"), Ok(()));
        for (op, member, message) in [
            ("status", "user", "`status` has no field `user`; did you mean `users`?"),
            ("join", "presence", "`join` has no field `presence`; it has `channel`, `state`"),
            ("ping", "data", "`ping` has no field `data`; it has none"),
        ] {
            assert_eq!(refusal(op, member).unwrap_err(), message);
        }
        assert_eq!(refusal("no such op", "data"), Ok(()), "refused for its op");
    }
}
