//! A part of the time: `--start`, `--end`, `--start-marker`, `--end-marker`, `--inclusive`.

use crate::input::{Input, Part};
use crate::sql;
use midair_failure::{Failure, Kind};

/// The tables of things that start and end.
const SPANS: [&str; 6] = [
    "region",
    "kernel_dispatch",
    "memory_copy",
    "memory_allocate",
    "graph_launch",
    "hip_event",
];
/// The tables of things that have one time.
const MOMENTS: [&str; 2] = ["sample", "midair_pc_sample"];

/// A limit of the window as the user gave it.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// A share of the recorded time, where 1 is all of it.
    Share(f64),
    /// A time in nanoseconds.
    Time(i64),
    /// The ROCTx range or mark with this message.
    Marker(String),
}

impl Bound {
    /// Reads a time in nanoseconds, or a share of the recorded time in percent.
    ///
    /// # Errors
    /// Says what such a value looks like.
    pub fn read(option: &str, text: &str) -> Result<Bound, Failure> {
        let bad = || {
            Failure::new(
                Kind::Usage,
                format!("--{option} cannot be '{text}': it is a percentage or nanoseconds"),
            )
            .hint("as in --start 30% --end 781470909013049")
        };
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
            return match percent.is_finite() {
                true => Ok(Bound::Share(percent / 100.0)),
                false => Err(bad()),
            };
        }
        if let Ok(time) = text.parse::<i64>() {
            return Ok(Bound::Time(time));
        }
        let time: f64 = text.parse().map_err(|_| bad())?;
        match time.is_finite() {
            true => Ok(Bound::Time(time as i64)),
            false => Err(bad()),
        }
    }
}

/// A window, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its start.
    pub start: i64,
    /// Its end.
    pub end: i64,
    /// Whether things belong to it only if they are within it from start to end.
    pub inclusive: bool,
}

impl Window {
    /// Returns the window that the user asks for, or none if there are no limits.
    ///
    /// # Errors
    /// When the window is empty or beyond the recorded time, or a marker is missing or ambiguous.
    pub fn of(
        input: &Input,
        start: Option<&Bound>,
        end: Option<&Bound>,
        inclusive: bool,
    ) -> Result<Option<Window>, Failure> {
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        let unusable = |what: String| Failure::new(Kind::Usage, what);
        let Some((first, last)) = recorded(input)? else {
            return Err(unusable(
                "cannot choose a part of the time: nothing with times was recorded".to_owned(),
            ));
        };
        let at = |bound: Option<&Bound>, column: &str, otherwise: i64| match bound {
            None => Ok(otherwise),
            Some(Bound::Time(time)) => Ok(*time),
            Some(Bound::Share(share)) => {
                Ok(first.saturating_add((last.saturating_sub(first) as f64 * share) as i64))
            }
            Some(Bound::Marker(message)) => marker(input, message, column),
        };
        let (start, end) = (at(start, "start", first)?, at(end, "end", last)?);
        if end < start {
            return Err(unusable(format!(
                "the end of the window ({end}) is before its start ({start})"
            )));
        }
        if end < first || start > last {
            return Err(unusable(format!(
                "nothing was recorded from {start} to {end}: the recording is from {first} to {last}"
            )));
        }
        Ok(Some(Window {
            start: start.max(first),
            end: end.min(last),
            inclusive,
        }))
    }

    /// Returns the clause that limits a table to the window, or nothing for a table without times.
    pub(crate) fn of_table(self, table: &str) -> String {
        let Window {
            start,
            end,
            inclusive,
        } = self;
        if SPANS.contains(&table) {
            return match inclusive {
                true => format!(" WHERE \"start\" >= {start} AND \"end\" <= {end}"),
                false => format!(" WHERE \"start\" <= {end} AND \"end\" >= {start}"),
            };
        }
        if MOMENTS.contains(&table) {
            return format!(" WHERE \"timestamp\" >= {start} AND \"timestamp\" <= {end}");
        }
        String::new()
    }
}

