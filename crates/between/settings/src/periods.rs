//! Collection periods: the times at which a program is recorded.

use crate::settings::BadValue;
use crate::{Refusal, Settings};
use std::time::Duration;

/// The variable with the periods: `DELAY:LENGTH:REPEAT` in ns, with semicolons between them
/// (`docs/sources.md#rocprofv3`).
pub const COLLECTION_PERIOD: &str = "ROCPROF_COLLECTION_PERIOD";

/// What a period in the variable looks like.
const WANTED: &str = "must be DELAY:LENGTH:REPEAT in ns, with semicolons between periods";

/// A time to wait, a time to record, and how often both happen, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// How long nothing is recorded.
    pub delay: Duration,
    /// How long everything is recorded after that; never 0.
    pub length: Duration,
    /// How many times; never 0.
    pub repeat: u64,
}

impl Settings {
    /// Returns the collection periods, in their order. There are none where the whole program is
    /// recorded.
    ///
    /// # Errors
    /// A value that is no list of periods.
    pub fn collection_periods(&self) -> Result<Vec<Period>, BadValue> {
        let Some(text) = self.text(COLLECTION_PERIOD) else {
            return Ok(Vec::new());
        };
        text.split(';')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(|word| {
                read(word, 1.0).map_err(|why| {
                    BadValue::new(COLLECTION_PERIOD, text, &format!("{WANTED}; {why}"))
                })
            })
            .collect()
    }
}

/// Returns the variable's value for periods on the command line, whose times count this unit.
pub(crate) fn variable(words: &[String], unit: &str) -> Result<String, Refusal> {
    let factor = match unit {
        "hour" => 3.6e12,
        "min" => 6e10,
        "msec" => 1e6,
        "usec" => 1e3,
        "nsec" => 1.0,
        _ => 1e9,
    };
    let periods = words.iter().map(|word| {
        let period = read(word, factor).map_err(|why| {
            Refusal::Usage(format!(
                "--collection-period takes DELAY:LENGTH:REPEAT, not '{word}': {why}"
            ))
        })?;
        Ok(format!(
            "{}:{}:{}",
            period.delay.as_nanos(),
            period.length.as_nanos(),
            period.repeat
        ))
    });
    Ok(periods.collect::<Result<Vec<_>, _>>()?.join(";"))
}

/// Reads a period whose times count so many ns. Returns what is wrong with it otherwise.
fn read(word: &str, factor: f64) -> Result<Period, &'static str> {
    let parts: Vec<&str> = word.split(':').map(str::trim).collect();
    let [delay, length, repeat] = parts[..] else {
        return Err("it needs three numbers, separated by colons");
    };
    let time = |word: &str| {
        // Whole numbers of ns keep all their digits.
        if factor == 1.0
            && let Ok(whole) = word.parse()
        {
            return Ok(Duration::from_nanos(whole));
        }
        let number: f64 = word.parse().map_err(|_| "a time is not a number")?;
        let ns = number * factor;
        if !(0.0..u64::MAX as f64).contains(&ns) {
            return Err("a time is negative or too long");
        }
        Ok(Duration::from_nanos(ns as u64))
    };
    let period = Period {
        delay: time(delay)?,
        length: time(length)?,
        // AMD's tool takes 0 for 1.
        repeat: repeat
            .parse::<u64>()
            .map_err(|_| "REPEAT must be a whole number")?
            .max(1),
    };
    if period.length.is_zero() {
        return Err("LENGTH must not be 0");
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], unit: &str) -> Result<String, Refusal> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        variable(&words, unit)
    }

    #[test]
    fn periods_are_written_in_ns_and_read_back() {
        assert_eq!(
            of(&["1:2:1", "0.5:10:3"], "sec").as_deref(),
            Ok("1000000000:2000000000:1;500000000:10000000000:3")
        );
        assert_eq!(of(&["1:1:0"], "msec").as_deref(), Ok("1000000:1000000:1"));
        for (unit, ns) in [
            ("hour", 3_600_000_000_000_u64),
            ("min", 60_000_000_000),
            ("sec", 1_000_000_000),
            ("msec", 1_000_000),
            ("usec", 1_000),
            ("nsec", 1),
        ] {
            let wanted = format!("{}:{ns}:2", 3 * ns);
            assert_eq!(of(&["3:1:2"], unit), Ok(wanted), "{unit}");
        }
        let settings =
            Settings::from_iter([(COLLECTION_PERIOD, "0:7:2; 18446744073709551615:1:0;")]);
        let period = |delay, length, repeat| Period {
            delay: Duration::from_nanos(delay),
            length: Duration::from_nanos(length),
            repeat,
        };
        assert_eq!(
            settings.collection_periods(),
            Ok(vec![period(0, 7, 2), period(u64::MAX, 1, 1)])
        );
        assert_eq!(Settings::new().collection_periods(), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_period_is_refused_with_the_reason() {
        for (word, why) in [
            ("1:2", "three numbers"),
            ("1:2:3:4", "three numbers"),
            ("a:2:3", "not a number"),
            ("-1:2:3", "negative"),
            ("1:2:x", "REPEAT must be"),
            ("1:0:1", "LENGTH must not"),
            ("1:nan:1", "negative or too long"),
            ("1:1e300:1", "too long"),
        ] {
            let refused = of(&[word], "sec").unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains(word), "{refused}");
        }
        let bad = Settings::from_iter([(COLLECTION_PERIOD, "1;2")]);
        assert!(bad.collection_periods().is_err());
    }
}
