//! The place of some work in a distributed trace, as W3C Trace Context writes it in the header `traceparent`.

use alloc::format;
use alloc::string::String;

/// The length of a `traceparent` of version 00.
pub const TRACEPARENT_BYTES: usize = 55;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    /// The span that is the parent of what follows.
    pub span_id: u64,
    /// Whether the caller that began the trace wants it recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a header. None: it is malformed, and the trace begins anew.
    pub fn parse(text: &str) -> Option<TraceContext> {
        let bytes = text.as_bytes();
        // A later version may append more fields.
        let fits = match bytes.get(..2)? {
            b"00" => bytes.len() == TRACEPARENT_BYTES,
            b"ff" => false,
            _ => bytes.len() == TRACEPARENT_BYTES || bytes.get(TRACEPARENT_BYTES) == Some(&b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        if !fits || !dashes {
            return None;
        }
        hex(bytes.get(..2)?)?;
        let (trace_id, span_id) = (hex(bytes.get(3..35)?)?, hex(bytes.get(36..52)?)? as u64);
        let flags = hex(bytes.get(53..55)?)?;
        (trace_id != 0 && span_id != 0).then_some(TraceContext { trace_id, span_id, sampled: flags & 1 == 1 })
    }

    /// As the header is written.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// Lower-case hexadecimal digits, as the standard wants them.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |sum, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written() {
        let context = TraceContext::parse(HEADER).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span_id, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.traceparent(), HEADER);
        assert!(!TraceContext::parse(&HEADER.replace("-01", "-00")).unwrap().sampled);
        let later = HEADER.replace("00-4", "cc-4");
        assert!(TraceContext::parse(&later).is_some(), "a later version");
        assert!(TraceContext::parse(&format!("{later}-more")).is_some(), "with more fields");
    }

    #[test]
    fn a_malformed_header_begins_no_trace() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let upper = HEADER.to_uppercase();
        let longer = format!("{HEADER}-more");
        let unknown = HEADER.replace("00-4", "ff-4");
        let joined = format!("{}more", HEADER.replace("00-4", "cc-4"));
        for wrong in
            ["", "00", "00-é", zero_trace, zero_span, &upper, &longer, &unknown, &joined, &HEADER[..54]]
        {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
