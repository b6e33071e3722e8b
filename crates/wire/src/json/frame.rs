//! Splits a WebSocket frame into commands, without parsing them.
//! Must hold: one JSON object is one command however it is formatted; no frame is ignored silently.

use super::scan::skip_space;
use memchr::memchr;
use serde::de::IgnoredAny;

/// The commands of a frame: the frame itself if it is one JSON object, else each of its lines that is not blank. A blank frame
/// yields itself, so that its sender gets an error.
pub fn commands(frame: &[u8]) -> FrameCommands<'_> {
    let several = memchr(b'\n', frame).is_some() && !is_one_object(frame) && !frame.trim_ascii().is_empty();
    FrameCommands { rest: Some(frame), several }
}

/// The commands of the rest of a frame that has several.
pub fn command_lines(rest: &[u8]) -> FrameCommands<'_> {
    FrameCommands { rest: Some(rest), several: true }
}

#[derive(Debug)]
pub struct FrameCommands<'a> {
    rest: Option<&'a [u8]>,
    several: bool,
}

impl<'a> FrameCommands<'a> {
    /// What is not read yet, for `command_lines`.
    pub fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or_default()
    }
}

impl<'a> Iterator for FrameCommands<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.several {
            return self.rest.take();
        }
        loop {
            let rest = self.rest?;
            let line = match memchr(b'\n', rest) {
                Some(end) => {
                    self.rest = Some(&rest[end + 1..]);
                    &rest[..end]
                }
                None => {
                    self.rest = None;
                    rest
                }
            };
            let line = line.trim_ascii();
            if !line.is_empty() {
                return Some(line);
            }
        }
    }
}

/// Only called if there is a line break. The parser stops after the first of several commands.
fn is_one_object(frame: &[u8]) -> bool {
    frame.get(skip_space(frame, 0)) == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(frame).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: &str, expected: &[&str]) {
        let found: Vec<_> = commands(frame.as_bytes()).map(|c| std::str::from_utf8(c).unwrap()).collect();
        assert_eq!(found, expected, "{frame:?}");
    }

    #[test]
    fn a_frame_without_line_breaks_is_itself() {
        check(r#"{"op":"ping"}"#, &[r#"{"op":"ping"}"#]);
        check("", &[""]);
        check("  ", &["  "]);
        check("{}{}", &["{}{}"]);
    }

    #[test]
    fn a_formatted_object_is_one_command() {
        check("{\n \"a\": [\n1\n]\n}\n", &["{\n \"a\": [\n1\n]\n}\n"]);
        check("\n{}", &["\n{}"]);
    }

    #[test]
    fn other_frames_are_split_into_lines() {
        check("{\"a\":1}\n{\"b\":2}", &["{\"a\":1}", "{\"b\":2}"]);
        check("\r\n{}\r\n\r\n {} \n", &["{}", "{}"]);
        check("{\n{}\n}", &["{", "{}", "}"]);
        check("[\n]", &["[", "]"]);
        check("{\"a\":[}\n{\"op\":\"ping\"}\n]}", &["{\"a\":[}", "{\"op\":\"ping\"}", "]}"]);
    }

    #[test]
    fn the_rest_of_several_commands_is_split_as_the_whole() {
        let frame = b"a\n{\n}\n\nb";
        let whole: Vec<_> = commands(frame).collect();
        for taken in 1..=whole.len() {
            let mut first = commands(frame);
            let mut found: Vec<_> = first.by_ref().take(taken).collect();
            found.extend(command_lines(first.rest()));
            assert_eq!(found, whole, "{taken}");
        }
    }

    #[test]
    fn a_frame_of_blank_lines_yields_itself() {
        check("\n\r\n", &["\n\r\n"]);
    }
}
