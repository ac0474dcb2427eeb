//! OTF2 archives, read by OTF2's own library (`tests/python/otf2_read.py`) and by Debian's
//! otf2-print, which is an older version of it. Names and times must equal those in the same
//! session's csv files.

use crate::common::{
    append, contains, entries, golden_json, list, names, text, trace, trace_of, writer,
};
use crate::counters::{NODE, amds_plan, put, put_kernel, session, window};
use crate::cuda::rows;
use crate::readings::readings;
use crate::recordings::recorded;
use crate::rocpd_rows::{every_domain, header, one_kernel, plan, put_marker};
use midair_output::{Format, GpuMetric, GpuSamples, Names, Plan, Trace, write, write_together};
use midair_record::event::{self, Api, Kernel, Marker, kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns what is in `r_results.otf2`, as two versions of OTF2's library see it.
fn read(directory: &Path) -> Value {
    let anchor = directory.join("r_results.otf2");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/otf2_read.py");
    let output = Command::new(midair_tests::python().unwrap())
        .arg(script)
        .arg(&anchor)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    printed(&anchor, &found);
    found
}

/// Tests that otf2-print, if it is there, sees as many events.
fn printed(anchor: &Path, found: &Value) {
    let Some(otf2_print) = midair_tests::program("otf2-print", "otf2-tools").unwrap() else {
        return;
    };
    let run = |words: &[&str]| {
        let mut command = Command::new(&otf2_print);
        let output = command.args(words).arg(anchor).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let events = run(&["-Werror"]);
    let count = |word: &str| events.lines().filter(|line| line.starts_with(word)).count();
    let regions = list(&found["regions"]).len();
    assert_eq!((count("ENTER "), count("LEAVE ")), (regions, regions));
    assert_eq!(count("METRIC "), list(&found["metrics"]).len());
    let info = run(&["-I"]);
    let locations = list(&found["locations"]).len();
    let says = |what: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_default().trim().to_owned()
    };
    assert_eq!(says("Number of locations"), locations.to_string(), "{info}");
    assert!(says("Creator").starts_with("midair "), "{info}");
    let defined = run(&["-G"]);
    let definitions = defined
        .lines()
        .filter(|line| {
            let word = line.split(' ').next().unwrap_or_default();
            !word.is_empty()
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
        .count();
    assert_eq!(
        says("Number of global definitions"),
        definitions.to_string(),
        "{defined}"
    );
}

/// Writes a session as OTF2 and csv, and returns what is in the archive.
fn written(trace: &Trace, names: &Names, directory: &Path) -> Value {
    let formats = [Format::Otf2, Format::Csv];
    write(trace, names, &plan(directory, &formats)).unwrap();
    read(directory)
}

/// A csv file, the categories of its records, and the attributes or columns that are compared.
/// `name` is the region's.
type Table = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

const TABLES: &[Table] = &[
    (
        "kernel_trace",
        &["kernel_dispatch"],
        &[
            ("Kernel_Name", "name"),
            ("Correlation_Id", "correlation_id"),
            ("Queue_Id", "queue_id"),
            ("Stream_Id", "stream_id"),
            ("Thread_Id", "thread_id"),
            ("Dispatch_Id", "dispatch_id"),
            ("Kernel_Id", "kernel_id"),
            ("Scratch_Size", "private_segment_size"),
            ("VGPR_Count", "vgpr_count"),
            ("Workgroup_Size_X", "workgroup_size_x"),
            ("Grid_Size_X", "grid_size_x"),
            ("Grid_Size_Z", "grid_size_z"),
        ],
    ),
    (
        "memory_copy_trace",
        &["memory_copy"],
        &[
            ("Direction", "name"),
            ("Correlation_Id", "correlation_id"),
            ("Stream_Id", "stream_id"),
            ("Source_Agent_Id", "source"),
            ("Destination_Agent_Id", "destination"),
        ],
    ),
    ("hip_api_trace", &["hip_api"], CALLS),
    ("hsa_api_trace", &["hsa_api"], CALLS),
    (
        "marker_api_trace",
        &["marker_api"],
        &[
            ("Function", "name"),
            ("Thread_Id", "thread_id"),
            ("Correlation_Id", "correlation_id"),
        ],
    ),
    ("cuda_api_trace", &["cuda_api"], CALLS),
    (
        "memory_allocation_trace",
        &["memory_allocation"],
        &[
            ("Operation", "name"),
            ("Correlation_Id", "correlation_id"),
            ("Allocation_Size", "bytes"),
        ],
    ),
    (
        "scratch_memory_trace",
        &["scratch_memory"],
        &[
            ("Operation", "name"),
            ("Queue_Id", "queue_id"),
            ("Thread_Id", "thread_id"),
            ("Allocation_Size", "bytes"),
        ],
    ),
];

const CALLS: &[(&str, &str)] = &[
    ("Function", "name"),
    ("Thread_Id", "thread_id"),
    ("Thread_Id", "location"),
    ("Correlation_Id", "correlation_id"),
];

/// Tests that the archive has the rows of csv, and returns how many there are in each table. Where
/// csv has no times, the archive says why.
fn compared(directory: &Path, found: &Value) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let mut seen = 0;
    for (table, categories, columns) in TABLES {
        let mut ours: Vec<Vec<String>> = Vec::new();
        for region in list(&found["regions"]) {
            let attributes = &region["attributes"];
            if !categories.contains(&attributes["category"].as_str().unwrap()) {
                continue;
            }
            let mut row = match attributes.get("untimed") {
                Some(_) => vec!["0".to_owned(), "0".to_owned()],
                None => vec![region["start"].to_string(), region["end"].to_string()],
            };
            row.extend(columns.iter().map(|(_, name)| match *name {
                // Csv has no ends of lines within a field.
                "name" => text(&region["name"]).replace('\n', " "),
                // "Thread 12 (worker)" of the thread 12.
                "location" => {
                    let name = text(&region["location"]);
                    let word = name.split(' ').nth(1);
                    word.unwrap_or_default().to_owned()
                }
                name => match &attributes[name] {
                    Value::String(text) => text.clone(),
                    number => number.to_string(),
                },
            }));
            ours.push(row);
        }
        let file = directory.join(format!("r_{table}.csv"));
        let mut theirs: Vec<Vec<String>> = match file.exists() {
            true => rows(directory, table),
            false => Vec::new(),
        }
        .iter()
        .map(|row| {
            let times = ["Start_Timestamp", "End_Timestamp"].into_iter();
            let all = times.chain(columns.iter().map(|column| column.0));
            all.map(|column| row[column].replace("\"\"", "\""))
                .collect()
        })
        .collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours.len(), theirs.len(), "{table}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{table}: {columns:?}");
        }
        seen += ours.len();
        counts.insert(*table, ours.len());
    }
    let others = list(&found["regions"]).len() - seen;
    counts.insert("others", others);
    counts
}

