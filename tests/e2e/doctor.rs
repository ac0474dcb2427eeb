//! `midair doctor` and `midair ps`: what they report is true, and they do not touch any process.

use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{plain_environment, run_staged, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

mod rights;

/// The user of programs that are not root's.
const SOMEBODY: u32 = 1000;

fn midair(words: &[&str]) -> Result<Exit> {
    run_staged("midair", words, PATIENCE)
}

fn json(exit: &Exit) -> Result<Value> {
    Ok(serde_json::from_str(&exit.stdout.concat())?)
}

/// Returns the check of this name.
fn check<'a>(told: &'a Value, name: &str) -> Result<&'a Value> {
    let checks = told["checks"].as_array().ok_or("no checks")?;
    let found = checks.iter().find(|check| check["name"] == name);
    found.ok_or_else(|| format!("no check of {name} in {told:#}").into())
}

/// Makes the kernel kill the process when it makes any of the calls that touch another process. All
/// other calls are allowed.
fn no_touching(command: &mut Command) {
    const TOUCHING: [libc::c_long; 8] = [
        libc::SYS_ptrace,
        libc::SYS_process_vm_writev,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_pidfd_send_signal,
        libc::SYS_process_madvise,
    ];
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    // The first word of the data is the number of the call. If it is one of the forbidden calls,
    // the kernel kills the process.
    let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    // This request fails unless the process is traced already, and asks whether a filter is in the way.
    let request = std::mem::offset_of!(libc::seccomp_data, args) as u32;
    filter.extend([
        op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            4,
            libc::SYS_ptrace as u32,
        ),
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, request),
        op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::PTRACE_CONT,
        ),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
    ]);
    for call in TOUCHING {
        filter.push(op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ));
        filter.push(op(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ));
    }
    filter.push(op(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ALLOW,
    ));
    // SAFETY: the closure runs between fork and exec. It only calls prctl, which is
    // async-signal-safe. The filter is moved into the closure, so it lives in the child until the
    // exec.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr().cast_mut(),
            };
            let set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0;
            if set {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

fn untouching(words: &[&str]) -> Result<Exit> {
    let mut command = Command::new(stage()?.join("bin/midair"));
    command.args(words).env_clear().envs(plain_environment());
    no_touching(&mut command);
    run(command, PATIENCE)
}

#[test]
fn doctor_inspects_a_gpu_process_without_touching_it() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "log", &[])?;
    target.expect("ready")?;
    // By then each thread has its memory from the allocator.
    target.send("work 2")?;
    target.expect("work")?;
    let pid = target.pid();
    let word = pid.to_string();
    let before = Snapshot::take(pid)?;
    // The program has answered, but its thread may still be on the way to waiting for the next
    // command.
    until("the first thread waits", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat"))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S')))
    })?;
    let switches = switches(pid)?;

    let exit = untouching(&["doctor", &word, "--json"])?;
    let told = json(&exit)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert_eq!(
        (&told["attachable"], &told["pid"]),
        (&true.into(), &pid.into())
    );
    for name in [
        "libraries",
        "tools",
        "process",
        "permission",
        "rights",
        "tracer",
        "state",
        "seccomp",
        "machine",
        "C library",
        "thread manager",
        "runtime",
        "results",
        "headroom",
        "kernel",
    ] {
        assert_eq!(check(&told, name)?["status"], "pass", "{name}: {told:#}");
    }
    for name in [
        "table source",
        "other profilers",
        "worker thread",
        "own session",
        "listener",
        "threads",
        "namespaces",
        "descriptors",
        "memory cgroup",
        "thread limit",
        "spool",
        "clock",
    ] {
        assert_ne!(check(&told, name)?["status"], "fail", "{name}: {told:#}");
    }
    let runtime = check(&told, "runtime")?["found"]
        .as_str()
        .unwrap_or_default();
    assert!(
        runtime.contains("/libamdhip64.so") && runtime.contains("/libhsa-runtime64.so"),
        "{runtime}"
    );
    let libc = check(&told, "C library")?["found"]
        .as_str()
        .unwrap_or_default();
    assert!(libc.starts_with("glibc 2."), "{libc}");
    // The id of a thread stands for its process.
    let mut threads = before.threads.keys();
    if let Some(tid) = threads.find(|tid| **tid != pid) {
        let exit = untouching(&["doctor", &tid.to_string()])?;
        assert_eq!(exit.status.code(), Some(0), "{exit}");
        let says = format!("{tid} is a thread of process {pid} ");
        assert!(
            exit.stdout.iter().any(|line| line.contains(&says)),
            "{exit}"
        );
    }
    let exit = untouching(&["attach", &word, "--dry-run"])?;
    assert_eq!(
        exit.stdout.last().map(String::as_str),
        Some("process can be attached to"),
        "{exit}"
    );
    let listed = untouching(&["ps", "--json"])?;
    assert_eq!(listed.status.code(), Some(0), "{listed}");

    let diff = before.diff(&Snapshot::take(pid)?);
    assert!(diff.is_empty(), "{diff}");
    // The first thread, which waits for a command, was not woken.
    assert_eq!(self::switches(pid)?, switches);
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Returns the voluntary context switches of the first thread.
fn switches(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.ok_or("no count of switches")?.trim().parse()?)
}

