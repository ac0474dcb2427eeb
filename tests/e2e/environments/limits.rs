//! Limits of the process, of its memory cgroup, and of the attaching side. An attach that fits
//! works. Another one is refused before anything is touched, and the program goes on under its
//! limit.

use crate::environments::kit::{
    Attach, Program, Start, as_user, attacher, ballast, refusal, refused, settled, words, works,
    works_once,
};
use midair_tests::memory_group::MemoryGroup;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Returns a field of the process's status, in bytes.
fn status(pid: i32, key: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim_start_matches(':').split_ascii_whitespace().next());
    Ok(number.ok_or("no such line")?.parse::<u64>()? * 1024)
}

fn set(pid: i32, resource: libc::__rlimit_resource_t, value: u64) -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: libc::RLIM_INFINITY,
    };
    let mut old = limit;
    // SAFETY: both pointers are to midair's structs, which live until the call has returned.
    let done = unsafe {
        libc::prlimit(pid, resource, std::ptr::null(), &mut old);
        let new = libc::rlimit {
            rlim_max: old.rlim_max,
            ..limit
        };
        libc::prlimit(pid, resource, &new, std::ptr::null_mut())
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

fn start(kit: &Kit, name: &str) -> Result<Program> {
    let mut program = Program::start(kit, name, Start::default())?;
    // From now on all its threads and buffers exist.
    program.ask("work 2")?;
    Ok(program)
}

#[test]
fn descriptors() -> Result<()> {
    let kit = Kit::new()?;
    // The default of most systems is 1024.
    for limit in [40, 256, 1024] {
        let start = Start {
            limits: vec![(libc::RLIMIT_NOFILE, limit)],
            ..Start::default()
        };
        let mut program = Program::start(&kit, &limit.to_string(), start)?;
        works(
            &mut program,
            &Attach::default(),
            &format!("{limit} descriptors"),
        )?;
        program.quit()?;
    }
    let program = start(&kit, "full")?;
    let open: Vec<u64> = std::fs::read_dir(format!("/proc/{}/fd", program.pid))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let free_below = |limit: u64| limit - open.iter().filter(|&&fd| fd < limit).count() as u64;
    for left in 0..4 {
        let limit = (1..).find(|&limit| free_below(limit) > left).unwrap_or(0) - 1;
        set(program.pid, libc::RLIMIT_NOFILE, limit)?;
        refused(
            &program,
            &Attach::default(),
            23,
            "descriptors (RLIMIT_NOFILE) are left",
        )?;
    }
    set(program.pid, libc::RLIMIT_NOFILE, 1024)?;
    program.quit()
}

#[test]
fn memory_that_may_be_mapped() -> Result<()> {
    let kit = Kit::new()?;
    let everything = Attach {
        options: words(&["--sys-trace"]),
        ..Attach::default()
    };
    let spool = 65 * MIB;
    let limits = [
        (
            libc::RLIMIT_AS,
            "VmSize",
            "address space (RLIMIT_AS)",
            spool + 321 * MIB,
        ),
        (libc::RLIMIT_DATA, "VmData", "data (RLIMIT_DATA)", 225 * MIB),
    ];
    for (resource, field, words, enough) in limits {
        let mut program = start(&kit, field)?;
        for left in [0, 2 * MIB, 40 * MIB, 200 * MIB] {
            set(program.pid, resource, status(program.pid, field)? + left)?;
            refused(&program, &everything, 23, words)?;
        }
        // The headroom that we ask for is enough, whatever is traced.
        set(program.pid, resource, status(program.pid, field)? + enough)?;
        works(&mut program, &everything, words)?;
        set(program.pid, resource, libc::RLIM_INFINITY)?;
        program.quit()?;
    }
    // Other limits do not apply to anything of midair's: we provide the stacks of our threads, and
    // memory files belong to the attacher.
    let small = [(libc::RLIMIT_STACK, 64 << 10), (libc::RLIMIT_FSIZE, MIB)];
    for (resource, limit) in small {
        let mut program = start(&kit, &resource.to_string())?;
        set(program.pid, resource, limit)?;
        works(
            &mut program,
            &Attach::default(),
            "a small stack, or small files",
        )?;
        set(program.pid, libc::RLIMIT_FSIZE, libc::RLIM_INFINITY)?;
        program.quit()?;
    }
    Ok(())
}

#[test]
fn mappings() -> Result<()> {
    let kit = Kit::new()?;
    let most: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count")?
        .trim()
        .parse()?;
    let with = |count: usize| -> Result<Start> {
        Ok(Start {
            environment: vec![
                ballast(&kit)?,
                ("BALLAST_MAPS".to_owned(), count.to_string().into()),
            ],
            ..Start::default()
        })
    };
    let mut program = Program::start(&kit, "many", with(5000)?)?;
    works(&mut program, &Attach::default(), "5000 mappings")?;
    program.quit()?;
    if most > 100_000 {
        return leave_out("vm.max_map_count is too high to be met here");
    }
    let mut program = Program::start(&kit, "most", with(most - 2000)?)?;
    works(&mut program, &Attach::default(), "nearly all mappings")?;
    program.quit()?;
    // The program alone has about 120 mappings.
    let program = Program::start(&kit, "full", with(most - 160)?)?;
    refused(
        &program,
        &Attach::default(),
        23,
        "mappings (vm.max_map_count) are left",
    )?;
    program.quit()
}

#[test]
fn threads_of_a_user() -> Result<()> {
    if !is_root_for("to be another user")? {
        return Ok(());
    }
    /// A user that no other process has.
    const SOMEBODY: u32 = 61_234;
    let kit = Kit::new()?;
    let begin = Start {
        before: as_user(SOMEBODY),
        ..Start::default()
    };
    let mut program = Program::start(&kit, "nproc", begin)?;
    program.ask("work 2")?;
    let pid = program.pid;
    let count = std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
    // The user may lower the limit of a running process, so `prlimit` runs as that user. We cannot
    // set it ourselves after the start.
    let lower = as_user(SOMEBODY);
    let mut command = Command::new(&lower[0]);
    command
        .args(&lower[1..])
        .args(["prlimit", "--pid", &pid.to_string()])
        .arg(format!("--nproc={count}:"));
    run(command, PATIENCE)?.success()?;
    refused(&program, &Attach::default(), 23, "could not make a thread")?;
    program.quit()
}

#[test]
fn the_attaching_side() -> Result<()> {
    let kit = Kit::new()?;
    let mut program = start(&kit, "fine")?;
    let attach = |resource, limit| Attach {
        limits: vec![(resource, limit)],
        ..Attach::default()
    };
    // Without a check the attacher would be ended by SIGXFSZ.
    for limit in [0, 4096, MIB] {
        refused(
            &program,
            &attach(libc::RLIMIT_FSIZE, limit),
            23,
            "RLIMIT_FSIZE",
        )?;
    }
    works(
        &mut program,
        &attach(libc::RLIMIT_FSIZE, 70 * MIB),
        "files of 70 MiB",
    )?;
    // Whatever fails is reported, and the program goes on.
    let address_space = [60, 80, 90, 100, 120, 160].map(|mib| (libc::RLIMIT_AS, mib * MIB));
    for (resource, limit) in [&address_space[..], &[(libc::RLIMIT_NOFILE, 8)]].concat() {
        let mut code = 15;
        // The worker thread that the attach before has started may still be busy loading.
        until("an answer of its own", || {
            let exit = refusal(&program, &attach(resource, limit))?;
            code = exit.status.code().unwrap_or(-1);
            assert!(
                // In a release build the memory may be enough.
                code == 0 && resource == libc::RLIMIT_AS
                    || code == 15
                    || (20..40).contains(&code) && !exit.stderr.is_empty(),
                "{exit}"
            );
            Ok(code != 15)
        })?;
        program.ask("work 1")?;
    }
    settled(&program)?;
    works_once(&mut program, &Attach::default())?;
    program.quit()
}

/// A thread of the attaching side takes its stack, and no heap of its own (64 MiB, and for a moment
/// twice as much). What one thread reserves, another one may need, and an allocation that fails
/// ends the process.
#[test]
fn threads_of_the_attaching_side_share_what_is_left() -> Result<()> {
    const LIMIT: u64 = 1 << 30;
    let kit = Kit::new()?;
    let mut program = start(&kit, "heaps")?;
    let attach = Attach {
        limits: vec![(libc::RLIMIT_AS, LIMIT)],
        ..Attach::default()
    };
    let dir = tempfile::tempdir()?;
    let mut session = Target::spawn(attacher(&program, &attach, dir.path())?)?;
    session.expect_error("attached to process")?;
    let (size, peak) = (
        status(session.pid(), "VmSize")?,
        status(session.pid(), "VmPeak")?,
    );
    session.send("")?;
    session.wait(PATIENCE)?.success()?;
    // The C library keeps a thread's heap after the end of the thread.
    assert!(peak < size + 32 * MIB, "{peak} at most, {size} now");
    assert!(size < 200 * MIB, "{size}, of which 65 MiB are the spool");
    program.ask("work 1")?;
    program.quit()
}

/// Makes a memory cgroup, or returns `None` where that cannot be done.
fn group(name: &str) -> Result<Option<MemoryGroup>> {
    match MemoryGroup::make(name) {
        Ok(group) => Ok(Some(group)),
        Err(why) => leave_out(&why).map(|()| None),
    }
}

#[test]
fn a_memory_cgroup_at_its_limit() -> Result<()> {
    if !is_root_for("to make a memory cgroup")? {
        return Ok(());
    }
    let Some(group) = group("target")? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let everything = Attach {
        options: words(&["--sys-trace"]),
        ..Attach::default()
    };
    let start = Start {
        before: group.enter(),
        ..Start::default()
    };
    let mut program = Program::start(&kit, "limited", start)?;
    program.ask("work 3")?;
    for left in [0, 1, 3] {
        group.limit((group.usage()? + left * MIB) as i64)?;
        refused(
            &program,
            &everything,
            23,
            "memory of its cgroup are left; 8 needed",
        )?;
        assert_eq!(status(program.pid, "VmLck")?, 0);
    }
    // The headroom that we ask for is enough. Most of a session's memory is on the attaching side.
    let before = group.usage()?;
    group.limit((before + 9 * MIB) as i64)?;
    works(&mut program, &everything, "9 MiB left")?;
    let after = group.usage()?;
    let failed = group.get("memory.failcnt")?;
    eprintln!(
        "memory of the group: {before} bytes before, {after} after two sessions; {failed} failures"
    );
    assert!(
        after < before + 6 * MIB,
        "{before} bytes before, {after} after"
    );
    group.limit(-1)?;
    program.quit()
}

/// An attach is also refused for the attacher's own cgroup, without harm to the program.
#[test]
fn an_attacher_at_its_limit() -> Result<()> {
    if !is_root_for("to make a memory cgroup")? {
        return Ok(());
    }
    let Some(group) = group("attacher")? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let mut program = start(&kit, "fine")?;
    let inside = Attach {
        before: group.enter(),
        ..Attach::default()
    };
    // Less than is asked for, and enough for its own program, whose pages count if no other process
    // has read them.
    group.limit(10 * MIB as i64)?;
    refused(&program, &inside, 23, "of midair's memory cgroup are left")?;
    group.limit(-1)?;
    works_once(&mut program, &inside)?;
    program.quit()
}

/// With mlockall every new mapping takes memory immediately, so there must be enough for the
/// mappings, too.
#[test]
fn a_program_that_locks_its_memory() -> Result<()> {
    if !is_root_for("to lock memory without limit")? {
        return Ok(());
    }
    let Some(group) = group("locked")? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let start = Start {
        before: group.enter(),
        environment: vec![ballast(&kit)?, ("BALLAST_LOCK".to_owned(), "1".into())],
        ..Start::default()
    };
    let mut program = Program::start(&kit, "locked", start)?;
    program.ask("work 2")?;
    let usage = group.usage()?;
    group.limit((usage + 100 * MIB) as i64)?;
    refused(&program, &Attach::default(), 23, "it has called mlockall")?;
    group.limit(-1)?;
    works(&mut program, &Attach::default(), "all memory locked")?;
    program.quit()
}