#[test]
fn amds_session_has_the_rows_of_csv() {
    let golden = golden_json();
    let names = names(&golden);
    let directory = tempfile::tempdir().unwrap();
    let mut trace = trace(&golden, &names);
    trace.process.threads.insert(2371, "main".to_owned());
    let found = written(&trace, &names, directory.path());
    let counts = compared(directory.path(), &found);
    assert_eq!(
        counts,
        BTreeMap::from([
            ("kernel_trace", 9),
            ("memory_copy_trace", 9),
            ("hip_api_trace", 62),
            ("hsa_api_trace", 874),
            ("marker_api_trace", 0),
            ("cuda_api_trace", 0),
            ("memory_allocation_trace", 0),
            ("scratch_memory_trace", 0),
            ("others", 0),
        ])
    );
    assert_eq!(found["crossing"], 0);
    assert_eq!(found["resolution"], 1_000_000_000);
    let regions = list(&found["regions"]);
    let times = |key: &str| -> Vec<u64> {
        let time = |region: &Value| region[key].as_u64().unwrap();
        regions.iter().map(time).collect()
    };
    assert_eq!(found["first"].as_u64(), times("start").into_iter().min());
    assert_eq!(found["last"].as_u64(), times("end").into_iter().max());
    // HSA's calls are within HIP's.
    let depths = |category: &str| -> Vec<u64> {
        let of = |region: &&Value| region["attributes"]["category"] == category;
        let depth = |region: &Value| region["depth"].as_u64().unwrap();
        regions.iter().filter(of).map(depth).collect()
    };
    assert!(depths("hip_api").iter().all(|depth| *depth == 0));
    assert!(
        depths("hsa_api")
            .iter()
            .filter(|depth| **depth == 1)
            .count()
            > 100
    );
    let one = regions.iter().find(|region| {
        text(&region["name"]).starts_with("vadd(") && region["attributes"]["dispatch_id"] == 1
    });
    let one = one.unwrap();
    assert_eq!(
        [
            &one["role"],
            &one["paradigm"],
            &one["group"],
            &one["location"]
        ],
        ["FUNCTION", "HIP", "Agent 1", "Agent 1, Stream 1"]
    );
    assert!(text(&one["symbol"]).starts_with("_Z4vadd"), "{one}");
    let copy = regions
        .iter()
        .find(|region| text(&region["name"]).contains("HOST_TO_DEVICE"));
    assert_eq!(copy.unwrap()["role"], "DATA_TRANSFER");
    let location = |name: &str| {
        let mut all = list(&found["locations"]).iter();
        all.find(|location| location["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(location("Thread 2371 (main)")["type"], "CPU_THREAD");
    let stream = location("Agent 1, Stream 1");
    assert_eq!(
        [&stream["type"], &stream["group_type"], &stream["creator"]],
        // The library's newer name of ACCELERATOR_STREAM.
        ["GPU", "ACCELERATOR", "vadd (2371)"]
    );
    let host = golden["metadata"]["node"]["hostname"].clone();
    let gpu = "Agent 1 (AMD Instinct MI300X (modelled))";
    assert_eq!(
        stream["place"],
        json!([[host, "machine"], [gpu, "AMD GPU"]])
    );
    let domains = [
        [json!(gpu), json!("ACCELERATOR_DEVICE")],
        [host, json!("MACHINE")],
    ];
    let mut domains = domains.map(|domain| json!(domain)).to_vec();
    domains.sort_by_key(|domain| text(&domain[0]));
    assert_eq!(list(&found["domains"]), domains);
    let properties = &found["properties"]["vadd (2371)"];
    assert_eq!(properties["pid"], "2371");
    assert_eq!(properties["midair.outcome"], "complete", "{properties}");
}

#[test]
fn every_domain_has_the_rows_of_csv() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(every_domain(), &golden);
    let found = written(&trace, &names(&golden), directory.path());
    let counts = compared(directory.path(), &found);
    let wanted = [1, 2, 3, 2, 2, 4, 3];
    let tables = [
        "hip_api_trace",
        "hsa_api_trace",
        "marker_api_trace",
        "kernel_trace",
        "memory_copy_trace",
        "memory_allocation_trace",
        "scratch_memory_trace",
    ];
    assert_eq!(tables.map(|table| counts[table]), wanted);
    assert_eq!(counts["others"], 0);
    let regions = list(&found["regions"]);
    let untimed = regions
        .iter()
        .filter_map(|region| region["attributes"].get("untimed"));
    assert_eq!(untimed.count(), 2);
    let open = |region: &&Value| region["attributes"]["open_at_detach"] == 1;
    let open: Vec<&Value> = regions.iter().filter(open).collect();
    assert_eq!(open.len(), 1);
    let roles = |name: &str| {
        let of = |region: &&Value| text(&region["name"]).ends_with(name);
        let role = |region: &Value| text(&region["role"]);
        regions.iter().filter(of).map(role).collect::<Vec<_>>()
    };
    assert_eq!(roles("MEMORY_ALLOCATION_ALLOCATE"), ["ALLOCATE"]);
    assert_eq!(roles("MEMORY_ALLOCATION_FREE"), ["DEALLOCATE"]);
    let range = regions
        .iter()
        .find(|region| region["name"] == "a range")
        .unwrap();
    assert_eq!(range["paradigm"], "USER");
}

#[test]
fn recorded_sessions_have_the_rows_of_csv() {
    for (name, least) in [
        ("hip", 50),
        ("memories", 50),
        ("cuda", 50),
        ("domains", 5),
        ("cuda_domains", 5),
        ("odd", 5),
        ("cuda_odd", 5),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let found = written(&recorded(name), &Names::amd(), directory.path());
        // Csv writes odd names in its own way.
        if !name.ends_with("odd") {
            compared(directory.path(), &found);
        }
        let all = list(&found["regions"]).len();
        assert!(all >= least, "{name}: {all}");
        assert_eq!(found["crossing"], 0, "{name}");
        if name.starts_with("cuda") {
            let regions = list(&found["regions"]).iter();
            let cuda = regions
                .filter(|region| region["paradigm"] == "CUDA")
                .count();
            assert!(cuda >= least, "{name}: {cuda}");
        }
    }
}

/// Kernels of a queue that overlap are on locations of their own. Calls nest, in whatever order
/// their records come.
#[test]
fn what_overlaps_is_apart_and_what_nests_is_together() {
    let golden = golden_json();
    let mut writer = writer();
    for (id, (start, end)) in
        (1..).zip([(100, 200), (150, 250), (200, 300), (150, 160), (250, 260)])
    {
        let kernel = Kernel {
            dispatch_id: id,
            start,
            end,
            ..one_kernel()
        };
        append(&mut writer, &event::encode(&kernel, &[]));
    }
    // The last two are both as long, and the one that was recorded later encloses the other. The
    // others cross.
    for (correlation, (start, end)) in (1..).zip([
        (20, 30),
        (40, 50),
        (10, 60),
        (50, 60),
        (55, 70),
        (80, 90),
        (80, 90),
    ]) {
        let call = Api {
            header: header(kind::HSA_CORE_API, 3),
            start,
            end,
            correlation,
            tid: 5,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&call, &[]));
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(writer, &golden);
    let found = written(&trace, &names(&golden), directory.path());
    compared(directory.path(), &found);
    assert_eq!(found["crossing"], 0);
    let mut on: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut regions = list(&found["regions"]).to_vec();
    regions.sort_by_key(|region| (region["start"].as_u64(), region["depth"].as_u64()));
    for region in &regions {
        let attributes = &region["attributes"];
        let id = attributes
            .get("dispatch_id")
            .or(attributes.get("correlation_id"));
        let location = text(&region["location"]);
        on.entry(location)
            .or_default()
            .push(id.unwrap().as_u64().unwrap());
    }
    assert_eq!(
        on,
        BTreeMap::from([
            ("Agent 1, Stream 1".to_owned(), vec![1, 3]),
            ("Agent 1, Stream 1 (2)".to_owned(), vec![2, 5]),
            ("Agent 1, Stream 1 (3)".to_owned(), vec![4]),
            ("Thread 5".to_owned(), vec![3, 1, 2, 4, 7, 6]),
            ("Thread 5 (2)".to_owned(), vec![5]),
        ])
    );
}

/// Queues have locations where the plan asks for them.
#[test]
fn queues_have_locations_where_they_are_asked_for() {
    let golden = golden_json();
    let names = names(&golden);
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), &[Format::Otf2, Format::Csv]);
    plan.group_by_queue = true;
    write(&trace(&golden, &names), &names, &plan).unwrap();
    let found = read(directory.path());
    compared(directory.path(), &found);
    let locations = list(&found["locations"]).iter();
    let names: Vec<String> = locations.map(|location| text(&location["name"])).collect();
    assert!(names.contains(&"Agent 1, Queue 1".to_owned()), "{names:?}");
    assert!(
        names.contains(&"Thread 2371, Copy to Agent 1".to_owned()),
        "{names:?}"
    );
}

