//! Two profilers in one process: midair attaches, and the program has a profiler of its own that
//! uses our SDK (`tests/c/client_proton.c`, with Proton's calls). Both record what happens while
//! both are on, whichever starts first and whichever ends first. Where one keeps the process for
//! itself, the other one is refused with a status, and a message names who keeps it.

use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::client::ClientHost;
use midair_tests::lab::Lab;
use midair_tests::stage::{run_staged, stage};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, until};
use object::Object;
use serde_json::Value;

fn attach(host: &ClientHost) -> Result<Attacher> {
    Attacher::start(host.pid(), &["--kernel-trace", "--hip-runtime-trace"])
}

/// Returns the rows of the kernels' file, and checks that each has times and a name.
fn kernels(traced: &Traced) -> Result<u64> {
    let rows = Csv::read(&traced.file("kernel_trace.csv"))?.rows;
    for row in &rows {
        let (start, end) = (
            Csv::number(row, "Start_Timestamp")?,
            Csv::number(row, "End_Timestamp")?,
        );
        assert!(0 < start && start < end, "{row:?}");
        assert!(row["Kernel_Name"].contains("vadd"), "{row:?}");
    }
    Ok(rows.len() as u64)
}

/// Waits until the client has the records of this many kernels and launches, and checks that it has
/// no others.
fn client_has(host: &mut ClientHost, expected: u64) -> Result<()> {
    until(&format!("{expected} kernels of the client"), || {
        assert_eq!(host.client("flush")?, 0);
        Ok(host.count()?["kernels"] >= expected)
    })?;
    let count = host.count()?;
    for what in ["kernels", "named", "enters", "exits"] {
        assert_eq!(count[what], expected, "{what}: {count:?}");
    }
    assert_eq!((count["failed"], count["wrong"]), (0, 0), "{count:?}");
    Ok(())
}

/// Returns the doctor's check of a name, and whether the doctor says that an attach would be
/// possible.
fn doctor(host: &ClientHost, name: &str) -> Result<(Value, bool)> {
    let exit = run_staged(
        "midair",
        &["doctor", &host.pid().to_string(), "--json"],
        PATIENCE,
    )?;
    let told: Value = serde_json::from_str(&exit.stdout.join("\n"))?;
    let checks = told["checks"].as_array().ok_or("there are checks")?;
    let check = checks.iter().find(|check| check["name"] == name);
    Ok((
        check.ok_or(format!("no check {name}: {told:#}"))?.clone(),
        told["attachable"] == true,
    ))
}

#[test]
fn a_profiler_that_begins_while_midair_is_attached() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Either midair leaves first, or the other profiler does.
    for midair_first in [true, false] {
        let command = ClientHost::command(&lab)?.log_name(&format!("log-{midair_first}"));
        let mut host = ClientHost::start(&lab, command)?;
        let attacher = attach(&host)?;
        host.round(3)?;
        host.load(&lab, "proton")?;
        host.round(2)?;
        assert_eq!(host.client("start")?, 0);
        host.round(7)?;
        client_has(&mut host, 7)?;
        let mut all = 12;
        if midair_first {
            let traced = attacher.detach()?.code(0)?;
            assert_eq!(kernels(&traced)?, all);
            // The client's own session starts when ours is over. From then on it is notified of
            // launches.
            until("the client's own session", || {
                Ok(doctor(&host, "own session")?.0["status"] == "note")
            })?;
            host.round(5)?;
            client_has(&mut host, 12)?;
        } else {
            assert_eq!(host.client("stop")?, 0);
            host.round(4)?;
            all += 4;
            client_has(&mut host, 7)?;
            let traced = attacher.detach()?.code(0)?;
            assert_eq!(kernels(&traced)?, all);
        }
        // And once more.
        let attacher = attach(&host)?;
        host.round(6)?;
        assert_eq!(kernels(&attacher.detach()?.code(0)?)?, 6);
        client_has(&mut host, if midair_first { 18 } else { 7 })?;
        host.quit()?;
    }
    Ok(())
}

