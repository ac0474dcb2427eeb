//! Databases that another user damaged or made up.

use crate::common::{database, of_amd, plan, session};
use midair_output::Format;
use midair_rocpd::{CsvForm, Input, SummaryOptions, Target, convert, merge, summary};
use rusqlite::Connection;
use std::path::Path;

/// Reads a database in each way. A refusal is as good as an answer.
fn read(path: &Path, out: &Path) -> bool {
    let Ok(input) = Input::open(&[path.to_owned()]) else {
        return false;
    };
    let plan = plan(out, &[Format::Csv, Format::Json]);
    let _ = convert(&input, &plan, CsvForm::Rocpd, None);
    let is_converted = convert(&input, &plan, CsvForm::Attach, None).is_ok();
    let target = Target {
        format: midair_rocpd::Format::Json,
        directory: out.to_owned(),
        name: "s".to_owned(),
    };
    let _ = summary(
        &input,
        &SummaryOptions::default(),
        None,
        &target,
        &mut |_| (),
    );
    let _ = merge(&[path.to_owned()], &out.join("merged.db"));
    is_converted
}

#[test]
fn damaged_bytes_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(of_amd(dir.path(), "pmc")).unwrap();
    let path = dir.path().join("damaged.db");
    // A generator of its own, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 16).unwrap()
    };
    let mut converted = 0;
    for _ in 0..25 {
        let mut bytes = whole.clone();
        for _ in 0..6 {
            let at = random() % bytes.len();
            bytes[at] = random().to_le_bytes()[0];
        }
        std::fs::write(&path, &bytes).unwrap();
        converted += u32::from(read(&path, dir.path()));
    }
    assert!(converted > 0);
    for len in [0, 100, 5000, whole.len() / 2] {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert!(!read(&path, dir.path()), "{len}");
    }
}

#[test]
fn values_of_any_type_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), &session(4242));
    let connection = Connection::open(&path).unwrap();
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    connection
        .execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
        .unwrap();
    let mut changed = 0;
    for table in tables {
        let columns: Vec<String> = connection
            .prepare("SELECT name FROM pragma_table_info(?1) WHERE name <> 'id'")
            .unwrap()
            .query_map([&table], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for (number, column) in columns.iter().enumerate() {
            // Each row gets another one of these.
            let value = "CASE (rowid + ?1) % 5 WHEN 0 THEN -1 WHEN 1 THEN 9223372036854775807 \
                         WHEN 2 THEN 'a' || char(27) || '\"{' WHEN 3 THEN x'ff00' ELSE 1.5 END";
            let update = format!("UPDATE OR IGNORE \"{table}\" SET \"{column}\" = {value}");
            if number % 3 == 0 && connection.execute(&update, [number as i64]).is_ok() {
                changed += 1;
            }
        }
    }
    assert!(changed > 30, "{changed}");
    drop(connection);
    read(&path, dir.path());
}

/// A view without an end in the place of a table is refused before it is read.
#[test]
fn what_is_no_table_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let endless =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS id FROM n";
    for change in [
        format!("DROP TABLE rocpd_region_S; CREATE VIEW rocpd_region_S AS {endless}"),
        "ALTER TABLE rocpd_event_S ADD COLUMN more AS (id + 1)".to_owned(),
    ] {
        let path = database(dir.path(), &session(4242));
        let connection = Connection::open(&path).unwrap();
        let table: String = connection
            .query_row(
                "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_region_0%' AND type = 'table'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        let suffix = table.strip_prefix("rocpd_region").unwrap();
        let views: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_master WHERE type = 'view'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for view in views {
            connection
                .execute_batch(&format!("DROP VIEW \"{view}\""))
                .unwrap();
        }
        connection
            .execute_batch("PRAGMA foreign_keys = OFF")
            .unwrap();
        connection
            .execute_batch(&change.replace("_S", suffix))
            .unwrap();
        drop(connection);
        let refused = Input::open(&[path]).unwrap_err();
        assert!(
            refused.what.contains("is not a table with stored columns"),
            "{}",
            refused.what
        );
    }
}