#[test]
fn the_filter_of_these_tests_kills_a_process_that_touches_another() -> Result<()> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "kill -0 $$; exit 0"])
        .env_clear()
        .envs(plain_environment());
    no_touching(&mut command);
    let exit = run(command, PATIENCE)?;
    assert_eq!(exit.status.code(), None, "{exit}");
    Ok(())
}

fn listed(pid: i32) -> Result<Option<Value>> {
    let told = json(&midair(&["ps", "--json"])?)?;
    let processes = told["processes"].as_array().ok_or("no list")?;
    Ok(processes
        .iter()
        .find(|process| process["pid"] == pid)
        .cloned())
}

#[test]
fn ps_lists_gpu_processes_and_what_of_midair_they_hold() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "log", &[])?;
    target.expect("ready")?;
    let pid = target.pid();
    let told = listed(pid)?.ok_or("the process is not listed")?;
    let kinds: Vec<&str> = told["runtimes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|runtime| runtime["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["HIP", "HSA"], "{told:#}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let threads = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"))
        .unwrap_or_default();
    assert_eq!(told["threads"].to_string(), threads.trim(), "{told:#}");
    assert_eq!(
        (&told["attached"], &told["attachable"]),
        (&"no".into(), &true.into()),
        "{told:#}"
    );
    // This test's own process has no runtime.
    assert!(listed(std::process::id() as i32)?.is_none());

    // The table has a row for it.
    let exit = midair(&["ps"])?;
    let row = exit
        .stdout
        .iter()
        .find(|line| line.trim_start().starts_with(&format!("{pid} ")));
    assert!(
        row.is_some_and(|row| row.contains("HIP") && row.contains("two_gpus")),
        "{exit}"
    );
    assert!(exit.stdout[0].trim_start().starts_with("PID"), "{exit}");

    let word = pid.to_string();
    let out = kit.scratch().display().to_string();
    midair(&["attach", &word, "--duration", "100ms", "-d", &out])?.success()?;
    let told = listed(pid)?.ok_or("the process is not listed")?;
    assert_eq!(
        (&told["attached"], &told["way"]),
        (&"parked".into(), &"parked worker thread".into()),
        "{told:#}"
    );

    // The obstacle is named, with the exit code that an attach would have.
    target.target.signal(libc::SIGSTOP)?;
    midair_tests::target::until("its stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T')))
    })?;
    let told = listed(pid)?.ok_or("the process is not listed")?;
    let doctor = midair(&["doctor", &word, "--json"])?;
    let told_by_doctor = json(&doctor)?;
    assert_eq!(
        (&told["attachable"], &told_by_doctor["attachable"]),
        (&false.into(), &false.into()),
        "{told:#}"
    );
    assert_eq!(told["exit_code"], 19, "{told:#}");
    assert_eq!(doctor.status.code(), Some(19), "{doctor}");
    assert!(
        told["why"]
            .as_str()
            .is_some_and(|why| why.contains("stopped"))
    );
    target.target.signal(libc::SIGCONT)?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn ps_counts_the_processes_it_cannot_inspect() -> Result<()> {
    if !is_root_for("to be another user than the processes")? {
        return Ok(());
    }
    let ps = |words: &[&str]| -> Result<Value> {
        let mut command = Command::new(stage()?.join("bin/midair"));
        command
            .args(words)
            .env_clear()
            .envs(plain_environment())
            .uid(SOMEBODY)
            .gid(SOMEBODY);
        let exit = run(command, PATIENCE)?.success()?;
        json(&exit)
    };
    let told = ps(&["ps", "--json"])?;
    // The list has this test, and the process that runs it.
    let unreadable = told["unreadable"].as_u64().unwrap_or(0);
    assert!(unreadable >= 2, "{told:#}");
    let all = ps(&["ps", "--all", "--json"])?;
    let us = all["processes"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|process| process["pid"] == std::process::id());
    let us = us.ok_or("this process is not among all")?;
    assert_eq!(
        (&us["attachable"], &us["exit_code"]),
        (&false.into(), &11.into()),
        "{us:#}"
    );
    Ok(())
}

