//! A connection to a server, plain or TLS.

use crate::address::Address;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(crate) async fn connect(address: &Address, tls: &Arc<ClientConfig>) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    if !address.secure {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
}

/// Servers are known by the certificates that browsers know.
pub(crate) fn default_tls() -> Arc<ClientConfig> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.expect("the provider has the default versions").with_root_certificates(roots);
    Arc::new(config.with_no_client_auth())
}
