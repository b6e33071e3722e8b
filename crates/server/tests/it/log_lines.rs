//! Log lines are words and fields: none of them prints a value as Rust's `Debug` does.

use std::path::{Path, PathBuf};

const MACROS: [&str; 5] =
    ["tracing::error!(", "tracing::warn!(", "tracing::info!(", "tracing::debug!(", "tracing::trace!("];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The arguments of a macro, up to its closing parenthesis.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let end = text.bytes().position(|byte| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// `?field`, `name = ?value` and `{:?}` write a value as `Debug` does.
fn is_debug(arguments: &str) -> bool {
    let sigil = arguments.split(',').any(|argument| {
        let value = argument.rsplit_once("= ").map_or(argument, |(_, value)| value);
        value.trim().starts_with('?')
    });
    sigil || arguments.contains("{:?}") || arguments.contains(":?}")
}

#[test]
fn no_log_line_prints_debug_output() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
    let (mut files, mut lines, mut wrong) = (Vec::new(), 0, Vec::new());
    for name in ["server", "engines", "local", "hub", "client"] {
        sources(&crates.join(name).join("src"), &mut files);
    }
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for name in MACROS {
            for (at, _) in text.match_indices(name) {
                lines += 1;
                let said = arguments(&text[at + name.len()..]);
                if is_debug(said) {
                    wrong.push(format!("{}: {said}", file.display()));
                }
            }
        }
    }
    assert!(lines > 50, "the log lines are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn debug_output_is_recognised() {
    for wrong in ["?text, \"x\"", "a = 1, b = ?c, \"x\"", "\"x {:?}\", y", "\"x {y:?}\""] {
        assert!(is_debug(wrong), "{wrong}");
    }
    assert!(!is_debug("%error, a = b.ok_or(1)?, \"why?\""));
}
