//! Bars as plain SVG: groups of horizontal bars, each with its figure beside it. Knows no workload.
//! Must hold: every text is escaped, and a bar without a figure is left out, not drawn as zero.

use std::fmt::Write;

/// A chart of groups (workloads) with one bar for each series (server).
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// What the figures are, and which side is better.
    pub note: String,
    pub series: Vec<&'static str>,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub label: String,
    /// One for each series.
    pub values: Vec<Option<f64>>,
}

const WIDTH: f64 = 820.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 84.0;
const BAR: f64 = 16.0;
const GAP: f64 = 14.0;
const COLOURS: [&str; 4] = ["#2a6fbb", "#c8553d", "#5b9a57", "#8a6bb1"];

impl Chart {
    /// Whether there is anything to see.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.values.iter().all(Option::is_none))
    }

    pub fn svg(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.values.iter().flatten().count()).sum();
        let height = TOP + bars as f64 * BAR + self.groups.len() as f64 * GAP + 20.0;
        let largest = self.groups.iter().flat_map(|group| group.values.iter().flatten());
        let largest = largest.copied().fold(f64::MIN_POSITIVE, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / largest;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
             <title>{0}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fbfaf7\"/>\n\
             <text x=\"20\" y=\"26\" font-size=\"16\" font-weight=\"bold\" fill=\"#222\">{0}</text>\n\
             <text x=\"20\" y=\"45\" fill=\"#555\">{1}</text>\n",
            escape(&self.title),
            escape(&self.note)
        );
        self.legend(&mut out);
        let mut y = TOP;
        for group in &self.groups {
            y = bar_group(&mut out, group, y, scale);
        }
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{}\" x2=\"{LEFT}\" y2=\"{y:.1}\" stroke=\"#999\"/>\n</svg>",
            TOP - 4.0
        );
        out
    }

    fn legend(&self, out: &mut String) {
        let mut x = 20.0;
        for (name, colour) in self.series.iter().zip(COLOURS) {
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"56\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"66\" fill=\"#222\">{}</text>",
                x + 17.0,
                escape(name)
            );
            x += 40.0 + 7.5 * name.chars().count() as f64;
        }
    }
}

/// Draws a group below `y` and returns where the next one begins.
fn bar_group(out: &mut String, group: &Group, mut y: f64, scale: f64) -> f64 {
    let bars = group.values.iter().flatten().count() as f64;
    if bars == 0.0 {
        return y;
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#222\">{}</text>",
        LEFT - 8.0,
        y + bars * BAR / 2.0 + 4.0,
        escape(&group.label)
    );
    for (value, colour) in group.values.iter().zip(COLOURS) {
        let Some(value) = value else { continue };
        let length = (value * scale).max(1.0);
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{}</text>",
            BAR - 3.0,
            LEFT + length + 5.0,
            y + BAR - 5.0,
            figure(*value)
        );
        y += BAR;
    }
    y + GAP
}

/// Three significant digits.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "cpu & more".into(),
            note: "less < is better".into(),
            series: vec!["tavern", "redis"],
            groups: vec![
                Group { label: "1→1".into(), values: vec![Some(1.0), Some(2.0)] },
                Group { label: "1→10".into(), values: vec![Some(0.25), None] },
            ],
        }
    }

    #[test]
    fn every_figure_has_a_bar_and_a_label() {
        let svg = chart().svg();
        // The background and the two legend marks are rectangles too.
        assert_eq!(svg.matches("<rect").count(), 3 + 3);
        for text in ["1→1", "1→10", "2.00", "0.250", "tavern", "cpu &amp; more", "less &lt; is better"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_longest_bar_fills_the_width_and_the_others_follow() {
        let svg = chart().svg();
        let full = WIDTH - LEFT - RIGHT;
        assert!(svg.contains(&format!("width=\"{full:.1}\"")));
        assert!(svg.contains(&format!("width=\"{:.1}\"", full / 8.0)));
    }

    #[test]
    fn a_chart_without_figures_is_empty() {
        let mut chart = chart();
        assert!(!chart.is_empty());
        chart.groups.iter_mut().for_each(|group| group.values.fill(None));
        assert!(chart.is_empty());
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([1234.5, 12.34, 1.234, 0.1234].map(figure), ["1234", "12.3", "1.23", "0.123"]);
    }
}
