//! A connection to a server, plain or TLS.

use super::LinkRequest;
use crate::tls::explain;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

pub(crate) async fn connect(request: &LinkRequest) -> io::Result<Box<dyn Io>> {
    let address = &request.address;
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    request.reached.store(true, Ordering::Relaxed);
    stream.set_nodelay(true)?;
    if !address.secure {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    match TlsConnector::from(request.tls.clone()).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(match explain(&error, &address.authority()) {
            Some(why) => io::Error::other(why),
            None => error,
        }),
    }
}
