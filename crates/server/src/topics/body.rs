//! The body of a request as one JSON object. Must hold: a list is refused, although serde would accept one; a body
//! that nests too deeply is not parsed.

use serde::Deserialize;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::check_portable;

/// Reads an object; `wanted` is the hint in the refusal.
pub fn object<'a, T: Deserialize<'a>>(body: &'a [u8], wanted: &str) -> Result<T, Refusal> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Refusal::new(Code::BadRequest, format!("{wanted}; the body is not a JSON object")));
    }
    check_portable(body).map_err(|found| Refusal::new(Code::BadRequest, format!("{wanted}: {found}")))?;
    serde_json::from_slice(body).map_err(|error| Refusal::new(Code::BadRequest, format!("{wanted}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct ResponseBody {
        one: u64,
    }

    #[test]
    fn only_objects_are_read() {
        assert_eq!(object::<ResponseBody>(b" {\"one\":1} ", "give one").unwrap().one, 1);
        for bad in ["", "[]", "[1]", "1", "{\"one\":\"x\"}", "{"] {
            let refused = object::<ResponseBody>(bad.as_bytes(), "give one").unwrap_err();
            assert!(refused.message.starts_with("give one"), "{bad}");
        }
    }
}
