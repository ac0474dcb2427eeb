//! SELinux with Debian's policy, enforcing.

use crate::subject::{Subject, attach, is_in, is_refused, kit, say};
use midair_tests::Result;
use midair_tests::target::{PATIENCE, run};
use std::process::Command;

/// Exit code of a process that this user may not touch.
const NOT_PERMITTED: i32 = 11;

fn root(words: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    Ok(run(command, PATIENCE)?.success()?.stdout)
}

fn context(words: &str) -> Vec<String> {
    ["runcon", words].map(str::to_owned).into()
}

pub fn check() -> Result<()> {
    let unconfined = context("unconfined_u:unconfined_r:unconfined_t:s0");
    let kit = kit()?;
    root(&["setenforce", "1"])?;
    say(&format!("enforcing: {}", root(&["getenforce"])?.join(" ")));
    let subject = Subject::start(&kit, &unconfined, &[])?;
    let exit = attach(&kit, &unconfined, subject.pid())?;
    let who = "both unconfined_t, allow_execmem off (as Debian has it)";
    is_refused(who, &exit, NOT_PERMITTED, "allow_execmem")?;
    root(&["setsebool", "allow_execmem", "on"])?;
    let exit = attach(&kit, &unconfined, subject.pid())?;
    is_in("both unconfined_t, allow_execmem on", &exit)?;
    root(&["setsebool", "allow_execmem", "off"])?;
    subject.quit()
}
