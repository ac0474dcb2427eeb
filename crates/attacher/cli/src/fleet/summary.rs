//! The common summary: a line for each host, and the tables of all hosts added up.

use std::collections::BTreeMap;

use midair_failure::Kind;
use serde_json::{Value, json};

use super::host::Answer;

/// The version of the json's schema. It is raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;
/// The number of rows of each table.
const ROWS: usize = 10;
/// The most characters of a cell that are shown, and of a name that rows are added up by. Hosts say
/// what they like.
const CELL: usize = 120;
const NAME: usize = 4096;
/// The most tables, rows of a table and files of a host that count.
const TABLES: usize = 32;
const KEPT: usize = 1 << 16;
const FILES: usize = 256;

/// Returns the exit code of the whole command, which is the hosts' code if they agree.
pub(super) fn code(answers: &[Answer]) -> u8 {
    let of = |answer: &Answer| answer.code.unwrap_or(Kind::NoAnswer.exit_code());
    let first = answers.first().map_or(0, of);
    match answers.iter().all(|answer| of(answer) == first) {
        true => first,
        false => Kind::Partial.exit_code(),
    }
}

/// What a host recorded, from its document.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recorded {
    processes: u64,
    records: u64,
    lost: u64,
    untimed: u64,
    longest_stop: u64,
}

fn recorded(screen: &Value) -> Recorded {
    let mut all = Recorded::default();
    for head in screen["processes"].as_array().into_iter().flatten() {
        let number = |name: &str| head[name].as_u64().unwrap_or(0);
        all.processes += 1;
        all.records = all.records.saturating_add(number("records"));
        all.untimed = all.untimed.saturating_add(number("without_times"));
        all.longest_stop = all.longest_stop.max(number("longest_stop_ns"));
        let lost = head["lost"].as_object().into_iter().flatten();
        let lost = lost.filter_map(|(_, count)| count.as_u64());
        all.lost = lost.fold(all.lost, u64::saturating_add);
    }
    all
}

/// A row of all hosts.
#[derive(Debug, Default, Clone)]
struct Row {
    calls: u64,
    total: u64,
    hosts: u64,
    /// The greatest mean, and the host that has it.
    slowest: (u64, String),
}

/// Returns the tables by their titles, in the order in which hosts show them.
fn tables(answers: &[Answer]) -> Vec<(String, BTreeMap<String, Row>)> {
    let mut tables: Vec<(String, BTreeMap<String, Row>)> = Vec::new();
    for answer in answers {
        let screen = answer.screen.as_ref();
        let of_host = screen.and_then(|screen| screen["tables"].as_array());
        for table in of_host.into_iter().flatten() {
            let title = cut(table["title"].as_str().unwrap_or_default(), NAME);
            let known = tables.iter().position(|(other, _)| *other == title);
            let at = known.unwrap_or(tables.len());
            if known.is_none() {
                if at == TABLES {
                    continue;
                }
                tables.push((title, BTreeMap::new()));
            }
            let Some((_, rows)) = tables.get_mut(at) else {
                continue;
            };
            for row in table["rows"].as_array().into_iter().flatten() {
                let number = |name: &str| row[name].as_u64().unwrap_or(0);
                let name = cut(row["name"].as_str().unwrap_or_default(), NAME);
                if rows.len() == KEPT && !rows.contains_key(&name) {
                    continue;
                }
                let sum = rows.entry(name).or_default();
                sum.calls = sum.calls.saturating_add(number("calls"));
                sum.total = sum.total.saturating_add(number("total_ns"));
                sum.hosts += 1;
                let mean = number("total_ns") / number("calls").max(1);
                if mean >= sum.slowest.0 {
                    sum.slowest = (mean, answer.host.clone());
                }
            }
        }
    }
    tables
}

fn by_total(rows: &BTreeMap<String, Row>) -> Vec<(&String, &Row)> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by(|a, b| b.1.total.cmp(&a.1.total).then(a.0.cmp(b.0)));
    rows
}

