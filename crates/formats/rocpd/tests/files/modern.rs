//! Databases of AMD's schema 4.1, whose work and calls name tracks.

use crate::common::{database, plan, session};
use midair_output::Format;
use midair_rocpd::{CsvForm, Input, SummaryOptions, Target, convert, summary};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The tables that differ: their columns in schema 4.1, and what these are in schema 3.
const TABLES: [(&str, &str); 6] = [
    (
        "event",
        "SELECT id, guid, (SELECT c.id FROM category AS c WHERE c.string = category_id) AS category_id, stack_id, parent_stack_id, \
         correlation_id, extdata FROM old.rocpd_event_X",
    ),
    (
        "region",
        "SELECT x.id, guid, track(x.nid, x.pid, x.tid, NULL, NULL, NULL) AS track_id, name_id, start, \"end\", event_id, extdata \
         FROM old.rocpd_region_X AS x",
    ),
    (
        "sample",
        "SELECT x.id, x.guid, track(t.nid, t.pid, t.tid, NULL, NULL, NULL) AS track_id, t.name_id, timestamp, event_id, x.extdata \
         FROM old.rocpd_sample_X AS x JOIN old.rocpd_track_X AS t ON t.id = x.track_id",
    ),
    (
        "kernel_dispatch",
        "SELECT id, guid, track(x.nid, x.pid, x.tid, x.agent_id, x.queue_id, x.stream_id) AS track_id, kernel_id, dispatch_id, start, \"end\", \
         private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, \
         grid_size_z, region_name_id, event_id, extdata FROM old.rocpd_kernel_dispatch_X AS x",
    ),
    (
        "memory_copy",
        "SELECT id, guid, track(x.nid, x.pid, x.tid, NULL, x.queue_id, x.stream_id) AS track_id, start, \"end\", name_id, dst_agent_id, \
         dst_address, src_agent_id, src_address, size, region_name_id, event_id, extdata FROM old.rocpd_memory_copy_X AS x",
    ),
    (
        "memory_allocate",
        "SELECT id, guid, track(x.nid, x.pid, x.tid, x.agent_id, x.queue_id, x.stream_id) AS track_id, type, level, start, \"end\", address, \
         size, event_id, extdata FROM old.rocpd_memory_allocate_X AS x",
    ),
];

