//! A blocking connection to a server, plain or TLS, and the little HTTP that the commands need. No runtime: a command
//! does one thing at a time. Must hold: every read has a time limit or a bound, or both.

use super::options::ServerOptions;
use anyhow::{Context, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A head larger than this is not one of ours.
const HEAD_BYTES: usize = 16 * 1024;
/// The largest batch that can be pulled, with room.
const BODY_BYTES: u64 = 20 << 20;

/// A server's address, from `http://`, `https://`, `ws://` or `wss://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub secure: bool,
    pub host: String,
    pub port: u16,
}

impl Address {
    pub fn parse(url: &str) -> anyhow::Result<Address> {
        let wanted = || "the address of a server looks like http://127.0.0.1:7400";
        let uri: http::Uri = url.parse().with_context(wanted)?;
        let secure = match uri.scheme_str() {
            Some("http" | "ws") => false,
            Some("https" | "wss") => true,
            _ => bail!(wanted()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).with_context(wanted)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Address { secure, host, port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }) })
    }

    /// As it stands in a `Host` header.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

pub enum Stream {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub fn connect(address: &Address, ca: Option<&Path>) -> anyhow::Result<Stream> {
        let tcp = dial(address)?;
        tcp.set_nodelay(true)?;
        if !address.secure {
            return Ok(Stream::Plain(tcp));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        let name = ServerName::try_from(address.host.clone())?;
        let session = ClientConnection::new(Arc::new(config), name)?;
        Ok(Stream::Secure(Box::new(StreamOwned::new(session, tcp))))
    }

    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let tcp = match self {
            Stream::Plain(tcp) => tcp,
            Stream::Secure(secure) => &secure.sock,
        };
        // Zero would mean for ever.
        tcp.set_read_timeout(Some(patience.max(Duration::from_millis(1))))
    }
}

fn dial(address: &Address) -> anyhow::Result<TcpStream> {
    let targets = (address.host.as_str(), address.port).to_socket_addrs();
    let targets = targets.with_context(|| format!("cannot find the host {}", address.host))?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for target in targets {
        match TcpStream::connect_timeout(&target, CONNECT_PATIENCE) {
            Ok(tcp) => {
                tcp.set_write_timeout(Some(CONNECT_PATIENCE))?;
                return Ok(tcp);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
        .with_context(|| format!("cannot connect to {}; is a server running there?", address.authority()))
}

fn roots(ca: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            let certificates = CertificateDer::pem_file_iter(file);
            for certificate in certificates.with_context(|| format!("cannot read {}", file.display()))? {
                roots.add(certificate?)?;
            }
        }
    }
    Ok(roots)
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.read(into),
            Stream::Secure(secure) => secure.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.write(from),
            Stream::Secure(secure) => secure.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(tcp) => tcp.flush(),
            Stream::Secure(secure) => secure.flush(),
        }
    }
}

/// The head of an HTTP answer, and the bytes behind it that were read with it.
pub struct Head {
    pub status: u16,
    fields: Vec<(String, String)>,
    pub rest: Vec<u8>,
}

impl Head {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

pub fn read_head(stream: &mut impl Read) -> anyhow::Result<Head> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let count = match stream.read(&mut chunk) {
            Err(error) if is_timeout(&error) => bail!("the server did not answer in time"),
            read => read.context("the server did not answer")?,
        };
        if count == 0 || bytes.len() > HEAD_BYTES {
            bail!("the server's answer is not HTTP");
        }
        bytes.extend_from_slice(&chunk[..count]);
    };
    let rest = bytes.split_off(end + 4);
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let status = lines.next().filter(|line| line.starts_with("HTTP/1.")).and_then(|line| line.get(9..12));
    let status = status.and_then(|status| status.parse().ok()).context("the server's answer is not HTTP")?;
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    let fields = lines.filter_map(field).collect();
    Ok(Head { status, fields, rest })
}

/// Whether a read ended because its time was over; systems differ in the word for it.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Asks the server API with a key. A refusal is an error in the server's own words.
pub fn ask_api(
    options: &ServerOptions,
    method: &str,
    path: &str,
    key: &str,
    body: &[u8],
) -> anyhow::Result<Value> {
    let (status, body) = request(options, method, path, Some(key), body)?;
    let answer: Value = serde_json::from_slice(&body)
        .with_context(|| format!("the server answered {status} without JSON; is this a Tavern?"))?;
    if let Some(error) = answer.get("error") {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        bail!("{}: {}", text("code"), text("message"));
    }
    Ok(answer)
}

/// One request and its whole answer.
pub fn request(
    options: &ServerOptions,
    method: &str,
    path: &str,
    key: Option<&str>,
    body: &[u8],
) -> anyhow::Result<(u16, Vec<u8>)> {
    let address = Address::parse(&options.url())?;
    let mut stream = Stream::connect(&address, options.ca.as_deref())?;
    stream.set_patience(Duration::from_secs(30))?;
    // HTTP/1.0: the answer ends with the connection, without chunks.
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {}\r\n", address.authority());
    if let Some(key) = key {
        head.push_str(&format!("Authorization: Bearer {}\r\n", header_safe(key)?));
    }
    head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let head = read_head(&mut stream)?;
    let mut body = head.rest;
    match stream.take(BODY_BYTES).read_to_end(&mut body) {
        // A peer that ends TLS without a farewell has still sent its whole answer.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error.into()),
        _ => Ok((head.status, body)),
    }
}

/// A text that cannot break out of a header line.
pub fn header_safe(text: &str) -> anyhow::Result<&str> {
    if text.bytes().all(|b| (0x21..0x7f).contains(&b)) {
        Ok(text)
    } else {
        bail!("the token or key holds a character that no token or key has")
    }
}

/// A text as part of a path or a query.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        let read = |url: &str| Address::parse(url).ok().map(|address| (address.secure, address.authority()));
        for (url, expected) in [
            ("http://127.0.0.1:7400", Some((false, "127.0.0.1:7400"))),
            ("ws://localhost:1/", Some((false, "localhost:1"))),
            ("https://tavern.example", Some((true, "tavern.example:443"))),
            ("http://[::1]:7400", Some((false, "[::1]:7400"))),
            ("127.0.0.1:7400", None),
            ("redis://127.0.0.1:7401", None),
            ("http://", None),
        ] {
            assert_eq!(read(url), expected.map(|(secure, host)| (secure, host.to_owned())), "{url}");
        }
    }

    #[test]
    fn heads_are_read_with_what_follows() {
        let head = read_head(&mut &b"HTTP/1.1 200 OK\r\nA: b\r\nX-Y:  z \r\n\r\nrest"[..]).unwrap();
        assert_eq!((head.status, head.field("x-y"), &*head.rest), (200, Some("z"), &b"rest"[..]));
        for bytes in [&b"+PONG\r\n\r\n"[..], b"HTTP/1.1", b"", b"HTTP/1.1 abc\r\n\r\n"] {
            assert!(read_head(&mut &*bytes).is_err());
        }
        assert!(read_head(&mut io::repeat(b'x')).is_err());
    }

    #[test]
    fn names_are_encoded_for_paths() {
        assert_eq!(percent_encode("game#a/ü"), "game%23a%2F%C3%BC");
        assert!(header_safe("a\r\nb").is_err());
    }
}
