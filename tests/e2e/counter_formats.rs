//! The files of counters in all formats. The files of a started program: against what AMD's tool
//! wrote for the same program (`crates/formats/output/tests/golden/pmc`), against each other, and by other
//! readers: Python's SQLite and Perfetto's messages. The files of an attach: against each other.

use crate::counters::{attach, begin, end, files, program};
use crate::counters_launched::{EXACT, counted, launched};
use crate::formats::pftrace;
use crate::rocpd::reader;
use midair_tests::Result;
use midair_tests::lab::Lab;
use midair_tests::table::{Csv, json};
use midair_tests::target::PATIENCE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const CSV_GOLDEN: &str =
    include_str!("../../crates/formats/output/tests/golden/pmc/r_counter_collection.csv");
const JSON_GOLDEN: &str = include_str!("../../crates/formats/output/tests/golden/pmc/results.json");
const ROCPD_GOLDEN: &str = include_str!("../../crates/formats/output/tests/golden/pmc/rocpd.json");

/// Columns of a row that do not depend on when and where a program ran.
const OF_KERNELS: [&str; 9] = [
    "Agent_Id",
    "Grid_Size",
    "Kernel_Name",
    "Workgroup_Size",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
];

/// What rows say of kernels.
fn kernels(file: &Path) -> Result<BTreeSet<Vec<String>>> {
    let rows = Csv::read(file)?.rows.into_iter();
    let of = |row: &BTreeMap<String, String>| OF_KERNELS.map(|column| row[column].clone()).to_vec();
    Ok(rows.map(|row| of(&row.into_iter().collect())).collect())
}

/// Paths of all keys in a document, entries of lists taken together.
fn keys(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                keys(value, &path, all);
                all.insert(path);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, path, all)),
        _ => {}
    }
}

