//! What `api/compatibility.tsv`, from which docs/compatibility.md is made, says about files is so.

use crate::common::{golden_json, list, names, trace};
use midair_output::{Format, Plan, SchemaPart, rocpd_schema, write};
use serde_json::Value;

/// A row of a part.
struct Row {
    name: &'static str,
    since: &'static str,
    is_built: bool,
    /// Whether it is in files, and not only read or made when it is asked for.
    is_written: bool,
}

fn rows(part: &str) -> Vec<Row> {
    let table = include_str!("../../../../../api/compatibility.tsv").lines();
    let of_part = table.filter_map(|line| line.strip_prefix(part)?.strip_prefix('\t'));
    let rows: Vec<Row> = of_part
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let (name, only) = fields[0].split_once(" (").unwrap_or((fields[0], ""));
            let is_built = fields[2] != "none";
            Row {
                name,
                since: fields[1],
                is_built,
                is_written: is_built && !only.ends_with("only)"),
            }
        })
        .collect();
    assert!(rows.len() > 3, "{part}");
    rows
}

#[test]
fn rocpd_has_the_tables_and_views() {
    let (tables, views) = (
        rocpd_schema(SchemaPart::Tables),
        rocpd_schema(SchemaPart::DataViews),
    );
    for row in rows("rocpd-table") {
        let statement = format!("\"{}{{{{uuid}}}}\" (", row.name);
        assert_eq!(tables.contains(&statement), row.is_written, "{}", row.name);
    }
    for row in rows("rocpd-view") {
        let statement = format!("CREATE VIEW {} AS", row.name);
        assert_eq!(views.contains(&statement), row.is_written, "{}", row.name);
    }
}

#[test]
fn json_has_the_lists() {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        raw_directory: "%cwd%".to_owned(),
        raw_prefix: "r".to_owned(),
        formats: vec![Format::Json],
        ..Plan::default()
    };
    write(&trace(&golden, &names), &names, &plan).unwrap();
    let file = std::fs::read(directory.path().join("r_results.json")).unwrap();
    let document: Value = serde_json::from_slice(&file).unwrap();
    let process = &document["rocprofiler-sdk-tool"][0];
    for row in rows("json") {
        let name = row.name;
        let found = ["buffer_records", "callback_records"]
            .into_iter()
            .find_map(|part| process[part].get(name));
        // This session has no graphs, no events of HIP, none of the driver, and no samples.
        let is_rare = row.since == "2026" || name == "kfd" || name.starts_with("pc_sample");
        assert!(found.is_some() || is_rare || !row.is_built, "{name}");
        assert!(
            row.is_built || found.is_none_or(|it| list(it).is_empty()),
            "{name}"
        );
    }
}
