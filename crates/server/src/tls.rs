//! Certificates: loaded at the start, loaded again when the files change. A broken new file leaves the old one in use.

use crate::config::TlsFiles;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate {0} cannot be read: {1}")]
    Certificate(String, rustls_pki_types::pem::Error),
    #[error("the key {0} cannot be read: {1}")]
    Key(String, rustls_pki_types::pem::Error),
    #[error("certificate and key do not fit: {0}")]
    Config(#[from] rustls::Error),
}

pub struct Reloading {
    files: TlsFiles,
    current: Mutex<Arc<ServerConfig>>,
}

impl Reloading {
    pub fn load(files: TlsFiles) -> Result<Arc<Reloading>, TlsError> {
        let current = Mutex::new(load(&files)?);
        Ok(Arc::new(Reloading { files, current }))
    }

    pub fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone().into()
    }

    /// Watches the files until the server ends.
    pub async fn watch(self: Arc<Reloading>) {
        let mut seen = changed_at(&self.files);
        loop {
            tokio::time::sleep(LOOK).await;
            let now = changed_at(&self.files);
            if now == seen {
                continue;
            }
            seen = now;
            match load(&self.files) {
                Ok(config) => {
                    *self.current.lock().unwrap_or_else(PoisonError::into_inner) = config;
                    tracing::info!("the TLS certificate was loaded again");
                }
                Err(error) => tracing::error!(%error, "the new TLS files are not used"),
            }
        }
    }
}

fn changed_at(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let at = |path: &std::path::Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    [at(&files.cert), at(&files.key)]
}

fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let named = |path: &std::path::Path| path.display().to_string();
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&files.cert).and_then(|certificates| certificates.collect());
    let chain = chain.map_err(|error| TlsError::Certificate(named(&files.cert), error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| TlsError::Key(named(&files.key), error))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
