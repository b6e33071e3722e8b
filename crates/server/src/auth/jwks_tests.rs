//! Which keys of a key set are used, and for which algorithm.

use super::*;
use serde_json::{Value, json};

const EC_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const EC_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
const ED_X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn rsa(more: Value) -> Value {
    let mut key = json!({"kty": "RSA", "n": "sXchDaQebHnPiGvyDOAT4saGEUetSyo9MKLOoWFsueri23bOdgWp4Dy1WlUzewbgBHod5pcM9H95GQRV3JDXboIRROSBigeC5yjU1hGzHHyXss8UDprecbAYxknTcQkhslANGRUZmdTOQ5qTRsLAt6BTYuyvVRdhS8exSZEy_c4gs_7svlJJQ4H9_NxsiIoLwAEk7-Q3UXERGYw_75IDrGA84-lA_-Ct4eTlXHBIY2EaV7t7LjJaynVJCpkv4LKjTTAumiGUIuQhrNhZLuF_RJLqHpM2kgWFLU7-VTdL1VbC2tejvcI2BlMkEpk1BzBZI0KQB0GaDWFLN-aEAw3vRw", "e": "AQAB"});
    let (Value::Object(key_members), Value::Object(more)) = (&mut key, more) else { panic!("objects") };
    key_members.extend(more);
    key
}

fn ec(curve: &str) -> Value {
    json!({"kty": "EC", "crv": curve, "x": EC_X, "y": EC_Y, "kid": "e"})
}

/// The algorithms and ids of the keys that are taken.
fn taken(keys: Value, only: Option<Algorithm>) -> Vec<(Algorithm, Option<String>)> {
    let body = json!({"keys": keys}).to_string();
    let found = parse(body.as_bytes(), only).unwrap_or_default();
    found.into_iter().map(|key| key.named()).collect()
}

#[test]
fn the_type_of_a_key_fixes_its_algorithm() {
    let named = |algorithm, kid: &str| vec![(algorithm, Some(kid.to_owned()))];
    assert_eq!(taken(json!([rsa(json!({"kid": "a"}))]), None), named(Algorithm::RS256, "a"));
    assert_eq!(
        taken(json!([rsa(json!({"kid": "a", "alg": "PS384"}))]), None),
        named(Algorithm::PS384, "a"),
        "an RSA key may name another one"
    );
    assert_eq!(
        taken(json!([rsa(json!({"kid": "a"}))]), Some(Algorithm::RS512)),
        named(Algorithm::RS512, "a")
    );
    assert_eq!(taken(json!([ec("P-256")]), None), named(Algorithm::ES256, "e"));
    let ed = json!({"kty": "OKP", "crv": "Ed25519", "x": ED_X});
    assert_eq!(taken(json!([ed]), None), [(Algorithm::EdDSA, None)]);
}

#[test]
fn keys_for_other_purposes_are_left_out() {
    for key in [
        json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "AKP", "alg": "ML-DSA-44"}),
        rsa(json!({"use": "enc"})),
        rsa(json!({"alg": "RSA-OAEP"})),
        rsa(json!({"alg": "HS256"})),
        rsa(json!({"alg": "none"})),
        rsa(json!({"alg": "ES256"})),
        rsa(json!({"kid": "x".repeat(KID_BYTES + 1)})),
        ec("secp256k1"),
        json!({"kty": "EC", "crv": "P-256", "x": "!", "y": EC_Y}),
        json!("key"),
        json!(7),
    ] {
        assert_eq!(taken(json!([key]), None), [], "{key}");
        let with_good = taken(json!([key, rsa(json!({}))]), None);
        assert_eq!(with_good.len(), 1, "the others are used: {key}");
    }
    assert_eq!(taken(json!([ec("P-256")]), Some(Algorithm::RS256)), []);
}

#[test]
fn an_answer_is_bounded_and_must_hold_keys() {
    let many: Vec<Value> = (0..KEYS_MAX + 9).map(|n| rsa(json!({"kid": n.to_string()}))).collect();
    assert_eq!(taken(json!(many), None).len(), KEYS_MAX);
    for body in ["", "[]", "{}", r#"{"keys":{}}"#, "<html>", "null"] {
        assert!(matches!(parse(body.as_bytes(), None), Err(JwksError::Malformed)), "{body}");
    }
    assert!(matches!(parse(br#"{"keys":[]}"#, None), Err(JwksError::NoKey)));
}

#[test]
fn an_address_is_checked_before_it_is_dialled() {
    let refused = |url: &str, private| JwksCache::new(url, private, None).is_err();
    assert!(!refused("https://id.example/jwks", false));
    assert!(refused("http://id.example/jwks", false) && !refused("http://id.example/jwks", true));
    assert!(refused("https://127.0.0.1/jwks", false) && !refused("https://127.0.0.1/jwks", true));
    assert!(refused("file:///etc/passwd", true) && refused("https://a:b@id.example/", true));
}

#[tokio::test]
async fn keys_are_read_once_in_an_interval() {
    let cache = JwksCache::new("http://127.0.0.1:9/jwks", true, None).unwrap();
    assert!(cache.may_refresh());
    cache.refresh().await;
    assert!(!cache.may_refresh() && cache.keys().is_empty());
    cache.refresh().await;
}
