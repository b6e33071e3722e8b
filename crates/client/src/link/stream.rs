//! A connection to a server, plain or TLS.

use crate::address::ServerUrl;
use crate::tls::explain;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(crate) async fn connect(address: &ServerUrl, tls: &Arc<ClientConfig>) -> io::Result<Box<dyn Io>> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    if !address.secure {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    match TlsConnector::from(tls.clone()).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(match explain(&error, &address.authority()) {
            Some(why) => io::Error::other(why),
            None => error,
        }),
    }
}
