//! Single words: booleans, durations, log levels.

use std::time::Duration;

/// A BOOL option's word on the command line, or `None` for another word (`docs/sources.md#rocprofv3`).
pub fn boolean_word(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// A setting's value as AMD's tool reads booleans: digits are a number and mean "not zero", a few words mean
/// no, and every other word means yes. An empty value has no meaning (AMD's tool ends the process then; we
/// never do).
pub fn tool_boolean(value: &str) -> Option<bool> {
    if value.is_empty() {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Not parsed as an integer: a number too long for one is still "not zero".
        return Some(value.bytes().any(|byte| byte != b'0'));
    }
    let no = ["off", "false", "no", "n", "f"];
    Some(!no.contains(&value.to_ascii_lowercase().as_str()))
}

/// A duration such as `2s`, `1.5s`, `500ms`, `3m`, `1h30m`; a bare number counts seconds. Zero and
/// negative durations are refused.
pub fn duration_word(word: &str) -> Option<Duration> {
    let (mut rest, mut sum, mut last) = (word, Duration::ZERO, f64::INFINITY);
    loop {
        let unit_at = rest.find(|c: char| c.is_ascii_alphabetic());
        let (number, from_unit) = rest.split_at(unit_at.unwrap_or(rest.len()));
        let end = from_unit.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, behind) = from_unit.split_at(end.unwrap_or(from_unit.len()));
        // The units of several parts descend. Only a number alone needs none.
        let seconds = seconds_of(unit)?;
        if seconds >= last || unit.is_empty() && !sum.is_zero() {
            return None;
        }
        let number: f64 = number.trim_end().parse().ok()?;
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        sum = sum.checked_add(part)?;
        last = seconds;
        rest = behind;
        if rest.is_empty() {
            return (!sum.is_zero()).then_some(sum);
        }
    }
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "" | "s" | "sec" => 1.0,
        "ms" | "msec" => 1e-3,
        "us" | "usec" => 1e-6,
        "m" | "min" => 60.0,
        "h" | "hour" => 3600.0,
        _ => return None,
    })
}

/// How much is printed, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// Only what ends the program.
    Fatal,
    /// Errors.
    Error,
    /// Warnings and errors.
    #[default]
    Warning,
    /// What is being done.
    Info,
    /// Every step.
    Trace,
}

impl Verbosity {
    /// From a `--log-level` word. `env` and `config` ask for a listing and leave the level as it is.
    pub fn from_word(word: &str) -> Option<Verbosity> {
        match word.to_ascii_lowercase().as_str() {
            "fatal" => Some(Verbosity::Fatal),
            "error" => Some(Verbosity::Error),
            "warning" | "env" | "config" => Some(Verbosity::Warning),
            "info" => Some(Verbosity::Info),
            "trace" => Some(Verbosity::Trace),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_words() {
        for word in ["y", "YES", "t", "True", "on", "1"] {
            assert_eq!(boolean_word(word), Some(true), "{word}");
        }
        for word in ["n", "No", "f", "FALSE", "off", "0"] {
            assert_eq!(boolean_word(word), Some(false), "{word}");
        }
        for word in ["", "2", "maybe", "truee", " true"] {
            assert_eq!(boolean_word(word), None, "{word}");
        }
    }

    #[test]
    fn tool_words_follow_the_tool_not_the_command_line() {
        assert_eq!(tool_boolean("2"), Some(true));
        assert_eq!(tool_boolean("000"), Some(false));
        assert_eq!(tool_boolean("99999999999999999999999999999"), Some(true));
        assert_eq!(tool_boolean("OFF"), Some(false));
        assert_eq!(tool_boolean("nope"), Some(true));
        assert_eq!(tool_boolean("-1"), Some(true));
        assert_eq!(tool_boolean(""), None);
    }

    #[test]
    fn durations() {
        assert_eq!(duration_word("2s"), Some(Duration::from_secs(2)));
        assert_eq!(duration_word("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(duration_word("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration_word("2m"), Some(Duration::from_secs(120)));
        for (word, micros) in [
            ("3s", 3_000_000),
            ("3sec", 3_000_000),
            ("3", 3_000_000),
            ("3ms", 3_000),
            ("3msec", 3_000),
            ("3us", 3),
            ("3usec", 3),
            ("3m", 180_000_000),
            ("3min", 180_000_000),
            ("3h", 10_800_000_000),
            ("3hour", 10_800_000_000),
            ("0.5 ms", 500),
            ("1h30m", 5_400_000_000),
            ("2m30s", 150_000_000),
            ("1h0m1.5s", 3_601_500_000),
            ("1s500ms", 1_500_000),
        ] {
            assert_eq!(
                duration_word(word),
                Some(Duration::from_micros(micros)),
                "{word}"
            );
        }
        for bad in [
            "", "s", "0", "0ms", "-1s", "2 weeks", "nan", "inf", "1e400s", "1e30h", "1h30",
            "30m1h", "1h1h", "1m-1s", "0h0m", "1h30x", "1h m", "1h30m ",
        ] {
            assert_eq!(duration_word(bad), None, "{bad}");
        }
    }

    #[test]
    fn levels_are_ordered() {
        for (word, level) in [
            ("fatal", Verbosity::Fatal),
            ("error", Verbosity::Error),
            ("warning", Verbosity::Warning),
            ("info", Verbosity::Info),
            ("TRACE", Verbosity::Trace),
            ("env", Verbosity::Warning),
            ("config", Verbosity::Warning),
        ] {
            assert_eq!(Verbosity::from_word(word), Some(level), "{word}");
        }
        for word in ["loud", "", "warn", " info"] {
            assert_eq!(Verbosity::from_word(word), None, "{word}");
        }
        let ordered = ["fatal", "error", "warning", "info", "trace"].map(Verbosity::from_word);
        assert!(ordered.is_sorted_by(|less, more| less < more));
        assert_eq!(Verbosity::default(), Verbosity::Warning);
    }
}
