//! One keep-alive HTTP/1.1 connection: a request, then its response. Not a general client: a response must have a length, or
//! come in chunks, whose marks stay in the body.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use memchr::memmem;

pub struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
    address: SocketAddr,
    key: String,
}

/// A response, valid until the next request.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

/// Longer than the server's own store timeout.
const PATIENCE: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";
const CHUNKS_END: &[u8] = b"\r\n0\r\n\r\n";

impl Line {
    pub fn open(address: SocketAddr, key: &str) -> anyhow::Result<Line> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Line { stream, buffer: Vec::new(), address, key: key.into() })
    }

    /// The bytes of a request, for one who sends it many times.
    pub fn written(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let (address, key, length) = (self.address, &self.key, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    pub fn say(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.send(request)?;
        self.receive()
    }

    /// A request whose answer is read later.
    pub fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    pub fn receive(&mut self) -> anyhow::Result<Answer<'_>> {
        self.buffer.clear();
        let head = loop {
            match memmem::find(&self.buffer, HEAD_END) {
                Some(end) => break end,
                None => self.fill()?,
            }
        };
        let (status, length) = read_head(&self.buffer[..head])?;
        let from = head + HEAD_END.len();
        match length {
            Some(length) => {
                while self.buffer.len() < from + length {
                    self.fill()?;
                }
                ensure!(self.buffer.len() == from + length, "the server said more than it was asked");
            }
            None => {
                while !self.buffer[from..].ends_with(CHUNKS_END) {
                    self.fill()?;
                }
            }
        }
        Ok(Answer { status, body: &self.buffer[from..] })
    }

    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer<'_>> {
        let request = self.written(method, path, body);
        self.say(&request)
    }

    /// The body of an answer that must be a good one.
    pub fn must(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<&[u8]> {
        let Answer { status, body } = self.ask(method, path, body.as_bytes())?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path} was refused: {status} {}",
            String::from_utf8_lossy(body)
        );
        Ok(body)
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let held = self.buffer.len();
        self.buffer.resize(held + CHUNK, 0);
        let read = self.stream.read(&mut self.buffer[held..]);
        self.buffer.truncate(held + *read.as_ref().unwrap_or(&0));
        match read.context("no answer")? {
            0 => bail!("the server closed the connection"),
            _ => Ok(()),
        }
    }
}

/// The status of an answer and the length of its body; None: it comes in chunks.
fn read_head(head: &[u8]) -> anyhow::Result<(u16, Option<usize>)> {
    let head = std::str::from_utf8(head)?;
    let status =
        head.get(9..12).and_then(|status| status.parse().ok()).context("an answer without status")?;
    let length = content_length(head);
    ensure!(length.is_some() || head.to_ascii_lowercase().contains("chunked"), "an answer without length");
    Ok((status, length))
}

pub fn content_length(head: &str) -> Option<usize> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|(_, value)| value.trim().parse().ok())
}

/// The number after a name in a text of JSON, from some place on.
pub fn number_after(text: &[u8], name: &[u8]) -> Option<u64> {
    let from = memmem::find(text, name)? + name.len();
    leading_number(&text[from..])
}

pub fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_length_are_read_however_they_are_written() {
        assert_eq!(read_head(b"HTTP/1.1 202 Accepted\r\nContent-Length: 73\r\n").unwrap(), (202, Some(73)));
        assert_eq!(read_head(b"HTTP/1.1 200 OK\r\ncontent-length:0").unwrap(), (200, Some(0)));
        assert_eq!(read_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").unwrap(), (200, None));
        assert!(read_head(b"HTTP/1.1 200 OK\r\n").is_err());
    }

    #[test]
    fn a_number_is_found_by_its_name() {
        let answer = br#"{"topic":"a","first_seq":7,"last_seq":56}"#;
        assert_eq!(number_after(answer, br#""last_seq":"#), Some(56));
        assert_eq!(number_after(answer, br#""seq":"#), None);
    }
}
