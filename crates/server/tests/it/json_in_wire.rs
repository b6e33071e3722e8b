//! JSON is written in `tavern-wire` and nowhere else in the server.

use std::path::{Path, PathBuf};

/// The command line prints values as given; settings are shown as read.
const EXCEPT: [&str; 2] = ["cli", "config"];

/// Code that writes JSON by hand, or from a type outside `tavern-wire`.
const WRITERS: [&str; 6] =
    ["json!(", "b\"{\\\"", "format!(\"{{\\\"", "serde_json::to_", "derive(Serialize", "serde::Serialize)]"];

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
fn server_writes_json_through_wire_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true if EXCEPT.contains(&name) => {}
            true => sources(&path, &mut files),
            false => files.push(path),
        }
    }
    assert!(files.len() > 80, "the sources were found");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        // Tests are exempt; tokens are written by their library.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if file.ends_with("auth/token.rs") || file.to_str().unwrap().ends_with("_tests.rs") {
            continue;
        }
        for writer in WRITERS {
            assert!(!code.contains(writer), "{} has {writer}", file.display());
        }
    }
}
