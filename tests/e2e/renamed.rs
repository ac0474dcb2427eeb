//! `--kernel-rename`: kernels have the names of the ranges in which a program launched them
//! (`tests/c/markers.c`, command `named`), attached and launched, in AMD's formats.

use crate::rocpd::reader;
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::stage;
use midair_tests::table::{Csv, json};
use midair_tests::target::PATIENCE;
use std::collections::BTreeMap;
use std::path::Path;

/// The rounds of the program.
const ROUNDS: u64 = 20;

fn named(target: &mut LabTarget) -> Result<()> {
    target.send(&format!("named {ROUNDS}"))?;
    target.expect("named").map(drop)
}

fn end(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success().map(drop)
}

/// Returns a kernel's bare name, or the range.
fn bare(name: &str) -> &str {
    name.split('(').next().unwrap_or_default()
}

/// Checks all formats, whose files start with this path.
fn check(of: &dyn Fn(&str) -> std::path::PathBuf) -> Result<()> {
    let wanted = BTreeMap::from([
        ("first".to_owned(), 2 * ROUNDS),
        ("second".to_owned(), ROUNDS),
        ("vadd".to_owned(), ROUNDS),
    ]);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in Csv::read(&of("kernel_trace.csv"))?.rows {
        *found
            .entry(bare(&row["Kernel_Name"]).to_owned())
            .or_default() += 1;
    }
    assert_eq!(found, wanted, "csv");
    let stats = Csv::read(&of("kernel_stats.csv"))?.rows;
    let stats = stats.iter().map(|row| {
        let calls = Csv::number(row, "Calls")?;
        Ok((bare(&row["Name"]).to_owned(), calls))
    });
    assert_eq!(stats.collect::<Result<BTreeMap<_, _>>>()?, wanted, "stats");

    let document = json(&of("results.json"))?;
    let session = &document["rocprofiler-sdk-tool"][0];
    assert_eq!(session["metadata"]["config"]["kernel_rename"], true);
    let messages = session["strings"]["correlation_id"]["external"].as_array();
    let messages: BTreeMap<u64, &str> = messages
        .ok_or("no messages")?
        .iter()
        .filter_map(|one| Some((one["key"].as_u64()?, one["value"].as_str()?)))
        .collect();
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let dispatches = session["buffer_records"]["kernel_dispatch"].as_array();
    for dispatch in dispatches.ok_or("no dispatches")? {
        let external = dispatch["correlation_id"]["external"].as_u64();
        let range = messages.get(&external.unwrap_or_default());
        *found.entry(range.copied().unwrap_or("")).or_default() += 1;
    }
    let ranges = BTreeMap::from([("", ROUNDS), ("first", 2 * ROUNDS), ("second", ROUNDS)]);
    assert_eq!(found, ranges, "json");

    let query = "SELECT region, COUNT(*) AS n FROM kernels GROUP BY region";
    let file = reader(&of("results.db"), &[query])?;
    let rows = file["answers"][0].as_array().ok_or("no rows")?;
    let found: BTreeMap<&str, u64> = rows
        .iter()
        .filter_map(|row| Some((row["region"].as_str()?, row["n"].as_u64()?)))
        .collect();
    assert_eq!(found, ranges, "rocpd");
    Ok(())
}

const OPTIONS: [&str; 8] = [
    "--kernel-rename",
    "--kernel-trace",
    "--stats",
    "-f",
    "csv",
    "json",
    "rocpd",
    "pftrace",
];

#[test]
fn kernels_are_named_after_ranges_attached() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    let attacher = Attacher::start(target.pid(), &OPTIONS)?;
    named(&mut target)?;
    let traced = attacher.detach()?.code(0)?;
    check(&|name| traced.file(name))?;
    // Without the option they have their own names.
    let attacher = Attacher::start(
        target.pid(),
        &["--marker-trace", "--kernel-trace", "-f", "csv"],
    )?;
    named(&mut target)?;
    let traced = attacher.detach()?.code(0)?;
    let rows = Csv::read(&traced.file("kernel_trace.csv"))?.rows;
    assert_eq!(rows.len() as u64, 4 * ROUNDS);
    assert!(
        rows.iter()
            .all(|row| ["vadd", "scale"].contains(&bare(&row["Kernel_Name"])))
    );
    end(target)
}

#[test]
fn kernels_are_named_after_ranges_launched() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let at = lab.stage()?;
    let (rocprofv3, dir) = (format!("{at}/bin/rocprofv3"), format!("{at}/renamed"));
    let mut words = vec![rocprofv3.as_str()];
    words.extend(OPTIONS);
    words.extend(["-o", "t", "-d", &dir, "--"]);
    let mut target = lab
        .run(&program)
        .arg(format!("{at}/lib/librocprofiler-sdk-roctx.so.1"))
        .arg(&kernels)
        .under(&words)
        .libs(&format!("{at}/lib"))
        .spawn()?;
    target.expect("ready")?;
    named(&mut target)?;
    end(target)?;
    let at: &Path = &lab.outside(&dir);
    check(&|name| at.join(format!("t_{name}")))
}
