//! A certificate for this machine and the authority that signed it, made by the `openssl` program.

use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Authority {
    folder: tempfile::TempDir,
}

const CURVE: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let within = folder.path();
        std::fs::write(within.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
        let made =
            ["req", "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"];
        openssl(within, &[&made[..], &CURVE].concat());
        let asked = ["req", "-new", "-subj", "/CN=server", "-keyout", "key.pem", "-out", "asked.pem"];
        openssl(within, &[&asked[..], &CURVE].concat());
        let signed = "x509 -req -in asked.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem";
        openssl(within, &signed.split(' ').collect::<Vec<_>>());
        Authority { folder }
    }

    pub fn file(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.to_str().unwrap().to_owned()
    }
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).current_dir(folder).output();
    let done = done.expect("openssl is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
