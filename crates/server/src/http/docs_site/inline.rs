//! Markdown within a line: code, emphasis, links, images. Must hold: whatever is not one of these comes out as text, escaped.

/// What a page needs to know of the place where a link leads.
pub trait Links {
    /// The address for a link or an image as it is written; None: there is no such place.
    fn address(&mut self, written: &str) -> Option<String>;
}

pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}

pub fn render(text: &str, links: &mut dyn Links) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut rest = text;
    let mut before = ' ';
    while let Some(letter) = rest.chars().next() {
        let (html, taken) = piece(rest, before, links);
        out.push_str(&html);
        before = rest[..taken].chars().next_back().unwrap_or(letter);
        rest = &rest[taken..];
    }
    out
}

/// The text without its marks, for headings and titles.
pub fn plain(text: &str) -> String {
    struct Nowhere;
    impl Links for Nowhere {
        fn address(&mut self, _: &str) -> Option<String> {
            None
        }
    }
    let html = render(text, &mut Nowhere);
    let mut out = String::new();
    let mut inside = false;
    for letter in html.chars() {
        match letter {
            '<' => inside = true,
            '>' if inside => inside = false,
            _ if !inside => out.push(letter),
            _ => {}
        }
    }
    out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The first piece of the text as HTML, and how many bytes it took.
fn piece(rest: &str, before: char, links: &mut dyn Links) -> (String, usize) {
    let found = match rest.as_bytes()[0] {
        b'\\' => escaped(rest),
        b'`' => code(rest),
        b'!' => image(rest, links),
        b'[' => link(rest, links),
        b'<' => address(rest),
        b'*' => emphasis(rest, "**", "strong", links).or_else(|| emphasis(rest, "*", "em", links)),
        b'_' if !before.is_alphanumeric() => emphasis(rest, "_", "em", links),
        _ => None,
    };
    found.unwrap_or_else(|| {
        let taken = rest.chars().next().map_or(1, char::len_utf8);
        (escape(&rest[..taken]), taken)
    })
}

fn escaped(rest: &str) -> Option<(String, usize)> {
    let letter = rest[1..].chars().next().filter(char::is_ascii_punctuation)?;
    Some((escape(&letter.to_string()), 2))
}

fn code(rest: &str) -> Option<(String, usize)> {
    let ticks = rest.bytes().take_while(|&byte| byte == b'`').count();
    let fence = &rest[..ticks];
    let mut from = ticks;
    loop {
        let at = from + rest[from..].find(fence)?;
        let run = rest[at..].bytes().take_while(|&byte| byte == b'`').count();
        if run == ticks {
            let inner = &rest[ticks..at];
            let padded = inner.len() > 2 && inner.starts_with(' ') && inner.ends_with(' ');
            let inner = if padded { &inner[1..inner.len() - 1] } else { inner };
            return Some((format!("<code>{}</code>", escape(&inner.replace('\n', " "))), at + ticks));
        }
        from = at + run;
    }
}

fn image(rest: &str, links: &mut dyn Links) -> Option<(String, usize)> {
    let (text, written, taken) = bracket(rest.strip_prefix('!')?)?;
    let Some(address) = links.address(written) else { return Some((escape(text), taken + 1)) };
    let html =
        format!("<img src=\"{}\" alt=\"{}\" loading=\"lazy\">", escape(&address), escape(&plain(text)));
    Some((html, taken + 1))
}

fn link(rest: &str, links: &mut dyn Links) -> Option<(String, usize)> {
    let (text, written, taken) = bracket(rest)?;
    let shown = render(text, links);
    let Some(address) = links.address(written) else { return Some((shown, taken)) };
    Some((anchor(&address, &shown), taken))
}

fn anchor(address: &str, shown: &str) -> String {
    let far = if address.starts_with("http") { " rel=\"noreferrer\"" } else { "" };
    format!("<a href=\"{}\"{far}>{shown}</a>", escape(address))
}

/// `[text](written)`: the text, what is written, the bytes taken.
fn bracket(rest: &str) -> Option<(&str, &str, usize)> {
    let mut depth = 0usize;
    let mut ticked = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'`' => ticked = !ticked,
            b'[' if !ticked => depth += 1,
            b']' if !ticked => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    let after = rest[at + 1..].strip_prefix('(')?;
                    let end = after.find(')')?;
                    let written = &after[..end];
                    let sound = !written.is_empty() && !written.contains([' ', '\n', '"', '<']);
                    return sound.then_some((&rest[1..at], written, at + 1 + 1 + end + 1));
                }
            }
            _ => {}
        }
    }
    None
}

