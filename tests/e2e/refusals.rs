//! Processes to which an attach is refused: the exit code, the message, and that the process is
//! unchanged.

use midair_tests::attacher::{Attacher, by_function};
use midair_tests::caller::{Caller, between};
use midair_tests::compile::host_program;
use midair_tests::lab::Lab;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{plain_environment, run_staged, stage};
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, stage};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user of programs that are not root's.
const SOMEBODY: u32 = 1000;

fn try_attach(pid: i32) -> Result<Exit> {
    let pid = pid.to_string();
    let words = [
        "--pid",
        &pid,
        "--hip-trace",
        "--attach-duration-msec",
        "100",
    ];
    run_staged("rocprofv3", &words, PATIENCE)
}

/// Checks that both command lines refuse `pid` with this code and these words, and that
/// `midair doctor` uses the same words.
fn refused(pid: i32, code: i32, words: &str) -> Result<()> {
    let exit = try_attach(pid)?;
    assert_eq!(exit.status.code(), Some(code), "{words}: {exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.starts_with("rocprofv3: error: ") && said.contains(words),
        "{words}: {exit}"
    );
    assert!(
        !exit.stdout.iter().any(|line| line.ends_with("success")),
        "{exit}"
    );
    let exit = run_staged("midair", &["doctor", &pid.to_string()], PATIENCE)?;
    // Only an attempt can show that no thread is parked, so the doctor does not tell it.
    if code != 17 {
        assert_eq!(exit.status.code(), Some(code), "doctor, {words}: {exit}");
        let line = exit.stdout.iter().find(|line| line.starts_with("NO"));
        assert!(
            line.is_some_and(|line| line.contains(words)),
            "{words}: {exit}"
        );
    }
    Ok(())
}

/// Checks that the refusal names this remedy.
fn hinted(pid: i32, remedy: &str) -> Result<()> {
    let exit = try_attach(pid)?;
    let hint = exit.stderr.iter().find(|line| line.starts_with("hint: "));
    assert!(hint.is_some_and(|hint| hint.contains(remedy)), "{exit}");
    Ok(())
}

/// Checks as [`refused`] does, and that the process is as it was.
fn refused_untouched(pid: i32, code: i32, words: &str) -> Result<()> {
    let before = Snapshot::take(pid)?;
    refused(pid, code, words)?;
    let diff = before.diff(&Snapshot::take(pid)?).without_heap();
    assert!(diff.is_empty(), "{words}:\n{diff}");
    Ok(())
}

fn state(pid: i32) -> Result<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    after_name
        .chars()
        .next()
        .ok_or_else(|| "an empty stat".into())
}

/// Compiles C text.
fn compile(dir: &Path, name: &str, text: &str, flags: &[&str]) -> Result<PathBuf> {
    let (source, target) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&source, text)?;
    let mut cc = Command::new("cc");
    cc.env_clear()
        .envs(plain_environment())
        .arg("-o")
        .arg(&target)
        .arg(&source)
        .args(flags);
    run(cc, PATIENCE)?.success()?;
    Ok(target)
}

fn start(program: &Path, words: &[&str]) -> Result<Target> {
    let mut command = Command::new(program);
    command.args(words).env_clear().envs(plain_environment());
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    Ok(target)
}

