//! The hub's settings, from the configuration.

use crate::config::{self, Config};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::delivery::RetryPolicy;
use tavern_domain::party::PartyLimits;
use tavern_domain::presence::{Activities, PresenceMode, Thresholds};
use tavern_domain::{Epoch, HistoryLimits};
use tavern_hub::{
    AuthorizeRules, HistoryRules, InboxRules, KindRules, PartyRules, RetentionRules, Settings, SlowReader,
    TopicRules,
};

pub fn of(config: &Config, epoch: Epoch) -> Settings {
    let rules = |kind: &config::KindConfig| KindRules {
        grace_ms: kind.grace_ms,
        slow_reader: match kind.slow_reader {
            config::SlowReader::Gap => SlowReader::Gap,
            config::SlowReader::Close => SlowReader::Close,
        },
        presence_mode: match kind.presence_mode {
            config::PresenceMode::Auto => None,
            config::PresenceMode::Full => Some(PresenceMode::Full),
            config::PresenceMode::Coalesced => Some(PresenceMode::Coalesced),
            config::PresenceMode::Counts => Some(PresenceMode::Counts),
        },
        allow: kind.allow,
        history: (kind.history_messages > 0).then_some(HistoryRules {
            limits: HistoryLimits {
                messages: kind.history_messages,
                bytes: kind.history_bytes,
                ttl_ms: kind.history_ttl_ms,
            },
            with_subscribe: kind.history_right == config::HistoryRight::Subscribe,
        }),
        retained: HistoryLimits { messages: 1, bytes: kind.history_bytes, ttl_ms: kind.history_ttl_ms },
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
        frame_bytes: limits.json_frame_bytes,
        poll_idle_ms: config.sessions.poll_idle_ms,
        message_bytes: limits.message_bytes,
        state_bytes: limits.state_bytes,
        mailbox_events: limits.mailbox_events,
        mailbox_bytes: limits.mailbox_bytes,
        mailbox_sent_ms: limits.mailbox_sent_ms,
        detached_unread: Settings::DETACHED_UNREAD,
        mailbox_total_bytes: limits.mailbox_total_bytes,
        redis_pending_bytes: limits.redis_pending_bytes,
        crowds: Thresholds {
            coalesce_at: config.presence.coalesce_at as usize,
            counts_at: config.presence.counts_at as usize,
        },
        tick_ms: config.presence.tick_ms,
        activities: activities(config),
        disconnect_ms: config.presence.disconnect_coalesce_ms,
        following: limits.following,
        channels_per_session: limits.channels_per_session,
        gateway_channels: limits.gateway_channels,
        patterns_per_session: limits.patterns_per_session,
        commands_per_second: limits.commands_per_second,
        address_commands_per_second: limits.address_commands_per_second,
        address_hellos_per_second: limits.address_hellos_per_second,
        hellos_per_second: limits.hellos_per_second,
        hellos_in_progress: limits.hellos_in_progress,
        address_failed_logins_per_second: limits.address_failed_logins_per_second,
        sessions_per_user: limits.sessions_per_user,
        kinds: config.kinds.iter().map(|(name, kind)| (name.clone(), rules(kind))).collect(),
        other_kinds: rules(config.kind("default")),
        authorize: asks.then_some(AuthorizeRules { cache_ms: config.authorize.cache_ms }),
        inbox: InboxRules {
            messages: config.inbox.messages,
            bytes: config.inbox.bytes,
            keep_ms: config.inbox.keep_ms,
        },
        history_max_bytes: config.history.max_bytes,
        parties: parties(&config.parties),
        topics: topics(&config.events),
    }
}

fn topics(events: &config::EventsConfig) -> TopicRules {
    TopicRules {
        patience: RetryPolicy {
            backoff_min_ms: events.backoff_min_ms,
            backoff_max_ms: events.backoff_max_ms,
            disable_after_ms: events.disable_after_ms,
        },
        rotation_ms: events.rotation_ms,
        attempts_kept: events.attempts_kept,
        retention: Some(RetentionRules {
            retention_ms: events.retention_ms,
            max_bytes: events.max_bytes,
            low_bytes: events.low_bytes,
            dedupe_max: events.dedupe_max,
        }),
    }
}