fn keys_of(value: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    keys(value, "", &mut all);
    all
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Values by dispatch and counter, each the sum of its places.
type Sums = BTreeMap<(u64, String), f64>;

fn sums_of_json(tool: &Value) -> Sums {
    let counters = list(&tool["counters"]);
    let names: BTreeMap<Option<u64>, &str> = counters
        .iter()
        .filter_map(|one| Some((one["id"]["handle"].as_u64(), one["name"].as_str()?)))
        .collect();
    let mut sums = Sums::new();
    for dispatch in list(&tool["callback_records"]["counter_collection"]) {
        let number = dispatch["dispatch_data"]["dispatch_info"]["dispatch_id"].as_u64();
        for record in list(&dispatch["records"]) {
            let name = names[&record["counter_id"]["handle"].as_u64()];
            let sum = sums.entry((number.unwrap_or(0), name.to_owned()));
            *sum.or_default() += record["value"].as_f64().unwrap_or(f64::NAN);
        }
    }
    sums
}

fn sums_of_rocpd(rows: &Value) -> Sums {
    let mut sums = Sums::new();
    for row in list(rows) {
        let key = (
            row["dispatch_id"].as_u64().unwrap_or(0),
            row["counter_name"].as_str().unwrap_or_default().to_owned(),
        );
        *sums.entry(key).or_default() += row["value"].as_f64().unwrap_or(f64::NAN);
    }
    sums
}

#[test]
fn files_of_a_started_program_are_as_amds_in_every_format() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let program = lab.run("/lab/vadd").arg(3).arg(0);
    // Statistics are asked for: of counters AMD's tool makes none.
    let words = [
        "--pmc",
        "GRBM_COUNT",
        "SQ_WAVES",
        "--stats",
        "--kernel-trace",
    ];
    let formats = ["-f", "csv", "json", "rocpd", "pftrace"];
    let words: Vec<&str> = words.into_iter().chain(formats).collect();
    let target = launched(&lab, program, out.path(), &words)?.spawn()?;
    let said = target.target.wait(PATIENCE)?.success()?;
    let file = |end: &str| out.path().join(format!("out_{end}"));
    assert!(!file("counter_collection_stats.csv").exists(), "{said}");
    assert!(file("kernel_stats.csv").exists(), "{said}");

    let csv = file("counter_collection.csv");
    let golden = out.path().join("golden.csv");
    std::fs::write(&golden, CSV_GOLDEN)?;
    let text = std::fs::read_to_string(&csv)?;
    assert_eq!(text.lines().next(), CSV_GOLDEN.lines().next());
    // Each value as AMD's: 3 kernels, quoted texts, numbers with eight decimals.
    let shape = |line: &str| -> String {
        let mut shape = String::new();
        for c in line.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            if c != '0' || !shape.ends_with('0') {
                shape.push(c);
            }
        }
        // Where there was nothing it is written with an exponent.
        shape.replace("0.0e+0", "0.0")
    };
    let shapes = |text: &str| {
        text.lines()
            .skip(1)
            .map(shape)
            .collect::<BTreeSet<String>>()
    };
    assert_eq!(shapes(&text), shapes(CSV_GOLDEN));
    assert_eq!(kernels(&csv)?, kernels(&golden)?);
    let of_csv = counted(&csv)?;
    for dispatch in of_csv.values() {
        dispatch.check(&["GRBM_COUNT", EXACT[0]]);
    }
    let sums: Sums = of_csv
        .iter()
        .flat_map(|(id, one)| {
            let all = one.values.iter();
            all.map(|(name, value)| ((*id, name.clone()), *value as f64))
        })
        .collect();

    let document = json(&file("results.json"))?;
    let tool = &document["rocprofiler-sdk-tool"][0];
    let golden: Value = serde_json::from_str(JSON_GOLDEN)?;
    for part in ["/counters", "/callback_records"] {
        let of = |document: &Value| document.pointer(part).map(keys_of);
        assert_eq!(of(tool), of(&golden), "keys of {part}");
    }
    assert_eq!(sums_of_json(tool), sums);

    let queries = [
        "SELECT dispatch_id, counter_name, value FROM counters_collection",
        "SELECT I.name AS counter_name, D.dispatch_id AS dispatch_id, P.value AS value FROM rocpd_pmc_event P JOIN rocpd_info_pmc I ON I.id = P.pmc_id JOIN rocpd_kernel_dispatch D ON D.event_id = P.event_id",
        "SELECT * FROM rocpd_info_pmc",
        "SELECT COUNT(*) AS n FROM pmc_events",
    ];
    let read = reader(&file("results.db"), &queries)?;
    let (answers, golden): (_, Value) =
        (list(&read["answers"]), serde_json::from_str(ROCPD_GOLDEN)?);
    assert_eq!(read["foreign_keys"], Value::Array(Vec::new()));
    assert_eq!(
        read["views"]["counters_collection"]["columns"],
        golden["columns"]
    );
    assert_eq!(sums_of_rocpd(&answers[0]), sums);
    assert_eq!(sums_of_rocpd(&answers[1]), sums);
    let about = |value: &Value| -> BTreeSet<String> {
        let of = |row: &Value| {
            let columns = [
                "name",
                "symbol",
                "target_arch",
                "component",
                "value_type",
                "block",
            ];
            columns.map(|column| row[column].to_string()).join(" ")
        };
        list(value).iter().map(of).collect()
    };
    assert_eq!(about(&answers[2]), about(&golden["info_pmc"]));
    let rows = list(&answers[1]).len();
    assert_eq!(answers[3][0]["n"], rows);
    // One place of GRBM_COUNT and one of SQ_WAVES for each shader engine, as in AMD's file.
    assert_eq!(rows % of_csv.len(), 0);
    let in_json = list(&tool["callback_records"]["counter_collection"]);
    let in_json: usize = in_json.iter().map(|one| list(&one["records"]).len()).sum();
    assert_eq!(rows, in_json);

    let trace = pftrace(&file("results.pftrace"))?;
    let tracks = trace["counters"].as_object().ok_or("no counters")?;
    for name in ["GRBM_COUNT", "SQ_WAVES"] {
        let track = tracks
            .iter()
            .find(|(track, _)| track.ends_with(&format!("PMC {name}")));
        let (_, changes) = track.ok_or_else(|| format!("no track of {name}: {tracks:?}"))?;
        let highest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let of_csv = highest(
            &mut sums
                .iter()
                .filter(|((_, of), _)| of == name)
                .map(|(_, v)| *v),
        );
        let of_track = highest(&mut list(changes).iter().filter_map(|change| change[1].as_f64()));
        assert_eq!(of_track, of_csv, "{name}");
    }
    Ok(())
}

