//! `kernel.yama.ptrace_scope`: who may attach, and what the others are told.

use crate::subject::{
    SOMEBODY, Subject, as_user, attach, is_in, is_refused, kit, program, say, short,
};
use midair_tests::Result;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, run};
use std::process::Command;

const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Exit code of a process that this user may not touch.
const NOT_PERMITTED: i32 = 11;

pub fn check() -> Result<()> {
    for scope in 0..=3 {
        std::fs::write(SCOPE, scope.to_string()).map_err(|error| format!("{SCOPE}: {error}"))?;
        at(scope)?;
    }
    Ok(())
}

fn at(scope: u32) -> Result<()> {
    let kit = kit()?;
    let somebody = as_user(SOMEBODY);
    let name = |who: &str| format!("scope {scope}, {who}");
    let subject = Subject::start(&kit, &somebody, &[])?;
    let exit = attach(&kit, &[], subject.pid())?;
    let who = name("root");
    match scope {
        3 => is_refused(&who, &exit, NOT_PERMITTED, "ptrace_scope is 3")?,
        _ => is_in(&who, &exit)?,
    }
    let exit = attach(&kit, &somebody, subject.pid())?;
    let who = name("the same user");
    match scope {
        0 => is_in(&who, &exit)?,
        _ => {
            let words = format!("kernel.yama.ptrace_scope is {scope}");
            is_refused(&who, &exit, NOT_PERMITTED, &words)?;
        }
    }
    subject.quit()?;
    let exit = parent(&kit)?;
    let who = name("the parent, of the same user");
    match scope {
        0 | 1 => is_in(&who, &exit)?,
        _ => {
            let words = format!("kernel.yama.ptrace_scope is {scope}");
            is_refused(&who, &exit, NOT_PERMITTED, &words)?;
        }
    }
    let open: Vec<String> = somebody
        .iter()
        .cloned()
        .chain(["python3", "-c", TRACED_BY_ANYBODY].map(str::to_owned))
        .collect();
    let subject = Subject::start(&kit, &open, &[])?;
    let exit = attach(&kit, &somebody, subject.pid())?;
    let who = name("the same user, which the process let trace it");
    match scope {
        // A process beside midair's traces it (ENG-054), which descends from midair's.
        0 | 1 => is_in(&who, &exit)?,
        _ => {
            let words = format!("kernel.yama.ptrace_scope is {scope}");
            is_refused(&who, &exit, NOT_PERMITTED, &words)?;
        }
    }
    subject.quit()?;
    let subject = Subject::listening(&kit, Some(SOMEBODY))?;
    let exit = attach(&kit, &somebody, subject.pid())?;
    let said = short(&exit.stderr.join(" "));
    let way = match exit.status.code() {
        Some(0) => "in".to_owned(),
        Some(code) => format!("refused ({code}): {said}"),
        None => return Err(format!("scope {scope}, listener: {exit}").into()),
    };
    say(&name(&format!(
        "the same user, over the listener's socket: {way}"
    )));
    subject.quit()
}

/// Lets anybody trace the process (`PR_SET_PTRACER`), which then becomes the program.
const TRACED_BY_ANYBODY: &str = r#"
import ctypes, os, sys
anybody = ctypes.c_ulong(2**64 - 1)
assert ctypes.CDLL(None).prctl(0x59616d61, anybody, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Runs a process of the user that starts the program and then becomes its attacher.
fn parent(kit: &Kit) -> Result<Exit> {
    const SCRIPT: &str = r#"
import os, subprocess, sys
program, midair, out = sys.argv[1:]
near, far = os.pipe()
os.set_inheritable(far, True)
child = subprocess.Popen([program], stdin=near, stdout=subprocess.PIPE, text=True)
while not child.stdout.readline().startswith("ready"): pass
os.write(far, b"work 1\n")
while not child.stdout.readline().startswith("work"): pass
os.set_inheritable(child.stdout.fileno(), True)
os.execv(midair, [midair, "attach", str(child.pid), "--hip-trace", "--duration", "300ms", "-d", out])
"#;
    let words = as_user(SOMEBODY);
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["python3", "-c", SCRIPT])
        .arg(program(kit)?)
        .arg(stage()?.join("bin/midair"))
        .arg(kit.scratch().join("parent"))
        .env_clear()
        .envs(plain_environment())
        .env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"))
        .env("MODEL_LOG", kit.scratch().join("parent.log"));
    run(command, PATIENCE)
}
