//! Conversions equal what the writers write without a database between.

use crate::common::{database, of_amd, plan, sampled_session, session};
use midair_output::{Format, Names, Trace, write, write_together};
use midair_record::event::kind;
use midair_rocpd::{Bound, CsvForm, Input, Window, convert, merge};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the files below a directory.
pub fn files(directory: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            all.insert(name, String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    all
}

/// Panics with the first line or piece that differs.
fn compare(ours: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) {
    let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(wanted));
    for (name, text) in wanted {
        let found = &ours[name];
        if found == text {
            continue;
        }
        let split = |text: &str| -> Vec<String> {
            text.split_inclusive(['\n', ',', '{'])
                .map(str::to_owned)
                .collect()
        };
        let (found, text) = (split(found), split(text));
        let at = found.iter().zip(&text).position(|(a, b)| a != b);
        let at = at.unwrap_or(found.len().min(text.len()));
        let around = |all: &[String]| all[at.saturating_sub(6)..(at + 4).min(all.len())].concat();
        panic!(
            "{name}: found {:?}, wanted {:?}",
            around(&found),
            around(&text)
        );
    }
}

/// Checks that a database becomes what is written without one.
pub fn check_formats(trace: &Trace, formats: &[Format]) -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let (direct, ours) = (dir.path().join("direct"), dir.path().join("direct"));
    let names = Names::amd();
    write(trace, &names, &plan(&direct, formats)).unwrap();
    let wanted = files(&direct);
    let input = Input::open(&[database(dir.path(), trace)]).unwrap();
    std::fs::remove_dir_all(&direct).unwrap();
    // The same directory, since json has its name.
    let converted = convert(&input, &plan(&ours, formats), CsvForm::Attach, None).unwrap();
    assert_eq!(converted.notes, [""; 0]);
    compare(&files(&ours), &wanted);
    wanted
}

#[test]
fn formats_are_those_of_the_direct_writers() {
    let formats = [
        Format::Csv,
        Format::Json,
        Format::Pftrace,
        Format::Otf2,
        Format::Kineto,
        Format::Html,
    ];
    let wanted = check_formats(&session(4242), &formats);
    assert!(wanted.len() > 12, "{:?}", wanted.keys());
}

#[test]
fn samples_of_program_counters_come_back_from_a_database() {
    let formats = [Format::Csv, Format::Json, Format::Html, Format::Folded];
    for (kind, end, rows) in [
        (kind::PC_SAMPLING_STOCHASTIC, "stochastic.csv", 39),
        (kind::PC_SAMPLING_HOST_TRAP, "host_trap.csv", 40),
    ] {
        let trace = sampled_session(4242, kind);
        let wanted = check_formats(&trace, &formats);
        let of = |end: &str| {
            wanted
                .iter()
                .find(|(name, _)| name.ends_with(end))
                .unwrap()
                .1
        };
        let (csv, folded) = (of(end), of(".folded"));
        assert_eq!(csv.lines().count(), 1 + rows);
        assert!(csv.contains("s_waitcnt lgkmcnt(0)") && csv.contains("/src/vadd.hip:7"));
        assert!(folded.contains("src/vadd.hip:7 (sampled)"), "{folded}");
    }
}

