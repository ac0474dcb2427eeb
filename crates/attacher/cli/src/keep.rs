//! The flight recorder (`midair attach --keep`), and `--at`.

use crate::engine::Request;
use crate::report::Report;
use crate::top::{held, told};
use crate::wait::Signals;
use midair_failure::{Failure, Kind, plain};
use midair_live::{Trigger, Watched};
use midair_session::{Keep, Recorder};
use midair_settings::{Given, duration_word};
use std::cell::Cell;
use std::time::Duration;

/// The most windows of one process, unless the user says otherwise.
const WINDOWS: u64 = 10;
/// The MiB of the records that are kept, and of all windows, unless the user says otherwise.
const DISK: u64 = 1024;
/// The seconds of a day.
const DAY: u64 = 86_400;

/// A flight recorder in use.
#[derive(Debug)]
pub(crate) struct Keeping {
    watched: Watched,
    /// Whether only windows are written.
    pub(crate) only_windows: bool,
    /// How many windows were written, and how many could not be.
    written: Cell<u64>,
    failed: Cell<u64>,
}

fn usage(what: String) -> Failure {
    Failure::new(Kind::Usage, what)
}

/// Puts what the words ask for into the request. Returns None without `--keep`.
///
/// # Errors
/// [`Kind::Usage`] for an invalid condition, and for options that need `--keep`.
pub(crate) fn of(given: &Given, request: &mut Request) -> Result<Option<Keeping>, Failure> {
    let triggers: Result<Vec<Trigger>, String> = given
        .texts("trigger")
        .iter()
        .map(|text| Trigger::parse(text))
        .collect();
    let triggers = triggers.map_err(|why| usage(format!("--trigger: {why}")))?;
    let Some(time) = given.duration("keep") else {
        for long in ["trigger", "keep-windows", "keep-disk"] {
            if given.get(long).is_some() {
                return Err(usage(format!("--{long} requires --keep"))
                    .hint("as in --keep 30s --trigger 'gap > 50ms'"));
            }
        }
        return Ok(None);
    };
    if request.no_entry {
        return Err(usage(
            "--keep cannot be combined with --no-entry".to_owned(),
        ));
    }
    let bytes = given.number("keep-disk").unwrap_or(DISK) << 20;
    let watched = Watched::default();
    request.live = Some(watched.clone());
    request.keep = Keep::Latest { time, bytes };
    let only_windows = !triggers.is_empty();
    request.recorder = Some(Recorder {
        before: time * 3 / 4,
        after: time / 4,
        most: u32::try_from(given.number("keep-windows").unwrap_or(WINDOWS)).unwrap_or(u32::MAX),
        bytes,
        triggers,
    });
    Ok(Some(Keeping {
        watched,
        only_windows,
        written: Cell::default(),
        failed: Cell::default(),
    }))
}

impl Keeping {
    /// Called after a poll. Reports what was written, and handles SIGUSR1.
    pub(crate) fn turn(&self, signals: &Signals, report: &Report) {
        let marked = signals.take_mark();
        for process in self.watched.processes() {
            let mut model = held(&process);
            if marked {
                model.happen("SIGUSR1");
            }
            for answer in model.answers() {
                report.note(&format!("process {}: {}", process.pid, answer.why));
                match &answer.files {
                    Ok(files) => {
                        self.written.update(|count| count + 1);
                        files.iter().for_each(|file| report.line(file));
                    }
                    Err(_) => {
                        self.failed.update(|count| count + 1);
                        report.warning(&told(&answer));
                    }
                }
            }
        }
    }

    /// Returns why windows are missing, at the end.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match (self.failed.get(), self.written.get()) {
            (0, 0) if self.only_windows => Some(
                Failure::new(
                    Kind::Nothing,
                    "no --trigger was met, so no window was written",
                )
                .hint("let it run for longer, or leave --trigger out: what --keep kept is written at the end then"),
            ),
            (0, _) => None,
            (failed, _) => {
                let windows = plain::counted(failed, "window", "windows");
                let what = format!("{windows} could not be written");
                Some(Failure::new(Kind::Output, what))
            }
        }
    }
}

