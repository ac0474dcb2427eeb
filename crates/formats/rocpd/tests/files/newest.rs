//! Databases of AMD's newest schemas: 3.0.4 has a table of HIP events, 3.0.3 and 3.0.5 have counters that were
//! sampled within dispatches, and kernel replay has several rows of a dispatch. No file of AMD's tool of these
//! versions is public: they are made here of its earlier files, or of midair's, with the tables and columns
//! that the schemas name (docs/sources.md#rocpd).

use crate::common::{BEGIN, count, database, header, of_amd, plan, session, session_with};
use crate::convert::files;
use midair_output::{Format, Names, write};
use midair_record::event::{self, Barrier, EventCall, hip_event, kind};
use midair_rocpd::{CsvForm, Input, SummaryOptions, Target, Window, convert, query, summary};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

const FORMATS: [Format; 3] = [Format::Csv, Format::Json, Format::Pftrace];

/// Returns the suffix of the tables of the one session in a file.
fn suffix(connection: &Connection) -> String {
    let question = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_kernel_dispatch%'";
    let name: String = connection
        .query_row(question, [], |row| row.get(0))
        .unwrap();
    name.replace("rocpd_kernel_dispatch", "")
}

/// Runs statements in which X stands for the suffix.
fn change(path: &Path, statements: &str) {
    let connection = Connection::open(path).unwrap();
    let statements = statements.replace("_X", &suffix(&connection));
    connection
        .execute_batch("PRAGMA foreign_keys = OFF")
        .unwrap();
    connection.execute_batch(&statements).unwrap();
}

/// Two records of HIP events and two waits, each with the times of the device.
fn with_events(directory: &Path) -> PathBuf {
    let trace = session_with(4242, |put| {
        for (number, operation, queue, handle) in [
            (1, hip_event::RECORD, 1, 0xe1),
            (2, hip_event::WAIT, 2, 0xe1),
            (3, hip_event::RECORD, 2, 0xe2),
            (4, hip_event::WAIT, 1, 0xe2),
        ] {
            let start = BEGIN + 80_000 + 20 * number;
            put(event::encode(
                &Barrier {
                    header: header(kind::BARRIER, 0),
                    start,
                    end: start + 10,
                    rung: start - 5,
                    seen: start + 15,
                    correlation: 300 + number,
                    packet_index: number,
                    queue_id: queue,
                    node: 1,
                    tid: 4242,
                    ..Barrier::default()
                },
                &[],
            ));
            put(event::encode(
                &EventCall {
                    header: header(kind::HIP_EVENT, operation),
                    start,
                    end: start + 10,
                    correlation: 300 + number,
                    stream: 0x9990,
                    event: handle,
                    tid: 4242,
                    ..EventCall::default()
                },
                &[],
            ));
        }
    });
    database(directory, &trace)
}

/// Moves the events into the table of schema 3.0.4.
fn to_3_0_4(path: &Path) {
    change(
        path,
        "CREATE TABLE rocpd_hip_event_X (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, guid TEXT NOT NULL, nid INTEGER NOT NULL,
             pid INTEGER NOT NULL, tid INTEGER, start BIGINT NOT NULL, \"end\" BIGINT NOT NULL, name_id INTEGER NOT NULL,
             agent_id INTEGER, queue_id INTEGER, stream_id INTEGER, hip_event_handle BIGINT NOT NULL, source_queue_id INTEGER,
             event_id INTEGER, extdata JSONB NOT NULL DEFAULT '{}');
         INSERT INTO rocpd_hip_event_X (guid, nid, pid, tid, start, \"end\", name_id, agent_id, queue_id, stream_id,
             hip_event_handle, source_queue_id, event_id)
         SELECT r.guid, r.nid, r.pid, r.tid, r.start, r.\"end\", r.name_id, e.extdata ->> '$.agent_id', e.extdata ->> '$.queue_id',
             e.extdata ->> '$.stream_id', e.extdata ->> '$.hip_event_handle', e.extdata ->> '$.source_queue_id', r.event_id
         FROM rocpd_region_X AS r JOIN rocpd_event_X AS e ON e.id = r.event_id JOIN rocpd_string_X AS s ON s.id = e.category_id
         WHERE s.string = 'BARRIER';
         DELETE FROM rocpd_region_X WHERE event_id IN (SELECT event_id FROM rocpd_hip_event_X);
         UPDATE rocpd_event_X SET extdata = '{}' WHERE id IN (SELECT event_id FROM rocpd_hip_event_X);
         UPDATE rocpd_string_X SET string = 'HIP_EVENT' WHERE string = 'BARRIER';
         UPDATE rocpd_metadata_X SET value = '3.0.4' WHERE tag = 'schema_version';
         UPDATE rocpd_metadata_X SET value = '4' WHERE tag = 'schema_version_patch';
         CREATE VIEW rocpd_hip_event AS SELECT * FROM rocpd_hip_event_X;
         CREATE VIEW hip_events AS SELECT h.*, s.string AS name, h.\"end\" - h.start AS duration
         FROM rocpd_hip_event AS h JOIN rocpd_string AS s ON s.id = h.name_id",
    );
}