#[test]
fn processes_that_are_not_targets() -> Result<()> {
    let exit = midair(&["doctor", "0"])?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    for (nobody, code) in [("4194304", 10), ("-5", 2), ("no-such-program", 10)] {
        let exit = midair(&["doctor", nobody])?;
        assert_eq!(exit.status.code(), Some(code), "{exit}");
    }
    // The shell becomes the program by `exec`, so the program has the pid that the shell passed.
    let mut command = Command::new("sh");
    let program = stage()?.join("bin/midair");
    command
        .args(["-c", "exec \"$0\" doctor $$"])
        .arg(&program)
        .env_clear()
        .envs(plain_environment());
    let exit = run(command, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    assert!(
        exit.stdout
            .iter()
            .any(|line| line.contains("is midair itself")),
        "{exit}"
    );
    // Process 1 is looked at like any other. It has no runtime, or we have no right to look at it.
    let exit = midair(&["doctor", "1"])?;
    assert!(
        exit.stdout.iter().any(|line| line.contains("process  ")),
        "{exit}"
    );
    assert!(exit.status.code().is_some_and(|code| code != 0), "{exit}");
    Ok(())
}

/// The document follows `docs/doctor.schema.json`: for a process that can be attached to, for one
/// that cannot, and for the machine.
#[test]
fn the_json_is_what_its_schema_says() -> Result<()> {
    let schema = midair_tests::workspace().join("docs/doctor.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema)?)?;
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    let own = std::process::id().to_string();
    for words in [
        &["doctor", "--json", &pid][..],
        &["doctor", "--json", &own],
        &["doctor", "--json"],
    ] {
        let exit = midair(words)?;
        let told = json(&exit)?;
        let faults = midair_tests::schema::faults(&schema, &told);
        assert!(faults.is_empty(), "{words:?}: {faults:#?}");
        assert_eq!(
            told["exit_code"].as_i64(),
            exit.status.code().map(i64::from),
            "{exit}"
        );
    }
    let told = json(&midair(&["doctor", "--json"])?)?;
    assert_eq!(told["pid"], Value::Null);
    for name in [
        "libraries",
        "kernel",
        "tracing",
        "pid namespace",
        "GPU processes",
        "NVIDIA driver",
        "results",
    ] {
        check(&told, name)?;
    }
    Ok(())
}
