//! The documents at `/docs`: the files of `docs/` as pages, with a way from each to the others. Part of the program.
//! Must hold: a link between documents leads to a page and a heading that are there; a page holds no script.

mod inline;
mod markdown;

use super::body::{Answer, refusal};
use super::{asset, demo};
use bytes::Bytes;
use http::request::Parts;
use inline::{Links, escape};
use markdown::Rendered;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tavern_wire::error::{Code, Refusal};

struct File {
    name: &'static str,
    bytes: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/documents.rs"));

/// In which order the pages are shown. What is not named comes last.
const ORDER: &[(&str, &[&str])] = &[
    ("Begin", &["docs/getting-started.md", "docs/concepts.md", "docs/migrating.md"]),
    ("Guides", &["docs/presence.md", "docs/parties.md", "docs/events.md", "docs/local.md"]),
    ("Clients", &["docs/clients.md", "docs/clients-python.md", "docs/clients-rust.md"]),
    ("Reference", &["docs/protocol.md", "docs/errors.md", "docs/guarantees.md"]),
    (
        "Operate",
        &[
            "docs/install.md",
            "docs/operate.md",
            "docs/dashboard.md",
            "docs/redis.md",
            "bench/RESULTS.md",
            "bench/TORTURE.md",
        ],
    ),
    ("Inside", &["ARCHITECTURE.md", "docs/roadmap.md", "CHANGELOG.md"]),
];
/// Decisions; each page of the folder is listed under this word.
const DECISIONS: &str = "docs/adr/";

/// Made when the first page is asked for.
static DRAFTS: LazyLock<Vec<Draft>> =
    LazyLock::new(|| FILES.iter().filter(|file| file.name.ends_with(".md")).map(draft).collect());
/// By address.
static PAGES: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(build);

pub fn answer(parts: &Parts) -> Answer {
    let path = parts.uri.path();
    let address = path.strip_suffix('/').unwrap_or(path);
    if address == "/docs/style.css" {
        return demo::file("docs.css", parts);
    }
    if let Some(name) = address.strip_prefix("/docs/files/") {
        let file = FILES.iter().find(|file| file.name == name && !name.ends_with(".md"));
        if let Some(file) = file {
            return asset::give(asset::kind(name), Bytes::from_static(file.bytes), &parts.headers);
        }
    }
    match PAGES.get(address) {
        Some(page) => asset::give("text/html; charset=utf-8", page.clone(), &parts.headers),
        None => refusal(&Refusal::new(Code::NotFound, format!("there is no document at {path}"))),
    }
}

/// Where a file is served: documents as pages, everything else as it is.
fn address_of(name: &str) -> String {
    match name.strip_suffix(".md") {
        None => format!("/docs/files/{name}"),
        Some(page) => format!("/docs/{}", page.strip_prefix("docs/").unwrap_or(page).to_lowercase()),
    }
}

/// The links of one document.
struct From<'a> {
    name: &'a str,
    links: Vec<(String, Option<String>)>,
}

impl Links for From<'_> {
    fn address(&mut self, written: &str) -> Option<String> {
        let address = self.resolve(written);
        self.links.push((written.to_owned(), address.clone()));
        address
    }
}

impl From<'_> {
    fn resolve(&self, written: &str) -> Option<String> {
        if written.starts_with("http://") || written.starts_with("https://") {
            return Some(written.to_owned());
        }
        let (path, part) = written.split_once('#').map_or((written, None), |(path, part)| (path, Some(part)));
        let name = if path.is_empty() { self.name.to_owned() } else { beside(self.name, path)? };
        let address = if format!("{name}/") == DECISIONS {
            "/docs".to_owned()
        } else {
            address_of(FILES.iter().find(|file| file.name == name)?.name)
        };
        Some(part.map_or(address.clone(), |part| format!("{address}#{part}")))
    }
}

/// The file that a document means by a path; None when it leads out of the house.
fn beside(name: &str, path: &str) -> Option<String> {
    let mut steps: Vec<&str> = name.split('/').collect();
    steps.pop();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()?),
            step => steps.push(step),
        }
    }
    Some(steps.join("/"))
}

fn build() -> BTreeMap<String, Bytes> {
    for draft in DRAFTS.iter() {
        for (written, _) in draft.links.iter().filter(|(_, address)| address.is_none()) {
            tracing::warn!(document = draft.name, link = written, "a link of a document leads nowhere");
        }
    }
    let mut pages: BTreeMap<String, Bytes> = DRAFTS.iter().map(|draft| page(draft, &DRAFTS)).collect();
    pages.insert("/docs".to_owned(), front(&DRAFTS));
    pages
}

struct Draft {
    name: &'static str,
    title: String,
    /// Its first words.
    lead: String,
    rendered: Rendered,
    links: Vec<(String, Option<String>)>,
}