/// The view for people, with a part of the time, and of two sessions of which one has samples.
#[test]
fn a_query_finds_samples_with_their_instructions() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, trace: &Trace| {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        database(&directory, trace)
    };
    let sampled = sampled_session(4242, kind::PC_SAMPLING_STOCHASTIC);
    let paths = [of("a", &session(5000)), of("b", &sampled)];
    let merged = dir.path().join("both.db");
    merge(&paths, &merged).unwrap();
    for path in [&paths[1], &merged] {
        let database = rusqlite::Connection::open(path).unwrap();
        let question = "SELECT COUNT(*), SUM(instruction = 's_waitcnt lgkmcnt(0)'), SUM(stall_reason LIKE '%_WAITCNT') FROM pc_samples";
        let row = database.query_row(question, [], |row| {
            Ok([0, 1, 2].map(|at| row.get::<_, i64>(at).unwrap()))
        });
        // Of each third sample the first instruction; a stall at a wait where the number's bits 2 to 4 are 2.
        let all = (0..40_i64).filter(|number| *number != 4);
        let first = all.clone().filter(|number| number % 3 == 0).count() as i64;
        let waits = all.filter(|number| number % 16 / 4 == 2).count() as i64;
        assert_eq!(row.unwrap(), [39, first, waits], "{}", path.display());
    }
    let out = dir.path().join("out");
    let window = Window {
        start: 1_000_000_000,
        end: 1_000_009_000,
        inclusive: true,
    };
    let input = Input::open(&[merged]).unwrap();
    convert(
        &input,
        &plan(&out, &[Format::Csv]),
        CsvForm::Attach,
        Some(window),
    )
    .unwrap();
    let all = files(&out);
    let csv = all
        .iter()
        .find(|(name, _)| name.ends_with("stochastic.csv"));
    assert_eq!(csv.unwrap().1.lines().count(), 1 + 9);
}

#[test]
fn several_databases_become_one_result() {
    let dir = tempfile::tempdir().unwrap();
    let traces = [session(4242), session(5000)];
    let out = dir.path().join("out");
    write_together(&traces, &Names::amd(), &plan(&out, &[Format::Csv])).unwrap();
    let wanted = files(&out);
    std::fs::remove_dir_all(&out).unwrap();
    let of = |name: &str, trace| {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        database(&directory, trace)
    };
    let paths = [of("a", &traces[0]), of("b", &traces[1])];
    let input = Input::open(&paths).unwrap();
    convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Attach, None).unwrap();
    compare(&files(&out), &wanted);
    // One session twice is refused, and so is a file that is none.
    let twice = Input::open(&[paths[0].clone(), paths[0].clone()]).unwrap_err();
    assert!(twice.what.contains("the same session"), "{}", twice.what);
    let other = dir.path().join("other.db");
    std::fs::write(&other, "no database").unwrap();
    assert_eq!(Input::open(&[other]).unwrap_err().kind.exit_code(), 40);
}

#[test]
fn amds_database_becomes_amds_csv_files() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../output/tests/golden");
    let input = Input::open(&[of_amd(dir.path(), "hip724")]).unwrap();
    let out = dir.path().join("out");
    let converted = convert(
        &input,
        &plan(&out, &[Format::Csv, Format::Json]),
        CsvForm::Attach,
        None,
    )
    .unwrap();
    let notes = converted.notes.join("\n");
    assert!(notes.starts_with("arguments of 2 calls in "), "{notes}");
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // AMD's tool sorts calls by their start in csv, and not in the database.
        lines.sort();
        lines
    };
    for name in [
        "agent_info",
        "hip_api_trace",
        "hsa_api_trace",
        "kernel_trace",
        "memory_copy_trace",
    ] {
        let file = format!("r_{name}.csv");
        let wanted = std::fs::read_to_string(golden.join(&file)).unwrap();
        let ours = std::fs::read_to_string(out.join(&file)).unwrap();
        assert_eq!(lines(&ours), lines(&wanted), "{name}");
    }
}

