//! Numbers by name, as one object of bounded size: a line of the log.

use super::encode::string;

pub struct NumberLine {
    line: Vec<u8>,
    max_bytes: usize,
    left_out: usize,
}

/// A comma, a colon, the largest number and the end of the object.
const NUMBER_BYTES: usize = 24;

impl NumberLine {
    pub fn new(max_bytes: usize) -> NumberLine {
        NumberLine { line: vec![b'{'], max_bytes, left_out: 0 }
    }

    /// Adds a number, or counts it as left out when the line has no room for it.
    pub fn push(&mut self, name: &str, value: f64) {
        let begun = self.line.len();
        if begun > 1 {
            self.line.push(b',');
        }
        string(&mut self.line, name);
        if self.line.len() + NUMBER_BYTES > self.max_bytes {
            self.line.truncate(begun);
            self.left_out += 1;
            return;
        }
        self.line.push(b':');
        // Infinite and undefined numbers are no JSON.
        let value = if value.is_finite() { value } else { 0.0 };
        self.line.extend_from_slice(value.to_string().as_bytes());
    }

    /// The object, and how many numbers had no room in it.
    pub fn finish(mut self) -> (String, usize) {
        self.line.push(b'}');
        (String::from_utf8(self.line).expect("names are text"), self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_fits_and_counts_the_rest() {
        let mut line = NumberLine::new(64);
        for name in ["a", "b{x=\"1\"}", "c"] {
            line.push(name, 1234567890123456.0);
        }
        let max = "1234567890123456";
        let expected = format!("{{\"a\":{max},\"b{{x=\\\"1\\\"}}\":{max}}}");
        assert!(expected.len() <= 64);
        assert_eq!(line.finish(), (expected, 1));
        assert_eq!(NumberLine::new(64).finish(), ("{}".to_owned(), 0));
    }
}
