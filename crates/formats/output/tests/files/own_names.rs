//! Results that never take the place of others.

use crate::common::entries;
use crate::recordings::recorded;
use midair_output::{Format, Names, Numbering, Plan, SummaryTo, Trace, write, write_together};
use std::fs;
use std::path::Path;

fn plan(directory: &Path, formats: Vec<Format>) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        numbering: Numbering::FromTwo,
        formats,
        stats: true,
        summary: true,
        summary_to: SummaryTo::File("sums".to_owned()),
        config_file: true,
        ..Plan::default()
    }
}

/// Whatever is left of a result, the next one has another name: every file of every format is known
/// as one of a result.
#[test]
fn every_file_of_a_result_keeps_its_name_from_the_next() {
    let names = Names::amd();
    let formats: Vec<Format> = Format::all().filter(|it| *it != Format::Parquet).collect();
    let all = tempfile::tempdir().unwrap();
    let parts: Vec<Trace> = ["hip", "domains", "odd"].map(recorded).into();
    for (prefix, trace) in ["hip", "cuda_domains"]
        .into_iter()
        .zip(["domains", "cuda_domains"])
    {
        let plan = Plan {
            prefix: prefix.to_owned(),
            ..plan(all.path(), formats.clone())
        };
        write(&recorded(trace), &names, &plan).unwrap();
    }
    write_together(&parts, &names, &plan(all.path(), formats)).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for name in entries(all.path()) {
        let suffix = ["hip_", "cuda_domains_", "r_"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or_else(|| panic!("{name}"));
        // The file of the first rank stands for the others' files.
        if !["rank1.", "rank2."]
            .iter()
            .any(|rank| suffix.starts_with(rank))
        {
            seen.insert(suffix.to_owned());
        }
    }
    assert!(seen.len() > 25, "{seen:?}");
    let hip = recorded("hip");
    for suffix in seen {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(format!("r_{suffix}")), "").unwrap();
        let plan = plan(directory.path(), vec![Format::Html]);
        let files = write(&hip, &names, &plan).unwrap();
        assert!(
            files[0].ends_with("r-2_results.html"),
            "{suffix}: {files:?}"
        );
    }
}

/// json has the name in it.
#[test]
fn the_settings_have_the_name_that_the_result_got() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::amd();
    for name in ["r", "r-2", "r-3"] {
        let plan = plan(directory.path(), vec![Format::Json]);
        write(&recorded("hip"), &names, &plan).unwrap();
        for file in ["results", "config"] {
            let file = directory.path().join(format!("{name}_{file}.json"));
            let text = fs::read_to_string(file).unwrap();
            let wanted = format!("\"output_file\":\"{name}\"");
            let text: String = text.split_whitespace().collect();
            assert!(text.contains(&wanted), "{name}");
        }
    }
}

/// Each looks for a name when it starts, and gives it to its files at the end.
#[test]
fn results_that_are_written_at_once_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::amd();
    let trace = recorded("hip");
    let at_once = 8;
    let formats = [vec![Format::Json], vec![Format::Csv, Format::Rocpd]];
    let formats: Vec<_> = formats.into_iter().cycle().take(at_once).collect();
    let written: Vec<_> = std::thread::scope(|scope| {
        let write = |formats: Vec<Format>| {
            let plan = plan(directory.path(), formats);
            let (trace, names) = (&trace, &names);
            scope.spawn(move || midair_output::write(trace, names, &plan).unwrap())
        };
        let all: Vec<_> = formats.into_iter().map(write).collect();
        all.into_iter().map(|each| each.join().unwrap()).collect()
    });
    let mut files: Vec<_> = written.into_iter().flatten().collect();
    let count = files.len();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), count);
    assert_eq!(entries(directory.path()).len(), count);
    let ones = entries(directory.path());
    let ones = ones.iter().filter(|name| name.ends_with("_config.json"));
    assert_eq!(ones.count(), at_once);
}
