//! Sockets to a server: plain or TLS. Knows no protocol and no timeout.

use super::address::Host;
use super::line::broken;
use bytes::BytesMut;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io;
use std::sync::Arc;
use tavern_store::{BusError, limits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Room for one read.
const READ_BYTES: usize = 64 * 1024;

pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

pub type BusSocket = Box<dyn Duplex>;

pub async fn dial(host: &Host) -> io::Result<TcpStream> {
    let socket = TcpStream::connect((host.name.as_str(), host.port)).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Reads what has arrived. An input of more than `most` bytes without a complete frame is an error: no frame is that
/// long.
pub async fn read_more(
    socket: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
    max: usize,
) -> io::Result<()> {
    if input.len() > max {
        return Err(broken("the server sent a frame that is too long"));
    }
    input.reserve(READ_BYTES);
    match socket.read_buf(input).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// The authorities to trust.
#[derive(Clone)]
pub struct BusTls(TlsConnector);

impl BusTls {
    /// The public authorities, or only those in a PEM file.
    pub fn new(authorities: Option<&str>) -> Result<BusTls, BusError> {
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let wrong = |_| BusError::Malformed { what: "file of option ca" };
                for certificate in CertificateDer::pem_file_iter(path).map_err(wrong)? {
                    let added = roots.add(certificate.map_err(wrong)?);
                    added.map_err(|_| BusError::Malformed { what: "file of option ca" })?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| BusError::Unavailable {
            retry_after_ms: limits::RETRY_AFTER_MS,
            source: Arc::new(error),
        })?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(BusTls(TlsConnector::from(Arc::new(config))))
    }

    pub async fn wrap(&self, socket: TcpStream, host: &Host) -> io::Result<BusSocket> {
        let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
        Ok(Box::new(self.0.connect(name, socket).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_input_without_an_end_is_refused() {
        let mut input = BytesMut::new();
        read_more(&mut &b"$99\r\nabc"[..], &mut input, 5).await.unwrap();
        assert_eq!(&input[..], b"$99\r\nabc");
        let error = read_more(&mut &b"defg"[..], &mut input, 5).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let error = read_more(&mut &b""[..], &mut input, 99).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
