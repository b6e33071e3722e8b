//! What the renderer makes of each kind of block, by small examples.

use super::*;

struct Anywhere;
impl Links for Anywhere {
    fn address(&mut self, written: &str) -> Option<String> {
        Some(written.to_owned())
    }
}

fn check(text: &str, html: &str) {
    let found = render(text, &mut Anywhere).html.replace('\n', " ");
    assert_eq!(found.trim(), html, "{text}");
}

#[test]
fn headings_have_names_of_their_own() {
    let page = render("# The *one*\n## Same\ntext\n## Same\n## `a.b` & c_d", &mut Anywhere);
    let ids: Vec<&str> = page.headings.iter().map(|heading| heading.id.as_str()).collect();
    assert_eq!(ids, ["the-one", "same", "same-1", "ab--c_d"]);
    assert_eq!(page.headings[3].text, "a.b & c_d");
    assert!(page.html.contains("<h2 id=\"same-1\"><a class=\"here\" href=\"#same-1\">Same</a></h2>"));
}

#[test]
fn paragraphs_end_where_something_else_begins() {
    check("one\ntwo\n\nthree", "<p>one two</p> <p>three</p>");
    check("one\n- two", "<p>one</p> <ul> <li>two</li> </ul>");
    check(
        "one\n<!-- run: expect x -->\n```sh\nls\n```",
        "<p>one</p> <pre tabindex=\"0\"><code>ls </code></pre>",
    );
    check("<!-- a comment\nof two lines -->\nyes", "<p>yes</p>");
    check("---\n> said\n> so", "<hr> <blockquote> <p>said so</p> </blockquote>");
}

#[test]
fn lists_hold_what_is_set_in() {
    check("- one\n  more\n- two", "<ul> <li>one more</li> <li>two</li> </ul>");
    check("1. one\n2. two\n\nafter", "<ol> <li>one</li> <li>two</li> </ol> <p>after</p>");
    check("- one\n  - inner\n- two", "<ul> <li>one<ul> <li>inner</li> </ul> </li> <li>two</li> </ul>");
    check(
        "- one\n\n  ```sh\n  ls\n  ```\n- two",
        "<ul> <li>one<pre tabindex=\"0\"><code>ls </code></pre> </li> <li>two</li> </ul>",
    );
}

#[test]
fn code_is_what_it_says() {
    check("    a <b>\n\n    c", "<pre tabindex=\"0\"><code>a &lt;b&gt;  c </code></pre>");
    check(
        "```\n# no heading\n- no list\n```",
        "<pre tabindex=\"0\"><code># no heading - no list </code></pre>",
    );
    check("```\nnever closed", "<pre tabindex=\"0\"><code>never closed </code></pre>");
}

#[test]
fn tables_keep_bars_that_are_meant() {
    let table = "| a | b |\n|---|--:|\n| `x|y` | 1 \\| 2 |\n";
    check(
        table,
        "<div class=\"table\" tabindex=\"0\"><table> <thead><tr><th>a</th><th class=\"number\">b</th></tr> </thead> <tbody> \
         <tr><td><code>x|y</code></td><td class=\"number\">1 | 2</td></tr> </tbody></table></div>",
    );
}

#[test]
fn markup_in_the_text_stays_text() {
    check("<b onclick=x>hi</b>", "<p>&lt;b onclick=x&gt;hi&lt;/b&gt;</p>");
    check("# <img>", "<h1 id=\"img\"><a class=\"here\" href=\"#img\">&lt;img&gt;</a></h1>");
}
