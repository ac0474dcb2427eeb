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
    fs::create_dir(&theirs)?;
    fs::create_dir(&roots)?;
    fs::write(roots.join("file"), "root's")?;
    for name in ["r.html", "r.txt", "r.db", "s.csv"] {
        symlink(roots.join("file"), theirs.join(name))?;
    }
    symlink(&roots, theirs.join("link"))?;
    for name in ["r.html", "r.txt", "r.db", "s.csv", "link"] {
        lchown(theirs.join(name), Some(USER), Some(USER))?;
    }
    chown(&theirs, Some(USER), Some(USER))?;
    let analyze = ["analyze", "-p", "w"];
    let format = |name: &'static str, to: &'static str| {
        [
            &analyze[..],
            &["--output-format", name, "--output-name", to],
        ]
        .concat()
    };
    for (program, words) in [
        (
            "rocprof-compute",
            [&analyze[..], &["--html", "theirs/r.html"]].concat(),
        ),
        ("rocprof-compute", format("txt", "theirs/r")),
        ("rocprof-compute", format("db", "theirs/r")),
        ("rocprof-compute", format("csv", "theirs/link")),
        ("midair", vec!["man", "--directory", "theirs/link"]),
        ("midair", vec!["demo", "-d", "theirs/link"]),
    ] {
        let exit = at(dir.path(), program, &words)?;
        assert_eq!(exit.status.code(), Some(33), "{words:?}: {exit}");
        assert!(
            exit.to_string().contains(&format!("user {USER}")),
            "{words:?}: {exit}"
        );
    }
    // There is no NVIDIA GPU to take samples of, so only what does not happen can be seen.
    at(
        dir.path(),
        "midair",
        &["metrics", "--samples", "theirs/s.csv", "--duration", "10ms"],
    )?;
    assert_eq!(fs::read_to_string(roots.join("file"))?, "root's");
    assert_eq!(files(&roots)?, [roots.join("file")]);
    // In a directory of root's own they are written.
    for words in [
        [&analyze[..], &["--html", "roots/r.html"]].concat(),
        format("txt", "roots/r"),
        format("db", "roots/r"),
        format("csv", "roots/c"),
    ] {
        at(dir.path(), "rocprof-compute", &words)?.success()?;
    }
    at(dir.path(), "midair", &["man", "--directory", "roots/m"])?.success()?;
    let written = files(&roots)?;
    assert!(written.len() > 6, "{written:?}");
    for file in written {
        // Manual pages are for everybody, and `file` is the test's.
        let is_open = file.starts_with(roots.join("m")) || file.ends_with("file");
        let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
        assert!(is_open || mode == 0o600, "{}: {mode:o}", file.display());
    }
    Ok(())
}

/// Point 10: everybody could read the files of a profile, and the command line in them.
#[test]
fn a_profile_is_its_users_alone_and_has_no_arguments() -> Result<()> {
    let (kit, dir) = (Kit::new()?, tempfile::tempdir()?);
    let profile = |name: &str, more: &[&str]| -> Result<String> {
        let mut command = command("rocprof-compute")?;
        command.args(["profile", "-n", name, "-d", name]).args(more);
        command.args(["--", "/bin/true", "--password=hunter2"]);
        command.current_dir(dir.path());
        command.env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
        // Nothing needs to be counted.
        command.env("ROCPROF", "/bin/true");
        let exit = run(command, PATIENCE)?;
        let mut texts = String::new();
        let written = files(&dir.path().join(name))?;
        for name in ["sysinfo.csv", "profiling_config.yaml"] {
            assert!(
                written.iter().any(|file| file.ends_with(name)),
                "{name}: {exit}"
            );
        }
        for file in written {
            let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}: {exit}", file.display());
            texts.push_str(&String::from_utf8_lossy(&fs::read(&file)?));
        }
        Ok(texts)
    };
    let texts = profile("plain", &[])?;
    assert!(
        texts.contains("/bin/true") && !texts.contains("hunter2"),
        "{texts}"
    );
    let texts = profile("asked", &["--with-arguments"])?;
    assert!(texts.contains("--password=hunter2"), "{texts}");
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
