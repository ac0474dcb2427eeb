//! Queries and summaries.

use crate::common::{count, database, of_amd, session};
use midair_rocpd::{
    Bound, Exported, Format, Input, SummaryNames, SummaryOptions, Target, Window, query, summary,
};
use rusqlite::Connection;
use rusqlite::types::Value;
use std::path::Path;

fn target(directory: &Path, format: Format) -> Target {
    Target {
        format,
        directory: directory.join("out"),
        name: "answer".to_owned(),
    }
}

/// Returns what SQLite itself answers, as text.
fn answer(path: &Path, sql: &str) -> Vec<Vec<String>> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        (0..columns)
            .map(|at| {
                Ok(match row.get::<_, Value>(at)? {
                    Value::Null => String::new(),
                    Value::Integer(number) => number.to_string(),
                    Value::Real(number) => format!("{number:?}"),
                    Value::Text(text) => text,
                    Value::Blob(_) => panic!("no blobs"),
                })
            })
            .collect()
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Reads csv of one line for each record.
fn csv(text: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let mut cells = vec![String::new()];
        let mut letters = line.chars().peekable();
        let mut quoted = false;
        while let Some(letter) = letters.next() {
            match letter {
                '"' if quoted && letters.peek() == Some(&'"') => {
                    letters.next();
                    cells.last_mut().unwrap().push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                letter => cells.last_mut().unwrap().push(letter),
            }
        }
        cells
    };
    text.lines().map(line).collect()
}

#[test]
fn a_query_has_the_answer_of_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    for path in [
        database(dir.path(), &session(4242)),
        of_amd(dir.path(), "hip724"),
    ] {
        let input = Input::open(std::slice::from_ref(&path)).unwrap();
        for sql in [
            "SELECT * FROM kernels ORDER BY start",
            "SELECT name, category, duration / 7.0 AS part, NULL AS absent FROM regions_and_samples ORDER BY id",
            "SELECT * FROM top_kernels",
        ] {
            let to = target(dir.path(), Format::Csv);
            let done = query(&input, sql, None, None, &to, &mut |_| ()).unwrap();
            let Exported::File(file) = done else {
                panic!("{done:?}")
            };
            let found = csv(&std::fs::read_to_string(file).unwrap());
            assert_eq!(found[1..], answer(&path, sql), "{sql}");
            let to = target(dir.path(), Format::Json);
            let done = query(&input, sql, None, None, &to, &mut |_| ()).unwrap();
            let Exported::File(file) = done else {
                panic!("{done:?}")
            };
            let list: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            assert_eq!(list.as_array().unwrap().len(), found.len() - 1, "{sql}");
        }
    }
}

#[test]
fn lines_on_the_terminal_are_aligned_and_obey_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::open(&[database(dir.path(), &session(4242))]).unwrap();
    let run = |sql: &str, format| {
        let mut lines = Vec::new();
        let to = target(dir.path(), format);
        let done = query(&input, sql, None, None, &to, &mut |line| {
            lines.push(line.to_owned());
        });
        (lines, done.unwrap())
    };
    let (lines, done) = run(
        "SELECT 'a' || char(27) AS first, 1.0 AS second UNION ALL SELECT 'long', NULL",
        Format::Console,
    );
    assert_eq!(done, Exported::Printed);
    assert_eq!(lines, ["first  second", "a\u{fffd}     1.0", "long   None"]);
    let (lines, done) = run("SELECT 1 WHERE 0", Format::Csv);
    assert_eq!((lines.len(), done), (0, Exported::Empty));
    let (_, done) = run("SELECT '<b>' AS \"a_b\", 2 AS n", Format::Html);
    let Exported::File(file) = done else {
        panic!("{done:?}")
    };
    let page = std::fs::read_to_string(file).unwrap();
    assert!(page.contains("<td>&lt;b&gt;</td>"), "{page}");
    let (_, done) = run("SELECT '<b>' AS \"a_b\", 2 AS n", Format::Markdown);
    let Exported::File(file) = done else {
        panic!("{done:?}")
    };
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text, "| a_b | n |\n|---|---|\n| <b> | 2 |\n");
    // Nothing is written into the database.
    let to = target(dir.path(), Format::Csv);
    let refused = query(&input, "DROP TABLE d0.x", None, None, &to, &mut |_| ());
    assert!(refused.is_err());
    let delete = "DELETE FROM \"d0\".sqlite_master";
    assert!(query(&input, delete, None, None, &to, &mut |_| ()).is_err());
}

