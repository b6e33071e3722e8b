//! The architecture: which crate and which module may use which, how large files and types may be, and that every file and
//! folder says what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest source file, in lines. When a file grows past its noun, it is split.
const LINES_MAX: usize = 500;

/// The most methods of one type. When a type does more than one thing, it is split.
const METHODS_MAX: usize = 40;

/// The features of the hub. They know the core, not each other: what one must tell another is a notice.
const FEATURES: &[&str] = &["presence", "people", "inbox", "party", "migration", "liveness", "topics"];

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
fn the_domain_uses_no_standard_library() {
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
    let engines = ["sqlite", "postgres", "redis", "nats", "local", "memory"];
    let paths: Vec<String> = engines
        .iter()
        .flat_map(|engine| [format!("tavern_engines::{engine}"), format!("tavern_store::{engine}")])
        .collect();
    let mut files = Vec::new();
    sources(&root().join("crates/server/src"), &mut files);
    for file in files {
        let name = file.strip_prefix(root()).unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let named = paths.iter().find(|path| text.contains(path.as_str()));
        let boot = name.starts_with("crates/server/src/boot");
        assert!(named.is_none() || boot, "{} names {}", name.display(), named.unwrap());
    }
}

/// A crate's top-level modules, and which of them each one uses outside its tests.
fn modules(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files);
    let module_of = |file: &Path| {
        let first = file.strip_prefix(folder.join("src")).unwrap().components().next().unwrap();
        first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
    };
    let names: BTreeSet<String> = files.iter().map(|file| module_of(file)).collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let own = module_of(file);
        let used = graph.entry(own.clone()).or_default();
        for path in code.split("crate::").skip(1) {
            let inner = path.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or(path);
            let braced = path.starts_with('{');
            for (at, part) in inner.split(|c: char| !c.is_alphanumeric() && c != '_').enumerate() {
                if (at == 0 || braced) && part != own && part != "lib" && names.contains(part) {
                    used.insert(part.to_owned());
                }
                if !braced {
                    break;
                }
            }
        }
    }
    graph
}

fn crates() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.join("Cargo.toml").exists()).collect();
    folders.sort();
    folders
}

/// A way from a module back to itself, if there is one.
fn cycle_from(graph: &BTreeMap<String, BTreeSet<String>>, start: &str) -> Option<Vec<String>> {
    let mut open = vec![vec![start.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop() {
        for next in graph.get(path.last().unwrap()).into_iter().flatten() {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                open.push(longer);
            }
        }
    }
    None
}

#[test]
fn modules_form_no_cycle_in_any_crate() {
    for folder in crates() {
        let graph = modules(&folder);
        for module in graph.keys() {
            let cycle = cycle_from(&graph, module);
            assert!(cycle.is_none(), "{}: {}", folder.display(), cycle.unwrap().join(" -> "));
        }
    }
    let circle = [("a", "b"), ("b", "c"), ("c", "a")];
    let circle = circle.map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])));
    assert!(cycle_from(&circle.into(), "a").is_some(), "a cycle is found");
}

#[test]
fn features_of_the_hub_do_not_know_each_other() {
    let graph = modules(&root().join("crates/hub"));
    for feature in FEATURES {
        let used = graph.get(*feature).unwrap_or_else(|| panic!("the hub has a feature {feature}"));
        let sibling = FEATURES.iter().find(|other| used.contains(**other));
        assert!(sibling.is_none(), "{feature} uses {}", sibling.unwrap());
        assert!(!used.contains("shard"), "{feature} uses the shard");
    }
    assert!(FEATURES.iter().all(|feature| !graph["core"].contains(*feature)), "the core knows no feature");
}

/// The methods of each type, by crate and type name, and the folders they are in. Traits' methods do not count.
fn methods(folder: &Path) -> BTreeMap<String, (usize, BTreeSet<PathBuf>)> {
    let mut files = Vec::new();
    sources(&folder.join("src"), &mut files);
    let mut found: BTreeMap<String, (usize, BTreeSet<PathBuf>)> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let mut owner: Option<String> = None;
        for line in code.lines() {
            if let Some(header) = line.strip_prefix("impl") {
                let header = header.split(" {").next().unwrap();
                let named = if header.starts_with('<') {
                    header.split_once("> ").map(|(_, rest)| rest)
                } else {
                    Some(header.trim())
                };
                let name = named.filter(|name| !name.contains(" for "));
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                owner = name.and_then(|name| name.split(end).next()).map(str::to_owned);
            } else if line == "}" {
                owner = None;
            } else if let Some(owner) = &owner {
                let line = line.strip_prefix("    ").unwrap_or("");
                let line = line.strip_prefix("pub").map_or(line, |rest| {
                    rest.strip_prefix('(')
                        .and_then(|rest| rest.split_once(')'))
                        .map_or(rest, |(_, rest)| rest)
                });
                let line = line.trim_start_matches(' ');
                let line = line.strip_prefix("const ").unwrap_or(line);
                let line = line.strip_prefix("async ").unwrap_or(line);
                if line.starts_with("fn ") && !line.is_empty() {
                    let entry = found.entry(owner.clone()).or_default();
                    entry.0 += 1;
                    entry.1.insert(file.parent().unwrap().to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn types_are_small_and_live_in_one_folder() {
    for folder in crates() {
        for (name, (count, folders)) in methods(&folder) {
            assert!(count <= METHODS_MAX, "{}: {name} has {count} methods", folder.display());
            if ["Shard", "Core"].contains(&name.as_str()) {
                assert_eq!(folders.len(), 1, "{name} has methods in {folders:?}");
            }
        }
    }
    let core = methods(&root().join("crates/hub"))["Core"].0;
    assert!(core > 20, "methods are counted: the core has {core}");
}

#[test]
fn every_module_folder_is_named_in_the_architecture() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for folder in crates() {
        for entry in std::fs::read_dir(folder.join("src")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                let named = text.contains(&format!("`{name}/`")) || text.contains(&format!("`{name}`"));
                assert!(named, "ARCHITECTURE.md does not name {name}/ of {}", folder.display());
            }
        }
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
