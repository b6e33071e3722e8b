//! What the hub is told of the configuration.

use crate::config::{self, Config};
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_domain::party::Rules;
use tavern_domain::presence::{Activities, Mode, Thresholds};
use tavern_hub::{AuthorizeRules, InboxRules, KindRules, PartyRules, Settings, SlowReader};

pub fn of(config: &Config, epoch: Epoch) -> Settings {
    let rules = |kind: &config::Kind| KindRules {
        grace_ms: kind.grace_ms,
        slow_reader: match kind.slow_reader {
            config::SlowReader::Gap => SlowReader::Gap,
            config::SlowReader::Close => SlowReader::Close,
        },
        presence_mode: match kind.presence_mode {
            config::PresenceMode::Auto => None,
            config::PresenceMode::Full => Some(Mode::Full),
            config::PresenceMode::Coalesced => Some(Mode::Coalesced),
            config::PresenceMode::Counts => Some(Mode::Counts),
        },
        allow: kind.allow,
    };
    let limits = &config.limits;
    let asks = config.authorize.url.is_some();
    Settings {
        node: config.node.clone(),
        epoch,
        prefix: config.prefix.clone(),
        shards: config.threads,
        resume_ms: config.sessions.resume_ms,
        heartbeat_ms: config.sessions.heartbeat_ms,
        poll_idle_ms: config.sessions.poll_idle_ms,
        message_bytes: limits.message_bytes,
        state_bytes: limits.state_bytes,
        mailbox_events: limits.mailbox_events,
        mailbox_bytes: limits.mailbox_bytes,
        mailbox_sent_ms: limits.mailbox_sent_ms,
        mailbox_total_bytes: limits.mailbox_total_bytes,
        redis_pending_bytes: limits.redis_pending_bytes,
        crowds: Thresholds {
            coalesce_at: config.presence.coalesce_at as usize,
            counts_at: config.presence.counts_at as usize,
        },
        tick_ms: config.presence.tick_ms,
        activities: activities(config),
        disconnect_ms: config.presence.disconnect_coalesce_ms,
        last_seen_ms: config.presence.last_seen_ms,
        following: limits.following,
        channels_per_session: limits.channels_per_session,
        commands_per_second: limits.commands_per_second,
        kinds: config.kinds.iter().map(|(name, kind)| (name.clone(), rules(kind))).collect(),
        other_kinds: rules(config.kind("default")),
        authorize: asks.then_some(AuthorizeRules { cache_ms: config.authorize.cache_ms }),
        inbox: InboxRules {
            letters: config.inbox.letters,
            bytes: config.inbox.bytes,
            keep_ms: config.inbox.keep_ms,
        },
        parties: parties(&config.parties),
    }
}

fn parties(parties: &config::Parties) -> PartyRules {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let rules = Rules {
        max_members: small(parties.max_members),
        invite_ms: parties.invite_ms,
        gather_ms: parties.gather_ms,
        grace_ms: parties.grace_ms,
        reinvite_ms: parties.reinvite_ms,
        invites_per_minute: parties.invites_per_minute,
        max_pending: small(parties.max_pending),
        require_ready: parties.require_ready,
    };
    PartyRules { rules, block_ms: parties.block_ms }
}

/// What being in a channel means.
fn activities(config: &Config) -> Activities {
    let kinds =
        config.kinds.iter().map(|(kind, rules)| (kind.as_str().into(), rules.activity.as_str().into()));
    Activities {
        kinds: kinds.collect(),
        channels: vec![("lobby#puzzles".into(), "solving_puzzles".into())],
        others: config.kind("default").activity.as_str().into(),
        priority: config.presence.priority.iter().map(|word| word.as_str().into()).collect(),
        arrivals: words(ARRIVALS),
        departures: words(DEPARTURES),
    }
}

/// The word that followers are told when a user arrives in a channel, by its whole name or its kind.
const ARRIVALS: &[(&str, &str)] = &[
    ("activegame", "started_game"),
    ("game", "in_game_channel"),
    ("anno", "annotating_game"),
    ("lobby#puzzles", "solving_puzzles"),
];
/// The same for a departure.
const DEPARTURES: &[(&str, &str)] = &[("activegame", "ended_game")];

fn words(list: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
    list.iter().map(|(name, word)| ((*name).into(), (*word).into())).collect()
}
