//! The properties of each codec for any bytes, one function per codec. The fuzzer runs them with random bytes, the tests with
//! the corpus. They panic when a property does not hold; not for use by servers.

use crate::json::{self, Op, Payload};
use crate::resp::{self, Limits, Parsed, Parser, RespError};
use crate::ws::{self, Opcode, Role};
use crate::{Code, Refusal, sse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The Redis protocol: the result does not depend on how the bytes are split; what is encoded is read back.
pub fn resp(data: &[u8]) {
    let small = Limits::new(64, 8, 256, 48);
    for limits in
        [Limits::new(1 << 16, 1024, 1 << 18, 1 << 12), small, Limits { unauthenticated: true, ..small }]
    {
        let (commands, error) = read_commands(data, &limits, usize::MAX);
        for step in [1, 2, 7] {
            assert_eq!(read_commands(data, &limits, step), (commands.clone(), error), "in pieces of {step}");
        }
        let mut again = Vec::new();
        for command in &commands {
            resp::array(&mut again, command.len());
            command.iter().for_each(|arg| resp::bulk(&mut again, arg));
        }
        let wide = Limits::new(1 << 20, 1 << 20, 1 << 24, 1 << 16);
        assert_eq!(read_commands(&again, &wide, usize::MAX), (commands, None), "written and read back");
    }
    if let Ok(Some((value, used))) = resp::read_value(data) {
        assert!(used <= data.len());
        if used <= 256 {
            for len in 0..used {
                assert_eq!(
                    resp::read_value(&data[..len]),
                    Ok(None),
                    "a reply is not complete before its end"
                );
            }
        }
        drop(value);
    }
    let mut frame = Vec::new();
    resp::pmessage_frame(&mut frame, data, data, data);
    let Ok(Some((resp::RespValue::List(parts), used))) = resp::read_value(&frame) else {
        panic!("a frame is not read back");
    };
    let part = |value: &resp::RespValue| match value {
        resp::RespValue::Bulk(place) => frame[place.clone()].to_vec(),
        other => panic!("{other:?} in a frame"),
    };
    assert_eq!(used, frame.len());
    assert_eq!(parts.iter().map(part).collect::<Vec<_>>(), [b"pmessage", data, data, data]);
}

type CommandList = Vec<Vec<Vec<u8>>>;

fn read_commands(data: &[u8], limits: &Limits, step: usize) -> (CommandList, Option<RespError>) {
    let (mut parser, mut args, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    let (mut start, mut end) = (0, 0);
    while end < data.len() {
        end = data.len().min(end.saturating_add(step));
        loop {
            // A command never ends beyond the input.
            assert!(start <= end);
            let buf = &data[start..end];
            match parser.parse(buf, limits, &mut args) {
                Ok(Parsed::Need) => {
                    assert!(buf.is_empty() || !parser.is_idle());
                    assert!(
                        buf.len() <= limits.total_bytes + limits.inline_bytes + 2,
                        "what is pending is bounded"
                    );
                    break;
                }
                Ok(Parsed::Command { consumed }) => {
                    assert!(consumed > 0 && parser.is_idle());
                    assert!(args.iter().all(|arg| arg.end <= consumed && arg.len() <= limits.arg_bytes));
                    commands.push(args.iter().map(|arg| buf[arg.clone()].to_vec()).collect());
                    start += consumed;
                }
                Ok(Parsed::Inline { consumed, args }) => {
                    assert!(consumed > 0 && parser.is_idle() && args.len() <= limits.args);
                    commands.push(args);
                    start += consumed;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

/// JSON frames: a parsed command is consistent; everything written is valid JSON with the right content.
pub fn json(data: &[u8]) {
    for frame in json::commands(data) {
        match json::parse_request(frame) {
            Ok(request) => {
                assert!(json::check_portable(frame).is_ok() && json::is_json(frame));
                check_reply(request.id.as_deref());
                if let Op::Publish(publish) = request.op {
                    assert!(json::is_json(publish.data.as_bytes()));
                    assert!(memchr::memmem::find(frame, publish.data.as_bytes()).is_some(), "byte for byte");
                    check_message(publish.data.as_bytes(), Payload::Json(publish.data.as_bytes()));
                }
            }
            Err(bad) => {
                assert_eq!(bad.refusal.code, Code::BadRequest);
                check_reply(bad.id.as_deref());
            }
        }
        let _ = json::session_of(frame);
    }
    let _ = json::parse_poll(data);
    if let Ok(raw) = json::parse_message_body(data) {
        assert!(json::is_json(raw.as_bytes()));
    }
    check_message(data, Payload::Bytes(data));
}

fn check_reply(id: Option<&str>) {
    assert!(id.is_none_or(|id| id.len() <= json::ID_BYTES));
    let (mut ok, mut error) = (Vec::new(), Vec::new());
    json::reply_ok(&mut ok, id, b"{}");
    json::reply_error(&mut error, id, &Refusal::from(Code::BadRequest));
    // Compared as text: an id is echoed byte for byte.
    let head = id.map_or("{".to_string(), |id| format!("{{\"id\":{id},"));
    assert_eq!(ok, format!("{head}\"ok\":{{}}}}").into_bytes());
    assert!(error.starts_with(format!("{head}\"error\":{{\"code\":\"bad_request\",").as_bytes()));
    for reply in [ok, error] {
        assert!(json::is_json(&reply) && !reply.contains(&b'\n'));
    }
}

fn check_message(data: &[u8], payload: Payload<'_>) {
    let mut out = Vec::new();
    json::seq_head(&mut out, 1);
    json::message_tail(&mut out, "a\"\n", payload, None, None);
    if json::is_json(data) {
        assert!(memchr::memmem::find(&out, data).is_some(), "JSON passes byte for byte");
    } else {
        let frame = parse(&out);
        let text = frame["data"].as_str().expect("what is no JSON is a string");
        match frame.get("encoding") {
            None => assert_eq!(text.as_bytes(), data),
            Some(encoding) => {
                assert_eq!(encoding, "base64");
                assert_eq!(STANDARD.decode(text).expect("base64"), data);
                assert!(std::str::from_utf8(data).is_err());
            }
        }
        assert!(!out.contains(&b'\n') && !out.contains(&b'\r'));
    }
    let mut lines = Vec::new();
    sse::event(&mut lines, Some(1), &out);
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 3);
    assert!(!lines.contains(&b'\r'));
}

fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("what is written is valid JSON")
}

/// WebSocket frames: a prefix never contradicts the whole frame; what is written is read back.
pub fn ws(data: &[u8]) {
    for role in [Role::Server, Role::Client] {
        for max in [0, 125, 1 << 16] {
            let whole = ws::read_head(data, role, max);
            for len in 0..data.len().min(ws::HEAD_BYTES + 1) {
                let part = ws::read_head(&data[..len], role, max);
                assert!(part == Ok(None) || part == whole, "{part:?} {whole:?}");
            }
            match whole {
                Ok(Some(head)) => {
                    assert!(head.head_len <= ws::HEAD_BYTES && head.head_len <= data.len());
                    assert!(head.payload_len <= max || head.opcode.is_control());
                    assert!(!head.opcode.is_control() || (head.fin && head.payload_len <= ws::CONTROL_BYTES));
                    assert_eq!(head.mask.is_some(), role == Role::Server);
                }
                Ok(None) => assert!(data.len() < ws::HEAD_BYTES),
                Err(error) => assert!(matches!(error.close_code(), 1002 | 1009)),
            }
        }
    }
    check_masked(data);
    check_close(data);
}

fn check_masked(data: &[u8]) {
    let mask = data.first_chunk::<4>().copied().unwrap_or_default();
    let mut frame = Vec::new();
    ws::write_frame_masked(&mut frame, Opcode::Binary, data, mask);
    let head = ws::read_head(&frame, Role::Server, data.len()).expect("sound").expect("whole");
    assert_eq!(
        (head.fin, head.opcode, head.mask, head.payload_len),
        (true, Opcode::Binary, Some(mask), data.len())
    );
    let payload = &mut frame[head.head_len..];
    for (at, byte) in payload.iter().enumerate() {
        assert_eq!(byte ^ mask[at % 4], data[at], "one byte at a time");
    }
    ws::unmask(payload, mask);
    assert_eq!(payload, data);
}

fn check_close(data: &[u8]) {
    match ws::parse_close(data) {
        Ok(None) => assert!(data.is_empty()),
        Ok(Some((code, reason))) => {
            let mut frame = Vec::new();
            ws::write_close(&mut frame, code, reason);
            let head = ws::read_head(&frame, Role::Client, 0).expect("sound").expect("whole");
            let (again, cut) = ws::parse_close(&frame[head.head_len..]).expect("sound").expect("not empty");
            assert_eq!(again, code);
            assert!(reason.starts_with(cut) && (cut == reason || cut.len() > ws::CONTROL_BYTES - 6));
        }
        Err(error) => assert!(matches!(error.close_code(), 1002 | 1007)),
    }
}
