//! A target that names files and memory for its attacher to read: links to the files of others,
//! pipes and devices that block, pages that never arrive.

use crate::limits::peak_of_children;
use midair_tests::compile::attack_program;
use midair_tests::lab::LabTarget;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user that no other process on this machine has.
const SOMEBODY: u32 = 12345;
/// A text that this user may not read.
const SECRET: &str = "5ec7e7f0a11";
/// A process that is blocked takes longer than this. Our own deadlines are some seconds, and this
/// leaves room for an overloaded machine.
const NOT_HELD_UP: std::time::Duration = PATIENCE;

/// Returns words that run the command after them as that user.
fn as_somebody() -> Vec<String> {
    let user = SOMEBODY.to_string();
    [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ]
    .map(str::to_owned)
    .into()
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, PermissionsExt::from_mode(mode))?)
}

fn succeeds(command: &mut Command) -> Result<()> {
    match command.status()?.success() {
        true => Ok(()),
        false => Err(format!("{command:?}").into()),
    }
}

/// Directories that belong to root, and what is in them.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let dir = tempfile::Builder::new()
            .prefix("midair-attack-")
            .tempdir_in("/opt")?;
        mode(dir.path(), 0o755)?;
        Ok(Place { dir })
    }

    /// Makes a directory that everybody may write to.
    fn open(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        fs::create_dir_all(&path)?;
        mode(&path, 0o777)?;
        Ok(path)
    }

    /// Makes a file that only root may read.
    fn secret(&self) -> Result<PathBuf> {
        let path = self.dir.path().join("secret");
        fs::write(&path, format!("{SECRET}\n"))?;
        mode(&path, 0o600)?;
        Ok(path)
    }

    /// Copies the stand-in's topology, so that it can be changed.
    fn topology(&self, kit: &Kit, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        let from = kit.dir().join("topology");
        succeeds(Command::new("cp").arg("-r").args([&from, &path]))?;
        succeeds(Command::new("chmod").arg("-R").arg("a+rX").arg(&path))?;
        Ok(path)
    }

    /// Copies the product and gives its `midair` more rights than its user has.
    fn raised(&self, name: &str, how: &[&str]) -> Result<PathBuf> {
        let copy = self.dir.path().join(name);
        fs::create_dir(&copy)?;
        succeeds(
            Command::new("cp")
                .arg("-rL")
                .args([stage()?.join("bin"), stage()?.join("lib")])
                .arg(&copy),
        )?;
        succeeds(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&copy))?;
        let program = copy.join("bin/midair");
        succeeds(Command::new(how[0]).args(&how[1..]).arg(&program))?;
        Ok(program)
    }
}

/// Replaces the file with the name of a GPU's node by something else.
fn instead_of_a_name(topology: &Path, put: impl Fn(&Path) -> Result<()>) -> Result<()> {
    for node in fs::read_dir(topology.join("nodes"))? {
        let name = node?.path().join("name");
        fs::remove_file(&name)?;
        put(&name)?;
    }
    Ok(())
}

fn pipe(at: &Path) -> Result<()> {
    succeeds(Command::new("mkfifo").args(["-m", "666"]).arg(at))
}

/// Starts a program on the stand-in's GPUs through these words.
fn program(kit: &Kit, before: &[String], variables: &[(&str, &str)]) -> Result<LabTarget> {
    let program = kit.program("two_gpus")?;
    mode(&program, 0o755)?;
    mode(kit.scratch(), 0o777)?;
    let mut command = Command::new(before.first().map_or("env", String::as_str));
    command.args(before.iter().skip(1)).arg(program);
    let mut started = kit.start_command(command, "model.log", variables)?;
    started.target.expect("ready")?;
    Ok(started)
}

