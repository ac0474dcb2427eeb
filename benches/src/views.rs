//! How long SQLite takes for what people ask a rocpd file: its view `top`, and which call launched
//! which kernel.

use crate::export::{launches, session};
use crate::report::Table;
use midair_output::{Format, Names, Plan, write};
use midair_tests::Result;
use rusqlite::{Connection, OpenFlags};
use std::time::Instant;

/// The number of launches, unless `MIDAIR_VIEWS_LAUNCHES` gives another one.
const LAUNCHES: u64 = 1_200_000;
/// Times of each question.
const RUNS: usize = 5;

/// For each question: what it is, its statement, which has to return the number of launches, and
/// how long it may take.
const QUESTIONS: [(&str, &str, &str); 3] = [
    (
        "view top",
        "SELECT CAST(SUM(total_calls) / 2 AS INTEGER) FROM top",
        "2 s",
    ),
    (
        "launch -> kernel, tables",
        "SELECT COUNT(d.start - r.start) FROM rocpd_region AS r
         JOIN rocpd_event AS c ON c.id = r.event_id AND c.guid = r.guid
         JOIN rocpd_event AS e ON e.stack_id = c.stack_id AND e.guid = c.guid
         JOIN rocpd_kernel_dispatch AS d ON d.event_id = e.id AND d.guid = e.guid",
        "2.5 s",
    ),
    (
        "launch -> kernel, views",
        "SELECT COUNT(k.start - r.start) FROM regions AS r
         JOIN kernels AS k ON k.stack_id = r.stack_id AND k.guid = r.guid",
        "2.5 s",
    ),
];

/// Writes a file and asks it.
pub fn run(table: &mut Table) -> Result<()> {
    let wanted = std::env::var("MIDAIR_VIEWS_LAUNCHES").ok();
    let count = wanted
        .and_then(|text| text.parse().ok())
        .unwrap_or(LAUNCHES);
    let directory = std::env::temp_dir().join(format!("midair-views-{}", std::process::id()));
    let plan = Plan {
        directory: directory.clone(),
        prefix: "r".to_owned(),
        formats: vec![Format::Rocpd],
        ..Plan::default()
    };
    let files = write(&session(launches(count)?), &Names::amd(), &plan)?;
    let file = files.first().ok_or("no file was written")?;
    let asked = ask(table, file, count);
    std::fs::remove_dir_all(&directory)?;
    asked
}

fn ask(table: &mut Table, file: &std::path::Path, count: u64) -> Result<()> {
    for (what, sql, goal) in QUESTIONS {
        let mut times = Vec::new();
        for _ in 0..RUNS {
            // A connection of its own has nothing in its cache.
            let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            let began = Instant::now();
            let found: i64 = connection.query_row(sql, [], |row| row.get(0))?;
            times.push(began.elapsed());
            if u64::try_from(found) != Ok(count) {
                return Err(format!("{what}: {found} instead of {count}").into());
            }
        }
        println!("{what}, {count} launches: {times:.2?}");
        table.times(&format!("rocpd, {what}"), &times, goal);
    }
    Ok(())
}
