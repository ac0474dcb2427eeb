//! `midair doctor`: every precondition of an attach, one line each.

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::Failure;
use midair_session::Pid;
use serde_json::{Value, json};

use crate::engine::{Check, Engine, Request, Verdict};
use crate::report::Report;

/// Version of the json's schema: raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;

/// The option that both `doctor` and `ps` have.
pub(crate) fn json_argument() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON instead, for programs")
}

/// The clap command; `pid` is its argument.
pub(crate) fn command(pid: Arg) -> Command {
    Command::new("doctor")
        .about("Check every precondition of an attach, without touching the process")
        .long_about(
            "Check every precondition of an attach, without touching the process: it is not stopped, traced or written to. Each line begins \
             with ok, with NO where it forbids the attach (with the remedy on the next line), or with -- where it does not decide.\n\
             The exit code is 0, or that of the first precondition that fails: what an attach would end with.",
        )
        .arg(pid)
        .arg(json_argument())
}

pub(crate) fn run(
    matches: &ArgMatches,
    request: &Request,
    engine: &dyn Engine,
    report: Report,
) -> Result<u8, Failure> {
    check(request, matches.get_flag("json"), engine, report)
}

/// Prints each check. The exit code is that of the first check that forbids the attach.
pub(crate) fn check(
    request: &Request,
    as_json: bool,
    engine: &dyn Engine,
    report: Report,
) -> Result<u8, Failure> {
    let checks = engine.inspect(request)?;
    let code = checks
        .iter()
        .find_map(Check::failure)
        .map_or(0, |failure| failure.kind.exit_code());
    if as_json {
        report.json(&document(request.pid, code, &checks));
    } else {
        for line in lines(code, &checks) {
            report.line(&line);
        }
    }
    Ok(code)
}

fn lines(code: u8, checks: &[Check]) -> Vec<String> {
    let names = checks.iter().map(|check| check.name.len());
    let width = names.max().unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let mark = match &check.verdict {
            Verdict::Pass => "ok",
            Verdict::Note => "--",
            Verdict::Fail(_) => "NO",
        };
        lines.push(format!("{mark}  {:width$}  {}", check.name, check.found));
        if let Some(failure) = check.failure().filter(|failure| !failure.hint.is_empty()) {
            lines.push(format!("    {:width$}  hint: {}", "", failure.hint));
        }
    }
    let end = if code == 0 { "can" } else { "cannot" };
    lines.push(format!("process {end} be attached to"));
    lines
}

/// The schema: `version`; `pid` as asked for; `attachable`; `exit_code`, the one that an attach would end
/// with; `checks`, each with `name`, `status` (pass, note, fail), `found`, and for fail `exit_code` and
/// `hint`.
fn document(pid: Pid, code: u8, checks: &[Check]) -> Value {
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| {
            let (name, found) = (&check.name, &check.found);
            match &check.verdict {
                Verdict::Pass => json!({"name": name, "status": "pass", "found": found}),
                Verdict::Note => json!({"name": name, "status": "note", "found": found}),
                Verdict::Fail(failure) => json!({
                    "name": name,
                    "status": "fail",
                    "found": found,
                    "exit_code": failure.kind.exit_code(),
                    "hint": failure.hint,
                }),
            }
        })
        .collect();
    json!({
        "version": SCHEMA,
        "pid": pid.get(),
        "attachable": code == 0,
        "exit_code": code,
        "checks": checks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_failure::Kind;

    #[test]
    fn lines_and_json_say_the_same() {
        let failure = Failure::new(Kind::NotGpu, "no runtime").hint("start one");
        let checks = [
            Check::pass("a", "fine"),
            Check::note("bb", "so so"),
            Check::fail("ccc", failure),
        ];
        assert_eq!(
            lines(14, &checks),
            [
                "ok  a    fine",
                "--  bb   so so",
                "NO  ccc  no runtime",
                "         hint: start one",
                "process cannot be attached to",
            ]
        );
        assert_eq!(
            document(Pid::new(7).unwrap(), 14, &checks),
            json!({
                "version": 1, "pid": 7, "attachable": false, "exit_code": 14,
                "checks": [
                    {"name": "a", "status": "pass", "found": "fine"},
                    {"name": "bb", "status": "note", "found": "so so"},
                    {"name": "ccc", "status": "fail", "found": "no runtime", "exit_code": 14, "hint": "start one"},
                ],
            })
        );
        assert_eq!(lines(0, &[]), ["process can be attached to"]);
    }
}
