//! A rocpd file, compared with what AMD's own tool wrote for the same session, and with our other
//! formats of the same trace. Python's SQLite reads it.

use crate::common::{
    agents, entries, golden, golden_json, list, names, number, reader, text, trace,
};
use crate::recordings::recorded;
use midair_output::{Format, Names, Plan, write};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A directory with the golden session in the formats.
fn written(formats: &[Format]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let trace = trace(&golden, &names);
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: formats.to_vec(),
        ..Plan::default()
    };
    let files = write(&trace, &names, &plan).unwrap();
    assert!(files.iter().any(|file| file.ends_with("r_results.db")));
    directory
}

fn amds() -> Value {
    serde_json::from_str(&golden("rocpd.json")).unwrap()
}

fn answer(file: &Value, query: usize) -> &[Value] {
    list(&file["answers"][query])
}

#[test]
fn tables_and_views_are_amds_and_a_few_later_ones() {
    let directory = written(&[Format::Rocpd]);
    assert_eq!(
        entries(directory.path()),
        ["r_results.db"],
        "and no file of a journal"
    );
    let ours = reader(&directory.path().join("r_results.db"), &[]);
    let amds = amds();
    for (name, amds) in amds["tables"].as_object().unwrap() {
        let ours = &ours["tables"][name];
        // Columns and references of later schemas are between AMD's. Those that AMD had are in its
        // order, with its types and defaults.
        for part in ["columns", "references"] {
            let mut rest = list(&ours[part]).iter();
            for wanted in list(&amds[part]) {
                assert!(
                    rest.any(|ours| ours == wanted),
                    "{name}: no {wanted} in its place"
                );
            }
        }
        let references = list(&ours["references"]);
        if !references.is_empty() {
            assert_eq!(ours["on_update"], serde_json::json!(["CASCADE"]), "{name}");
        }
    }
    for (name, amds) in amds["views"].as_object().unwrap() {
        // SQLite's names of columns are not case-sensitive.
        let lower = |columns: &Value| -> Vec<String> {
            list(columns)
                .iter()
                .map(|name| text(name).to_lowercase())
                .collect()
        };
        let ours = lower(&ours["views"][name]["columns"]);
        let mut rest = ours.iter();
        for column in lower(amds) {
            assert!(
                rest.any(|ours| *ours == column),
                "{name}: no {column} in its place"
            );
        }
    }
    let keys = |key: &str| ours[key].as_object().unwrap().keys().collect::<Vec<_>>();
    for (key, later) in [
        ("tables", &["rocpd_graph_launch"][..]),
        (
            "views",
            &[
                "rocpd_graph_launch",
                "graph_launches",
                "spm_counters",
                "call_stacks",
            ],
        ),
    ] {
        let more: Vec<_> = keys(key)
            .into_iter()
            .filter(|name| amds[key].get(name).is_none())
            .collect();
        assert_eq!(more.len(), later.len(), "{more:?}");
        assert!(more.iter().all(|name| later.contains(&name.as_str())));
    }
    for table in ["rocpd_kernel_dispatch", "rocpd_memory_copy"] {
        for column in ["graph_exec_id", "graph_node_id"] {
            let wanted = serde_json::json!([column, "INTEGER", 1, "0"]);
            assert!(list(&ours["tables"][table]["columns"]).contains(&wanted));
        }
    }
    // The indexes that joins of calls with what they launched need.
    let suffix = text(&ours["suffix"]);
    let indexes = [
        "event_stack_id",
        "region_event_id",
        "kernel_dispatch_event_id",
    ];
    let indexes = indexes.map(|name| format!("rocpd_{name}{suffix}"));
    assert_eq!(ours["others"], serde_json::json!(indexes));
    assert_eq!(ours["integrity"], serde_json::json!([["ok"]]));
    assert_eq!(ours["foreign_keys"], serde_json::json!([]));
    assert_eq!(
        ours["journal_mode"], "delete",
        "not one that needs a file beside it"
    );
}

/// Compares midair's rows with AMD's, without what only one of them has.
fn assert_rows_equal(view: &str, ours: &[Value], amds: &[Value], but: &[&str]) {
    assert_eq!(ours.len(), amds.len(), "{view}");
    for (ours, amds) in ours.iter().zip(amds) {
        for (column, wanted) in amds.as_object().unwrap() {
            if !but.contains(&column.as_str()) {
                assert_eq!(&ours[column], wanted, "{view}.{column} of {amds}");
            }
        }
    }
}

