//! Memory that writing a Perfetto trace takes.

use crate::common::{append, golden_json, names, trace_of, writer};
use crate::rocpd_rows::{header, one_kernel, plan, put_marker};
use midair_output::{Format, write};
use midair_record::event::{self, Copy, Kernel, Marker, kind};
use std::process::Command;

/// Returns the highest resident size of this process so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Writes kernels one after the other, in nested calls, with copies and a different message each.
fn write_many(records: u64) {
    let mut writer = writer();
    let kernel = one_kernel();
    for n in 0..records {
        let at = 1_000 + 100 * n;
        let kernel = Kernel {
            start: at,
            end: at + 80,
            stream: 7,
            ..kernel
        };
        append(&mut writer, &event::encode(&kernel, &[]));
        let copy = Copy {
            header: header(kind::MEMORY_COPY, 2),
            start: at,
            end: at + 70,
            bytes: 1,
            dst_node: 1,
            stream: 9,
            ..Copy::default()
        };
        append(&mut writer, &event::encode(&copy, &[]));
        // There are more messages than are interned.
        let message = format!("{:064}", n % 20_000);
        for (inner, operation) in [(10, 0), (0, 1)] {
            let marker = Marker {
                header: header(kind::MARKER_CORE_RANGE_API, operation),
                start: at + inner,
                end: at + 50 - inner,
                correlation: n,
                tid: 4,
                ..Marker::default()
            };
            put_marker(&mut writer, marker, message.as_bytes());
        }
    }
    let golden = golden_json();
    let trace = trace_of(writer, &golden);
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&trace, &names(&golden), &plan).unwrap();
}

/// Runs in a process of its own, since other tests would count.
/// `memory_does_not_grow_with_the_trace` starts it.
#[test]
#[ignore = "measures its whole process: memory_does_not_grow_with_the_trace runs it alone"]
fn within_a_process_alone() {
    // This is enough to fill the tables of names and the window in which changes are sorted.
    write_many(20_000);
    let before = peak();
    write_many(60_000);
    let grown = peak() - before;
    // 160,000 records more: some 30 MB of trace. The allocator's own leavings differ by a megabyte
    // from run to run.
    assert!(grown < 3072, "{grown} KiB more");
    println!("peak grew by {grown} KiB");
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
            "pftrace_memory::within_a_process_alone",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("peak grew by"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
