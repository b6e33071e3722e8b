//! The index that the search of the documents reads: one entry per heading, with the text below it.
//! Must hold: it is valid JSON; it contains no text of pages that are not listed.

use super::site::{Document, address_of};

/// Characters of the text of one entry. Longer texts are tables of a reference, whose names come first.
const TEXT_CHARS: usize = 4_000;

/// `[{"page": title, "title": heading, "address": "/docs/…#…", "text": …}, …]`
pub fn index(documents: &[&Document]) -> String {
    let mut out = String::from("[");
    for document in documents {
        for (heading, text) in document.rendered.headings.iter().zip(&document.rendered.texts) {
            if out.len() > 1 {
                out.push_str(",\n");
            }
            let part = if heading.level == 1 { String::new() } else { format!("#{}", heading.id) };
            let text: Vec<&str> = text.split_whitespace().collect();
            let text: String = text.join(" ").chars().take(TEXT_CHARS).collect();
            out.push_str(&format!(
                "{{\"page\":{},\"title\":{},\"address\":{},\"text\":{}}}",
                quote(&document.title),
                quote(&heading.text),
                quote(&format!("{}{part}", address_of(&document.name))),
                quote(&text),
            ));
        }
    }
    out.push(']');
    out
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
