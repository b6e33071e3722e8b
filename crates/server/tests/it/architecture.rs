//! The architecture: which crate and which module may use which, how large files and types may be, that a type name means one
//! thing, and that every file and folder describes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest source file, in lines. When a file grows past its noun, it is split.
const LINES_MAX: usize = 500;

/// The folders of the hub that are no features. All others use the core and never each other: they exchange notices.
const NO_FEATURES: &[&str] = &["core", "node", "shard", "transaction", "replica"];

/// For each crate: the crates of ours and the notable others that it may use. Anything named in `WATCHED` and not
/// here is a fault.
const MAY_USE: &[(&str, &[&str])] = &[
    ("crates/domain", &[]),
    ("crates/wire", &["tavern-domain", "serde", "serde_json"]),
    ("crates/local", &["tavern-domain", "rusqlite"]),
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
            // The handshake of NATS is JSON.
            "serde_json",
        ],
    ),
    ("crates/pusher", &["tavern-domain", "tavern-wire", "serde", "serde_json"]),
    ("crates/hub", &["tavern-domain", "tavern-wire", "tavern-store", "serde_json"]),
    ("crates/sim", &["tavern-domain", "tavern-wire", "tavern-store", "tavern-hub", "serde_json"]),
    // Published: it uses nothing of this repository.
    ("crates/client", &["tokio", "hyper", "serde", "serde_json"]),
    (
        "crates/server",
        &[
            "tavern-domain",
            "tavern-wire",
            "tavern-store",
            "tavern-engines",
            "tavern-local",
            "tavern-hub",
            "tavern-pusher",
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
    ("bench/guard", &["tavern-domain", "tavern-wire", "tavern-store", "tavern-hub"]),
];

const WATCHED: &[&str] = &[
    "tavern-domain",
    "tavern-wire",
    "tavern-store",
    "tavern-engines",
    "tavern-local",
    "tavern-hub",
    "tavern-pusher",
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

/// The crates of the server. A type name is defined once in all of them together.
const SERVER_CRATES: &[&str] = &["domain", "wire", "store", "engines", "hub", "pusher", "server", "sim"];

/// The crates that other programs use. A public name here repeats a name of the server only when it is in `SHARED_NAMES`.
const LIBRARIES: &[&str] = &["client", "local"];

/// Public names of the libraries that the server uses for the same thing, each with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Activity", "what a user is doing, as the client receives it"),
    ("Channel", "a channel, as an object with methods in the client"),
    ("Error", "the error type of each library, by convention"),
    ("Event", "what a session receives"),
    ("Interest", "a subscription to a channel or pattern: of a node on the bus, of a process in a folder"),
    ("Message", "a published message, as its receiver sees it"),
    ("Party", "a party, as an object with methods in the client"),
    ("PartyEvent", "what happened to a party"),
    ("PartyInvite", "an open invite to a party"),
    ("PartyMember", "a member of a party"),
    ("PartySnapshot", "a party as its members see it; the judges of the simulator have their own"),
    ("PartyState", "what a party is doing"),
    ("PresenceMode", "how much presence a watcher gets"),
    ("PresentClient", "a client that is present in a channel"),
    ("Pulled", "events pulled from a subscription"),
    ("Refusal", "why the server refused something"),
    ("ReplayFrom", "where a replay begins"),
    ("SentRequest", "the request of an attempt to deliver a batch"),
    ("Status", "what followers see of a user"),
    ("StatusUpdate", "a change of a status"),
    ("SubscriptionSettings", "the settings of a subscription to topics"),
    ("UserChannel", "a channel that a user is in"),
    ("Visibility", "who sees a user"),
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
    let hub = root().join("crates/hub");
    let graph = modules(&hub);
    let folders = std::fs::read_dir(hub.join("src")).unwrap().map(|entry| entry.unwrap());
    let features: BTreeSet<String> = folders
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !NO_FEATURES.contains(&name.as_str()))
        .collect();
    assert!(features.contains("history") && features.len() > 8, "{features:?}");
    for feature in &features {
        let used = &graph[feature];
        let sibling = features.iter().find(|other| *other != feature && used.contains(*other));
        assert!(sibling.is_none(), "{feature} uses {}", sibling.unwrap());
        assert!(!used.contains("shard"), "{feature} uses the shard");
    }
    for other in ["core", "node", "transaction", "replica"] {
        let known = features.iter().find(|feature| graph[other].contains(*feature));
        assert!(known.is_none(), "{other} knows the feature {}", known.unwrap());
    }
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
fn shard_and_core_live_in_one_folder() {
    for folder in crates() {
        for (name, (_, folders)) in methods(&folder) {
            if ["Shard", "Core"].contains(&name.as_str()) {
                assert_eq!(folders.len(), 1, "{name} has methods in {folders:?}");
            }
        }
    }
    let core = methods(&root().join("crates/hub"))["Core"].0;
    assert!(core > 20, "methods are counted: the core has {core}");
}

/// The type that a line of code defines, and whether it is public outside its crate.
fn defined_type(line: &str) -> Option<(&str, bool)> {
    let (item, public) = match line.trim_start().strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (rest.split_once(") ")?.1, false),
        Some(rest) => (rest.trim_start(), true),
        None => (line.trim_start(), false),
    };
    let (keyword, rest) = item.split_once(' ')?;
    // An indented alias is an associated type of a trait.
    let defines = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (defines && !name.is_empty()).then_some((name, public))
}

