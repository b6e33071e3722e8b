//! TLS to the database, through rustls. Must hold: with `verify-full` only the named server is accepted; without it the
//! connection is encrypted and any certificate is accepted, as usual with Postgres.

use super::address::PostgresAddress;
use super::error::PostgresError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

#[derive(Clone)]
pub(super) struct PostgresTls(TlsConnector);

impl PostgresTls {
    pub fn new(address: &PostgresAddress) -> Result<PostgresTls, PostgresError> {
        let wrong =
            |what: &str, error: &dyn std::fmt::Display| PostgresError::Connector(format!("{what}: {error}"));
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("TLS", &error))?;
        let config = if address.verified {
            let mut roots = RootCertStore::empty();
            match &address.roots {
                None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
                Some(path) => {
                    let found =
                        CertificateDer::pem_file_iter(path).map_err(|error| wrong("sslrootcert", &error))?;
                    for root in found {
                        let root = root.map_err(|error| wrong("sslrootcert", &error))?;
                        roots.add(root).map_err(|error| wrong("sslrootcert", &error))?;
                    }
                }
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_webpki_verifier(verifier.map_err(|error| wrong("sslrootcert", &error))?)
        } else {
            config.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
        };
        Ok(PostgresTls(TlsConnector::from(Arc::new(config.with_no_client_auth()))))
    }
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = Wrapped;
    type TlsConnect = TlsAttempt;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsAttempt> {
        // A Unix socket has no name and no TLS.
        let name = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(name.to_string()).map_err(io::Error::other)?;
        Ok(TlsAttempt(self.0.clone(), name))
    }
}

/// One connection to be made.
pub(super) struct TlsAttempt(TlsConnector, ServerName<'static>);

impl TlsConnect<Socket> for TlsAttempt {
    type Stream = Wrapped;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Wrapped>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(self.1, stream).await.map(|stream| Wrapped(Box::new(stream))) })
    }
}

pub(super) struct Wrapped(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for Wrapped {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Wrapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for Wrapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
