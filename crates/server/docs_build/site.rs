//! The pages of the site: every document with the list of the others, and two front pages, for users and contributors.
//! Must hold: a link between documents leads to the page of that document; a page contains no style and no script of
//! its own, and can be read without the script that it loads.

use super::markdown::{self, Rendered, escape};
use super::twins::twin_of;
use std::collections::BTreeMap;

/// The sections of the list of pages. A page belongs to the section of its folder; `first` are the pages that come
/// first in it, from any folder. The other pages of the folder follow by name. What no section takes is in the last one.
struct Section {
    title: &'static str,
    folder: &'static str,
    first: &'static [&'static str],
    area: Area,
}

/// Whom a page is for. Users do not have to look past pages about the inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Users,
    Contributors,
}

const SECTIONS: &[Section] = &[
    Section {
        title: "Get started",
        area: Area::Users,
        folder: "docs/get-started/",
        first: &[
            "docs/get-started/quickstart.md",
            "docs/get-started/tutorial.md",
            "docs/get-started/concepts.md",
            "examples/README.md",
        ],
    },
    Section {
        title: "Guides",
        area: Area::Users,
        folder: "docs/guides/",
        first: &[
            "docs/guides/authentication.md",
            "docs/guides/channels.md",
            "docs/guides/history.md",
            "docs/guides/presence.md",
            "docs/guides/people.md",
            "docs/guides/users.md",
            "docs/guides/parties.md",
            "docs/guides/events.md",
            "docs/guides/webhooks.md",
            "docs/guides/postgres-sql.md",
            "docs/guides/redis-clients.md",
            "docs/guides/pusher.md",
            "docs/guides/local.md",
        ],
    },
    Section {
        title: "Deploy",
        area: Area::Users,
        folder: "docs/deploy/",
        first: &[
            "docs/deploy/install.md",
            "docs/deploy/docker.md",
            "docs/deploy/kubernetes.md",
            "docs/deploy/systemd.md",
            "docs/deploy/proxies.md",
            "docs/deploy/engines.md",
            "docs/deploy/limits.md",
            "docs/deploy/redis.md",
            "docs/deploy/security.md",
        ],
    },
    Section {
        title: "Operate",
        area: Area::Users,
        folder: "docs/operate/",
        first: &[
            "docs/operate/doctor.md",
            "docs/operate/monitoring.md",
            "docs/operate/alerts.md",
            "docs/operate/dashboard.md",
            "docs/operate/capacity.md",
            "docs/operate/backup.md",
            "docs/operate/upgrade.md",
            "docs/operate/failures.md",
        ],
    },
    Section {
        title: "REST API",
        area: Area::Users,
        folder: "docs/reference/rest/",
        first: &["docs/reference/rest.md"],
    },
    Section {
        title: "Reference",
        area: Area::Users,
        folder: "docs/reference/",
        first: &[
            "docs/reference/configuration.md",
            "docs/reference/protocol.md",
            "docs/reference/errors.md",
            "docs/reference/metrics.md",
            "docs/reference/cli.md",
            "docs/reference/guarantees.md",
            "docs/reference/glossary.md",
        ],
    },
    Section {
        title: "Clients",
        area: Area::Users,
        folder: "docs/clients/",
        first: &[
            "docs/clients/javascript.md",
            "docs/clients/python.md",
            "docs/clients/rust.md",
            "docs/clients/go.md",
            "docs/clients/csharp.md",
        ],
    },
    Section {
        title: "About",
        area: Area::Users,
        folder: "docs/about/",
        first: &[
            "docs/about/comparison.md",
            "docs/about/faq.md",
            "docs/about/versioning.md",
            "docs/about/platforms.md",
            "docs/about/security.md",
            "SECURITY.md",
            "bench/RESULTS.md",
            "CHANGELOG.md",
        ],
    },
    Section {
        title: "Contributing",
        area: Area::Contributors,
        folder: "docs/contributing/",
        first: &[
            "CONTRIBUTING.md",
            "ARCHITECTURE.md",
            "docs/contributing/tests.md",
            "docs/roadmap.md",
            "bench/TORTURE.md",
            "bench/TRUTH.md",
            "tools/judge/README.md",
        ],
    },
    Section { title: "More", area: Area::Contributors, folder: "", first: &[] },
    DECISIONS,
];
/// Architecture decision records: many, and rarely read.
const DECISIONS: Section =
    Section { title: "Decisions", area: Area::Contributors, folder: "docs/adr/", first: &[] };

