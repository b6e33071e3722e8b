//! Which tokens are accepted.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

const NOW: Time = Time(1_800_000_000_000);

fn secret() -> SecretText {
    SecretText::new("0123456789abcdef0123456789abcdef")
}

fn signed(algorithm: Algorithm, key: &str, claims: &Value) -> String {
    let hash = match algorithm {
        Algorithm::HS384 => hmac::HMAC_SHA384,
        Algorithm::HS512 => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let key = hmac::Key::new(hash, key.as_bytes());
    token(&Header::new(algorithm), claims, |message| hmac::sign(&key, message).as_ref().to_vec())
}

fn token(header: &Header, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let parts = [serde_json::to_vec(header).unwrap(), serde_json::to_vec(claims).unwrap()];
    let message = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(sign(message.as_bytes())))
}

fn verify(claims: Value) -> Result<Identity, AuthError> {
    let token = signed(Algorithm::HS256, secret().expose(), &claims);
    Verifier::from_secret(&secret()).verify(&token, LoginTime::at(NOW))
}

fn unsigned(header: &str, claims: &str, signature: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{signature}", encode(header), encode(claims))
}

const EXP: u64 = 1_800_000_060;

#[test]
fn a_valid_token_gives_user_and_rights() {
    let identity = verify(json!({
        "sub": "ann", "name": "Ann", "exp": EXP, "iss": "somebody", "aud": "else",
        "allow": {"game#*": ["subscribe", "join"], "lobby": ["publish"]},
    }))
    .unwrap();
    assert_eq!(identity.user.as_deref(), Some("ann"));
    assert_eq!(identity.name.as_deref(), Some("Ann"));
    assert_eq!(identity.expires, Time(EXP * 1_000));
    assert!(!identity.unlimited && identity.scopes.is_empty());
    assert!(identity.rights.allows(Verb::Join, b"game#1"));
    assert!(!identity.rights.allows(Verb::Publish, b"game#1"));
    assert!(identity.rights.allows(Verb::Publish, b"lobby"));
}

#[test]
fn a_token_may_say_when_it_was_issued() {
    assert_eq!(verify(json!({"exp": EXP})).unwrap().issued_s, 0);
    let issued = verify(json!({"exp": EXP, "iat": 1_700_000_000.5})).unwrap().issued_s;
    assert_eq!(issued, 1_700_000_000);
    assert!(verify(json!({"exp": EXP, "iat": -1})).is_err());
}

#[test]
fn a_token_without_sub_is_anonymous() {
    let identity = verify(json!({"exp": EXP})).unwrap();
    assert_eq!((identity.user, identity.name), (None, None));
    assert_eq!(*identity.rights, Rights::default());
}

#[test]
fn a_token_expires_at_exactly_its_exp() {
    let token = signed(Algorithm::HS256, secret().expose(), &json!({"exp": EXP}));
    let verifier = Verifier::from_secret(&secret());
    assert!(verifier.verify(&token, LoginTime::at(Time(EXP * 1_000 - 1))).is_ok());
    assert_eq!(verifier.verify(&token, LoginTime::at(Time(EXP * 1_000))), Err(AuthError::Expired));
    assert_eq!(verify(json!({"exp": 1_800_000_000.5})).unwrap().expires, Time(1_800_000_000_500));
    assert_eq!(verify(json!({"sub": "ann"})), Err(AuthError::NoExpiry));
    assert!(verify(json!({"exp": "soon"})).is_err());
    assert!(verify(json!({"exp": -5})).is_err());
    assert_eq!(verify(json!({"exp": u64::MAX})).unwrap().expires, LATEST);
    assert_eq!(verify(json!({"exp": EXP, "nbf": EXP - 1})), Err(AuthError::NotYet));
    assert!(verify(json!({"exp": EXP, "nbf": NOW.ms() / 1_000})).is_ok());
}

