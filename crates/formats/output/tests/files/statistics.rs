//! Compares `--stats` and the summaries with AMD's files, and with json's own sums.

use crate::common::{entries, golden, golden_json, list, names, number, text, trace};
use midair_output::{Console, Format, Plan, SummaryTo, Unit, console_summary, write};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn plan(directory: &Path) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Csv, Format::Json],
        stats: true,
        ..Plan::default()
    }
}

fn written(change: impl Fn(&mut Plan)) -> (tempfile::TempDir, Option<(Console, String)>) {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let trace = trace(&golden, &names);
    let mut plan = plan(directory.path());
    change(&mut plan);
    write(&trace, &names, &plan).unwrap();
    (directory, console_summary(&trace, &names, &plan))
}

/// All texts but the deviation must be equal. AMD computes the deviation as a double from rounded
/// parts, so it must agree to ten digits.
#[test]
fn statistics_equal_amds() {
    let (directory, _) = written(|_| ());
    for name in [
        "r_domain_stats.csv",
        "r_hip_api_stats.csv",
        "r_hsa_api_stats.csv",
        "r_kernel_stats.csv",
        "r_memory_copy_stats.csv",
    ] {
        let ours = fs::read_to_string(directory.path().join(name)).unwrap();
        let amds = golden(name);
        assert_eq!(ours.lines().count(), amds.lines().count(), "{name}");
        assert_eq!(ours.lines().next(), amds.lines().next(), "{name}");
        for (ours, amds) in ours.lines().zip(amds.lines()).skip(1) {
            let (our_text, ours) = ours.rsplit_once(',').unwrap();
            let (amds_text, amds) = amds.rsplit_once(',').unwrap();
            assert_eq!(our_text, amds_text, "{name}");
            assert_eq!(ours.len(), amds.len(), "{name}: {ours} and {amds}");
            let (ours, amds): (f64, f64) = (ours.parse().unwrap(), amds.parse().unwrap());
            assert!((ours - amds).abs() <= amds * 1e-10, "{ours} and {amds}");
        }
    }
}

/// The summary of the golden, key by key; real numbers to ten digits.
fn same(ours: &Value, amds: &Value, at: &str) {
    match (ours, amds) {
        (Value::Object(a), Value::Object(b)) => {
            assert!(a.keys().eq(b.keys()), "{at}: {a:?} and {b:?}");
            a.iter()
                .for_each(|(key, value)| same(value, &b[key], &format!("{at}.{key}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{at}");
            a.iter().zip(b).for_each(|(a, b)| same(a, b, at));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= b.abs() * 1e-10, "{at}: {a} and {b}");
        }
        _ => assert_eq!(ours, amds, "{at}"),
    }
}

#[test]
fn json_has_amds_summary() {
    let (directory, _) = written(|_| ());
    let text = fs::read(directory.path().join("r_results.json")).unwrap();
    let all: Value = serde_json::from_slice(&text).unwrap();
    let ours = &all["rocprofiler-sdk-tool"][0]["summary"];
    same(ours, &golden_json()["summary"], "summary");
}

#[test]
fn without_the_option_there_are_no_statistics() {
    let (directory, console) = written(|plan| plan.stats = false);
    assert_eq!(console, None);
    assert!(
        entries(directory.path())
            .iter()
            .all(|name| !name.contains("stats"))
    );
}

/// Returns the cells of each row of a table that was printed, by name.
fn rows(table: &str) -> BTreeMap<String, Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_matches('|');
        line.split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let lines = table
        .lines()
        .filter(|line| line.trim_start().starts_with("| "));
    lines
        .skip(1)
        .map(cells)
        .map(|cells| (cells[0].clone(), cells))
        .collect()
}

