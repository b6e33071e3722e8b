//! Builds the site that the server serves at `/docs`: the documents as HTML pages, and the files that they link to.
//! Writes `docs_site.rs` with two lists, `PAGES` and `FILES`, and `BROKEN_LINKS`, which a test expects to be empty.

mod docs_build;

use docs_build::site;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files outside `docs/` that the documents link to.
const OTHERS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "bench/RESULTS.md",
    "bench/plots",
    "bench/TORTURE.md",
    "clients/js/README.md",
    "clients/python/README.md",
    "clients/scenarios/README.md",
    "examples/matchmaker/matchmaker.py",
    "packaging",
    "proto/tavern.proto",
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=docs_build");
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
    let pages_folder = out.join("pages");
    fs::create_dir_all(&pages_folder)?;
    let mut list = String::from("static PAGES: &[DocsFile] = &[\n");
    for (number, (address, html)) in site::pages(&documents).iter().enumerate() {
        let path = pages_folder.join(format!("{number}.html"));
        fs::write(&path, html)?;
        entry(&mut list, address, &path)?;
    }
    let index = out.join("search.json");
    let listed: Vec<_> = [site::Area::Users, site::Area::Contributors]
        .into_iter()
        .flat_map(|area| site::sections(&documents, area))
        .flat_map(|(_, members)| members)
        .collect();
    fs::write(&index, docs_build::search::index(&listed))?;
    list.push_str("];\nstatic FILES: &[DocsFile] = &[\n");
    for name in files.keys().filter(|name| !name.ends_with(".md")) {
        entry(&mut list, &site::address_of(name), &root.join(name))?;
    }
    entry(&mut list, "/docs/search.json", &index)?;
    writeln!(list, "];\n#[cfg(test)]\nstatic BROKEN_LINKS: &[&str] = &{broken:?};")
        .map_err(io::Error::other)?;
    fs::write(out.join("docs_site.rs"), list)
}

fn entry(list: &mut String, address: &str, path: &Path) -> io::Result<()> {
    let path = path.display().to_string();
    writeln!(list, "    DocsFile {{ address: {address:?}, bytes: include_bytes!({path:?}) }},")
        .map_err(io::Error::other)
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