/// Makes a database of schema 4.1 from one of schema 3.
fn modern(old: &Path, directory: &Path) -> PathBuf {
    let path = directory.join("modern.db");
    let new = Connection::open(&path).unwrap();
    new.execute("ATTACH ?1 AS old", [old.to_str().unwrap()])
        .unwrap();
    let names = |like: &str| -> Vec<String> {
        let question = "SELECT name FROM old.sqlite_master WHERE type = 'table' AND name LIKE ?1";
        let mut statement = new.prepare(question).unwrap();
        let names = statement.query_map([like], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    };
    let suffix = names("rocpd_kernel_dispatch%")[0].replace("rocpd_kernel_dispatch", "");
    for name in names("rocpd_%") {
        let short = name
            .strip_prefix("rocpd_")
            .unwrap()
            .strip_suffix(&suffix)
            .unwrap();
        if short != "track" && !TABLES.iter().any(|(table, _)| *table == short) {
            let copy = format!("CREATE TABLE \"{name}\" AS SELECT * FROM old.\"{name}\"");
            new.execute_batch(&copy).unwrap();
        }
    }
    // Each thread, agent, queue and stream that anything names is a track.
    let used = [
        ("region", "nid, pid, tid, NULL, NULL, NULL"),
        ("track", "nid, pid, tid, NULL, NULL, NULL"),
        (
            "kernel_dispatch",
            "nid, pid, tid, agent_id, queue_id, stream_id",
        ),
        ("memory_copy", "nid, pid, tid, NULL, queue_id, stream_id"),
        (
            "memory_allocate",
            "nid, pid, tid, agent_id, queue_id, stream_id",
        ),
    ];
    let used = used.map(|(table, columns)| {
        format!("SELECT guid, {columns} FROM old.\"rocpd_{table}{suffix}\"")
    });
    let columns = "nid, pid, tid, agent_id, queue_id, stream_id";
    new.execute_batch(&format!(
        "CREATE TABLE \"rocpd_track{suffix}\" (id INTEGER PRIMARY KEY, guid, {columns}, name_id, extdata DEFAULT '{{}}');
         INSERT INTO \"rocpd_track{suffix}\" (guid, {columns}) SELECT DISTINCT * FROM ({});
         CREATE TABLE \"rocpd_info_category{suffix}\" (id INTEGER PRIMARY KEY, guid, name);
         INSERT INTO \"rocpd_info_category{suffix}\" (guid, name) SELECT DISTINCT e.guid, s.string
         FROM old.\"rocpd_event{suffix}\" AS e JOIN old.\"rocpd_string{suffix}\" AS s ON s.id = e.category_id;
         CREATE TEMP TABLE category AS SELECT c.id, s.id AS string FROM \"rocpd_info_category{suffix}\" AS c
         JOIN old.\"rocpd_string{suffix}\" AS s ON s.string = c.name;",
        used.join(" UNION ALL ")
    ))
    .unwrap();
    for (table, query) in TABLES {
        let (before, rest) = query.split_once("track(").unwrap_or((query, ""));
        let query = match rest.split_once(')') {
            None => query.to_owned(),
            Some((words, rest)) => {
                let same = columns.split(", ").zip(words.split(", "));
                let same: Vec<String> = same
                    .map(|(column, word)| format!("k.{column} IS {word}"))
                    .collect();
                format!(
                    "{before}(SELECT k.id FROM \"rocpd_track{suffix}\" AS k WHERE {}){rest}",
                    same.join(" AND ")
                )
            }
        };
        let query = query.replace("_X", &suffix);
        new.execute_batch(&format!(
            "CREATE TABLE \"rocpd_{table}{suffix}\" AS {query}"
        ))
        .unwrap();
    }
    path
}

fn written(database: &Path, out: &Path) -> BTreeMap<String, String> {
    let input = Input::open(&[database.to_owned()]).unwrap();
    let formats = [Format::Csv, Format::Json, Format::Pftrace];
    convert(&input, &plan(out, &formats), CsvForm::Attach, None).unwrap();
    let mut tables = plan(out, &[Format::Csv]);
    tables.prefix = "amd".to_owned();
    convert(&input, &tables, CsvForm::Rocpd, None).unwrap();
    let target = Target {
        format: midair_rocpd::Format::Csv,
        directory: out.to_owned(),
        name: "s".to_owned(),
    };
    let options = SummaryOptions::default();
    summary(&input, &options, None, &target, &mut |_| ()).unwrap();
    let files = fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.map(|path| {
        let bytes = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, String::from_utf8_lossy(&bytes).into_owned())
    });
    let all = files.collect();
    fs::remove_dir_all(out).unwrap();
    all
}

#[test]
fn a_database_of_schema_4_is_read_as_one_of_schema_3() {
    let dir = tempfile::tempdir().unwrap();
    let old = database(dir.path(), &session(4242));
    let new = modern(&old, dir.path());
    let out = dir.path().join("out");
    let (wanted, found) = (written(&old, &out), written(&new, &out));
    assert!(wanted.len() > 12, "{:?}", wanted.keys());
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (name, text) in &wanted {
        // Its version has no columns of graphs in the tables of AMD's command.
        if !["amd_kernel_trace.csv", "amd_memory_copy_trace.csv"].contains(&name.as_str()) {
            assert!(found[name] == *text, "{name}: {} {text}", found[name]);
        }
    }
}

#[test]
fn the_name_of_a_session_is_no_statement() {
    let dir = tempfile::tempdir().unwrap();
    let new = modern(&database(dir.path(), &session(4242)), dir.path());
    let connection = Connection::open(&new).unwrap();
    let names: Vec<String> = {
        let mut statement = connection
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'")
            .unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    };
    for name in names {
        let renamed =
            format!("ALTER TABLE \"{name}\" RENAME TO \"{name}_{{event}} ; x\"\"{{track}}\"");
        connection.execute_batch(&renamed).unwrap();
    }
    drop(connection);
    let files = written(&new, &dir.path().join("out"));
    assert!(files["r_kernel_trace.csv"].lines().count() > 1);
}
