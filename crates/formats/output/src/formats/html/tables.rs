//! The heading and the tables of the page, from the indexes of the sessions.
//!
//! A table has at most [`MOST_ROWS`] rows, and all tables together have at most [`MOST_BYTES`] of
//! names in full length. Further rows are summed up in one, and further names are cut.

use crate::job::Job;
use crate::screen::Head;
use crate::table::{LabelledIndex, Section, full_sections};
use midair_trace::index::Stat;
use midair_trace::limits;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// The most rows of a table.
const MOST_ROWS: usize = 5000;
/// The most bytes of names of all tables. Names beyond it are cut to [`SHORT_NAME`].
const MOST_BYTES: usize = 8 << 20;
const SHORT_NAME: usize = 120;
/// The most notes of a session.
const MOST_NOTES: usize = 100;

/// Returns the names by which kernels are shown, by their full names.
pub(super) fn labels(jobs: &[Job<'_>]) -> HashMap<String, String> {
    let known = jobs.iter().flat_map(|job| {
        let ids = job.index.kernels.keys();
        ids.map(|id| job.kernel_name_by_id(*id).into_owned())
    });
    let known: HashSet<String> = known.collect();
    let mut names: Vec<String> = known.into_iter().collect();
    names.sort_unstable();
    let short = midair_demangle::shortened(&names);
    names.into_iter().zip(short).collect()
}

/// Returns what is shown above the tables for each session, with the notes about it.
pub(super) fn processes(jobs: &[Job<'_>]) -> Vec<Value> {
    let of = |job: &Job<'_>| {
        let mut head = crate::screen::head(&Head::of(job.trace));
        let mut notes = job.notes();
        let more = notes.len().saturating_sub(MOST_NOTES);
        notes.truncate(MOST_NOTES);
        if more > 0 {
            notes.push(format!("{more} more notes were omitted"));
        }
        let untimed = job.index.untimed.iter();
        let untimed = untimed.map(|(reason, count)| json!([reason, count]));
        if let Value::Object(head) = &mut head {
            head.insert("notes".to_owned(), json!(notes));
            head.insert("untimed".to_owned(), untimed.collect());
        }
        head
    };
    jobs.iter().map(of).collect()
}

/// Returns the tables: for each its title, whether it is of kernels, a note, and rows of the name
/// that is shown, the full name where that is another, and calls, total, shortest, longest and
/// deviation in nanoseconds.
pub(super) fn tables(jobs: &[Job<'_>], labels: &HashMap<String, String>) -> Vec<Value> {
    let sessions: Vec<LabelledIndex<'_>> = jobs
        .iter()
        .map(|job| {
            let process = &job.trace.process;
            let pid = job.trace.attach.pid.unwrap_or(process.pid);
            let program = process.command.first().map_or("", String::as_str);
            let program = program.rsplit('/').next().unwrap_or(program);
            LabelledIndex {
                label: format!("process {pid} {program}").trim_end().to_owned(),
                index: job.index,
            }
        })
        .collect();
    let Some(job) = jobs.first() else {
        return Vec::new();
    };
    let mut left = MOST_BYTES;
    full_sections(&sessions, job.names, job.plan.kernel_names)
        .iter()
        .filter(|section| !section.is_empty())
        .map(|section| table(section, labels, &mut left))
        .collect()
}

fn table(section: &Section, labels: &HashMap<String, String>, left: &mut usize) -> Value {
    let mut rows: Vec<Value> = Vec::new();
    let mut rest = Stat::default();
    let mut further = 0_u64;
    for (name, stat) in section.rows() {
        if rows.len() >= MOST_ROWS {
            rest.merge(stat);
            further += 1;
            continue;
        }
        let most = if name.len() <= *left {
            name.len()
        } else {
            SHORT_NAME
        };
        *left = left.saturating_sub(name.len());
        let whole = limits::cut(name.into(), most);
        let label = labels.get(name).filter(|_| section.is_of_kernels());
        rows.push(match label {
            Some(label) if label != name => row(label, Some(&whole), stat),
            _ => row(&whole, None, stat),
        });
    }
    if further > 0 {
        rows.push(row(&format!("({further} further)"), None, &rest));
    }
    json!({
        "title": section.title(),
        "kernels": section.is_of_kernels(),
        "note": section.note(),
        "rows": rows,
    })
}

fn row(label: &str, whole: Option<&str>, stat: &Stat) -> Value {
    json!([
        label,
        whole,
        stat.calls,
        stat.total,
        stat.min.min(stat.max),
        stat.max,
        stat.deviation()
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a section with a row for each name, which took so many nanoseconds in one call.
    fn section(rows: impl IntoIterator<Item = (String, u64)>) -> Section {
        let stat = |time| {
            let mut stat = Stat::default();
            stat.count(time);
            stat
        };
        let rows = rows.into_iter().map(|(name, time)| (name, stat(time)));
        Section::new("CALL", rows.collect())
    }

    /// Returns the rows where so many bytes of names are left, and how many are left then.
    fn shown(section: &Section, mut left: usize) -> (Vec<Value>, usize) {
        let table = table(section, &HashMap::new(), &mut left);
        (table["rows"].as_array().unwrap().clone(), left)
    }

    #[test]
    fn rows_beyond_the_limit_are_one() {
        let full = section((0..5000).map(|n| (format!("call {n}"), 10_000 - n)));
        let (all, _) = shown(&full, MOST_BYTES);
        assert_eq!(all.len(), 5000);
        assert_eq!(
            all[4999],
            json!(["call 4999", null, 1, 5001, 5001, 5001, 0.0])
        );
        // The last three took 5,000, 4,999 and 4,998 ns.
        let more = section((0..5003).map(|n| (format!("call {n}"), 10_000 - n)));
        let (rows, _) = shown(&more, MOST_BYTES);
        assert_eq!(rows.len(), 5001);
        assert_eq!(rows[..5000], all);
        assert_eq!(
            rows[5000],
            json!(["(3 further)", null, 3, 14_997, 4998, 5000, 1.0])
        );
    }

    #[test]
    fn names_are_cut_when_their_bytes_are_used_up() {
        let [a, b, c] = ["a", "b", "c"].map(|letter| letter.repeat(200));
        let section = section([(a.clone(), 3), (b, 2), (c.clone(), 1)]);
        let (rows, left) = shown(&section, 399);
        let names: Vec<&str> = rows.iter().map(|row| row[0].as_str().unwrap()).collect();
        let cut = |letter: &str| letter.repeat(SHORT_NAME - limits::MARK.len()) + limits::MARK;
        assert_eq!(names, [a, cut("b"), cut("c")]);
        assert_eq!(left, 0);
        // The last one just fits.
        let (rows, left) = shown(&section, 600);
        assert_eq!((rows[2][0].as_str(), left), (Some(c.as_str()), 0));
    }
}
