//! Samples of a whole GPU in csv, rocpd and the tables, and which kernels they belong to.

use crate::common::{append, entries, golden_json, names, trace_of, writer};
use crate::counters::read;
use crate::cuda::{device, kernel};
use crate::readings::readings;
use crate::rocpd_rows::{header, plan};
use midair_output::{
    CounterReport, Format, GpuMetric, GpuSamples, Names, Plan, Trace, table::Style, write,
};
use midair_record::event::{self, Kernel, KernelSymbol, cuda_node, kind};
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;

/// Returns samples of the machine's fourth GPU, which is the second one of the process. Two groups
/// are multiplexed. One value is missing.
fn samples() -> GpuSamples {
    let metric = |name: &str, group| GpuMetric {
        name: name.to_owned(),
        unit: "%".to_owned(),
        expression: String::new(),
        group,
    };
    let metrics = vec![metric("busy", 0), metric("reads", 1), metric("active", 0)];
    let mut samples = GpuSamples::new(3, 1000, metrics);
    samples.bus = "00000000:1C:00.0".to_owned();
    let times = [(2000, 2100), (2100, 2200), (2400, 2500)];
    let values = [10.5, 1.0, 20.5, f64::NAN, 30.0, 2.0];
    samples.push(0, &times, &values);
    samples.push(1, &[(2200, 2300)], &[0.25]);
    samples
}

/// Returns a session with these samples: kernels with samples on the GPU, one between samples, and
/// one on the other GPU at the same time.
fn sampled() -> Trace {
    let mut all = writer();
    device(&mut all, 0);
    device(&mut all, 1);
    for (kernel_id, name) in [(1, "gemm"), (2, "relu")] {
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL, 0),
            kernel_id,
            name_len: 4,
            ..KernelSymbol::default()
        };
        append(&mut all, &event::encode(&symbol, name.as_bytes()));
    }
    for (dispatch_id, kernel_id, ordinal, start, end) in [
        (1, 1, 1, 2000, 2300),
        (2, 1, 1, 2310, 2390),
        (3, 2, 1, 2400, 2600),
        (4, 1, 0, 2000, 2300),
        (5, 1, 1, 2100, 2200),
    ] {
        let (first, told) = kernel();
        let kernel = Kernel {
            dispatch_id,
            kernel_id,
            correlation: 10 + dispatch_id,
            node: cuda_node(ordinal),
            start,
            end,
            ..first
        };
        append(&mut all, &event::encode(&kernel, told.bytes()));
    }
    let mut trace = trace_of(all, &golden_json());
    trace.process.pid = 77;
    trace.gpu = Some(samples());
    trace
}

fn written(directory: &Path, format: Format, stats: bool) {
    let plan = Plan {
        stats,
        ..plan(directory, &[format])
    };
    write(&sampled(), &names(&golden_json()), &plan).unwrap();
}

#[test]
fn csv_has_each_sample_and_the_means_of_each_kernel() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), Format::Csv, true);
    assert_eq!(
        read(directory.path(), "r_gpu_metrics.csv"),
        "\"Gpu\",\"Group\",\"Start_Timestamp\",\"End_Timestamp\",\"busy\",\"reads\",\"active\"\n\
         3,0,2000,2100,10.500000,\"\",1.000000\n\
         3,0,2100,2200,20.500000,\"\",\"\"\n\
         3,1,2200,2300,\"\",0.250000,\"\"\n\
         3,0,2400,2500,30.000000,\"\",2.000000\n"
    );
    assert_eq!(
        read(directory.path(), "r_gpu_metrics_kernels.csv"),
        "\"Process_Id\",\"Dispatch_Id\",\"Correlation_Id\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\",\"Samples\",\"busy\",\"reads\",\"active\"\n\
         77,1,11,\"gemm\",2000,2300,2,15.500000,0.250000,1.000000\n\
         77,3,13,\"relu\",2400,2600,1,30.000000,\"\",2.000000\n\
         77,5,15,\"gemm\",2100,2200,1,20.500000,\"\",\"\"\n"
    );
    // Of the kernels on this GPU, each sample within one counts alike.
    assert_eq!(
        read(directory.path(), "r_gpu_metrics_stats.csv"),
        "\"Name\",\"Calls\",\"Calls_With_Samples\",\"Samples\",\"busy\",\"reads\",\"active\"\n\
         \"gemm\",3,2,3,17.166667,0.250000,1.000000\n\
         \"relu\",1,1,1,30.000000,\"\",2.000000\n"
    );
}

