//! TLS certificates: loaded at the start and reloaded when the files change. If the new files are broken, the old
//! certificate stays in use.

use crate::config::TlsFiles;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How often the files are checked.
const CHECK: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the certificate {0}: {1}")]
    Certificate(String, rustls_pki_types::pem::Error),
    #[error("cannot read the key {0}: {1}")]
    Key(String, rustls_pki_types::pem::Error),
    #[error("the certificate and the key do not match: {0}")]
    Config(#[from] rustls::Error),
}

pub struct TlsReloader {
    files: TlsFiles,
    current: Mutex<Arc<ServerConfig>>,
}

impl TlsReloader {
    pub fn load(files: TlsFiles) -> Result<Arc<TlsReloader>, TlsError> {
        let current = Mutex::new(load(&files)?);
        Ok(Arc::new(TlsReloader { files, current }))
    }

    pub fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone().into()
    }

    /// Watches the files until the server ends.
    pub async fn watch(self: Arc<TlsReloader>) {
        let mut seen = changed_at(&self.files);
        loop {
            tokio::time::sleep(CHECK).await;
            let now = changed_at(&self.files);
            if now == seen {
                continue;
            }
            seen = now;
            match load(&self.files) {
                Ok(config) => {
                    *self.current.lock().unwrap_or_else(PoisonError::into_inner) = config;
                    tracing::info!("TLS certificate reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "cannot load the new TLS files; the old certificate stays in use")
                }
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
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
