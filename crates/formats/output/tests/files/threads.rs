//! Results that several threads write: the same bytes, and the same errors.

use crate::common::entries;
use crate::recordings::recorded;
use midair_output::{Format, Names, Plan, Trace, WriteError, threads};
use midair_output::{write, write_together};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn plan(directory: &Path, threads: usize) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        formats: Format::all().collect(),
        stats: true,
        summary: true,
        config_file: true,
        threads,
        ..Plan::default()
    }
}

/// Returns the bytes of all files below a directory, by name.
fn all_files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                all.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// Several files name the directory, so it must be the same each time.
#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("out");
    let names = Names::amd();
    let parts: Vec<Trace> = ["hip", "domains", "odd"].map(recorded).into();
    let cuda = recorded("cuda_domains");
    let written = |threads: usize| {
        let mut all = Vec::new();
        for formats in [Format::all().collect(), vec![Format::Pftrace, Format::Csv]] {
            let plan = Plan {
                formats,
                ..plan(&at, threads)
            };
            for together in [false, true] {
                let files = match together {
                    false => write(&cuda, &names, &plan).unwrap(),
                    true => write_together(&parts, &names, &plan).unwrap(),
                };
                all.push((files, all_files(&at)));
                fs::remove_dir_all(&at).unwrap();
            }
        }
        all
    };
    let alone = written(1);
    assert!(
        alone
            .iter()
            .all(|(files, bytes)| files.len() > 5 && bytes.len() > 5)
    );
    for threads in [0, 2, 3, 16] {
        for (number, (found, wanted)) in written(threads).iter().zip(&alone).enumerate() {
            assert_eq!(found.0, wanted.0, "{threads} threads, set {number}");
            for (name, bytes) in &wanted.1 {
                let same = found.1.get(name) == Some(bytes);
                assert!(same, "{threads} threads, {}", name.display());
            }
            assert_eq!(found.1.len(), wanted.1.len());
        }
    }
}

#[test]
fn a_format_that_fails_is_named_and_stops_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let trace = recorded("hip");
    for (suffix, formats) in [
        ("json", vec![Format::Rocpd, Format::Json, Format::Csv]),
        ("db", vec![Format::Csv, Format::Json, Format::Rocpd]),
    ] {
        // A file with this name cannot be given its own.
        let taken = directory.path().join(format!("r_results.{suffix}"));
        fs::create_dir(&taken).unwrap();
        let plan = Plan {
            formats,
            ..plan(directory.path(), 3)
        };
        let error = write(&trace, &Names::amd(), &plan).unwrap_err();
        assert!(
            error.to_string().contains(taken.to_str().unwrap()),
            "{error}"
        );
        fs::remove_dir(&taken).unwrap();
        for name in entries(directory.path()) {
            assert!(!name.ends_with(".tmp"), "{name}");
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    // No user can write to this file system, not even root.
    let error = write(&trace, &Names::amd(), &plan(Path::new("/proc/self"), 3)).unwrap_err();
    let WriteError::File { path, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(path.starts_with("/proc/self"), "{error}");
}

#[test]
fn one_thread_writes_unless_the_attaching_side_allows_more() {
    assert_eq!(threads::most(), 1);
    threads::use_all_processors();
    let processors = std::thread::available_parallelism().unwrap().get();
    assert_eq!(threads::most(), processors);
}