/// A Markdown file by its path in the repository, rendered.
#[derive(Debug)]
pub struct Document {
    pub name: String,
    pub title: String,
    /// What it is about: the comment `<!-- card: … -->`, or else its first sentence.
    pub lead: String,
    pub source: String,
    pub rendered: Rendered,
}

/// What the pages say about the build.
#[derive(Debug)]
pub struct Edition<'a> {
    pub version: &'a str,
    /// Where a document can be changed, without its path in the repository.
    pub edit_url: Option<&'a str>,
}

/// Reads the documents among `files` (path in the repository, content); the others may be link targets.
pub fn read(files: &BTreeMap<String, Vec<u8>>) -> Vec<Document> {
    let documents = files.iter().filter(|(name, _)| name.ends_with(".md"));
    let read = |(name, content): (&String, &Vec<u8>)| {
        let text = String::from_utf8_lossy(content);
        let rendered = markdown::render(&text, |written| resolve(name, written, files));
        let title = rendered.headings.first().map_or(name.clone(), |heading| heading.text.clone());
        let card = text.lines().find_map(|line| line.strip_prefix("<!-- card: ")?.strip_suffix(" -->"));
        let lead = card.map_or_else(|| first_sentence(&rendered.first_paragraph), str::to_owned);
        Document { name: name.clone(), title, lead, source: text.into_owned(), rendered }
    };
    documents.map(read).collect()
}

/// All pages by address.
pub fn pages(documents: &[Document], edition: &Edition) -> BTreeMap<String, String> {
    let one = |document: &Document| (address_of(&document.name), page(document, documents, edition));
    let mut pages: BTreeMap<String, String> = documents.iter().map(one).collect();
    pages.insert("/docs".to_owned(), front(documents));
    pages.insert("/docs/contributing".to_owned(), contributors_front(documents));
    pages
}

/// Broken links between documents: a target that does not exist, or a page without that heading.
pub fn broken_links(documents: &[Document]) -> Vec<String> {
    let mut broken = Vec::new();
    for document in documents {
        for link in &document.rendered.links {
            let sound = match &link.address {
                None => false,
                Some(address) => match address.split_once('#') {
                    Some((path, part)) if path.starts_with('/') => documents
                        .iter()
                        .filter(|target| address_of(&target.name) == path)
                        .any(|target| target.rendered.headings.iter().any(|heading| heading.id == part)),
                    _ => true,
                },
            };
            if !sound {
                broken.push(format!("{}: {}", document.name, link.written));
            }
        }
    }
    broken
}

/// Where a file is served: documents as pages, everything else as it is.
pub fn address_of(name: &str) -> String {
    match name.strip_suffix(".md") {
        None => format!("/docs/files/{name}"),
        // Not the address of the front page for contributors.
        Some("CONTRIBUTING") => "/docs/contributing/start".to_owned(),
        Some(page) => format!("/docs/{}", page.strip_prefix("docs/").unwrap_or(page).to_lowercase()),
    }
}

/// The address for a link as it is written in a document; None: no such file.
fn resolve(name: &str, written: &str, files: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    if written.starts_with("http://") || written.starts_with("https://") {
        return Some(written.to_owned());
    }
    let (path, part) = written.split_once('#').map_or((written, None), |(path, part)| (path, Some(part)));
    let target = if path.is_empty() { name.to_owned() } else { relative(name, path)? };
    let address = if format!("{target}/") == DECISIONS.folder {
        "/docs/contributing".to_owned()
    } else {
        address_of(files.contains_key(&target).then_some(&target)?)
    };
    Some(part.map_or(address.clone(), |part| format!("{address}#{part}")))
}

/// The file that a path means in a document of this name; None when it leads out of the repository.
pub fn relative(name: &str, path: &str) -> Option<String> {
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

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |end| end + 1);
    text[..end].trim_end_matches(':').to_owned()
}

