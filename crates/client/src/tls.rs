//! TLS trust: the certificate authorities that browsers trust, or those of a file.

use crate::Error;
use rustls::CertificateError;
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
    let wrong = |why: String| Error::Invalid(format!("cannot read the certificates: {why}"));
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

/// Trusts the authorities that the features of this crate name.
#[cfg(any(feature = "webpki-roots", feature = "native-roots"))]
pub(crate) fn default_tls() -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    #[cfg(feature = "webpki-roots")]
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    #[cfg(feature = "native-roots")]
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Some(with_roots(roots))
}

#[cfg(not(any(feature = "webpki-roots", feature = "native-roots")))]
pub(crate) fn default_tls() -> Option<Arc<ClientConfig>> {
    None
}

/// The given configuration, or the default one. An address that needs TLS needs either.
pub(crate) fn configured(given: Option<Arc<ClientConfig>>, needed: bool) -> Result<Arc<ClientConfig>, Error> {
    match given.or_else(default_tls) {
        Some(config) => Ok(config),
        None if needed => Err(Error::Invalid(
            "no certificate authority is trusted: give a TLS configuration, or use the feature webpki-roots or native-roots"
                .to_owned(),
        )),
        None => Ok(with_roots(RootCertStore::empty())),
    }
}

/// What a failed connection says to people, if TLS is the cause: what is wrong, then what to do. rustls names its own types.
pub(crate) fn explain(error: &(dyn std::error::Error + 'static), host: &str) -> Option<String> {
    let mut cause = Some(error);
    while let Some(known) = cause {
        if let Some(error) = known.downcast_ref::<rustls::Error>() {
            return Some(in_words(error, host));
        }
        // The source of an `io::Error` is that of what it wraps, not what it wraps.
        cause = match known.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => known.source(),
        };
    }
    None
}

fn in_words(error: &rustls::Error, host: &str) -> String {
    match error {
        rustls::Error::InvalidMessage(_) => {
            format!("{host} does not speak TLS at this port; use http:// or the port for https")
        }
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "the certificate of {host} is signed by no authority that this client trusts (it may be self-signed)"
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("the certificate of {host} has expired; renew it")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("the certificate of {host} is not valid yet; check the clocks")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the certificate is not for {host}; use a name that it contains")
            }
            // What `openssl req -x509` makes.
            CertificateError::Other(other) if other.0.to_string().contains("CaUsedAsEndEntity") => format!(
                "the certificate of {host} is self-signed as that of an authority and cannot be a server's; make one with \
                 basicConstraints=CA:FALSE"
            ),
            why => format!("the certificate of {host} is not valid: {why}"),
        },
        error => format!("no TLS connection to {host}: {error}"),
    }
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
    fn failures_are_explained_without_the_words_of_the_library() {
        use rustls::{Error, InvalidMessage};
        let check = |error: Error, expected: &str| {
            let wrapped = std::io::Error::other(std::io::Error::other(error));
            let text = explain(&wrapped, "tavern.example").expect("TLS is the cause");
            assert!(text.contains(expected) && !text.contains("InvalidContentType"), "{text}");
        };
        check(InvalidMessage::InvalidContentType.into(), "does not speak TLS at this port; use http://");
        check(CertificateError::UnknownIssuer.into(), "signed by no authority that this client trusts");
        check(CertificateError::Expired.into(), "has expired");
        check(CertificateError::NotValidForName.into(), "is not for tavern.example");
        assert_eq!(explain(&std::io::Error::other("refused"), "tavern.example"), None);
    }

    #[test]
    fn text_without_certificates_is_refused() {
        for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(trust_pem(pem.as_bytes()).expect_err(pem).code(), "bad_request");
        }
    }
}
