//! A user of a midair with raised rights, and programs that raise their own rights between two
//! checks.
//!
//! The engine's part of this is in `crates/attacher/inject/tests/it`: `ends::raises_its_rights`,
//! `ends::becomes_another_user`, `watch::an_attacher_that_is_stopped_lets_go`.

use crate::commands::HELPERS;
use crate::installed::{
    BOTH, Installed, USER, as_user, give, mode, roots_directory, start_as_other,
};
use midair_tests::compile::{attack_library, attack_program, host_program};
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, is_root_for};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// CAP_SYS_NICE, which a program's file adds.
const NICE: u32 = 1 << 23;

/// Starts a program that waits. The file belongs to root and is in the installation, and this user
/// runs it in that directory.
fn waiting(installed: &Installed, uid: u32, at: &Path) -> Result<Target> {
    let program = installed.dir.path().join("waiting");
    if !program.exists() {
        // Everybody may read the file, since a user who may not could not attach.
        fs::copy(host_program("plain_threads")?, &program)?;
        mode(&program, 0o755)?;
    }
    let mut command = as_user(&program, uid);
    command.args(["1", "1"]).current_dir(at);
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    Ok(target)
}

/// B5: environment variables that name a library made a set-uid program run that library.
#[test]
fn a_set_uid_program_loads_no_library_of_its_user() -> Result<()> {
    if !is_root_for("to make a set-uid program")? {
        return Ok(());
    }
    let dir = roots_directory()?;
    let program = dir.path().join("raised_runtime");
    fs::copy(attack_program("raised_runtime")?, &program)?;
    let evil = dir.path().join("evil.so");
    fs::copy(attack_library("evil")?, &evil)?;
    mode(&evil, 0o755)?;
    let marks = dir.path().join("marks");
    fs::create_dir(&marks)?;
    mode(&marks, 0o777)?;
    let register = dir.path().join("librocprofiler-register.so.0");
    fs::copy(stage()?.join("lib/librocprofiler-register.so.0"), &register)?;
    let path = |file: &Path| file.display().to_string();
    let attacks: [&[(&str, String)]; 4] = [
        &[("ROCPROFILER_REGISTER_LIBRARY", path(&evil))],
        &[
            ("ROCPROFILER_REGISTER_LIBRARY", path(&evil)),
            ("ROCPROFILER_REGISTER_FORCE_LOAD", "1".into()),
        ],
        &[
            ("ROCPROFILER_REGISTER_LIBRARY", "evil.so".into()),
            ("ROCP_TOOL_LIBRARIES", path(&evil)),
        ],
        &[
            ("ROCP_TOOL_LIBRARIES", path(&evil)),
            ("ROCP_TOOL_ATTACH", "1".into()),
        ],
    ];
    let attempt = |permissions: u32, attack: &[(&str, String)], name: &str| -> Result<String> {
        mode(&program, permissions)?;
        let mark = marks.join(name);
        let mut command = as_user(&program, USER);
        command
            .arg(&register)
            .env("EVIL_MARK", &mark)
            .envs(attack.iter().map(|(name, value)| (*name, value.as_str())));
        let exit = run(command, PATIENCE)?.success()?;
        let effective = if permissions & 0o4000 == 0 { USER } else { 0 };
        let said = exit.stdout.last().cloned().unwrap_or_default();
        assert!(said.ends_with(&format!(" {USER} {effective}")), "{exit}");
        Ok(fs::read_to_string(&mark).unwrap_or_default())
    };
    for (index, attack) in attacks.iter().enumerate() {
        let told = attempt(0o4755, attack, &format!("raised-{index}"))?;
        assert_eq!(told, "", "{attack:?}");
    }
    // The same attacks succeed in an ordinary program, whose user may load any library.
    for (index, attack) in attacks[..3].iter().enumerate() {
        let told = attempt(0o755, attack, &format!("plain-{index}"))?;
        assert_eq!(told, format!("evil {USER} {USER}\n"), "{attack:?}");
    }
    Ok(())
}

