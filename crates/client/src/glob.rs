//! Redis globs, as the server matches them: byte-wise and case-sensitive (`*`, `?`, `[a-z]`, `[^x]`, `\` escapes).
//! Must hold: time is bounded by the product of both lengths.

/// Whether `pattern` matches all of `name`.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut at) = (pattern, 0);
    // After a star: what follows it, and where that was tried last.
    let mut tried: Option<(&[u8], usize)> = None;
    while at < name.len() {
        if let [b'*', after @ ..] = rest {
            (rest, tried) = (after, Some((after, at)));
        } else if let Some(after) = one(rest, name[at]) {
            (rest, at) = (after, at + 1);
        } else if let Some((after, from)) = &mut tried {
            *from += 1;
            (rest, at) = (*after, *from);
        } else {
            return false;
        }
    }
    rest.iter().all(|byte| *byte == b'*')
}

/// The rest of a pattern whose beginning matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (matched, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', class_and_rest @ ..] => class(class_and_rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    };
    matched.then_some(rest)
}

/// Whether `byte` is in the class that begins after its `[`, and the rest. A missing `]` is the end of the pattern.
fn class(mut pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        pattern = &pattern[1..];
    }
    let mut inside = false;
    loop {
        match pattern {
            [b'\\', escaped, rest @ ..] => {
                inside |= *escaped == byte;
                pattern = rest;
            }
            [b']', rest @ ..] => return (inside != negated, rest),
            [] => return (inside != negated, pattern),
            [from, b'-', to, rest @ ..] => {
                inside |= (*from.min(to)..=*from.max(to)).contains(&byte);
                pattern = rest;
            }
            [literal, rest @ ..] => {
                inside |= *literal == byte;
                pattern = rest;
            }
        }
    }
}
