//! Every page as Markdown, at its address with `.md` behind it, and `llms.txt`, the list of them for programs that read.
//! Must hold: a link in them leads to an address of the site, to a page as Markdown if there is one.

use super::site::{Area, Document, address_of, sections};
use std::collections::BTreeMap;

const SUMMARY: &str = "Tavern is a realtime server for games, chats and social apps: presence, channels, parties and \
                       durable events in one program.";

/// The Markdown of all pages by address; the front pages are lists of the others.
pub fn twins(documents: &[Document]) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> =
        documents.iter().map(|document| (twin_of(&address_of(&document.name)), text(document))).collect();
    let users = list("Tavern", &[Area::Users, Area::Contributors], documents);
    found.insert("/docs.md".to_owned(), users.clone());
    found.insert("/docs/contributing.md".to_owned(), list("Contributing", &[Area::Contributors], documents));
    found.insert("/llms.txt".to_owned(), users);
    found
}

/// Where a page is served as Markdown; the part after `#` stays.
pub fn twin_of(address: &str) -> String {
    match address.split_once('#') {
        Some((page, part)) => format!("{page}.md#{part}"),
        None => format!("{address}.md"),
    }
}

fn text(document: &Document) -> String {
    let shown = document.source.lines().filter(|line| !(line.starts_with("<!--") && line.ends_with("-->")));
    let mut text: String = shown.flat_map(|line| [line, "\n"]).collect();
    for link in &document.rendered.links {
        let Some(address) = link.address.as_deref().filter(|address| address.starts_with("/docs")) else {
            continue;
        };
        let is_page = !address.starts_with("/docs/files/");
        let target = if is_page { twin_of(address) } else { address.to_owned() };
        text = text.replace(&format!("]({})", link.written), &format!("]({target})"));
    }
    text
}

/// The pages for these readers with a sentence about each, as llmstxt.org describes it.
fn list(title: &str, areas: &[Area], documents: &[Document]) -> String {
    let mut out = format!("# {title}\n\n> {SUMMARY}\n");
    for (heading, members) in areas.iter().flat_map(|area| sections(documents, *area)) {
        out.push_str(&format!("\n## {heading}\n\n"));
        for document in members {
            let address = twin_of(&address_of(&document.name));
            out.push_str(&format!("- [{}]({address}): {}\n", document.title, document.lead));
        }
    }
    out
}
