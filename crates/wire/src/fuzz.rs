//! The properties of each codec for any bytes, one function per codec. The fuzzer runs them with random bytes, the tests with
//! the corpus. They panic when a property does not hold; not for use by servers.

use crate::bus::{self, BusMessage};
use crate::http1::{self, ReadRequest, RequestLimits};
use crate::json::{self, Op, Payload};
use crate::record;
use crate::resp::{self, Limits, Parsed, Parser, RespError};
use crate::ws::{self, Opcode, Role};
use crate::{Code, Refusal, engineio, gateway, radar, sse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tavern_domain::pattern;

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
    if let Ok(json::MessageBody { data: raw, .. }) = json::parse_message_body(data) {
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

/// The body of a poll: what is read is what any JSON parser reads. As a whole request: its end does not depend on how it
/// arrives.
pub fn poll(data: &[u8]) {
    poll_request(data);
    let Ok(request) = json::parse_poll(data) else { return };
    if data.trim_ascii().is_empty() {
        return assert_eq!(request, json::PollRequest::default());
    }
    let value: Value = serde_json::from_slice(data).expect("an accepted body is JSON");
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    assert_eq!((&request.session, &request.token), (&text("session"), &text("token")));
    for (name, read) in [("cursor", request.cursor), ("timeout_ms", request.timeout_ms)] {
        let written = value.get(name).filter(|value| !value.is_null());
        assert_eq!(read.is_some(), written.is_some(), "{name}");
    }
    assert_eq!(json::session_of(data), request.session);
}

fn poll_request(data: &[u8]) {
    let limits = RequestLimits { head: 1024, body: 256 };
    let ReadRequest::Request(request) = http1::read_post(data, "/v1/poll", limits) else { return };
    assert!(request.target.starts_with("/v1/poll") && data[..request.bytes].ends_with(request.body));
    let lengths = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let lengths: Vec<&[u8]> = lengths.map(|(_, value)| *value).collect();
    assert_eq!(lengths.len(), 1, "one length frames a request");
    assert_eq!(std::str::from_utf8(lengths[0]).unwrap().parse(), Ok(request.body.len()));
    for end in 0..request.bytes {
        let read = http1::read_post(&data[..end], "/v1/poll", limits);
        assert!(matches!(read, ReadRequest::Incomplete), "{end} of {} bytes", request.bytes);
    }
}

/// Messages between nodes: what is read and written again is read the same.
pub fn bus(data: &[u8]) {
    let header = bus::header::decode(data);
    assert!(header.user.is_none() || header.client.is_some());
    let written = bus::header::encode(bus::header::ChannelHeader {
        json: header.json,
        client: header.client,
        user: header.user.as_deref(),
        history: header.history,
    });
    assert_eq!(bus::header::decode(&written), header);
    let Some(message) = BusMessage::decode(data) else { return };
    let again = match &message {
        BusMessage::Presence(update) => bus::presence::encode(update),
        BusMessage::Person(update) => bus::people::encode(update),
        BusMessage::Session(request) => bus::migration::encode(request),
        BusMessage::NodeLeft => bus::node_left(),
        BusMessage::Subscription(name) => bus::subscription(name),
        BusMessage::Control(request) => bus::control::encode_request(request),
        BusMessage::ControlReply(reply) => bus::control::encode_reply(reply),
        BusMessage::Counts(counts) => bus::control::encode_counts(counts),
        BusMessage::NameQuestion(asker) => bus::name_question(asker),
        BusMessage::NameAnswer(address) => bus::name_answer(address),
        BusMessage::LoadQuestion(question) => bus::load::encode_question(*question),
        BusMessage::LoadAnswer(answer) => bus::load::encode_answer(answer),
        BusMessage::PusherCount(count) => bus::control::encode_pusher_count(count),
    };
    let read = BusMessage::decode(&again).expect("what was written is a message");
    assert_eq!(format!("{read:?}"), format!("{message:?}"));
}

/// Stored rows: what is read and written again is read the same.
pub fn record(data: &[u8]) {
    if let Ok(party) = record::read_party(7, data) {
        let again = record::read_party(7, &record::write_party(&party)).expect("a written party is read");
        assert_eq!(again, party);
    }
    if let Ok(membership) = record::read_membership(data) {
        let again = record::read_membership(&record::write_membership(&membership));
        assert_eq!(again.expect("a written membership is read"), membership);
    }
    if let Ok(progress) = record::read_progress(data) {
        let again = record::read_progress(&record::write_progress(&progress));
        assert_eq!(again.expect("written progress is read"), progress);
    }
    if let Ok(marks) = record::read_marks(data) {
        assert_eq!(record::read_marks(&record::write_marks(&marks)).expect("written marks are read"), marks);
    }
    if let Ok(topic) = record::read::<record::TopicRecord>(data) {
        let written = record::write(&topic);
        assert_eq!(record::read::<record::TopicRecord>(&written).expect("a written topic is read"), topic);
    }
    if let Ok(settings) = record::read::<record::SubscriptionSettings>(data) {
        let written = record::write(&settings);
        let again =
            record::read::<record::SubscriptionSettings>(&written).expect("written settings are read");
        assert_eq!(record::write(&again), written);
    }
}

/// Patterns: the first line is a pattern, the second a name. The matcher agrees with a simple one, within its steps; what a
/// right covers, it matches.
pub fn pattern(data: &[u8]) {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let (glob, name) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let granted = lines.next().unwrap_or_default();
    // The simple matcher takes exponential time.
    let small = glob.iter().filter(|&&byte| byte == b'*').count() <= 5 && name.len() <= 24;
    let matched = pattern::matches(glob, name);
    if small && !name.is_empty() {
        assert_eq!(matched, simple_match(glob, name), "{glob:?} {name:?}");
    }
    assert!(pattern::steps(glob, name.len()) <= glob.len() * (name.len() + 1));
    if matched {
        assert!(name.starts_with(pattern::literal_prefix(glob)));
        // A star does not match the empty name.
        if pattern::covers(granted, glob) && !name.is_empty() {
            assert!(pattern::matches(granted, name), "{granted:?} covers {glob:?}, which matches {name:?}");
        }
    }
}

/// As Redis defines it, by recursion.
fn simple_match(glob: &[u8], name: &[u8]) -> bool {
    let Some((&first, rest)) = glob.split_first() else { return name.is_empty() };
    if first == b'*' {
        return (0..=name.len()).any(|skip| simple_match(rest, &name[skip..]));
    }
    let Some((&byte, name)) = name.split_first() else { return false };
    let one = |glob: &[u8]| pattern::matches(glob, &[byte]);
    match (first, rest) {
        (b'?', rest) => simple_match(rest, name),
        (b'[', _) => {
            // The class ends where one byte is consumed.
            let end = class_end(glob);
            one(&glob[..end]) && simple_match(&glob[end..], name)
        }
        (b'\\', [literal, rest @ ..]) => *literal == byte && simple_match(rest, name),
        (literal, rest) => literal == byte && simple_match(rest, name),
    }
}

/// Where a class `[…]` ends; one without an end takes the rest of the pattern.
fn class_end(glob: &[u8]) -> usize {
    let mut at = 1;
    if glob.get(at) == Some(&b'^') {
        at += 1;
    }
    while at < glob.len() {
        match glob[at] {
            b'\\' if at + 1 < glob.len() => at += 2,
            b']' => return at + 1,
            _ if at + 2 < glob.len() && glob[at + 1] == b'-' => at += 3,
            _ => at += 1,
        }
    }
    glob.len()
}

/// Engine.IO and Radar's messages: packets are written as they were read; a request that is read has a scope or none, and no
/// answer to it repeats its token; a room survives any events.
pub fn radar(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(packets) = engineio::read_payload(&text, 64) {
        let mut payload = Vec::new();
        for packet in &packets {
            let mut one = Vec::new();
            engineio::write_packet(&mut one, *packet);
            engineio::append_to_payload(&mut payload, &one);
        }
        assert_eq!(payload, text.as_bytes(), "written and read back");
    }
    let stamps = radar::StampSource { client: "own", sentry: "node", now_ms: 1, random: &|| 7 };
    let mut out = radar::RadarFrames::new(stamps);
    if let Ok(request) = radar::parse_request(&text) {
        out.err("auth", &text);
        let origin: Value = serde_json::from_slice(&out.frames[0]).unwrap_or_default();
        assert!(origin["origin"].get("auth").is_none(), "a token is not repeated");
        out.ack(request.ack);
        if let Some(user) = &request.user {
            let details = radar::ClientDetails {
                user_id: request.key.unwrap_or("0").into(),
                user_type: request.user_type.unwrap_or("0").into(),
                user_data: request.user_data.map(Box::from),
                client_data: request.client_data.map(Box::from),
            };
            let state = details.write();
            assert_eq!(radar::ClientDetails::read(user, Some(&state)), details, "{state}");
            out.client_online(&request.to, "c", &details);
            out.online(&request.to, user, &details);
        }
        if let Some(scope) = radar::RadarScope::parse(&request.to) {
            assert!(scope.channel().ends_with(scope.name));
        }
        for part in radar::parse_batch(&text).unwrap_or_default() {
            assert!(json::is_json(part.as_bytes()));
        }
    }
    // What comes out of the hub was checked when it came in: every parser reads it.
    if json::is_json(format!("[{}]", text.trim_end_matches(',')).as_bytes()) {
        let mut room = radar::RadarRoom::new("presence:/a/b");
        room.load_silently(&gateway::read_members(&text));
        room.announce(&mut out);
        gateway::read_events(data, |event| room.apply(&event, &mut out));
    }
    for frame in &out.frames {
        assert!(serde_json::from_slice::<Value>(frame).is_ok(), "{}", String::from_utf8_lossy(frame));
    }
}
