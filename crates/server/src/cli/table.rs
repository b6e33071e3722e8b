//! Columns of text for people; colours only on a terminal.

use std::io::IsTerminal;

/// A wider cell shifts only its own line: one long value must not widen the whole table.
const WIDE: usize = 48;

/// Untrusted text without control characters.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Lines whose columns are aligned. The last column is not padded.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| shown_width(cell));
        cells.filter(|width| *width <= WIDE).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(shown_width(cell)) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The width on the screen: escape sequences have none.
fn shown_width(cell: &str) -> usize {
    let mut width = 0;
    let mut escaped = false;
    for c in cell.chars() {
        match c {
            '\x1b' => escaped = true,
            'm' if escaped => escaped = false,
            _ if escaped => {}
            _ => width += 1,
        }
    }
    width
}

/// A number of bytes in a readable unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1024.0 of a unit is shown as 1.0 of the next.
    while amount >= 1023.95 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

#[derive(Clone, Copy)]
pub enum Colour {
    Green,
    Yellow,
    Red,
    Bold,
    Dim,
}

/// Whether stdout is a terminal and NO_COLOR is not set.
pub fn wants_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

pub fn paint(text: &str, colour: Colour, wanted: bool) -> String {
    let code = match colour {
        Colour::Green => "32",
        Colour::Yellow => "33",
        Colour::Red => "31",
        Colour::Bold => "1",
        Colour::Dim => "2",
    };
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_readable_units() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn columns_are_aligned_with_and_without_colour() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let red = paint("fail", Colour::Red, true);
        let text = columns(&[row(["key", "value"]), vec![red.clone(), "x".into()], row(["längste", ""])]);
        assert_eq!(text, format!("key      value\n{red}     x\nlängste\n"));
    }
}