#[test]
fn a_token_is_judged_by_the_wall_clock_and_ends_by_node_time() {
    let token = signed(Algorithm::HS256, secret().expose(), &json!({"exp": EXP, "nbf": EXP - 60}));
    let verifier = Verifier::from_secret(&secret());
    let exp = Time(EXP * 1_000);
    // Node time is days ahead, or behind: the token is still valid as long as the wall clock says.
    for node in [Time(5), NOW + 8 * 86_400_000] {
        let login = |wall| LoginTime { wall, node, leeway_ms: 5_000, max_life_ms: u64::MAX };
        assert_eq!(verifier.verify(&token, login(exp - 10_000)).unwrap().expires, node + 10_000);
        assert_eq!(verifier.verify(&token, login(exp + 4_000)).unwrap().expires, node + 1_000);
        assert_eq!(verifier.verify(&token, login(exp + 5_000)), Err(AuthError::Expired));
        assert!(verifier.verify(&token, login(exp - 65_000)).is_ok());
        assert_eq!(verifier.verify(&token, login(exp - 65_001)), Err(AuthError::NotYet));
    }
}

#[test]
fn a_login_while_the_wall_clock_is_behind_does_not_outlive_the_token() {
    let token = signed(Algorithm::HS256, secret().expose(), &json!({"exp": EXP}));
    let verifier = Verifier::from_secret(&secret());
    let exp = Time(EXP * 1_000);
    let expires = |wall, node| {
        verifier.verify(&token, LoginTime { wall, node, ..LoginTime::at(wall) }).unwrap().expires
    };
    let days = 8 * 86_400_000;
    assert_eq!(expires(exp - 4_000 - days, exp - 4_000), exp, "the wall clock has jumped back");
    assert_eq!(
        expires(exp - 4_000 - days, exp + 1_000),
        exp + 301_000,
        "the clocks disagree about the token"
    );
    assert_eq!(expires(exp - 9_000, exp - 4_000), exp + 5_000, "a small difference is none");
}

#[test]
fn a_token_with_exp_in_milliseconds_is_refused() {
    let day = 86_400_000;
    let token = |exp: u64| signed(Algorithm::HS256, secret().expose(), &json!({"exp": exp}));
    let login = LoginTime { max_life_ms: 400 * day, ..LoginTime::at(NOW) };
    let verify = |exp| Verifier::from_secret(&secret()).verify(&token(exp), login);
    let seconds = NOW.ms() / 1_000;
    assert!(verify(seconds + 400 * 86_400).is_ok());
    let refused = verify(seconds + 401 * 86_400).unwrap_err();
    assert_eq!(refused, AuthError::LivesTooLong { days: 401, max_days: 400 });
    let refused = verify(NOW.ms() + day).unwrap_err().to_string();
    assert!(refused.contains("exp is in seconds") && refused.contains("tokens.max_life_ms"), "{refused}");
}

