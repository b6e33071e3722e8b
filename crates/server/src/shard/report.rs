//! Describes the session of a client: why it counts as online, what it is subscribed to, how full its mailbox is.

use crate::shard::state::ShardState;
use tavern_domain::{ClientId, Time};
use tavern_hub::core::{attach, sweep};
use tavern_hub::{ListenerId, Namespace};
use tavern_wire::json::api::{MailboxReport, SessionReport};

/// None: the client has no session on this shard.
pub fn of_client(state: &ShardState, client: ClientId) -> Option<SessionReport> {
    let (hub, now) = (&state.hub, state.now);
    let id = attach::find_client(&hub.core, client)?;
    let listener = hub.core.listener(id)?;
    let session = listener.session()?;
    let settings = &state.context.node.settings;
    let transport = listener.link.map(|link| link.format.transport());
    let lost_at = session.lost_at(settings.poll_idle_ms);
    let online = transport.is_some() || now < lost_at;
    let expires_at = sweep::session_expires_at(&hub.core, id);
    let why = match transport {
        Some(transport) => format!("connected by {transport}"),
        None if online => {
            format!(
                "connected by long-poll; the last poll or command was {} ms ago",
                now.since(session.active_at)
            )
        }
        None => {
            format!("disconnected {} ms ago; it can be resumed until {}", now.since(lost_at), expires_at.ms())
        }
    };
    let mailbox = &listener.mailbox;
    Some(SessionReport {
        client: session.client.to_string(),
        user: session.identity.user.as_deref().map(str::to_owned),
        name: session.identity.name.as_deref().map(str::to_owned),
        node: settings.node.clone(),
        shard: state.index,
        since: session.since.ms(),
        transport,
        online,
        why,
        heard_at: session.active_at.ms(),
        expires_at: transport.is_none().then_some(expires_at.ms()),
        token_expires_at: (session.identity.expires != Time::NEVER).then_some(session.identity.expires.ms()),
        channels: names(state, id, Namespace::Channel),
        patterns: names(state, id, Namespace::Pattern),
        mailbox: MailboxReport {
            first: mailbox.first(),
            last: mailbox.last(),
            sent: mailbox.sent(),
            events: mailbox.len(),
            bytes: mailbox.bytes(),
        },
    })
}

fn names(state: &ShardState, id: ListenerId, space: Namespace) -> Vec<String> {
    let names = state.hub.core.subscriptions(id, space);
    let mut names: Vec<String> =
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}
