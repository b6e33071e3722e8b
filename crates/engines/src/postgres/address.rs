//! The address of a database: `postgres://user:password@host:port/database?sslmode=…&schema=…&sslrootcert=…`.
//! Must hold: an error never repeats the address, because it may contain a password.

use std::path::PathBuf;
use std::time::Duration;
use tavern_store::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

pub(super) struct PostgresAddress {
    pub config: Config,
    /// The schema of the tables. Clusters with different schemas share a database and nothing else.
    pub schema: String,
    /// Whether the certificate of the server is verified.
    pub verified: bool,
    /// The authorities to trust, instead of the public ones.
    pub roots: Option<PathBuf>,
}

const SCHEMA: &str = "tavern";
const CONNECT: Duration = Duration::from_secs(5);
/// A server that is silent for longer counts as down.
const SILENCE: Duration = Duration::from_secs(5);

impl PostgresAddress {
    pub fn parse(url: &str) -> Result<PostgresAddress, StoreError> {
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut mode, mut roots, mut rest) = (SCHEMA.to_string(), "prefer", None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", name)) => schema = name.to_string(),
                Some(("sslmode", name)) => mode = name,
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(path)),
                _ => rest.push(pair),
            }
        }
        if !is_schema(&schema) {
            return Err(wrong("schema is [a-z_][a-z0-9_]{0,62}"));
        }
        let (ssl, verified) = match mode {
            "disable" => (SslMode::Disable, false),
            "prefer" => (SslMode::Prefer, false),
            "require" => (SslMode::Require, false),
            "verify-full" => (SslMode::Require, true),
            _ => return Err(wrong("sslmode is disable, prefer, require or verify-full")),
        };
        let mark = if rest.is_empty() { "" } else { "?" };
        let parsed = format!("{front}{mark}{}", rest.join("&")).parse();
        let mut config: Config =
            parsed.map_err(|_| wrong("it is postgres://user:password@host:port/database?…"))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("it names no host"));
        }
        config.ssl_mode(ssl);
        if config.get_application_name().is_none() {
            config.application_name("tavern");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        // The library's default is two hours.
        config.keepalives_idle(SILENCE).keepalives_interval(SILENCE).keepalives_retries(2);
        config.tcp_user_timeout(SILENCE);
        Ok(PostgresAddress { config, schema, verified, roots })
    }
}

fn is_schema(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= 63
        && name.bytes().all(inner)
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

fn wrong(what: &'static str) -> StoreError {
    StoreError::Malformed { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_options_are_removed_from_the_address() {
        let url = "postgres://me:hush@db:5433/app?schema=blue&sslmode=verify-full&connect_timeout=3";
        let address = PostgresAddress::parse(url).unwrap();
        assert_eq!((&*address.schema, address.verified), ("blue", true));
        assert_eq!(address.config.get_ports(), [5433]);
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(PostgresAddress::parse("postgresql://db/app").unwrap().schema, "tavern");
    }

    #[test]
    fn a_wrong_address_is_reported_without_its_secrets() {
        for url in [
            "postgres://me:hush@db:port/app",
            "postgres://me:hush@db/app?schema=Blue",
            "postgres://me:hush@db/app?schema=",
            "postgres://me:hush@db/app?sslmode=hush",
            "postgres://me:hush@db/app?hush=1",
        ] {
            let text = PostgresAddress::parse(url).map(drop).unwrap_err().to_string();
            assert!(!text.contains("hush"), "{text}");
        }
    }
}
