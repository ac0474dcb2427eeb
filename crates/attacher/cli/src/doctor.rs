//! The command `midair doctor`: every precondition of an attach, one line each.

use clap::{Arg, ArgAction, Command};
use midair_failure::Failure;
use midair_session::Pid;
use serde_json::{Value, json};

use crate::engine::{Check, Engine, Request, Verdict};
use crate::report::{Report, hint};

mod topics;

/// The version of the json's schema. It is raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;

/// Builds the option that both `doctor` and `ps` have.
pub(crate) fn json_argument() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

/// What is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The request's process.
    Process,
    /// The machine, for any process.
    Machine,
}

/// The clap command; `pid` is its argument.
pub(crate) fn command(pid: Arg) -> Command {
    Command::new("doctor")
        .about("Check every precondition of an attach, without touching the process")
        .long_about(
            "Check every precondition of an attach, without touching the process: it is not stopped, traced or written to. Without \
             a process, check the preconditions of this machine and user. Each line starts with ok, with NO if the check forbids \
             the attach (the remedy is on the next line), or with -- if it is informational.\n\
             The exit code is 0, \
             or the code of the first failed precondition, as from an attach.\n\
             With --json, each check also has \
             its reason, the facts it looked at, and how certain the answer is (docs/doctor.schema.json).",
        )
        .arg(pid)
        .arg(json_argument())
}

/// Prints each check. The first check that forbids the attach gives the exit code.
pub(crate) fn check(
    request: &Request,
    of: Subject,
    as_json: bool,
    engine: &dyn Engine,
    report: Report,
) -> Result<u8, Failure> {
    let (checks, pid) = match of {
        Subject::Process => (engine.inspect(request)?, Some(request.pid)),
        Subject::Machine => (engine.inspect_machine(request)?, None),
    };
    let code = checks
        .iter()
        .find_map(Check::failure)
        .map_or(0, |failure| failure.kind.exit_code());
    if as_json {
        report.json(&document(pid, code, &checks));
    } else {
        for (line, indent) in lines(pid, code, &checks) {
            report.folded(&line, indent);
        }
    }
    Ok(code)
}

/// Returns lines, and the spaces with which each goes on where a terminal is too narrow.
fn lines(pid: Option<Pid>, code: u8, checks: &[Check]) -> Vec<(String, usize)> {
    let names = checks.iter().map(|check| check.name.len());
    let width = names.max().unwrap_or(0);
    let indent = width + "ok".len() + 2 * "  ".len();
    let mut lines = Vec::new();
    for check in checks {
        let mark = match &check.verdict {
            Verdict::Pass => "ok",
            Verdict::Note => "--",
            Verdict::Fail(_) => "NO",
        };
        let line = format!("{mark}  {:width$}  {}", check.name, check.found);
        lines.push((line, indent));
        if let Some(hint) = check.failure().map(hint).filter(|hint| !hint.is_empty()) {
            lines.push((format!("{:indent$}hint: {hint}", ""), indent));
        }
    }
    let end = if code == 0 { "can" } else { "cannot" };
    let end = match pid {
        Some(_) => format!("process {end} be attached to"),
        None => format!(
            "processes of this machine {end} be attached to, as far as it depends on the machine"
        ),
    };
    lines.push((end, 0));
    lines
}

/// The document that `docs/doctor.schema.json` describes.
fn document(pid: Option<Pid>, code: u8, checks: &[Check]) -> Value {
    let checks: Vec<Value> = checks.iter().map(described).collect();
    json!({
        "version": SCHEMA,
        "pid": pid.map(Pid::get),
        "attachable": code == 0,
        "exit_code": code,
        "checks": checks,
    })
}

fn described(check: &Check) -> Value {
    let topic = topics::of(&check.name);
    let (status, failure) = match &check.verdict {
        Verdict::Pass => ("pass", None),
        Verdict::Note => ("note", None),
        Verdict::Fail(failure) => ("fail", Some(failure)),
    };
    let unknown =
        check.found.contains("cannot be determined") || check.found.contains("is not known");
    let mut document = json!({
        "name": check.name,
        "status": status,
        "found": check.found,
        "area": topic.area,
        "cause": topic.cause,
        "evidence": topic.evidence,
        "confidence": if unknown { "unknown" } else { topic.confidence },
        "remedy": failure.map(hint),
    });
    if let Some(failure) = failure {
        document["exit_code"] = json!(failure.kind.exit_code());
        document["hint"] = json!(hint(failure));
    }
    document
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
        let said = |pid, code, checks: &[Check]| -> Vec<String> {
            let lines = lines(pid, code, checks).into_iter();
            lines.map(|(line, _)| line).collect()
        };
        assert_eq!(
            said(Pid::new(7), 14, &checks),
            [
                "ok  a    fine",
                "--  bb   so so",
                "NO  ccc  no runtime",
                "         hint: start one",
                "process cannot be attached to",
            ]
        );
        let told = document(Pid::new(7), 14, &checks);
        let head = [
            &told["version"],
            &told["pid"],
            &told["attachable"],
            &told["exit_code"],
        ];
        assert_eq!(head, [&json!(1), &json!(7), &json!(false), &json!(14)]);
        for (member, wanted) in [
            ("name", ["a", "bb", "ccc"]),
            ("status", ["pass", "note", "fail"]),
            ("found", ["fine", "so so", "no runtime"]),
        ] {
            let of = |at: usize| told["checks"][at][member].as_str().map(str::to_owned);
            assert_eq!(
                [of(0), of(1), of(2)],
                wanted.map(|word| Some(word.to_owned()))
            );
        }
        let failed = &told["checks"][2];
        assert_eq!(
            (&failed["exit_code"], &failed["hint"]),
            (&json!(14), &json!("start one"))
        );
        assert_eq!(
            (&failed["remedy"], &told["checks"][0]["remedy"]),
            (&json!("start one"), &json!(null))
        );
        assert!(told["checks"][0].get("hint").is_none());
        assert_eq!(said(Pid::new(7), 0, &[]), ["process can be attached to"]);
        assert!(said(None, 0, &[])[0].starts_with("processes of this machine can"));
    }
}
