//! Why a request to an endpoint failed, in words that an operator searches for: "connection refused", "TLS:
//! certificate expired", "timeout after 20 s". Must hold: one short line without text from the endpoint.

use super::answer::causes;
use super::dial::DialError;
use rustls::CertificateError;
use std::error::Error;
use std::io;
use std::time::Duration;

/// The text for an error of the HTTP client.
pub(super) fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(words) = of_cause(cause) {
            return words;
        }
        next = cause.source();
    }
    // Without the wrapper of the library.
    causes(error.source().unwrap_or(error))
}

pub(super) fn timeout(after: Duration) -> String {
    format!("timeout after {}", span(after))
}

fn span(time: Duration) -> String {
    let ms = time.as_millis();
    match ms % 1_000 {
        0 => format!("{} s", ms / 1_000),
        _ if ms < 1_000 => format!("{ms} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

fn of_cause(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(dial) = cause.downcast_ref::<DialError>() {
        return of_dial(dial);
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(of_tls(error));
    }
    let http = cause.downcast_ref::<hyper::Error>()?;
    http.is_incomplete_message().then(|| "connection closed before the response".to_owned())
}

fn of_dial(error: &DialError) -> Option<String> {
    Some(match error {
        DialError::ConnectTimeout { after, .. } => format!("connect {}", timeout(*after)),
        DialError::LookupTimeout { name, after } => format!("DNS: lookup of {name}: {}", timeout(*after)),
        DialError::TlsTimeout { after } => format!("TLS: handshake {}", timeout(*after)),
        DialError::Lookup { name, .. } => format!("DNS: cannot look up {name}"),
        DialError::NoAddress(name) => format!("DNS: {name} has no address"),
        // Its source says more.
        DialError::Connect { .. } | DialError::Tls(_) => return None,
        DialError::Plain
        | DialError::NoHost
        | DialError::NoAllowedAddress { .. }
        | DialError::Forbidden(_) => causes(error),
    })
}

fn of_io(error: &io::Error) -> Option<String> {
    // `source()` of an io error skips the error it was made from.
    if let Some(inner) = error.get_ref() {
        let inner: &(dyn Error + 'static) = inner;
        if let Some(words) = of_cause(inner) {
            return Some(words);
        }
    }
    let words = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => "connection closed",
        io::ErrorKind::UnexpectedEof => "connection closed before the response",
        io::ErrorKind::HostUnreachable => "host unreachable",
        io::ErrorKind::NetworkUnreachable => "network unreachable",
        io::ErrorKind::TimedOut => "connection timed out",
        _ => return None,
    };
    Some(words.to_owned())
}

fn of_tls(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(reason) = error else {
        return format!("TLS: {}", causes(error));
    };
    let words = match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate not valid yet"
        }
        CertificateError::UnknownIssuer => "certificate not trusted: unknown issuer",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "certificate not valid for this host name"
        }
        CertificateError::Revoked => "certificate revoked",
        CertificateError::BadSignature => "certificate has a bad signature",
        // The library has no name for it.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "certificate not trusted: self-signed"
        }
        _ => return format!("TLS: {}", causes(error)),
    };
    format!("TLS: {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_described_in_plain_text() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let address = "127.0.0.1:1".parse().unwrap();
        assert_eq!(in_words(&DialError::Connect { address, source: refused }), "connection refused");
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, expired));
        assert_eq!(in_words(&DialError::Tls(Box::new(wrapped))), "TLS: certificate expired");
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(in_words(&unknown), "TLS: certificate not trusted: unknown issuer");
        assert_eq!(in_words(&io::Error::other("odd\nthing")), "odd thing");
    }

    #[test]
    fn timeouts_are_in_seconds_or_milliseconds() {
        let text = |ms| timeout(Duration::from_millis(ms));
        assert_eq!(text(20_000), "timeout after 20 s");
        assert_eq!(text(400), "timeout after 400 ms");
        assert_eq!(text(1_500), "timeout after 1.5 s");
    }
}