fn parties(parties: &config::PartiesConfig) -> PartyRules {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let rules = PartyLimits {
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

/// The activities of channel kinds, and the status changes that followers receive.
fn activities(config: &Config) -> Activities {
    type WordPairs = Vec<(Arc<str>, Arc<str>)>;
    let by_kind =
        |word: fn(&config::KindConfig) -> &str| -> WordPairs { activity_names(&config.kinds, word) };
    let by_channel =
        |word: fn(&config::ChannelConfig) -> &str| -> WordPairs { activity_names(&config.channels, word) };
    Activities {
        kinds: by_kind(|kind| &kind.activity),
        channels: by_channel(|channel| &channel.activity),
        others: config.kind("default").activity.as_str().into(),
        priority: config.presence.priority.iter().map(|word| word.as_str().into()).collect(),
        arrivals: [by_channel(|channel| &channel.arrival_change), by_kind(|kind| &kind.arrival_change)]
            .concat(),
        departures: [by_channel(|channel| &channel.departure_change), by_kind(|kind| &kind.departure_change)]
            .concat(),
    }
}

/// The activities that are not empty, by the name of their table.
fn activity_names<T>(tables: &BTreeMap<String, T>, word: fn(&T) -> &str) -> Vec<(Arc<str>, Arc<str>)> {
    let words = tables.iter().map(|(name, table)| (name.as_str(), word(table)));
    words.filter(|(_, word)| !word.is_empty()).map(|(name, word)| (name.into(), word.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServerMode, Sources};

    fn activities_of(text: &str) -> Activities {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tavern.toml");
        std::fs::write(&file, text).unwrap();
        let (environment, flags) = (Vec::new(), Vec::new());
        let sources =
            Sources { mode: ServerMode::Dev, file: Some(file), environment, flags, for_server: true };
        activities(&Config::load(sources).valid().unwrap())
    }

    fn check(activities: &Activities, channel: &str, activity: &str, arrival: &str, departure: &str) {
        assert_eq!(&**activities.of(channel), activity, "{channel}");
        assert_eq!(activities.cause(channel, true).as_str(), arrival, "arrival in {channel}");
        assert_eq!(activities.cause(channel, false).as_str(), departure, "departure from {channel}");
    }

    #[test]
    fn unconfigured_kinds_have_built_in_activities() {
        let built_in = activities_of("");
        check(&built_in, "activegame#1", "playing", "started_game", "ended_game");
        check(&built_in, "game#1", "in_game_channel", "in_game_channel", "none");
        check(&built_in, "gametv#1", "watching", "none", "none");
        check(&built_in, "anno", "annotating", "annotating_game", "none");
        check(&built_in, "party#1", "in_party", "none", "none");
        check(&built_in, "lobby#puzzles", "solving_puzzles", "solving_puzzles", "none");
        check(&built_in, "lobby#other", "online", "none", "none");
        check(&built_in, "user#ann", "online", "none", "disconnected");
    }

    #[test]
    fn configured_activities_replace_built_in_ones() {
        let activities = activities_of(
            "[kinds.default]\nactivity = \"around\"\n\
             [kinds.quiz]\nactivity = \"guessing\"\narrival_change = \"sat_down\"\ndeparture_change = \"stood_up\"\n\
             [kinds.activegame]\narrival_change = \"\"\n\
             [channels.\"lobby#puzzles\"]\nactivity = \"\"\narrival_change = \"\"\n\
             [channels.\"quiz#final\"]\nactivity = \"in_the_final\"\n",
        );
        check(&activities, "quiz#1", "guessing", "sat_down", "stood_up");
        check(&activities, "quiz#final", "in_the_final", "sat_down", "stood_up");
        check(&activities, "activegame#1", "playing", "none", "ended_game");
        check(&activities, "lobby#puzzles", "around", "none", "none");
    }
}
