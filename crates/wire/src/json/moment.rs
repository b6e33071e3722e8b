//! RFC 3339 times as milliseconds since the epoch. Must hold: invalid dates and times before 1970 are refused, never
//! guessed.

/// Parses `2026-11-15T10:00:00Z`, with or without a fraction, with `Z` or an offset.
pub fn parse_moment(text: &str) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = (rest.get(..8)?, rest.get(8..)?);
    let (year, month, day) = three(date, '-', [4, 2, 2])?;
    let (hour, minute, second) = three(clock, ':', [2, 2, 2])?;
    // A leap second counts as the one after it.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (millis, offset) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let digits = rest.get(..end).filter(|digits| !digits.is_empty() && digits.len() <= 9)?;
            (format!("{digits:0<3}").get(..3)?.parse().ok()?, &rest[end..])
        }
        None => (0, rest),
    };
    let days = day_number(year, month, day)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s(offset)?;
    u64::try_from(seconds * 1_000 + millis).ok()
}

/// `2026-11-15T10:08:20.123Z`.
pub fn write_moment(ms: u64) -> String {
    let (days, of_day) = ((ms / 86_400_000) as i64, ms % 86_400_000);
    // Years that begin in March, as in `day_number`.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Three numbers with these widths.
fn three(text: &str, between: char, widths: [usize; 3]) -> Option<(i64, i64, i64)> {
    let mut parts = text.split(between).zip(widths).map(|(part, width)| {
        let digits = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    });
    let found = (parts.next()??, parts.next()??, parts.next()??);
    (text.matches(between).count() == 2).then_some(found)
}

fn offset_s(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes, _) = three(&format!("{}:00", text.get(1..)?), ':', [2, 2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Days since 1970, counted in years that begin in March so that the leap day is the last.
fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_as_they_were_written() {
        assert_eq!(write_moment(1_794_737_300_123), "2026-11-15T10:08:20.123Z");
        for day in 0..150_000 {
            let ms = day * 86_400_000 + day * 577;
            assert_eq!(parse_moment(&write_moment(ms)), Some(ms), "{}", write_moment(ms));
        }
    }

    #[test]
    fn valid_times_are_parsed() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000)),
            ("2026-11-15T10:08:20Z", Some(1_794_737_300_000)),
            ("2026-11-15t10:08:20.5z", Some(1_794_737_300_500)),
            ("2026-11-15 10:08:20.123456Z", Some(1_794_737_300_123)),
            ("2026-11-15T12:08:20+02:00", Some(1_794_737_300_000)),
            ("2026-11-15T04:38:20-05:30", Some(1_794_737_300_000)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400_000)),
            ("2100-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-15T24:00:00Z", None),
            ("2026-11-15T10:08:20", None),
            ("2026-11-15T10:08:20.Z", None),
            ("2026-11-15T10:08:20+2:00", None),
            ("2026-11-15", None),
            ("1969-12-31T23:59:59Z", None),
            ("+026-11-15T10:08:20Z", None),
            ("now", None),
            ("äöüäöüäöüäöüäöü", None),
        ] {
            assert_eq!(parse_moment(text), ms, "{text}");
        }
    }
}
