//! The part of the build script that creates the pages at `/docs`.

#[path = "../docs_build/mod.rs"]
mod docs_build;

use docs_build::{markdown, site};
use std::collections::BTreeMap;

fn check(text: &str, html: &str) {
    let found = markdown::render(text, |written| (written != "gone.md").then(|| written.to_owned()));
    assert_eq!(found.html.replace('\n', " ").trim(), html, "{text}");
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

#[test]
fn every_heading_has_its_own_id() {
    let page = markdown::render("# The *one*\n## Same\ntext\n## Same\n## `a.b` & c_d", |_| None);
    let ids: Vec<&str> = page.headings.iter().map(|heading| heading.id.as_str()).collect();
    assert_eq!(ids, ["the-one", "same", "same-1", "ab--c_d"]);
    assert_eq!((page.headings[3].level, page.headings[3].text.as_str()), (2, "a.b & c_d"));
    assert!(page.html.contains("<h2 id=\"same-1\"><a class=\"here\" href=\"#same-1\">Same</a></h2>"));
}

#[test]
fn comments_are_removed() {
    check(
        "one\n<!-- run: expect x -->\n```sh\nls <b>\n```",
        "<p>one</p> <pre tabindex=\"0\"><code>ls &lt;b&gt; </code></pre>",
    );
    check("<!-- a comment\nof two lines -->\n\nyes <!-- no -->", "<p>yes </p>");
}

#[test]
fn raw_html_stays_text() {
    check("a <b onclick=x>hi</b>", "<p>a &lt;b onclick=x&gt;hi&lt;/b&gt;</p>");
    check("<script>\nalert(1)\n</script>", "<p>&lt;script&gt; alert(1) &lt;/script&gt;</p>");
    check("# <img>", "<h1 id=\"img\"><a class=\"here\" href=\"#img\">&lt;img&gt;</a></h1>");
}

#[test]
fn tables_scroll_and_align_numbers_with_a_class() {
    check(
        "| a | b |\n|---|--:|\n| `x` | 1 \\| 2 |\n",
        "<div class=\"table\" tabindex=\"0\"><table> <thead><tr><th>a</th><th class=\"number\">b</th></tr></thead> <tbody> \
         <tr><td><code>x</code></td><td class=\"number\">1 | 2</td></tr> </tbody></table></div>",
    );
}

#[test]
fn links_lead_to_addresses_or_become_text() {
    check("see [the `x` page](x.md)", "<p>see <a href=\"x.md\">the <code>x</code> page</a></p>");
    check("[lost](gone.md), ![lost *too*](gone.md)", "<p>lost, lost too</p>");
    check("![a \"view\"](v.png)", "<p><img src=\"v.png\" alt=\"a &quot;view&quot;\" loading=\"lazy\"></p>");
    check(
        "<https://a.example/b>",
        "<p><a href=\"https://a.example/b\" rel=\"noreferrer\">https://a.example/b</a></p>",
    );
}

#[test]
fn documents_link_to_pages_and_files() {
    let files = files(&[
        ("docs/a.md", "# A: one\nFirst. Second.\n\n[b](adr/b.md#part) [c](../c.txt) [all](adr/)"),
        ("docs/adr/b.md", "# B\n## Part\n[back](../a.md)"),
        ("c.txt", "text"),
    ]);
    let documents = site::read(&files);
    assert_eq!(site::broken_links(&documents), [] as [&str; 0]);
    let pages = site::pages(&documents);
    assert_eq!(pages.keys().collect::<Vec<_>>(), ["/docs", "/docs/a", "/docs/adr/b"]);
    for part in ["href=\"/docs/adr/b#part\"", "href=\"/docs/files/c.txt\"", "href=\"/docs\">all"] {
        assert!(pages["/docs/a"].contains(part), "{part}");
    }
    assert!(pages["/docs/adr/b"].contains("href=\"/docs/a\">back"));
    assert!(pages["/docs"].contains("<a href=\"/docs/a\">A: one</a><p>First.</p>"), "{}", pages["/docs"]);
}

#[test]
fn lead_is_the_first_sentence_of_the_text() {
    for text in
        ["# A\n- item\n\nOne, `two`. Three.", "![view](v.png)\n\nOne, two. Three", "**Decision.** One, two."]
    {
        let documents = site::read(&files(&[("docs/a.md", text)]));
        assert_eq!(documents[0].lead, "One, two.", "{text}");
    }
}

#[test]
fn broken_links_are_found() {
    let files = files(&[
        ("docs/a.md", "# A\n[x](gone.md) [y](b.md#gone) [z](#a) [w](../../etc/passwd)"),
        ("docs/b.md", "# B"),
    ]);
    let broken = site::broken_links(&site::read(&files));
    assert_eq!(broken, ["docs/a.md: gone.md", "docs/a.md: b.md#gone", "docs/a.md: ../../etc/passwd"]);
}

#[test]
fn paths_stay_inside_the_repository() {
    assert_eq!(site::relative("docs/a.md", "adr/b.md").as_deref(), Some("docs/adr/b.md"));
    assert_eq!(site::relative("docs/adr/b.md", "../a.md").as_deref(), Some("docs/a.md"));
    assert_eq!(site::relative("docs/a.md", "../README.md").as_deref(), Some("README.md"));
    assert_eq!(site::relative("docs/a.md", "../../etc/passwd"), None);
}
