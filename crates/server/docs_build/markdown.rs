//! One Markdown document as HTML, with its headings and links. pulldown-cmark parses; this file adds what the pages
//! need: headings that can be linked to, tables that scroll, coloured code, tabs, links to other pages. Comments are
//! removed, except `<!-- tabs -->` … `<!-- /tabs -->`: between them each fourth-level heading starts a tab.
//! Must hold: raw HTML in a document is shown as text; every heading of a page has a unique id.

use super::highlight::highlight;
use pulldown_cmark::{Alignment, CodeBlockKind, CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::collections::BTreeSet;

/// A part of a page that can be linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    pub level: usize,
    pub id: String,
    pub text: String,
}

/// A link or an image: the target as written, and the address it resolves to, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub written: String,
    pub address: Option<String>,
}

#[derive(Debug, Default)]
pub struct Rendered {
    pub html: String,
    pub headings: Vec<Heading>,
    pub links: Vec<Link>,
    /// The text of the first paragraph outside lists, quotes and tables.
    pub first_paragraph: String,
    /// The text below each heading, in their order, for the search.
    pub texts: Vec<String>,
}

/// Renders a document. `resolve` returns the address of a link target; None: the target does not exist, and
/// the link is shown as plain text.
pub fn render(text: &str, resolve: impl Fn(&str) -> Option<String>) -> Rendered {
    let events: Vec<Event> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut page = Page { resolve, rendered: Rendered::default(), ids: BTreeSet::new(), tabs: None };
    page.rendered.first_paragraph = first_paragraph(&events);
    let mut shown = Vec::with_capacity(events.len());
    page.blocks(&events, &mut shown);
    page.rendered.texts = texts(&events);
    let mut rendered = page.rendered;
    html::push_html(&mut rendered.html, shown.into_iter());
    rendered
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Page<F> {
    resolve: F,
    rendered: Rendered,
    ids: BTreeSet<String>,
    /// Inside tabs: whether one of them is open.
    tabs: Option<bool>,
}

impl<F: Fn(&str) -> Option<String>> Page<F> {
    fn blocks<'a>(&mut self, events: &[Event<'a>], shown: &mut Vec<Event<'a>>) {
        let mut alignments: &[Alignment] = &[];
        let (mut column, mut cell) = (0, "td");
        // Whether each open link has an address.
        let mut linked = Vec::new();
        let mut at = 0;
        while let Some(event) = events.get(at) {
            at += 1;
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let inner = inside(&events[at..], |end| matches!(end, TagEnd::Heading(_)));
                    at += inner.len() + 1;
                    self.tab(*level as usize, inner, shown);
                    self.heading(*level as usize, inner, shown);
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    let inner = inside(&events[at..], |end| end == TagEnd::Image);
                    at += inner.len() + 1;
                    shown.push(self.image(dest_url, &plain(inner)));
                }
                Event::Start(Tag::Link { dest_url, .. }) => {
                    let address = self.address(dest_url);
                    linked.push(address.is_some());
                    shown.extend(address.map(|address| raw(anchor(&address))));
                }
                Event::End(TagEnd::Link) => {
                    if linked.pop() == Some(true) {
                        shown.push(raw("</a>"));
                    }
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let inner = inside(&events[at..], |end| end == TagEnd::CodeBlock);
                    at += inner.len() + 1;
                    shown.push(raw(code(kind, &plain(inner))));
                }
                // pulldown-cmark aligns cells with a style attribute, which the content security policy forbids.
                Event::Start(Tag::Table(columns)) => {
                    alignments = columns;
                    shown.push(raw("<div class=\"table\" tabindex=\"0\"><table>\n"));
                }
                Event::End(TagEnd::Table) => shown.push(raw("</tbody></table></div>\n")),
                Event::Start(Tag::TableHead) => {
                    (column, cell) = (0, "th");
                    shown.push(raw("<thead><tr>"));
                }
                Event::End(TagEnd::TableHead) => {
                    cell = "td";
                    shown.push(raw("</tr></thead>\n<tbody>\n"));
                }
                Event::Start(Tag::TableRow) => {
                    column = 0;
                    shown.push(raw("<tr>"));
                }
                Event::End(TagEnd::TableRow) => shown.push(raw("</tr>\n")),
                Event::Start(Tag::TableCell) => {
                    let right = alignments.get(column) == Some(&Alignment::Right);
                    column += 1;
                    let class = if right { " class=\"number\"" } else { "" };
                    shown.push(raw(format!("<{cell}{class}>")));
                }
                Event::End(TagEnd::TableCell) => shown.push(raw(format!("</{cell}>"))),
                Event::Start(Tag::HtmlBlock) => {
                    let inner = inside(&events[at..], |end| end == TagEnd::HtmlBlock);
                    at += inner.len() + 1;
                    let text = html_of(inner);
                    self.mark(text.trim(), shown);
                    if !text.trim_start().starts_with("<!--") {
                        shown.push(raw(format!("<p>{}</p>\n", escape(text.trim_end()))));
                    }
                }
                Event::Html(text) | Event::InlineHtml(text) => {
                    if !text.starts_with("<!--") {
                        shown.push(Event::Text(text.clone()));
                    }
                }
                other => shown.push(other.clone()),
            }
        }
    }

    /// The beginning and the end of tabs.
    fn mark(&mut self, comment: &str, shown: &mut Vec<Event>) {
        match comment {
            "<!-- tabs -->" => {
                self.tabs = Some(false);
                shown.push(raw("<div class=\"tabs\">\n"));
            }
            "<!-- /tabs -->" => {
                let open = self.tabs.take() == Some(true);
                shown.push(raw(if open { "</section></div>\n" } else { "</div>\n" }));
            }
            _ => {}
        }
    }

    /// A heading inside tabs starts one of them.
    fn tab(&mut self, level: usize, inner: &[Event], shown: &mut Vec<Event>) {
        let Some(open) = &mut self.tabs else { return };
        if level != 4 {
            return;
        }
        if std::mem::replace(open, true) {
            shown.push(raw("</section>\n"));
        }
        shown.push(raw(format!("<section data-tab=\"{}\">\n", escape(&plain(inner)))));
    }

    fn heading<'a>(&mut self, level: usize, inner: &[Event<'a>], shown: &mut Vec<Event<'a>>) {
        let text = plain(inner);
        let mut id = slug(&text);
        let mut number = 0;
        while !self.ids.insert(id.clone()) {
            number += 1;
            id = format!("{}-{number}", slug(&text));
        }
        let id_html = escape(&id);
        shown.push(raw(format!("<h{level} id=\"{id_html}\"><a class=\"here\" href=\"#{id_html}\">")));
        self.blocks(inner, shown);
        shown.push(raw(format!("</a></h{level}>\n")));
        self.rendered.headings.push(Heading { level, id, text });
    }

    fn image<'a>(&mut self, written: &str, alt: &str) -> Event<'a> {
        match self.address(written) {
            Some(address) => {
                raw(format!("<img src=\"{}\" alt=\"{}\" loading=\"lazy\">", escape(&address), escape(alt)))
            }
            None => Event::Text(alt.to_owned().into()),
        }
    }

    fn address(&mut self, written: &str) -> Option<String> {
        let address = (self.resolve)(written);
        self.rendered.links.push(Link { written: written.to_owned(), address: address.clone() });
        address
    }
}