#[test]
fn a_claim_of_a_wrong_type_is_named() {
    for (claims, expected) in [
        (json!({"exp": EXP, "sub": 7}), "the claim sub must be text"),
        (json!({"exp": EXP, "name": []}), "the claim name must be text"),
        (json!({"exp": "soon"}), "the claim exp must be a number"),
        (json!({"exp": EXP, "nbf": "soon"}), "the claim nbf must be a number"),
        (json!({"exp": EXP, "allow": ["join"]}), "the claim allow must be an object"),
        (json!({"exp": EXP, "allow": {"game#*": "join"}}), "the claim allow must be an object"),
    ] {
        let refused = verify(claims).unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn claims_have_bounds() {
    for claims in [
        json!({"exp": EXP, "sub": ""}),
        json!({"exp": EXP, "sub": "a\nb"}),
        json!({"exp": EXP, "sub": "x".repeat(129)}),
        json!({"exp": EXP, "sub": 7}),
        json!({"exp": EXP, "name": "x".repeat(257)}),
        json!({"exp": EXP, "allow": {"": ["join"]}}),
        json!({"exp": EXP, "allow": {"x".repeat(513): ["join"]}}),
        json!({"exp": EXP, "allow": ["join"]}),
        json!({"exp": EXP, "allow": (0..65).map(|i| (format!("g{i}"), json!(["join"]))).collect::<serde_json::Map<_, _>>()}),
    ] {
        assert!(matches!(verify(claims.clone()), Err(AuthError::Claim(_))), "{claims}");
    }
    assert!(verify(json!({"exp": EXP, "sub": "x".repeat(128)})).is_ok());
    assert_eq!(
        verify(json!({"exp": EXP, "allow": {"game#*": ["fly"]}})),
        Err(AuthError::UnknownVerb("fly".into()))
    );
    let token =
        signed(Algorithm::HS256, secret().expose(), &json!({"exp": EXP, "x": "y".repeat(TOKEN_BYTES)}));
    assert_eq!(Verifier::from_secret(&secret()).verify(&token, LoginTime::at(NOW)), Err(AuthError::TooLong));
}

#[test]
fn the_key_fixes_the_algorithm() {
    let claims = json!({"exp": EXP, "sub": "ann"});
    let verifier = Verifier::from_secret(&secret());
    let check = |token: &str, expected: AuthError| {
        assert_eq!(verifier.verify(token, LoginTime::at(NOW)), Err(expected), "{token}")
    };
    check(&signed(Algorithm::HS384, secret().expose(), &claims), AuthError::Algorithm);
    check(&signed(Algorithm::HS512, secret().expose(), &claims), AuthError::Algorithm);
    check(&signed(Algorithm::HS256, "another secret", &claims), AuthError::Signature);
    check(&unsigned(r#"{"alg":"none"}"#, &claims.to_string(), ""), AuthError::Malformed);
    check(&unsigned(r#"{"alg":"HS256"}"#, &claims.to_string(), ""), AuthError::Signature);
    check(&unsigned(r#"{"alg":"RS256"}"#, &claims.to_string(), "AAAA"), AuthError::Algorithm);
    check(&unsigned(r#"{"alg":"HS256","crit":["exp"]}"#, &claims.to_string(), ""), AuthError::Malformed);
    for text in ["", ".", "..", "a.b", "a.b.c.d", "tvk_a_b", "\u{0}"] {
        check(text, AuthError::Malformed);
    }
}

/// An Ed25519 pair made for this test: the public half as PEM, the private half to sign with.
fn pair() -> (String, Ed25519KeyPair) {
    // Everything before the 32 bytes of a public key for Ed25519.
    const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public = [&PREFIX[..], pair.public_key().as_ref()].concat();
    let body = STANDARD.encode(public);
    (format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"), pair)
}

fn signed_by(pair: &Ed25519KeyPair, header: &Header, claims: &Value) -> String {
    token(header, claims, |message| pair.sign(message).as_ref().to_vec())
}

#[test]
fn a_public_key_is_never_an_hmac_secret() {
    let (pem, private) = pair();
    let claims = json!({"exp": EXP, "sub": "ann"});
    let trusted = TrustedKey::from_pem("EdDSA", pem.as_bytes(), Some("k1".into())).unwrap();
    let verifier = Verifier { keys: vec![trusted], key_sets: Vec::new() };
    let mut header = Header::new(Algorithm::EdDSA);
    let good = signed_by(&private, &header, &claims);
    assert_eq!(verifier.verify(&good, LoginTime::at(NOW)).unwrap().user.as_deref(), Some("ann"));
    header.kid = Some("k2".into());
    let other = signed_by(&private, &header, &claims);
    assert_eq!(verifier.verify(&other, LoginTime::at(NOW)), Err(AuthError::Algorithm));
    // The public key must not be usable as an HMAC secret.
    for key in [pem.as_str(), pem.trim()] {
        let confused = signed(Algorithm::HS256, key, &claims);
        assert_eq!(verifier.verify(&confused, LoginTime::at(NOW)), Err(AuthError::Algorithm));
    }
    assert!(TrustedKey::from_pem("RS256", pem.as_bytes(), None).is_none());
    assert!(TrustedKey::from_pem("HS256", pem.as_bytes(), None).is_none());
}

#[test]
fn a_signed_token_verifies() {
    let claims = TokenClaims { sub: Some("ann".into()), exp: Some(EXP.into()), ..TokenClaims::default() };
    let token = sign(&secret(), &claims).unwrap();
    assert_eq!(
        Verifier::from_secret(&secret()).verify(&token, LoginTime::at(NOW)).unwrap().user.as_deref(),
        Some("ann")
    );
}
