//! Results that want one name at one moment: as many results as commands that end with 0, and no
//! file of one takes the place of another's. Needs no root.

use midair_tests::Result;
use midair_tests::stage::{command, workload};
use midair_tests::target::{PATIENCE, Target};
use std::collections::BTreeSet;
use std::path::Path;

const AT_ONCE: usize = 3;
const ROUNDS: usize = 4;

/// Returns the names in a directory.
fn results(directory: &Path) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(directory)? {
        all.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(all)
}

/// Returns the names of so many results.
fn names(count: usize) -> BTreeSet<String> {
    (1..=count)
        .map(|number| match number {
            1 => "same_results.db".to_owned(),
            number => format!("same-{number}_results.db"),
        })
        .collect()
}

#[test]
fn attaches_that_end_at_the_same_moment() -> Result<()> {
    let mut programs = Vec::new();
    for _ in 0..AT_ONCE {
        let mut program = Target::spawn(workload(&[])?)?;
        program.expect("iter 3")?;
        programs.push(program);
    }
    let directory = tempfile::tempdir()?;
    for round in 1..=ROUNDS {
        let mut attaches = Vec::new();
        for program in &programs {
            let mut attach = command("midair")?;
            attach.args(["attach", &program.pid().to_string(), "-o", "same", "-d"]);
            attach.arg(directory.path());
            attaches.push(Target::spawn(attach)?);
        }
        for attach in &mut attaches {
            attach.expect_error("attached to process")?;
        }
        for attach in &mut attaches {
            attach.send("")?;
        }
        for attach in attaches {
            attach.wait(PATIENCE)?.success()?;
        }
        assert_eq!(results(directory.path())?, names(round * AT_ONCE));
    }
    Ok(())
}

/// The children of a launcher have one name for their results, and end together.
#[test]
fn ranks_of_a_launcher_that_end_at_the_same_moment() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for round in 1..=ROUNDS {
        let rank = workload(&[])?;
        let program = rank.get_program().to_string_lossy().into_owned();
        let all = format!("{program} 3 1000 & ").repeat(AT_ONCE) + "wait";
        let mut run = command("midair")?;
        run.args(["run", "-o", "same", "-d"]).arg(directory.path());
        run.args(["--", "sh", "-c", &all]);
        for (name, value) in rank.get_envs() {
            if let Some(value) = value {
                run.env(name, value);
            }
        }
        Target::spawn(run)?.wait(PATIENCE)?.success()?;
        assert_eq!(results(directory.path())?, names(round * AT_ONCE));
    }
    Ok(())
}