#[test]
fn a_window_has_what_is_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::open(&[database(dir.path(), &session(4242))]).unwrap();
    let begin = 1_000_000_000;
    let dispatches = |start: Bound, end: Bound, inclusive| {
        let window = Window::of(&input, Some(&start), Some(&end), inclusive).unwrap();
        let out = dir.path().join("out");
        convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Attach, window).unwrap();
        let text = std::fs::read_to_string(out.join("r_kernel_trace.csv")).unwrap_or_default();
        std::fs::remove_dir_all(&out).unwrap();
        text.lines().skip(1).count()
    };
    let (start, end) = (Bound::Time(begin + 10_000), Bound::Time(begin + 21_200));
    assert_eq!(dispatches(start.clone(), end.clone(), true), 1);
    assert_eq!(dispatches(start, end, false), 2);
    // From the start of the second range to the end of the third.
    let marker = |round: u32| Bound::Marker(format!("round \"{round}\""));
    assert_eq!(dispatches(marker(1), marker(2), true), 2);
    assert_eq!(dispatches(Bound::Share(0.0), Bound::Share(1.0), true), 5);
    let refused = |start, end| {
        let window = Window::of(&input, Some(&start), Some(&end), true);
        window.unwrap_err().what
    };
    let what = refused(Bound::Share(0.5), Bound::Share(0.1));
    assert!(what.contains("is before its start"), "{what}");
    let what = refused(Bound::Time(1), Bound::Time(2));
    assert!(what.contains("nothing was recorded"), "{what}");
    let what = refused(marker(9), marker(2));
    assert!(what.contains("no marker"), "{what}");
    let what = refused(Bound::Marker("mark".to_owned()), marker(2));
    assert!(what.contains("more than one"), "{what}");
}

#[test]
fn values_of_counters_are_in_csv() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../output/tests/golden/pmc");
    let input = Input::open(&[of_amd(dir.path(), "pmc")]).unwrap();
    let out = dir.path().join("out");
    let converted = convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Attach, None).unwrap();
    let file = "r_counter_collection.csv";
    assert_eq!(
        std::fs::read_to_string(out.join(file)).unwrap(),
        std::fs::read_to_string(golden.join(file)).unwrap()
    );
    assert!(converted.files.contains(&out.join(file)));
    assert_eq!(converted.notes, [""; 0]);
    // Without the start of the time there are two of the three dispatches.
    let window = Window::of(&input, Some(&Bound::Share(0.1)), None, true).unwrap();
    convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Attach, window).unwrap();
    let text = std::fs::read_to_string(out.join(file)).unwrap();
    assert_eq!(text.lines().count(), 1 + 2 * 2, "{text}");
    let kineto = dir.path().join("kineto");
    let formats = [Format::Kineto];
    let converted = convert(&input, &plan(&kineto, &formats), CsvForm::Attach, None).unwrap();
    let notes = converted.notes.join("; ");
    assert!(notes.contains("27 counter values"), "{notes}");
    assert!(notes.ends_with("not to kineto"), "{notes}");
    // Each value at each place is in json.
    let json = dir.path().join("json");
    let converted = convert(&input, &plan(&json, &[Format::Json]), CsvForm::Attach, None).unwrap();
    assert!(!json.join(file).exists());
    assert_eq!(converted.notes, [""; 0]);
    let text = std::fs::read_to_string(json.join("r_results.json")).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let counted = &tool["callback_records"]["counter_collection"];
    let counted = counted.as_array().unwrap();
    let values = counted
        .iter()
        .flat_map(|one| one["records"].as_array().unwrap());
    let values: Vec<f64> = values.map(|one| one["value"].as_f64().unwrap()).collect();
    assert_eq!((counted.len(), values.len()), (3, 27));
    let question = "SELECT CAST(SUM(value) AS INTEGER) FROM rocpd_pmc_event";
    let sum = crate::common::count(&of_amd(dir.path(), "pmc"), question);
    assert_eq!(values.iter().sum::<f64>(), sum as f64);
    let names: Vec<_> = tool["counters"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["GRBM_COUNT", "SQ_WAVES"]);
    // A track for each counter, as in the trace that the attach would have written.
    let trace = dir.path().join("trace");
    let formats = [Format::Pftrace];
    let converted = convert(&input, &plan(&trace, &formats), CsvForm::Rocpd, None).unwrap();
    assert_eq!(converted.notes, [""; 0]);
    let bytes = std::fs::read(trace.join("r_results.pftrace")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    for counter in ["GRBM_COUNT", "SQ_WAVES"] {
        assert!(
            text.contains(&format!("Agent [1] PMC {counter}")),
            "{counter}"
        );
    }
}

