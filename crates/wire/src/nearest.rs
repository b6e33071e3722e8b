//! The name that somebody meant who wrote another one: for refusals that suggest it.

/// The known name that was probably meant.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No key is this long, and the edit distance costs the product of the lengths.
    if written.len() > 64 {
        return None;
    }
    let allowed = (written.len() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|name| (distance(written, name), name));
    scored
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// The edit distance: characters added, removed, changed, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_near_and_another_word_is_not() {
        let known = ["presence", "pattern", "last"];
        for (written, meant) in [("presense", Some("presence")), ("lats", Some("last")), ("colour", None)] {
            assert_eq!(nearest(written, known), meant);
        }
    }
}