/// Runs `body` while a process is traced.
fn traced(pid: i32, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let ptrace = |request: libc::c_uint, data: libc::c_long| -> Result<()> {
        // SAFETY: these requests take numbers only, so no midair memory is read or written.
        match unsafe { libc::ptrace(request, pid, 0_usize, data) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    };
    ptrace(libc::PTRACE_SEIZE, 0)?;
    let result = body();
    ptrace(libc::PTRACE_INTERRUPT, 0)?;
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result, and lives until the call has returned.
    if unsafe { libc::waitpid(pid, &mut status, libc::__WALL) } != pid {
        return Err("the traced process did not stop".into());
    }
    ptrace(libc::PTRACE_DETACH, 0)?;
    result
}

#[test]
fn no_process_to_attach_to() -> Result<()> {
    refused(4_194_304, 10, "there is no process 4194304")?;
    hinted(4_194_304, "midair ps lists the processes that use a GPU")?;

    let mut child = Command::new("true").stdin(Stdio::null()).spawn()?;
    let pid = child.id() as i32;
    until("its end", || Ok(state(pid)? == 'Z'))?;
    refused(pid, 13, "is a zombie")?;
    assert_eq!(state(pid)?, 'Z');
    child.wait()?;

    match std::fs::read_to_string("/proc/2/comm")
        .unwrap_or_default()
        .as_str()
    {
        "kthreadd\n" => refused(2, 12, "is a kernel thread")?,
        _ => midair_tests::leave_out("no thread of the kernel is to be seen here")?,
    }
    Ok(())
}

#[test]
fn processes_that_cannot_be_attached_to() -> Result<()> {
    let mut target = start(&host_program("plain_threads")?, &["1", "3"])?;
    let pid = target.pid();
    // This waits because the C library starts each thread with all signals blocked.
    until("its threads have begun", || {
        Ok(Snapshot::take(pid)?
            .threads
            .values()
            .all(|thread| thread.blocked == 0))
    })?;
    refused_untouched(pid, 14, "no HIP, HSA or CUDA runtime")?;
    hinted(pid, "midair attach --tree PID attaches to all of them")?;

    target.signal(libc::SIGSTOP)?;
    until("its stop", || Ok(state(pid)? == 'T'))?;
    refused_untouched(pid, 19, "is stopped")?;
    assert_eq!(state(pid)?, 'T', "continue it first");
    target.signal(libc::SIGCONT)?;

    // The kernel names the thread that traces, not its process.
    // SAFETY: gettid takes no arguments and cannot fail.
    let us = unsafe { libc::gettid() };
    traced(pid, || {
        refused_untouched(pid, 15, &format!("is traced by {us} "))
    })?;

    target.send("sum")?;
    target.expect("rounds")?;
    target.send("stop")?;
    target.expect("done")?;
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn another_c_library() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let wait = "#include <stdio.h>\n#include <unistd.h>\n#include <fcntl.h>\n#include <sys/mman.h>\n\
                int main(int count, char **words) {\n\
                  if (count > 1 && mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(words[1], O_RDONLY), 0) == MAP_FAILED) return 1;\n\
                  puts(\"ready\"); fflush(stdout); getchar(); return 0;\n}\n";
    let program = compile(dir.path(), "static", wait, &["-static"])?;
    let mut target = start(&program, &[])?;
    refused_untouched(target.pid(), 16, "linked statically")?;
    target.close_stdin();
    target.wait(PATIENCE)?.success()?;

    // A process that maps a C library which defines nothing newer than 2.31 runs on that version,
    // as far as can be seen from outside.
    let map = dir.path().join("old.map");
    std::fs::write(
        &map,
        "GLIBC_2.2.5 { global: one; };\nGLIBC_2.31 { global: two; } GLIBC_2.2.5;\n",
    )?;
    let script = format!("-Wl,--version-script={}", map.display());
    let old = compile(
        dir.path(),
        "libc.so.6",
        "int one(void) { return 1; }\nint two(void) { return 2; }\n",
        &[
            "-shared",
            "-nostdlib",
            "-fPIC",
            "-Wl,-z,noseparate-code",
            &script,
        ],
    )?;
    let mut target = start(&program, &[old.to_str().ok_or("a path is text")?])?;
    refused_untouched(
        target.pid(),
        16,
        "too old: glibc 2.31; 2.34 or newer required",
    )?;
    target.close_stdin();
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn no_thread_is_parked() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // This library has only the name of a runtime, which is enough for an attach to be tried.
    let name = "libhsa-runtime64.so.1";
    compile(dir.path(), name, "int nothing;\n", &["-shared", "-fPIC"])?;
    // The program spins on a stack without a start, so no moment of it can be known to be safe.
    let spin = r#"#include <stdio.h>
extern int nothing;
static char stack[4096] __attribute__((aligned(64)));
int main(void) {
    nothing++;
    puts("ready");
    fflush(stdout);
    __asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n1:\tpause\n\tjmp 1b" : : "r"(stack + 2048));
}
"#;
    let at = dir.path().display();
    let (library, path) = (format!("-l:{name}"), format!("-Wl,-rpath,{at}"));
    let program = compile(
        dir.path(),
        "spin",
        spin,
        &[&format!("-L{at}"), &library, &path],
    )?;
    let target = start(&program, &[])?;
    refused_untouched(
        target.pid(),
        17,
        "no thread is parked where it is safe to enter",
    )?;
    assert_eq!(state(target.pid())?, 'R');
    Ok(())
}

/// Starts two attachers at once on `caller`. One wins and records the calls, the other is refused.
/// `apart` puts each into a mount namespace with a /proc of its own, as in two containers.
fn rivals(caller: &mut Caller, apart: bool) -> Result<()> {
    let pid = caller.pid();
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let rival = |dir: &tempfile::TempDir| -> Result<Target> {
        let program = stage()?.join("bin/rocprofv3").display().to_string();
        let mut words = vec![program.as_str(), "--pid"];
        if apart {
            let own_proc = "mount -t proc proc /proc && exec \"$@\"";
            words.splice(0..0, ["unshare", "--mount", "sh", "-c", own_proc, "sh"]);
        }
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .arg(pid.to_string())
            .env_clear()
            .envs(plain_environment());
        command
            .args(["--hip-trace", "--output-format", "csv", "-o", "o", "-d"])
            .arg(dir.path());
        Target::spawn(command)
    };
    let mut rivals = [rival(&dirs[0])?, rival(&dirs[1])?];
    let mut loser = None;
    until("one of them gives way", || {
        for (number, rival) in rivals.iter_mut().enumerate() {
            if !rival.is_running()? {
                loser = Some(number);
            }
        }
        Ok(loser.is_some())
    })?;
    let [first, second] = rivals;
    let (loser, mut winner, dir) = match loser {
        Some(0) => (first, second, &dirs[1]),
        _ => (second, first, &dirs[0]),
    };
    let exit = loser.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    winner.expect("Press Enter to detach...")?;
    refused(pid, 15, "already attached")?;
    caller.tell("calls 2")?;
    winner.send("")?;
    let exit = winner.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    let calls = Csv::read(&dir.path().join("o_hip_api_trace.csv"))?;
    assert_eq!(calls.rows.len(), 26);
    Ok(())
}

#[test]
fn one_session_at_a_time_also_from_two_containers() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for number in 0..2 {
        let command = Caller::command(&lab)?.log_name(&format!("model-{number}"));
        let mut caller = Caller::start(command)?;
        rivals(&mut caller, true)?;
        rivals(&mut caller, true)?;
        // What the loser may have left behind exists only once. The refusal itself changed nothing
        // else.
        let agents = Snapshot::take(caller.pid())?;
        assert_eq!(agents.named("midair-worker").count(), 1);
        caller.quit()?;
    }
    Ok(())
}