/// Returns the headings of a csv file, and how many rows it has.
fn table(path: &Path) -> (String, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let headings = text.lines().next().unwrap_or_default().replace('"', "");
    (headings, text.lines().count() - 1)
}

/// AMD's command has other tables than rocprofv3.
#[test]
fn csv_of_amds_command_has_amds_tables() {
    let dir = tempfile::tempdir().unwrap();
    let input = Input::open(&[database(dir.path(), &session(4242))]).unwrap();
    let out = dir.path().join("out");
    let converted = convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Rocpd, None).unwrap();
    let names = [
        "agent_info",
        "kernel_trace",
        "memory_allocation_trace",
        "memory_copy_trace",
        "regions_trace",
        "scratch_memory_trace",
    ];
    let wanted = names.map(|name| out.join(format!("r_{name}.csv")));
    assert_eq!(converted.files, wanted);
    let times = "Correlation_Id,Start_Timestamp,End_Timestamp";
    for (name, headings, rows) in [
        (
            "kernel_trace",
            format!(
                "Guid,Kind,Agent_Id,Queue_Id,Stream_Id,Graph_Exec_Id,Graph_Node_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,\
                 {times},Duration,Lds_Block_Size,Scratch_Size,Vgpr_Count,Accum_Vgpr_Count,Sgpr_Count,Workgroup_Size_X,\
                 Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
            ),
            6,
        ),
        ("memory_allocation_trace", format!("Guid,Kind,Operation,Agent_Id,Allocation_Size,Address,{times}"), 6),
        (
            "memory_copy_trace",
            format!("Guid,Kind,Direction,Stream_Id,Graph_Exec_Id,Graph_Node_Id,Source_Agent_Id,Destination_Agent_Id,{times}"),
            5,
        ),
        // Five of HIP and five of HSA, and five ranges; a mark is no region.
        ("regions_trace", format!("Guid,Domain,Function,Process_Id,Thread_Id,{times}"), 15),
        (
            "scratch_memory_trace",
            "Guid,Kind,Operation,Agent_Id,Queue_Id,Thread_Id,Alloc_Flags,Start_Timestamp,End_Timestamp".to_owned(),
            1,
        ),
    ] {
        assert_eq!(table(&out.join(format!("r_{name}.csv"))), (headings, rows), "{name}");
    }
    let (headings, agents) = table(&out.join("r_agent_info.csv"));
    assert!(
        headings.starts_with("Guid,Node_Id,Logical_Node_Id,Agent_Type,Cpu_Cores_Count,"),
        "{headings}"
    );
    assert!(
        headings.ends_with(",Grid_Max_Dim_Z,Name,Vendor_Name,Product_Name,Model_Name"),
        "{headings}"
    );
    assert_eq!((headings.split(',').count(), agents), (78, 2));
    // AMD's own database, of a version without graphs.
    let input = Input::open(&[of_amd(dir.path(), "pmc")]).unwrap();
    let converted = convert(&input, &plan(&out, &[Format::Csv]), CsvForm::Rocpd, None).unwrap();
    assert!(!converted.files.is_empty());
    let (headings, rows) = table(&out.join("r_counter_collection_trace.csv"));
    assert_eq!(
        headings,
        format!(
            "Guid,Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Grid_Size,Kernel_Id,Kernel_Name,Workgroup_Size,\
             Lds_Block_Size,Scratch_Size,Vgpr_Count,Accum_Vgpr_Count,Sgpr_Count,Counter_Name,Counter_Value,Start_Timestamp,End_Timestamp"
        )
    );
    assert_eq!(rows, 6);
    assert!(!table(&out.join("r_kernel_trace.csv")).0.contains("Graph"));
}
