//! The part of the build script that creates the pages at `/docs`.

#[path = "../../docs_build/mod.rs"]
mod docs_build;

use docs_build::{markdown, site, twins};
use std::collections::BTreeMap;

fn check(text: &str, html: &str) {
    let found = markdown::render(text, |written| (written != "gone.md").then(|| written.to_owned()));
    assert_eq!(found.html.replace('\n', " ").trim(), html, "{text}");
}

const EDITION: site::Edition = site::Edition { version: "1.2.3", edit_url: None };

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
        (
            "docs/guides/a.md",
            "# A: one\nFirst. Second.\n\n[b](../adr/b.md#part) [c](../../c.txt) [all](../adr/)",
        ),
        ("docs/adr/b.md", "# B\n## Part\n[back](../guides/a.md)"),
        ("c.txt", "text"),
    ]);
    let documents = site::read(&files);
    assert_eq!(site::broken_links(&documents), [] as [&str; 0]);
    let pages = site::pages(&documents, &EDITION);
    assert_eq!(
        pages.keys().collect::<Vec<_>>(),
        ["/docs", "/docs/adr/b", "/docs/contributing", "/docs/guides/a"]
    );
    for part in ["href=\"/docs/adr/b#part\"", "href=\"/docs/files/c.txt\"", "href=\"/docs/contributing\">all"]
    {
        assert!(pages["/docs/guides/a"].contains(part), "{part}");
    }
    assert!(pages["/docs/adr/b"].contains("href=\"/docs/guides/a\">back"));
    let card = "<a href=\"/docs/guides/a\">A: one</a><p>First.</p>";
    assert!(pages["/docs"].contains(card), "{}", pages["/docs"]);
    // Pages for users and for contributors are apart.
    assert!(!pages["/docs/contributing"].contains(card) && !pages["/docs"].contains("href=\"/docs/adr/b\""));
}

#[test]
fn pages_link_to_their_neighbours() {
    let files = files(&[
        ("docs/guides/events.md", "# Events"),
        ("docs/guides/presence.md", "# Presence: who"),
        ("docs/guides/zebra.md", "# Zebra"),
    ]);
    let pages = site::pages(&site::read(&files), &EDITION);
    let link = |class: &str, to: &str, label: &str, title: &str| {
        format!(
            "<a class=\"{class}\" rel=\"{class}\" href=\"/docs/guides/{to}\"><span>{label}</span> {title}</a>"
        )
    };
    let middle = &pages["/docs/guides/events"];
    assert!(middle.contains(&link("prev", "presence", "Previous", "Presence")), "{middle}");
    assert!(middle.contains(&link("next", "zebra", "Next", "Zebra")), "{middle}");
    assert!(!pages["/docs/guides/presence"].contains("rel=\"prev\""));
    assert!(!pages["/docs/guides/zebra"].contains("rel=\"next\""));
}

#[test]
fn code_is_coloured_and_its_text_unchanged() {
    let cases = [
        (
            "sh",
            "export A=1 # one",
            "<span class=\"hw\">export</span> A=<span class=\"hn\">1</span> <span class=\"hc\"># one</span>",
        ),
        ("sh", "tavern who 'room#1'", "tavern who <span class=\"hs\">'room#1'</span>"),
        (
            "js",
            "const a = 'b\\'c'; // d",
            "<span class=\"hw\">const</span> a = <span class=\"hs\">'b\\'c'</span>; <span class=\"hc\">// d</span>",
        ),
        ("js", "fetch('https://x')", "fetch(<span class=\"hs\">'https://x'</span>)"),
        ("toml", "grace_ms = 5", "<span class=\"hk\">grace_ms</span> = <span class=\"hn\">5</span>"),
        (
            "json",
            "{\"a\": \"<b>\"}",
            "{<span class=\"hk\">&quot;a&quot;</span>: <span class=\"hs\">&quot;&lt;b&gt;&quot;</span>}",
        ),
        ("js", "'open\nend", "<span class=\"hs\">'open</span>\nend"),
        ("brainless", "a # <b>", "a # &lt;b&gt;"),
    ];
    for (language, code, html) in cases {
        assert_eq!(docs_build::highlight::highlight(language, code), html, "{code}");
    }
}

