//! Makes the list of the documents that the server gives out at `/docs`: every file of `docs/` and what they name elsewhere.
//! Must hold: a document that is added is served without a change here.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Files that the documents name and that lie elsewhere.
const OTHERS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mut files = Vec::new();
    for place in ["docs"].iter().chain(OTHERS) {
        let path = root.join(place);
        println!("cargo::rerun-if-changed={}", path.display());
        gather(&path, &mut files)?;
    }
    files.sort();
    let mut list = String::from("&[\n");
    for path in files {
        let name = path.strip_prefix(&root).map_err(io::Error::other)?;
        let (name, path) = (name.display().to_string(), path.display().to_string());
        writeln!(list, "    File {{ name: {name:?}, bytes: include_bytes!({path:?}) }},")
            .map_err(io::Error::other)?;
    }
    list.push_str("]\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("documents.rs"), list)
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
