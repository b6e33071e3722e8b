//! The documents at `/docs`: pages that the build script made of the Markdown files, and the files that they link to.
//! Must hold: every link between documents leads to a page and a heading that exist; a page holds no script of its own.

use super::asset::{self, EmbeddedFile};
use super::body::{HttpResponse, refusal};
use super::demo;
use http::request::Parts;
use tavern_wire::error::{Code, Refusal};

pub fn answer(parts: &Parts) -> HttpResponse {
    let path = parts.uri.path();
    let address = path.strip_suffix('/').unwrap_or(path);
    match address {
        "/docs/style.css" => return demo::file("docs.css", parts),
        "/docs/docs.js" => return demo::file("docs.js", parts),
        _ => {}
    }
    let find = |files: &'static [EmbeddedFile]| files.iter().find(|file| file.name == address);
    let (kind, file) = match (find(asset::PAGES), find(asset::LINKED)) {
        (Some(page), _) => ("text/html; charset=utf-8", page),
        (None, Some(file)) => (asset::kind(file.name), file),
        (None, None) => {
            return refusal(&Refusal::new(
                Code::NotFound,
                format!("not found: {path}; the documentation starts at /docs"),
            ));
        }
    };
    asset::give(kind, file, &parts.headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    include!(concat!(env!("OUT_DIR"), "/broken_links.rs"));

    #[test]
    fn every_link_between_documents_resolves() {
        assert_eq!(BROKEN_LINKS, &[] as &[&str]);
    }

    #[test]
    fn every_document_is_a_page_with_a_heading_and_no_script_of_its_own() {
        assert!(asset::PAGES.len() > 20, "the documents were found");
        for page in asset::PAGES {
            let (address, html) = (page.name, std::str::from_utf8(page.bytes).unwrap());
            let inline = html.replace("<script src=\"/docs/docs.js\" defer></script>", "");
            assert!(!inline.contains("<script") && !inline.contains(" style="), "{address}");
            let open = ["{{title}}", "{{nav}}", "{{twin}}"];
            assert!(!open.iter().any(|name| html.contains(name)), "{address} is not filled in");
            let twin = format!("{address}.md");
            assert!(asset::LINKED.iter().any(|file| file.name == twin), "{twin} is not served");
            assert!(html.contains("<h1"), "{address} has no heading");
        }
    }

    /// `docs/reference/errors.md` has one row for each code, with the status, whether to retry, and the meaning of the table in the program.
    #[test]
    fn errors_of_the_manual_are_those_of_the_program() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/errors.md"))
                .unwrap();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let named: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
        for code in Code::ALL {
            let times = named.iter().filter(|found| **found == code.as_str()).count();
            assert_eq!(times, 1, "{} has {times} rows", code.as_str());
        }
        for row in rows {
            let Some(code) = Code::parse(row[0].trim_matches('`')) else { panic!("{} is no code", row[0]) };
            assert_eq!(row[1], code.http_status().to_string(), "{}", row[0]);
            assert_eq!(row[2], if code.retry() { "yes" } else { "no" }, "{}", row[0]);
            assert!(row[3].starts_with(code.description()), "{}: {}", row[0], code.description());
        }
    }
}