#[test]
fn tabs_become_sections() {
    check(
        "<!-- tabs -->\n\n#### Go\n\none\n\n#### PHP\n\ntwo\n\n<!-- /tabs -->\n\nend",
        "<div class=\"tabs\"> <section data-tab=\"Go\"> <h4 id=\"go\"><a class=\"here\" href=\"#go\">Go</a></h4> <p>one</p> \
         </section> <section data-tab=\"PHP\"> <h4 id=\"php\"><a class=\"here\" href=\"#php\">PHP</a></h4> <p>two</p> \
         </section></div> <p>end</p>",
    );
}

#[test]
fn search_finds_the_text_below_each_heading() {
    let documents = site::read(&files(&[(
        "docs/guides/a.md",
        "# A \"one\"\nintro\n## B\n| x | `y` |\n|---|---|\n| 1 | 2 |\n",
    )]));
    let index = docs_build::search::index(&documents.iter().collect::<Vec<_>>());
    assert_eq!(
        index,
        "[{\"page\":\"A \\\"one\\\"\",\"title\":\"A \\\"one\\\"\",\"address\":\"/docs/guides/a\",\"text\":\"intro\"},\n\
         {\"page\":\"A \\\"one\\\"\",\"title\":\"B\",\"address\":\"/docs/guides/a#b\",\"text\":\"x y 1 2\"}]"
    );
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
fn a_card_comment_replaces_the_first_sentence() {
    let documents = site::read(&files(&[("docs/a.md", "# A\n\n<!-- card: What A is for. -->\n\nOne.")]));
    assert_eq!(documents[0].lead, "What A is for.");
}

#[test]
fn every_page_has_a_twin_in_markdown_that_links_to_twins() {
    let files = files(&[
        (
            "docs/guides/a.md",
            "# A: one\n\n<!-- run -->\nFirst. [b](../adr/b.md#part) [c](../../c.txt) [x](https://x.example)",
        ),
        ("docs/adr/b.md", "# B\n## Part\nDecided."),
        ("c.txt", "text"),
    ]);
    let documents = site::read(&files);
    let twins = twins::twins(&documents);
    assert_eq!(
        twins["/docs/guides/a.md"],
        "# A: one\n\nFirst. [b](/docs/adr/b.md#part) [c](/docs/files/c.txt) [x](https://x.example)\n"
    );
    for (address, html) in site::pages(&documents, &EDITION) {
        let twin = format!("{address}.md");
        assert!(twins.contains_key(&twin), "{twin}");
        assert!(html.contains(&format!("type=\"text/markdown\" href=\"{twin}\"")), "{address}");
    }
    assert!(
        twins["/llms.txt"].contains("## Guides\n\n- [A: one](/docs/guides/a.md): First.\n"),
        "{}",
        twins["/llms.txt"]
    );
    assert!(twins["/llms.txt"].contains("- [B](/docs/adr/b.md): Decided.\n"));
}

#[test]
fn pages_name_the_version_and_where_they_can_be_changed() {
    let documents = site::read(&files(&[("docs/guides/a.md", "# A")]));
    let html = &site::pages(&documents, &EDITION)["/docs/guides/a"];
    assert!(html.contains(">Tavern 1.2.3</a>") && !html.contains("Edit this page"), "{html}");
    let edition = site::Edition { edit_url: Some("https://code.example/edit/main/"), ..EDITION };
    let html = &site::pages(&documents, &edition)["/docs/guides/a"];
    let link =
        "<a href=\"https://code.example/edit/main/docs/guides/a.md\" rel=\"noreferrer\">Edit this page</a>";
    assert!(html.contains(link), "{html}");
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
