//! Patterns: Redis globs, byte-wise and case-sensitive (`*`, `?`, `[a-z]`, `[^x]`, `\` escapes).
//! Must hold: the same result as Redis for every pattern and name, in time bounded by
//! `steps`: linear in the name.

/// Whether `pattern` matches all of `name`.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.is_empty() {
        // As in Redis, `*` does not match an empty name.
        return pattern.is_empty();
    }
    let (mut rest, mut at) = (pattern, 0);
    // After a `*`: the part up to the next one, and where it was last tried.
    let mut tried: Option<(&[u8], usize)> = None;
    while at < name.len() {
        match one(rest, name[at]) {
            GlobStep::Star(after) => {
                if after.is_empty() {
                    return true;
                }
                let part = part(after);
                if part.last {
                    // Only single bytes follow: they must match the end.
                    if name.len() - at < part.bytes {
                        return false;
                    }
                    at = name.len() - part.bytes;
                    tried = None;
                } else {
                    tried = Some((after, at));
                }
                rest = after;
            }
            GlobStep::Match(after) => {
                rest = after;
                at += 1;
            }
            GlobStep::Differ => {
                // Earlier parts are matched as far left as possible, so only the current one moves.
                let Some((part, from)) = &mut tried else { return false };
                *from += 1;
                (rest, at) = (*part, *from);
            }
        }
    }
    after_stars(rest).is_empty()
}

/// The maximum number of comparisons of `matches` for a name of this length that starts with the literal of the
/// pattern.
pub fn steps(pattern: &[u8], name_bytes: usize) -> usize {
    let mut rest = &pattern[literal_prefix(pattern).len()..];
    let mut steps = 0;
    let mut widest = 0;
    while !rest.is_empty() {
        let starred = rest.first() == Some(&b'*');
        let part = part(after_stars(rest));
        match starred && !part.last {
            true => widest = widest.max(part.bytes),
            false => steps += part.bytes,
        }
        rest = part.rest;
    }
    steps + widest * name_bytes
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

enum GlobStep<'a> {
    /// The pattern continues with this after its stars.
    Star(&'a [u8]),
    /// The byte matches, and the pattern continues with this.
    Match(&'a [u8]),
    Differ,
}

/// Compares the beginning of a pattern with one byte.
fn one(pattern: &[u8], byte: u8) -> GlobStep<'_> {
    let (matched, rest) = match pattern {
        [] => return GlobStep::Differ,
        [b'*', ..] => return GlobStep::Star(after_stars(pattern)),
        [b'?', rest @ ..] => (true, rest),
        [b'[', class_and_rest @ ..] => class(class_and_rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    };
    if matched { GlobStep::Match(rest) } else { GlobStep::Differ }
}

/// The part of a pattern up to its next star.
struct GlobPart<'a> {
    /// How many bytes of a name it matches.
    bytes: usize,
    /// No star follows.
    last: bool,
    rest: &'a [u8],
}

fn part(pattern: &[u8]) -> GlobPart<'_> {
    let (mut bytes, mut rest) = (0, pattern);
    loop {
        rest = match rest {
            [] => return GlobPart { bytes, last: true, rest },
            [b'*', ..] => return GlobPart { bytes, last: false, rest },
            [b'[', class_and_rest @ ..] => class(class_and_rest, 0).1,
            [b'\\', _, rest @ ..] | [_, rest @ ..] => rest,
        };
        bytes += 1;
    }
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

    /// The matcher of Redis, which tries every place after every star.
    fn reference(pattern: &[u8], name: &[u8]) -> bool {
        if name.is_empty() {
            return pattern.is_empty();
        }
        match one(pattern, name[0]) {
            GlobStep::Star(after) => {
                after.is_empty() || (0..name.len()).any(|start| reference(after, &name[start..]))
            }
            GlobStep::Match(after) if name.len() == 1 => after_stars(after).is_empty(),
            GlobStep::Match(after) => reference(after, &name[1..]),
            GlobStep::Differ => false,
        }
    }

    #[test]
    fn every_short_pattern_matches_as_with_backtracking() {
        let symbols = b"ab*?[]^-\\";
        let words = |letters: &[u8], max: u32| {
            let mut all: Vec<Vec<u8>> = Vec::from([Vec::new()]);
            for len in 1..=max {
                for number in 0..letters.len().pow(len) {
                    let letter = |at| letters[number / letters.len().pow(at) % letters.len()];
                    all.push((0..len).map(letter).collect());
                }
            }
            all
        };
        let names = words(b"ab]", 4);
        for pattern in words(symbols, 4).into_iter().chain(words(b"ab*", 6)) {
            for name in &names {
                let expected = reference(&pattern, name);
                assert_eq!(matches(&pattern, name), expected, "{pattern:?} on {name:?}");
            }
        }
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_time() {
        let pattern: Vec<u8> = b"a*".iter().copied().cycle().take(400).chain(*b"b").collect();
        assert!(!matches(&pattern, &[b'a'; 512]));
    }

    #[test]
    fn steps_follow_the_shape_of_a_pattern() {
        for (pattern, expected) in [
            ("game#*", 0),
            ("game#1", 0),
            ("game#*.end", 4),
            ("game#?[ab]\\*", 3),
            ("*a*", 100),
            ("*a*b*c*", 100),
            ("*abc*d*ef", 302),
        ] {
            assert_eq!(steps(pattern.as_bytes(), 100), expected, "{pattern}");
        }
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
