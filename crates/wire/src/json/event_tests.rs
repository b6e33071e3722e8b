//! Tests of `event`.

use super::*;

fn body(event: &PublishedEvent) -> &str {
    std::str::from_utf8(&event.body).unwrap()
}

#[test]
fn one_event_or_a_list_of_them() {
    let one =
        parse_events(br#" {"type":"create","id":"a","url":"http://x/1","data":{"b": 1},"time":7}"#, 9, None)
            .unwrap();
    assert_eq!(one[0].id.as_deref(), Some("a"));
    assert_eq!(body(&one[0]), r#"{"type":"create","url":"http://x/1","time":7,"data":{"b": 1}}"#);
    let dated = parse_events(br#"{"type":"x","time":"1970-01-01T00:00:01Z"}"#, 9, None).unwrap();
    assert_eq!(body(&dated[0]), r#"{"type":"x","url":null,"time":1000,"data":null}"#);
    let two = parse_events(br#"[{"type":"x"},{"type":"y","data":null,"id":null}]"#, 9, None).unwrap();
    assert_eq!(body(&two[0]), r#"{"type":"x","url":null,"time":9,"data":null}"#);
    assert_eq!((two.len(), &two[1].id), (2, &None));
}

#[test]
fn a_batch_for_pusher_has_the_data_and_the_last_time() {
    let bodies: Vec<Vec<u8>> =
        (1..3).map(|n| stored("x", None, n, &format!("{{\"name\":\"e{n}\"}}"))).collect();
    let event =
        |n: usize| BatchEntry::Event(BatchEvent { seq: n as u64, id: "", topic: "t", body: &bodies[n - 1] });
    let batch =
        |pieces: &[BatchEntry<'_>]| String::from_utf8(BatchFormat::Pusher.batch("s", pieces)).unwrap();
    let gap = BatchEntry::Gap { first: 3, last: 4 };
    let expected = r#"{"time_ms":2,"events":[{"name":"e1"},{"name":"e2"}]}"#;
    assert_eq!(batch(&[event(1), event(2), gap]), expected);
    assert_eq!(batch(&[gap]), r#"{"time_ms":0,"events":[]}"#);
    let sizes = bodies.iter().map(|body| BatchFormat::Pusher.bytes_of("", "t", body)).sum::<usize>();
    assert!(expected.len() <= sizes + BatchFormat::Pusher.envelope_bytes("s"));
}

#[test]
fn an_event_has_the_trace_of_its_request() {
    let trace = TraceContext { trace_id: 10, span_id: 11, sampled: true };
    let sent = br#"{"type":",\"data\":","url":",\"traceparent\":\"x","data":{"traceparent":"y"}}"#;
    let traced = parse_events(sent, 9, Some(trace)).unwrap();
    assert_eq!(trace_of(&traced[0].body), Some(trace));
    assert!(body(&traced[0]).contains(r#""time":9,"traceparent":"00-0000"#));
    assert_eq!(trace_of(&parse_events(sent, 9, None).unwrap()[0].body), None);
    assert_eq!(trace_of(b"{}"), None);
}

#[test]
fn an_invalid_event_is_refused_with_the_reason() {
    let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(65));
    let large = format!(r#"[{{"type":"x"}},{{"type":"x","data":"{}"}}]"#, "x".repeat(DATA_BYTES));
    let many = format!("[{}]", vec![r#"{"type":"x"}"#; LIST_MAX + 1].join(","));
    for (json, expected) in [
        ("", "object"),
        ("[]", "1 to 1000"),
        ("{}", "`type` is missing"),
        (r#"{"type":""}"#, "`type` must not be empty"),
        (r#"{"type":5}"#, "`type` must be a string"),
        (r#"{"type":"x","id":""}"#, "`id`"),
        (r#"{"type":"x","id":"idempotency-key:1"}"#, "`id`"),
        (r#"{"type":"x","id":"idempotency-key:a:b:0"}"#, "`id`"),
        (r#"{"type":"x","time":"now"}"#, "`time`"),
        (r#"[{"type":"x"},5]"#, "event 1 of the list"),
        (&long, "`type` has 65 bytes"),
        (&large, "event 1 of the list: `data` has"),
        (&many, "this one has 1001"),
    ] {
        let refused = parse_events(json.as_bytes(), 0, None).unwrap_err();
        assert!(refused.message.contains(expected), "{json:.60}: {}", refused.message);
    }
}

#[test]
fn subscribers_do_not_see_ids_made_from_idempotency_keys() {
    let shown = |past_events, id| shown_id(Some(&stored_id(past_events, id)), 7, 255).into_owned();
    assert_eq!(shown_id(None, 7, 255), "evt-7-ff");
    for past_events in [0, 9, u64::MAX] {
        for id in ["a", "evt-7-ff", "3:a", ":"] {
            assert_eq!(shown(past_events, id), id, "{past_events}");
        }
        assert_eq!(shown(past_events, "idempotency-key:k:x:0"), "evt-7-ff");
        assert!(stored_id(past_events, "").len() <= SCOPE_BYTES);
    }
}

#[test]
fn a_gap_names_the_missing_events() {
    let mut out = Vec::new();
    gap_entry(&mut out, 3, 9);
    let gap: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&gap["seq"], &gap["type"]), (&3.into(), &GAP.into()));
    assert_eq!(gap["data"], serde_json::json!({"first_seq": 3, "last_seq": 9}));
}

#[test]
fn batches_in_both_formats() {
    let kept = stored("update", Some("http://x/\"1\""), 5, r#"{"a":[1]}"#);
    let bare = stored("noop", None, 6, "null");
    let events = [
        BatchEvent { seq: 3, id: "a\"b", topic: "orders", body: &kept },
        BatchEvent { seq: 4, id: "evt-9", topic: "users", body: &bare },
    ];
    let pieces =
        [BatchEntry::Event(events[0]), BatchEntry::Event(events[1]), BatchEntry::Gap { first: 5, last: 9 }];
    let standard = String::from_utf8(BatchFormat::Standard.batch("mine", &pieces)).unwrap();
    assert_eq!(
        standard,
        concat!(
            r#"{"subscription":"mine","first_seq":3,"last_seq":9,"events":["#,
            r#"{"seq":3,"id":"a\"b","topic":"orders","type":"update","url":"http://x/\"1\"","time":5,"data":{"a":[1]}},"#,
            r#"{"seq":4,"id":"evt-9","topic":"users","type":"noop","url":null,"time":6,"data":null},"#,
            r#"{"seq":5,"type":"tavern.gap","data":{"first_seq":5,"last_seq":9}}]}"#
        )
    );
    let classic = String::from_utf8(BatchFormat::Routemaster.batch("mine", &pieces)).unwrap();
    assert_eq!(
        classic,
        concat!(
            r#"[{"topic":"orders","type":"update","url":"http://x/\"1\"","t":5,"data":{"a":[1]}},"#,
            r#"{"topic":"users","type":"noop","url":null,"t":6},"#,
            r#"{"topic":"tavern.gap","type":"noop","data":{"first_seq":5,"last_seq":9}}]"#
        )
    );
    for (format, text) in [(BatchFormat::Standard, standard), (BatchFormat::Routemaster, classic)] {
        let max: usize = events.iter().map(|event| format.bytes_of(event.id, event.topic, event.body)).sum();
        assert!(text.len() <= max + 192 + format.envelope_bytes("mine"), "{format:?}");
    }
}