/// The summary as text.
pub(super) fn lines(answers: &[Answer], attaches: bool) -> Vec<String> {
    let mut out = Vec::new();
    if !attaches {
        for answer in answers {
            let said = answer.output.as_deref().unwrap_or_default();
            out.extend(said.lines().map(|line| format!("{}: {line}", answer.host)));
        }
    }
    for (title, rows) in tables(answers) {
        let mut cells = vec![
            [title.as_str(), "CALLS", "TOTAL", "MEAN", "HOSTS", "SLOWEST"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let rows = by_total(&rows);
        for (name, row) in rows.iter().take(ROWS) {
            cells.push(vec![
                (*name).clone(),
                row.calls.to_string(),
                time(row.total),
                time(row.total / row.calls.max(1)),
                row.hosts.to_string(),
                format!("{} on {}", time(row.slowest.0), row.slowest.1),
            ]);
        }
        out.extend(aligned(&cells));
        if rows.len() > ROWS {
            out.push(format!("{} more", rows.len() - ROWS));
        }
        out.push(String::new());
    }
    let head = match attaches {
        true => &[
            "HOST",
            "EXIT",
            "TIME",
            "PROCESSES",
            "RECORDS",
            "LOST",
            "UNTIMED",
            "STOPPED",
        ][..],
        false => &["HOST", "EXIT", "TIME"][..],
    };
    let mut cells = vec![head.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()];
    for answer in answers {
        let code = answer
            .code
            .map_or("none".to_owned(), |code| code.to_string());
        let mut row = vec![
            answer.host.clone(),
            code,
            format!("{:.1} s", answer.time.as_secs_f64()),
        ];
        if attaches {
            match answer.screen.as_ref().map(recorded) {
                Some(all) => row.extend([
                    all.processes.to_string(),
                    all.records.to_string(),
                    all.lost.to_string(),
                    all.untimed.to_string(),
                    time(all.longest_stop),
                ]),
                None => row.extend(["-"; 5].map(str::to_owned)),
            }
        }
        cells.push(row);
    }
    out.extend(aligned(&cells));
    for answer in answers {
        if let Some(failure) = failure(answer) {
            out.push(format!("{}: {failure}", answer.host));
        }
    }
    for answer in answers {
        let screen = answer.screen.as_ref();
        let files = screen.and_then(|screen| screen["files"].as_array());
        let files = files.into_iter().flatten().filter_map(Value::as_str);
        for file in files.take(FILES) {
            // scp and rsync use this form.
            out.push(format!("{}:{}", answer.host, cut(file, NAME)));
        }
    }
    out
}

/// Returns why a host failed. A host with code 0 has not failed, whatever it printed.
fn failure(answer: &Answer) -> Option<String> {
    match answer.code {
        Some(0) => None,
        Some(code) => Some(match &answer.failure {
            Some(failure) => failure.clone(),
            None => format!("exit code {code}"),
        }),
        None => answer.failure.clone().or(Some("no answer".to_owned())),
    }
}

/// Returns the document. Its members: `version`; `exit_code`; `hosts`, each with `host`,
/// `exit_code` (null where it could not be asked or did not end), `failure`, `seconds`, `records`,
/// `lost` and `screen`, the document of its attach; `tables` of all hosts.
pub(super) fn document(answers: &[Answer]) -> Value {
    let hosts = answers.iter().map(|answer| {
        let all = answer.screen.as_ref().map(recorded);
        json!({
            "host": answer.host,
            "exit_code": answer.code,
            "failure": failure(answer),
            "seconds": answer.time.as_secs_f64(),
            "records": all.as_ref().map(|all| all.records),
            "lost": all.as_ref().map(|all| all.lost),
            "screen": answer.screen,
            "output": answer.screen.is_none().then_some(&answer.output),
        })
    });
    let tables = tables(answers).into_iter().map(|(title, rows)| {
        let rows = by_total(&rows).into_iter().map(|(name, row)| {
            json!({
                "name": name,
                "calls": row.calls,
                "total_ns": row.total,
                "hosts": row.hosts,
                "slowest_mean_ns": row.slowest.0,
                "slowest_host": row.slowest.1,
            })
        });
        json!({ "title": title, "rows": rows.collect::<Vec<_>>() })
    });
    json!({
        "version": SCHEMA,
        "exit_code": code(answers),
        "hosts": hosts.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
    })
}

/// Nanoseconds in a readable unit.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        _ if ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.1} us", ns / 1e3),
    }
}

