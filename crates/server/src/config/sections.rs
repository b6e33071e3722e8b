//! Every configuration key, declared once: name with unit, meaning, type, bounds, default, and its field in `Config`.
//! Must hold: no other place in the program has a default of a key.

use super::schema::{DefaultValue, Key, KeySchema, Type};
use super::values::{FromValue, Values};
use super::{ConfigValue, SecretText};
use tavern_domain::{Verb, Verbs};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: u64 = 366 * DAY_MS;
const TIB: u64 = 1 << 40;

/// A table of the file.
pub(super) trait ConfigSection: Sized {
    /// Before the names of its keys: `sessions.`.
    const PREFIX: &'static str;
    const KEYS: &'static [Key];

    /// Reads each field by its name with `get`.
    fn from_values(get: impl FnMut(&str) -> Option<ConfigValue>) -> Self;

    fn read(values: &mut Values) -> Self {
        Self::from_values(|field| values.take(&format!("{}{field}", Self::PREFIX)))
    }
}

/// Declares a section: the meaning of a key as its doc comment, then `name: type = shape;`.
macro_rules! section {
    (
        $(#[$about:meta])*
        $prefix:literal => $name:ident {
            $( $(#[doc = $meaning:literal])+ $field:ident: $type:ty = $shape:expr; )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone)]
        pub struct $name {
            $( $(#[doc = $meaning])+ pub $field: $type, )+
        }

        impl ConfigSection for $name {
            const PREFIX: &'static str = $prefix;
            const KEYS: &'static [Key] = &[
                $( Key {
                    name: concat!($prefix, stringify!($field)),
                    meaning: concat!($($meaning),+),
                    shape: $shape,
                }, )+
            ];

            fn from_values(mut get: impl FnMut(&str) -> Option<ConfigValue>) -> $name {
                $name { $( $field: FromValue::from_value(get(stringify!($field))), )+ }
            }
        }
    };
}

/// Declares an enum whose values are strings in the file. The first is the default.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident { $( $(#[$meta:meta])* $variant:ident = $word:literal, )+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$meta])* $variant, )+ }

        impl $name {
            const ALL: &'static [$name] = &[$( $name::$variant, )+];
            const WORDS: &'static [&'static str] = &[$( $word, )+];
        }

        impl FromValue for $name {
            fn from_value(value: Option<ConfigValue>) -> $name {
                let word = String::from_value(value);
                let found = $name::WORDS.iter().position(|known| **known == word);
                $name::ALL[found.unwrap_or(0)]
            }
        }
    };
}

pub(super) use section;

/// The keys of all tables with a fixed name, in the order in which they are shown.
pub const ALL: &[&[Key]] = &[
    TopLevel::KEYS,
    SessionsConfig::KEYS,
    NodesConfig::KEYS,
    ClockConfig::KEYS,
    TokensConfig::KEYS,
    LocalBusConfig::KEYS,
    LimitsConfig::KEYS,
    PresenceConfig::KEYS,
    AuthorizeConfig::KEYS,
    EventsConfig::KEYS,
    MetricsConfig::KEYS,
    PartiesConfig::KEYS,
    InboxConfig::KEYS,
    HistoryConfig::KEYS,
    RadarConfig::KEYS,
    DashboardConfig::KEYS,
];

choice! {
    LogFormat {
        Text = "text",
        Json = "json",
    }
}

choice! {
    /// What happens to a client whose mailbox overflows.
    SlowReader {
        Gap = "gap",
        Close = "close",
    }
}

choice! {
    /// The right that reading the history of a channel needs.
    HistoryRight {
        Subscribe = "subscribe",
        History = "history",
    }
}

choice! {
    /// How watchers of a channel get presence changes.
    PresenceMode {
        Auto = "auto",
        Full = "full",
        Coalesced = "coalesced",
        Counts = "counts",
    }
}

pub(super) const fn absent(kind: Type) -> KeySchema {
    KeySchema::new(kind, DefaultValue::Absent)
}

section! {
    /// The top of the file, as written; `place` and `checks` turn it into addresses, folders and certificates.
    "" => TopLevel {
        /// The address for HTTP and WebSocket. Use a non-loopback address only with TLS, or behind a proxy named in
        /// trusted_proxies.
        listen: String = KeySchema::text("127.0.0.1:7400");
        /// A second address for operators; empty: none. If set, /metrics, the dashboard and the admin API are only there.
        admin_listen: Option<String> = KeySchema::text("").example("\"127.0.0.1:7402\"");
        /// The address for the Redis protocol, or "off".
        resp: String = KeySchema::text("127.0.0.1:7401");
        /// The data folder; the same as store = "sqlite:FOLDER". Several servers on one folder are a cluster.
        data: String = KeySchema::text("./tavern-data");
        /// The store: sqlite:FOLDER, redis://… or postgres://…; by default SQLite in the data folder.
        store: Option<String> = absent(Type::Link).example("\"postgres://tavern@db/app?sslmode=verify-full\"");
        /// The bus that connects the nodes: local, postgres://…, redis://… or nats://…; by default the server of the store, else
        /// local.
        bus: Option<String> = absent(Type::Link).example("\"nats://bus:4222\"");
        /// The name of this node. It must stay the same across restarts. By default host name and port.
        node: Option<String> = absent(Type::Text).example("\"inn-1\"");
        /// Signs and checks tokens, at least 32 bytes, the same on all nodes. Set TAVERN_SECRET instead: other users
        /// may be able to read this file, and can see flags in the process list.
        secret: Option<SecretText> = absent(Type::Secret);
        /// Also checks tokens, while `secret` is being replaced; it signs nothing. Set TAVERN_FORMER_SECRET instead.
        former_secret: Option<SecretText> = absent(Type::Secret);
        /// An API key with every scope. Prefer `tavern key create`: such keys have limited scopes and can be revoked.
        admin_key: Option<SecretText> = absent(Type::Secret);
        /// The number of shards (threads); 0: three quarters of the cores.
        threads: usize = KeySchema::integer(0, 0, 1024);
        /// Web origins whose pages may connect; "*" means any.
        origins: Vec<String> = KeySchema::list(&[]).example("[\"https://app.example\"]");
        /// Address ranges of proxies whose X-Forwarded-For is trusted.
        trusted_proxies: Vec<String> = KeySchema::list(&[]).example("[\"10.0.0.0/8\"]");
        /// The certificate chain, PEM; reloaded when it changes.
        tls_cert: Option<String> = absent(Type::Text).example("\"/etc/tavern/cert.pem\"");
        /// The private key of the certificate, PEM.
        tls_key: Option<String> = absent(Type::Text).example("\"/etc/tavern/key.pem\"");
        /// Separates installations that share a Redis or NATS server.
        prefix: String = KeySchema::text("tavern");
        /// The OTLP/HTTP collector that gets traces, such as http://127.0.0.1:4318; empty: no traces.
        otlp_url: Option<String> = KeySchema::new(Type::Link, DefaultValue::Text("")).example("\"http://127.0.0.1:4318\"");
        /// How many of a hundred traces that begin here are recorded. A request with a `traceparent` decides itself.
        otlp_sample_percent: u64 = KeySchema::integer(100, 0, 100);
        /// The format of the log: text, or json for machines.
        log: LogFormat = KeySchema::choice(LogFormat::WORDS);
        /// The log level: error, warn, info, debug, trace, or by module: info,tavern=debug.
        log_level: String = KeySchema::text("info");
    }
}

section! {
    "sessions." => SessionsConfig {
        /// A connection loss shorter than this is not visible to others.
        resume_ms: u64 = KeySchema::integer(2_000, 0, MINUTE_MS);
        /// A silent connection is pinged after this time, and closed if it stays silent that long again.
        heartbeat_ms: u64 = KeySchema::integer(15_000, 100, HOUR_MS);
        /// A long-polling session counts as disconnected after this long without a poll.
        poll_idle_ms: u64 = KeySchema::integer(45_000, 1_000, HOUR_MS);
        /// How long a stopping server keeps sessions for their clients to reconnect elsewhere, and waits for the answers of
        /// webhooks. TimeoutStopSec of the service must be longer.
        drain_ms: u64 = KeySchema::integer(15_000, 0, 10 * MINUTE_MS);
    }
}

section! {
    "nodes." => NodesConfig {
        /// How often a node renews its lease.
        heartbeat_ms: u64 = KeySchema::integer(2_000, 50, MINUTE_MS);
        /// A node that has not renewed its lease for this long counts as dead.
        lease_ms: u64 = KeySchema::integer(10_000, 200, 10 * MINUTE_MS);
    }
}

section! {
    "clock." => ClockConfig {
        /// How long a jump of the clock must hold before it is accepted, and how long after a start with an old stored
        /// time nothing is deleted by age.
        confirm_ms: u64 = KeySchema::integer(10 * MINUTE_MS, 1_000, DAY_MS);
        /// How long after its exp, or before its nbf, a token is still accepted at login: clocks differ a little.
        token_leeway_ms: u64 = KeySchema::integer(5_000, 0, 5 * MINUTE_MS);
    }
}

section! {
    "tokens." => TokensConfig {
        /// The longest time until a token expires; it also refuses an exp in milliseconds, which is in seconds.
        max_life_ms: u64 = KeySchema::integer(400 * DAY_MS, 1_000, 100 * YEAR_MS);
    }
}

section! {
    /// The local bus: how much the folder keeps for processes that have not read it.
    "local." => LocalBusConfig {
        /// Messages that the local bus keeps.
        log_messages: u64 = KeySchema::integer(100_000, 16, 1 << 32);
        /// Bytes that the local bus keeps.
        log_bytes: u64 = KeySchema::integer(64 << 20, 1 << 16, TIB);
        /// How long the local bus keeps messages.
        log_age_ms: u64 = KeySchema::integer(HOUR_MS, 1_000, YEAR_MS);
    }
}

section! {
    "limits." => LimitsConfig {
        /// The largest message.
        message_bytes: usize = KeySchema::integer(65_536, 1, 64 << 20);
        /// Events queued for one session.
        mailbox_events: usize = KeySchema::integer(1_024, 1, 1 << 24);
        /// Bytes of events queued for one session.
        mailbox_bytes: usize = KeySchema::integer(1 << 20, 1_024, 1 << 32);
        /// How long sent events are kept for a session that resumes.
        mailbox_sent_ms: u64 = KeySchema::integer(30_000, 0, HOUR_MS);
        /// Bytes of events queued for all sessions together.
        mailbox_total_bytes: usize = KeySchema::integer(1 << 30, 1 << 16, TIB);
        /// Channels that one session may subscribe to.
        channels_per_session: usize = KeySchema::integer(256, 1, 1 << 20);
        /// Channels of one connection of a Pusher or Radar client, its watchlist included.
        gateway_channels: usize = KeySchema::integer(1_024, 1, 1 << 20);
        /// Patterns that one session, or one Redis connection without an API key, may subscribe to.
        patterns_per_session: usize = KeySchema::integer(64, 0, 1 << 20);
        /// Commands per second of one connection, and of all connections of one user on this node, with bursts of
        /// twice as many; 0: no limit. API keys have no limit.
        commands_per_second: u32 = KeySchema::integer(100, 0, 1_000_000).in_dev(DefaultValue::Integer(0));
        /// Commands per second from one client address, with bursts of twice as many; 0, or with an API key: no limit.
        address_commands_per_second: u32 = KeySchema::integer(2_000, 0, 100_000_000).in_dev(DefaultValue::Integer(0));
        /// Logins per second from one client address, with bursts of twice as many; 0: no limit.
        address_hellos_per_second: u32 = KeySchema::integer(2_000, 0, 100_000_000).in_dev(DefaultValue::Integer(0));
        /// Clients per second that this node lets connect or resume, with bursts of one second's; 0, or with an API key: no limit.
        /// The others are refused with `unavailable` and a `retry_after_ms` of their own, so that a crowd returns as a queue.
        hellos_per_second: u32 = KeySchema::integer(2_000, 0, 1_000_000).in_dev(DefaultValue::Integer(0));
        /// Clients whose connecting or resuming is in progress, because the store or another node has not answered; 0: no limit.
        hellos_in_progress: usize = KeySchema::integer(1_000, 0, 1_000_000).in_dev(DefaultValue::Integer(0));
        /// Logins per second with an unknown API key from one client address, with bursts of twice as many; 0: no
        /// limit. Above it, keys that are not cached are refused without reading the store.
        address_failed_logins_per_second: u32 =
            KeySchema::integer(10, 0, 1_000_000).in_dev(DefaultValue::Integer(0));
        /// Sessions of one user on this node, or of one API key, or without a user from one address; 0: no limit. A
        /// new session replaces the one that has been disconnected for longest; if all are connected, the new one is
        /// refused.
        sessions_per_user: usize = KeySchema::integer(32, 0, 1_000_000).in_dev(DefaultValue::Integer(0));
        /// Connections from one address. An IPv6 address counts with its /64.
        connections_per_address: usize = KeySchema::integer(1_000, 1, 10_000_000);
        /// The largest presence state.
        state_bytes: usize = KeySchema::integer(4_096, 0, 1 << 20);
        /// Connections of this node. LimitNOFILE of the service must be at least 200 higher.
        connections: usize = KeySchema::integer(100_000, 1, 10_000_000);
        /// Bytes of incomplete input of all connections together.
        partial_total_bytes: usize = KeySchema::integer(256 << 20, 1 << 16, TIB);
        /// Bytes that all connections and requests without a login hold together; above it the oldest connections are
        /// closed.
        unauthenticated_total_bytes: usize = KeySchema::integer(32 << 20, 1 << 16, TIB);
        /// Bytes of unread replies of one client above which its commands are not run.
        unread_reply_bytes: usize = KeySchema::integer(8 << 20, 1 << 14, 1 << 32);
        /// Bytes of unread replies of all clients together; a connection that exceeds them is closed.
        unread_replies_total_bytes: usize = KeySchema::integer(256 << 20, 1 << 16, TIB);
        /// The timeout for reading the headers of an HTTP request.
        http_header_ms: u64 = KeySchema::integer(10_000, 100, 10 * MINUTE_MS);
        /// The largest JSON frame: a message with its envelope; by default limits.message_bytes plus 4096.
        json_frame_bytes: usize = absent(Type::Integer { min: 1, max: 65 << 20 }).example("69632");
        /// Messages queued for one shard.
        shard_queue: usize = KeySchema::integer(65_536, 16, 1 << 26);
        /// Unread bytes of a Redis connection before it is closed.
        redis_pending_bytes: usize = KeySchema::integer(32 << 20, 1_024, 1 << 32);
        /// Bytes of remembered responses to requests with an Idempotency-Key; who has the most loses the oldest.
        idempotency_bytes: usize = KeySchema::integer(64 << 20, 0, TIB);
        /// Users that one user may follow.
        following: usize = KeySchema::integer(5_000, 0, 100_000);
    }
}

section! {
    "presence." => PresenceConfig {
        /// How often watchers of a large channel get the changes.
        tick_ms: u64 = KeySchema::integer(250, 10, MINUTE_MS);
        /// From this many users in a channel, watchers get one event per tick instead of one per change.
        coalesce_at: u64 = KeySchema::integer(200, 1, 1 << 32);
        /// From this many users in a channel, watchers get counts, and names only of users they follow.
        counts_at: u64 = KeySchema::integer(5_000, 1, 1 << 32);
        /// How long a disconnect is hidden from followers, in case the user reconnects.
        disconnect_coalesce_ms: u64 = KeySchema::integer(1_000, 0, MINUTE_MS);
        /// How often each node looks for presences of unknown nodes.
        sweep_ms: u64 = KeySchema::integer(MINUTE_MS, 100, DAY_MS);
        /// Presences of unknown nodes are removed when they are older than this.
        sweep_age_ms: u64 = KeySchema::integer(2 * MINUTE_MS, 100, DAY_MS);
        /// Activities in the order in which a status lists them; others come last.
        priority: Vec<String> = KeySchema::list(&[
            "playing", "in_game_channel", "watching", "solving_puzzles", "annotating", "online",
        ]);
    }
}

section! {
    "authorize." => AuthorizeConfig {
        /// The URL of the authorize hook in your app, which gets user, channel and verb; empty: none.
        url: Option<String> = KeySchema::new(Type::Link, DefaultValue::Text("")).example("\"https://app.example/may\"");
        /// How long an answer of the authorize hook is cached.
        cache_ms: u64 = KeySchema::integer(5_000, 0, HOUR_MS);
    }
}

section! {
    "events." => EventsConfig {
        /// Whether webhooks may go to http:// addresses.
        allow_http: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
        /// Whether webhooks may go to private addresses.
        allow_private: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
        /// The shortest backoff before a failed delivery is retried.
        backoff_min_ms: u64 = KeySchema::integer(1_000, 1, DAY_MS);
        /// The longest backoff before a failed delivery is retried.
        backoff_max_ms: u64 = KeySchema::integer(10 * MINUTE_MS, 1, 7 * DAY_MS);
        /// The lease of a node on the delivery of a subscription.
        lease_ms: u64 = KeySchema::integer(30_000, 1_000, tavern_store::limits::LEASE_MS);
        /// The timeout for connecting to an endpoint.
        connect_timeout_ms: u64 = KeySchema::integer(2_000, 10, MINUTE_MS);
        /// The timeout for the response of an endpoint.
        request_timeout_ms: u64 = KeySchema::integer(20_000, 10, 10 * MINUTE_MS);
        /// The largest size of the event log in bytes; above it the oldest events are dropped, down to
        /// events.low_bytes.
        max_bytes: u64 = KeySchema::integer(1 << 30, 1 << 16, 1 << 50);
        /// The size in bytes that remains after the oldest events were dropped.
        low_bytes: u64 = KeySchema::integer(858_993_459, 1, 1 << 50);
        /// How long events are kept for slow subscriptions.
        retention_ms: u64 = KeySchema::integer(7 * DAY_MS, 1_000, 10 * YEAR_MS);
        /// How many event ids are remembered to drop duplicates.
        dedupe_max: u64 = KeySchema::integer(1_000_000, 0, 1 << 32);
        /// How long a replaced secret still signs, in addition to the new one.
        rotation_ms: u64 = KeySchema::integer(DAY_MS, 0, YEAR_MS);
        /// How many delivery attempts are kept for each subscription, with the response; 0: none.
        attempts_kept: u64 = KeySchema::integer(200, 0, 1_000);
        /// A subscription whose deliveries have failed for this long is disabled.
        disable_after_ms: u64 = KeySchema::integer(5 * DAY_MS, 0, YEAR_MS);
    }
}

section! {
    /// Metrics outputs in addition to `/metrics`.
    "metrics." => MetricsConfig {
        /// A StatsD receiver, HOST:PORT; empty: none.
        statsd: String = KeySchema::text("").example("\"127.0.0.1:8125\"");
        /// The prefix of every StatsD name.
        statsd_prefix: String = KeySchema::text("tavern.");
        /// How often metrics are sent to StatsD.
        statsd_ms: u64 = KeySchema::integer(10_000, 100, HOUR_MS);
        /// How often the metrics are logged; 0: never.
        log_ms: u64 = KeySchema::integer(0, 0, DAY_MS);
    }
}

section! {
    "dashboard." => DashboardConfig {
        /// The header in which an authenticating proxy of trusted_proxies names the user, who then needs no API key. The proxy must
        /// remove it from what it receives. Empty: none.
        proxy_header: String = KeySchema::text("").example("\"X-Forwarded-User\"");
        /// The scopes of users that the proxy names: publish, events, subscriptions, presence, parties, users, admin.
        proxy_scopes: Vec<String> = KeySchema::list(&[]).example("[\"presence\", \"subscriptions\"]");
        /// Whether keys with the scope admin may watch messages and commands live. Each opening is in the audit trail.
        traffic: bool = KeySchema::flag(true);
    }
}

section! {
    "parties." => PartiesConfig {
        /// The maximum number of members in a party.
        max_members: usize = KeySchema::integer(5, 2, 64);
        /// How long an invite is valid.
        invite_ms: u64 = KeySchema::integer(MINUTE_MS, 1, DAY_MS);
        /// How long members have to send `ready` after `go`.
        gather_ms: u64 = KeySchema::integer(10_000, 1, HOUR_MS);
        /// How long an offline member stays in the party, after the grace period of their presence.
        grace_ms: u64 = KeySchema::integer(30_000, 0, HOUR_MS);
        /// How long a user who declined cannot be invited again.
        reinvite_ms: u64 = KeySchema::integer(30_000, 0, DAY_MS);
        /// Invites that one user may send in a minute.
        invites_per_minute: u32 = KeySchema::integer(20, 1, 100_000);
        /// The maximum number of open invites of one party.
        max_pending: usize = KeySchema::integer(8, 1, 10_000);
        /// How long a user is blocked from party commands after being rate limited ten times in a minute.
        block_ms: u64 = KeySchema::integer(MINUTE_MS, 0, YEAR_MS);
        /// Whether every member must send `ready` before a ticket is created.
        require_ready: bool = KeySchema::flag(false);
        /// The matchmaker's endpoint for tickets; empty: none.
        matchmaker_url: Option<String> =
            KeySchema::new(Type::Link, DefaultValue::Text("")).example("\"https://matchmaker.example/tickets\"");
        /// Signs requests to the matchmaker: whsec_…. Set TAVERN_PARTIES_MATCHMAKER_SECRET instead of writing it here.
        matchmaker_secret: Option<SecretText> = absent(Type::Secret);
    }
}

section! {
    "inbox." => InboxConfig {
        /// The maximum number of messages in the inbox of one user; above it the oldest is dropped.
        messages: usize = KeySchema::integer(256, 1, 1 << 20);
        /// The maximum number of bytes in the inbox of one user.
        bytes: usize = KeySchema::integer(65_536, 256, 1 << 30);
        /// How long messages are kept after the user was last online.
        keep_ms: u64 = KeySchema::integer(10 * MINUTE_MS, 0, YEAR_MS);
    }
}

section! {
    "history." => HistoryConfig {
        /// The maximum number of bytes in the history of all channels; above it, the channels that expire first lose
        /// theirs.
        max_bytes: u64 = KeySchema::integer(1 << 30, 1 << 20, TIB);
    }
}

section! {
    "radar." => RadarConfig {
        /// Whether clients of Radar (npm radar_client) are served at /engine.io/.
        enabled: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
    }
}

section! {
    /// One `[kinds.NAME]`: the channels of a kind. Keys that a kind does not set are inherited from `[kinds.default]`.
    "" => KindConfig {
        /// How long a user whose clients are lost still counts as present.
        grace_ms: u64 = KeySchema::integer(15_000, 0, 600_000);
        /// What happens when the mailbox of a client overflows: it gets a gap event, or its connection is closed.
        slow_reader: SlowReader = KeySchema::choice(SlowReader::WORDS);
        /// How watchers get presence: full, coalesced, counts, or auto by the size of the channel.
        presence_mode: PresenceMode = KeySchema::choice(PresenceMode::WORDS);
        /// The activity that a user in such a channel has in their status.
        activity: String = KeySchema::text("online");
        /// The change that followers get when a user arrives; empty: none.
        arrival_change: String = KeySchema::text("");
        /// The change that followers get when a user leaves; empty: none.
        departure_change: String = KeySchema::text("");
        /// How many messages of each channel are kept; 0: none, and publishing does not wait for the store.
        history_messages: u64 = KeySchema::integer(0, 0, 10_000);
        /// The maximum number of bytes of messages kept for each channel.
        history_bytes: u64 = KeySchema::integer(1 << 20, 1_024, 1 << 28);
        /// How long messages are kept.
        history_ttl_ms: u64 = KeySchema::integer(HOUR_MS, 1_000, YEAR_MS);
        /// The right that reading the history needs: that to subscribe, or the separate right `history`.
        history_right: HistoryRight = KeySchema::choice(HistoryRight::WORDS);
        /// What every client may do there: subscribe, publish, join, presence, history.
        allow: Verbs = KeySchema::list(&[]).in_dev(DefaultValue::List(&["subscribe", "publish", "join", "presence", "history"]));
    }
}

section! {
    /// One `[channels."NAME"]`: settings of one channel; empty: those of its kind.
    "" => ChannelConfig {
        /// The activity that a user in the channel has in their status.
        activity: String = KeySchema::text("");
        /// The change that followers get when a user arrives.
        arrival_change: String = KeySchema::text("");
        /// The change that followers get when a user leaves.
        departure_change: String = KeySchema::text("");
    }
}

impl FromValue for Verbs {
    /// Unknown verbs are reported by `checks`.
    fn from_value(value: Option<ConfigValue>) -> Verbs {
        let words = Vec::<String>::from_value(value);
        words.iter().filter_map(|word| Verb::parse(word)).fold(Verbs::NONE, Verbs::with)
    }
}
