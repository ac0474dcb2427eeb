//! Debian's Prometheus and Go read what the server says, where they are installed.

use super::http::{Server, say};
use super::named;
use midair_tests::Result;
use midair_tests::target::{Target, until};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

/// Whether a program is there.
fn is_there(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let is_there = command.status().is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("left out: {program} is not there");
    }
    is_there
}

#[test]
fn prometheus_scrapes_and_finds_nothing_wrong() -> Result<()> {
    if !is_there("prometheus", &["--version"]) || !is_there("promtool", &["--version"]) {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let target = named(
        &dir.path().join("served-to-prometheus"),
        &dir.path().join("log"),
    )?;
    let server = Server::start(&["--always", "20%", "--only-name", "served-to-prometheus"])?;
    let page = || -> Result<Vec<u8>> { server.get("/metrics")?.bytes(200) };
    let of = format!("midair_kernels_total{{pid=\"{}\"", target.pid());
    until("kernels", || Ok(String::from_utf8(page()?)?.contains(&of)))?;
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // promtool reads the older text, which the server has for whoever does not ask for OpenMetrics.
    check.stdin.take().ok_or("no input")?.write_all(&page()?)?;
    let checked = check.wait_with_output()?;
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.trim().is_empty(), "{said}");

    // A port that is free now.
    let at: SocketAddr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = dir.path().join("prometheus.yml");
    let text = format!(
        "scrape_configs:\n- job_name: midair\n  scrape_interval: 1s\n  static_configs: [{{ targets: [\"{}\"] }}]\n",
        server.address
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={at}"));
    let _prometheus = Target::spawn(command)?;
    let query = format!("midair_kernels_total%7Bpid%3D%22{}%22%7D", target.pid());
    let request = format!(
        "GET /api/v1/query?query={query} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    );
    let mut classes = 0;
    until("a scrape", || {
        let Ok(reply) = say(at, &request) else {
            return Ok(false);
        };
        let Ok(document) = reply.document(200) else {
            return Ok(false);
        };
        classes = document
            .pointer("/data/result")
            .and_then(|it| it.as_array())
            .map_or(0, Vec::len);
        Ok(classes > 0)
    })?;
    assert!(classes > 1, "{classes}");
    server.end()
}

#[test]
fn go_tool_pprof_reads_the_url() -> Result<()> {
    if !is_there("go", &["version"]) {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let target = named(&dir.path().join("served-to-go"), &dir.path().join("log"))?;
    let server = Server::start(&["--only-name", "served-to-go"])?;
    let url = format!(
        "http://{}/debug/pprof/gpu?pid={}&seconds=1",
        server.address,
        target.pid()
    );
    let output = Command::new("go")
        .args(["tool", "pprof", "-top", &url])
        .env("HOME", dir.path())
        .env("PPROF_TMPDIR", dir.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        said.contains("gemm") && said.contains("Showing nodes accounting for"),
        "{said}{errors}"
    );
    server.end()
}