#[test]
fn rows_equal_amds_but_for_what_cannot_be_equal() {
    let directory = written(&[Format::Rocpd]);
    let ours = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT * FROM kernels ORDER BY id",
            "SELECT * FROM memory_copies ORDER BY id",
            "SELECT * FROM code_objects ORDER BY id",
            "SELECT * FROM kernel_symbols ORDER BY id",
            "SELECT * FROM threads ORDER BY tid",
            "SELECT * FROM rocpd_info_queue ORDER BY id",
            "SELECT * FROM rocpd_info_stream ORDER BY id",
            "SELECT * FROM rocpd_info_agent ORDER BY id",
            "SELECT * FROM top ORDER BY total_duration DESC, name",
            "SELECT * FROM top_kernels ORDER BY name",
            "SELECT * FROM busy ORDER BY agent_id",
        ],
    );
    let amds = amds();
    // The number of the node is a midair hash; addresses of copies are not in AMD's json, so our
    // trace has none; AMD leaves the type of storage out; the json that the trace is made of has no
    // parent process.
    let view = |n: usize, name: &str, but: &[&str]| {
        let but = [&["nid"], but].concat();
        assert_rows_equal(name, answer(&ours, n), list(&amds["rows"][name]), &but);
    };
    view(0, "kernels", &[]);
    view(1, "memory_copies", &["dst_address", "src_address"]);
    view(2, "code_objects", &["storage_type_str"]);
    view(3, "kernel_symbols", &[]);
    view(4, "threads", &["ppid"]);
    view(5, "rocpd_info_queue", &[]);
    view(6, "rocpd_info_stream", &[]);
    view(7, "rocpd_info_agent", &["extdata"]);
    view(8, "top", &[]);
    view(9, "top_kernels", &[]);
    view(10, "busy", &[]);
    // JSON in a column is compared as a value, not as text.
    for (ours, amds) in answer(&ours, 7)
        .iter()
        .zip(list(&amds["rows"]["rocpd_info_agent"]))
    {
        let parse =
            |row: &Value| -> Value { serde_json::from_str(&text(&row["extdata"])).unwrap() };
        assert_eq!(parse(ours), parse(amds));
    }
    assert_eq!(answer(&ours, 7).len(), agents().len());
}

#[test]
fn every_call_and_argument_of_json_is_there() {
    let directory = written(&[Format::Rocpd]);
    let ours = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT * FROM regions ORDER BY id",
            "SELECT * FROM samples",
            "SELECT E.stack_id AS correlation, A.position, A.type, A.name, A.value FROM rocpd_arg A
             JOIN rocpd_event E ON E.id = A.event_id ORDER BY A.id",
            "SELECT COUNT(*) AS n FROM events_args",
            "SELECT R.id FROM rocpd_region R JOIN rocpd_event E ON E.id = R.event_id WHERE R.id != E.stack_id",
            "SELECT S.* FROM stream_args S",
        ],
    );
    let golden = golden_json();
    let records = &golden["buffer_records"];
    let mut calls: Vec<&Value> = list(&records["hip_api"])
        .iter()
        .chain(list(&records["hsa_api"]))
        .collect();
    calls.sort_by_key(|call| number(&call["correlation_id"]["internal"]));
    let regions = answer(&ours, 0);
    assert_eq!(regions.len(), calls.len());
    let kinds = list(&golden["strings"]["buffer_records"]);
    for (region, call) in regions.iter().zip(&calls) {
        let kind = &kinds[number(&call["kind"]) as usize];
        let name = &kind["operations"][number(&call["operation"]) as usize];
        for (column, wanted) in [
            ("id", &call["correlation_id"]["internal"]),
            ("stack_id", &call["correlation_id"]["internal"]),
            ("parent_stack_id", &call["correlation_id"]["ancestor"]),
            ("corr_id", &call["correlation_id"]["external"]),
            ("category", &kind["kind"]),
            ("name", name),
            ("tid", &call["thread_id"]),
            ("pid", &golden["metadata"]["pid"]),
            ("start", &call["start_timestamp"]),
            ("end", &call["end_timestamp"]),
        ] {
            assert_eq!(&region[column], wanted, "{column} of {call}");
        }
    }
    assert!(answer(&ours, 1).is_empty() && answer(&ours, 4).is_empty());
    let mut arguments = answer(&ours, 2).iter();
    let mut streams = 0;
    for call in list(&records["hip_api"]) {
        for (position, wanted) in (0_u64..).zip(list(&call["args"])) {
            let argument = arguments.next().unwrap();
            assert_eq!(argument["correlation"], call["correlation_id"]["internal"]);
            assert_eq!(argument["position"], position);
            assert_eq!(argument["name"], wanted["name"]);
            // Texts behind pointers are not followed.
            let printed = text(&wanted["value"]);
            let is_text = wanted["type"] == "PKc" || wanted["type"] == "Pc";
            if !is_text || printed.starts_with("0x") {
                assert_eq!(argument["value"], wanted["value"], "{wanted}");
            }
            streams += usize::from(wanted["name"] == "stream");
        }
    }
    assert!(arguments.next().is_none());
    let types: Vec<_> = answer(&ours, 2)
        .iter()
        .map(|row| text(&row["type"]))
        .collect();
    // As AMD's file has them (golden/hip724).
    for wanted in [
        "void const*",
        "char*",
        "unsigned int",
        "HIP_vector_type<unsigned int, 3u>*",
        "dim3*",
        "ihipStream_t*",
        "unsigned long",
    ] {
        assert!(types.iter().any(|found| found == wanted), "{wanted}");
    }
    assert_eq!(answer(&ours, 3)[0]["n"], answer(&ours, 2).len() as u64);
    assert!(streams > 0);
    assert_eq!(answer(&ours, 5).len(), streams);
}