fn draft(file: &'static File) -> Draft {
    let text = String::from_utf8_lossy(file.bytes);
    let mut links = From { name: file.name, links: Vec::new() };
    let rendered = markdown::render(&text, &mut links);
    let title = rendered.headings.first().map_or(file.name.to_owned(), |heading| heading.text.clone());
    let lead = text
        .split("\n\n")
        .map(str::trim)
        .find(|part| part.starts_with(|c: char| c.is_alphanumeric() || c == '`'));
    let lead = lead.map(|part| inline::plain(&part.replace('\n', " "))).unwrap_or_default();
    Draft { name: file.name, title, lead: first_sentence(&lead), rendered, links: links.links }
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    text[..end].trim_end_matches(':').to_owned()
}

fn page(draft: &Draft, drafts: &[Draft]) -> (String, Bytes) {
    let address = address_of(draft.name);
    let parts = draft.rendered.headings.iter().filter(|heading| heading.level == 2);
    let contents: String = parts
        .map(|heading| format!("<li><a href=\"#{}\">{}</a></li>", escape(&heading.id), escape(&heading.text)))
        .collect();
    let aside = if contents.is_empty() {
        String::new()
    } else {
        format!("<aside aria-label=\"On this page\"><p>On this page</p><ul>{contents}</ul></aside>")
    };
    let body = format!("<main id=\"main\">{}</main>{aside}", draft.rendered.html);
    let html = frame(&draft.title, &address, &body, drafts);
    (address, html.into())
}

/// The page at `/docs`: what there is to read.
fn front(drafts: &[Draft]) -> Bytes {
    let mut body = String::from("<main id=\"main\" class=\"front\"><h1>Documentation</h1>\n");
    for (word, members) in sections(drafts) {
        body.push_str(&format!("<h2>{}</h2>\n<ul class=\"cards\">\n", escape(word)));
        for draft in members {
            body.push_str(&format!(
                "<li><a href=\"{}\">{}</a><p>{}</p></li>\n",
                escape(&address_of(draft.name)),
                escape(&draft.title),
                escape(&draft.lead)
            ));
        }
        body.push_str("</ul>\n");
    }
    body.push_str("</main>");
    frame("Documentation", "/docs", &body, drafts).into()
}

/// The pages in their order.
fn sections(drafts: &[Draft]) -> Vec<(&'static str, Vec<&Draft>)> {
    let find = |name: &&str| drafts.iter().find(|draft| draft.name == *name);
    let mut found: Vec<_> = ORDER
        .iter()
        .map(|(word, names)| (*word, names.iter().filter_map(find).collect::<Vec<_>>()))
        .collect();
    let named = |draft: &&Draft| ORDER.iter().any(|(_, names)| names.contains(&draft.name));
    let decision = |draft: &&Draft| draft.name.starts_with(DECISIONS);
    found.push(("More", drafts.iter().filter(|draft| !named(draft) && !decision(draft)).collect()));
    found.push(("Decisions", drafts.iter().filter(decision).collect()));
    found.retain(|(_, members)| !members.is_empty());
    found
}

fn frame(title: &str, address: &str, body: &str, drafts: &[Draft]) -> String {
    let mut nav = String::new();
    for (word, members) in sections(drafts) {
        // Decisions are many and seldom wanted.
        let open = word != "Decisions" || members.iter().any(|draft| address_of(draft.name) == address);
        if !open {
            nav.push_str(&format!("<p><a href=\"/docs\">{word}</a></p>"));
            continue;
        }
        nav.push_str(&format!("<p>{word}</p><ul>"));
        for draft in members {
            let to = address_of(draft.name);
            let current = if to == address { " aria-current=\"page\"" } else { "" };
            nav.push_str(&format!(
                "<li><a href=\"{}\"{current}>{}</a></li>",
                escape(&to),
                escape(short(&draft.title))
            ));
        }
        nav.push_str("</ul>");
    }
    TEMPLATE.replace("{{title}}", &escape(title)).replace("{{nav}}", &nav).replace("{{body}}", body)
}

/// A title up to its colon, for the narrow list.
fn short(title: &str) -> &str {
    title.split_once(": ").map_or(title, |(word, _)| word)
}

const TEMPLATE: &str = r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · Tavern</title>
<link rel="icon" type="image/svg+xml" href="/demo/icon.svg">
<link rel="stylesheet" href="/demo/house.css">
<link rel="stylesheet" href="/docs/style.css">
</head>
<body class="docs">
<a class="skip" href="#main">Skip to the page</a>
<header class="top">
  <a class="brand" href="/docs"><img src="/demo/icon.svg" alt="" width="26" height="26"><span>Tavern</span></a>
  <div class="ways"><a href="/docs" aria-current="true">Docs</a><a href="/demo">Demo</a><a href="/">Dashboard</a></div>
</header>
<nav aria-label="Documents"><details open><summary>Documents</summary>{{nav}}</details></nav>
{{body}}
</body>
</html>
"##;

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
