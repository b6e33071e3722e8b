//! Markdown to HTML, as much of it as the documents use: headings, paragraphs, lists, tables, code, quotes. A marked comment is
//! for the tests and is left out. Must hold: what the text says never becomes markup by itself; every heading can be linked to.

use super::inline::{self, Links, escape};
use std::collections::BTreeSet;

/// A part of a page that can be linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    pub level: usize,
    pub id: String,
    pub text: String,
}

pub struct Rendered {
    pub html: String,
    pub headings: Vec<Heading>,
}

pub fn render(text: &str, links: &mut dyn Links) -> Rendered {
    let lines: Vec<&str> = text.lines().collect();
    let mut writer = Writer { html: String::new(), headings: Vec::new(), ids: BTreeSet::new(), links };
    writer.blocks(&lines);
    Rendered { html: writer.html, headings: writer.headings }
}

struct Writer<'a> {
    html: String,
    headings: Vec<Heading>,
    ids: BTreeSet<String>,
    links: &'a mut dyn Links,
}

impl Writer<'_> {
    fn blocks(&mut self, lines: &[&str]) {
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let taken = if line.trim().is_empty() {
                1
            } else if line.starts_with("    ") {
                self.indented(&lines[at..])
            } else if line.trim_start().starts_with("<!--") {
                lines[at..].iter().position(|line| line.contains("-->")).map_or(lines.len(), |end| end + 1)
            } else if fence_of(line).is_some() {
                self.fenced(&lines[at..])
            } else if let Some((level, text)) = heading_of(line) {
                self.heading(level, text);
                1
            } else if is_rule(line) {
                self.html.push_str("<hr>\n");
                1
            } else if is_table(&lines[at..]) {
                self.table(&lines[at..])
            } else if marker_of(line).is_some() {
                self.list(&lines[at..])
            } else if line.starts_with('>') {
                self.quote(&lines[at..])
            } else {
                self.paragraph(&lines[at..])
            };
            at += taken;
        }
    }

    fn inline(&mut self, text: &str) -> String {
        inline::render(text, self.links)
    }

    fn indented(&mut self, lines: &[&str]) -> usize {
        let mut taken =
            lines.iter().take_while(|line| line.starts_with("    ") || line.trim().is_empty()).count();
        while lines[taken - 1].trim().is_empty() {
            taken -= 1;
        }
        let code: Vec<&str> = lines[..taken].iter().map(|line| line.get(4..).unwrap_or_default()).collect();
        self.code(&code);
        taken
    }

    fn fenced(&mut self, lines: &[&str]) -> usize {
        let (fence, inset) = fence_of(lines[0]).unwrap_or(("```", 0));
        let is_end = |line: &&str| line.trim() == fence;
        let end = lines[1..].iter().position(is_end).map_or(lines.len(), |end| end + 1);
        let code: Vec<&str> = lines[1..end].iter().map(|line| without(line, inset)).collect();
        self.code(&code);
        (end + 1).min(lines.len())
    }

    fn code(&mut self, lines: &[&str]) {
        // It may be wider than the page: then the keyboard must reach it.
        let code = escape(&lines.join("\n"));
        self.html.push_str(&format!("<pre tabindex=\"0\"><code>{code}\n</code></pre>\n"));
    }

    fn heading(&mut self, level: usize, text: &str) {
        let plain = inline::plain(text);
        let mut id = slug(&plain);
        let mut number = 0;
        while !self.ids.insert(id.clone()) {
            number += 1;
            id = format!("{}-{number}", slug(&plain));
        }
        let shown = self.inline(text);
        let id_html = escape(&id);
        self.html.push_str(&format!(
            "<h{level} id=\"{id_html}\"><a class=\"here\" href=\"#{id_html}\">{shown}</a></h{level}>\n"
        ));
        self.headings.push(Heading { level, id, text: plain });
    }

    fn table(&mut self, lines: &[&str]) -> usize {
        let taken = lines.iter().take_while(|line| line.trim_start().starts_with('|')).count();
        let sides: Vec<bool> = cells(lines[1]).iter().map(|cell| cell.trim().ends_with("-:")).collect();
        self.html.push_str("<div class=\"table\" tabindex=\"0\"><table>\n<thead>");
        self.row(lines[0], "th", &sides);
        self.html.push_str("</thead>\n<tbody>\n");
        for line in &lines[2..taken] {
            self.row(line, "td", &sides);
        }
        self.html.push_str("</tbody></table></div>\n");
        taken
    }

    fn row(&mut self, line: &str, tag: &str, right: &[bool]) {
        self.html.push_str("<tr>");
        for (at, cell) in cells(line).iter().enumerate() {
            let side = if right.get(at) == Some(&true) { " class=\"number\"" } else { "" };
            let shown = self.inline(cell.trim());
            self.html.push_str(&format!("<{tag}{side}>{shown}</{tag}>"));
        }
        self.html.push_str("</tr>\n");
    }

    fn list(&mut self, lines: &[&str]) -> usize {
        let ordered = marker_of(lines[0]).is_some_and(|marker| marker.ordered);
        let tag = if ordered { "ol" } else { "ul" };
        self.html.push_str(&format!("<{tag}>\n"));
        let mut at = 0;
        while let Some(marker) = lines.get(at).and_then(|line| marker_of(line)) {
            if marker.ordered != ordered {
                break;
            }
            let taken = item_lines(&lines[at..], marker.width);
            let mut inner = vec![lines[at].get(marker.width..).unwrap_or_default()];
            inner.extend(lines[at + 1..at + taken].iter().map(|line| without(line, marker.width)));
            self.html.push_str("<li>");
            let words = inner.iter().take_while(|line| !line.trim().is_empty() && !begins(line)).count();
            let text = self.inline(&inner[..words].join("\n"));
            self.html.push_str(&text);
            self.blocks(&inner[words..]);
            self.html.push_str("</li>\n");
            at += taken;
            let blank = lines[at..].iter().take_while(|line| line.trim().is_empty()).count();
            if lines.get(at + blank).is_some_and(|line| marker_of(line).is_some()) {
                at += blank;
            }
        }
        self.html.push_str(&format!("</{tag}>\n"));
        at
    }

    fn quote(&mut self, lines: &[&str]) -> usize {
        let taken = lines.iter().take_while(|line| line.starts_with('>')).count();
        let inner: Vec<&str> = lines[..taken].iter().map(|line| line[1..].trim_start()).collect();
        self.html.push_str("<blockquote>\n");
        self.blocks(&inner);
        self.html.push_str("</blockquote>\n");
        taken
    }

    fn paragraph(&mut self, lines: &[&str]) -> usize {
        let more = lines[1..].iter().take_while(|line| !line.trim().is_empty() && !begins(line)).count();
        let text: Vec<&str> = lines[..=more].iter().map(|line| line.trim()).collect();
        let shown = self.inline(&text.join("\n"));
        self.html.push_str(&format!("<p>{shown}</p>\n"));
        more + 1
    }
}