/// Returns a text with at most so many characters, marked where it was cut.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Aligns columns, the first to the left and the others to the right. Cells are cut. No width is a
/// formatter's, whose greatest is 65,535.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let cut_row = |row: &Vec<String>| row.iter().map(|cell| cut(cell, CELL)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cut_row).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| {
            let space = " ".repeat(width.saturating_sub(cell.chars().count()));
            match column {
                0 => format!("{cell}{space}"),
                _ => format!("{space}{cell}"),
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer(host: &str, code: Option<u8>, calls: u64, total: u64) -> Answer {
        Answer {
            host: host.to_owned(),
            code,
            time: Duration::from_millis(2500),
            screen: Some(json!({
                "processes": [{"records": calls, "lost": {"kernels": 3}, "without_times": 1, "longest_stop_ns": 90_000}],
                "tables": [{"title": "Kernels", "rows": [{"name": "gemm", "calls": calls, "total_ns": total}]}],
                "files": ["out/1.db"],
            })),
            ..Answer::default()
        }
    }

    /// One host says what it likes; the summary of the others is there.
    #[test]
    fn a_hosts_words_have_no_length_and_its_numbers_no_end() {
        let long = "n".repeat(70_000);
        let mut mad = answer("mad", Some(0), u64::MAX, u64::MAX);
        let row = json!({"name": long, "calls": u64::MAX, "total_ns": u64::MAX});
        mad.screen = Some(json!({
            "processes": [
                {"records": u64::MAX, "lost": {"a": u64::MAX, "b": u64::MAX}, "without_times": u64::MAX},
                {"records": u64::MAX, "lost": {"a": 1}, "without_times": u64::MAX},
            ],
            "tables": [{"title": long, "rows": [row, row]}, {"title": "Kernels", "rows": [row]}],
            "files": vec!["f"; 10_000],
        }));
        mad.failure = Some(long.clone());
        let answers = [answer("a", Some(0), 10, 20_000), mad.clone(), mad];
        let said = lines(&answers, true);
        assert!(
            said.iter().any(|line| line.starts_with("gemm")),
            "{said:#?}"
        );
        assert!(said.iter().all(|line| line.chars().count() < 1000));
        assert!(said.len() < 1000);
        assert_eq!(
            document(&answers)["tables"][1]["rows"][0]["calls"],
            u64::MAX
        );
    }

    #[test]
    fn hosts_are_added_up_and_each_has_its_line() {
        let dead = Answer {
            host: "c".to_owned(),
            failure: Some("ssh could not reach it".to_owned()),
            ..Answer::default()
        };
        let answers = [
            answer("a", Some(0), 10, 20_000),
            answer("b", Some(32), 30, 90_000),
            dead,
        ];
        assert_eq!(
            lines(&answers, true),
            [
                "Kernels  CALLS     TOTAL    MEAN  HOSTS      SLOWEST",
                "gemm        40  110.0 us  2.8 us      2  3.0 us on b",
                "",
                "HOST  EXIT   TIME  PROCESSES  RECORDS  LOST  UNTIMED  STOPPED",
                "a        0  2.5 s          1       10     3        1  90.0 us",
                "b       32  2.5 s          1       30     3        1  90.0 us",
                "c     none  0.0 s          -        -     -        -        -",
                "b: exit code 32",
                "c: ssh could not reach it",
                "a:out/1.db",
                "b:out/1.db",
            ]
        );
        let document = document(&answers);
        assert_eq!(document["exit_code"], 35);
        assert_eq!(document["hosts"][1]["lost"], 3);
        assert_eq!(document["tables"][0]["rows"][0]["slowest_host"], "b");
        assert_eq!(code(&answers[..1]), 0);
        assert_eq!(code(&answers[1..2]), 32);
        assert_eq!(code(&answers[2..]), 37);
    }
}
