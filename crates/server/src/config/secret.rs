//! A secret text: the signing secret, an API key. Must hold: printing never reveals it; comparison takes constant time.

use std::fmt;
use subtle::ConstantTimeEq;

#[derive(Clone)]
pub struct SecretText(Box<str>);

impl SecretText {
    pub fn new(text: impl Into<Box<str>>) -> SecretText {
        SecretText(text.into())
    }

    /// The text itself. Review every use.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl fmt::Display for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// An address without its password: `redis://user:***@host`.
pub fn without_password(link: &str) -> String {
    let link = without_token(link);
    let Some((scheme, rest)) = link.split_once("://") else {
        return link;
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    // The last `@` ends the user part: a password may contain an unescaped one.
    let Some((user, _)) = authority.rsplit_once('@') else {
        return link;
    };
    // A user part without a colon may be a bare access token.
    let name = user.split_once(':').map_or("", |(name, _)| name);
    format!("{scheme}://{name}:***{}", &rest[user.len()..])
}

/// The query of an address may contain a token.
fn without_token(link: &str) -> String {
    let Some((place, options)) = link.split_once('?') else {
        return link.to_owned();
    };
    let shown = options.split('&').map(|option| match option.split_once('=') {
        Some((name, _)) if names_a_secret(name) => format!("{name}=***"),
        _ => option.to_owned(),
    });
    format!("{place}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// Parts of the names of options whose values are secrets, in any spelling.
const SECRETS: [&str; 10] =
    ["secret", "token", "pass", "pwd", "apikey", "nkey", "seed", "jwt", "credential", "signature"];

/// Whether an option of an address holds a secret: `sslpassword`, `api_key`, `access-token`. The path of a file, such as
/// `sslkey`, does not.
fn names_a_secret(name: &str) -> bool {
    // A percent sign may hide a letter.
    if name.contains('%') {
        return true;
    }
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    let is_key = ["key", "auth", "sig"].contains(&plain.as_str());
    is_key || SECRETS.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let secret = SecretText::new("sesame");
        assert!(!format!("{secret:?} {secret}").contains("sesame"));
        assert!(secret.matches("sesame"));
        assert!(!secret.matches("sesam"));
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (link, shown) in [
            ("redis://:pw@host:1/0", "redis://:***@host:1/0"),
            ("postgres://ann:p@w@host/db", "postgres://ann:***@host/db"),
            ("nats://host:4222", "nats://host:4222"),
            ("nats://token@host", "nats://:***@host"),
            ("nats://host?ca=/a&token=t", "nats://host?ca=/a&token=***"),
            ("tls://a:b@host?token=t@u", "tls://a:***@host?token=***"),
            ("postgres://h/db?sslpassword=p&sslkey=/k.pem", "postgres://h/db?sslpassword=***&sslkey=/k.pem"),
            ("https://h/may?secret=s&a=1", "https://h/may?secret=***&a=1"),
            (
                "https://h/may?api_key=s&Api-Key=t&APIKEY=u",
                "https://h/may?api_key=***&Api-Key=***&APIKEY=***",
            ),
            ("nats://h?nkey=SU1&seed=SU2&jwt=e", "nats://h?nkey=***&seed=***&jwt=***"),
            ("redis://h?pass=p&key=k&access_token=t", "redis://h?pass=***&key=***&access_token=***"),
            ("https://h/?to%6Ben=t", "https://h/?to%6Ben=***"),
            ("redis://a:b@h1,c:d@h2", "redis://a:***@h2"),
            ("sqlite:./data", "sqlite:./data"),
            ("http://host/a@b", "http://host/a@b"),
        ] {
            assert_eq!(without_password(link), shown);
        }
    }
}
