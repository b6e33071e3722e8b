//! The tables that are given as lists: `[[tokens.keys]]`, and `[[pusher.apps]]` with its `[[pusher.apps.webhooks]]`.

use super::schema::{DefaultValue, Key, KeySchema, Type};
use super::sections::{ConfigSection, absent, section};
use super::values::FromValue;
use super::{ConfigValue, SecretText};
use std::path::PathBuf;

/// The most tables of one list.
pub const TABLES_MAX: usize = 32;
/// The most webhooks of one app.
pub const WEBHOOKS_MAX: usize = 8;

section! {
    /// One `[[tokens.keys]]`: a key, or a set of keys, whose tokens are accepted in addition to those signed with the secret.
    "" => TokenKeyConfig {
        /// The signature algorithm. With jwks_url it may be left out: each key of the set has its own.
        algorithm: String = absent(Type::Choice(&[
            "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "HS256",
        ]));
        /// The public key, PEM; for HS256 the secret, without the line break at its end.
        file: PathBuf = absent(Type::Text);
        /// Accept only tokens with this key id; by default any.
        kid: Option<String> = absent(Type::Text);
        /// The address of a key set (JWKS) instead of a file. It is read every five minutes, and when a token names an
        /// unknown key id.
        jwks_url: Option<String> = absent(Type::Link);
        /// Whether jwks_url may be http:// or a private address.
        jwks_private: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
    }
}

section! {
    /// One `[[pusher.apps]]`: an app whose clients speak the Pusher protocol.
    "" => PusherAppConfig {
        /// The id of the app: 1 to 16 lower-case letters, digits and _. Some libraries want a number. Its channels are of the
        /// kinds pusher-ID, pusher-ID-cache and pusher-ID-user; pusher-ID-occupied shows which of them have subscriptions.
        id: String = absent(Type::Text);
        /// The public key, which clients name.
        key: String = absent(Type::Text);
        /// Signs and checks. Set TAVERN_PUSHER_APPS_0_SECRET instead, or secret_file.
        secret: Option<SecretText> = absent(Type::Secret);
        /// Also accepted, while `secret` is being replaced; it signs nothing.
        former_secret: Option<SecretText> = absent(Type::Secret);
        /// A file with the secrets instead, one in each line. The first one signs, all of them are accepted.
        secret_file: PathBuf = absent(Type::Text);
        /// Whether clients may send events to each other (client-…).
        client_events: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
        /// Whether a connection is closed when it has neither signed in nor subscribed with a signature within 30 s.
        user_authentication: bool = KeySchema::flag(false);
        /// Whether subscriptions are counted: for pusher:subscription_count, the webhook of that name, and the HTTP API.
        subscription_count: bool = KeySchema::flag(false).in_dev(DefaultValue::Flag(true));
    }
}

/// An app and its webhooks.
#[derive(Clone)]
pub struct PusherAppTable {
    pub app: PusherAppConfig,
    pub webhooks: Vec<PusherWebhookConfig>,
}

section! {
    /// One `[[pusher.apps.webhooks]]`: where events of the app are posted.
    "" => PusherWebhookConfig {
        /// The address. http:// needs events.allow_http, a private one events.allow_private.
        url: String = absent(Type::Link);
        /// Which events: channel_occupied, channel_vacated, member_added, member_removed, client_event, cache_miss,
        /// subscription_count.
        events: Vec<String> = KeySchema::list(&[]);
        /// Only events of channels whose names begin like this.
        channel_prefix: String = KeySchema::text("");
    }
}