struct Marker {
    ordered: bool,
    /// Where the text of the item begins.
    width: usize,
}

fn marker_of(line: &str) -> Option<Marker> {
    let inset = line.len() - line.trim_start_matches(' ').len();
    let rest = &line[inset..];
    if inset > 3 {
        return None;
    }
    if let Some(text) = rest.strip_prefix(['-', '*', '+']) {
        return text.starts_with(' ').then_some(Marker { ordered: false, width: inset + 2 });
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let sound = (1..=3).contains(&digits) && rest[digits..].starts_with(". ");
    sound.then_some(Marker { ordered: true, width: inset + digits + 2 })
}

/// How many lines belong to the first item.
fn item_lines(lines: &[&str], width: usize) -> usize {
    let mut taken = 1;
    while let Some(line) = lines.get(taken) {
        let belongs = if line.trim().is_empty() {
            // A blank line is inside if what follows is.
            let next = lines[taken..].iter().find(|line| !line.trim().is_empty());
            next.is_some_and(|next| next.starts_with(&" ".repeat(width)))
        } else {
            line.starts_with(&" ".repeat(width)) || (!lines[taken - 1].trim().is_empty() && !begins(line))
        };
        if !belongs {
            break;
        }
        taken += 1;
    }
    taken
}

/// A line that cannot go on with a paragraph.
fn begins(line: &str) -> bool {
    heading_of(line).is_some()
        || fence_of(line).is_some()
        || marker_of(line).is_some()
        || line.starts_with(['>', '|'])
        || line.trim_start().starts_with("<!--")
}

fn heading_of(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|&byte| byte == b'#').count();
    let text = line[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, text.trim()))
}

/// The fence and how far it is set in.
fn fence_of(line: &str) -> Option<(&str, usize)> {
    let rest = line.trim_start_matches(' ');
    let ticks = rest.bytes().take_while(|&byte| byte == b'`').count();
    (ticks >= 3 && !rest[ticks..].contains('`')).then(|| (&rest[..ticks], line.len() - rest.len()))
}

fn is_rule(line: &str) -> bool {
    let rest = line.trim();
    rest.len() >= 3 && rest.bytes().all(|byte| byte == b'-')
}

fn is_table(lines: &[&str]) -> bool {
    let is_line = |line: &&str| {
        line.contains('-') && line.bytes().all(|byte| matches!(byte, b'|' | b'-' | b':' | b' '))
    };
    lines[0].starts_with('|') && lines.get(1).is_some_and(is_line)
}

/// The cells of a row; a bar in code or after a backslash parts nothing.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    let mut found = vec![String::new()];
    let (mut ticked, mut escaped) = (false, false);
    for letter in line.chars() {
        let cell = found.last_mut().expect("there is a cell");
        match letter {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' if !ticked => found.push(String::new()),
            _ => cell.push(letter),
        }
        if letter == '`' && !escaped {
            ticked = !ticked;
        }
        escaped = letter == '\\' && !escaped;
    }
    found
}

/// The line without so many spaces before it, as far as it has them.
fn without(line: &str, spaces: usize) -> &str {
    let inset = line.bytes().take_while(|&byte| byte == b' ').count();
    &line[inset.min(spaces)..]
}

/// As GitHub names headings, so that a link works in both places.
fn slug(text: &str) -> String {
    let kept = text.chars().filter(|&letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