#[test]
fn the_file_says_who_it_is_and_keeps_the_environment_out() {
    let directory = written(&[Format::Rocpd, Format::Json]);
    let ours = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT tag, value FROM rocpd_metadata ORDER BY id",
            "SELECT * FROM processes",
            "SELECT environment, extdata FROM rocpd_info_process",
            "SELECT * FROM rocpd_info_node",
            "SELECT DISTINCT guid FROM rocpd_event UNION SELECT guid FROM rocpd_string",
            "SELECT * FROM rocpd_string WHERE id = 1",
        ],
    );
    let tags = answer(&ours, 0);
    let guid = text(&tags[5]["value"]);
    let wanted = [
        ("schema_version", "3.0.3".to_owned()),
        ("schema_version_major", "3".to_owned()),
        ("schema_version_minor", "0".to_owned()),
        ("schema_version_patch", "3".to_owned()),
        ("uuid", format!("_{}", guid.replace('-', "_"))),
        ("guid", guid.clone()),
    ];
    for (row, (tag, value)) in tags.iter().zip(&wanted) {
        assert_eq!(
            (&row["tag"], &row["value"]),
            (&(*tag).into(), &value.as_str().into())
        );
    }
    assert!(guid.starts_with("00000036-15dd-7"), "{guid}");
    assert_eq!(ours["suffix"], wanted[4].1.as_str());
    let said = |tag: &str| {
        tags.iter()
            .find(|row| row["tag"] == tag)
            .map(|row| &row["value"])
    };
    assert_eq!(said("midair_outcome"), Some(&"complete".into()));
    assert_eq!(said("midair_lost"), Some(&"{}".into()));
    assert_eq!(said("midair_notes"), Some(&"[]".into()));

    let golden = golden_json();
    let process = &answer(&ours, 1)[0];
    assert_eq!(process["command"], "/t/vadd 3");
    for (column, key) in [("pid", "pid"), ("start", "init_time"), ("end", "fini_time")] {
        assert_eq!(process[column], golden["metadata"][key]);
    }
    let stored = &answer(&ours, 2)[0];
    assert_eq!(stored["environment"], "{}");
    let config: Value = serde_json::from_str(&text(&stored["extdata"])).unwrap();
    assert_eq!(
        (&config["rocpd_output"], &config["csv_output"]),
        (&true.into(), &false.into())
    );
    let node = &answer(&ours, 3)[0];
    assert_eq!(
        number(&node["id"]),
        number(&node["hash"]) % u64::from(u32::MAX)
    );
    assert_eq!(answer(&ours, 4), [serde_json::json!({ "guid": guid })]);
    assert_eq!(answer(&ours, 5)[0]["string"], "");
}

