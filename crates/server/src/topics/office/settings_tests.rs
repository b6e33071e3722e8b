//! What becomes of a wish.

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn terms() -> Terms {
    Terms { policy: Policy::default(), rotation_ms: 1_000 }
}

fn begin(json: &str) -> Result<Wanted, Refusal> {
    Wish::parse(json.as_bytes())?.begin("s", &"k".into(), 5, &terms())
}

fn change(before: &SubscriptionSettings, json: &str) -> Result<SubscriptionSettings, Refusal> {
    Ok(Wish::parse(json.as_bytes())?.change(before.clone(), 7, &terms())?.subscription)
}

#[test]
fn a_new_one_has_the_defaults_and_a_secret_that_is_shown() {
    let wanted = begin(r#"{"topics":["b","a","b"],"callback":"https://example.com/x"}"#).unwrap();
    let subscription = &wanted.subscription;
    assert_eq!(subscription.topics, ["b".into(), "a".into()], "each once, as they were named");
    assert_eq!((subscription.timeout_ms, subscription.max_events), (500, 100));
    assert_eq!((subscription.max_bytes, subscription.concurrency), (1 << 20, 1));
    assert_eq!(wanted.made_secret.as_deref(), Some(subscription.secrets[0].text.as_str()));
    let given = format!(r#"{{"topics":[],"pull":true,"secret":"{SECRET}"}}"#);
    assert!(begin(&given).unwrap().made_secret.is_none());
}

#[test]
fn what_is_omitted_or_null_stays() {
    let before = begin(
        r#"{"topics":["a"],"callback":"https://example.com/x","timeout_ms":7,"max_events":3,
            "headers":{"x-a":"1"},"uuid":"me","format":"routemaster","concurrency":2}"#,
    );
    let before = before.unwrap().subscription;
    assert_eq!(change(&before, "{}").unwrap(), before);
    let nulls =
        r#"{"topics":null,"callback":null,"timeout_ms":null,"headers":null,"secret":null,"pull":null}"#;
    assert_eq!(change(&before, nulls).unwrap(), before);
    let bounded = change(&before, r#"{"max_backlog_bytes":70000}"#).unwrap();
    assert_eq!(bounded, SubscriptionSettings { max_backlog_bytes: 70_000, ..before.clone() });
    assert_eq!(change(&bounded, "{}").unwrap(), bounded);
    assert_eq!(change(&bounded, r#"{"max_backlog_bytes":0}"#).unwrap(), before);
    let after = change(&before, r#"{"topics":["c"],"max_bytes":2048}"#).unwrap();
    assert_eq!(after, SubscriptionSettings { topics: vec!["c".into()], max_bytes: 2048, ..before });
}

#[test]
fn what_is_wrong_is_told() {
    let before = begin(r#"{"topics":["a"],"callback":"https://example.com/x"}"#).unwrap().subscription;
    for (json, words) in [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        (r#"{"topic":["a"]}"#, "unknown field `topic`"),
        (r#"{"topics":["A"]}"#, "no topic"),
        (r#"{"topics":["tavern.secrets"]}"#, "the server has no topic"),
        (r#"{"callback":"ftp://example.com/"}"#, "`callback`"),
        (r#"{"callback":"http://example.com/"}"#, "https://"),
        (r#"{"callback":"https://a:b@example.com/"}"#, "user or password"),
        (r#"{"callback":"https://127.0.0.1/"}"#, "is not allowed"),
        (r#"{"callback":"https://169.254.169.254/"}"#, "is not allowed"),
        (r#"{"timeout_ms":3600001}"#, "0 to 3600000"),
        (r#"{"max_events":0}"#, "1 to 10000"),
        (r#"{"max_bytes":1023}"#, "1024 to 16777216"),
        (r#"{"max_backlog_bytes":65535}"#, "65536 to"),
        (r#"{"concurrency":17}"#, "1 to 16"),
        (r#"{"format":"xml"}"#, "unknown variant"),
        (r#"{"secret":"hush"}"#, "`secret`"),
        (r#"{"uuid":"a:b"}"#, "`uuid`"),
        (r#"{"headers":{"host":"x"}}"#, "set by the server"),
        (r#"{"headers":{"Webhook-Id":"x"}}"#, "set by the server"),
        (r#"{"headers":{"content-type":"x"}}"#, "set by the server"),
        (r#"{"headers":{"a b":"x"}}"#, "no name of a header"),
        (r#"{"headers":{"a":"x\ny"}}"#, "control character"),
        (r#"{"headers":{"A":"x","a":"y"}}"#, "given twice"),
    ] {
        let refused = change(&before, json).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest, "{json}");
        assert!(refused.message.contains(words), "{json}: {}", refused.message);
        assert!(!refused.message.contains("hush"));
    }
    assert!(begin(r#"{"callback":"https://example.com/x"}"#).err().unwrap().message.contains("`topics`"));
    assert!(begin(r#"{"topics":["a"]}"#).err().unwrap().message.contains("`callback`"));
}

#[test]
fn an_old_secret_signs_along_for_a_while() {
    let before = begin(&format!(r#"{{"topics":[],"pull":true,"secret":"{SECRET}"}}"#)).unwrap().subscription;
    let again = change(&before, &format!(r#"{{"secret":"{SECRET}"}}"#)).unwrap();
    assert_eq!(again, before, "the same one is no new one");
    let after = change(&before, &format!(r#"{{"secret":"{OTHER}"}}"#)).unwrap();
    let secret = |text: &str, until| SigningSecretRecord { text: text.into(), until };
    assert_eq!(after.secrets, [secret(OTHER, None), secret(SECRET, Some(1_007))]);
}
