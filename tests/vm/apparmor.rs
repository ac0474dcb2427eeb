//! AppArmor, with a confined target or a confined attacher.

use crate::subject::{Subject, attach, is_in, is_refused, kit, say, short};
use midair_tests::Result;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};
use std::process::Command;

/// Exit code of a process that this user may not touch.
const NOT_PERMITTED: i32 = 11;
/// Exit code of a library that could not be set up.
const SETUP: i32 = 22;

/// Rules for everything but tracing. Each profile adds its own rules for that.
const MOST: &str = "file, network, unix, capability, signal, mount, dbus,";

/// Loads a profile of this name with these rules.
fn load(kit: &Kit, name: &str, rules: &str) -> Result<Vec<String>> {
    let path = kit.scratch().join(name);
    let flags = "flags=(attach_disconnected)";
    std::fs::write(&path, format!("profile {name} {flags} {{\n  {rules}\n}}\n"))?;
    let mut command = Command::new("apparmor_parser");
    command.arg("--replace").arg("--skip-cache").arg(&path);
    run(command, PATIENCE)?.success()?;
    let words = ["aa-exec", "-p", name, "--"];
    Ok(words.map(str::to_owned).into())
}

pub fn check() -> Result<()> {
    let kit = kit()?;
    let plain = Subject::start(&kit, &[], &[])?;

    let no_ptrace = load(&kit, "attacher-without", MOST)?;
    let exit = attach(&kit, &no_ptrace, plain.pid())?;
    let who = "an attacher whose profile has no rule for ptrace";
    is_refused(who, &exit, NOT_PERMITTED, "security module")?;

    let reads = load(&kit, "attacher-reads", &format!("{MOST} ptrace (read),"))?;
    let exit = attach(&kit, &reads, plain.pid())?;
    let who = "an attacher whose profile has \"ptrace (read)\" only";
    is_refused(who, &exit, NOT_PERMITTED, "security module")?;

    let traces = load(
        &kit,
        "attacher-traces",
        &format!("{MOST} ptrace (read, trace),"),
    )?;
    let exit = attach(&kit, &traces, plain.pid())?;
    is_in(
        "an attacher whose profile has \"ptrace (read, trace)\"",
        &exit,
    )?;
    plain.quit()?;

    // An attacher without a profile may trace confined targets, whatever their profiles say.
    let confined = load(&kit, "target-most", MOST)?;
    let subject = Subject::start(&kit, &confined, &[])?;
    let exit = attach(&kit, &[], subject.pid())?;
    is_in(
        "a target whose profile has no rule for ptrace, an attacher without a profile",
        &exit,
    )?;
    let exit = attach(&kit, &traces, subject.pid())?;
    let who = "that target, an attacher with \"ptrace (read, trace)\"";
    is_refused(who, &exit, NOT_PERMITTED, "security module")?;
    subject.quit()?;

    let rules = format!("{MOST} ptrace (readby, tracedby),");
    let traced = load(&kit, "target-traced", &rules)?;
    let subject = Subject::start(&kit, &traced, &[])?;
    let exit = attach(&kit, &traces, subject.pid())?;
    is_in(
        "a target with \"ptrace (readby, tracedby)\", that attacher",
        &exit,
    )?;
    subject.quit()?;

    // The target may execute its own files and libraries and nothing else, not even a memfd.
    let rules = "network, unix, capability, signal, / r, /** rw, /usr/** mr, /etc/** r, \
                 /**/target/** mrix, ptrace (readby, tracedby),";
    let narrow = load(&kit, "target-narrow", rules)?;
    let subject = Subject::start(&kit, &narrow, &[])?;
    let exit = attach(&kit, &[], subject.pid())?;
    let who = "a target that may map only its own files for execution";
    match exit.status.code() {
        Some(0) => say(&format!("{who}: in")),
        Some(SETUP) => say(&format!(
            "{who}: refused ({SETUP}): {}",
            short(&exit.stderr.join(" "))
        )),
        _ => return Err(format!("{who}: {exit}").into()),
    }
    subject.quit()
}