/// AMD's importer opens several files at once and unites tables with the same name. Two sessions
/// must not collide.
#[test]
fn two_sessions_of_one_process_can_be_united() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let golden = golden_json();
    let names = names(&golden);
    for (directory, later) in [(&first, 0), (&second, 5_000_000)] {
        let mut trace = trace(&golden, &names);
        trace.process.init_time += later;
        let plan = Plan {
            directory: directory.path().to_owned(),
            prefix: "r".to_owned(),
            formats: vec![Format::Rocpd],
            ..Plan::default()
        };
        write(&trace, &names, &plan).unwrap();
    }
    let script = "
import sqlite3, sys
db = sqlite3.connect(':memory:')
united = {}
for n, path in enumerate(sys.argv[1:]):
    db.execute(f\"ATTACH DATABASE ? AS db{n}\", (path,))
    (suffix,) = db.execute(f\"SELECT value FROM db{n}.rocpd_metadata WHERE tag = 'uuid'\").fetchone()
    for (name,) in db.execute(f\"SELECT name FROM db{n}.sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'\").fetchall():
        united.setdefault(name.replace(suffix, ''), []).append(f'SELECT * FROM db{n}.\"{name}\"')
for name, selects in united.items():
    db.execute(f\"CREATE TEMP VIEW {name} AS {' UNION ALL '.join(selects)}\")
for name, sql in db.execute(\"SELECT name, sql FROM db0.sqlite_master WHERE type = 'view' AND name NOT LIKE 'rocpd_%'\").fetchall():
    db.execute(sql.replace('CREATE VIEW', 'CREATE TEMP VIEW', 1))
for view in ('kernels', 'memory_copies', 'regions', 'threads', 'busy'):
    print(view, db.execute(f'SELECT COUNT(*) FROM {view}').fetchone()[0], end=' ')
";
    let output = Command::new("python3")
        .args(["-c", script])
        .args([&first, &second].map(|directory| directory.path().join("r_results.db")))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said.trim(),
        "kernels 18 memory_copies 18 regions 1872 threads 2 busy 4",
        "{errors}"
    );
}

/// The views look rows up by number, also through the guids: no view reads a table again for each
/// row of another.
#[test]
fn views_use_the_keys() {
    let directory = written(&[Format::Rocpd]);
    let plans = reader(
        &directory.path().join("r_results.db"),
        &[
            "EXPLAIN QUERY PLAN SELECT * FROM kernels",
            "EXPLAIN QUERY PLAN SELECT * FROM regions",
            "EXPLAIN QUERY PLAN SELECT * FROM samples",
            "EXPLAIN QUERY PLAN SELECT * FROM memory_copies",
            "EXPLAIN QUERY PLAN SELECT * FROM memory_allocations",
        ],
    );
    for n in 0..5 {
        let scans: Vec<_> = answer(&plans, n)
            .iter()
            .map(|row| text(&row["detail"]))
            .filter(|detail| !detail.starts_with("SEARCH"))
            .collect();
        assert!(
            scans.len() == 1 && scans[0].starts_with("SCAN"),
            "{:?}",
            answer(&plans, n)
        );
    }
}

#[test]
fn an_earlier_file_and_what_its_readers_left_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "r_results.db",
        "r_results.db-wal",
        "r_results.db-journal",
        "r_results.db-shm",
    ] {
        std::fs::write(directory.path().join(name), "old").unwrap();
    }
    let golden = golden_json();
    let names = names(&golden);
    let trace = trace(&golden, &names);
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Rocpd],
        ..Plan::default()
    };
    write(&trace, &names, &plan).unwrap();
    assert_eq!(entries(directory.path()), ["r_results.db"]);
    assert_mode(&directory.path().join("r_results.db"));
}