/// A running program, whose groups are multiplexed: a derived counter, one of the user's own (`-E`), and
/// basic ones. All formats have the same values, and the same dispatches have none.
#[test]
fn files_of_a_running_program_say_the_same_in_every_format() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let place = tempfile::tempdir_in(lab.scratch())?;
    let extra = place.path().join("extra.yaml");
    std::fs::write(
        &extra,
        "rocprofiler-sdk:\n  counters-schema-version: 1\n  counters:\n    - name: THRICE_THE_WAVES\n      description: none\n      definitions:\n        - architectures: [gfx942]\n          expression: 3*reduce(SQ_WAVES,sum)\n",
    )?;
    let extra = lab.inside(&extra)?;
    let out = place.path().join("out");
    std::fs::create_dir(&out)?;
    let target = begin(program(&lab, 1)?.log_name("attached-formats.log"))?;
    let words = [
        "-E",
        &extra,
        "--pmc",
        "SQ_WAVES,THRICE_THE_WAVES",
        "--pmc",
        "TCC_HIT_sum,SQ_INSTS_VALU",
        "--duration",
        "1s",
        "--output-format",
        "csv,json,rocpd,pftrace",
    ];
    let attacher = attach(&lab, &target, &out, &words)?.spawn()?;
    let said = attacher.target.wait(PATIENCE)?.success()?;
    end(target)?;
    let all = files(&out);
    let file = |name: &str| {
        let mut all = all.iter();
        all.find(|file| file.to_string_lossy().ends_with(name))
            .ok_or_else(|| format!("no {name}: {said}"))
    };
    let of_csv = counted(file("counter_collection.csv")?)?;
    let with = |name: &str| {
        let all = of_csv.values();
        all.filter(|one| one.values.contains_key(name)).count()
    };
    assert!(with("SQ_WAVES") > 5 && with("TCC_HIT_sum") > 5, "{said}");
    for dispatch in of_csv.values() {
        match dispatch.values.contains_key("SQ_WAVES") {
            true => {
                dispatch.check(&["SQ_WAVES", "THRICE_THE_WAVES"]);
                let waves = dispatch.values["SQ_WAVES"];
                assert_eq!(dispatch.values["THRICE_THE_WAVES"], 3 * waves);
            }
            false => dispatch.check(&["TCC_HIT_sum", "SQ_INSTS_VALU"]),
        }
    }
    let sums: Sums = of_csv
        .iter()
        .flat_map(|(id, one)| {
            let all = one.values.iter();
            all.map(|(name, value)| ((*id, name.clone()), *value as f64))
        })
        .collect();
    let document = json(file("results.json")?)?;
    let tool = &document["rocprofiler-sdk-tool"][0];
    assert_eq!(sums_of_json(tool), sums, "json");
    let queries = [
        "SELECT dispatch_id, counter_name, value FROM counters_collection",
        "SELECT I.name AS counter_name, D.dispatch_id AS dispatch_id, P.value AS value FROM rocpd_pmc_event P JOIN rocpd_info_pmc I ON I.id = P.pmc_id JOIN rocpd_kernel_dispatch D ON D.event_id = P.event_id",
    ];
    let read = reader(file("results.db")?, &queries)?;
    for answer in list(&read["answers"]) {
        assert_eq!(sums_of_rocpd(answer), sums, "rocpd");
    }
    let trace = pftrace(file("results.pftrace")?)?;
    let tracks = trace["counters"].as_object().ok_or("no counters")?;
    for name in [
        "SQ_WAVES",
        "THRICE_THE_WAVES",
        "TCC_HIT_sum",
        "SQ_INSTS_VALU",
    ] {
        let track = tracks
            .iter()
            .find(|(track, _)| track.ends_with(&format!("PMC {name}")));
        let (_, changes) = track.ok_or_else(|| format!("no track of {name}: {tracks:?}"))?;
        let of_csv = sums.iter().filter(|((_, of), _)| of == name);
        let of_csv = of_csv.map(|(_, value)| *value).fold(0.0, f64::max);
        let of_track = list(changes).iter().filter_map(|change| change[1].as_f64());
        assert_eq!(of_track.fold(0.0, f64::max), of_csv, "{name}");
    }
    Ok(())
}
