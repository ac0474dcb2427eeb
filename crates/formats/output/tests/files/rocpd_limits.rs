//! Space and speed of rocpd: no disk, a full one, memory, rows per second.

use crate::common::{append, entries, golden_json, names, reader, trace_of, writer};
use crate::rocpd_rows::{header, plan};
use midair_output::{Format, Names, Trace, write};
use midair_record::event::{self, Api, Kernel, kind};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Returns a session with this many HIP calls, each with its arguments, and with a kernel for every
/// fourth call.
fn many(calls: u64) -> (Trace, Names) {
    let golden = golden_json();
    let names = names(&golden);
    // hipMemcpyAsync, or what the golden's numbers make of it: a call with several parameters.
    let operation = (0..500)
        .find(|operation| {
            names
                .parameters(kind::HIP_RUNTIME_API_EXT, *operation)
                .len()
                == 5
        })
        .unwrap();
    let mut writer = writer();
    for n in 1..=calls {
        let call = Api {
            header: header(kind::HIP_RUNTIME_API_EXT, operation),
            start: 1000 * n,
            end: 1000 * n + 500,
            correlation: n,
            tid: 100 + (n % 16) as u32,
            nargs: 8,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&call, &[7; 64]));
        if n % 4 == 0 {
            let kernel = Kernel {
                header: header(kind::KERNEL_DISPATCH, 2),
                start: 1000 * n,
                end: 1000 * n + 700,
                dispatch_id: n / 4,
                correlation: n,
                node: 1,
                queue_id: 1,
                tid: 100,
                ..Kernel::default()
            };
            append(&mut writer, &event::encode(&kernel, &[]));
        }
    }
    (trace_of(writer, &golden), names)
}

/// Runs in a mount namespace of its own, so that a small file system can be filled.
/// `a_full_disk_leaves_nothing` starts it.
#[test]
#[ignore = "needs the file system that a_full_disk_leaves_nothing makes, which runs it"]
fn within_a_full_disk() {
    let directory = std::env::var("MIDAIR_SMALL_DISK").unwrap();
    let directory = Path::new(&directory);
    fs::write(directory.join("r_results.db"), "earlier").unwrap();
    let (trace, names) = many(20_000);
    let plan = plan(directory, &[Format::Rocpd]);
    let error = write(&trace, &names, &plan).unwrap_err();
    assert!(
        error.to_string().contains("r_results.db") && error.to_string().contains("No space"),
        "{error}"
    );
    assert_eq!(entries(directory), ["r_results.db"]);
    assert_eq!(
        fs::read(directory.join("r_results.db")).unwrap(),
        b"earlier"
    );
    println!("the small disk was filled and left as it was");
}

#[test]
fn a_full_disk_leaves_nothing() {
    // The disk is full at the first table, and among the rows.
    for size in ["16k", "2m"] {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size} none \"$MIDAIR_SMALL_DISK\" && exec \"$0\" --exact --ignored --nocapture rocpd_limits::within_a_full_disk"
        );
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .arg(std::env::current_exe().unwrap());
        let output = command
            .env("MIDAIR_SMALL_DISK", directory.path())
            .output()
            .unwrap_or_else(|error| panic!("unshare: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("the small disk was filled"),
            "{size}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_place_that_nobody_can_write_to_is_named() {
    let (trace, names) = many(1);
    let plan = plan(Path::new("/proc/self"), &[Format::Rocpd]);
    let error = write(&trace, &names, &plan).unwrap_err();
    assert!(
        error.to_string().contains("/proc/self/r_results.db"),
        "{error}"
    );
}

/// Names that SQLite would interpret as something else.
#[test]
fn places_with_strange_names() {
    let (trace, names) = many(8);
    let below = tempfile::tempdir().unwrap();
    for name in ["file:x?mode=memory", ":memory:", "a b'\"%20", "\u{fffd}ü"] {
        let directory = below.path().join(name);
        let plan = plan(&directory, &[Format::Rocpd]);
        write(&trace, &names, &plan).unwrap();
        assert_eq!(entries(&directory), ["r_results.db"]);
        let plain = below.path().join("copy.db");
        fs::copy(directory.join("r_results.db"), &plain).unwrap();
        let file = reader(&plain, &[]);
        assert_eq!(file["views"]["regions"]["count"], 8, "{name}");
        assert_eq!(file["views"]["kernels"]["count"], 2, "{name}");
    }
}

/// Returns the highest resident size of this process so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Runs in a process of its own, since other tests would count.
/// `memory_does_not_grow_with_the_trace` starts it.
#[test]
#[ignore = "measures its whole process: memory_does_not_grow_with_the_trace runs it alone"]
fn within_a_process_alone() {
    let run = |calls| {
        let (trace, names) = many(calls);
        let directory = tempfile::tempdir().unwrap();
        let plan = plan(directory.path(), &[Format::Rocpd]);
        let began = Instant::now();
        let files = write(&trace, &names, &plan).unwrap();
        (began.elapsed(), fs::metadata(&files[0]).unwrap().len())
    };
    run(10_000);
    let before = peak();
    let calls = 100_000;
    let (took, bytes) = run(calls);
    let grown = peak() - before;
    // The file is several times as large as SQLite's cache.
    assert!(bytes > 50 << 20, "{bytes} bytes");
    assert!(grown < 4096, "{grown} KiB more");
    // There are a row and an event for each, and five arguments for each call.
    let rows = 2 * (calls + calls / 4) + 5 * calls;
    let rate = rows as f64 / took.as_secs_f64();
    println!("peak grew by {grown} KiB; {rows} rows, {bytes} bytes, {rate:.0} rows/s");
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
            "rocpd_limits::within_a_process_alone",
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