fn page(document: &Document, documents: &[Document], edition: &Edition) -> String {
    let parts = document.rendered.headings.iter().filter(|heading| heading.level == 2);
    let contents: String = parts
        .map(|heading| {
            format!("<li><a href=\"#{}\">{}</a></li>", escape(&heading.id), breakable(&heading.text))
        })
        .collect();
    let aside = if contents.is_empty() {
        String::new()
    } else {
        format!("<aside aria-label=\"On this page\"><p>On this page</p><ul>{contents}</ul></aside>")
    };
    let around = neighbours(document, documents);
    let about = about(document, edition);
    let body =
        format!("<main id=\"main\" tabindex=\"-1\">{}{around}{about}</main>{aside}", document.rendered.html);
    frame(&document.title, &address_of(&document.name), &body, documents, area_of(&document.name))
}

/// A text that may be broken behind each slash: paths are longer than the list of contents is wide.
fn breakable(text: &str) -> String {
    escape(text).replace('/', "/<wbr>")
}

/// The version of the program, the page as Markdown, and where it can be changed.
fn about(document: &Document, edition: &Edition) -> String {
    let twin = twin_of(&address_of(&document.name));
    let edit = edition.edit_url.map_or(String::new(), |url| {
        let address = format!("{}/{}", url.trim_end_matches('/'), document.name);
        format!(" · <a href=\"{}\" rel=\"noreferrer\">Edit this page</a>", escape(&address))
    });
    format!(
        "<p class=\"about\"><a href=\"/docs/changelog\">Tavern {}</a> · <a href=\"{}\">Markdown</a>{edit}</p>",
        escape(edition.version),
        escape(&twin)
    )
}

/// Links to the previous and the next page of the same readers.
fn neighbours(document: &Document, documents: &[Document]) -> String {
    let area = area_of(&document.name);
    let order: Vec<&Document> =
        sections(documents, area).into_iter().flat_map(|(_, members)| members).collect();
    let Some(at) = order.iter().position(|other| other.name == document.name) else { return String::new() };
    let link = |other: Option<&&Document>, class: &str, label: &str| {
        other.map_or(String::new(), |other| {
            let (address, title) = (escape(&address_of(&other.name)), escape(short(&other.title)));
            format!(
                "<a class=\"{class}\" rel=\"{class}\" href=\"{address}\"><span>{label}</span> {title}</a>"
            )
        })
    };
    let before = link(at.checked_sub(1).and_then(|before| order.get(before)), "prev", "Previous");
    let after = link(order.get(at + 1), "next", "Next");
    format!("<nav class=\"around\" aria-label=\"Previous and next page\">{before}{after}</nav>")
}

/// The page at `/docs`: what users may want to read.
fn front(documents: &[Document]) -> String {
    let mut body = String::from(FRONT);
    for (heading, members) in sections(documents, Area::Users) {
        body.push_str(&cards(heading, &members));
    }
    body.push_str("<p>For contributors: <a href=\"/docs/contributing\">architecture, tests and decisions</a>.</p></main>");
    frame("Documentation", "/docs", &body, documents, Area::Users)
}

/// The page at `/docs/contributing`: what people who change Tavern may want to read.
fn contributors_front(documents: &[Document]) -> String {
    let mut body = String::from("<main id=\"main\" tabindex=\"-1\" class=\"front\"><h1>Contributing</h1>\n");
    for (heading, members) in sections(documents, Area::Contributors) {
        body.push_str(&cards(heading, &members));
    }
    body.push_str("</main>");
    frame("Contributing", "/docs/contributing", &body, documents, Area::Contributors)
}

fn cards(heading: &str, members: &[&Document]) -> String {
    let mut out = format!("<h2>{}</h2>\n<ul class=\"cards\">\n", escape(heading));
    for document in members {
        out.push_str(&format!(
            "<li><a href=\"{}\">{}</a><p>{}</p></li>\n",
            escape(&address_of(&document.name)),
            escape(&document.title),
            escape(&document.lead)
        ));
    }
    out.push_str("</ul>\n");
    out
}

