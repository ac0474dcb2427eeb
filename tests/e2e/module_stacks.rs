//! The paths of PyTorch's modules in Python stacks. The program has a file with the path and the functions
//! of PyTorch's `module.py`. Each launch has its module's number in grid.x, so each kernel's row says which
//! path its stack has to have.

use crate::launch_stacks::pythons;
use crate::rocpd::reader;
use midair_tests::attacher::Attacher;
use midair_tests::stand_in::Kit;
use midair_tests::target::PATIENCE;
use midair_tests::{Result, workspace};
use std::collections::BTreeMap;
use std::process::Command;

/// Launches of each number, and their modules from the outermost one on.
const BY_NUMBER: &str = "SELECT k.grid_x / 64 AS number, k.event_id AS event, (
      SELECT group_concat(name, ' ') FROM (
        SELECT c.function AS name FROM call_stacks AS c
        WHERE c.guid = k.guid AND c.event_id = k.event_id
          AND c.file LIKE '%/torch/nn/modules/module.py' AND c.function NOT LIKE '%.%call_impl%'
        ORDER BY c.depth DESC)) AS modules
    FROM kernels AS k";

/// Returns the modules of each number.
fn wanted() -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    for layer in 0..6 {
        let path = format!("GPT.layers.{layer}");
        for (at, name) in [(1, "attn"), (2, "mlp")] {
            all.insert(10 * layer + at, format!("GPT {path} {path}.{name}"));
        }
    }
    for (number, modules) in [
        (91, "GPT GPT.head GPT.head.0"),
        (92, "GPT GPT.head GPT.head.1"),
        (93, "GPT"),
        (94, "GPT"),
        (99, "Leaf"),
        (100, ""),
    ] {
        all.insert(number, modules.to_owned());
    }
    all
}

#[test]
fn each_launch_has_the_path_of_its_module() -> Result<()> {
    // Older ones keep an argument that an inner function uses elsewhere, and 3.14 was not there to test.
    let reads = |python: &String| {
        !["/3.9.", "/3.10.", "/3.14."]
            .iter()
            .any(|it| python.contains(it))
    };
    for python in pythons().into_iter().filter(reads) {
        let kit = Kit::new()?;
        let mut command = Command::new(&python);
        command
            .args(["-B"])
            .arg(workspace().join("tests/python/launch_modules.py"))
            .arg(kit.dir().join("libamdhip64.so.7"));
        let library = kit.dir().display().to_string();
        let mut target =
            kit.start_command(command, "model.log", &[("LD_LIBRARY_PATH", &library)])?;
        target.expect("ready")?;
        let words = [
            "--kernel-trace",
            "--stacks",
            "python",
            "--stacks-by",
            "module",
            "-f",
            "rocpd,folded",
        ];
        let attacher = Attacher::midair(target.pid(), &words)?;
        target.send("work 3")?;
        target.expect("work")?;
        let traced = attacher.detach()?.code(0)?;
        let read = reader(&traced.file("results.db"), &[BY_NUMBER])?;
        let rows = read["answers"][0].as_array().ok_or("rows")?;
        let mut found: BTreeMap<u64, String> = BTreeMap::new();
        for row in rows {
            let modules = row["modules"].as_str().unwrap_or_default().to_owned();
            let number = row["number"].as_u64().ok_or("a number")?;
            let known = found.entry(number).or_insert_with(|| modules.clone());
            assert_eq!(*known, modules, "{python}: {row}");
        }
        assert_eq!(found, wanted(), "{python}");
        assert_eq!(rows.len(), 3 * found.len(), "{python}");
        let folded = std::fs::read_to_string(traced.file("results.folded"))?;
        let path = "GPT (modules/module.py:";
        let attn = "GPT.layers.3.attn (modules/module.py:";
        assert!(
            folded
                .lines()
                .any(|line| line.starts_with(path) && line.contains(attn)),
            "{folded}"
        );
        target.send("quit")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}