/// B6: with CAP_SYS_PTRACE the links of `/proc` lead into directories that are closed to the user.
#[test]
fn the_links_of_proc_lead_nobody_into_closed_directories() -> Result<()> {
    let Some(installed) = Installed::new()? else {
        return Ok(());
    };
    let home = tempfile::tempdir()?;
    mode(home.path(), 0o700)?;
    let inside = home.path().join("inside");
    fs::create_dir(&inside)?;
    mode(&inside, 0o777)?;
    fs::write(inside.join("secret.so"), "x")?;
    mode(&inside.join("secret.so"), 0o644)?;
    let roots = waiting(&installed, 0, &inside)?;
    let own = waiting(&installed, USER, Path::new("/"))?;
    let attach = |variable: &str, path: String| -> Result<Exit> {
        let mut command = as_user(&installed.midair(), USER);
        command
            .args(["attach", &own.pid().to_string()])
            .env(variable, path);
        run(command, PATIENCE)
    };
    for link in ["cwd", "root"] {
        let below = match link {
            "cwd" => format!("/proc/{}/cwd", roots.pid()),
            _ => format!("/proc/{}/root{}", roots.pid(), inside.display()),
        };
        // The answer must not tell whether a file is there, so both are refused in the same words.
        let [there, missing] = ["secret.so", "missing.so"].map(|file| {
            let exit = attach("ROCPROF_ATTACH_TOOL_LIBRARY", format!("{below}/{file}"))?;
            let said = exit.stderr.join("\n").replace(file, "FILE");
            Result::Ok((exit.status.code(), said))
        });
        let (there, missing) = (there?, missing?);
        assert!(there.1.contains("is not a file"), "{there:?}");
        assert_eq!(there, missing, "{link}");
    }
    // Results must not be written there, either.
    let doctor = |path: String| -> Result<String> {
        let mut command = as_user(&installed.midair(), USER);
        command
            .args(["doctor", &own.pid().to_string()])
            .env("ROCPROF_OUTPUT_PATH", path);
        Ok(run(command, PATIENCE)?.to_string())
    };
    let said = doctor(format!("/proc/{}/cwd", roots.pid()))?;
    assert!(said.contains("cannot write to the directory"), "{said}");
    assert_eq!(fs::read_dir(&inside)?.count(), 1);
    Ok(())
}

/// A watch that tells when a file is opened.
struct Opened(fs::File);

impl Opened {
    fn watch(path: &Path) -> Result<Opened> {
        use std::os::fd::FromRawFd;
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: this call takes a flag only. The result is checked, and the file below owns it.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor was just made, so nothing else owns it.
        let file = unsafe { fs::File::from_raw_fd(fd) };
        // SAFETY: the descriptor is open, and `path` ends with a NUL and lives until the call has
        // returned.
        let watch = unsafe { libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_OPEN) };
        assert!(watch >= 0);
        Ok(Opened(file))
    }

    /// Returns whether the file was opened within the limit.
    fn is(&mut self, milliseconds: i32) -> Result<bool> {
        use std::os::fd::AsRawFd;
        let mut entry = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is to one pollfd, which lives until the call has returned.
        let there = unsafe { libc::poll(&raw mut entry, 1, milliseconds) } > 0;
        if there {
            std::io::Read::read(&mut self.0, &mut [0; 4096])?;
        }
        Ok(there)
    }
}

