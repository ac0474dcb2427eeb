//! One side is not scheduled for a while, as on a starved machine. What a process did meanwhile is
//! in the results, or the command line and its exit code say that it is not. The tests use the
//! stand-in runtimes and need no root.

use midair_ptrace::Tid;
use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::held::{Held, call_of, thread_named, threads};
use midair_tests::lab::LabTarget;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, until};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The worker thread in a target.
const WORKER: &str = "midair-worker";
/// Longer than an application once waited for the worker thread before it went on unrecorded. It
/// waits longer now.
const STARVED: Duration = Duration::from_millis(2500);

/// Starts a rank that has not opened its runtime yet.
fn rank(kit: &Kit, variables: &[(&str, &str)]) -> Result<LabTarget> {
    let mut command = Command::new(kit.program("ranks")?);
    command.args(["rank", "0"]);
    let mut target = kit.start_command(command, "model.log", variables)?;
    target.expect("ready")?;
    Ok(target)
}

/// Waits for the rank's report and returns the number of launches in it.
fn launched(target: &mut LabTarget) -> Result<usize> {
    let line = target.expect("rank")?;
    let count = line.rsplit(' ').next().ok_or("a count")?;
    Ok(count.parse()?)
}

fn recorded(traced: &Traced) -> Result<usize> {
    let file = traced.file("kernel_trace.csv");
    Ok(if file.exists() {
        Csv::read(&file)?.rows.len()
    } else {
        0
    })
}

fn attached(target: &LabTarget) -> Result<(Attacher, Tid)> {
    let attacher = Attacher::midair(target.pid(), &[])?;
    Ok((attacher, thread_named(target.pid(), WORKER)?))
}

/// Returns whether a thread of the application sleeps, that is, waits for our worker thread.
fn somebody_waits(pid: i32) -> Result<bool> {
    Ok(threads(pid)?.into_iter().any(|tid| {
        call_of(pid, tid).is_some_and(|(number, _)| number == libc::SYS_clock_nanosleep)
    }))
}

fn quit(target: LabTarget) -> Result<()> {
    target.target.wait(PATIENCE)?.success().map(drop)
}

/// The worker thread is not scheduled for some seconds while the application opens its runtime. The
/// application waits for it, and nothing is missed.
#[test]
fn a_runtime_opened_while_the_worker_thread_is_starved_is_recorded_from_its_first_kernel()
-> Result<()> {
    let kit = Kit::new()?;
    let mut target = rank(&kit, &[])?;
    let (attacher, agent) = attached(&target)?;
    let held = Held::anywhere(agent)?;
    target.send("work 5")?;
    until("the application waits", || somebody_waits(target.pid()))?;
    // This sleep does not wait for an event: it is the time in which nothing may happen.
    let end = Instant::now() + STARVED;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(held);
    let count = launched(&mut target)?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(recorded(&traced)?, count, "{}", traced.exit);
    quit(target)
}

/// The worker thread is not scheduled at all. The application goes on after a while, and a message
/// says what is missing.
#[test]
fn an_application_that_ran_on_unrecorded_is_not_a_success() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = rank(&kit, &[])?;
    let (attacher, agent) = attached(&target)?;
    let held = Held::anywhere(agent)?;
    target.send("work 5")?;
    let count = launched(&mut target)?;
    drop(held);
    let traced = attacher.detach()?.code(32)?;
    assert!(recorded(&traced)? < count, "{}", traced.exit);
    let said = traced.exit.stderr.join("\n");
    assert!(
        said.contains("used its GPU runtime before"),
        "{}",
        traced.exit
    );
    quit(target)
}

/// The attacher is not scheduled for longer than its lease. The session in the target ends, the
/// program goes on, and a message says what is missing.
#[test]
fn a_session_ended_by_its_lease_is_not_a_success() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = rank(&kit, &[])?;
    let pid = target.pid();
    target.send("work 1")?;
    let before = launched(&mut target)?;
    let (mut attacher, agent) = attached(&target)?;
    target.send("work 3")?;
    let seen = launched(&mut target)? - before;
    attacher.process().signal(libc::SIGSTOP)?;
    // The worker thread parks, which is the only wait of its own that has no limit.
    until("the end of the session", || {
        Ok(call_of(pid, agent)
            .is_some_and(|(number, words)| number == libc::SYS_futex && words.get(3) == Some(&0)))
    })?;
    target.send("work 5")?;
    let after = launched(&mut target)? - before - seen;
    assert!(after > 0);
    attacher.process().signal(libc::SIGCONT)?;
    let traced = attacher.ended()?.code(32)?;
    assert_eq!(recorded(&traced)?, seen, "{}", traced.exit);
    let said = traced.exit.stderr.join("\n");
    assert!(
        said.contains("midair was unresponsive for too long"),
        "{}",
        traced.exit
    );
    quit(target)
}