/// Several processes are in one archive, each with its own group of locations.
#[test]
fn several_processes_are_in_one_archive() {
    let golden = golden_json();
    let names = names(&golden);
    let session = |pid: u32| {
        let mut trace = trace(&golden, &names);
        trace.process.pid = pid;
        trace.process.place.rank = Some(u64::from(pid));
        trace
    };
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Otf2]);
    write_together(&[session(41), session(42)], &names, &plan).unwrap();
    let found = read(directory.path());
    let of = |group: &str| {
        let regions = list(&found["regions"]).iter();
        regions.filter(|region| region["group"] == group).count()
    };
    assert_eq!(
        (of("vadd (41)"), of("vadd (42)"), of("Agent 1")),
        (936, 936, 36)
    );
    assert_eq!(found["properties"]["vadd (42)"]["rank"], "42");
    // Both use one GPU of one machine.
    assert_eq!(list(&found["domains"]).len(), 2);
    let locations = list(&found["locations"]).iter();
    let creators: Vec<&Value> = locations.map(|it| &it["creator"]).collect();
    assert!(creators.contains(&&json!("vadd (41)")) && creators.contains(&&json!("vadd (42)")));
}

/// Definitions and events fill more than a chunk, and more than is sorted in memory.
#[test]
fn a_long_session_fills_many_chunks() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    let long = "x".repeat(900);
    for number in 0..6_000_u64 {
        let marker = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 1),
            start: 1_000_000 - 100 * number,
            end: 1_000_050 - 100 * number,
            correlation: number,
            tid: 5,
            ..Marker::default()
        };
        let message = format!("{number} {long}");
        put_marker(&mut writer, marker, message.as_bytes());
    }
    let trace = trace_of(writer, &golden);
    write(
        &trace,
        &names(&golden),
        &plan(directory.path(), &[Format::Otf2]),
    )
    .unwrap();
    let size = |name: &str| {
        std::fs::metadata(directory.path().join(name))
            .unwrap()
            .len()
    };
    assert!(size("r_results.def") > 4 << 20);
    assert!(size("r_results/0.evt") > 1 << 18);
    let found = read(directory.path());
    assert_eq!(list(&found["regions"]).len(), 6_000);
    for (region, number) in list(&found["regions"]).iter().zip((0..6_000).rev()) {
        assert_eq!(region["attributes"]["correlation_id"], number);
        assert!(text(&region["name"]).starts_with(&format!("{number} xx")));
    }
}

