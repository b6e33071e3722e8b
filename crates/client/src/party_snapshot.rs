//! The party's snapshot after a party event. Pure.
//! Must hold: a duplicate event changes nothing; if an event is not sufficient, the snapshot must be read again.

use serde_json::{Value, json};

/// The snapshot after an event; false: it must be read again.
pub(crate) fn after_event(party: Option<&Value>, event: &Value, me: Option<&str>) -> (Option<Value>, bool) {
    let cmd = event["cmd"].as_str().unwrap_or_default();
    let Some(party) = party.filter(|party| party["party_id"] == event["party_id"]) else {
        // Events of another party do not change ours.
        return (
            party.cloned(),
            ["invite", "invite_cancel", "kick", "disband", "decline", "leave"].contains(&cmd),
        );
    };
    let (version, known) = (event["version"].as_u64().unwrap_or(0), party["version"].as_u64().unwrap_or(0));
    if version <= known {
        return (Some(party.clone()), true);
    }
    if cmd == "kick" || cmd == "disband" || (cmd == "leave" && event["uid"].as_str() == me && me.is_some()) {
        return (None, true);
    }
    let mut new = party.clone();
    new["version"] = json!(version);
    let applied = change(&mut new, cmd, event).is_some();
    settle(&mut new);
    (Some(new), applied && version == known + 1)
}

/// Applies one event. None: it is not sufficient, or does not fit the snapshot.
fn change(party: &mut Value, cmd: &str, event: &Value) -> Option<()> {
    let uid = &event["uid"];
    let is_subject = |member: &Value| member["user"] == *uid;
    match cmd {
        "join" | "accept" => {
            let members = party["members"].as_array_mut()?;
            // The id stands in for a missing name.
            let name = Some(&event["user"]).filter(|name| *name != uid);
            members.push(json!({"user": uid, "name": name, "online": true, "since": event["ts"]}));
            party["pending"].as_array_mut()?.retain(|invite| !is_subject(invite));
        }
        "invited" => {
            let invite = json!({"user": event["invitee"], "by": uid, "expires_at": event["expires_at"]});
            party["pending"].as_array_mut()?.push(invite);
        }
        "decline" | "uninvited" => party["pending"].as_array_mut()?.retain(|invite| !is_subject(invite)),
        "leave" => party["members"].as_array_mut()?.retain(|member| !is_subject(member)),
        "leader" => {
            let members = party["members"].as_array_mut()?;
            let at = members.iter().position(is_subject)?;
            members[..=at].rotate_right(1);
        }
        "data" => party["data"] = event["data"].clone(),
        "online" | "offline" => {
            let members = party["members"].as_array_mut()?;
            members.iter_mut().find(|member| is_subject(member))?["online"] = json!(cmd == "online");
        }
        "party_go" | "ready" => {
            party["go_id"] = event["go_id"].clone();
            party["state"] = event["state"].clone();
        }
        "party_matched" | "go_failed" | "go_cancel" => {
            party.as_object_mut()?.remove("go_id");
            party["state"] = json!("idle");
        }
        // Unknown events of newer servers: read the snapshot again.
        _ => return None,
    }
    Some(())
}

