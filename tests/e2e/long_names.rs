//! Kernels with long names, on the stand-in runtimes. Mangled names of templates have up to some
//! hundred KiB. The HSA runtime writes a name as a whole, whatever room there is. A record has room
//! for 4 KiB.

use crate::rocpd::reader;
use midair_record::event::MOST_NAME;
use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, Target};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Bytes of the kernels' names. The symbol of a kernel has three more.
const LENGTHS: [usize; 9] = [
    1,
    3069,
    3070,
    MOST_NAME - 3,
    4500,
    4500,
    5000,
    60_000,
    199_997,
];
/// What is recorded.
const WHAT: [&str; 2] = ["--kernel-trace", "--output-format"];

fn start(kit: &Kit, lengths: &[usize], variables: &[(&str, &str)]) -> Result<LabTarget> {
    let mut program = Command::new(kit.program("long_names")?);
    program.args(lengths.iter().map(usize::to_string));
    let mut target = kit.start_command(program, "model.log", variables)?;
    target.expect("ready")?;
    Ok(target)
}

fn work(target: &mut LabTarget, rounds: u64) -> Result<()> {
    target.send(&format!("work {rounds}"))?;
    target.expect("work")?;
    Ok(())
}

/// Ends the program, which looks at its heap first.
fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    ModelLog::read(&log)?.check()
}

/// The letter by which a kernel's name ends.
fn letter(kernel: usize) -> char {
    char::from(b'A' + kernel as u8)
}

/// Returns how often each kernel ran, by its name, of the trace in csv. The kernel is known by its
/// grid, too.
fn by_name(file: &Path) -> Result<BTreeMap<String, (usize, u64)>> {
    let mut kernels = BTreeMap::new();
    for row in Csv::read(file)?.rows {
        let kernel = Csv::number(&row, "Grid_Size_X")? as usize / 64 - 1;
        let name = row["Kernel_Name"].clone();
        let (of, count) = kernels.entry(name).or_insert((kernel, 0));
        assert_eq!(*of, kernel, "two kernels have one name");
        *count += 1;
    }
    Ok(kernels)
}

/// Checks that each kernel ran so often, and has its name, whole or cut.
fn check(kernels: &BTreeMap<String, (usize, u64)>, rounds: u64) {
    assert_eq!(kernels.len(), LENGTHS.len());
    for (name, (kernel, count)) in kernels {
        let (len, letter) = (LENGTHS[*kernel], letter(*kernel));
        assert_eq!(*count, rounds, "a name of {len} bytes");
        if len + 3 <= MOST_NAME {
            let whole = format!("{}{letter}", "k".repeat(len - 1));
            assert!(*name == whole, "a name of {len} bytes: {name}");
        } else {
            let (begin, hash) = name.split_once('…').unwrap_or_default();
            assert!(begin.len() > 3900 && begin.bytes().all(|byte| byte == b'k'));
            assert!(hash.len() == 16, "a name of {len} bytes: {name}");
        }
    }
}

/// Returns the names in the json and rocpd files next to a csv file.
fn other_formats(json_file: &Path, rocpd_file: &Path) -> Result<[Vec<String>; 2]> {
    let document = json(json_file)?;
    let symbols = document["rocprofiler-sdk-tool"][0]["kernel_symbols"].as_array();
    let names = symbols.into_iter().flatten().filter_map(|symbol| {
        let name = symbol["formatted_kernel_name"].as_str()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    let query = "SELECT DISTINCT name AS name FROM kernels ORDER BY name";
    let read = reader(rocpd_file, &[query])?;
    let rows = read["answers"][0].as_array().into_iter().flatten();
    let rows = rows.filter_map(|row| Some(row["name"].as_str()?.to_owned()));
    Ok([names, rows.collect()])
}

fn attached(target: &mut LabTarget, words: &[&str]) -> Result<Traced> {
    let attacher = Attacher::start(target.pid(), &[&WHAT[..], words].concat())?;
    work(target, 3)?;
    attacher.detach()?.code(0)
}

#[test]
fn kernels_with_long_names_are_recorded_and_the_program_lives() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, &LENGTHS, &[])?;
    for _ in 0..2 {
        let traced = attached(&mut target, &["csv", "json", "rocpd"])?;
        let kernels = by_name(&traced.file("kernel_trace.csv"))?;
        check(&kernels, 3);
        let files = ["results.json", "results.db"].map(|name| traced.file(name));
        let names: Vec<String> = kernels.into_keys().collect();
        let [in_json, in_rocpd] = other_formats(&files[0], &files[1])?;
        // In json number 0 is a filler.
        assert!(
            in_json.len() <= names.len() + 1 && names.iter().all(|name| in_json.contains(name))
        );
        assert!(in_rocpd == names);
        let notes = std::fs::read_to_string(traced.file("notes.txt"))?;
        let is_said = |line: &str| line.starts_with("kernel names") && line.ends_with(": 5");
        assert!(notes.lines().any(is_said), "{notes}");
    }
    quit(target)
}

