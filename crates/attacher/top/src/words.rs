//! Numbers in a few columns.

/// Returns a counter's value, in at most eight characters or so.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e12 => format!("{value:.2e}"),
        size if size >= 1e9 => format!("{:.2}G", value / 1e9),
        size if size >= 1e6 => format!("{:.2}M", value / 1e6),
        size if size >= 1e4 => format!("{:.1}k", value / 1e3),
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns a share as percent with one digit: five columns and the sign.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Returns a change of a share in percent points with its sign, or nothing where there is none.
pub(crate) fn change(share: f64) -> String {
    let points = share * 100.0;
    if points.abs() < 0.05 {
        return "=".to_owned();
    }
    format!("{points:+.1}")
}

/// A count in a second.
pub(crate) fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        rate if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// Bytes in a second.
pub(crate) fn bytes_rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.1} MB/s", rate / 1e6),
        rate => format!("{:.1} kB/s", rate / 1e3),
    }
}

/// A time since something, h:mm:ss.
pub(crate) fn clock(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours}:{minutes:02}:{:02}", seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_columns() {
        assert_eq!(percent(1.0), "100.0%");
        assert_eq!(change(-0.123), "-12.3");
        assert_eq!(change(0.0), "=");
        for (value, wanted) in [
            (0.0, "0"),
            (3.25, "3.2"),
            (9_999.0, "9999"),
            (123_456.0, "123.5k"),
            (2e6, "2.00M"),
        ] {
            assert_eq!(rate(value), wanted);
        }
        assert_eq!(bytes_rate(1.25e9), "1.25 GB/s");
        assert_eq!(clock(3_723_000_000_000), "1:02:03");
    }
}
