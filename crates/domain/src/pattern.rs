//! Patterns: Redis globs, byte-wise and case-sensitive (`*`, `?`, `[a-z]`, `[^x]`, `\` escapes).
//! Must hold: the same result as Redis for every pattern and name, in time bounded by the product of their lengths.

/// Whether `pattern` matches all of `name`.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    glob(pattern, name) == GlobMatch::Match
}

/// The literal bytes in front of the first special character: every match begins with them.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|b| matches!(b, b'*' | b'?' | b'[' | b'\\')).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Whether a right to `granted` includes the pattern `asked`: it is the same pattern, or a literal prefix followed by `*`
/// that `asked` begins with. The inclusion of globs in general is not decided.
pub fn covers(granted: &[u8], asked: &[u8]) -> bool {
    if granted == asked {
        return true;
    }
    let prefix = literal_prefix(granted);
    &granted[prefix.len()..] == b"*" && literal_prefix(asked).starts_with(prefix)
}

#[derive(PartialEq, Eq)]
enum GlobMatch {
    Match,
    Differ,
    /// The rest of the pattern matches nowhere in the rest of the name, so backtracking cannot help.
    Exhausted,
}

fn glob(mut pattern: &[u8], mut name: &[u8]) -> GlobMatch {
    // Redis does not enter this loop for an empty name, so `*` does not match it.
    while let (Some(&head), Some(&byte)) = (pattern.first(), name.first()) {
        match head {
            b'*' => {
                let rest = after_stars(pattern);
                if rest.is_empty() {
                    return GlobMatch::Match;
                }
                return try_everywhere(rest, name);
            }
            b'?' => pattern = &pattern[1..],
            b'[' => {
                let (inside, rest) = class(&pattern[1..], byte);
                if !inside {
                    return GlobMatch::Differ;
                }
                pattern = rest;
            }
            _ => {
                let literal = if head == b'\\' && pattern.len() >= 2 { &pattern[1..] } else { pattern };
                if literal[0] != byte {
                    return GlobMatch::Differ;
                }
                pattern = &literal[1..];
            }
        }
        name = &name[1..];
        if name.is_empty() {
            pattern = after_stars(pattern);
            break;
        }
    }
    if pattern.is_empty() && name.is_empty() { GlobMatch::Match } else { GlobMatch::Differ }
}

fn try_everywhere(pattern: &[u8], name: &[u8]) -> GlobMatch {
    for start in 0..name.len() {
        match glob(pattern, &name[start..]) {
            GlobMatch::Differ => {}
            decided => return decided,
        }
    }
    GlobMatch::Exhausted
}

fn after_stars(pattern: &[u8]) -> &[u8] {
    let stars = pattern.iter().take_while(|&&b| b == b'*').count();
    &pattern[stars..]
}

/// Parses a class after its `[`. Returns whether `byte` is in it, and the rest. A missing `]` is the end of the pattern.
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
            [start, b'-', end, rest @ ..] => {
                inside |= (*start.min(end)..=*start.max(end)).contains(&byte);
                pattern = rest;
            }
            [literal, rest @ ..] => {
                inside |= *literal == byte;
                pattern = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn check(pattern: &str, name: &str, expected: bool) {
        assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern:?} on {name:?}");
    }

    #[test]
    fn globs_match_like_redis() {
        check("h?llo", "hello", true);
        check("h?llo", "hllo", false);
        check("h*llo", "heeeello", true);
        check("h[ae]llo", "hallo", true);
        check("h[ae]llo", "hillo", false);
        check("h[^e]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("h[a-c]llo", "hbllo", true);
        check("h[c-a]llo", "hbllo", true);
        check("h\\*llo", "h*llo", true);
        check("h\\*llo", "hxllo", false);
        check("[\\]]", "]", true);
        check("[a", "a", true);
        check("[^", "x", true);
        check("a\\", "a\\", true);
        check("*", "", false);
        check("", "", true);
        check("", "a", false);
        check("a*", "a", true);
        check("a**b", "ab", true);
        check("*a*b*c", "xxaxxbxxc", true);
        check("*a*b*c", "xxaxxbxxd", false);
        check("Game#*", "game#1", false);
        check("game#*", "game#", true);
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_time() {
        let pattern: Vec<u8> = b"a*".iter().copied().cycle().take(400).chain(*b"b").collect();
        assert!(!matches(&pattern, &[b'a'; 512]));
    }

    #[test]
    fn rights_cover_patterns_by_literal_prefix_only() {
        for (granted, asked, expected) in [
            ("game#*", "game#*", true),
            ("game#*", "game#A*", true),
            ("game#*", "game#[ab]", true),
            ("game#*", "game*", false),
            ("game#*", "g?me#1", false),
            ("*", "game#*", true),
            ("ga?e#*", "ga?e#*", true),
            ("ga?e#*", "game#*", false),
            ("game#A", "game#A", true),
            ("game#A", "game#AB", false),
            ("game#*", "game\\#*", false),
        ] {
            assert_eq!(covers(granted.as_bytes(), asked.as_bytes()), expected, "{granted} {asked}");
        }
    }
}
