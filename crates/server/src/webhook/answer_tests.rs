//! Answers and their outcome.

use super::*;
use http::HeaderValue;
use std::time::UNIX_EPOCH;

/// 2026-11-15T10:08:20Z.
const NOW: Duration = Duration::from_secs(1_794_737_300);

/// A reply without details.
fn plain(outcome: DeliveryOutcome) -> EndpointReply<String> {
    outcome.into()
}

fn reply(
    status: u16,
    headers: &[(http::HeaderName, &str)],
    body: &str,
    end: BodyEnd,
) -> EndpointReply<String> {
    let status = StatusCode::from_u16(status).expect("a status");
    let value = |text: &str| HeaderValue::from_str(text).expect("a value");
    let headers = headers.iter().map(|(name, text)| (name.clone(), value(text))).collect();
    let body = ReadBody { bytes: body.as_bytes().to_vec(), end };
    judge(status, &headers, &body, UNIX_EPOCH + NOW).0
}

#[test]
fn statuses_have_outcomes() {
    for (statuses, expected) in [
        (&[200, 201, 202, 204, 299][..], plain(DeliveryOutcome::Delivered)),
        (&[410], plain(DeliveryOutcome::Gone)),
        (&[413], plain(DeliveryOutcome::TooLarge)),
        (&[429, 503], EndpointReply::throttled(None)),
        (&[400, 401, 403, 404, 408, 422, 451, 499], plain(DeliveryOutcome::Refused)),
        (
            &[101, 199, 300, 301, 302, 303, 304, 307, 308, 399, 500, 502, 504, 599, 600, 999],
            plain(DeliveryOutcome::Failed),
        ),
    ] {
        for status in statuses {
            assert_eq!(reply(*status, &[], "", BodyEnd::Whole), expected, "{status}");
        }
    }
}

#[test]
fn failed_events_are_named_in_json() {
    let failed = |ids: &[&str]| EndpointReply::partly(ids.iter().map(|id| (*id).to_owned()).collect());
    for (body, expected) in [
        (r#"{"failed":["a","b"]}"#, failed(&["a", "b"])),
        (" \n{\"failed\": [\"a\"], \"more\": {\"x\":[1]}}", failed(&["a"])),
        (r#"{"failed":["a",17]}"#, failed(&["a", "17"])),
        (r#"{"failed":[]}"#, plain(DeliveryOutcome::Delivered)),
        (r#"{"failed":null}"#, plain(DeliveryOutcome::Delivered)),
        (r#"{"failed":0}"#, plain(DeliveryOutcome::Delivered)),
        (r#"{"ok":true}"#, plain(DeliveryOutcome::Delivered)),
        (r#"["a"]"#, plain(DeliveryOutcome::Delivered)),
        (r#"{"failed":["a""#, plain(DeliveryOutcome::Delivered)),
        ("ok", plain(DeliveryOutcome::Delivered)),
        ("", plain(DeliveryOutcome::Delivered)),
        (r#"{"failed":[{"id":"a"}]}"#, plain(DeliveryOutcome::Failed)),
        (r#"{"failed":["a",null]}"#, plain(DeliveryOutcome::Failed)),
    ] {
        assert_eq!(reply(200, &[], body, BodyEnd::Whole), expected, "{body}");
    }
    assert_eq!(
        reply(500, &[], r#"{"failed":["a"]}"#, BodyEnd::Whole),
        plain(DeliveryOutcome::Failed),
        "only a 2xx body is read"
    );
}

#[test]
fn truncated_body_loses_no_event() {
    for (body, end, expected) in [
        ("<html>", BodyEnd::Cut, plain(DeliveryOutcome::Delivered)),
        (r#"{"rows":[1,2"#, BodyEnd::Cut, plain(DeliveryOutcome::Delivered)),
        (r#"{"failed":["a","#, BodyEnd::Cut, plain(DeliveryOutcome::Failed)),
        (r#"{"ok":1,"failed" :["a","#, BodyEnd::Cut, plain(DeliveryOutcome::Failed)),
        ("<html>", BodyEnd::Late, plain(DeliveryOutcome::Delivered)),
        ("", BodyEnd::Late, plain(DeliveryOutcome::Failed)),
        (" {", BodyEnd::Late, plain(DeliveryOutcome::Failed)),
        ("<html>", BodyEnd::Broken, plain(DeliveryOutcome::Delivered)),
        ("", BodyEnd::Broken, plain(DeliveryOutcome::Failed)),
        (r#"{"failed":["#, BodyEnd::Broken, plain(DeliveryOutcome::Failed)),
    ] {
        assert_eq!(reply(200, &[], body, end), expected, "{body} {end:?}");
    }
}

#[test]
fn retry_after_is_seconds_or_a_date_and_at_most_an_hour() {
    for (text, after_ms) in [
        ("0", Some(0)),
        ("7", Some(7_000)),
        (" 7 ", Some(7_000)),
        ("3600", Some(3_600_000)),
        ("86400", Some(3_600_000)),
        ("99999999999999999999999", Some(3_600_000)),
        ("Sun, 15 Nov 2026 10:08:50 GMT", Some(30_000)),
        ("Sunday, 15-Nov-26 10:08:50 GMT", Some(30_000)),
        ("Sun Nov 15 10:08:50 2026", Some(30_000)),
        ("Sun, 15 Nov 2026 09:00:00 GMT", Some(0)),
        ("Mon, 16 Nov 2026 10:08:20 GMT", Some(3_600_000)),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
    ] {
        for status in [429, 503] {
            let found = reply(status, &[(RETRY_AFTER, text)], "", BodyEnd::Whole);
            assert_eq!(found, EndpointReply::throttled(after_ms), "{text:?}");
        }
    }
}

#[test]
fn causes_are_one_short_line() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);
    let detail = causes(&Outer(std::io::Error::other(format!("a\nb{}", "ü".repeat(200)))));
    assert!(detail.starts_with("outer: a b") && detail.len() <= DETAIL_BYTES, "{detail}");
}
