//! A target whose names and messages are shown in terminals and spreadsheets.

use crate::limits::forger;
use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, run, until};
use midair_tests::{Result, obeyed};
use std::fs;
use std::path::Path;

/// Characters that move a cursor, set a title, change the direction of text or break a line.
pub(crate) const EVIL: &str = "\u{1b}[2Jx\u{7}\u{9b}31m\u{202e}gpj\u{2066}\u{2028}\u{7f}\nok";

pub(crate) fn assert_harmless(exit: &Exit, what: &str) {
    for line in exit.stdout.iter().chain(&exit.stderr) {
        assert!(!line.contains(obeyed), "{what}: {line:?}");
    }
}

/// The process's name, its command line, and the directory of its runtime.
#[test]
fn names_of_processes_and_libraries_do_not_control_a_terminal() -> Result<()> {
    let kit = Kit::new()?;
    let dir = kit.scratch().join(format!("evil{EVIL}"));
    fs::create_dir(&dir)?;
    for name in ["libhsa-runtime64.so.1", "libamdhip64.so.7"] {
        fs::copy(kit.dir().join(name), dir.join(name))?;
    }
    let program = midair_tests::compile::attack_program("forger")?;
    let mut started = std::process::Command::new(program);
    started.arg(&dir);
    let short: String = EVIL.chars().take(9).collect();
    let mut target = kit.start_command(started, "log", &[("NAME", &short)])?;
    target.target.expect("ready")?;
    let pid = target.target.pid().to_string();

    let midair = |words: &[&str]| -> Result<Exit> {
        let mut command = command("midair")?;
        command.args(words);
        run(command, PATIENCE)
    };
    let ps = midair(&["ps"])?;
    assert!(ps.stdout.iter().any(|line| line.contains(&pid)), "{ps}");
    assert_harmless(&ps, "ps");
    let doctor = midair(&["doctor", &pid])?;
    let shown = doctor
        .stdout
        .iter()
        .any(|line| line.contains("evil\u{fffd}[2Jx"));
    assert!(shown, "{doctor}");
    assert_harmless(&doctor, "doctor");
    // Output for programs has the complete names.
    for words in [&["ps", "--json"][..], &["doctor", &pid, "--json"]] {
        let json = midair(words)?;
        assert_harmless(&json, "json");
        let document: serde_json::Value = serde_json::from_str(&json.stdout.join("\n"))?;
        let text = document.to_string();
        assert!(text.contains("\u{202e}gpj"), "{text}");
    }
    // The names in all messages of an attach, and in the messages of an attach that fails.
    let results = tempfile::tempdir()?;
    let words = ["attach", &pid, "-v", "--duration", "100ms", "-d"];
    let into = results.path().to_str().ok_or("a path is text")?;
    let attached = midair(&[&words[..], &[into]].concat())?;
    assert_harmless(&attached, "attach");
    assert_harmless(&midair(&["attach", &pid, "-d", "/proc/no"])?, "a refusal");
    assert_harmless(&midair(&["attach", "--name", EVIL])?, "words of the user");
    Ok(())
}

/// The target also names its kernels. Their names are in the table at the end, and in csv as AMD's
/// tool writes them.
#[test]
fn names_of_kernels_do_not_control_a_terminal() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = forger(&kit, &[], &[])?;
    let pid = target.target.pid().to_string();
    let results = tempfile::tempdir()?;
    let mut attach = command("midair")?;
    attach.args([
        "attach",
        &pid,
        "--kernel-trace",
        "--summary",
        "-f",
        "csv",
        "-o",
        "r",
        "-d",
    ]);
    attach.arg(results.path());
    let mut attach = midair_tests::target::Target::spawn(attach)?;
    attach.expect_error("attached to process")?;
    for what in ["evil 1", "kernels 3 1"] {
        target.target.send(what)?;
        let answer = what.split(' ').next().unwrap_or_default();
        target.target.expect(answer)?;
    }
    attach.send("")?;
    let exit = attach.wait_by_itself(PATIENCE)?.success()?;
    assert_harmless(&exit, "the table and the summary");
    assert!(
        exit.stdout.iter().any(|line| line.contains("=1+1")),
        "{exit}"
    );
    // A cell starts with the unchanged start of the kernel's name, as AMD's tool writes it.
    let table = fs::read_to_string(Path::new(results.path()).join("r_kernel_trace.csv"))?;
    assert!(table.contains(",\"=1+1\u{1b}[2J"), "{table}");
    Ok(())
}

/// The same process in the pictures of `top`.
#[test]
fn names_in_top_do_not_control_a_terminal() -> Result<()> {
    let kit = Kit::new()?;
    let short: String = EVIL.chars().take(9).collect();
    let mut target = forger(&kit, &[], &[("NAME", &short)])?;
    let pid = target.target.pid().to_string();
    let mut top = command("midair")?;
    top.args(["top", &pid, "--interval", "500ms"]);
    let mut top = midair_tests::target::Target::spawn(top)?;
    // The kernels of the forger are shown once it is attached to.
    let forge = |target: &mut LabTarget, what: &str| {
        target.target.send(what)?;
        target
            .target
            .expect(what.split(' ').next().unwrap_or_default())
    };
    until("midair is in the process", || {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(maps.contains("midair-spool"))
    })?;
    forge(&mut target, "evil 1")?;
    until("its kernel is shown", || {
        forge(&mut target, "kernels 3 1")?;
        Ok(top.lines().iter().any(|line| line.contains("=1+1")))
    })?;
    top.close_stdin();
    let exit = top.wait_by_itself(PATIENCE)?;
    assert_harmless(&exit, "top");
    Ok(())
}

