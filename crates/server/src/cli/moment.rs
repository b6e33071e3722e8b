//! Times and durations for people: `90s`, `1h`, `2026-11-15T10:00:00Z`.

use tavern_domain::Time;

/// Reads `500ms`, `90s`, `15m`, `1h`, `7d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("write a duration such as 90s, 15m, 1h or 7d".into()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "write a duration such as 90s, 15m, 1h or 7d")?;
    number.checked_mul(factor).filter(|ms| *ms > 0).ok_or_else(|| "the duration is zero or too long".into())
}

/// A duration, rounded to its largest unit.
pub fn span(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A moment in UTC, by the second.
pub fn show(time: Time) -> String {
    let seconds = time.ms() / 1_000;
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", clock / 3_600, clock / 60 % 60, clock % 60)
}

/// The calendar date of a day since 1970, counted in years that begin in March so that the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The day since 1970 of a calendar date, for dates from 1970 on.
pub fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    let valid = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    // An estimate; the exact day is within a month of it.
    let near = (year.checked_sub(1970)? * 1_461 / 4) + (month.checked_sub(1)? * 30);
    (near.saturating_sub(40)..near + 40).find(|&days| valid && date(days) == (year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, ms) in [
            ("90", Some(90_000)),
            ("90s", Some(90_000)),
            ("500ms", Some(500)),
            ("15m", Some(900_000)),
            ("1h", Some(3_600_000)),
            ("7d", Some(604_800_000)),
            ("0", None),
            ("h", None),
            ("-1s", None),
            ("1 h", None),
            ("1w", None),
            ("99999999999999999999", None),
            ("9999999999999999d", None),
        ] {
            assert_eq!(parse_duration(text).ok(), ms, "{text}");
        }
    }

    #[test]
    fn spans_are_shown_in_their_largest_unit() {
        for (ms, shown) in [
            (0, "0s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (3_600_000, "1h"),
            (172_799_999, "1d"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(span(ms), shown);
        }
    }

    #[test]
    fn moments_are_shown_in_utc() {
        for (ms, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59Z"),
            (1_794_737_300_000, "2026-11-15T10:08:20Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(show(Time(ms)), shown);
        }
        assert_eq!(day_number(2024, 2, 29), Some(1_709_164_800 / 86_400));
        assert_eq!(day_number(2100, 3, 1), Some(4_107_542_400 / 86_400));
        assert_eq!(day_number(2023, 2, 29), None);
    }
}
