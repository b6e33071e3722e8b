//! Every op is parsed, and an error names the field.

use super::*;
use crate::error::Code;

fn check(frame: &str, id: Option<&str>, op: Op<'_>) {
    let command = ParsedCommand { id: id.map(Cow::Borrowed), op };
    assert_eq!(parse_request(frame.as_bytes()), Ok(command.clone()), "{frame}");
    assert_eq!(command.clone().into_owned(), command, "{frame}");
}

fn check_bad(frame: impl AsRef<[u8]>, id: Option<&str>, expected: &str) {
    let shown = String::from_utf8_lossy(frame.as_ref());
    let bad = parse_request(frame.as_ref()).expect_err(&shown);
    assert_eq!(bad.id.as_deref(), id, "{shown}");
    assert_eq!(bad.refusal.code, Code::BadRequest, "{shown}");
    assert!(bad.refusal.message.contains(expected), "{shown}: {}", bad.refusal.message);
}

#[test]
fn every_op_is_parsed() {
    let channel = || SubscribeTarget::Channel("game#A".into());
    check(
        r#"{"id":7,"op":"subscribe","channel":"game#A","presence":true}"#,
        Some("7"),
        Op::Subscribe(SubscribeRequest { target: channel(), presence: true, since: None, last: None }),
    );
    check(
        r#"{"op":"subscribe","channel":"game#A","since":{"epoch":7,"offset":9},"last":5}"#,
        None,
        Op::Subscribe(SubscribeRequest {
            target: channel(),
            presence: false,
            since: Some(HistoryPosition { epoch: 7, offset: 9 }),
            last: Some(5),
        }),
    );
    check(
        r#"{"op":"history","channel":"game#A","after":3,"before":9,"limit":5}"#,
        None,
        Op::History(HistoryRequest {
            channel: "game#A".into(),
            after: Some(3),
            before: Some(9),
            limit: Some(5),
        }),
    );
    check(
        r#"{"op":"publish","channel":"game#A","data":1,"message_id":"m","retain":true}"#,
        None,
        Op::Publish(PublishRequest {
            channel: "game#A".into(),
            data: "1".into(),
            message_id: Some("m".into()),
            retain: true,
        }),
    );
    check(
        r#"{"op":"subscribe","pattern":"game#*","presence":null}"#,
        None,
        Op::Subscribe(SubscribeRequest {
            target: SubscribeTarget::Pattern("game#*".into()),
            presence: false,
            since: None,
            last: None,
        }),
    );
    check(r#"{"id":"x","op":"unsubscribe","channel":"game#A"}"#, Some("\"x\""), Op::Unsubscribe(channel()));
    check(
        r#"{"op":"publish","channel":"game#A","data":{"id":1, "op":[]}}"#,
        None,
        Op::Publish(PublishRequest {
            channel: "game#A".into(),
            data: r#"{"id":1, "op":[]}"#.into(),
            message_id: None,
            retain: false,
        }),
    );
    check(
        r#"{"op":"join","channel":"game#A","state":{"x": 1}}"#,
        None,
        Op::Join(JoinRequest { channel: "game#A".into(), state: Some(r#"{"x": 1}"#.into()) }),
    );
    check(
        r#"{"op":"join","channel":"game#A"}"#,
        None,
        Op::Join(JoinRequest { channel: "game#A".into(), state: None }),
    );
    check(
        r#"{"op":"update","channel":"game#A","state":null}"#,
        None,
        Op::Update(UpdateRequest { channel: "game#A".into(), state: "null".into() }),
    );
    check(r#"{"op":"leave","channel":"game#A"}"#, None, Op::Leave { channel: "game#A".into() });
    check(
        r#"{"op":"who","channel":"game#A","counts_only":true,"after":"bob","limit":5}"#,
        None,
        Op::Who(WhoRequest {
            channel: "game#A".into(),
            counts_only: true,
            after: Some("bob".into()),
            limit: Some(5),
        }),
    );
    check(r#"{"op":"follow","user":"bob"}"#, None, Op::Follow { user: "bob".into() });
    check(r#"{"op":"unfollow","user":"b\u006fb"}"#, None, Op::Unfollow { user: "bob".into() });
    let part = PageRequest { after: Some("bob".into()), limit: Some(5) };
    check(r#"{"op":"following","after":"bob","limit":5}"#, None, Op::Following(part));
    check(r#"{"op":"followers"}"#, None, Op::Followers(PageRequest { after: None, limit: None }));
    let users = vec!["ann".into(), "b\"b".into()];
    check(r#"{"op":"status","users":["ann","b\"b"]}"#, None, Op::Status { users });
    check(r#"{"op":"visibility","value":"nobody"}"#, None, Op::Visibility { value: Visibility::Nobody });
    check(r#"{"op":"ack","seq":18}"#, None, Op::Ack { seq: 18 });
    check(
        r#"{"op":"hello","token":"t","session":"s","seq":3,"status":true}"#,
        None,
        Op::Hello(HelloRequest {
            token: Some("t".into()),
            session: Some("s".into()),
            seq: Some(3),
            status: true,
        }),
    );
    check(r#"{"op":"hello"}"#, None, Op::Hello(HelloRequest::default()));
    check(r#"{"op":"bye"}"#, None, Op::Bye);
    check(r#"{"op":"ping"}"#, None, Op::Ping);
}

#[test]
fn limit_of_a_list_is_within_its_bounds() {
    for op in [r#""op":"who","channel":"game#A""#, r#""op":"following""#, r#""op":"followers""#] {
        let refusal = |limit: &str| {
            let frame = format!(r#"{{{op},"limit":{limit}}}"#);
            parse_request(frame.as_bytes()).err().map(|bad| bad.refusal.message.into_owned())
        };
        assert_eq!((refusal("1"), refusal("1000")), (None, None), "{op}");
        for limit in ["0", "1001"] {
            let expected = format!("the field `limit` must be an integer from 1 to 1000, not {limit}");
            assert_eq!(refusal(limit), Some(expected), "{op}");
        }
    }
}

#[test]
fn each_listed_op_is_known() {
    for op in OPS {
        if let Err(bad) = parse_request(format!(r#"{{"op":"{op}"}}"#).as_bytes()) {
            assert!(bad.refusal.message.contains("missing"), "{op}: {}", bad.refusal);
        }
    }
}

#[test]
fn an_unknown_member_is_refused_with_the_one_that_was_meant() {
    for (frame, message) in [
        (
            r#"{"id":7,"op":"subscribe","channel":"a","presense":true}"#,
            "unknown field `presense`; did you mean `presence`?",
        ),
        (r#"{"id":7,"op":"ping","colour":1}"#, "unknown field `colour`"),
        (
            r#"{"id":7,"op":"subscribe","channel":"a","since":{"epoch":1,"ofset":2}}"#,
            "the field `since` must be",
        ),
    ] {
        let bad = parse_request(frame.as_bytes()).unwrap_err();
        assert!(bad.refusal.message.starts_with(message), "{}", bad.refusal.message);
        assert_eq!(bad.id.as_deref(), Some("7"));
    }
}

#[test]
fn order_and_spaces_do_not_matter() {
    check("\t{\n\"seq\" : 1 ,\"op\":\"ack\",\"id\":-1.5e3}\r\n", Some("-1.5e3"), Op::Ack { seq: 1 });
    check(r#"{"\u006fp":"p\u0069ng","id":null}"#, None, Op::Ping);
}

#[test]
fn strings_borrow_unless_they_have_escapes() {
    let read = |frame: &'static str| match parse_request(frame.as_bytes()).unwrap().op {
        Op::Publish(publish) => publish.channel,
        other => panic!("{other:?}"),
    };
    assert!(matches!(read(r#"{"op":"publish","channel":"käse","data":1}"#), Cow::Borrowed("käse")));
    assert!(
        matches!(read(r#"{"op":"publish","channel":"a\n","data":1}"#), Cow::Owned(text) if text == "a\n")
    );
}

#[test]
fn data_keeps_its_bytes() {
    for data in ["null", "1.00", "\"\\u0041\\/\"", "[ 1 ,\t2 ]", "{\"a\":1,\"a\":2}", "18446744073709551616"]
    {
        let frame = format!(r#"{{"data":  {data}  ,"op":"publish","channel":"c"}}"#);
        let expected = Op::Publish(PublishRequest {
            channel: "c".into(),
            data: data.into(),
            message_id: None,
            retain: false,
        });
        assert_eq!(parse_request(frame.as_bytes()).unwrap().op, expected);
    }
}

#[test]
fn invalid_frames_are_refused_under_their_id() {
    check_bad(r#"{"id":1,"op":"subscribe","channel":"c","since":5}"#, Some("1"), "`since`");
    check_bad(r#"{"id":1,"op":"subscribe","channel":"c","since":{"epoch":1}}"#, Some("1"), "since.offset");
    check_bad("", None, "object");
    check_bad("[]", None, "object");
    check_bad("null", None, "object");
    check_bad("\"op\"", None, "object");
    check_bad(r#"[7,"ping"]"#, None, "object");
    check_bad(r#"{"id":7,"op":"ping""#, Some("7"), "not valid JSON");
    check_bad(r#"{"id":7,"op":"ping"}}"#, Some("7"), "not valid JSON");
    check_bad(r#"{"id":7,"op":"ping"}{"op":"bye"}"#, Some("7"), "not valid JSON");
    check_bad(r#"{"id":7,}"#, Some("7"), "not valid JSON");
    check_bad(r#"{"op":ping,"id":"a"}"#, Some("\"a\""), "not valid JSON");
    check_bad(r#"{'op':'ping'}"#, None, "not valid JSON");
    check_bad(b"{\"id\":7,\"op\":\"\xff\"}", Some("7"), "UTF-8");
    check_bad(b"{\"id\":7,\"op\":\"ping\",\"other\":\"\xc0\x80\"}", Some("7"), "UTF-8");
    check_bad("{\"id\":7,\"op\":\"pi\nng\"}", Some("7"), "not valid JSON");
}

#[test]
fn wrong_fields_are_named() {
    check_bad(r#"{"id":7}"#, Some("7"), "`op` is missing");
    check_bad(r#"{"id":7,"op":null}"#, Some("7"), "`op` is missing");
    check_bad(r#"{"id":7,"op":1}"#, Some("7"), "`op` must be a string");
    check_bad(r#"{"id":7,"op":"dance"}"#, Some("7"), "use one of hello, subscribe, unsubscribe,");
    check_bad(r#"{"id":7,"op":"publish","data":1}"#, Some("7"), "`channel` is missing");
    check_bad(r#"{"id":7,"op":"publish","channel":"c"}"#, Some("7"), "`data` is missing");
    check_bad(r#"{"id":7,"op":"publish","channel":{},"data":1}"#, Some("7"), "`channel` must be a string");
    check_bad(r#"{"id":7,"op":"publish","channel":"\ud800","data":1}"#, Some("7"), "unpaired surrogate");
    check_bad(r#"{"id":7,"op":"subscribe"}"#, Some("7"), "missing");
    check_bad(r#"{"id":7,"op":"subscribe","channel":"a","pattern":"b"}"#, Some("7"), "not both");
    check_bad(r#"{"id":7,"op":"unsubscribe","pattern":[]}"#, Some("7"), "`pattern` must be a string");
    check_bad(
        r#"{"id":7,"op":"subscribe","channel":"a","presence":1}"#,
        Some("7"),
        "`presence` must be true",
    );
    check_bad(r#"{"id":7,"op":"ack"}"#, Some("7"), "`seq` is missing");
    for seq in ["-1", "1.5", "1e3", "\"1\"", "18446744073709551616", "true"] {
        check_bad(format!(r#"{{"id":7,"op":"ack","seq":{seq}}}"#), Some("7"), "`seq` must be an integer");
    }
    check_bad(r#"{"id":7,"op":"follow"}"#, Some("7"), "`user` is missing");
    check_bad(r#"{"id":7,"op":"status","users":"ann"}"#, Some("7"), "`users` must be a list of strings");
    check_bad(r#"{"id":7,"op":"status","users":[1]}"#, Some("7"), "`users` must be a string");
    check_bad(
        r#"{"id":7,"op":"visibility","value":"x"}"#,
        Some("7"),
        "everyone, followers_i_follow or nobody",
    );
    check_bad(r#"{"id":7,"op":"hello","token":1}"#, Some("7"), "`token` must be a string");
    check_bad(r#"{"id":7,"op":"hello","status":"x"}"#, Some("7"), "`status` must be true or false");
}

#[test]
fn a_bad_id_is_refused_and_not_echoed() {
    for id in ["{}", "[1]", "true"] {
        check_bad(format!(r#"{{"op":"ping","id":{id}}}"#), None, "`id` must be");
    }
    check_bad(format!(r#"{{"op":"ping","id":"{}"}}"#, "x".repeat(63)), None, "`id` must be");
    check_bad(format!(r#"{{"op":"ping","id":{}}}"#, "9".repeat(65)), None, "`id` must be");
    let longest = "9".repeat(64);
    check(&format!(r#"{{"op":"ping","id":{longest}}}"#), Some(&longest), Op::Ping);
}

#[test]
fn a_duplicate_member_is_refused_under_the_first_id() {
    check_bad(r#"{"id":1,"id":2,"op":"ping"}"#, Some("1"), "duplicate field `id`");
    check_bad(r#"{"id":1,"op":"ping","op":"bye"}"#, Some("1"), "duplicate field `op`");
}

#[test]
fn deep_nesting_is_refused_under_its_id() {
    let frame = |levels: usize| {
        let data = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"op":"publish","channel":"c","data":{data},"id":7}}"#)
    };
    assert!(parse_request(frame(63).as_bytes()).is_ok(), "with the frame itself that makes 64");
    check_bad(frame(64), Some("7"), "deeper than 64 levels");
    check_bad(frame(200_000), Some("7"), "deeper than 64 levels");
    check_bad("[".repeat(200_000), None, "object");
    check_bad("{\"a\":".repeat(200_000), None, "deeper than 64 levels");
}