#[test]
fn hip_events_of_schema_3_0_4_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_events(dir.path());
    let out = dir.path().join("out");
    let converted = || {
        let input = Input::open(std::slice::from_ref(&path)).unwrap();
        let notes = convert(&input, &plan(&out, &FORMATS), CsvForm::Attach, None)
            .unwrap()
            .notes;
        assert_eq!(notes, [""; 0]);
        let mut tables = plan(&out, &[Format::Csv]);
        tables.prefix = "amd".to_owned();
        convert(&input, &tables, CsvForm::Rocpd, None).unwrap();
        let all = files(&out);
        std::fs::remove_dir_all(&out).unwrap();
        all
    };
    let wanted = converted();
    let table = &wanted["amd_hip_event_trace.csv"];
    assert_eq!(table.lines().count(), 1 + 4, "{table}");
    assert!(
        table.starts_with("\"Guid\",\"Kind\",\"Operation\",\"Agent_Id\",\"Queue_Id\",\"Stream_Id\",\"Thread_Id\",\"Event_Handle\",\"Source_Queue_Id\",\"Correlation_Id\","),
        "{table}"
    );
    to_3_0_4(&path);
    assert_eq!(count(&path, "SELECT COUNT(*) FROM hip_events"), 4);
    let found = converted();
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (name, text) in &wanted {
        assert!(found[name] == *text, "{name}: {} {text}", found[name]);
    }
}

/// The view is there for files of each schema, alone, together and in a window, and so is its summary.
#[test]
fn a_query_finds_hip_events_of_each_schema() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        directory
    };
    let ours = with_events(&of("ours"));
    let amds = with_events(&of("amds"));
    to_3_0_4(&amds);
    let without = of_amd(dir.path(), "hip724");
    let mut files = Vec::new();
    let out = dir.path().join("out");
    let target = |name: &str| Target {
        format: midair_rocpd::Format::Csv,
        directory: out.clone(),
        name: name.to_owned(),
    };
    let window = Window {
        start: BEGIN as i64 + 80_000,
        end: BEGIN as i64 + 80_055,
        inclusive: true,
    };
    for (name, paths, window, rows) in [
        ("ours", vec![&ours], None, 4),
        ("amds", vec![&amds], None, 4),
        ("within", vec![&amds], Some(window), 2),
        ("none", vec![&without], None, 0),
        ("together", vec![&amds, &without], None, 4),
    ] {
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        let input = Input::open(&paths).unwrap();
        let sql = "SELECT name, hip_event_handle, duration FROM hip_events";
        query(&input, sql, None, window, &target(name), &mut |_| ()).unwrap();
        let text = std::fs::read_to_string(out.join(format!("{name}.csv"))).unwrap_or_default();
        assert_eq!(text.lines().skip(1).count(), rows, "{name}: {text}");
        files.push(paths);
    }
    let options = SummaryOptions::default();
    let input = Input::open(&files[1]).unwrap();
    summary(&input, &options, None, &target("s"), &mut |_| ()).unwrap();
    let text = std::fs::read_to_string(out.join("s_hip_events_summary.csv")).unwrap();
    assert!(
        text.contains("HIP_EVENT_RECORD") && text.contains("HIP_EVENT_WAIT"),
        "{text}"
    );
}