/// Turns a file of the topology into a FIFO. The runtime reads it in the middle of `hsa_init`,
/// which goes on only when the test writes to it.
fn gate(topology: &Path) -> Result<PathBuf> {
    let gate = topology.join("nodes/0/name");
    let _ = std::fs::remove_file(&gate);
    let name = CString::new(gate.as_os_str().as_bytes())?;
    // SAFETY: mkfifo only reads the path, which ends with a NUL and lives until the call has
    // returned.
    match unsafe { libc::mkfifo(name.as_ptr(), 0o600) } {
        0 => Ok(gate),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &there)?;
        } else {
            std::fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}

/// The worker thread sees the runtime open at the very moment when `hsa_init` has released its lock
/// and has not returned. Then it is not scheduled, before it has hooked anything. The application
/// waits for it all the same. (Because of this case, ranks of a tree once had no kernels, without a
/// message.)
#[test]
fn an_application_waits_while_its_open_runtime_is_not_hooked_yet() -> Result<()> {
    let kit = Kit::new()?;
    let topology = kit.scratch().join("topology");
    copy_all(&kit.dir().join("topology"), &topology)?;
    let variable = topology.to_str().ok_or("a path is text")?;
    let mut target = rank(&kit, &[("HSA_MODEL_TOPOLOGY", variable)])?;
    let pid = target.pid();
    let (attacher, agent) = attached(&target)?;
    // The FIFO is made only now, after the attacher has read the topology.
    let gate = gate(&topology)?;
    target.send("work 5")?;

    // One thread of the application is inside `hsa_init`, at the FIFO. The worker thread waits for
    // the lock that this thread holds. It waits without a limit, which it never does otherwise.
    let mut opener = None;
    until("hsa_init", || {
        let at_gate = |tid: &Tid| {
            *tid != agent
                && call_of(pid, *tid).is_some_and(|(number, _)| number == libc::SYS_openat)
        };
        opener = threads(pid)?.into_iter().find(at_gate);
        Ok(opener.is_some())
    })?;
    let mut lock = 0;
    until("our thread at the lock", || {
        if let Some((libc::SYS_futex, words)) = call_of(pid, agent)
            && let [word, _, _, 0, ..] = words[..]
        {
            lock = word;
        }
        Ok(lock != 0)
    })?;

    let opener = opener.ok_or("a thread that opens the runtime")?;
    // The worker thread is held where it looks for tables. The opener is held at the end of the
    // call that wakes the worker thread.
    let (watched, is_watched) = channel();
    let at_tables = move || call_of(pid, agent).is_some_and(|(call, _)| call == libc::SYS_openat);
    let ours = std::thread::spawn(move || {
        let ready = move || Ok(watched.send(())?);
        Held::at_call(agent, ready, at_tables, 1)
    });
    is_watched.recv()?;
    let at_wake = move || {
        call_of(pid, opener).is_some_and(|(number, words)| {
            number == libc::SYS_futex && words.first() == Some(&lock)
        })
    };
    // Opening a FIFO for writing waits for its reader, which runs only after `ready` has returned.
    let open_gate = move || {
        std::thread::spawn(move || std::fs::write(&gate, "a GPU\n"));
        Ok(())
    };
    let waking = Held::at_call(opener, open_gate, at_wake, 2)?;
    let ours = ours.join().map_err(|_| "the thread that holds ours")??;
    drop(waking);
    let told = |target: &LabTarget| target.lines().iter().any(|line| line.starts_with("rank"));
    until("the application waits, or has gone on", || {
        Ok(somebody_waits(pid)? || told(&target))
    })?;
    drop(ours);
    let count = launched(&mut target)?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(recorded(&traced)?, count, "{}", traced.exit);
    quit(target)
}