#[test]
fn a_started_program_with_long_names_is_recorded() -> Result<()> {
    let kit = Kit::new()?;
    let out = kit.scratch().join("out");
    let mut run = command("midair")?;
    run.args(["run", "--kernel-trace", "-f", "csv", "-o", "t", "-d"]);
    run.arg(&out).arg("--").arg(kit.program("long_names")?);
    run.args(LENGTHS.map(|len| len.to_string()));
    let mut target = kit.start_command(run, "model.log", &[])?;
    target.expect("ready")?;
    work(&mut target, 3)?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    // One round more comes before "ready".
    check(&by_name(&out.join("t_kernel_trace.csv"))?, 4);
    Ok(())
}

#[test]
fn top_shows_kernels_with_long_names() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, &LENGTHS, &[])?;
    let mut top = command("midair")?;
    top.args(["top", &target.pid().to_string(), "--json"]);
    top.args(["--interval", "250ms"]);
    let mut top = Target::spawn(top)?;
    top.expect("{")?;
    work(&mut target, 3)?;
    loop {
        let document: serde_json::Value = serde_json::from_str(&top.expect("{")?)?;
        let kernels = document["kernels"].as_array().map_or(0, Vec::len);
        if kernels == LENGTHS.len() {
            break;
        }
    }
    top.signal(libc::SIGINT)?;
    top.wait(PATIENCE)?.success()?;
    quit(target)
}

/// Whatever length the runtime reports for its texts (names of symbols, URIs of code objects) and
/// writes, the program lives, and each dispatch is recorded with a name.
#[test]
fn no_length_that_the_runtime_reports_harms_the_program() -> Result<()> {
    let kit = Kit::new()?;
    for texts in ["0", "1", "3072", "3073", "200000", "2000000", "grows"] {
        let mut target = start(&kit, &[5, 4000, 200_000], &[("SIM_HSA_TEXTS", texts)])?;
        let traced = attached(&mut target, &["csv"])?;
        let rows = Csv::read(&traced.file("kernel_trace.csv"))?.rows;
        assert_eq!(rows.len(), 9, "{texts}");
        for row in rows {
            let name = &row["Kernel_Name"];
            let kernel = Csv::number(&row, "Grid_Size_X")? as usize / 64 - 1;
            let expected = match (texts, kernel) {
                ("0", _) => name.ends_with("(no name)"),
                ("1", _) => name == "k",
                ("2000000", _) => name.ends_with("(a name of 2000000 bytes)"),
                ("grows", 0) => *name == format!("kkkk{}", letter(0)),
                ("grows", 1) => name.len() == 4000 && name.ends_with(letter(1)),
                ("grows", _) | ("200000", _) => name.len() > 3900 && name.contains('…'),
                // The first three bytes behind the name are the ending of the symbol.
                (len, 0) => name.starts_with("kkkkA.kdk") && name.len() == len.parse::<usize>()?,
                (len, _) => name.len() == len.parse::<usize>()?,
            };
            assert!(expected, "{texts}, kernel {kernel}: {name}");
        }
        quit(target)?;
    }
    Ok(())
}

#[test]
fn a_choice_of_kernels_by_a_long_name_is_the_same_on_both_sides() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, &LENGTHS, &[])?;
    let words = ["csv", "--kernel-include-regex", "…"];
    let traced = attached(&mut target, &words)?;
    let kernels = by_name(&traced.file("kernel_trace.csv"))?;
    assert_eq!(kernels.len(), 5);
    assert!(
        kernels
            .values()
            .all(|(kernel, count)| *kernel >= 4 && *count == 3)
    );
    quit(target)
}

/// The same on AMD's runtimes, which compile the kernels themselves.
#[test]
fn kernels_with_long_names_are_recorded_on_amds_runtimes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = lab.run(&lab.program("long_names")?);
    for len in LENGTHS {
        program = program.arg(len);
    }
    let mut target = program.spawn()?;
    target.expect("ready")?;
    for _ in 0..2 {
        let traced = attached(&mut target, &["csv"])?;
        check(&by_name(&traced.file("kernel_trace.csv"))?, 3);
    }
    quit(target)
}