#[test]
fn one_session_at_a_time() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    // The attachers compete for a process without a worker thread, and again when the worker thread
    // is there already.
    rivals(&mut caller, false)?;
    rivals(&mut caller, false)?;

    // A stopped or traced process is left alone, even if it is otherwise a good target.
    caller.signal(libc::SIGSTOP)?;
    until("its stop", || Ok(state(pid)? == 'T'))?;
    refused_untouched(pid, 19, "is stopped")?;
    caller.signal(libc::SIGCONT)?;
    traced(pid, || refused_untouched(pid, 15, "is traced by"))?;
    let attacher = Attacher::start(pid, &["--hip-trace"])?;
    caller.tell("calls 1")?;
    assert_eq!(attacher.detach()?.code(0)?.calls()?.len(), 13);
    caller.quit()
}

/// Copies the program and the libraries to a place where everybody may read them.
fn public_stage(dir: &Path) -> Result<PathBuf> {
    let stage = stage()?;
    for file in [
        "bin/rocprofv3",
        "lib/librocprofiler-sdk.so.1",
        "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    ] {
        let to = dir.join(file);
        std::fs::create_dir_all(to.parent().ok_or("a file has a directory")?)?;
        std::fs::copy(stage.join(file), &to)?;
    }
    Ok(dir.join("bin/rocprofv3"))
}

#[test]
fn other_users() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777))?;
    let program = public_stage(dir.path())?;
    let as_somebody = |pid: i32, words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .env_clear()
            .envs(stage::plain_environment())
            .current_dir(dir.path());
        command.args([
            "--pid",
            &pid.to_string(),
            "--hip-trace",
            "--output-format",
            "csv",
            "-d",
            ".",
            "-o",
            "s",
        ]);
        command.args(words).uid(SOMEBODY).gid(SOMEBODY);
        command
    };

    // A process of root's does not belong to this user.
    let rooted = Caller::start(Caller::command(&lab)?)?;
    let before = Snapshot::take(rooted.pid())?;
    let exit = run(
        as_somebody(rooted.pid(), &["--attach-duration-msec", "100"]),
        PATIENCE,
    )?;
    assert_eq!(exit.status.code(), Some(11), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains("it belongs to user 0, and midair runs as user 1000"),
        "{exit}"
    );
    assert!(said.contains("run this as that user or as root"), "{exit}");
    let diff = before.diff(&Snapshot::take(rooted.pid())?).without_heap();
    assert!(diff.is_empty(), "{diff}");
    rooted.quit()?;

    // Root may profile the user's process. The user may do so where the kernel's settings allow it.
    let mut caller = Caller::start(Caller::command(&lab)?.user(SOMEBODY).log_name("theirs"))?;
    let pid = caller.pid();
    let attacher = Attacher::start(pid, &["--hip-trace", "--hsa-trace"])?;
    let before = caller.counts()?;
    caller.tell("calls 3")?;
    let after = caller.counts()?;
    let calls = attacher.detach()?.code(0)?.calls()?;
    let hip = calls.iter().filter(|call| call.domain.starts_with("HIP_"));
    assert_eq!(by_function(hip), between(&before, &after, "hip"));

    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if ["", "0"].contains(&scope.trim()) {
        let mut process = Target::spawn(as_somebody(pid, &[]))?;
        process.expect("Press Enter to detach...")?;
        caller.tell("calls 4")?;
        process.send("")?;
        let exit = process.wait(PATIENCE)?;
        assert_eq!(exit.status.code(), Some(0), "{exit}");
        assert_eq!(
            Csv::read(&dir.path().join("s_hip_api_trace.csv"))?
                .rows
                .len(),
            4 * 13
        );
    } else {
        let exit = run(
            as_somebody(pid, &["--attach-duration-msec", "100"]),
            PATIENCE,
        )?;
        assert_eq!(exit.status.code(), Some(11), "{exit}");
        assert!(
            exit.stderr
                .join("\n")
                .contains("kernel.yama.ptrace_scope is"),
            "{exit}"
        );
    }
    caller.quit()
}