/// Views over several files, of several versions, have the rows of all.
#[test]
fn several_databases_are_queried_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [
        database(dir.path(), &session(4242)),
        of_amd(dir.path(), "hip724"),
        of_amd(dir.path(), "pmc"),
    ];
    let input = Input::open(&paths).unwrap();
    let sum = |sql: &str| -> i64 { paths.iter().map(|path| count(path, sql)).sum() };
    let one = |sql: &str, window: Option<Window>| -> i64 {
        let to = target(dir.path(), Format::Json);
        let Exported::File(file) = query(&input, sql, None, window, &to, &mut |_| ()).unwrap()
        else {
            panic!("{sql}")
        };
        let list: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        list[0]["n"].as_i64().unwrap()
    };
    for table in [
        "kernels",
        "memory_copies",
        "regions_and_samples",
        "rocpd_event",
        "rocpd_pmc_event",
        "events_args",
    ] {
        let sql = format!("SELECT COUNT(*) AS n FROM {table}");
        assert_eq!(one(&sql, None), sum(&sql), "{table}");
    }
    // Of a part of the time, only what is within it.
    let input = Input::open(&paths[..1]).unwrap();
    let window = Window::of(
        &input,
        Some(&Bound::Time(1_000_010_000)),
        Some(&Bound::Time(1_000_021_200)),
        true,
    );
    let to = target(dir.path(), Format::Json);
    let sql = "SELECT COUNT(*) AS n FROM kernels";
    query(&input, sql, None, window.unwrap(), &to, &mut |_| ()).unwrap();
    let list = std::fs::read_to_string(dir.path().join("out/answer.json")).unwrap();
    assert!(list.contains("\"n\": 1"), "{list}");
}

#[test]
fn summaries_have_calls_and_times_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::open(&[of_amd(dir.path(), "hip724")]).unwrap();
    let run = |options: &SummaryOptions, format| {
        let mut lines = Vec::new();
        let to = target(dir.path(), format);
        summary(&input, options, None, &to, &mut |line| {
            lines.push(line.to_owned())
        })
        .unwrap();
        lines
    };
    let options = SummaryOptions {
        domains: true,
        by_rank: true,
        ..SummaryOptions::default()
    };
    run(&options, Format::Csv);
    // AMD's own statistics of the same session.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../output/tests/golden");
    for (table, stats) in [
        ("kernels", "kernel"),
        ("memory_copies", "memory_copy"),
        ("hip", "hip_api"),
        ("hsa", "hsa_api"),
    ] {
        let file = dir.path().join(format!("out/answer_{table}_summary.csv"));
        let found = csv(&std::fs::read_to_string(file).unwrap());
        let wanted = golden.join(format!("r_{stats}_stats.csv"));
        let wanted = csv(&std::fs::read_to_string(wanted).unwrap());
        assert_eq!(
            found[0],
            [
                "Name",
                "Calls",
                "Duration (Nsec)",
                "Average (Nsec)",
                "Percent (Inc)",
                "Min (Nsec)",
                "Max (Nsec)",
                "Std_Dev"
            ]
        );
        let number = |text: &String| text.parse::<f64>().unwrap_or(0.0);
        assert_eq!(found.len(), wanted.len());
        for wanted in &wanted[1..] {
            let found = found.iter().find(|row| row[0] == wanted[0]).unwrap();
            for column in [1, 2, 5, 6] {
                assert_eq!(found[column], wanted[column], "{wanted:?}");
            }
            for column in [3, 7] {
                let difference = number(&found[column]) - number(&wanted[column]);
                assert!(difference.abs() < 0.001, "{found:?} {wanted:?}");
            }
        }
    }
    let by_rank = dir.path().join("out/answer_domain_summary_by_rank.csv");
    let by_rank = csv(&std::fs::read_to_string(by_rank).unwrap());
    assert_eq!(by_rank[0][..3], ["Processid", "Hostname", "Name"]);
    assert_eq!(by_rank[1][..3], ["2371", "host", "HIP"]);
    let only = SummaryOptions {
        categories: vec!["KERNEL".to_owned()],
        names: SummaryNames::Truncated,
        ..SummaryOptions::default()
    };
    let lines = run(&only, Format::Console);
    assert_eq!(lines[..2], ["", "KERNELS_SUMMARY:"]);
    assert!(
        lines.iter().any(|line| line.starts_with("vadd  ")),
        "{lines:?}"
    );
    assert!(!lines.iter().any(|line| line == "HIP_SUMMARY:"));
    let none = SummaryOptions {
        categories: vec!["NONE".to_owned()],
        ..SummaryOptions::default()
    };
    let lines = run(&none, Format::Console);
    let headings: Vec<&String> = lines.iter().filter(|line| line.ends_with(':')).collect();
    assert_eq!(headings, ["KERNELS_SUMMARY:", "MEMORY_COPIES_SUMMARY:"]);
}

/// Ranges have their messages, and work without times has no part.
#[test]
fn markers_are_summed_up_and_untimed_work_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::open(&[database(dir.path(), &session(4242))]).unwrap();
    let to = target(dir.path(), Format::Csv);
    summary(&input, &SummaryOptions::default(), None, &to, &mut |_| ()).unwrap();
    let read = |name: &str| {
        let file = dir.path().join(format!("out/answer_{name}_summary.csv"));
        csv(&std::fs::read_to_string(file).unwrap())
    };
    let markers = read("markers");
    assert!(
        markers
            .iter()
            .any(|row| row[0] == "round \"1\"" && row[1] == "1")
    );
    let kernels = read("kernels");
    let calls: u64 = kernels[1..]
        .iter()
        .map(|row| row[1].parse::<u64>().unwrap())
        .sum();
    assert_eq!(calls, 5);
}