/// Records a program with all formats that tell of its machine, and returns all that was written.
fn recorded(midair: &mut Command, target: &mut LabTarget, dir: &Path) -> Result<Vec<u8>> {
    midair
        .args(["attach", &target.target.pid().to_string(), "--kernel-trace"])
        .args(["--output-format", "csv,json,rocpd", "-o", "o", "-d"])
        .arg(dir)
        .env_clear()
        .envs(plain_environment());
    let mut session = Target::spawn(std::mem::replace(midair, Command::new("true")))?;
    session.expect_error("attached to process")?;
    target.target.send("work 2")?;
    target.target.expect("work")?;
    session.send("")?;
    session.wait(NOT_HELD_UP)?.success()?;
    let mut all = Vec::new();
    for file in fs::read_dir(dir)? {
        all.extend(fs::read(file?.path())?);
    }
    assert!(contains(&all, "two_gpus"), "results tell of the program");
    Ok(all)
}

fn contains(all: &[u8], text: &str) -> bool {
    all.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A user's process names a file with the name of its GPU or the id of its machine, and this file
/// may be a link. A program with file capabilities must not follow it to anything that the user may
/// not read.
#[test]
fn a_link_leads_to_nothing_that_the_user_may_not_read() -> Result<()> {
    if !is_root_for("to give a program file capabilities")? {
        return Ok(());
    }
    let (kit, place) = (Kit::new()?, Place::new()?);
    let secret = place.secret()?;
    let topology = place.topology(&kit, "topology")?;
    instead_of_a_name(&topology, |name| Ok(symlink(&secret, name)?))?;
    let topology = topology.to_str().ok_or("a path is text")?;
    // The process names the files through its environment, or through mounts at the usual places of
    // topology and id.
    let mounts = format!(
        "mount -t tmpfs none /sys && mkdir -p /sys/class/kfd/kfd && cp -r {topology} /sys/class/kfd/kfd/topology \
         && chmod -R a+rX /sys && mount -t tmpfs none /etc && chmod 755 /etc && ln -s {} /etc/machine-id && exec \"$@\"",
        secret.display()
    );
    let mut by_mounts: Vec<String> = ["unshare", "--mount", "sh", "-c", &mounts, "sh"]
        .map(str::to_owned)
        .into();
    by_mounts.extend(as_somebody());
    let give = ["setcap", "cap_sys_ptrace,cap_dac_override+ep"];
    let midair = place.raised("capabilities", &give)?;
    for (what, before) in [("environment", as_somebody()), ("mounts", by_mounts)] {
        let mut target = program(&kit, &before, &[("HSA_MODEL_TOPOLOGY", topology)])?;
        let mut words = as_somebody();
        words.push(midair.to_str().ok_or("a path is text")?.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let dir = place.open(what)?;
        let all = recorded(&mut command, &mut target, &dir)?;
        assert!(!contains(&all, SECRET), "{what}");
    }
    Ok(())
}

/// Root may read the file, but the process that names it has another root directory.
#[test]
fn a_link_stays_beneath_the_root_of_its_process() -> Result<()> {
    if !is_root_for("to change a program's root")? {
        return Ok(());
    }
    let (kit, place) = (Kit::new()?, Place::new()?);
    let secret = place.secret()?;
    let inside = place.open("inside")?;
    // The root has all of the machine except /opt.
    let script = format!(
        "for name in /*; do [ -d $name ] || continue; mkdir -p {0}$name; [ $name = /opt ] || mount --rbind $name {0}$name; done; \
         mount -t tmpfs none {0}/mnt; cp -r {1}/topology {0}/mnt; \
         for node in {0}/mnt/topology/nodes/*; do rm $node/name; ln -s {2} $node/name; done; exec chroot {0} \"$@\"",
        inside.display(),
        kit.dir().display(),
        secret.display()
    );
    let before = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned);
    let variables = [("HSA_MODEL_TOPOLOGY", "/mnt/topology")];
    let mut target = program(&kit, &before, &variables)?;
    let dir = place.open("results")?;
    let all = recorded(&mut command("midair")?, &mut target, &dir)?;
    assert!(!contains(&all, SECRET));
    Ok(())
}

/// Opening a pipe waits until a writer opens it.
#[test]
fn a_pipe_in_the_topology_holds_up_nobody() -> Result<()> {
    if !is_root_for("to start a program of another user's")? {
        return Ok(());
    }
    let (kit, place) = (Kit::new()?, Place::new()?);
    let topology = place.topology(&kit, "topology")?;
    let variables = [(
        "HSA_MODEL_TOPOLOGY",
        topology.to_str().ok_or("a path is text")?,
    )];
    let mut target = program(&kit, &as_somebody(), &variables)?;
    // The program's runtime has read the file by now.
    instead_of_a_name(&topology, pipe)?;
    let pid = target.target.pid();
    let told = doctor(pid)?;
    assert_eq!(told["exit_code"], 0, "{told:#}");
    assert_eq!(listed(pid)?["attachable"], true);
    let dir = place.open("results")?;
    recorded(&mut command("midair")?, &mut target, &dir)?;
    Ok(())
}

/// Address space that nothing of midair's needs. If a file without an end were read to its end, the
/// program would stop here, and not where the machine's memory ends.
const SPACE: &str = "--as=4294967296";

/// Returns `midair` with no more than that.
fn bounded() -> Result<Command> {
    let mut limited = Command::new("prlimit");
    limited.arg(SPACE).arg(command("midair")?.get_program());
    Ok(limited)
}

/// Makes a part of a topology, or all of it, a file without an end.
fn without_end(topology: &Path, how: &str) -> Result<()> {
    match how {
        "names that are links" => {
            instead_of_a_name(topology, |name| Ok(symlink("/dev/zero", name)?))
        }
        "names that are devices" => instead_of_a_name(topology, |name| {
            succeeds(Command::new("mknod").arg(name).args(["c", "1", "5"]))
        }),
        _ => {
            fs::remove_dir_all(topology)?;
            Ok(symlink("/dev/zero", topology)?)
        }
    }
}

/// A user's process names a topology by its environment or beneath its own root. What is there
/// when the attacher reads it is `/dev/zero`, or leads to it.
#[test]
fn a_topology_without_an_end_fills_no_memory() -> Result<()> {
    if !is_root_for("to change a program's root")? {
        return Ok(());
    }
    let place = Place::new()?;
    let hows = [
        "names that are links",
        "names that are devices",
        "a topology that is a link",
    ];
    for (number, how) in hows.into_iter().enumerate() {
        for beneath in [false, true] {
            let kit = Kit::new()?;
            let named = place.topology(&kit, &format!("topology{number}{beneath}"))?;
            let (before, named, seen) = if beneath {
                let root = place.open(&format!("root{number}"))?;
                let script = format!(
                    "for name in /*; do [ -d $name ] || continue; mkdir -p {0}$name; [ $name = /opt ] || mount --rbind $name {0}$name; \
                     done; mount -t tmpfs none {0}/mnt; cp -r {1} {0}/mnt/topology; exec chroot {0} \"$@\"",
                    root.display(),
                    named.display()
                );
                let before = ["unshare", "--mount", "sh", "-c", &script, "sh"];
                let below = PathBuf::from("/mnt/topology");
                (before.map(str::to_owned).into(), below, None)
            } else {
                (as_somebody(), named.clone(), Some(named))
            };
            let variable = named.to_str().ok_or("a path is text")?;
            let mut target = program(&kit, &before, &[("HSA_MODEL_TOPOLOGY", variable)])?;
            let pid = target.target.pid();
            // The program's own runtime has read the topology by now.
            let seen = seen.unwrap_or_else(|| format!("/proc/{pid}/root/mnt/topology").into());
            without_end(&seen, how)?;
            for words in [
                &["doctor", "--json", &pid.to_string()][..],
                &["ps", "--json"],
            ] {
                let mut asks = bounded()?;
                asks.args(words);
                let exit = run(asks, NOT_HELD_UP)?.success();
                exit.map_err(|error| format!("{how}, beneath its root: {beneath}: {error}"))?;
            }
            let dir = place.open(&format!("results{number}{beneath}"))?;
            recorded(&mut bounded()?, &mut target, &dir)
                .map_err(|error| format!("{how}, beneath its root: {beneath}: {error}"))?;
        }
    }
    let peak = peak_of_children()?;
    assert!(peak < 500, "{peak} MiB");
    Ok(())
}

fn midair(words: &[&str]) -> Result<Exit> {
    let mut command = command("midair")?;
    command.args(words);
    run(command, NOT_HELD_UP)
}

fn doctor(pid: i32) -> Result<Value> {
    let exit = midair(&["doctor", "--json", &pid.to_string()])?;
    Ok(serde_json::from_str(&exit.stdout.concat())?)
}

/// Returns what `midair ps` says of this process.
fn listed(pid: i32) -> Result<Value> {
    let exit = midair(&["ps", "--json"])?.success()?;
    let told: Value = serde_json::from_str(&exit.stdout.concat())?;
    let all = told["processes"].as_array().ok_or("no processes")?;
    let found = all.iter().find(|process| process["pid"] == pid);
    Ok(found
        .ok_or_else(|| format!("no {pid} in {told:#}"))?
        .clone())
}

/// A process may have something else at `/proc` than the kernel's file system.
#[test]
fn a_proc_of_pipes_holds_up_nobody() -> Result<()> {
    if !is_root_for("to mount something over /proc")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let script = "mount -t tmpfs none /proc && chmod 755 /proc && mkdir -p /proc/self /proc/$$/task/$$ \
                  && umask 0 && mkfifo /proc/$$/task/$$/stat && exec \"$@\"";
    let mut before: Vec<String> = ["unshare", "--mount", "sh", "-c", script, "sh"]
        .map(str::to_owned)
        .into();
    before.extend(as_somebody());
    let topology = kit.dir().join("topology");
    let variables = [(
        "HSA_MODEL_TOPOLOGY",
        topology.to_str().ok_or("a path is text")?,
    )];
    let target = program(&kit, &before, &variables)?;
    let pid = target.target.pid();
    for told in [doctor(pid)?, listed(pid)?] {
        assert_eq!(told["exit_code"], 24, "{told:#}");
    }
    let exit = midair(&["attach", &pid.to_string(), "--duration", "1"])?;
    assert_eq!(exit.status.code(), Some(24), "{exit}");
    assert!(exit.stderr.join(" ").contains("not the kernel's"), "{exit}");
    Ok(())
}

/// A process that blocks everybody who reads its memory (`tests/security/attacks/held_page.c`).
struct HeldPage {
    target: Target,
    _kit: Kit,
    _place: Place,
}

impl HeldPage {
    /// Starts it under this program name. Returns `None` where the kernel does not allow it.
    fn start(how: &str, name: &str) -> Result<Option<HeldPage>> {
        if !is_root_for("to mount a file system and to serve page faults")? {
            return Ok(None);
        }
        // SAFETY: this call takes flags only. The descriptor that it returns is closed below.
        let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let possible = match how {
            "fault" | "late" => faults >= 0,
            _ => fs::File::open("/dev/fuse").is_ok(),
        };
        if faults >= 0 {
            // SAFETY: the descriptor was made above, and no other code uses it.
            unsafe { libc::close(faults as i32) };
        }
        if !possible {
            leave_out(&format!("this kernel cannot hold a page up: {how}"))?;
            return Ok(None);
        }
        let (kit, place) = (Kit::new()?, Place::new()?);
        let program = place.dir.path().join(name);
        fs::copy(attack_program("held_page")?, &program)?;
        mode(&program, 0o755)?;
        let mut command = Command::new(program);
        command
            .arg(how)
            .arg(kit.dir().join("libhsa-runtime64.so.1"))
            .arg(place.open("mounted")?)
            .arg(SOMEBODY.to_string())
            .arg(midair_record::VERSION.to_string())
            .env_clear()
            .envs(plain_environment())
            .env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
        let mut target = Target::spawn(command)?;
        target.expect("ready")?;
        Ok(Some(HeldPage {
            target,
            _kit: kit,
            _place: place,
        }))
    }

    fn pid(&self) -> i32 {
        self.target.pid()
    }
}

/// Pages of a file system that a user serves are not touched. The process is found to have a thread
/// that works, and nothing waits for the pages.
#[test]
fn a_page_of_a_users_file_system_is_not_read() -> Result<()> {
    for how in ["fuse", "unmounted"] {
        let Some(held) = HeldPage::start(how, "held_page")? else {
            return Ok(());
        };
        for told in [doctor(held.pid())?, listed(held.pid())?] {
            assert_eq!(told["exit_code"], 15, "{how}: {told:#}");
        }
        let exit = midair(&["attach", &held.pid().to_string(), "--duration", "1"])?;
        assert_eq!(exit.status.code(), Some(15), "{how}: {exit}");
    }
    Ok(())
}

/// Pages that block cannot always be foreseen. Such a process is given up by name, and the others
/// are listed and recorded.
#[test]
fn a_process_that_does_not_answer_holds_up_nobody_else() -> Result<()> {
    let common = format!("together-{}-", std::process::id());
    let Some(held) = HeldPage::start("fault", &format!("{common}held"))? else {
        return Ok(());
    };
    let (kit, place) = (Kit::new()?, Place::new()?);
    let topology = kit.dir().join("topology");
    let variables = [(
        "HSA_MODEL_TOPOLOGY",
        topology.to_str().ok_or("a path is text")?,
    )];
    let mut named = as_somebody();
    let renamed = format!("exec -a {common}honest \"$@\"");
    named.extend(["bash", "-c", &renamed, "bash"].map(str::to_owned));
    let mut honest = program(&kit, &named, &variables)?;
    let (pid, other) = (held.pid(), honest.target.pid());
    for told in [doctor(pid)?, listed(pid)?] {
        assert_eq!(told["exit_code"], 37, "{told:#}");
    }
    assert_eq!(listed(other)?["attachable"], true);
    let dir = place.open("results")?;
    let mut session = command("midair")?;
    session
        .args(["attach", "--name", &common, "--kernel-trace"])
        .args(["--output-format", "csv", "-o", "o%pid%", "-d"])
        .arg(&dir);
    let mut session = Target::spawn(session)?;
    session.expect_error(&format!("attached to process {other} "))?;
    honest.target.send("work 2")?;
    honest.target.expect("work")?;
    session.signal(libc::SIGTERM)?;
    let exit = session.wait_by_itself(NOT_HELD_UP)?;
    assert_eq!(exit.status.code(), Some(35), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains(&format!("process {pid} did not answer")),
        "{exit}"
    );
    let rows = Csv::read(&dir.join(format!("o{other}_kernel_trace.csv")))?.rows;
    assert_eq!(rows.len(), 8, "{exit}");
    Ok(())
}

/// A page may be swapped for such a one between the look at what is there and the read of it. The read
/// cannot be interrupted then, not even by SIGKILL, and lasts as long as the server likes. The program that
/// looked gives it up, and ends nevertheless: a process that waits for it does not wait for the server.
#[test]
fn a_page_that_is_swapped_keeps_no_program_from_its_end() -> Result<()> {
    let Some(held) = HeldPage::start("swapped", "held_page")? else {
        return Ok(());
    };
    for _ in 0..400 {
        let mut attach = command("midair")?;
        attach.args(["attach", &held.pid().to_string(), "--duration", "1"]);
        let attach = Target::spawn(attach)?;
        let pid = attach.pid();
        let exit = attach.wait_by_itself(NOT_HELD_UP)?;
        match exit.status.code() {
            // The page was seen, or there was nothing of midair's on the other one.
            Some(15) => {}
            Some(37) => {
                assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it is gone");
                // What did the read is left, since nothing can end it. It goes with its server.
                return Ok(());
            }
            _ => return Err(format!("{exit}").into()),
        }
    }
    Err("the page was never swapped at the right moment".into())
}

/// A signal ends an attach that waits for a process.
#[test]
fn a_signal_ends_what_is_held_up() -> Result<()> {
    let Some(held) = HeldPage::start("fault", "held_page")? else {
        return Ok(());
    };
    let mut attach = command("midair")?;
    attach.args(["attach", &held.pid().to_string()]);
    let attach = Target::spawn(attach)?;
    let tasks = format!("/proc/{}/task", attach.pid());
    until("a thread that looks at the process", || {
        let threads = fs::read_dir(&tasks)?.flatten();
        let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")));
        Ok(names.any(|name| name.is_ok_and(|name| name == "look\n")))
    })?;
    attach.signal(libc::SIGTERM)?;
    let exit = attach.wait_by_itself(NOT_HELD_UP)?;
    assert_eq!(exit.status.code(), Some(37), "{exit}");
    Ok(())
}

/// Attaches for a moment, and returns how that ended. It must end by itself.
fn brief_attach(held: &HeldPage, dir: &Path) -> Result<Exit> {
    let mut attach = command("midair")?;
    attach
        .args(["attach", &held.pid().to_string(), "--duration", "0.1", "-d"])
        .arg(dir);
    Target::spawn(attach)?.wait_by_itself(NOT_HELD_UP)
}

/// What looks like the worker thread of an earlier session names a file as the socket of its attacher,
/// and the server of that file never answers who closes it. Not even SIGKILL would end that wait. The
/// file is not taken; if it alternates with a socket, no copy of it is closed by midair's own
/// process.
#[test]
fn a_file_that_cannot_be_closed_is_not_taken_for_the_channel() -> Result<()> {
    let place = Place::new()?;
    let dir = place.open("results")?;
    let name = format!("closed-{}", std::process::id());
    let Some(mut held) = HeldPage::start("closed", &name)? else {
        return Ok(());
    };
    let exit = brief_attach(&held, &dir)?;
    assert_eq!(exit.status.code(), Some(21), "{exit}");
    assert!(exit.stderr.join(" ").contains("valid socket"), "{exit}");
    // The same in a group of processes.
    held.target.send("again")?;
    held.target.expect("parked")?;
    let mut group = command("midair")?;
    group.args(["attach", "--name", &name, "--duration", "0.1", "-d"]);
    group.arg(&dir);
    let exit = Target::spawn(group)?.wait_by_itself(NOT_HELD_UP)?;
    assert!(matches!(exit.status.code(), Some(21 | 35)), "{exit}");
    assert!(exit.stderr.join(" ").contains("valid socket"), "{exit}");
    let Some(mut held) = HeldPage::start("exchanged", "held_page")? else {
        return Ok(());
    };
    for _ in 0..8 {
        let exit = brief_attach(&held, &dir)?;
        match exit.status.code() {
            // The file was seen, or the socket, which is not of the right kind.
            Some(21) => {}
            // The one was seen, and the other taken.
            Some(37) => break,
            _ => return Err(format!("{exit}").into()),
        }
        held.target.send("again")?;
        held.target.expect("parked")?;
    }
    Ok(())
}

/// A thread receives from a socket, and its descriptor has become such a file meanwhile.
#[test]
fn a_file_that_cannot_be_closed_is_not_taken_for_a_threads_socket() -> Result<()> {
    let place = Place::new()?;
    let Some(held) = HeldPage::start("received", "held_page")? else {
        return Ok(());
    };
    let told = doctor(held.pid())?;
    assert_eq!(told["exit_code"], 0, "{told:#}");
    brief_attach(&held, &place.open("results")?)?.success()?;
    Ok(())
}

/// A page that is there at the look and blocks from the moment at which midair enters the process. The
/// entry ends by itself, and by a signal.
#[test]
fn a_page_that_is_gone_once_midair_enters_holds_up_nobody() -> Result<()> {
    let place = Place::new()?;
    let dir = place.open("results")?;
    let Some(other) = HeldPage::start("late", "held_page")? else {
        return Ok(());
    };
    let mut attach = command("midair")?;
    attach
        .args(["attach", &other.pid().to_string(), "-d"])
        .arg(&dir);
    let attach = Target::spawn(attach)?;
    let tasks = format!("/proc/{}/task", attach.pid());
    until("a thread that enters the process", || {
        let threads = fs::read_dir(&tasks)?.flatten();
        let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")));
        Ok(names.any(|name| name.is_ok_and(|name| name == "enter\n")))
    })?;
    attach.signal(libc::SIGINT)?;
    let Some(held) = HeldPage::start("late", "held_page")? else {
        return Ok(());
    };
    for exit in [
        brief_attach(&held, &dir)?,
        attach.wait_by_itself(NOT_HELD_UP)?,
    ] {
        assert_eq!(exit.status.code(), Some(37), "{exit}");
    }
    Ok(())
}
