//! CLIENT: the labels and settings of a connection, and what it may see of others. Closing others is in `kill`.

use super::{RedisCall, connection, text};
use crate::resp::RedisNext;
use crate::resp::clients::{ClientInfo, NO_EVICT, NO_TOUCH};
use std::sync::Arc;
use tavern_wire::resp as reply;

/// The longest client name or library name; it is part of every line of `CLIENT LIST`.
const LABEL_BYTES: usize = 256;
const LONG_LABEL: &str = "ERR the text has more than 256 bytes";

pub fn id(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::int(call.out, call.peer.info.id as i64);
    RedisNext::Go
}

pub fn getname(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let proto = call.proto();
    match &call.peer.info.texts().name {
        Some(name) => reply::bulk(call.out, name.as_bytes()),
        None => reply::null_bulk(call.out, proto),
    }
    RedisNext::Go
}

pub fn setname(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let name = call.args.at(2);
    if !text::is_label(name) {
        return call.error(connection::BAD_NAME);
    }
    if name.len() > LABEL_BYTES {
        return call.error(LONG_LABEL);
    }
    set_name(call, name);
    call.ok()
}

/// Names the connection; an empty name removes the name.
pub fn set_name(call: &mut RedisCall<'_, '_>, name: &[u8]) {
    call.peer.info.texts().name = label(&name[..name.len().min(LABEL_BYTES)]);
}

fn label(bytes: &[u8]) -> Option<Box<str>> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into())
}

pub fn setinfo(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let (option, value) = (call.args.at(2), call.args.at(3));
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        let option = text::quoted(option, LABEL_BYTES);
        text::error(call.out, &[b"ERR Unrecognized option '", option, b"'"].concat());
        return RedisNext::Go;
    }
    if !text::is_label(value) {
        let rest = b" cannot contain spaces, newlines or special characters.";
        text::error(call.out, &[b"ERR ", option, rest].concat());
        return RedisNext::Go;
    }
    if value.len() > LABEL_BYTES {
        return call.error(LONG_LABEL);
    }
    let mut texts = call.peer.info.texts();
    if is_name {
        texts.lib_name = label(value);
    } else {
        texts.lib_ver = label(value);
    }
    drop(texts);
    call.ok()
}

pub fn reply_mode(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let replies = &mut call.peer.state.replies;
    match call.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            (replies.off, replies.skip) = (false, false);
            call.ok()
        }
        b"off" => {
            replies.off = true;
            RedisNext::Go
        }
        b"skip" => {
            replies.skip_next |= !replies.off;
            RedisNext::Go
        }
        _ => call.error(text::SYNTAX),
    }
}

pub fn no_evict(call: &mut RedisCall<'_, '_>) -> RedisNext {
    switch(call, NO_EVICT)
}

pub fn no_touch(call: &mut RedisCall<'_, '_>) -> RedisNext {
    switch(call, NO_TOUCH)
}

fn switch(call: &mut RedisCall<'_, '_>, mark: u8) -> RedisNext {
    let on = call.is(2, "on");
    if !on && !call.is(2, "off") {
        return call.error(text::SYNTAX);
    }
    call.peer.info.mark(mark, on);
    call.ok()
}

pub fn info(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let mut line = String::new();
    call.peer.info.write_line(call.context.now, &mut line);
    reply::verbatim(call.out, call.proto(), "txt", line.as_bytes());
    RedisNext::Go
}

pub fn list(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let clients = match chosen(call) {
        Ok(clients) => clients,
        Err(error) => {
            text::error(call.out, &error);
            return RedisNext::Go;
        }
    };
    let mut lines = String::new();
    for client in clients {
        client.write_line(call.context.now, &mut lines);
    }
    reply::verbatim(call.out, call.proto(), "txt", lines.as_bytes());
    RedisNext::Go
}

fn chosen(call: &RedisCall<'_, '_>) -> Result<Vec<Arc<ClientInfo>>, Vec<u8>> {
    let clients = &call.context.server.clients;
    match call.args.len() {
        2 => Ok(clients.list()),
        4 if call.is(2, "type") => {
            let kind = ClientKind::parse(call.args.at(3))?;
            Ok(clients.list().into_iter().filter(|client| kind.is(client)).collect())
        }
        4.. if call.is(2, "id") => {
            let mut chosen = Vec::new();
            for id in call.rest(3) {
                let id = text::integer(id).ok_or_else(|| b"ERR Invalid client ID".to_vec())?;
                chosen.extend(u64::try_from(id).ok().and_then(|id| clients.find(id)));
            }
            Ok(chosen)
        }
        _ => Err(text::SYNTAX.as_bytes().to_vec()),
    }
}

/// The types of clients. There are no masters and replicas here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Normal,
    Pubsub,
    None,
}

impl ClientKind {
    pub fn parse(word: &[u8]) -> Result<ClientKind, Vec<u8>> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(ClientKind::Normal),
            b"pubsub" => Ok(ClientKind::Pubsub),
            b"master" | b"replica" | b"slave" => Ok(ClientKind::None),
            _ => Err([b"ERR Unknown client type '", text::quoted(word, LABEL_BYTES), b"'"].concat()),
        }
    }

    pub fn is(self, client: &ClientInfo) -> bool {
        match self {
            ClientKind::Normal => !client.is_subscribed(),
            ClientKind::Pubsub => client.is_subscribed(),
            ClientKind::None => false,
        }
    }
}
