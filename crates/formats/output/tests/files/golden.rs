//! Compares what we write for a session with what AMD's own tool wrote for it, byte by byte.

use crate::common::{TEXT_POINTER, entries, golden, golden_json, names, trace};
use midair_output::{AgentIndex, Format, KernelNames, Plan, write};
use std::fs;
use std::path::Path;

fn plan(directory: &Path) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        raw_directory: "%cwd%".to_owned(),
        raw_prefix: "r".to_owned(),
        formats: vec![Format::Csv, Format::Json],
        ..Plan::default()
    }
}

fn written(change: impl Fn(&mut Plan)) -> (tempfile::TempDir, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let trace = trace(&golden, &names);
    let mut plan = plan(directory.path());
    change(&mut plan);
    let files = write(&trace, &names, &plan).unwrap();
    let files = files
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    (directory, files)
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
fn csv_files_equal_amds() {
    let (directory, files) = written(|_| ());
    let csv = [
        "r_hip_api_trace.csv",
        "r_hsa_api_trace.csv",
        "r_kernel_trace.csv",
        "r_memory_copy_trace.csv",
        "r_agent_info.csv",
    ];
    assert_eq!(files, [&csv[..], &["r_results.json"]].concat());
    assert_eq!(entries(directory.path()).len(), files.len());
    for name in csv {
        let (ours, amds) = (read(directory.path(), name), golden(name));
        for (line, (ours, amds)) in (1..).zip(ours.lines().zip(amds.lines())) {
            assert_eq!(ours, amds, "{name}, line {line}");
        }
        assert_eq!(ours.len(), amds.len(), "{name}");
    }
}

/// Replaces the text between `from` and `to` (which stay), and checks that both are there.
fn between(text: &str, from: &str, to: &str, put: &str) -> String {
    let start = text.find(from).unwrap_or_else(|| panic!("no {from}")) + from.len();
    let end = start + text[start..].find(to).unwrap_or_else(|| panic!("no {to}"));
    format!("{}{put}{}", &text[..start], &text[end..])
}

/// Returns the keys of an object's text in order. There must be no nested objects.
fn keys(object: &str) -> Vec<&str> {
    object
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|word| object.contains(&format!("\"{word}\":")))
        .collect()
}

#[test]
fn json_equals_amds_but_for_what_cannot_be_equal() {
    let (directory, _) = written(|_| ());
    let ours = read(directory.path(), "r_results.json");
    let mut amds = golden("r_results.json");

    // The settings have other values, but the same keys.
    let config = |text: &str| {
        let start = text.find("\"config\":{").unwrap() + 10;
        text[start..start + text[start..].find('}').unwrap()].to_owned()
    };
    let (our_config, amds_config) = (config(&ours), config(&amds));
    assert_eq!(keys(&our_config), keys(&amds_config));
    assert_eq!(keys(&amds_config).len(), 23);

    // Only ours has this. It is taken out, so that everything else is compared.
    let ours = between(&ours, "\"config\":{", "}", "");
    let ours = between(&ours, "\"config\":{}", "},\"agents\":", "");
    amds = between(&amds, "\"config\":{", "}", "");
    // The golden was made with --stats. Its host and hash were blanked.
    amds = between(&amds, "\"summary\":[", "],\"callback_records\"", "");
    let ours = between(&ours, "\"node\":{\"id\":", ",\"hash\":", "0");
    let ours = between(&ours, "\"hash\":", ",\"machine_id\"", "0");
    // AMD prints the texts behind pointers. We do not follow pointers.
    for name in ["deviceFunction", "deviceName"] {
        for kernel in ["_Z4vaddPKfS0_Pfi", "_Z5scalePffi"] {
            amds = amds.replace(
                &format!("\"name\":\"{name}\",\"value\":\"{kernel}\""),
                &format!("\"name\":\"{name}\",\"value\":\"{TEXT_POINTER:#x}\""),
            );
        }
    }
    for (at, (our_piece, amds_piece)) in ours.split("},{").zip(amds.split("},{")).enumerate() {
        assert_eq!(our_piece, amds_piece, "piece {at}");
    }
    assert_eq!(ours, amds);
}

#[test]
fn options_choose_names_of_kernels_and_agents() {
    for (kernels, wanted) in [
        (KernelNames::Truncated, "\"vadd\""),
        (KernelNames::Mangled, "\"_Z4vaddPKfS0_Pfi\""),
        (
            KernelNames::Demangled,
            "\"vadd(float const*, float const*, float*, int)\"",
        ),
    ] {
        let (directory, _) = written(|plan| plan.kernel_names = kernels);
        let csv = read(directory.path(), "r_kernel_trace.csv");
        assert!(
            csv.lines()
                .nth(1)
                .unwrap()
                .contains(&format!(",12,{wanted},402,")),
            "{csv}"
        );
    }
    for (agents, wanted) in [
        (AgentIndex::TypeRelative, "\"CPU 0\",\"GPU 0\""),
        (AgentIndex::Absolute, "\"Agent 0\",\"Agent 1\""),
    ] {
        let (directory, _) = written(|plan| plan.agent_index = agents);
        let csv = read(directory.path(), "r_memory_copy_trace.csv");
        assert!(csv.lines().nth(1).unwrap().contains(wanted), "{csv}");
    }
}

#[test]
fn only_the_formats_asked_for_are_written() {
    let (directory, files) = written(|plan| plan.formats = vec![Format::Json]);
    assert_eq!(files, ["r_results.json"]);
    assert_eq!(entries(directory.path()), files);
}
