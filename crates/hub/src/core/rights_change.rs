//! A session continues with a fresh token. What the former token allowed and the new one does not is ended, and the client
//! gets an event for each: subscriptions here, presences by the feature that gets the notice.
//! Must hold: what the configuration or the authorize hook allows stays, and so does what the server does for every user.

use crate::core::authorize::{Permission, is_private, permit, permit_pattern};
use crate::core::listener::ListenerId;
use crate::core::{Core, Notice};
use crate::event::Namespace;
use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_domain::{Channel, Identity, Rights, Verb};
use tavern_wire::json;

/// A token names its expiry in whole seconds; in node time, which differs a little from the wall clock at each login, two tokens
/// of the same second differ by some milliseconds.
const SAME_EXPIRY_MS: u64 = 500;

/// Whether the token that is presented applies from now on: it was issued later than the one the session has. If one of them
/// does not say when it was issued, or both were at the same time, it must expire no earlier.
pub(crate) fn is_newer(presented: &Identity, known: &Identity) -> bool {
    let both_say = presented.issued_s != 0 && known.issued_s != 0;
    match both_say && presented.issued_s != known.issued_s {
        true => presented.issued_s > known.issued_s,
        false => presented.expires + SAME_EXPIRY_MS >= known.expires,
    }
}

/// Gives a session the identity of a fresh token of the same caller.
pub(crate) fn renew(core: &mut Core, id: ListenerId, identity: &Identity) {
    let Some(session) = core.session_mut(id) else { return };
    let former = std::mem::replace(&mut session.identity, identity.clone()).rights;
    if Arc::ptr_eq(&former, &identity.rights) || former == identity.rights {
        return;
    }
    end_subscriptions(core, id, &former, identity);
    core.notify(Notice::RightsChanged { id, former });
}

fn end_subscriptions(core: &mut Core, id: ListenerId, former: &Rights, identity: &Identity) {
    for space in [Namespace::Pattern, Namespace::Channel, Namespace::Presence] {
        for name in core.subscriptions(id, space) {
            let ended = match space {
                Namespace::Pattern => has_lost_pattern(core, former, identity, &name),
                // Watching a channel is also listening to it.
                Namespace::Presence => {
                    has_lost(core, former, identity, Verb::Presence, &name)
                        || has_lost(core, former, identity, Verb::Subscribe, &name)
                }
                _ => has_lost(core, former, identity, Verb::Subscribe, &name),
            };
            if ended {
                core.unsubscribe(id, space, &name);
                let verb = if space == Namespace::Presence { Verb::Presence } else { Verb::Subscribe };
                let place = if space == Namespace::Pattern { "pattern" } else { "channel" };
                tell(core, id, verb, place, &String::from_utf8_lossy(&name));
            }
        }
    }
}

/// Whether the former rights allowed this on a channel, and nothing does now. An authorize hook that would have to be asked
/// counts as no: the client may ask for it again.
pub fn has_lost(core: &Core, former: &Rights, identity: &Identity, verb: Verb, name: &[u8]) -> bool {
    let by_server = is_private(name) || std::str::from_utf8(name).is_ok_and(is_own_channel);
    let allowed = || {
        let channel = Channel::parse_redis(name);
        channel.is_ok_and(|channel| permit(core, identity, verb, &channel) == Permission::Yes)
    };
    !by_server && former.allows(verb, name) && !allowed()
}

/// The same for a pattern.
pub fn has_lost_pattern(core: &Core, former: &Rights, identity: &Identity, pattern: &[u8]) -> bool {
    former.allows_pattern(Verb::Subscribe, pattern) && !permit_pattern(&core.node.settings, identity, pattern)
}

/// Tells a client that something has ended with its right.
pub(crate) fn tell(core: &mut Core, id: ListenerId, verb: Verb, place: &str, name: &str) {
    let mut tail = Vec::new();
    json::revoked_tail(&mut tail, verb.as_str(), place, name);
    core.put_json(id, tail.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::{Scopes, Time};

    #[test]
    fn a_token_of_the_same_second_applies() {
        let until = |expires| Identity {
            user: Some("ann".into()),
            name: None,
            rights: Arc::default(),
            expires,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::default(),
            key: None,
        };
        let known = until(Time(10_000));
        for (presented, expected) in
            [(9_000, false), (9_990, true), (10_000, true), (10_010, true), (11_000, true)]
        {
            assert_eq!(is_newer(&until(Time(presented)), &known), expected, "{presented}");
        }
        let issued = |at, expires| Identity { issued_s: at, ..until(Time(expires)) };
        let known = issued(2, 10_000);
        assert!(is_newer(&issued(3, 5_000), &known), "later, for a shorter time");
        assert!(!is_newer(&issued(1, 90_000), &known), "earlier, for a longer time");
        assert!(is_newer(&issued(2, 10_000), &known) && !is_newer(&issued(2, 5_000), &known));
        assert!(!is_newer(&until(Time(5_000)), &known), "it does not say when it was issued");
        assert!(is_newer(&until(Time::NEVER), &until(Time::NEVER)), "callers without a token");
    }
}
