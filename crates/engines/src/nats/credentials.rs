//! A NATS credentials file: the identity of the node (a JWT), and the seed of the key that proves it by signing the
//! server's nonce. Must hold: neither is ever shown.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::Ed25519KeyPair;

pub struct Credentials {
    pub jwt: String,
    key: Ed25519KeyPair,
}

/// Two bytes of kind, the seed, two bytes of checksum.
const SEED: usize = 32;
const SEALED: usize = 2 + SEED + 2;

impl Credentials {
    pub fn parse(text: &str) -> Option<Credentials> {
        let jwt = section(text, "NATS USER JWT")?;
        let sealed = base32(section(text, "USER NKEY SEED")?)?;
        if sealed.len() != SEALED || checksum(&sealed[..SEALED - 2]).to_le_bytes() != sealed[SEALED - 2..] {
            return None;
        }
        let key = Ed25519KeyPair::from_seed_unchecked(&sealed[2..2 + SEED]).ok()?;
        Some(Credentials { jwt: jwt.to_owned(), key })
    }

    pub fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(nonce.as_bytes()))
    }
}

/// The line after `-----BEGIN name-----`. The dashes differ between tools.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("---") && line.trim_matches('-') == format!("BEGIN {name}"))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with("---"))
}

fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut held, mut decoded) = (0u32, 0, Vec::new());
    for byte in text.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(digit);
        held += 5;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(decoded)
}

/// CRC-16/XMODEM.
fn checksum(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, &byte| {
        (0..8).fold(
            sum ^ u16::from(byte) << 8,
            |sum, _| {
                if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // A seed with a valid checksum; it gives access to nothing.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

    fn file(seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\nheader.claims.sig\n------END NATS USER JWT------\n\n\
             **** IMPORTANT ****\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    #[test]
    fn a_credentials_file_signs_the_nonce() {
        let credentials = Credentials::parse(&file(SEED)).expect("a good file");
        assert_eq!(credentials.jwt, "header.claims.sig");
        assert_eq!(URL_SAFE_NO_PAD.decode(credentials.sign("nonce")).unwrap().len(), 64);
    }

    #[test]
    fn a_seed_with_a_wrong_character_is_refused() {
        assert_eq!(checksum(b"123456789"), 0x31C3);
        assert!(Credentials::parse(&file(&SEED.replace("SSL3", "SSL4"))).is_none());
        assert!(Credentials::parse(&file("")).is_none());
        assert!(Credentials::parse("").is_none());
    }
}
