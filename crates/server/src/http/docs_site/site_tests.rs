//! The documents as they are: every link of every page leads somewhere, and the manual says what the tables say.

use super::*;
use tavern_wire::error::Code as Word;

fn draft_at(address: &str) -> Option<&'static Draft> {
    DRAFTS.iter().find(|draft| address_of(draft.name) == address)
}

#[test]
fn every_internal_link_of_every_page_resolves() {
    let mut seen = 0;
    for draft in DRAFTS.iter() {
        for (written, address) in &draft.links {
            let Some(address) = address else { panic!("{}: {written} leads nowhere", draft.name) };
            if address.starts_with("http") {
                continue;
            }
            seen += 1;
            let (path, part) =
                address.split_once('#').map_or((address.as_str(), None), |(path, part)| (path, Some(part)));
            if let Some(file) = path.strip_prefix("/docs/files/") {
                assert!(FILES.iter().any(|known| known.name == file), "{}: {written}", draft.name);
                continue;
            }
            assert!(PAGES.contains_key(path), "{}: no page {path}", draft.name);
            let headings =
                draft_at(path).map(|target| target.rendered.headings.as_slice()).unwrap_or_default();
            let there = part.is_none_or(|part| headings.iter().any(|heading| heading.id == part));
            assert!(there, "{}: {written} names no heading", draft.name);
        }
    }
    assert!(seen > 50, "the links were found: {seen}");
}

#[test]
fn every_document_is_a_page_with_a_title_and_no_script() {
    assert!(DRAFTS.len() > 20, "the documents were found");
    assert_eq!(PAGES.len(), DRAFTS.len() + 1, "each has an address of its own");
    for (address, html) in PAGES.iter() {
        let html = std::str::from_utf8(html).unwrap();
        assert!(!html.contains("<script") && !html.contains(" style="), "{address}");
        assert!(!html.contains("{{title}}") && !html.contains("{{nav}}"), "{address} is not filled in");
        assert!(html.contains("<h1"), "{address} has no heading");
    }
}

/// `docs/errors.md` has one row for each code, with the status, whether to try again, and the meaning of the table in the program.
#[test]
fn the_errors_of_the_manual_are_those_of_the_program() {
    let file = FILES.iter().find(|file| file.name == "docs/errors.md").unwrap();
    let text = std::str::from_utf8(file.bytes).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let named: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    let known: Vec<&str> = Word::ALL.iter().map(|code| code.as_str()).collect();
    for name in &known {
        let times = named.iter().filter(|found| found == &name).count();
        assert_eq!(times, 1, "{name} has {times} rows");
    }
    for row in rows {
        let Some(code) = Word::parse(row[0].trim_matches('`')) else { panic!("{} is no code", row[0]) };
        assert_eq!(row[1], code.http_status().to_string(), "{}", row[0]);
        assert_eq!(row[2], if code.retry() { "yes" } else { "no" }, "{}", row[0]);
        assert!(row[3].starts_with(code.meaning()), "{}: {}", row[0], code.meaning());
    }
}

#[test]
fn a_path_out_of_the_house_leads_nowhere() {
    assert_eq!(beside("docs/a.md", "adr/b.md").as_deref(), Some("docs/adr/b.md"));
    assert_eq!(beside("docs/adr/b.md", "../a.md").as_deref(), Some("docs/a.md"));
    assert_eq!(beside("docs/a.md", "../README.md").as_deref(), Some("README.md"));
    assert_eq!(beside("docs/a.md", "../../etc/passwd"), None);
}
