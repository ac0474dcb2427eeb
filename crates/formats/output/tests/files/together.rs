//! Several sessions in one set of csv files. Every table must have the columns that its header
//! names, and every row must name its process.

use crate::common::{golden_json, trace_of};
use crate::rocpd_rows::{every_domain, plan};
use midair_output::{Format, Names, write, write_together};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns, by table, the header and the fields of the rows. None of the texts has a comma.
fn tables(directory: &Path) -> BTreeMap<String, (Vec<String>, Vec<Vec<String>>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.ends_with("_trace.csv") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(|line| {
            let mut quoted = false;
            let apart = |c: char| {
                quoted ^= c == '"';
                c == ',' && !quoted
            };
            line.split(apart)
                .map(|field| field.trim_matches('"').to_owned())
                .collect::<Vec<_>>()
        });
        let header = lines.next().unwrap();
        all.insert(name, (header, lines.collect()));
    }
    all
}

#[test]
fn each_row_of_merged_tables_has_its_columns_and_its_process() {
    let golden = golden_json();
    let session = |pid: u32| {
        let mut trace = trace_of(every_domain(), &golden);
        trace.process.pid = pid;
        trace
    };
    let (alone, merged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let csv = |at: &Path| plan(at, &[Format::Csv]);
    write(&session(41), &Names::amd(), &csv(alone.path())).unwrap();
    let parts = [session(41), session(42)];
    write_together(&parts, &Names::amd(), &csv(merged.path())).unwrap();
    let (alone, merged) = (tables(alone.path()), tables(merged.path()));
    assert!(alone.len() >= 6, "{:?}", alone.keys());
    assert_eq!(
        alone.keys().collect::<Vec<_>>(),
        merged.keys().collect::<Vec<_>>()
    );
    for (name, (header, rows)) in &merged {
        let (single, of_one) = &alone[name];
        let of_process = |header: &[String]| header.iter().filter(|it| *it == "Process_Id").count();
        assert_eq!(of_process(header), 1, "{name}: {header:?}");
        // The columns of a single session come first, unchanged. The process is behind them, once.
        assert_eq!(header[..single.len()], single[..], "{name}");
        let more = 1 - of_process(single);
        assert_eq!(header.len(), single.len() + more, "{name}: {header:?}");
        assert_eq!(rows.len(), 2 * of_one.len(), "{name}");
        let at = header.iter().position(|it| it == "Process_Id").unwrap();
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(row.len(), header.len(), "{name}: {row:?}");
            let process = if number < of_one.len() { "41" } else { "42" };
            assert_eq!(row[at], process, "{name}: {row:?}");
            let one = &of_one[number % of_one.len()];
            let same = |(column, field): (usize, &String)| column == at || *field == row[column];
            assert!(one.iter().enumerate().all(same), "{name}: {one:?} {row:?}");
        }
    }
}