/// A view in the place of the table is refused, as of each other table.
#[test]
fn a_table_of_events_with_no_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), &session(4242));
    change(
        &path,
        "CREATE VIEW rocpd_hip_event_X AS WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n) SELECT * FROM n",
    );
    let what = Input::open(&[path]).unwrap_err().what;
    assert!(
        what.contains("is not a table with stored columns"),
        "{what}"
    );
}

/// Gives AMD's file of counters the columns of later schemas, and samples within its dispatches.
fn with_samples(directory: &Path) -> PathBuf {
    let path = of_amd(directory, "pmc");
    change(
        &path,
        "ALTER TABLE rocpd_pmc_event_X ADD COLUMN sample_id INTEGER;
         ALTER TABLE rocpd_pmc_event_X ADD COLUMN xcc INTEGER;
         ALTER TABLE rocpd_pmc_event_X ADD COLUMN shader_engine INTEGER;
         ALTER TABLE rocpd_pmc_event_X ADD COLUMN shader_array INTEGER;
         ALTER TABLE rocpd_pmc_event_X ADD COLUMN wgp INTEGER;
         ALTER TABLE rocpd_pmc_event_X ADD COLUMN instance INTEGER;
         INSERT INTO rocpd_track_X (id, nid, pid) SELECT 900, nid, id FROM rocpd_info_process_X;
         INSERT INTO rocpd_sample_X (id, track_id, timestamp) VALUES (1, 900, 7000), (2, 900, 8000);
         INSERT INTO rocpd_pmc_event_X (event_id, pmc_id, value, sample_id, xcc, shader_engine, shader_array, wgp, instance)
         SELECT MIN(v.event_id), v.pmc_id, 1e9, s.id, 0, 3, 0, 1, 5 FROM rocpd_pmc_event_X AS v, rocpd_sample_X AS s
         JOIN rocpd_info_pmc_X AS c ON c.id = v.pmc_id WHERE c.name = 'SQ_WAVES' GROUP BY s.id",
    );
    path
}

#[test]
fn samples_within_a_dispatch_are_not_added_to_what_it_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = with_samples(dir.path());
    let input = Input::open(std::slice::from_ref(&path)).unwrap();
    let out = dir.path().join("out");
    let formats = [Format::Csv, Format::Json];
    let converted = convert(&input, &plan(&out, &formats), CsvForm::Attach, None).unwrap();
    let notes = converted.notes.join("; ");
    assert!(
        notes.starts_with("2 counter values of samples within dispatches in ")
            && notes.ends_with("by rocpd alone"),
        "{notes}"
    );
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../output/tests/golden/pmc");
    let file = "r_counter_collection.csv";
    let found = std::fs::read_to_string(out.join(file)).unwrap();
    assert_eq!(found, std::fs::read_to_string(golden.join(file)).unwrap());
    let json = std::fs::read_to_string(out.join("r_results.json")).unwrap();
    assert!(!json.contains("1000000000.0"), "{json}");
    // AMD's command has a table of them.
    let converted = convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Rocpd, None).unwrap();
    let file = out.join("r_spm_counter_collection_trace.csv");
    assert!(converted.files.contains(&file), "{:?}", converted.files);
    let text = std::fs::read_to_string(file).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 3, "{text}");
    let headings = "\"Sgpr_Count\",\"Counter_Name\",\"Counter_Value\",\"Timestamp\"";
    assert!(rows[0].ends_with(headings), "{text}");
    assert!(
        rows[1].contains("SQ_WAVES[XCC: 0, SE: 3, Instance: 5]"),
        "{text}"
    );
    assert!(
        rows[1].contains("7000") && rows[2].contains("8000"),
        "{text}"
    );
    let text = std::fs::read_to_string(out.join("r_counter_collection_trace.csv")).unwrap();
    assert!(
        !text.contains("Replay_Pass") && !text.contains("000000000.0"),
        "{text}"
    );
}