/// Samples of a GPU are a metric, which has 0 where there is no sample.
#[test]
fn samples_of_a_gpu_are_metrics() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let mut trace = trace_of(writer(), &golden);
    let metric = GpuMetric {
        name: "sm_busy".to_owned(),
        unit: "%".to_owned(),
        expression: String::new(),
        group: 0,
    };
    let mut samples = GpuSamples::new(3, 1000, vec![metric]);
    samples.push(
        0,
        &[(1000, 2000), (2000, 3000), (5000, 6000)],
        &[10.5, 20.0, 30.0],
    );
    trace.gpu = Some(samples);
    write(
        &trace,
        &names(&golden),
        &plan(directory.path(), &[Format::Otf2]),
    )
    .unwrap();
    let found = read(directory.path());
    let value = |time: u64, value: f64| json!(["GPU 3, Samples", "sm_busy", "%", time, value]);
    assert_eq!(
        list(&found["metrics"]),
        [
            value(1000, 10.5),
            value(2000, 20.0),
            value(3000, 0.0),
            value(5000, 30.0),
            value(6000, 0.0)
        ]
    );
    assert_eq!(list(&found["locations"])[0]["type"], "METRIC");
    assert_eq!([&found["first"], &found["last"]], [1000, 6000]);
}

/// Nothing was recorded, or what a target may invent: times that run backwards, names with zeros,
/// more threads than there are rows, and a hundred kernels at once.
#[test]
fn whatever_a_target_says_makes_an_archive_that_can_be_read() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(writer(), &golden);
    write(
        &trace,
        &names(&golden),
        &plan(directory.path(), &[Format::Otf2]),
    )
    .unwrap();
    assert_eq!(
        entries(directory.path()),
        ["r_results", "r_results.def", "r_results.otf2"]
    );
    let found = read(directory.path());
    assert!(list(&found["regions"]).is_empty());
    // OTF2's library reads no archive without locations.
    assert_eq!(list(&found["locations"]).len(), 1);
    assert_eq!(found["locations"][0]["name"], "Thread 2371");

    let mut records = writer();
    for tid in 1..=950 {
        let api = Api {
            header: header(kind::HSA_CORE_API, 3),
            start: 10,
            end: if tid % 2 == 0 { 20 } else { 5 },
            tid,
            ..Api::default()
        };
        append(&mut records, &event::encode(&api, &[]));
    }
    let never = Api {
        header: header(kind::HSA_CORE_API, u32::MAX),
        start: u64::MAX,
        end: u64::MAX,
        correlation: u64::MAX,
        tid: 1,
        ..Api::default()
    };
    append(&mut records, &event::encode(&never, &[]));
    let mark = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 0),
        start: 7,
        end: 7,
        tid: 1,
        ..Marker::default()
    };
    put_marker(&mut records, mark, b"a\0b\xff");
    for id in 0..100 {
        let kernel = Kernel {
            dispatch_id: id,
            start: 1000 + id,
            end: 5000 + id,
            ..one_kernel()
        };
        append(&mut records, &event::encode(&kernel, &[]));
    }
    let trace = trace_of(records, &golden);
    write(
        &trace,
        &names(&golden),
        &plan(directory.path(), &[Format::Otf2]),
    )
    .unwrap();
    let found = read(directory.path());
    assert_eq!(list(&found["regions"]).len(), 1_052);
    let locations = list(&found["locations"]).iter();
    let names: Vec<String> = locations.map(|location| text(&location["name"])).collect();
    let threads = names
        .iter()
        .filter(|name| name.starts_with("Thread "))
        .count();
    assert!((850..=900).contains(&threads), "{threads}");
    assert!(names.contains(&"(further rows)".to_owned()));
    assert!(
        list(&found["regions"])
            .iter()
            .any(|it| it["name"] == "a b\u{fffd}")
    );
    // An earlier archive's files are not left.
    let small = trace_of(every_domain(), &golden);
    write(
        &small,
        &self::names(&golden),
        &plan(directory.path(), &[Format::Otf2]),
    )
    .unwrap();
    let parts = entries(&directory.path().join("r_results")).len();
    let found = read(directory.path());
    assert_eq!(parts, 2 * list(&found["locations"]).len());
}