/// A host of `fleet` whose shell, or whatever takes its place, answers with such text.
#[test]
fn what_hosts_of_a_fleet_say_does_not_control_a_terminal() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    let ssh = dir.path().join("ssh");
    fs::write(dir.path().join("said"), EVIL)?;
    let script = format!(
        "#!/bin/sh\ncat {0}/said; cat {0}/said >&2; exit 3\n",
        dir.path().display()
    );
    fs::write(&ssh, script)?;
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
    let mut fleet = command("midair")?;
    fleet
        .args(["fleet", "--program", "/nowhere/midair", "--ssh"])
        .arg(&ssh);
    fleet.args(["hostile", "--", "attach", "1", "--duration", "100ms"]);
    let exit = run(fleet, PATIENCE)?;
    assert_ne!(exit.status.code(), Some(0), "{exit}");
    assert!(exit.to_string().contains("hostile"), "{exit}");
    assert_harmless(&exit, "fleet");
    Ok(())
}

/// Point 11 of the second review: a name of 70,000 characters ended the command, and the summary of
/// the other hosts with it.
#[test]
fn a_host_of_a_fleet_says_too_much() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    let (ssh, long) = (dir.path().join("ssh"), "n".repeat(70_000));
    let screen = |name: &str, number: u64| {
        let row = serde_json::json!({"name": name, "calls": number, "total_ns": number});
        let head = serde_json::json!({"records": number, "lost": {"a": number, "b": number}, "without_times": number});
        serde_json::json!({
            "schema": 1, "processes": [head, head], "tables": [{"title": "Kernels", "rows": [row, row]}], "files": [name],
        })
    };
    fs::write(dir.path().join("mad"), screen(&long, u64::MAX).to_string())?;
    fs::write(dir.path().join("good"), screen("gemm", 10).to_string())?;
    // The host is the word before the command.
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in mad|good) cat {}/$word; exit 0;; esac; done\n",
        dir.path().display()
    );
    fs::write(&ssh, script)?;
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
    let mut fleet = command("midair")?;
    fleet.args(["fleet", "--program", "/nowhere/midair", "--ssh"]);
    fleet.arg(&ssh);
    fleet.args(["mad", "good", "--", "attach", "1", "--duration", "100ms"]);
    let exit = run(fleet, PATIENCE)?.success()?;
    assert!(
        exit.stdout.iter().any(|line| line.starts_with("gemm")),
        "{exit}"
    );
    let longest = exit.stdout.iter().map(|line| line.chars().count()).max();
    assert!(longest < Some(10_000), "{longest:?}");
    Ok(())
}

/// Point 14: a command line of two million characters was printed whole.
#[test]
fn a_long_command_line_is_cut() -> Result<()> {
    let kit = Kit::new()?;
    let mut long = std::process::Command::new(kit.program("two_gpus")?);
    for _ in 0..12 {
        long.arg("a".repeat(100_000));
    }
    let mut target = kit.start_command(long, "log", &[])?;
    target.target.expect("ready")?;
    let pid = target.target.pid().to_string();
    for words in [
        &["ps"][..],
        &["ps", "--json"],
        &["ps", "--all"],
        &["doctor", &pid],
    ] {
        let mut midair = command("midair")?;
        midair.args(words);
        let exit = run(midair, PATIENCE)?;
        let text = exit.to_string();
        let run = text.split(|c| c != 'a').map(str::len).max();
        assert!(run < Some(10_000), "{words:?}: {run:?}");
        if words == ["ps", "--json"] {
            assert!(text.contains("aaa\u{2026}"), "{words:?}");
        }
    }
    Ok(())
}

/// A workload directory of a program whose kernels, machine and files have such names.
#[test]
fn names_in_a_workload_do_not_control_a_terminal() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let here = dir.path().join(format!("w{EVIL}"));
    fs::create_dir(&here)?;
    let name = EVIL.replace('\n', "");
    fs::write(
        here.join("sysinfo.csv"),
        format!(
            "workload_name,gpu_model,gpu_arch,cu_per_gpu,max_sclk,num_xcd\n{name},MI300X{name},gfx942,304,2100,8\n"
        ),
    )?;
    fs::write(
        here.join("pmc_perf.csv"),
        format!(
            "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,CPF_CPF_STAT_BUSY,\
             CPF_CPF_STAT_STALL,Start_Timestamp,End_Timestamp\n0,0,64,64,0,\"kernel{name}\",400,100,1000,2000\n"
        ),
    )?;
    let compute = |words: &[&str], at: &Path| -> Result<Exit> {
        let mut command = command("rocprof-compute")?;
        command.args(["analyze", "-p"]).arg(at).args(words);
        run(command, PATIENCE)
    };
    for words in [&[][..], &["--list-stats"], &["-b", "4"], &["-b", "3"]] {
        let exit = compute(words, &here)?.success()?;
        assert_harmless(&exit, "analyze");
    }
    let stats = compute(&["--list-stats"], &here)?;
    let shown = stats
        .stdout
        .iter()
        .any(|line| line.contains("kernel\u{fffd}[2Jx"));
    assert!(shown, "{stats}");
    // What it refuses it names.
    fs::write(here.join("sysinfo.csv"), format!("gpu_arch\ngfx{name}\n"))?;
    for at in [here.clone(), here.join(format!("missing{EVIL}"))] {
        let exit = compute(&[], &at)?;
        assert_eq!(exit.status.code(), Some(40), "{exit}");
        assert_harmless(&exit, "a refusal of analyze");
    }
    Ok(())
}
