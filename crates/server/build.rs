//! Embeds what the server serves: the documents as HTML pages and the files that they link to, the dashboard, the demo, the
//! client and the OpenAPI document. Writes `embedded.rs` with a list of each, and `broken_links.rs`, which a test expects
//! to be empty.

mod client_build;
mod docs_build;
mod embed_build;

use docs_build::site;
use embed_build::Embedder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files outside `docs/` that the documents link to.
const OTHERS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/RESULTS.md",
    "bench/plots",
    "bench/TORTURE.md",
    "bench/TRUTH.md",
    "clients/js/README.md",
    "clients/python/README.md",
    "clients/scenarios/README.md",
    "clients/spec.md",
    "examples/README.md",
    "examples/matchmaker/matchmaker.py",
    "examples/pusher-chat/chat.cjs",
    "packaging",
    "proto/tavern.proto",
    "tools/judge/README.md",
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=client_build.rs");
    println!("cargo::rerun-if-changed=docs_build");
    println!("cargo::rerun-if-changed=embed_build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mut paths = Vec::new();
    for place in ["docs"].iter().chain(OTHERS) {
        let path = root.join(place);
        println!("cargo::rerun-if-changed={}", path.display());
        gather(&path, &mut paths)?;
    }
    let mut files = BTreeMap::new();
    for path in paths {
        let name = path.strip_prefix(&root).map_err(io::Error::other)?.display().to_string();
        files.insert(name, fs::read(&path)?);
    }
    let documents = site::read(&files);
    let broken = site::broken_links(&documents);
    for link in &broken {
        println!("cargo::warning=broken link in a document: {link}");
    }
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    let mut embedder = Embedder::new(out.join("embedded"))?;
    // Where readers can change a document: an address that its path in the repository follows.
    println!("cargo::rerun-if-env-changed=TAVERN_DOCS_EDIT_URL");
    let edit_url = env::var("TAVERN_DOCS_EDIT_URL").ok();
    let edition = site::Edition { version: env!("CARGO_PKG_VERSION"), edit_url: edit_url.as_deref() };
    let bytes = |(address, text): (String, String)| (address, text.into_bytes());
    let pages: Vec<(String, Vec<u8>)> = site::pages(&documents, &edition).into_iter().map(bytes).collect();
    let linked = files.iter().filter(|(name, _)| !name.ends_with(".md"));
    let mut linked: Vec<(String, Vec<u8>)> =
        linked.map(|(name, bytes)| (site::address_of(name), bytes.clone())).collect();
    let named = |name: &str, path: PathBuf| -> io::Result<Vec<(String, Vec<u8>)>> {
        println!("cargo::rerun-if-changed={}", path.display());
        Ok(vec![(name.to_owned(), fs::read(path)?)])
    };
    let sources = root.join("clients/js/src");
    println!("cargo::rerun-if-changed={}", sources.display());
    let client = vec![("client.js".to_owned(), client_build::join(&sources)?.into_bytes())];
    let mut openapi = named("openapi.json", root.join("crates/server/assets/openapi.json"))?;
    for (_, bytes) in &mut openapi {
        let text = String::from_utf8(std::mem::take(bytes)).map_err(io::Error::other)?;
        *bytes = text.replace("{{version}}", env!("CARGO_PKG_VERSION")).into_bytes();
    }
    let listed: Vec<_> = [site::Area::Users, site::Area::Contributors]
        .into_iter()
        .flat_map(|area| site::sections(&documents, area))
        .flat_map(|(_, members)| members)
        .collect();
    linked.extend(docs_build::twins::twins(&documents).into_iter().map(bytes));
    linked.push(("/docs/search.json".to_owned(), docs_build::search::index(&listed).into()));
    let lists = [
        embedder.list("PAGES", &pages)?,
        embedder.list("LINKED", &linked)?,
        embedder.list("DASHBOARD", &embed_build::folder(&root.join("dashboard"))?)?,
        embedder.list("DEMO", &embed_build::folder(&root.join("demo"))?)?,
        embedder.list("CLIENT", &client)?,
        embedder.list("OPENAPI", &openapi)?,
    ];
    fs::write(out.join("embedded.rs"), lists.concat())?;
    fs::write(out.join("broken_links.rs"), format!("const BROKEN_LINKS: &[&str] = &{broken:?};\n"))
}

fn gather(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        println!("cargo::rerun-if-changed={}", path.display());
        for entry in fs::read_dir(path)? {
            gather(&entry?.path(), files)?;
        }
    } else if path.is_file() {
        files.push(path.to_owned());
    }
    Ok(())
}
