//! A measured value with its name and target, and tables of them.
//! Must hold: a figure without a sample does not exist; replacing the section leaves the rest of the page as it is.

use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub case: String,
    pub name: String,
    pub samples: Vec<f64>,
    aim: Option<Aim>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Figure {
    pub fn new(case: &str, name: &str, mut samples: Vec<f64>) -> Self {
        assert!(!samples.is_empty(), "{case}: {name} was not measured");
        samples.sort_by(f64::total_cmp);
        Self { case: case.into(), name: name.into(), samples, aim: None }
    }

    pub fn at_least(self, aim: f64) -> Self {
        Self { aim: Some(Aim::AtLeast(aim)), ..self }
    }

    pub fn at_most(self, aim: f64) -> Self {
        Self { aim: Some(Aim::AtMost(aim)), ..self }
    }

    fn median(&self) -> f64 {
        self.samples[self.samples.len() / 2]
    }

    fn value(&self) -> String {
        let value = number(self.median());
        match &self.samples[..] {
            [lowest, .., highest] => format!("{value} ({}–{})", number(*lowest), number(*highest)),
            _ => value,
        }
    }

    fn verdict(&self) -> String {
        let mark = |good| if good { "✓" } else { "✗" };
        match self.aim {
            // Memory that was freed meanwhile hides what was taken.
            Some(Aim::AtMost(aim)) if self.median() < 0.0 => format!("≤ {}, lost in the noise", number(aim)),
            Some(Aim::AtLeast(aim)) => format!("≥ {} {}", number(aim), mark(self.median() >= aim)),
            Some(Aim::AtMost(aim)) => format!("≤ {} {}", number(aim), mark(self.median() <= aim)),
            None => String::new(),
        }
    }
}

/// Three significant digits, with thousands separators.
pub(crate) fn number(value: f64) -> String {
    if value >= 1000.0 {
        let whole = (value.round() as u64).to_string();
        let groups: Vec<&str> = whole
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|digits| std::str::from_utf8(digits).unwrap_or_default())
            .collect();
        return groups.join(",");
    }
    let digits = if value >= 100.0 || value == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

pub struct Figures<'a>(pub &'a [Figure]);

impl Figures<'_> {
    fn rows(&self) -> impl Iterator<Item = [String; 4]> {
        self.0
            .iter()
            .map(|figure| [figure.case.clone(), figure.name.clone(), figure.value(), figure.verdict()])
    }

    pub fn terminal(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY);
        table.set_header(["case", "figure", "value", "aim"]);
        for row in self.rows() {
            table.add_row(row);
        }
        table.to_string()
    }

    pub fn markdown(&self) -> String {
        let mut out = String::from("| case | figure | value | aim |\n|---|---|---|---|\n");
        for row in self.rows() {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        out
    }
}

/// The page with this section in the place of an earlier one with its heading, or at its end.
pub fn with_section(page: &str, section: &str) -> String {
    let (before, after) = split(page, section.lines().next().unwrap_or_default());
    let after = if after.is_empty() { String::new() } else { format!("\n{after}") };
    format!("{}\n\n{}\n{after}", before.trim_end(), section.trim_end())
}

/// The section of a page with this heading; empty when it has none.
pub fn section_of<'a>(page: &'a str, heading: &str) -> &'a str {
    let (before, after) = split(page, heading);
    page[before.len()..page.len() - after.len()].trim()
}

/// The text before and after the section.
fn split<'a>(page: &'a str, heading: &str) -> (&'a str, &'a str) {
    let Some(start) = page.find(&format!("\n{heading}\n")).map(|at| at + 1) else { return (page, "") };
    let rest = &page[start + heading.len()..];
    let end = rest.find("\n## ").map_or(page.len(), |at| start + heading.len() + at + 1);
    (&page[..start], &page[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_replaces_itself_and_nothing_else() {
        let page = "# Results\n\n## Redis\n\na\n";
        let once = with_section(page, "## Presence\n\none\n");
        assert_eq!(once, "# Results\n\n## Redis\n\na\n\n## Presence\n\none\n");
        let twice = with_section(&once, "## Presence\n\ntwo");
        assert_eq!(twice, "# Results\n\n## Redis\n\na\n\n## Presence\n\ntwo\n");
        assert_eq!(section_of(&twice, "## Presence"), "## Presence\n\ntwo");
        assert_eq!(section_of(page, "## Presence"), "");
        let inside = with_section("# R\n\n## Presence\n\nold\n\n## Faults\n\n- x\n", "## Presence\n\nnew");
        assert_eq!(inside, "# R\n\n## Presence\n\nnew\n\n## Faults\n\n- x\n");
    }

    #[test]
    fn an_aim_is_held_against_the_median() {
        let figure = Figure::new("c", "f", vec![3.0, 1.0, 2.0]);
        assert_eq!(figure.clone().at_least(2.0).verdict(), "≥ 2.00 ✓");
        assert_eq!(figure.clone().at_most(1.5).verdict(), "≤ 1.50 ✗");
        assert_eq!(figure.value(), "2.00 (1.00–3.00)");
        assert_eq!(number(1_234_567.4), "1,234,567");
    }
}
