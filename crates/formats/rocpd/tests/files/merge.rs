//! Merged databases.

use crate::common::{count, database, of_amd, session};
use midair_rocpd::{Input, merge};
use rusqlite::Connection;
use std::path::PathBuf;

#[test]
fn a_merged_database_has_the_rows_of_all() {
    let dir = tempfile::tempdir().unwrap();
    // More than SQLite attaches.
    let paths: Vec<PathBuf> = (0..11)
        .map(|number| {
            let below = dir.path().join(number.to_string());
            std::fs::create_dir(&below).unwrap();
            database(&below, &session(4000 + number))
        })
        .collect();
    let merged = dir.path().join("new/merged.db");
    merge(&paths, &merged).unwrap();
    for table in [
        "kernels",
        "memory_copies",
        "memory_allocations",
        "scratch_memory",
        "regions_and_samples",
        "rocpd_event",
        "rocpd_arg",
        "rocpd_metadata",
        "top_kernels",
    ] {
        let query = format!("SELECT COUNT(*) FROM {table}");
        let sum: i64 = paths.iter().map(|path| count(path, &query)).sum();
        let found = count(&merged, &query);
        match table {
            // By name, over all sessions.
            "top_kernels" => assert_eq!(found, 3),
            _ => assert_eq!((found, found > 0), (sum, true), "{table}"),
        }
    }
    let connection = Connection::open(&merged).unwrap();
    let check =
        |pragma: &str| -> String { connection.query_row(pragma, [], |row| row.get(0)).unwrap() };
    assert_eq!(check("PRAGMA integrity_check"), "ok");
    assert_eq!(Input::open(&[merged]).unwrap().parts().len(), 11);
    // Opened together they are merged into a temporary file.
    assert_eq!(Input::open(&paths).unwrap().parts().len(), 11);
    // A directory stands for the databases in it.
    let directory = dir.path().join("0");
    assert_eq!(Input::open(&[directory]).unwrap().parts().len(), 1);
}

#[test]
fn what_does_not_fit_together_is_not_merged() {
    let dir = tempfile::tempdir().unwrap();
    let ours = database(dir.path(), &session(4242));
    let amds = of_amd(dir.path(), "hip724");
    let to = dir.path().join("merged.db");
    let refused = merge(&[ours.clone(), amds.clone()], &to).unwrap_err();
    assert!(
        refused.what.contains("different schemas"),
        "{}",
        refused.what
    );
    let refused = merge(&[ours.clone(), ours], &to).unwrap_err();
    assert!(
        refused.what.contains("the same session"),
        "{}",
        refused.what
    );
    assert!(!to.exists());
    // AMD's own are merged with AMD's views.
    merge(&[amds.clone(), of_amd(dir.path(), "pmc")], &to).unwrap();
    let query = "SELECT COUNT(*) FROM kernels";
    assert_eq!(count(&to, query), count(&amds, query) + 3);
    let left = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("tmp")),
        "{left:?}"
    );
}