/// Where each type of a crate is defined outside its tests: its name, whether it is public, its file.
fn defined_types(folder: &str) -> Vec<(String, bool, PathBuf)> {
    let mut files = Vec::new();
    sources(&root().join("crates").join(folder).join("src"), &mut files);
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).unwrap().to_owned();
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path.file_stem().is_some_and(|stem| stem.to_str().unwrap().ends_with("tests"));
        if is_test {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let types = code.lines().filter_map(defined_type);
        found.extend(types.map(|(name, public)| (name.to_owned(), public, path.clone())));
    }
    found
}

#[test]
fn a_type_name_has_one_definition() {
    let mut defined: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (name, _, file) in SERVER_CRATES.iter().flat_map(|folder| defined_types(folder)) {
        if let Some(first) = defined.insert(name.clone(), file.clone()) {
            panic!("{name} is defined in {} and in {}: rename one", first.display(), file.display());
        }
    }
    assert!(defined.len() > 500, "the types were found: {}", defined.len());
    let shared: BTreeSet<&str> = SHARED_NAMES.iter().map(|(name, _)| *name).collect();
    let mut repeated = BTreeSet::new();
    for (name, public, file) in LIBRARIES.iter().flat_map(|folder| defined_types(folder)) {
        if !public {
            continue;
        }
        if let Some(first) = defined.insert(name.clone(), file.clone()) {
            let hint = "rename one, or list it in SHARED_NAMES if both mean the same";
            let (first, second) = (first.display(), file.display());
            assert!(shared.contains(&*name), "{name} is defined in {first} and in {second}: {hint}");
            repeated.insert(name);
        }
    }
    let stale = shared.iter().find(|name| !repeated.contains(**name));
    assert!(stale.is_none(), "{} is in SHARED_NAMES and has one definition", stale.unwrap());
}

#[test]
fn definitions_of_types_are_recognised() {
    for (line, expected) in [
        ("pub struct Party<T> {", Some(("Party", true))),
        ("pub(crate) enum Step {", Some(("Step", false))),
        ("struct Unit;", Some(("Unit", false))),
        ("    pub trait Store: Send {", Some(("Store", true))),
        ("type Pages = Vec<Page>;", Some(("Pages", false))),
        ("    type Outcome = ();", None),
        ("pub fn structure() {", None),
        ("// struct Comment {", None),
    ] {
        assert_eq!(defined_type(line), expected, "{line}");
    }
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
fn files_are_small_and_begin_with_their_description() {
    let mut files = Vec::new();
    for folder in ["crates", "bench/src"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 50, "the sources were found");
    let mut sizes = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not begin with `//!`", file.display());
        sizes.insert(text.lines().count(), file);
    }
    let (lines, largest) = sizes.last_key_value().unwrap();
    assert!(*lines <= LINES_MAX, "{} has {lines} lines, at most {LINES_MAX}", largest.display());
}

/// Only `local` shares memory between processes.
#[test]
fn every_crate_but_local_forbids_unsafe_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut roots: Vec<_> = crates.filter(|path| !path.ends_with("local")).collect();
    roots.push(root.join("bench"));
    for folder in roots {
        let files = ["src/lib.rs", "src/main.rs"].map(|name| folder.join(name));
        for file in files.iter().filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.contains("\n#![forbid(unsafe_code)]"), "{} allows unsafe code", file.display());
        }
    }
}
