//! Names in the documents: a page that lists verbs, scopes or topics of the server lists all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tavern_domain::identity::Scope;
use tavern_domain::rights::Verb;
use tavern_domain::topic;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn verbs() -> BTreeSet<&'static str> {
    Verb::ALL.map(Verb::as_str).into()
}

fn scopes() -> BTreeSet<&'static str> {
    Scope::ALL.map(Scope::as_str).into()
}

fn system_topics() -> BTreeSet<&'static str> {
    topic::SYSTEM.into()
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// What stands in backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The paragraphs and rows of tables that name at least `most` of the names, but not all, with the names that are missing.
fn incomplete<'a>(
    text: &'a str,
    names: &BTreeSet<&'static str>,
    most: usize,
) -> Vec<(&'a str, Vec<&'static str>)> {
    let mut found = Vec::new();
    let rows = |block| -> Vec<&'a str> {
        let block: &'a str = block;
        if block.starts_with('|') { block.lines().collect() } else { vec![block] }
    };
    for paragraph in text.split("\n\n").flat_map(rows).filter(|paragraph| !paragraph.contains("other than")) {
        let named: BTreeSet<_> = code(paragraph).filter(|word| names.contains(word)).collect();
        if named.len() >= most && named.len() < names.len() {
            found.push((paragraph, names.iter().filter(|name| !named.contains(*name)).copied().collect()));
        }
    }
    found
}

#[test]
fn lists_of_names_are_complete() {
    let mut all = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    pages(&root().join("docs"), &mut all);
    assert!(all.len() > 40, "the pages are found");
    let mut faults = String::new();
    for path in all.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "adr")) {
        let text = fs::read_to_string(path).unwrap();
        for (names, most) in [(verbs(), 4), (scopes(), 5), (system_topics(), 3)] {
            for (paragraph, missing) in incomplete(&text, &names, most) {
                faults += &format!("{}: {missing:?} is missing in: {paragraph}\n\n", path.display());
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

/// The first column of the table under this heading row, without families of names (`name.…`).
fn column(page: &str, heading: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rows =
        text.lines().skip_while(|line| *line != heading).skip(2).take_while(|line| line.starts_with('|'));
    let first: BTreeSet<_> =
        rows.map(|row| code(row).next().unwrap().to_owned()).filter(|name| !name.ends_with('…')).collect();
    assert!(!first.is_empty(), "{page} has a table {heading}");
    first
}

#[test]
fn tables_of_names_are_those_of_the_code() {
    let expected = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(column("docs/guides/authentication.md", "| verb | allows |"), expected(verbs()));
    assert_eq!(column("docs/guides/authentication.md", "| scope | allows |"), expected(scopes()));
    assert_eq!(column("docs/guides/events.md", "| topic | events |"), expected(system_topics()));
}

#[test]
fn incomplete_lists_are_found() {
    let names = BTreeSet::from(["a", "b", "c"]);
    let check = |text: &str, missing: &[&[&str]]| {
        let found: Vec<_> = incomplete(text, &names, 2).into_iter().map(|(_, missing)| missing).collect();
        assert_eq!(found, missing, "{text}");
    };
    check("`a`, `b` and `c`", &[]);
    check("only `a`, and b", &[]);
    check("`a` and `b`", &[&["c"]]);
    check("`c`\n\n`b`\n`a`", &[&["c"]]);
}
