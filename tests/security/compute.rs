//! What `rocprof-compute` and other commands write for whom, and databases of others.

use crate::commands::workload;
use crate::installed::USER;
use crate::paths::files;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, run};
use midair_tests::{Result, is_root_for};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

fn at(directory: &Path, program: &str, words: &[&str]) -> Result<Exit> {
    let mut command = command(program)?;
    command.args(words).current_dir(directory);
    run(command, PATIENCE)
}

/// Point 9 of the second review: root's reports, samples, pages and logs went through links that a
/// stranger had put into a directory.
#[test]
fn files_of_commands_do_not_go_through_a_strangers_link() -> Result<()> {
    if !is_root_for("to make a link of another user's")? {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (theirs, roots) = (dir.path().join("theirs"), dir.path().join("roots"));
    workload(&dir.path().join("w"), "kernel")?;
    let lay = || -> Result<()> {
        for place in [&theirs, &roots] {
            let _ = fs::remove_dir_all(place);
            fs::create_dir(place)?;
        }
        fs::write(roots.join("file"), "root's")?;
        for name in ["r.html", "r.txt", "r.db", "s.csv", "link"] {
            let to = if name == "link" { "" } else { "file" };
            symlink(roots.join(to), theirs.join(name))?;
            lchown(theirs.join(name), Some(USER), Some(USER))?;
        }
        Ok(chown(&theirs, Some(USER), Some(USER))?)
    };
    let analyze = |words: &[&'static str]| [&["analyze", "-p", "w"], words].concat();
    let format = |name: &'static str, to: &'static str| {
        analyze(&["--output-format", name, "--output-name", to])
    };
    let mut bad = Vec::new();
    for (program, words) in [
        ("rocprof-compute", analyze(&["--html", "theirs/r.html"])),
        ("rocprof-compute", format("txt", "theirs/r")),
        ("rocprof-compute", format("db", "theirs/r")),
        ("rocprof-compute", format("csv", "theirs/link")),
        ("midair", vec!["metrics", "--samples", "theirs/s.csv"]),
        ("midair", vec!["man", "--directory", "theirs/link"]),
        ("midair", vec!["demo", "-d", "theirs/link"]),
    ] {
        lay()?;
        let exit = at(dir.path(), program, &words)?;
        let said = exit.to_string().contains(&format!("user {USER}"));
        let kept = fs::read_to_string(roots.join("file"))? == "root's";
        let made = files(&roots)?.len() - 1;
        if exit.status.code() != Some(33) || !said || !kept || made > 0 {
            bad.push(format!("{words:?}: kept {kept}, made {made}: {exit}"));
        }
    }
    lay()?;
    // In a directory of root's own they are written.
    for (program, words, to) in [
        (
            "rocprof-compute",
            analyze(&["--html", "roots/r.html"]),
            "r.html",
        ),
        ("rocprof-compute", format("txt", "roots/r"), "r.txt"),
        ("rocprof-compute", format("db", "roots/r"), "r.db"),
        ("rocprof-compute", format("csv", "roots/c"), "c"),
        ("midair", vec!["man", "--directory", "roots/m"], "m"),
    ] {
        at(dir.path(), program, &words)?.success()?;
        let to = roots.join(to);
        let written = match to.is_dir() {
            true => files(&to)?,
            false => vec![to],
        };
        assert!(!written.is_empty(), "{words:?}");
        // Manual pages are for everybody.
        let wanted = if program == "midair" { 0o644 } else { 0o600 };
        for file in written {
            let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
            if mode != wanted {
                bad.push(format!("{}: {mode:o}", file.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    Ok(())
}

/// Point 10: everybody could read the files of a profile, and the command line in them.
#[test]
fn a_profile_is_its_users_alone_and_has_no_arguments() -> Result<()> {
    let (kit, dir) = (Kit::new()?, tempfile::tempdir()?);
    let mut bad = Vec::new();
    for (name, more) in [("plain", None), ("asked", Some("--with-arguments"))] {
        let mut command = command("rocprof-compute")?;
        command.args(["profile", "-n", name, "-d", name]).args(more);
        command.args(["--", "/bin/true", "--password=hunter2"]);
        command.current_dir(dir.path());
        command.env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
        // Nothing needs to be counted.
        command.env("ROCPROF", "/bin/true");
        let exit = run(command, PATIENCE)?;
        let below = dir.path().join(name);
        for file in ["sysinfo.csv", "profiling_config.yaml"] {
            let text = fs::read_to_string(below.join(file)).map_err(|_| exit.to_string())?;
            let (program, secret) = (text.contains("/bin/true"), text.contains("hunter2"));
            if !program || secret != more.is_some() {
                bad.push(format!("{name}: {file}: {text}"));
            }
        }
        for file in files(&below)? {
            let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
            if mode != 0o600 {
                bad.push(format!("{name}: {}: {mode:o}", file.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    Ok(())
}

/// Point 12: a database whose tables are views without an end was read for ever.
#[test]
fn a_database_with_an_endless_view_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let endless =
        "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n)";
    let agent = "id, name, product_name, extdata, type, absolute_index, vendor_name";
    let values = "x AS id, 'a' AS name, 'b' AS product_name, '{}' AS extdata, 'GPU' AS type, x AS absolute_index, '' AS vendor_name";
    for (name, made) in [
        (
            "view",
            format!("CREATE VIEW rocpd_info_agent_x AS SELECT {values} FROM {endless}"),
        ),
        // One that only counts has no row for midair to look at.
        (
            "count",
            format!(
                "CREATE VIEW rocpd_info_agent_x AS SELECT {values} FROM (SELECT count(*) AS x FROM {endless})"
            ),
        ),
        (
            "computed",
            format!(
                "CREATE TABLE rocpd_info_agent_x ({agent}, more AS (hex(zeroblob(900000000))))"
            ),
        ),
    ] {
        let here = dir.path().join(name);
        workload(&here, "kernel")?;
        fs::remove_file(here.join("pmc_perf.csv"))?;
        let database = Connection::open(here.join("pmc_perf.db"))?;
        database.execute_batch("CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER PRIMARY KEY)")?;
        database.execute_batch(&made)?;
        drop(database);
        let began = Instant::now();
        let exit = at(dir.path(), "rocprof-compute", &["analyze", "-p", name])?;
        assert_eq!(exit.status.code(), Some(40), "{name}: {exit}");
        assert!(exit.to_string().contains("not a table"), "{name}: {exit}");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}");
    }
    Ok(())
}
