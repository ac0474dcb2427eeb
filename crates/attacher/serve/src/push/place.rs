//! Where a file is: in hive's partitions of machine and day.

use std::time::Duration;

/// Returns year, month and day of so many days since 1970-01-01, in the Gregorian calendar.
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    // Years start in March here, so that a leap day is the last one. An era has 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (month, next) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + next, month, day - first + 1)
}

/// Returns the name of a file of this moment.
pub(super) fn name_of(time: Duration) -> String {
    format!("midair-{}-{}.parquet", time.as_millis(), std::process::id())
}

/// Returns the moment of a file, in ms since 1970. None where the name is not such a file's.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix("midair-")?.strip_suffix(".parquet")?;
    let (time, pid) = rest.split_once('-')?;
    let is_number = |word: &str| {
        (1..=15).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    (is_number(time) && is_number(pid))
        .then(|| time.parse().ok())
        .flatten()
}

/// Returns the partition of this moment.
pub(crate) fn partition(host: &str, time: Duration) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || ".-_".contains(char);
    let host = host.chars().map(|it| if is_plain(it) { it } else { '_' });
    let (year, month, day) = date(time.as_secs() / 86_400);
    let host = host.collect::<String>();
    format!("host={host}/date={year:04}-{month:02}-{day:02}")
}

/// Returns the partition of a moment on this machine.
pub(super) fn own_partition(time: Duration) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    partition(&host.to_string_lossy(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, wanted) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_788, (2026, 12, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), wanted, "{days}");
        }
        let time = Duration::from_millis(86_400_001);
        assert_eq!(partition("../a b", time), "host=.._a_b/date=1970-01-02");
        let name = name_of(time);
        assert!(name.starts_with("midair-86400001-") && name.ends_with(".parquet"));
        assert_eq!(number_of(&name), Some(86_400_001));
        for other in [
            "midair-1.parquet",
            "midair--1.parquet",
            "midair-1-.parquet",
            "midair-1-2.parquet.x",
            "x",
        ] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