/// The documents for these readers in their order, under the titles of their sections.
pub fn sections(documents: &[Document], area: Area) -> Vec<(&'static str, Vec<&Document>)> {
    let mut found = Vec::new();
    for section in SECTIONS.iter().filter(|section| section.area == area) {
        let first =
            section.first.iter().filter_map(|name| documents.iter().find(|document| document.name == *name));
        let others = documents.iter().filter(|document| {
            section_of(&document.name).title == section.title
                && !section.first.contains(&document.name.as_str())
        });
        let members: Vec<&Document> = first.chain(others).collect();
        if !members.is_empty() {
            found.push((section.title, members));
        }
    }
    found
}

fn area_of(name: &str) -> Area {
    section_of(name).area
}

fn section_of(name: &str) -> &'static Section {
    let lists = |section: &&Section| section.first.contains(&name);
    let holds = |section: &&Section| !section.folder.is_empty() && name.starts_with(section.folder);
    let rest = |section: &&Section| section.folder.is_empty();
    let sections = || SECTIONS.iter();
    let found = sections().find(lists).or_else(|| sections().find(holds)).or_else(|| sections().find(rest));
    found.unwrap_or(&DECISIONS)
}

fn frame(title: &str, address: &str, body: &str, documents: &[Document], area: Area) -> String {
    let mut nav = String::new();
    for (heading, members) in sections(documents, area) {
        nav.push_str(&format!("<p>{heading}</p><ul>"));
        for document in members {
            let to = address_of(&document.name);
            let current = if to == address { " aria-current=\"page\"" } else { "" };
            nav.push_str(&format!(
                "<li><a href=\"{}\"{current}>{}</a></li>",
                escape(&to),
                escape(short(&document.title))
            ));
        }
        nav.push_str("</ul>");
    }
    nav.push_str(match area {
        Area::Users => "<p><a href=\"/docs/contributing\">Contributing</a></p>",
        Area::Contributors => "<p><a href=\"/docs\">Documentation for users</a></p>",
    });
    TEMPLATE
        .replace("{{title}}", &escape(title))
        .replace("{{twin}}", &escape(&twin_of(address)))
        .replace("{{nav}}", &nav)
        .replace("{{body}}", body)
}

/// A title up to its colon, for the narrow list.
fn short(title: &str) -> &str {
    title.split_once(": ").map_or(title, |(first, _)| first)
}

const FRONT: &str = r##"<main id="main" tabindex="-1" class="front"><h1>Documentation</h1>
<p class="lead">Tavern is a realtime server for games, chats and social apps: presence, channels, parties and durable
events in one program. New here? Start with the <a href="/docs/get-started/quickstart">quickstart</a>, then build a
<a href="/docs/get-started/tutorial">chat room with login</a>.</p>
"##;

const TEMPLATE: &str = r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{title}} · Tavern</title>
<link rel="icon" type="image/svg+xml" href="/demo/icon.svg">
<link rel="alternate" type="text/markdown" href="{{twin}}">
<link rel="stylesheet" href="/demo/base.css">
<link rel="stylesheet" href="/docs/style.css">
<script src="/docs/docs.js" defer></script>
</head>
<body class="docs">
<a class="skip" href="#main">Skip to the page</a>
<header class="top">
  <a class="brand" href="/docs"><img src="/demo/icon.svg" alt="" width="26" height="26"><span>Tavern</span></a>
  <form class="search" role="search" action="/docs" hidden><input type="search" name="q" aria-label="Search the documentation" placeholder="Search (press /)" autocomplete="off" role="combobox" aria-expanded="false" aria-controls="found" aria-autocomplete="list"><div id="found" role="listbox" aria-label="Results" hidden></div></form>
  <div class="links"><a href="/docs" aria-current="true">Docs</a><a href="/demo">Demo</a><a href="/">Dashboard</a></div>
</header>
<nav class="pages" aria-label="Pages"><button type="button" aria-expanded="false" aria-controls="pages" hidden>Menu</button><div id="pages">{{nav}}</div></nav>
{{body}}
</body>
</html>
"##;