/// Returns the tables of a part that exist, each with the columns of its first and last times.
fn timed(
    input: &Input,
    part: &Part,
) -> rusqlite::Result<Vec<(String, &'static str, &'static str)>> {
    let mut all = Vec::new();
    let spans = SPANS.iter().map(|table| (table, "start", "end"));
    let moments = MOMENTS
        .iter()
        .map(|table| (table, "timestamp", "timestamp"));
    for (table, first, last) in spans.chain(moments) {
        if !part.columns(&input.connection, table)?.is_empty() {
            all.push((part.table(table), first, last));
        }
    }
    Ok(all)
}

/// Returns the first and the last time of anything that happened. Work without times has zeros.
fn recorded(input: &Input) -> Result<Option<(i64, i64)>, Failure> {
    let find = || -> rusqlite::Result<Option<(i64, i64)>> {
        let mut found: Option<(i64, i64)> = None;
        for part in &input.parts {
            for (table, first, last) in timed(input, part)? {
                let question = format!(
                    "SELECT MIN(\"{first}\"), MAX(\"{last}\") FROM {table} WHERE \"{last}\" > 0"
                );
                let row = input.connection.query_row(&question, [], |row| {
                    Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
                })?;
                if let (Some(first), Some(last)) = row {
                    let (low, high) = found.unwrap_or((first, last));
                    found = Some((low.min(first), high.max(last)));
                }
            }
        }
        Ok(found)
    };
    find().map_err(|error| sql("read the recorded times", &error))
}

/// Returns the start or the end of the one marker with this message.
fn marker(input: &Input, message: &str, column: &str) -> Result<i64, Failure> {
    let find = || -> rusqlite::Result<Vec<i64>> {
        let mut all = Vec::new();
        for part in &input.parts {
            let moment = ("sample", "timestamp");
            for (table, column) in [("region", column), moment] {
                let mut statement = input.connection.prepare(&format!(
                    "SELECT x.\"{column}\" FROM {} AS x JOIN {} AS e ON e.id = x.event_id \
                     JOIN {} AS c ON c.id = e.category_id WHERE c.string LIKE 'MARKER_%' \
                     AND json_valid(e.extdata) AND json_extract(e.extdata, '$.message') = ?1 LIMIT 2",
                    part.table(table),
                    part.table("event"),
                    part.table("string"),
                ))?;
                let times = statement.query_map([message], |row| row.get(0))?;
                for time in times {
                    all.push(time?);
                }
            }
        }
        Ok(all)
    };
    let found = find().map_err(|error| sql("look for the marker", &error))?;
    let bad = |what: &str| Failure::new(Kind::Usage, format!("{what} has the message '{message}'"));
    match found.as_slice() {
        [] => Err(bad("no marker")),
        [time] => Ok(*time),
        _ => Err(bad("more than one marker")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percentages_or_nanoseconds() {
        for (text, wanted) in [
            ("30%", Some(Bound::Share(0.3))),
            (" 0.5 %", Some(Bound::Share(0.005))),
            ("781470909013049", Some(Bound::Time(781_470_909_013_049))),
            ("1e3", Some(Bound::Time(1000))),
            ("%", None),
            ("5%%", None),
            ("inf", None),
            ("now", None),
        ] {
            assert_eq!(Bound::read("start", text).ok(), wanted, "{text}");
        }
    }

    #[test]
    fn a_table_is_limited_by_its_times() {
        let mut window = Window {
            start: 5,
            end: 9,
            inclusive: true,
        };
        let of = |window: Window, table| window.of_table(table);
        assert_eq!(
            of(window, "region"),
            " WHERE \"start\" >= 5 AND \"end\" <= 9"
        );
        assert_eq!(of(window, "event"), "");
        window.inclusive = false;
        assert_eq!(
            of(window, "region"),
            " WHERE \"start\" <= 9 AND \"end\" >= 5"
        );
        assert_eq!(
            of(window, "sample"),
            " WHERE \"timestamp\" >= 5 AND \"timestamp\" <= 9"
        );
    }
}