/// Points 6 and 7 of the second review: root's process that is not dumpable, and a program that gave
/// up what its file had added and made itself dumpable again, were entered and looked into.
#[test]
fn a_process_that_protects_itself_is_for_root_alone() -> Result<()> {
    let Some(installed) = Installed::new()? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let program = installed.dir.path().join("forger");
    fs::copy(attack_program("forger")?, &program)?;
    // Everybody can read the runtimes there and write the log.
    let runtimes = installed.dir.path().join("runtimes");
    let copied = Command::new("cp")
        .arg("-rL")
        .args([kit.dir(), &runtimes])
        .status()?;
    let readable = Command::new("chmod")
        .args(["-R", "u=rwX,go=rX"])
        .arg(&runtimes)
        .status()?;
    assert!(copied.success() && readable.success());
    mode(kit.scratch(), 0o777)?;
    let topology = runtimes.join("topology").display().to_string();
    // Another user's process on a dumpable program is what the capabilities are for.
    // Whether the kernel says of a process of root whether it is dumpable.
    let own = midair_ptrace::pidfd_open(midair_ptrace::Pid::own())?;
    let [open, closed] = match midair_ptrace::sys::is_dumpable(own.as_fd()) {
        Some(_) => [None, Some("is not dumpable")],
        None => [Some("only Linux 6.16 and later"); 2],
    };
    let mut bad = Vec::new();
    for (user, bits, added, dumpable, why) in [
        (0, 0o755, 0, "1", open),
        (0, 0o755, 0, "0", closed),
        (USER, 0o755, 0, "0", Some("is not dumpable")),
        (USER, 0o755, 0, "1", None),
        (USER, 0o2755, 0, "1", Some("privileges that its user lacks")),
        (
            USER,
            0o755,
            NICE,
            "1",
            Some("privileges that its user lacks"),
        ),
    ] {
        // A change of the owner takes the capabilities away.
        chown(&program, Some(0), Some(HELPERS))?;
        mode(&program, bits)?;
        assert!(added == 0 || give(&program, added)?);
        let mut command = as_user(&program, user);
        command.arg(&runtimes);
        let what = format!("{user} {bits:o} {added} {dumpable}");
        let log = format!("log-{}", what.replace(' ', "-"));
        let set = [
            ("DUMPABLE", dumpable),
            ("HSA_MODEL_TOPOLOGY", topology.as_str()),
        ];
        let mut target = kit.start_command(command, &log, &set)?;
        target.target.expect("ready")?;
        let pid = target.target.pid().to_string();
        let out = tempfile::tempdir()?;
        mode(out.path(), 0o777)?;
        let into = out.path().display().to_string();
        for words in [
            &["doctor", &pid][..],
            &["why", "--time", "100ms", &pid],
            &["attach", "--duration", "100ms", "-d", &into, &pid],
        ] {
            let mut command = as_user(&installed.midair(), USER);
            command.args(words).current_dir(out.path());
            let exit = run(command, PATIENCE)?;
            // A refusal has no line about its runtime, threads or memory.
            let said = exit.to_string();
            let is_good = match why {
                None => exit.status.success(),
                Some(why) => {
                    let is_refused = said.contains(why) && said.contains("run this as root");
                    exit.status.code() == Some(11) && is_refused && !said.contains("stand-in")
                }
            };
            if !is_good {
                bad.push(format!("{what}: {}: {exit}", words[0]));
            }
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        if why.is_some() && maps.contains("rocprof") {
            bad.push(format!("{what}: it was entered"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    Ok(())
}

/// B7: a user runs midair by a link of their own, so midair's libraries are those alongside that link.
/// They are checked. Then midair is stopped, and the user makes the link point to others.
#[test]
fn a_link_that_is_turned_after_the_check_leads_nowhere() -> Result<()> {
    let Some(installed) = Installed::new()? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let mark = kit.scratch().join("mark");
    let users = installed.dir.path().join("users");
    for place in [users.clone(), users.join("bin")] {
        fs::create_dir(&place)?;
        chown(&place, Some(USER), Some(USER))?;
    }
    // One file has two names, as a user can make it where hard links are not protected.
    let midair = users.join("bin/midair");
    fs::hard_link(installed.midair(), &midair)?;
    let evil = users.join("evil");
    fs::create_dir_all(evil.join("rocprofiler-sdk"))?;
    for file in [
        "librocprofiler-sdk.so.1",
        "libmidair-cuda.so",
        "rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    ] {
        fs::copy(attack_library("evil")?, evil.join(file))?;
    }
    let link = users.join("lib");
    let turn_to = |aim: &Path| -> Result<()> {
        let fresh = users.join("fresh");
        symlink(aim, &fresh)?;
        Ok(fs::rename(&fresh, &link)?)
    };
    let good = installed.dir.path().join("lib");
    // This is the last library that is checked.
    let last = good.join("libmidair-cuda.so");
    let mut turned = 0;
    for round in 0..8 {
        // The target belongs to another user, so the user could not load anything there.
        let target = start_as_other(
            &kit,
            "two_gpus",
            &format!("log-{round}"),
            &[("EVIL_MARK", &mark.display().to_string())],
        )?;
        turn_to(&good)?;
        let mut opened = Opened::watch(&last)?;
        let out = tempfile::tempdir()?;
        mode(out.path(), 0o777)?;
        let mut command = as_user(&midair, USER);
        command
            .args(["attach", &target.target.pid().to_string()])
            .args(["--kernel-trace", "--duration", "100ms", "-d"])
            .arg(out.path());
        let attacher = Target::spawn(command)?;
        if opened.is(20_000)? {
            attacher.signal(libc::SIGSTOP)?;
            turn_to(&evil)?;
            attacher.signal(libc::SIGCONT)?;
            turned += 1;
        }
        let exit = attacher.wait(PATIENCE)?;
        let loaded = fs::read_to_string(&mark).unwrap_or_default();
        assert_eq!(loaded, "", "round {round}: {exit}");
        // When midair is stopped while it holds a thread, it is killed. That may happen as late as
        // this.
        let killed = exit.signal() == Some(libc::SIGKILL);
        assert!(exit.status.success() || killed, "round {round}: {exit}");
    }
    assert!(turned > 0);
    Ok(())
}

/// B8: a copy of `rocprof-attach` looked for a library in five directories above its own.
#[test]
fn rocprof_attach_takes_its_library_from_its_own_prefix_only() -> Result<()> {
    let dir = roots_directory()?;
    let library = dir.path().join("lib/librocprofiler-sdk-rocattach.so.1");
    let nested = dir.path().join("a/b/c");
    fs::create_dir_all(&nested)?;
    fs::create_dir(dir.path().join("bin"))?;
    fs::create_dir(dir.path().join("lib"))?;
    fs::copy(attack_library("evil")?, &library)?;
    let mark = dir.path().join("mark");
    let attempt = |at: PathBuf| -> Result<String> {
        fs::copy(workspace_file("python/rocprof-attach.py"), &at)?;
        let mut command = Command::new("python3");
        command
            .arg(&at)
            .args(["-p", "1", "-d", "1"])
            .env_clear()
            .envs(plain_environment())
            .env("EVIL_MARK", &mark);
        let exit = run(command, PATIENCE)?;
        assert!(!exit.status.success(), "{exit}");
        Ok(fs::read_to_string(&mark).unwrap_or_default())
    };
    for name in ["rocprof-attach", "a/rocprof-attach", "a/b/c/rocprof-attach"] {
        assert_eq!(attempt(dir.path().join(name))?, "", "{name}");
    }
    // In an installation it is the right library.
    assert_ne!(attempt(dir.path().join("bin/rocprof-attach"))?, "");
    Ok(())
}

fn workspace_file(name: &str) -> PathBuf {
    midair_tests::workspace().join(name)
}

/// B9: a midair with capabilities is reported if everybody may run or replace it.
#[test]
fn doctor_reports_who_else_may_run_or_replace_a_midair_with_capabilities() -> Result<()> {
    let Some(installed) = Installed::new()? else {
        return Ok(());
    };
    let own = waiting(&installed, USER, Path::new("/"))?;
    let doctor = || -> Result<String> {
        let mut command = as_user(&installed.midair(), USER);
        command.args(["doctor", &own.pid().to_string()]);
        Ok(run(command, PATIENCE)?.stdout.join("\n"))
    };
    let said = doctor()?;
    assert!(said.contains("every user may run it"), "{said}");
    // Only a group may run it, as we recommend.
    chown(installed.midair(), Some(0), Some(USER))?;
    mode(&installed.midair(), 0o750)?;
    // Changing the owner has removed the capabilities.
    assert!(give(&installed.midair(), BOTH)?);
    let said = doctor()?;
    assert!(
        !said.contains("midair has privileges that you lack"),
        "{said}"
    );
    let mut stranger = as_user(&installed.midair(), USER + 1);
    stranger.args(["doctor", &own.pid().to_string()]);
    assert!(Target::spawn(stranger).is_err(), "a stranger runs it");
    // Others may put another program in its place.
    mode(&installed.dir.path().join("bin"), 0o777)?;
    let said = doctor()?;
    assert!(said.contains("can be replaced"), "{said}");
    Ok(())
}
