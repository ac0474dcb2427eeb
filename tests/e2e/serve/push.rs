//! Parquet files of `--push`, asked by DuckDB.

use super::http::Server;
use super::{named, sum};
use midair_tests::target::until;
use midair_tests::{Result, python};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Prints the newest sum of kernels of a process, the machine, the day, and how many files there are.
const ASK: &str = "
import duckdb, json, sys
pid, directory = sys.argv[1:]
duckdb.execute(f\"create view m as select * from read_parquet('{directory}/**/*.parquet', hive_partitioning=true)\")
row = duckdb.execute(f\"select sum(value), any_value(host), any_value(strftime(date, '%Y-%m-%d')), count(distinct labels->>'class') \"
    f\"from m where metric = 'midair_kernels_total' and pid = {pid} and time = (select max(time) from m)\").fetchone()
today = duckdb.execute(\"select strftime(make_timestamp_ns(max(time)), '%Y-%m-%d') from m\").fetchone()[0]
print(json.dumps([*row, today]))
";

fn ask(pid: i32, directory: &Path) -> Result<Value> {
    let output = Command::new(python()?)
        .args(["-c", ASK, &pid.to_string()])
        .arg(directory)
        .output()?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

#[test]
fn duckdb_finds_what_the_page_says() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let target = named(&dir.path().join("served-to-files"), &dir.path().join("log"))?;
    let files = dir.path().join("files");
    let to = files.display().to_string();
    let words = ["--always", "20%", "--only-name", "served-to-files"];
    let server =
        Server::start(&[words.as_slice(), &["--push", &to, "--push-every", "1s"]].concat())?;
    let pid = target.pid();
    let of = |family: &str| format!("{family}{{pid=\"{pid}\"");
    let page = || -> Result<String> { Ok(String::from_utf8(server.get("/metrics")?.bytes(200)?)?) };
    until("kernels", || {
        Ok(sum(&page()?, &of("midair_kernels_total")) > 20.0)
    })?;
    // Nothing runs any more, so that the newest file is the page.
    target.signal(libc::SIGSTOP)?;
    let written = || -> Result<f64> {
        Ok(sum(
            &page()?,
            "midair_push_files_total{outcome=\"written\"}",
        ))
    };
    let before = written()?;
    until("two more files", || Ok(written()? >= before + 2.0))?;
    let mut said = Value::Null;
    until("the page's sum in a file", || {
        said = ask(pid, &files)?;
        Ok(said[0].as_f64() == Some(sum(&page()?, &of("midair_kernels_total"))))
    })
    .map_err(|error| format!("{error}: {said}"))?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    assert_eq!(said[1], host.trim());
    assert_eq!(
        said[2], said[4],
        "the day of the path is the day of the rows"
    );
    assert!(said[3].as_i64() > Some(1), "{said}");
    assert_eq!(
        sum(&page()?, "midair_push_files_total{outcome=\"failed\"}"),
        0.0
    );
    target.signal(libc::SIGCONT)?;
    server.end()?;

    // What is between the last file and the end is in one more.
    let last = dir.path().join("last");
    let to = last.display().to_string();
    let server = Server::start(&["--push", &to, "--push-every", "1h"])?;
    assert!(!last.exists());
    server.end()?;
    let find = Command::new("find").arg(&last).output()?;
    let found = String::from_utf8(find.stdout)?;
    assert_eq!(found.matches(".parquet\n").count(), 1, "{found}");
    Ok(())
}
