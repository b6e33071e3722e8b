//! `tavern token`: signs a token and prints it alone on stdout.

use super::moment::parse_duration;
use super::options::StoreOptions;
use super::print_line;
use crate::auth::{LoginTime, TokenClaims, Verifier, sign};
use crate::config::{SECRET_BYTES, SecretText, dev};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::process::ExitCode;
use tavern_domain::Verb;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct TokenArgs {
    /// The user id; every session of the token belongs to this user
    #[arg(long, required_unless_present = "anonymous")]
    user: Option<String>,
    /// A token without a user
    #[arg(long, conflicts_with = "user")]
    anonymous: bool,
    /// The display name
    #[arg(long)]
    name: Option<String>,
    /// How long the token is valid: 90s, 15m, 1h, 7d
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    ttl: u64,
    /// Rights: PATTERN=VERB,VERB with the verbs subscribe, publish, join, presence, history
    #[arg(long, value_name = "PATTERN=VERBS", value_parser = parse_grant)]
    allow: Vec<(String, Vec<String>)>,
    /// The secret of the server [default: TAVERN_SECRET, the configuration, or that of the dev data folder]
    #[arg(long, value_name = "TEXT")]
    secret: Option<String>,
    #[command(flatten)]
    options: StoreOptions,
}

pub fn run(args: TokenArgs) -> anyhow::Result<ExitCode> {
    let config = args.options.config(args.secret)?;
    let secret = match config.secret.or_else(|| dev::kept_secret(&config.data)) {
        Some(secret) => secret,
        None => bail!(
            "there is no secret to sign with: use --secret or TAVERN_SECRET, or --data with the folder of a \
             `tavern dev` that has run there ({} has no dev-secret)",
            config.data.display()
        ),
    };
    let found = secret.expose().len();
    if found < SECRET_BYTES {
        bail!(
            "the secret has {found} bytes and servers need at least {SECRET_BYTES}: use the secret of the server, or make one with `openssl rand -hex 32`"
        );
    }
    let mut allow: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pattern, verbs) in args.allow {
        allow.entry(pattern).or_default().extend(verbs);
    }
    let max_life_ms = config.tokens.max_life_ms;
    print_line(&make(&secret, args.user, args.name, args.ttl, max_life_ms, allow)?)?;
    Ok(ExitCode::SUCCESS)
}

/// A token that expires `ttl_ms` from now. It is verified, so that a token that servers would refuse is never printed.
pub(super) fn make(
    secret: &SecretText,
    user: Option<String>,
    name: Option<String>,
    ttl_ms: u64,
    max_life_ms: u64,
    allow: BTreeMap<String, Vec<String>>,
) -> anyhow::Result<String> {
    let now = SystemClock.now();
    // `exp` is in seconds: round up.
    let exp = (now + ttl_ms).ms().div_ceil(1_000);
    let allow = (!allow.is_empty()).then_some(allow);
    let iat = Some((now.ms() / 1_000).into());
    let token = sign(secret, &TokenClaims { sub: user, name, exp: Some(exp.into()), nbf: None, iat, allow })?;
    Verifier::from_secret(secret)
        .verify(&token, LoginTime { max_life_ms, leeway_ms: 1_000, ..LoginTime::at(now) })
        .context("servers would refuse this token")?;
    Ok(token)
}

fn parse_grant(text: &str) -> Result<(String, Vec<String>), String> {
    // The last `=`: a pattern may contain one, verbs do not.
    let (pattern, verbs) =
        text.rsplit_once('=').ok_or("write PATTERN=VERB,VERB, such as 'game#*=subscribe'")?;
    let verbs: Vec<String> = verbs.split(',').map(|verb| verb.trim().to_owned()).collect();
    match verbs.iter().find(|verb| Verb::parse(verb).is_none()) {
        Some(verb) => {
            Err(format!("{verb:?} is not a verb; the verbs are subscribe, publish, join, presence, history"))
        }
        None => Ok((pattern.to_owned(), verbs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_a_pattern_and_verbs() {
        let (pattern, verbs) = parse_grant("game#a=b*=subscribe, join").unwrap();
        assert_eq!((pattern.as_str(), verbs.join("+").as_str()), ("game#a=b*", "subscribe+join"));
        for text in ["game#*", "game#*=", "game#*=fly", "=x"] {
            assert!(parse_grant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_that_servers_refuse_are_not_printed() {
        let secret = SecretText::new("0123456789abcdef0123456789abcdef");
        assert!(make(&secret, Some(String::new()), None, 1_000, 2_000, BTreeMap::new()).is_err());
        assert!(make(&secret, Some("ann".into()), None, 1_000, 2_000, BTreeMap::new()).is_ok());
        assert!(make(&secret, Some("ann".into()), None, 5_000, 2_000, BTreeMap::new()).is_err());
    }
}