#[test]
fn tables_are_laid_out_as_amds() {
    let (_, console) = written(|plan| {
        plan.summary_groups = vec!["KERNEL_.*|MEMORY_COPY".to_owned()];
    });
    let (console, text) = console.unwrap();
    assert_eq!(console, Console::Stdout);
    let wanted = "
    ROCPROFV3 KERNEL_DISPATCH + MEMORY_COPY SUMMARY:

    |                     NAME                      |     DOMAIN      |      CALLS      | DURATION (nsec) | AVERAGE (nsec)  | PERCENT (INC) |   MIN (nsec)    |   MAX (nsec)    |     STDDEV      |
    |-----------------------------------------------|-----------------|-----------------|-----------------|-----------------|---------------|-----------------|-----------------|-----------------|
    | MEMORY_COPY_HOST_TO_DEVICE                    | MEMORY_COPY     |               6 |         1495731 |       2.493e+05 |     50.881365 |           23516 |          792342 |       3.539e+05 |
    | MEMORY_COPY_DEVICE_TO_HOST                    | MEMORY_COPY     |               3 |          482779 |       1.609e+05 |     16.423043 |          147329 |          168000 |       1.178e+04 |
    | vadd(float const*, float const*, float*, int) | KERNEL_DISPATCH |               3 |          366687 |       1.222e+05 |     12.473857 |          119949 |          125658 |       3.023e+03 |
    | scale(float*, float, int)                     | KERNEL_DISPATCH |               3 |          362291 |       1.208e+05 |     12.324315 |          119579 |          122413 |       1.473e+03 |
    | __amd_rocclr_fillBufferAligned                | KERNEL_DISPATCH |               3 |          232156 |       7.739e+04 |      7.897419 |           74010 |           80770 |       3.380e+03 |

";
    assert_eq!(text, wanted);
}

#[test]
fn summaries_go_where_they_are_told_and_sum_up_json() {
    let (directory, console) = written(|plan| {
        plan.stats = false;
        plan.summary = true;
        plan.summary_per_domain = true;
        plan.summary_unit = Unit::Usec;
        plan.summary_to = SummaryTo::File("sums".to_owned());
        plan.perfetto.buffer_size = 4096;
    });
    assert_eq!(console, None);
    let text_file = fs::read_to_string(directory.path().join("r_sums.txt")).unwrap();
    assert!(
        text_file.starts_with("\nROCPROFV3 HSA_API SUMMARY:\n\n| "),
        "{text_file}"
    );
    let titles: Vec<_> = text_file
        .lines()
        .filter_map(|line| line.strip_prefix("ROCPROFV3 "))
        .collect();
    let wanted = [
        "HSA_API SUMMARY:",
        "HIP_API SUMMARY:",
        "KERNEL_DISPATCH SUMMARY:",
        "MEMORY_COPY SUMMARY:",
        "SUMMARY:",
    ];
    assert_eq!(titles, wanted);
    let (_, last) = text_file.split_once("ROCPROFV3 SUMMARY:").unwrap();
    let table = rows(last);

    let json = fs::read(directory.path().join("r_results.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let process = &json["rocprofiler-sdk-tool"][0];
    // From the records themselves, not from the sums alongside them.
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for key in ["hip_api", "hsa_api", "memory_copy", "kernel_dispatch"] {
        for record in list(&process["buffer_records"][key]) {
            let (kind, operation) = (number(&record["kind"]), number(&record["operation"]));
            let name = match key {
                "kernel_dispatch" => {
                    let id = number(&record["dispatch_info"]["kernel_id"]);
                    &process["kernel_symbols"][id as usize]["formatted_kernel_name"]
                }
                _ => {
                    &process["strings"]["buffer_records"][kind as usize]["operations"]
                        [operation as usize]
                }
            };
            let sum = sums.entry(text(name)).or_default();
            sum.0 += 1;
            sum.1 += number(&record["end_timestamp"]) - number(&record["start_timestamp"]);
        }
    }
    assert_eq!(sums.len(), table.len());
    for (name, (calls, total)) in sums {
        let row = &table[&name];
        assert_eq!(row[2], calls.to_string(), "{name}");
        assert_eq!(
            row[3].parse::<f64>().unwrap(),
            total as f64 / 1000.0,
            "{name}"
        );
    }
    assert_eq!(process["metadata"]["config"]["summary_file"], "sums");
    let config = &process["metadata"]["config"];
    assert_eq!(config["summary_unit"], "usec");
    assert_eq!(config["summary"], true);
    assert_eq!(config["summary_output"], true);
    assert_eq!(config["perfetto_buffer_size"], 4096);
    assert_eq!(config["perfetto_shmem_size_hint"], 64);
}