/// A code block. It may be wider than the page: then the keyboard must reach it.
fn code(kind: &CodeBlockKind, text: &str) -> String {
    let language = match kind {
        CodeBlockKind::Fenced(language) => &**language,
        // Indented blocks are commands.
        CodeBlockKind::Indented => "sh",
    };
    let class = if language == "text" { " class=\"output\"" } else { "" };
    format!("<pre tabindex=\"0\"{class}><code>{}</code></pre>\n", highlight(language, text))
}

fn anchor(address: &str) -> String {
    let external = if address.starts_with("http") { " rel=\"noreferrer\"" } else { "" };
    format!("<a href=\"{}\"{external}>", escape(address))
}

fn raw<'a>(html: impl Into<CowStr<'a>>) -> Event<'a> {
    Event::InlineHtml(html.into())
}

/// The events up to the end of an element that does not nest in itself.
fn inside<'e, 'a>(events: &'e [Event<'a>], is_end: impl Fn(TagEnd) -> bool) -> &'e [Event<'a>] {
    let end = events.iter().position(|event| matches!(event, Event::End(end) if is_end(*end)));
    &events[..end.unwrap_or(events.len())]
}

/// The text without markup, for headings, titles and alternative texts.
fn plain(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::Text(part) | Event::Code(part) | Event::InlineHtml(part) => text.push_str(part),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

/// The text below each heading, without markup.
fn texts(events: &[Event]) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_heading = false;
    for event in events {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                in_heading = true;
                found.push(String::new());
            }
            Event::End(TagEnd::Heading(_)) => in_heading = false,
            Event::Text(part) | Event::Code(part) if !in_heading => {
                if let Some(last) = found.last_mut() {
                    last.push_str(part);
                }
            }
            // Words of different blocks and cells stay apart.
            Event::SoftBreak | Event::HardBreak | Event::End(_) if !in_heading => {
                if let Some(last) = found.last_mut() {
                    last.push(' ');
                }
            }
            _ => {}
        }
    }
    found
}

fn html_of(events: &[Event]) -> String {
    events
        .iter()
        .filter_map(|event| if let Event::Html(part) = event { Some(&**part) } else { None })
        .collect()
}

/// The text of the first paragraph outside lists, quotes and tables, without a bold label at its beginning. A
/// paragraph that is only an image does not count.
fn first_paragraph(events: &[Event]) -> String {
    let mut depth = 0;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Start(tag) => {
                if depth == 0 && *tag == Tag::Paragraph {
                    let text = without_label(inside(&events[at + 1..], |end| end == TagEnd::Paragraph));
                    if !text.is_empty() {
                        return text;
                    }
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    String::new()
}

fn without_label(paragraph: &[Event]) -> String {
    let skipped = match paragraph.first() {
        Some(Event::Start(Tag::Strong)) => inside(paragraph, |end| end == TagEnd::Strong).len(),
        Some(Event::Start(Tag::Image { .. })) => inside(paragraph, |end| end == TagEnd::Image).len(),
        _ => 0,
    };
    plain(&paragraph[skipped..]).trim().to_owned()
}

/// As GitHub names headings, so that a link works in both places.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|&letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}
