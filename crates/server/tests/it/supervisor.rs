//! A part of the real server fails: the log names it, `/readyz` fails with its name, the process exits with 1.
//! The faults are planted by `supervisor::fault`, which only a build with debug assertions has.

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

struct Server {
    folder: TempDir,
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    http: String,
    redis: String,
    tls: bool,
}

/// The planted fault, the settings it needs, and the thread that panics.
struct Case {
    part: &'static str,
    how: &'static str,
    set: &'static [&'static str],
    /// How the name of the failed part begins; a thread of an engine is reported by its own name.
    reported: &'static str,
    thread: &'static str,
}

const fn task(part: &'static str) -> Case {
    Case { part, how: "panic", set: &[], reported: part, thread: "runtime" }
}

const CASES: &[Case] = &[
    Case { thread: "shard-0", ..task("shard-0") },
    Case { how: "return", ..task("shard-1") },
    Case {
        set: &["nodes.heartbeat_ms=200"],
        reported: "tavern-store-",
        thread: "tavern-store-",
        ..task("store")
    },
    Case { set: &["second_server"], reported: "bus-", thread: "bus-", ..task("bus") },
    task("http-acceptor"),
    task("redis-acceptor"),
    task("liveness"),
    task("adoption"),
    task("delivery"),
    Case { how: "return", ..task("delivery") },
    task("load"),
    task("load-of-others"),
    task("clock"),
    task("revocation"),
    task("practice"),
    Case { set: &["metrics.statsd=127.0.0.1:9"], ..task("statsd") },
    Case { set: &["metrics.log_ms=60000"], ..task("metrics-log") },
    Case { set: &["tls"], ..task("tls-reload") },
];

impl Server {
    fn start(planted: &str, settings: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Server::start_on(folder, &data, planted, settings)
    }

    fn start_on(folder: TempDir, data: &Path, planted: &str, settings: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_"))
        {
            command.env_remove(name);
        }
        command
            .env("PLANTED_FAULT", format!("{planted}:{}", folder.path().join("due").display()))
            .args(["dev", "--listen", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--threads", "2"])
            .args(["--log", "json"])
            .arg("--data")
            .arg(data)
            .args(["--node", planted.split(':').next().unwrap()]);
        let tls = settings == ["tls"];
        if tls {
            make_certificate(folder.path());
            command.arg("--tls-cert").arg(folder.path().join("cert.pem"));
            command.arg("--tls-key").arg(folder.path().join("key.pem"));
        }
        for setting in settings.iter().filter(|setting| setting.contains('=')) {
            command.args(["--set", setting]);
        }
        let mut child =
            command.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, written) = (BufReader::new(child.stderr.take().unwrap()), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                written.lock().unwrap().push(line);
            }
        });
        let mut server = Server { folder, child, log, http: String::new(), redis: String::new(), tls };
        let ready = server.wait_for("ready");
        server.http = ready["http"].as_str().unwrap().to_owned();
        server.redis = ready["redis"].as_str().unwrap().to_owned();
        server
    }

    /// The fields of the first event with this message.
    fn wait_for(&self, message: &str) -> Value {
        let began = Instant::now();
        loop {
            if let Some(found) = self.events(message).into_iter().next() {
                return found;
            }
            assert!(began.elapsed() < DEADLINE, "no {message:?} in {:#?}", self.log.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn events(&self, message: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        let fields = log.iter().map(|line| line["fields"].clone());
        fields.filter(|fields| fields["message"] == message).collect()
    }

    fn connect(&self) -> Connection {
        let socket = TcpStream::connect(&self.http).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        if !self.tls {
            return Connection(Box::new(socket));
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.folder.path().join("cert.pem")).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        Connection(Box::new(rustls::StreamOwned::new(tls, socket)))
    }

    fn strike(&self) {
        std::fs::write(self.folder.path().join("due"), "").unwrap();
    }

    fn exit(&mut self) -> ExitStatus {
        let began = Instant::now();
        while began.elapsed() < DEADLINE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not exit: {:#?}", self.log.lock().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One HTTP connection that is kept.
struct Connection(Box<dyn Stream>);

impl Connection {
    fn get(&mut self, path: &str) -> (u16, String) {
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), String::from_utf8(body).unwrap())
    }
}

fn make_certificate(folder: &Path) {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout key.pem \
                     -out cert.pem -subj /CN=server -addext subjectAltName=IP:127.0.0.1 \
                     -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output();
    assert!(made.expect("openssl is installed").status.success());
}

fn check(case: &Case) {
    let Case { part, how, set, reported, thread } = case;
    let mut server = Server::start(&format!("{part}:{how}"), set);
    let mut connection = server.connect();
    assert_eq!(connection.get("/readyz").0, 200, "{part}");
    // A single server receives nothing from its bus.
    let second_server = (*set == ["second_server"]).then(|| {
        let (folder, data) = (tempfile::tempdir().unwrap(), server.folder.path().join("data"));
        Server::start_on(folder, &data, "other_node:none", &[])
    });
    let mut publisher = second_server.as_ref().map(|other| TcpStream::connect(&other.redis).unwrap());
    let mut redis = TcpStream::connect(&server.redis).unwrap();
    server.strike();
    let _ = redis.write_all(b"SUBSCRIBE game#1\r\n");
    let began = Instant::now();
    let body = loop {
        match connection.get("/readyz") {
            (200, _) => {
                assert!(began.elapsed() < DEADLINE, "{part} {how}: still ready");
                if let Some(publisher) = &mut publisher {
                    publisher.write_all(b"PUBLISH game#1 hello\r\n").unwrap();
                }
            }
            (status, body) => {
                assert_eq!(status, 503, "{part}");
                break body;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(body.starts_with(reported) && body.ends_with(" has failed\n"), "{part}: {body}");
    let failed = server.wait_for("part failed; stopping the server");
    assert_eq!(format!("{} has failed\n", failed["part"].as_str().unwrap()), body);
    let reason = failed["reason"].as_str().unwrap();
    if *how == "panic" {
        assert_eq!(reason, format!("panicked: planted in {part}"));
        let panic = &server.events("thread panicked")[0];
        assert!(panic["thread"].as_str().unwrap().starts_with(thread), "{panic}");
        assert_eq!(panic["panic"], format!("planted in {part}"));
        assert!(panic["location"].as_str().unwrap().contains("fault.rs:"), "{panic}");
    } else {
        assert_eq!(reason, "returned before the server stopped");
    }
    assert_eq!(server.exit().code(), Some(1), "{part} {how}");
}

#[test]
fn failed_part_is_logged_and_ends_the_process() {
    for cases in CASES.chunks(4) {
        std::thread::scope(|scope| {
            cases.iter().for_each(|case| drop(scope.spawn(|| check(case))));
        });
    }
}

#[test]
fn panic_in_a_request_fails_only_that_request() {
    let mut server = Server::start("request:panic", &[]);
    let mut connection = server.connect();
    server.strike();
    let (status, body) = connection.get("/livez");
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("\"internal\""), "{body}");
    std::fs::remove_file(server.folder.path().join("due")).unwrap();
    assert_eq!(connection.get("/readyz"), (200, "ready\n".to_owned()), "on the same connection");
    let (_, metrics) = server.connect().get("/metrics");
    assert!(metrics.contains("\ntavern_panics_total 1\n"), "{metrics}");
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(server.exit().code(), Some(0));
    assert!(server.events("part failed; stopping the server").is_empty());
}