#[test]
fn an_attach_while_another_profiler_records() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for midair_first in [true, false] {
        let command = ClientHost::command(&lab)?.log_name(&format!("log-{midair_first}"));
        let mut host = ClientHost::start(&lab, command)?;
        host.load(&lab, "proton")?;
        assert_eq!(host.client("start")?, 0);
        host.round(5)?;
        client_has(&mut host, 5)?;
        let (own, attachable) = doctor(&host, "own session")?;
        assert!(attachable && own["status"] == "note", "{own:#}");
        assert!(
            own["found"].as_str().is_some_and(
                |found| found.contains("librocprofiler-sdk.so") && found.contains("shares")
            ),
            "{own:#}"
        );
        let attacher = attach(&host)?;
        host.round(7)?;
        client_has(&mut host, 12)?;
        if midair_first {
            assert_eq!(kernels(&attacher.detach()?.code(0)?)?, 7);
            until("the client's own session", || {
                Ok(doctor(&host, "own session")?.0["status"] == "note")
            })?;
            host.round(3)?;
            client_has(&mut host, 15)?;
            assert_eq!(host.client("stop")?, 0);
        } else {
            assert_eq!(host.client("stop")?, 0);
            host.round(3)?;
            client_has(&mut host, 12)?;
            assert_eq!(kernels(&attacher.detach()?.code(0)?)?, 10);
        }
        host.quit()?;
    }
    Ok(())
}

#[test]
fn a_profiler_that_is_merely_loaded_keeps_nobody_out() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?)?;
    host.load(&lab, "proton")?;
    // What the doctor says is consistent: the attach works.
    assert!(doctor(&host, "worker thread")?.1);
    assert_eq!(doctor(&host, "worker thread")?.0["status"], "pass");
    for _ in 0..2 {
        let attacher = attach(&host)?;
        host.round(4)?;
        assert_eq!(kernels(&attacher.detach()?.code(0)?)?, 4);
    }
    let count = host.count()?;
    assert_eq!((count["kernels"], count["failed"]), (0, 0), "{count:?}");
    // The client has the names that it keeps for later.
    assert!(count["symbols"] > 0, "{count:?}");
    host.quit()
}

/// Makes a directory of the lab with our SDK under another build id.
fn another_build(lab: &Lab) -> Result<String> {
    let mut bytes = std::fs::read(stage()?.join("lib/librocprofiler-sdk.so.1"))?;
    let id = object::File::parse(bytes.as_slice())?
        .build_id()?
        .ok_or("our library has a build id")?
        .to_vec();
    let at = bytes
        .windows(id.len())
        .position(|window| window == id)
        .ok_or("the build id is in the file")?;
    bytes[at] ^= 1;
    let directory = lab.scratch().join("other");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("librocprofiler-sdk.so"), bytes)?;
    lab.inside(&directory)
}

/// `ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED`.
const LOCKED: i32 = 16;

/// Two builds of the SDK know nothing of each other. The later one is refused, by a status that the
/// client sees or by a failure that names the library.
#[test]
fn two_builds_refuse_each_other_by_name() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let other = another_build(&lab)?;
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?.log_name("one"))?;
    let attacher = attach(&host)?;
    host.load_with(&lab, "proton", &other)?;
    host.send("client start")?;
    assert_eq!(
        host.expect("status ")?,
        format!("status p_start_context {LOCKED}")
    );
    host.expect("start 1")?;
    host.round(2)?;
    assert_eq!(kernels(&attacher.detach()?.code(0)?)?, 2);
    assert_eq!(host.client("start")?, 0);
    host.round(3)?;
    until("the client's kernels", || {
        assert_eq!(host.client("flush")?, 0);
        Ok(host.count()?["kernels"] == 3)
    })?;
    // Now the other way round.
    let pid = host.pid().to_string();
    let exit = run_staged("rocprofv3", &["--pid", &pid, "--hip-trace"], PATIENCE)?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    let said = exit.stderr.join(" ");
    assert!(
        said.contains("another build") && said.contains("other/librocprofiler-sdk.so"),
        "{exit}"
    );
    host.quit()
}

#[test]
fn a_program_under_the_profiler_is_named_as_such() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let files = lab.inside(lab.scratch())?;
    let launcher = format!("{stage}/bin/rocprofv3");
    let words = [
        launcher.as_str(),
        "--kernel-trace",
        "-f",
        "csv",
        "-d",
        &files,
        "-o",
        "own",
        "--",
    ];
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?.under(&words))?;
    host.round(2)?;
    let pid = host.pid().to_string();
    let (own, attachable) = doctor(&host, "own session")?;
    assert!(!attachable && own["status"] == "fail", "{own:#}");
    assert_eq!(doctor(&host, "worker thread")?.0["status"], "pass");
    let exit = run_staged("rocprofv3", &["--pid", &pid, "--hip-trace"], PATIENCE)?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    let said = exit.stderr.join(" ");
    assert!(
        said.contains("started under the profiler") && !said.contains("lease"),
        "{exit}"
    );
    host.round(3)?;
    host.quit()?;
    let rows = Csv::read(&lab.scratch().join("own_kernel_trace.csv"))?.rows;
    assert_eq!(rows.len(), 5);
    Ok(())
}
