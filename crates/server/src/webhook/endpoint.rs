//! Endpoints for tests of the sender: one that follows a script byte for byte, and one with TLS and negotiated HTTP
//! versions. Both count connections and requests.

use super::WebhookTarget;
use super::address::Policy;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What a scripted endpoint does after a request.
#[derive(Clone, Debug)]
pub enum EndpointStep {
    Say(String),
    /// This many times, until the peer closes.
    Repeat(&'static str, usize),
    Wait(Duration),
    /// Sends nothing more and waits until the peer closes.
    Hang,
    Close,
}

/// The head of an answer with this status and no body.
pub fn status(line: &str) -> Vec<EndpointStep> {
    vec![EndpointStep::Say(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n"))]
}

/// A complete answer.
pub fn ok(body: &str) -> Vec<EndpointStep> {
    vec![EndpointStep::Say(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))]
}

#[derive(Default)]
pub struct EndpointCounts {
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    pub ended: AtomicUsize,
    /// The received request heads; with TLS, the HTTP versions.
    pub seen: Mutex<Vec<String>>,
}

impl EndpointCounts {
    fn saw(&self, text: String) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        self.requests.fetch_add(1, Ordering::SeqCst)
    }
}

pub struct TestEndpoint {
    pub address: SocketAddr,
    pub counts: Arc<EndpointCounts>,
    task: JoinHandle<()>,
}

impl Drop for TestEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestEndpoint {
    /// `script` gets the number of the connection and of the request on it.
    pub async fn scripted(
        at: &str,
        script: impl Fn(usize, usize) -> Vec<EndpointStep> + Send + Sync + 'static,
    ) -> TestEndpoint {
        let script = Arc::new(script);
        TestEndpoint::start(at, move |socket, connection, counts| {
            let script = script.clone();
            async move {
                let _ = play(socket, connection, &counts, &*script).await;
                counts.ended.fetch_add(1, Ordering::SeqCst);
            }
        })
        .await
    }

    /// Answers every request with 200 over TLS; a connection sends GOAWAY after this many.
    pub async fn sealed(authority: &Authority, protocols: &[&str], max: usize) -> TestEndpoint {
        let acceptor = authority.acceptor(protocols);
        TestEndpoint::start("127.0.0.1", move |socket, _, counts| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(socket) = acceptor.accept(socket).await else { return };
                let two = socket.get_ref().1.alpn_protocol() == Some(b"h2");
                let served = AtomicUsize::new(0);
                let enough = Notify::new();
                let service = service_fn(|request: Request<Incoming>| {
                    let version = if request.version() == Version::HTTP_2 { "h2" } else { "h1" };
                    counts.saw(version.to_owned());
                    if served.fetch_add(1, Ordering::SeqCst) + 1 == max {
                        enough.notify_one();
                    }
                    async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"fine")))) }
                });
                let io = TokioIo::new(socket);
                if two {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let mut serving = pin!(server.serve_connection(io, service));
                    tokio::select! {
                        _ = &mut serving => return,
                        () = enough.notified() => serving.as_mut().graceful_shutdown(),
                    }
                    let _ = serving.await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(io, service).await;
                }
            }
        })
        .await
    }

    async fn start<F: Future<Output = ()> + Send + 'static>(
        at: &str,
        serve: impl Fn(TcpStream, usize, Arc<EndpointCounts>) -> F + Send + Sync + 'static,
    ) -> TestEndpoint {
        let listener = TcpListener::bind((at, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let counts = Arc::new(EndpointCounts::default());
        let mine = counts.clone();
        let task = tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let connection = mine.connections.fetch_add(1, Ordering::SeqCst);
                served.spawn(serve(socket, connection, mine.clone()));
            }
        });
        TestEndpoint { address, counts, task }
    }

    pub fn target(&self, scheme: &str, host: &str) -> WebhookTarget {
        let policy = Policy { allow_http: true, allow_private: true, ..Policy::default() };
        let text = format!("{scheme}://{host}:{}/hook?a=1", self.address.port());
        WebhookTarget::parse(&text, &policy).expect("a target")
    }

    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<String> {
        self.counts.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn play(
    socket: TcpStream,
    connection: usize,
    counts: &EndpointCounts,
    script: &(impl Fn(usize, usize) -> Vec<EndpointStep> + ?Sized),
) -> std::io::Result<()> {
    let mut socket = BufStream::new(socket);
    for number in 0.. {
        let Some(head) = read_request(&mut socket).await? else { return Ok(()) };
        counts.saw(head);
        for step in script(connection, number) {
            match step {
                EndpointStep::Say(text) => {
                    socket.write_all(text.as_bytes()).await?;
                    socket.flush().await?;
                }
                EndpointStep::Repeat(text, times) => {
                    for _ in 0..times {
                        socket.write_all(text.as_bytes()).await?;
                    }
                }
                EndpointStep::Wait(time) => tokio::time::sleep(time).await,
                EndpointStep::Hang => {
                    socket.read_u8().await?;
                }
                EndpointStep::Close => return Ok(()),
            }
        }
    }
    Ok(())
}

/// A request with its body, of which the head is returned; None when the peer has closed.
async fn read_request(socket: &mut BufStream<TcpStream>) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Ok(None),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    socket.read_exact(&mut body).await?;
    Ok(Some(head))
}

/// A certificate for this machine and the authority that signed it, made by the `openssl` program.
pub struct Authority(tempfile::TempDir);

const CURVE: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

impl Authority {
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        let within = folder.path();
        std::fs::write(within.join("names"), "subjectAltName=IP:127.0.0.1,DNS:hook.example\n")
            .expect("written");
        openssl(within, &format!("req -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem {CURVE}"));
        openssl(within, &format!("req -new -subj /CN=server -keyout key.pem -out asked.pem {CURVE}"));
        let sign = "x509 -req -in asked.pem -CA ca.pem -CAkey ca.key -CAcreateserial";
        openssl(within, &format!("{sign} -days 2 -extfile names -out cert.pem"));
        Authority(folder)
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.0.path().join("ca.pem")).expect("a certificate")
    }

    fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let chain = CertificateDer::from_pem_file(self.0.path().join("cert.pem")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(self.0.path().join("key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let mut config = config.with_single_cert(vec![chain], key).expect("they fit");
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let done = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let done = done.expect("openssl is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