/// When to start, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// The second of the day, in local time.
    second: u64,
    /// How long to record.
    pub(crate) duration: Option<Duration>,
}

impl At {
    /// Reads `14:00`, `14:00:00`, and either followed by `/10s`.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(text: &str) -> Result<At, Failure> {
        let wrong = || {
            usage(format!(
                "--at {text} is not a time such as 14:00:00 or 14:00:00/10s"
            ))
        };
        let (time, duration) = match text.split_once('/') {
            Some((time, word)) => (time, Some(duration_word(word).ok_or_else(wrong)?)),
            None => (text, None),
        };
        let parts: Option<Vec<u64>> = time
            .split(':')
            .map(|part| part.parse().ok().filter(|_| part.len() == 2))
            .collect();
        let second = match parts.as_deref() {
            Some([hour @ 0..24, minute @ 0..60]) => hour * 3600 + minute * 60,
            Some([hour @ 0..24, minute @ 0..60, second @ 0..60]) => {
                hour * 3600 + minute * 60 + second
            }
            _ => return Err(wrong()),
        };
        Ok(At { second, duration })
    }

    /// Returns how long it is until then. `now` is a time since 1970, in a time zone that is this
    /// many seconds ahead of UTC.
    pub(crate) fn after(self, now: Duration, utc_offset: i64) -> Duration {
        let local = (now.as_secs() as i64).wrapping_add(utc_offset);
        let passed = local.rem_euclid(DAY as i64) as u64;
        let seconds = (self.second + DAY - passed) % DAY;
        let whole = match seconds {
            // This very second has already started.
            0 if now.subsec_nanos() > 0 => DAY,
            seconds => seconds,
        };
        Duration::from_secs(whole).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_are_missing_are_a_failure() {
        let failure = |only_windows, written, failed| {
            let keeping = Keeping {
                watched: Watched::default(),
                only_windows,
                written: Cell::new(written),
                failed: Cell::new(failed),
            };
            keeping.failure().map(|failure| failure.kind)
        };
        assert_eq!(failure(false, 0, 0), None);
        assert_eq!(failure(true, 0, 0), Some(Kind::Nothing));
        assert_eq!(failure(true, 1, 0), None);
        assert_eq!(failure(true, 1, 1), Some(Kind::Output));
        assert_eq!(failure(false, 0, 2), Some(Kind::Output));
    }

    #[test]
    fn a_time_of_day_is_today_or_tomorrow() {
        let noon = |text: &str, ms: u64| {
            let now = Duration::from_secs(20_000 * DAY + 12 * 3600) + Duration::from_millis(ms);
            At::parse(text).unwrap().after(now, 0)
        };
        assert_eq!(noon("12:00:00", 0), Duration::ZERO);
        assert_eq!(noon("12:00:01", 250), Duration::from_millis(750));
        assert_eq!(noon("12:00:00", 1), Duration::from_millis(DAY * 1000 - 1));
        assert_eq!(noon("11:59", 0), Duration::from_secs(DAY - 60));
        let at = At::parse("14:00:00/10s").unwrap();
        assert_eq!(at.duration, Some(Duration::from_secs(10)));
        let now = Duration::from_secs(20_000 * DAY + 12 * 3600);
        assert_eq!(at.after(now, 3600), Duration::from_secs(3600));
        assert_eq!(at.after(now, -3600), Duration::from_secs(3 * 3600));
        for bad in [
            "",
            "14",
            "24:00",
            "14:60",
            "14:00:00/",
            "14:00:00/x",
            "1:2:3",
            "-1:00",
            "14:00:00:00",
        ] {
            assert!(At::parse(bad).is_err(), "{bad}");
        }
    }
}
