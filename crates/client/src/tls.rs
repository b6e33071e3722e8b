//! TLS trust: the certificate authorities that browsers trust, or those of a file.

use crate::Error;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// A configuration that trusts the certificates of this PEM text instead of the public authorities; for
/// [`Builder::tls`](crate::Builder::tls) and [`Api::with_tls`](crate::Api::with_tls).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = tavern_client::trust_pem(&std::fs::read("ca.pem")?)?;
/// let client = tavern_client::Client::builder("https://tavern.internal").tls(tls).connect().await?;
/// # Ok(())
/// # }
/// ```
pub fn trust_pem(pem: &[u8]) -> Result<Arc<ClientConfig>, Error> {
    let wrong = |why: String| Error::new("bad_request", format!("cannot read the certificates: {why}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("the file has none".into()));
    }
    Ok(with_roots(roots))
}

pub(crate) fn default_tls() -> Arc<ClientConfig> {
    with_roots(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

fn with_roots(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.expect("the provider has the default versions").with_root_certificates(roots);
    Arc::new(config.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_certificates_is_refused() {
        for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(trust_pem(pem.as_bytes()).expect_err(pem).code, "bad_request");
        }
    }
}