/// Kernels that overlap are on locations of their own, and each location has its two files.
#[test]
fn locations_have_numbers_of_their_own() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let mut records = writer();
    for (dispatch_id, start, end) in [
        (1, 1000, 5000),
        (2, 1001, 5001),
        (3, 1002, 4000),
        (4, 6000, 7000),
    ] {
        let kernel = Kernel {
            dispatch_id,
            start,
            end,
            ..one_kernel()
        };
        append(&mut records, &event::encode(&kernel, &[]));
    }
    let plan = plan(directory.path(), &[Format::Otf2]);
    write(&trace_of(records, &golden), &names(&golden), &plan).unwrap();
    assert_eq!(
        entries(&directory.path().join("r_results")),
        ["0.def", "0.evt", "1.def", "1.evt", "2.def", "2.evt"]
    );
}

#[test]
fn counters_of_dispatches_and_of_devices_are_defined() {
    let counted = Kernel {
        node: NODE,
        queue_id: 1,
        ..one_kernel()
    };
    let dispatches = || {
        let mut records = writer();
        put_kernel(&mut records, &counted);
        put(&mut records, window(1, &counted, 9), &[3; 9], 9);
        session(records, amds_plan())
    };
    for (trace, hide_kernels, description) in [
        (
            dispatches(),
            false,
            Some("what the counter counted during the dispatch"),
        ),
        (dispatches(), true, None),
        (readings(), false, Some("1/s")),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan {
            hide_kernels,
            ..plan(directory.path(), &[Format::Otf2])
        };
        write(&trace, &Names::amd(), &plan).unwrap();
        let file = directory.path().join("r_results.def");
        for name in ["GRBM_COUNT", "SQ_WAVES"] {
            assert_eq!(contains(&file, name), description.is_some(), "{name}");
        }
        if let Some(description) = description {
            assert!(contains(&file, description), "{description}");
        }
    }
}
