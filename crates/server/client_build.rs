//! Joins the modules of the JavaScript client into the one file that is served at `/client.js`, without comments.
//! Must hold: each top-level name of the modules exists once (a test runs the joined file); strings, templates and regular
//! expressions stay as they are.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

const HEAD: &str =
    "// The Tavern client. Sources, types and documentation: clients/js in the repository of Tavern.\n";

/// The module `index.js` of a folder and everything that it imports, as one module.
pub fn join(folder: &Path) -> io::Result<String> {
    let mut text = HEAD.to_owned();
    let mut seen = BTreeSet::new();
    let mut exported = BTreeSet::new();
    add(folder, "index.js", &mut seen, &mut exported, &mut text)?;
    let names: Vec<String> = exported.into_iter().collect();
    text.push_str(&format!("export {{ {} }};\n", names.join(", ")));
    Ok(text)
}

/// Adds a module after the modules that it imports.
fn add(
    folder: &Path,
    name: &str,
    seen: &mut BTreeSet<String>,
    exported: &mut BTreeSet<String>,
    text: &mut String,
) -> io::Result<()> {
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let code = without_comments(&fs::read_to_string(folder.join(name))?);
    let mut own = String::new();
    for line in code.lines() {
        let (names, source) = match line.split_once(" from './") {
            Some((names, source)) if line.starts_with("import ") || line.starts_with("export ") => {
                (names, source.trim_end_matches("';"))
            }
            _ => {
                own.push_str(line.strip_prefix("export ").unwrap_or(line));
                own.push('\n');
                continue;
            }
        };
        add(folder, source, seen, exported, text)?;
        if let Some(names) = names.strip_prefix("export ") {
            exported.extend(names.trim_matches(['{', '}', ' ']).split(", ").map(str::to_owned));
        }
    }
    text.push_str(&own);
    Ok(())
}

/// JavaScript without comments and empty lines.
fn without_comments(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(next) = rest.chars().next() {
        let taken = match next {
            _ if rest.starts_with("//") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            _ if rest.starts_with("/*") => {
                rest = &rest[rest.find("*/").map_or(rest.len(), |at| at + 2)..];
                continue;
            }
            '\'' | '"' | '`' => literal(rest, next),
            '/' if begins_expression(&out) => literal(rest, '/'),
            '\n' => {
                out.truncate(out.trim_end().len());
                1
            }
            _ => next.len_utf8(),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

/// Whether a slash here begins a regular expression and is no division.
fn begins_expression(before: &str) -> bool {
    before.trim_end().ends_with(['(', ',', '=', ':', '[', '!', '&', '|', '?', '{', '}', ';', '>'])
}

/// The length of a literal that ends with the same character as it begins. A template must not contain another one.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let mut class = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if quote == '/' => class = true,
            ']' => class = false,
            _ if next == quote && !class => return at + next.len_utf8(),
            _ => {}
        }
    }
    text.len()
}