fn assert_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Counters and graphs are not recorded here, but tools look their views up. The views must work on
/// rows that a user adds.
#[test]
fn views_of_counters_and_graphs_find_what_is_added() {
    let directory = written(&[Format::Rocpd]);
    let script = "
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('PRAGMA foreign_keys = ON')
(suffix,) = db.execute(\"SELECT value FROM rocpd_metadata WHERE tag = 'uuid'\").fetchone()
nid, pid, event, tid = db.execute('SELECT nid, pid, event_id, tid FROM rocpd_kernel_dispatch WHERE id = 1').fetchone()
def add(table, **columns):
    places = ', '.join('?' * len(columns))
    db.execute(f'INSERT INTO rocpd_{table}{suffix} ({\", \".join(columns)}) VALUES ({places})', list(columns.values()))
add('info_pmc', id=7, nid=nid, pid=pid, agent_id=1, target_arch='GPU', name='SQ_WAVES', symbol='SQ_WAVES', value_type='ABS')
for value in (3.0, 4.0):
    add('pmc_event', event_id=event, pmc_id=7, value=value)
add('track', id=1, nid=nid, pid=pid, tid=tid, name_id=1)
add('sample', id=1, track_id=1, timestamp=99, event_id=event)
add('pmc_event', event_id=event, pmc_id=7, sample_id=1, value=5.0, xcc=2, shader_engine=3, instance=4)
add('graph_launch', nid=nid, pid=pid, tid=tid, agent_id=1, queue_id=1, start=10, end=30, graph_exec_id=6,
    kernel_dispatch_count=2, event_id=event)
db.commit()
ask = lambda sql: db.execute(sql).fetchall()
print(json.dumps([
    ask('SELECT dispatch_id, counter_name, value, agent_type FROM counters_collection'),
    ask('SELECT dispatch_id, counter_name, value, xcc, shader_engine, instance, timestamp FROM spm_counters'),
    ask('SELECT name, duration, graph_exec_id, kernel_dispatch_count, queue, agent_type FROM graph_launches'),
    ask('SELECT COUNT(*) FROM pmc_events'), ask('SELECT name, agent_abs_index FROM pmc_info'),
    ask('PRAGMA foreign_key_check'),
]))
try:
    add('pmc_event', event_id=event, pmc_id=8, value=1.0)
    print('a counter that nobody knows was taken')
except sqlite3.IntegrityError:
    pass
";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(directory.path().join("r_results.db"))
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let wanted = serde_json::json!([
        [[1, "SQ_WAVES", 7.0, "GPU"]],
        [[1, "SQ_WAVES", 5.0, 2, 3, 4, 99]],
        [["Graph Execution", 20, 6, 2, "Queue 0", "GPU"]],
        [[3]],
        [["SQ_WAVES", 1]],
        []
    ]);
    assert_eq!(said, wanted);
}

/// The views are plain SQL. DuckDB, which reads SQLite's files, must find the same rows.
#[test]
fn duckdb_runs_all_views() {
    let directory = tempfile::tempdir().unwrap();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/duckdb_views.py");
    for name in ["hip", "cuda", "domains"] {
        let at = directory.path().join(name);
        let plan = Plan {
            directory: at.clone(),
            prefix: "r".to_owned(),
            formats: vec![Format::Rocpd],
            ..Plan::default()
        };
        write(&recorded(name), &Names::amd(), &plan).unwrap();
        let output = Command::new(midair_tests::python().unwrap())
            .arg("-B")
            .arg(&script)
            .arg(at.join("r_results.db"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        for view in ["top", "top_kernels", "busy"] {
            assert!(rows[view].as_u64() > Some(0), "{name} {view}: {rows}");
        }
        assert_eq!(rows["counters_collection"], 0);
    }
}

/// The numbers of rows continue for a program that adds some, as in AMD's files. A join of calls with
/// what they launched must look rows up by an index.
#[test]
fn ids_go_on_and_joins_use_indexes() {
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Rocpd],
        ..Plan::default()
    };
    write(&recorded("hip"), &Names::amd(), &plan).unwrap();
    let file = directory.path().join("r_results.db");
    let ours = reader(
        &file,
        &[
            "SELECT (SELECT seq FROM sqlite_sequence WHERE name LIKE 'rocpd_event%') AS last, (SELECT MAX(id) FROM rocpd_event) AS most",
            "SELECT COUNT(*) AS without FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd%' AND sql NOT LIKE '%PRIMARY KEY AUTOINCREMENT%'",
            "EXPLAIN QUERY PLAN SELECT r.name, k.name FROM regions AS r JOIN kernels AS k ON k.stack_id = r.stack_id AND k.guid = r.guid",
        ],
    );
    let answers = &ours["answers"];
    assert_eq!(answers[0][0]["last"], answers[0][0]["most"]);
    assert_eq!(answers[1][0]["without"], 0);
    let plan = answers[2].to_string();
    assert!(plan.contains("INDEX rocpd_event_stack_id"), "{plan}");
    assert_eq!(ours["integrity"], serde_json::json!([["ok"]]));
    assert_eq!(ours["foreign_keys"], serde_json::json!([]));
}
