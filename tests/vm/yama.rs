//! `kernel.yama.ptrace_scope`: who may attach, and what the others read.

use crate::subject::{
    SOMEBODY, Subject, as_user, attach, behind, is_in, is_refused, kit, program, say, short,
};
use midair_tests::Result;
use midair_tests::compile::attack_program;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Exit code of a process that this user may not touch.
const NOT_PERMITTED: i32 = 11;
/// Exit code where another midair is at work in the process.
const BUSY: i32 = 15;
/// Exit code where the process did not answer.
const NO_ANSWER: i32 = 37;

/// How often an attach meets pages that are swapped all the time.
const SWAPS: u32 = 200;

pub fn check() -> Result<()> {
    for scope in 0..=3 {
        std::fs::write(SCOPE, scope.to_string()).map_err(|error| format!("{SCOPE}: {error}"))?;
        at(scope)?;
        if scope == 1 {
            swapped_page(&kit()?)?;
        }
    }
    Ok(())
}

fn at(scope: u32) -> Result<()> {
    let kit = kit()?;
    let somebody = as_user(SOMEBODY);
    let name = |who: &str| format!("scope {scope}, {who}");
    // Attaches if scopes up to this one allow it.
    let is_right = |who: &str, exit: &Exit, up_to: u32| {
        if scope <= up_to {
            return is_in(&name(who), exit);
        }
        let words = format!("ptrace_scope is {scope}");
        is_refused(&name(who), exit, NOT_PERMITTED, &words)
    };
    let subject = Subject::start(&kit, &somebody, &[])?;
    is_right("root", &attach(&kit, &[], subject.pid())?, 2)?;
    let exit = attach(&kit, &somebody, subject.pid())?;
    is_right("the same user", &exit, 0)?;
    subject.quit()?;
    is_right("the parent, of the same user", &parent(&kit)?, 1)?;
    let open: Vec<String> = somebody
        .iter()
        .cloned()
        .chain(["python3", "-c", TRACED_BY_ANYBODY].map(str::to_owned))
        .collect();
    let subject = Subject::start(&kit, &open, &[])?;
    let exit = attach(&kit, &somebody, subject.pid())?;
    // A process alongside midair's traces it (ENG-054), which descends from midair's.
    is_right("the same user, which the process let trace it", &exit, 1)?;
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

/// Under scope 1, without capabilities, only the process that Yama was asked about may read: a page that
/// a user serves, put in the place of one that was just looked at, must not keep that process.
fn swapped_page(kit: &Kit) -> Result<()> {
    let somebody = as_user(SOMEBODY);
    let program = kit.dir().join("held_page");
    std::fs::copy(attack_program("held_page")?, &program)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let mounted = kit.dir().join("mounted");
    std::fs::create_dir(&mounted)?;
    let mut command = behind(&[], &program);
    command
        .arg("swapped")
        .arg(kit.dir().join("libhsa-runtime64.so.1"))
        .arg(&mounted)
        .arg(SOMEBODY.to_string())
        .env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
    let mut held = Target::spawn(command)?;
    held.expect("ready")?;
    for attempt in 1..=SWAPS {
        let mut attach = behind(&somebody, &stage()?.join("bin/midair"));
        attach.args(["attach", &held.pid().to_string(), "--duration", "1"]);
        let attach = Target::spawn(attach)?;
        let pid = attach.pid();
        let exit = attach.wait_by_itself(PATIENCE)?;
        match exit.status.code() {
            // The page was seen, or there was nothing of midair's on the other one.
            Some(BUSY) => {}
            Some(NO_ANSWER) => {
                if Path::new(&format!("/proc/{pid}")).exists() {
                    return Err(format!("a page keeps {pid}: {exit}").into());
                }
                // A slow machine is given up, too, and then nothing waits for the page.
                if let Some(reader) = blocked()? {
                    say(&format!(
                        "scope 1, the same user, a page of FUSE that is swapped: given up in attempt {attempt}, and gone; {reader} is left until the page's server ends"
                    ));
                    return Ok(());
                }
            }
            _ => return Err(format!("a swapped page: {exit}").into()),
        }
    }
    Err(format!("the page was never swapped at the right moment in {SWAPS} attempts").into())
}

/// Returns the name of a process of the user's that no signal ends. The program that holds the page, and its
/// server, may be in that state for a moment only.
fn blocked() -> Result<Option<String>> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let has = |line: &str| status.contains(line);
        if has("\nState:\tD") && has(&format!("\nUid:\t{SOMEBODY}\t")) {
            let name = status.lines().next().unwrap_or_default();
            let name = name.replacen("Name:\t", "", 1);
            if name != "held_page" {
                return Ok(Some(name));
            }
        }
    }
    Ok(None)
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
