//! Time and memory of `analyze` for a twentieth of what `docs/measured.md` measures: 50,000 dispatches
//! with thirty counters. The limits are generous: they show what has become many times worse.

#[path = "../../examples/big.rs"]
#[allow(dead_code)]
mod big;

use midair_compute::read::Workload;
use midair_compute::report::{Options, report};
use midair_compute::select::{Blocks, Dispatches};
use std::path::{Path, PathBuf};

const DISPATCHES: u64 = 50_000;
/// Seconds of the processor. It takes 0.2.
const LONGEST: f64 = 1.5;
/// MiB. It takes 20.
const MOST: u64 = 64;

/// Writes a file of so many dispatches into a directory.
type Write = fn(&Path, u64) -> PathBuf;

/// Both forms in one test, since the peak is the whole process's.
#[test]
fn analyze_is_quick_and_small() {
    let forms: [(&str, Write); 2] = [("csv", big::csv), ("rocpd", big::rocpd)];
    for (name, write) in forms {
        let temporary = tempfile::tempdir().unwrap();
        big::system(temporary.path());
        write(temporary.path(), DISPATCHES);
        let began = big::busy();
        let workload = Workload::read(temporary.path(), &[]).unwrap();
        assert_eq!(workload.frame.rows as u64, DISPATCHES, "{name}");
        let (blocks, all) = (Blocks::default(), Dispatches::default());
        let filled = report(&workload, &blocks, &all, &Options::default()).unwrap();
        assert!(filled.sheets.len() > 20, "{name}");
        let (took, peak) = (big::busy() - began, big::peak());
        println!("{name}: {took:.2} s, {peak} MiB");
        assert!(took > 0.0 && took < LONGEST, "{name}: {took} s");
        assert!(peak < MOST, "{name}: {peak} MiB");
    }
}