/// `<https://…>`.
fn address(rest: &str) -> Option<(String, usize)> {
    let end = rest.find('>')?;
    let inner = &rest[1..end];
    let sound = (inner.starts_with("http://") || inner.starts_with("https://"))
        && !inner.contains(|letter: char| letter.is_whitespace() || letter == '<');
    sound.then(|| (anchor(inner, &escape(inner)), end + 1))
}

fn emphasis(rest: &str, mark: &str, tag: &str, links: &mut dyn Links) -> Option<(String, usize)> {
    let inner = rest.strip_prefix(mark)?;
    if inner.starts_with(|letter: char| letter.is_whitespace() || mark.contains(letter)) {
        return None;
    }
    let mut from = 0;
    loop {
        let at = from + closing(&inner[from..], mark)?;
        let (before, after) = (&inner[..at], &inner[at + mark.len()..]);
        let word = mark == "_" && after.starts_with(char::is_alphanumeric);
        let double = mark == "*" && after.starts_with('*');
        if !before.ends_with(char::is_whitespace) && !word && !double {
            return Some((format!("<{tag}>{}</{tag}>", render(before, links)), at + 2 * mark.len()));
        }
        from = at + mark.len() + usize::from(double);
    }
}

/// Where the mark stands next, outside code.
fn closing(text: &str, mark: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(mark) {
            return Some(at);
        }
        at += match rest.as_bytes()[0] {
            b'`' => code(rest).map_or(1, |(_, taken)| taken),
            b'\\' => escaped(rest).map_or(1, |(_, taken)| taken),
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;
    impl Links for Known {
        fn address(&mut self, written: &str) -> Option<String> {
            (written != "gone.md").then(|| format!("/docs/{}", written.trim_end_matches(".md")))
        }
    }

    fn check(text: &str, html: &str) {
        assert_eq!(render(text, &mut Known), html, "{text}");
    }

    #[test]
    fn the_marks_of_a_line() {
        check(
            "plain, **bold**, *soft* and _soft_",
            "plain, <strong>bold</strong>, <em>soft</em> and <em>soft</em>",
        );
        check("`a < b` and ``a ` b``", "<code>a &lt; b</code> and <code>a ` b</code>");
        check("see [the `x` page](x.md)", "see <a href=\"/docs/x\">the <code>x</code> page</a>");
        check("**a `**` in it**", "<strong>a <code>**</code> in it</strong>");
        check(
            "![a \"view\"](v.png)",
            "<img src=\"/docs/v.png\" alt=\"a &quot;view&quot;\" loading=\"lazy\">",
        );
        check(
            "<https://a.example/b>",
            "<a href=\"https://a.example/b\" rel=\"noreferrer\">https://a.example/b</a>",
        );
    }

    #[test]
    fn what_is_no_mark_is_text() {
        check("2 * 3 * 4, a_b_c, snake_case", "2 * 3 * 4, a_b_c, snake_case");
        check(
            "<script>alert(1)</script> & \"so\"",
            "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;so&quot;",
        );
        check("[no link] (x) and [a](b c)", "[no link] (x) and [a](b c)");
        check("a lone ` and a lone **", "a lone ` and a lone **");
        check("\\*not soft\\*", "*not soft*");
        check("[lost](gone.md)", "lost");
        check("ä*ö*ü", "ä<em>ö</em>ü");
    }

    #[test]
    fn a_heading_is_read_without_its_marks() {
        assert_eq!(plain("The `join` of *all* & [more](x.md)"), "The join of all & more");
    }
}
