//! The house itself: who may use whom, how large a file may be, that every file says what it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest source file, in lines. When a file grows past its noun, it is split.
const LINES_MAX: usize = 500;

/// For each crate: the crates of ours and the notable others that it may use. Anything named in `WATCHED` and not
/// here is a fault.
const MAY_USE: &[(&str, &[&str])] = &[
    ("crates/domain", &[]),
    ("crates/wire", &["tavern-domain", "serde", "serde_json"]),
    ("crates/local", &["tavern-domain", "rusqlite"]),
    // NATS says who it is in JSON.
    ("crates/store", &["tavern-domain"]),
    (
        "crates/engines",
        &[
            "tavern-domain",
            "tavern-store",
            "tavern-wire",
            "tavern-local",
            "rusqlite",
            "tokio",
            "tracing",
            "serde_json",
        ],
    ),
    ("crates/hub", &["tavern-domain", "tavern-wire", "tavern-engine", "tavern-store", "serde_json"]),
    (
        "crates/sim",
        &["tavern-domain", "tavern-wire", "tavern-engine", "tavern-store", "tavern-hub", "serde_json"],
    ),
    ("crates/client", &["tavern-domain", "tavern-wire", "tokio", "hyper", "serde", "serde_json"]),
    (
        "crates/server",
        &[
            "tavern-domain",
            "tavern-wire",
            "tavern-store",
            "tavern-engines",
            "tavern-local",
            "tavern-hub",
            "tokio",
            "mio",
            "hyper",
            "serde",
            "serde_json",
            "tracing",
            "socket2",
        ],
    ),
    ("bench", &["mio", "serde", "serde_json", "socket2"]),
];

const WATCHED: &[&str] = &[
    "tavern-domain",
    "tavern-wire",
    "tavern-engine",
    "tavern-store",
    "tavern-engines",
    "tavern-local",
    "tavern-hub",
    "tavern-bench",
    "tavern",
    "tokio",
    "mio",
    "hyper",
    "serde",
    "serde_json",
    "rusqlite",
    "tracing",
    "rand",
    "socket2",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The names under `[dependencies]`; what tests use is free.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    match manifest.get("dependencies") {
        Some(toml::Value::Table(table)) => table.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    for (folder, allowed) in MAY_USE {
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest) {
            let watched = WATCHED.contains(&used.as_str());
            assert!(!watched || allowed.contains(&used.as_str()), "{folder} must not use {used}");
        }
    }
}

/// Direct or not: whatever these crates link must not reach a socket, a database or a runtime.
#[test]
fn hub_sim_and_store_link_no_runtime_database_or_tls() {
    for package in ["tavern-store", "tavern-hub", "tavern-sim"] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
            .args(["--package", package])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        let linked: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(linked.contains(&"tavern-domain"), "{package}: the tree was read");
        for banned in ["tokio", "rusqlite", "rustls", "tokio-postgres"] {
            assert!(!linked.contains(&banned), "{package} links {banned}");
        }
    }
}

#[test]
fn the_rules_have_no_standard_library() {
    let lib = std::fs::read_to_string(root().join("crates/domain/src/lib.rs")).unwrap();
    assert!(lib.contains("#![no_std]"));
    let manifest = std::fs::read_to_string(root().join("crates/domain/Cargo.toml")).unwrap();
    assert!(dependencies(&manifest).is_empty());
}

#[test]
fn the_hub_reads_no_clock_and_opens_no_socket() {
    let mut files = Vec::new();
    for folder in ["crates/hub/src", "crates/sim/src", "crates/domain/src"] {
        sources(&root().join(folder), &mut files);
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in ["SystemTime", "Instant::now", "std::net", "TcpStream", "std::thread"] {
            assert!(!text.contains(word), "{} names {word}", file.display());
        }
    }
}

#[test]
fn engines_are_named_at_boot_only() {
    let mut files = Vec::new();
    sources(&root().join("crates/server/src"), &mut files);
    for file in files {
        let name = file.strip_prefix(root()).unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let engine = text.contains("tavern_engines::sqlite") || text.contains("tavern_store::memory");
        assert!(!engine || name.starts_with("crates/server/src/boot"), "{} names an engine", name.display());
    }
}

#[test]
fn files_are_small_and_say_what_they_are() {
    let mut files = Vec::new();
    for folder in ["crates", "bench/src"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 50, "the sources were found");
    let mut sizes = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not say what it is", file.display());
        sizes.insert(text.lines().count(), file);
    }
    let (lines, largest) = sizes.last_key_value().unwrap();
    assert!(*lines <= LINES_MAX, "{} has {lines} lines, at most {LINES_MAX}", largest.display());
}
