//! `midair flame --diff`: two recordings of one program, which works three times as much in the second
//! one. The page and the table have what the folded stacks of each have.

use crate::top_code::{ask, started};
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::LabTarget;
use midair_tests::stage::run_staged;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE};
use midair_tests::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The GPU's time before and after, by stack.
type Stacks = BTreeMap<String, [u64; 2]>;

fn recorded(target: &mut LabTarget, rounds: u64) -> Result<Traced> {
    let words = [
        "--kernel-trace",
        "--stacks",
        "python",
        "-f",
        "html,rocpd,folded,csv",
    ];
    let attacher = Attacher::midair(target.pid(), &words)?;
    ask(target, rounds)?;
    attacher.detach()?.code(0)
}

fn folded(all: [&Traced; 2]) -> Result<Stacks> {
    let mut stacks = Stacks::new();
    for (at, traced) in all.into_iter().enumerate() {
        for line in std::fs::read_to_string(traced.file("results.folded"))?.lines() {
            let (stack, time) = line.rsplit_once(' ').ok_or("no time")?;
            stacks.entry(stack.to_owned()).or_default()[at] += time.parse::<u64>()?;
        }
    }
    Ok(stacks)
}

fn compare(words: &[&Path], results: &Path, more: &[&str]) -> Result<Exit> {
    let [before, after] = words else {
        return Err("two recordings".into());
    };
    let words: Vec<String> = [before, after, &results]
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let [before, after, results] = words.as_slice() else {
        return Err("three paths".into());
    };
    let own = ["flame", "--diff", before, after, "-d", results];
    run_staged("midair", &[&own[..], more].concat(), PATIENCE)
}

/// Returns the stacks of the page.
fn of_page(file: &Path) -> Result<Stacks> {
    let page = std::fs::read_to_string(file)?;
    let data = page.split_once("id=\"data\">").map(|(_, rest)| rest);
    let data = data.and_then(|rest| rest.split_once("</script>"));
    let (data, _) = data.ok_or_else(|| Error::from("no data"))?;
    let data: Value = serde_json::from_str(data)?;
    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
    let mut stacks = Stacks::new();
    for stack in data["stacks"].as_array().into_iter().flatten() {
        let path = stack[1].as_array().into_iter().flatten();
        let name = |at: &Value| data["frames"][number(at) as usize].as_str();
        let path: Vec<&str> = path.filter_map(name).collect();
        let times = [&stack[0][0], &stack[0][1]].map(number);
        stacks.insert(path.join(";"), times);
    }
    Ok(stacks)
}

#[test]
fn a_difference_has_the_times_of_both_recordings() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = started(&kit)?;
    let before = recorded(&mut target, 1)?;
    let after = recorded(&mut target, 3)?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    let wanted = folded([&before, &after])?;
    assert!(wanted.len() > 8, "{wanted:?}");
    for name in ["results.html", "results.db", "results.folded"] {
        let out = kit.scratch().join(name);
        let exit = compare(&[&before.file(name), &after.file(name)], &out, &[])?.success()?;
        assert_eq!(
            of_page(&out.join("flame_diff.html"))?,
            wanted,
            "{name}: {exit}"
        );
        let rows = exit.stdout.iter().filter(|line| line.contains(".py:"));
        let rows: Vec<&str> = rows.map(String::as_str).collect();
        let own = rows
            .iter()
            .filter(|row| row.contains("python/launch_lines.py:"));
        // Folded stacks do not say which files are a library's.
        match name {
            "results.folded" => assert!(rows.len() == 1 && rows[0].contains("gpu.py:"), "{exit}"),
            _ => assert!(rows.len() > 8 && own.count() > 7, "{exit}"),
        }
    }
    // Directories, and shares.
    let out = kit.scratch().join("directories");
    let more = ["--normalize", "-o", "of"];
    let exit = compare(&[before.dir(), after.dir()], &out, &more)?.success()?;
    assert_eq!(of_page(&out.join("of_diff.html"))?, wanted);
    assert!(exit.stdout[2].contains("%  "), "{exit}");
    // What has no stacks is named.
    let csv = before.file("kernel_trace.csv");
    let empty = kit.scratch().join("empty");
    std::fs::create_dir(&empty)?;
    for (path, why) in [
        (csv.as_path(), "cannot read stacks from"),
        (&empty, "has no stacks"),
    ] {
        let exit = compare(&[before.dir(), path], &out, &[])?;
        let said = exit.stderr.join("\n");
        assert!(!exit.status.success(), "{exit}");
        assert!(
            said.contains(why) && said.contains(&path.display().to_string()),
            "{exit}"
        );
    }
    Ok(())
}
