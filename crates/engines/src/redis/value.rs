//! How rows are stored: JSON that begins with the version, then after a zero byte the lists that the row is in.
//! Must hold: a row in another form than this program writes is an error, never guessed.

use super::error::RedisError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::io::Write;
use std::sync::Arc;
use tavern_domain::Time;

/// The JSON of a row without its first member, which the script adds.
#[derive(Default)]
pub(super) struct Json(Vec<u8>);

impl Json {
    pub fn new() -> Json {
        Json::default()
    }

    fn key(&mut self, key: &str) {
        if !self.0.is_empty() && !matches!(self.0.last(), Some(b'{' | b'[')) {
            self.0.push(b',');
        }
        let _ = write!(self.0, "\"{key}\":");
    }

    pub fn text(mut self, key: &str, text: &str) -> Json {
        self.key(key);
        self.string(text);
        self
    }

    pub fn text_or_none(self, key: &str, text: Option<&str>) -> Json {
        match text {
            Some(text) => self.text(key, text),
            None => self,
        }
    }

    pub fn number(mut self, key: &str, number: u64) -> Json {
        self.key(key);
        let _ = write!(self.0, "{number}");
        self
    }

    pub fn time_or_none(self, key: &str, time: Option<Time>) -> Json {
        match time {
            Some(time) => self.number(key, time.0),
            None => self,
        }
    }

    /// Written only when it is true.
    pub fn flag(mut self, key: &str, is_set: bool) -> Json {
        if is_set {
            self.key(key);
            self.0.extend_from_slice(b"true");
        }
        self
    }

    /// As text if it is printable, else as Base64.
    pub fn body(self, bytes: &[u8]) -> Json {
        let is_plain = |byte: &u8| *byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t');
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(is_plain) => self.text("body", text),
            _ => self.text("base64", &STANDARD.encode(bytes)),
        }
    }

    /// A list of objects, each written by `one`.
    pub fn list<T>(
        mut self,
        key: &str,
        items: impl Iterator<Item = T>,
        one: impl Fn(Json, T) -> Json,
    ) -> Json {
        self.key(key);
        self.0.push(b'[');
        for (n, item) in items.enumerate() {
            self.0.extend_from_slice(if n > 0 { b",{" } else { b"{" });
            self = one(self, item);
            self.0.push(b'}');
        }
        self.0.push(b']');
        self
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    /// The same with a due time as its first member.
    pub fn end_with_due(self, due: Time) -> Vec<u8> {
        let mut whole = format!("{{\"due\":{}", due.0).into_bytes();
        if !self.0.is_empty() {
            whole.push(b',');
        }
        whole.extend_from_slice(&self.0);
        whole.push(b'}');
        whole
    }

    fn string(&mut self, text: &str) {
        if text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut self.0, text);
        } else {
            self.0.push(b'"');
            self.0.extend_from_slice(text.as_bytes());
            self.0.push(b'"');
        }
    }
}

/// A row as it was read.
pub(super) struct StoredRow(Value);

impl StoredRow {
    pub fn parse(value: &[u8]) -> Result<StoredRow, RedisError> {
        let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
        let parsed = serde_json::from_slice(&value[..end]);
        parsed.map(StoredRow).map_err(|_| RedisError::Unexpected("a row is not JSON"))
    }

    pub fn of(value: Value) -> StoredRow {
        StoredRow(value)
    }

    pub fn version(&self) -> Result<u64, RedisError> {
        self.number("version")
    }

    pub fn number(&self, key: &str) -> Result<u64, RedisError> {
        self.0[key].as_u64().ok_or(RedisError::Unexpected("a number is missing in a row"))
    }

    pub fn time(&self, key: &str) -> Result<Time, RedisError> {
        self.number(key).map(Time)
    }

    pub fn time_or_none(&self, key: &str) -> Result<Option<Time>, RedisError> {
        match &self.0[key] {
            Value::Null => Ok(None),
            _ => self.time(key).map(Some),
        }
    }

    pub fn str(&self, key: &str) -> Result<&str, RedisError> {
        self.0[key].as_str().ok_or(RedisError::Unexpected("a text is missing in a row"))
    }

    pub fn text_or_none(&self, key: &str) -> Option<Arc<str>> {
        self.0[key].as_str().map(Arc::from)
    }

    pub fn flag(&self, key: &str) -> bool {
        self.0[key] == Value::Bool(true)
    }

    pub fn body(&self) -> Result<Arc<[u8]>, RedisError> {
        if let Some(text) = self.0["body"].as_str() {
            return Ok(text.as_bytes().into());
        }
        let wrong = RedisError::Unexpected("a row has no body");
        self.0["base64"].as_str().and_then(|text| STANDARD.decode(text).ok()).map(Arc::from).ok_or(wrong)
    }

    pub fn list(&mut self, key: &str) -> Vec<StoredRow> {
        match self.0[key].take() {
            Value::Array(items) => items.into_iter().map(StoredRow::of).collect(),
            _ => Vec::new(),
        }
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, RedisError> {
    std::str::from_utf8(bytes).map_err(|_| RedisError::Unexpected("a name is not UTF-8"))
}

pub(super) fn number(bytes: &[u8]) -> Result<u64, RedisError> {
    let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or(RedisError::Unexpected("not a number"))
}

/// The names in a field or member.
pub(super) fn names<const N: usize>(member: &[u8]) -> Result<[&str; N], RedisError> {
    let mut names = [""; N];
    let mut parts = member.split(|&byte| byte == 0);
    for name in &mut names {
        *name = text(parts.next().ok_or(RedisError::Unexpected("a name is missing"))?)?;
    }
    if parts.next().is_some() { Err(RedisError::Unexpected("too many names")) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let inner = |json: Json, n: u64| json.number("n", n);
        let json = Json::new().text("name", "a\"\n\0ü").number("most", u64::MAX).flag("no", false);
        let json = json.flag("yes", true).list("all", [1, 2].into_iter(), inner).body(b"\xff").end();
        let whole = [b"{\"version\":7,", &json[..], b"\0terms"].concat();
        let mut row = StoredRow::parse(&whole).unwrap();
        assert_eq!((row.version().unwrap(), row.number("most").unwrap()), (7, u64::MAX));
        assert_eq!(row.str("name").unwrap(), "a\"\n\0ü");
        assert_eq!((row.flag("yes"), row.flag("no"), &*row.body().unwrap()), (true, false, &b"\xff"[..]));
        assert_eq!(row.list("all").iter().map(|one| one.number("n").unwrap()).collect::<Vec<_>>(), [1, 2]);
        assert!(StoredRow::parse(b"{").is_err() && StoredRow::parse(b"{}").unwrap().version().is_err());
    }

    #[test]
    fn joined_names_are_split() {
        assert_eq!(names::<2>(b"a\0b").unwrap(), ["a", "b"]);
        assert!(names::<2>(b"a").is_err() && names::<2>(b"a\0b\0c").is_err() && names::<1>(b"\xff").is_err());
    }
}