#[test]
fn passes_of_kernel_replay_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = of_amd(dir.path(), "pmc");
    change(
        &path,
        "ALTER TABLE rocpd_kernel_dispatch_X ADD COLUMN replay_pass INTEGER;
         UPDATE rocpd_kernel_dispatch_X SET replay_pass = id - (SELECT MIN(id) FROM rocpd_kernel_dispatch_X), dispatch_id = 1",
    );
    let out = dir.path().join("out");
    let input = Input::open(&[path]).unwrap();
    convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Rocpd, None).unwrap();
    let text = std::fs::read_to_string(out.join("r_counter_collection_trace.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|row| row.split(',').collect()).collect();
    assert_eq!(
        (rows[0][2], rows[0][3]),
        ("\"Dispatch_Id\"", "\"Replay_Pass\"")
    );
    let mut passes: Vec<&str> = rows[1..].iter().map(|row| row[3]).collect();
    passes.sort_unstable();
    assert_eq!(passes, ["0", "0", "1", "1", "2", "2"], "{text}");
}

/// A range that AMD's tool stored names the kernel; others keep their names.
#[test]
fn kernels_are_named_by_the_ranges_of_amds_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = of_amd(dir.path(), "hip724");
    change(
        &path,
        "INSERT INTO rocpd_string_X (string) VALUES ('step \"1\"');
         UPDATE rocpd_kernel_dispatch_X SET region_name_id = (SELECT id FROM rocpd_string_X WHERE string = 'step \"1\"')
         WHERE id = (SELECT MIN(id) FROM rocpd_kernel_dispatch_X)",
    );
    let dispatches = count(
        &path,
        "SELECT COUNT(*) FROM kernels WHERE name LIKE 'vadd%'",
    );
    assert!(dispatches > 1);
    let out = dir.path().join("out");
    let input = Input::open(std::slice::from_ref(&path)).unwrap();
    let mut plan = plan(&out, &FORMATS);
    for (rename, named) in [(false, 0), (true, 1)] {
        plan.rename_kernels = rename;
        for form in [CsvForm::Attach, CsvForm::Rocpd] {
            convert(&input, &plan, form, None).unwrap();
            let all = files(&out);
            std::fs::remove_dir_all(&out).unwrap();
            let csv = &all["r_kernel_trace.csv"];
            let of = |name: &str| csv.lines().filter(|row| row.contains(name)).count() as i64;
            let range = if csv.contains("step \"\"1") {
                "step \"\"1\"\""
            } else {
                "step \"1\""
            };
            assert_eq!(
                (of(range), of("vadd")),
                (named, dispatches - named),
                "{csv}"
            );
            assert_eq!(all["r_results.pftrace"].contains("step \"1\""), rename);
            assert_eq!(all["r_results.json"].contains("step \\\"1\\\""), rename);
        }
    }
    // The summary has the name, too.
    let target = Target {
        format: midair_rocpd::Format::Csv,
        directory: out.clone(),
        name: "s".to_owned(),
    };
    let options = SummaryOptions {
        by_range: true,
        ..SummaryOptions::default()
    };
    summary(&input, &options, None, &target, &mut |_| ()).unwrap();
    let text = std::fs::read_to_string(out.join("s_kernels_summary.csv")).unwrap();
    assert!(text.contains("step"), "{text}");
}

/// midair's files have the times of doorbells, so that ranges are found also without the option of the attach.
#[test]
fn kernels_are_named_afterwards_as_an_attach_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let trace = session(4242);
    let out = dir.path().join("out");
    let mut plan = plan(&out, &FORMATS);
    plan.rename_kernels = true;
    write(&trace, &Names::amd(), &plan).unwrap();
    let wanted = files(&out);
    std::fs::remove_dir_all(&out).unwrap();
    assert!(wanted["r_kernel_trace.csv"].contains("round"), "{wanted:?}");
    let input = Input::open(&[database(dir.path(), &trace)]).unwrap();
    convert(&input, &plan, CsvForm::Attach, None).unwrap();
    let found = files(&out);
    for (name, text) in &wanted {
        assert!(found[name] == *text, "{name}: {} {text}", found[name]);
    }
}
