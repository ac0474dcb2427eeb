//! A neighbour that connects to the listener of a process which it may not trace, or that blocks
//! the listener's name.

use midair_record::VERSION;
use midair_record::connect::{outcome, prefix, refusal};
use midair_tests::compile::{self, attack_program, sources};
use midair_tests::lab::LabTarget;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{plain_environment, run_staged, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The attacher's name for this entry path.
const OVER_THE_SOCKET: &str = "the listener of the process, over its socket";
/// The exit code of attack programs where the kernel or the user's rights do not allow the attack.
const CANNOT: i32 = 77;

/// Starts a program with a GPU runtime and with our register library, which gives it a listener.
fn start(kit: &Kit, variables: &[(&str, &str)]) -> Result<LabTarget> {
    let text = |path: &Path| Ok(path.to_str().ok_or("a path is text")?.to_owned());
    let library = kit.scratch().join("libregisters.so");
    let lib = stage()?.join("lib");
    let register = text(&lib.join("librocprofiler-register.so.0"))?;
    let path = format!("-Wl,-rpath,{}", lib.display());
    let source = sources().join("registers.c");
    let flags = ["-shared", "-fPIC", &register, &path];
    compile::build(&["cc"], &source, &library, &flags, text)?;
    let preload = ("LD_PRELOAD", text(&library)?);
    let preload = (preload.0, preload.1.as_str());
    let mut target = kit.start("two_gpus", "log", &[&[preload], variables].concat())?;
    target.expect("ready")?;
    Ok(target)
}

/// Does the same, and waits until the listener can be reached.
fn start_listening(kit: &Kit) -> Result<LabTarget> {
    let target = start(kit, &[])?;
    until("listening", || Ok(name_of(target.pid())?.is_some()))?;
    Ok(target)
}

/// Returns the start of the name of this process's listener.
fn prefix_of(pid: i32) -> Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let start = after_name.split(' ').nth(19).ok_or("field 22")?.parse()?;
    Ok(prefix(pid.cast_unsigned(), start))
}