/// The state of a party without a go follows from its members.
fn settle(party: &mut Value) {
    if matches!(party["state"].as_str(), Some("forming" | "idle")) {
        let few = party["members"].as_array().is_none_or(|members| members.len() < 2);
        party["state"] = json!(if few { "forming" } else { "idle" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party() -> Value {
        json!({
            "party_id": 5, "version": 3, "state": "idle", "data": {},
            "members": [{"user": "ann", "name": "Ann", "online": true, "since": 1}, {"user": "bob", "name": "Bob", "online": true, "since": 2}],
            "pending": [{"user": "cid", "by": "ann", "expires_at": 99}],
        })
    }

    fn party_event(cmd: &str, uid: &str, version: u64) -> Value {
        json!({"event": "party", "cmd": cmd, "party_id": 5, "version": version, "ts": 7, "uid": uid, "user": uid.to_uppercase(), "data": {"map": "x"}, "invitee": "dan", "state": "queued"})
    }

    /// `5@4 idle ann bob? +cid`: id, version, state, members (`?` offline), pendings.
    fn show(party: Option<&Value>) -> String {
        let Some(party) = party else { return "none".into() };
        let mut shown =
            format!("{}@{} {}", party["party_id"], party["version"], party["state"].as_str().unwrap_or("?"));
        for member in party["members"].as_array().into_iter().flatten() {
            let away = if member["online"] == true { "" } else { "?" };
            shown.push_str(&format!(" {}{away}", member["user"].as_str().unwrap_or_default()));
        }
        for invite in party["pending"].as_array().into_iter().flatten() {
            shown.push_str(&format!(" +{}", invite["user"].as_str().unwrap_or_default()));
        }
        shown
    }

    fn check(event: &Value, me: &str, expected: &str) {
        let (new, certain) = after_event(Some(&party()), event, Some(me));
        assert_eq!(show(new.as_ref()) + if certain { "" } else { " ask" }, expected, "{event}");
        if let (Some(new), true) = (new, certain) {
            assert_eq!(
                after_event(Some(&new), event, Some(me)),
                (Some(new), true),
                "a duplicate changes nothing"
            );
        }
    }

    #[test]
    fn events_give_the_next_snapshot() {
        check(&party_event("join", "cid", 4), "ann", "5@4 idle ann bob cid");
        check(&party_event("accept", "cid", 4), "ann", "5@4 idle ann bob cid");
        check(&party_event("decline", "cid", 4), "ann", "5@4 idle ann bob");
        check(&party_event("uninvited", "cid", 4), "bob", "5@4 idle ann bob");
        check(&party_event("invited", "ann", 4), "bob", "5@4 idle ann bob +cid +dan");
        check(&party_event("party_go", "ann", 4), "bob", "5@4 queued ann bob +cid");
        check(&party_event("leave", "ann", 4), "bob", "5@4 forming bob +cid");
        check(&party_event("leader", "bob", 4), "bob", "5@4 idle bob ann +cid");
        check(&party_event("offline", "bob", 4), "ann", "5@4 idle ann bob? +cid");
        check(&party_event("data", "ann", 4), "bob", "5@4 idle ann bob +cid");
        check(&party_event("go_failed", "ann", 4), "bob", "5@4 idle ann bob +cid");
    }

    #[test]
    fn id_is_not_taken_for_a_name() {
        let mut nameless = party_event("join", "cid", 4);
        nameless["user"] = json!("cid");
        let (new, _) = after_event(Some(&party()), &nameless, Some("ann"));
        assert_eq!(new.expect("a party")["members"][2]["name"], Value::Null);
    }

    #[test]
    fn leaving_ends_the_party() {
        check(&party_event("kick", "ann", 4), "bob", "none");
        check(&party_event("leave", "bob", 4), "bob", "none");
        check(&party_event("disband", "ann", 4), "bob", "none");
    }

    #[test]
    fn older_events_are_ignored_and_unfitting_ones_need_a_read() {
        check(&party_event("disband", "ann", 2), "bob", "5@3 idle ann bob +cid");
        check(&party_event("data", "ann", 6), "bob", "5@6 idle ann bob +cid ask");
        check(&party_event("something_new", "ann", 4), "bob", "5@4 idle ann bob +cid ask");
        check(&party_event("leader", "stranger", 4), "bob", "5@4 idle ann bob +cid ask");
        assert_eq!(after_event(None, &party_event("join", "bob", 1), Some("ann")), (None, false));
    }

    #[test]
    fn invites_to_us_change_nothing() {
        assert_eq!(after_event(None, &party_event("invite", "dan", 1), Some("ann")), (None, true));
        let mut other = party_event("kick", "dan", 9);
        other["party_id"] = json!(6);
        assert_eq!(after_event(Some(&party()), &other, Some("ann")), (Some(party()), true));
    }
}