#[test]
fn statistics_are_written_only_where_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), Format::Csv, false);
    let all = entries(directory.path());
    let of_gpu: Vec<&String> = all.iter().filter(|name| name.contains("gpu")).collect();
    assert_eq!(of_gpu, ["r_gpu_metrics.csv", "r_gpu_metrics_kernels.csv"]);
}

#[test]
fn rocpd_has_the_values_of_each_sample_and_the_gpu_that_they_are_of() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), Format::Rocpd, false);
    let file = Connection::open(directory.path().join("r_results.db")).unwrap();
    let mut statement = file
        .prepare(
            "SELECT s.timestamp, i.name, e.value, json_extract(a.extdata, '$.location_id')
             FROM rocpd_pmc_event AS e JOIN rocpd_sample AS s ON s.event_id = e.event_id
             JOIN rocpd_info_pmc AS i ON i.id = e.pmc_id
             JOIN rocpd_info_agent AS a ON a.id = i.agent_id
             ORDER BY s.timestamp, i.id",
        )
        .unwrap();
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let rows: Vec<(i64, String, f64, i64)> = rows.unwrap().map(Result::unwrap).collect();
    // The place on the bus: 1C:00.0.
    let value = |time, name: &str, value| (time, name.to_owned(), value, 0x1c00);
    assert_eq!(
        rows,
        [
            value(2100, "busy", 10.5),
            value(2100, "active", 1.0),
            value(2200, "busy", 20.5),
            value(2300, "reads", 0.25),
            value(2500, "busy", 30.0),
            value(2500, "active", 2.0),
        ]
    );
}

/// The GPU is the process's second one, and its counters are on that device's row. A value is valid
/// until the next one, and 0 where no sample follows at once.
#[test]
fn kineto_has_a_counter_for_each_metric() {
    let directory = tempfile::tempdir().unwrap();
    written(directory.path(), Format::Kineto, false);
    let text = read(directory.path(), "r_results.pt.trace.json");
    let all: Value = serde_json::from_str(&text).unwrap();
    let events = all["traceEvents"].as_array().unwrap();
    let counters = events.iter().filter(|event| event["ph"] == "C");
    let mut rows: Vec<(String, i64, f64)> = counters
        .map(|event| {
            assert_eq!(event["pid"], 1, "{event}");
            let ns = (event["ts"].as_f64().unwrap() * 1e3).round() as i64;
            let name = event["name"].as_str().unwrap().to_owned();
            (name, ns, event["args"]["value"].as_f64().unwrap())
        })
        .collect();
    rows.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let of = |metric: &str, time, value| (format!("GPU [3] {metric} (%)"), time, value);
    assert_eq!(
        rows,
        [
            of("active", 2000, 1.0),
            of("active", 2100, 0.0),
            of("active", 2200, 0.0),
            of("active", 2400, 2.0),
            of("active", 2500, 0.0),
            of("busy", 2000, 10.5),
            of("busy", 2100, 20.5),
            of("busy", 2200, 0.0),
            of("busy", 2400, 30.0),
            of("busy", 2500, 0.0),
            of("reads", 2200, 0.25),
            of("reads", 2300, 0.0),
        ]
    );
}

/// The table of samples stands below the table of counters, with an empty line between them.
#[test]
fn tables_of_counters_and_of_samples_are_apart() {
    let text = |trace: &Trace| {
        let (names, plan) = (Names::amd(), Plan::default());
        CounterReport::of(trace, &names, &plan, Style::default()).text
    };
    let mut trace = readings();
    let counters = text(&trace);
    trace.gpu = Some(samples());
    let both = text(&trace);
    let gpu = text(&sampled());
    assert!(gpu.starts_with("GPU 3 ") && counters.starts_with("COUNTER "));
    assert_eq!(both, format!("{counters}\n{gpu}"));
}