/// Returns the name of the process's listener socket, where no other process has a similar one.
fn name_of(pid: i32) -> Result<Option<String>> {
    let prefix = format!("@{}", prefix_of(pid)?);
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let listening = sockets.lines().filter(|line| line.contains(" 00010000 "));
    let mut names = listening.filter_map(|line| line.split(' ').next_back());
    let name = names.find(|name| name.starts_with(&prefix));
    Ok(name.map(|name| name[1..].to_owned()))
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Returns whether midair's code runs in the process.
fn is_entered(pid: i32) -> Result<bool> {
    let now = Snapshot::take(pid)?;
    let worker = now.named("midair-worker").next().is_some();
    Ok(worker || now.maps.iter().any(|map| map.path.contains("midair-")))
}

/// Prepares a short `midair attach`.
fn attach(pid: i32, out: &Path) -> Result<Command> {
    let mut command = Command::new(stage()?.join("bin/midair"));
    command.env_clear().envs(plain_environment());
    command.args(["attach", &pid.to_string(), "-v", "--duration", "50ms", "-d"]);
    command.arg(out);
    Ok(command)
}

/// Runs `command` in a sandbox of this kind.
fn sandboxed(kind: &str, command: &Command) -> Result<Exit> {
    let mut outer = Command::new(attack_program("sandboxed")?);
    outer.arg(kind).arg(command.get_program());
    outer.args(command.get_args()).env_clear();
    outer.envs(plain_environment());
    run(outer, PATIENCE)
}

/// Prepares a peer that speaks the listener's protocol by itself.
fn peer(pid: i32, how: &[&str]) -> Result<Command> {
    let name = name_of(pid)?.ok_or("it has no listener")?;
    let mut command = Command::new(attack_program("peer")?);
    command.args([&pid.to_string(), &name, &VERSION.to_string()]);
    command.args(how);
    Ok(command)
}

/// Returns the answer that the peer got.
fn told(exit: &Exit) -> Result<(u32, i32)> {
    let words: Vec<&str> = exit
        .stdout
        .iter()
        .flat_map(|line| line.split(' '))
        .collect();
    match words[..] {
        ["reply", outcome, error] => Ok((outcome.parse()?, error.parse()?)),
        _ => Err(exit.to_string().into()),
    }
}

fn refused(why: i32) -> (u32, i32) {
    (outcome::REFUSED, why)
}

#[test]
fn a_sandboxed_neighbour_does_not_get_in() -> Result<()> {
    for (kind, how, why) in [
        ("seccomp", "read", refusal::SANDBOX),
        ("seccomp", "guess", refusal::SANDBOX),
        ("landlock", "guess", refusal::SANDBOX),
        // Only the kernel knows that this is a sandbox.
        ("domain", "guess", refusal::PROOF),
    ] {
        let kit = Kit::new()?;
        let target = start_listening(&kit)?;
        let pid = target.pid();
        let out = kit.scratch().join("out");
        let exit = sandboxed(kind, &attach(pid, &out)?)?;
        if exit.status.code() == Some(CANNOT) {
            leave_out(&format!(
                "{kind}: the kernel has none, or not for this user"
            ))?;
            continue;
        }
        assert!(!exit.status.success(), "{kind}: {exit}");
        assert!(!is_entered(pid)?, "{kind}: {exit}");
        let exit = sandboxed(kind, &peer(pid, &[how])?)?;
        assert_eq!(told(&exit)?, refused(why), "{kind}: {exit}");
        assert!(!is_entered(pid)?, "{kind}: {exit}");
        // Outside of the sandbox, the same command of the same user attaches.
        let exit = run(attach(pid, &out)?, PATIENCE)?.success()?;
        assert!(exit.stderr.join("\n").contains(OVER_THE_SOCKET), "{exit}");
        assert!(is_entered(pid)?, "{exit}");
        quit(target)?;
    }
    Ok(())
}

/// With scope 1 the kernel lets only ancestors trace, and with 2 and 3 not even those. Our
/// attacher, and a peer that speaks to the listener by itself, get no further than a debugger.
#[test]
fn yamas_scope_counts_for_the_listener_too() -> Result<()> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(scope.trim(), "1" | "2" | "3") {
        return leave_out("kernel.yama.ptrace_scope is 0, or the kernel has no Yama");
    }
    if !is_root_for("becomes another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    for (dir, mode) in [(kit.scratch().to_owned(), 0o777), (stage()?, 0o755)] {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode))?;
    }
    let target = start(&kit, &[("REGISTERS_UID", "1000")])?;
    let pid = target.pid();
    until("listening", || Ok(name_of(pid)?.is_some()))?;
    let out = kit.scratch().join("out");
    let mut user = attach(pid, &out)?;
    user.uid(1000).gid(1000);
    let exit = run(user, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(11), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(said.contains("kernel.yama.ptrace_scope is"), "{exit}");
    let mut user = peer(pid, &["guess"])?;
    user.uid(1000).gid(1000);
    let exit = run(user, PATIENCE)?;
    assert_eq!(told(&exit)?, refused(refusal::PROOF), "{exit}");
    assert!(!is_entered(pid)?, "{exit}");
    quit(target)
}

#[test]
fn whoever_does_not_show_that_it_may_trace_gets_nothing() -> Result<()> {
    let kit = Kit::new()?;
    let target = start_listening(&kit)?;
    let pid = target.pid();
    let mut all = Vec::new();
    for (how, why) in [
        ("guess", refusal::PROOF),
        ("lend", refusal::PROOF),
        ("dead", refusal::CHANGED),
        ("reused", refusal::CHANGED),
    ] {
        let exit = run(peer(pid, &[how])?, PATIENCE)?;
        if exit.status.code() == Some(CANNOT) {
            leave_out(&format!("{how}: needs CAP_SYS_ADMIN, to choose a pid"))?;
            continue;
        }
        all.push((how, told(&exit)?, refused(why)));
        until("the end of a worker thread, if there is one", || {
            Ok(!is_entered(pid)?)
        })?;
    }
    assert!(all.iter().all(|(_, got, wanted)| got == wanted), "{all:?}");
    // The same program is served when it follows the protocol.
    let exit = run(peer(pid, &["read"])?, PATIENCE)?;
    assert_eq!(told(&exit)?, (outcome::SEND, 0), "{exit}");
    until("the end of a worker thread that nobody talks to", || {
        Ok(!is_entered(pid)?)
    })?;
    quit(target)
}

#[test]
fn a_stranger_costs_the_process_next_to_nothing() -> Result<()> {
    if !is_root_for("becomes another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let target = start_listening(&kit)?;
    let pid = target.pid();
    let snapshot = Snapshot::take(pid)?;
    let listener = snapshot.named("rocp-bg-attach").next();
    let listener = listener.ok_or("it has no listener's thread")?;
    let io = format!("/proc/{pid}/task/{listener}/io");
    if !Path::new(&io).exists() {
        return leave_out("the kernel does not count a thread's reads");
    }
    // All that the listener learns of a peer or of its own threads, it reads from files.
    let reads = || -> Result<u64> {
        let text = std::fs::read_to_string(&io)?;
        let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
        Ok(line.ok_or("syscr")?.parse()?)
    };
    let before = reads()?;
    let exit = run(peer(pid, &["stranger", "12345", "300"])?, PATIENCE)?;
    assert_eq!(told(&exit)?, refused(refusal::USER), "{exit}");
    assert_eq!(reads()?, before, "it reads nothing for a stranger");
    // While strangers keep connecting, an attacher that has the rights gets in.
    let mut flood = Target::spawn(peer(pid, &["stranger", "12345", "100000"])?)?;
    let out = kit.scratch().join("out");
    let exit = run(attach(pid, &out)?, PATIENCE)?.success()?;
    assert!(exit.stderr.join("\n").contains(OVER_THE_SOCKET), "{exit}");
    assert!(flood.is_running()?, "it went on all the time");
    flood.signal(libc::SIGKILL)?;
    flood.wait(PATIENCE)?;
    quit(target)
}

/// Returns what `midair doctor` says about the endpoint.
fn doctor(pid: i32) -> Result<String> {
    let exit = run_staged("midair", &["doctor", &pid.to_string()], PATIENCE)?;
    let line = exit
        .stdout
        .iter()
        .find(|line| line.contains("listener's socket"));
    Ok(line.ok_or_else(|| exit.to_string())?.clone())
}

#[test]
fn names_like_a_listeners_hide_nothing_and_are_told() -> Result<()> {
    for off in [false, true] {
        let kit = Kit::new()?;
        let target = match off {
            false => start_listening(&kit)?,
            true => start(&kit, &[("ROCP_TOOL_ATTACH", "0")])?,
        };
        let pid = target.pid();
        let mut squatter = Command::new(attack_program("squat")?);
        squatter.args([prefix_of(pid)?.as_str(), "240"]);
        let mut squatter = Target::spawn(squatter)?;
        squatter.expect("squats")?;
        let said = doctor(pid)?;
        // Only the names that have the form of a listener's name are counted. The others are not
        // taken for one.
        assert!(said.contains("not used: 120"), "{said}");
        assert_eq!(
            said.contains("the listener is reachable and accepts midair"),
            !off,
            "{said}"
        );
        assert_eq!(said.contains("none"), off, "{said}");
        let exit = run(attach(pid, &kit.scratch().join("out"))?, PATIENCE)?.success()?;
        let way = exit.stderr.join("\n");
        assert_eq!(way.contains(OVER_THE_SOCKET), !off, "{exit}");
        squatter.close_stdin();
        squatter.wait(PATIENCE)?.success()?;
        assert!(!doctor(pid)?.contains("not used"));
        quit(target)?;
    }
    Ok(())
}
