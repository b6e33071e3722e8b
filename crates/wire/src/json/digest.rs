//! A digest of JSON values, to tell whether a state has changed. Must hold: it never changes, because it is stored.

use serde_json::Value;

/// A digest of a JSON value: equal values give the same number, however they are written.
pub fn state_digest(json: &str) -> u64 {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    match serde_json::from_str(json) {
        Ok(value) => digest.value(&value),
        Err(_) => digest.bytes(b'?', json.as_bytes()),
    }
    digest.0
}

struct Digest(u64);

impl Digest {
    fn bytes(&mut self, kind: u8, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in [kind].iter().chain(&length).chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes(b'n', b""),
            Value::Bool(on) => self.bytes(b'b', &[u8::from(*on)]),
            // As a float where that is exact: 1 and 1.0 are the same number.
            Value::Number(number) => match number.as_f64() {
                // Adding zero turns -0.0 into 0.0.
                Some(float) if float.abs() < 9e15 => self.bytes(b'd', &(float + 0.0).to_le_bytes()),
                _ => self.bytes(b'i', number.to_string().as_bytes()),
            },
            Value::String(text) => self.bytes(b's', text.as_bytes()),
            Value::Array(items) => {
                self.bytes(b'a', &(items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(members) => {
                self.bytes(b'o', &(members.len() as u64).to_le_bytes());
                let mut members: Vec<(&String, &Value)> = members.iter().collect();
                members.sort_by_key(|(name, _)| *name);
                for (name, value) in members {
                    self.bytes(b'k', name.as_bytes());
                    self.value(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_digests_however_they_are_written() {
        let same = [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [true , null], "a" : 1.0 }"#),
            ("\"ü\"", "\"\\u00fc\""),
            ("0", "-0e5"),
        ];
        for (one, other) in same {
            assert_eq!(state_digest(one), state_digest(other), "{one} {other}");
        }
        let all = [
            "null",
            "0",
            "1",
            "\"1\"",
            "[]",
            "{}",
            "[[]]",
            "[1]",
            "{\"a\":1}",
            "{\"a\":[1]}",
            "false",
            "\"\"",
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| state_digest(one) != state_digest(other)), "{one}");
        }
        assert_eq!(state_digest("{}"), state_digest(" {} "));
        assert_ne!(state_digest("9007199254740993000"), state_digest("9007199254740992000"));
    }
}
