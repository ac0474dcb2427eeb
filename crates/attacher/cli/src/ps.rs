//! `midair ps`: the processes that use a GPU runtime, and whether each can be attached to.

use std::time::SystemTime;

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, plain};
use midair_session::{ADD_TO_CONTAINER, Listed, Listing, traces_others};
use nix::unistd::{Uid, User};

use crate::doctor::json_argument;
use crate::engine::Engine;
use crate::report::{Report, hint};

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("ps")
        .about("List the processes that use a GPU runtime, and whether each can be attached to")
        .long_about(
            "List the processes that use a GPU runtime (HIP, HSA, CUDA), and whether each can be attached to. The processes are \
             not touched. Column ATTACHED shows the state of midair's thread in the process, and ATTACH how an attach would \
             enter, or why it cannot. midair doctor PID lists every reason and remedy.",
        )
        .arg(
            Arg::new("all")
                .short('a')
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Include processes that cannot be inspected"),
        )
        .arg(json_argument())
}

pub(crate) fn run(matches: &ArgMatches, engine: &dyn Engine, report: Report) -> u8 {
    let all = matches.get_flag("all");
    let listing = engine.list(all);
    if matches.get_flag("json") {
        report.json(&listing.to_json(hint));
        return 0;
    }
    let now = SystemTime::now();
    for line in table(&listing, now, &user, report.columns()) {
        report.line(&line);
    }
    if listing.processes.is_empty() {
        report.note("no visible process uses a GPU runtime");
    }
    if !all && listing.unreadable > 0 {
        report.note(&unreadable(listing.unreadable));
    }
    0
}

fn unreadable(count: usize) -> String {
    let remedy = match (Uid::effective().is_root(), traces_others()) {
        (true, true) => "",
        (true, false) => ADD_TO_CONTAINER,
        (false, _) => "run this as root",
    };
    let colon = if remedy.is_empty() { "" } else { ": " };
    let processes = plain::counted(count, "process", "processes");
    format!("{processes} cannot be inspected{colon}{remedy}")
}

/// Returns the name of a user, or the number.
fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// Returns the age of a process, in at most two units.
fn age(started: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(started).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

fn runtimes(listed: &Listed) -> String {
    let found = &listed.found;
    if !found.readable {
        return "?".to_owned();
    }
    let known = found.runtimes.iter().map(|runtime| {
        format!("{} {}", runtime.kind.name(), runtime.version)
            .trim_end()
            .to_owned()
    });
    let all: Vec<String> = known.collect();
    all.join(", ")
}

/// Returns the reason in a word or two. The whole reason is in doctor and json.
fn attach(listed: &Listed) -> String {
    match &listed.attachable {
        Some(Ok(way)) => (*way).to_owned(),
        Some(Err(failure)) => format!("no: {}", short(failure)),
        None => "?".to_owned(),
    }
}

fn short(failure: &Failure) -> &'static str {
    use midair_failure::Kind;
    match failure.kind {
        Kind::NoProcess | Kind::Zombie => "has ended",
        Kind::NotPermitted => "not permitted",
        Kind::Busy => "busy",
        Kind::Libc => "C library",
        Kind::Instrumented => "instrumented",
        Kind::Architecture => "machine type",
        Kind::Stopped => "stopped",
        Kind::NoHeadroom => "no headroom",
        Kind::NoCupti => "no CUPTI",
        Kind::OtherProfiler => "another profiler",
        Kind::NoAnswer => "did not answer",
        Kind::Filtered => "filtered",
        _ => "see doctor",
    }
}

/// The columns that a narrow terminal does without, the first of them first: THREADS, USER, AGE,
/// ATTACHED.
const SPARE: [usize; 4] = [3, 1, 4, 5];
/// What is left for the command, as long as there are such columns.
const COMMAND: usize = 16;

fn table(
    listing: &Listing,
    now: SystemTime,
    user: &dyn Fn(u32) -> String,
    columns: Option<usize>,
) -> Vec<String> {
    const HEAD: [&str; 8] = [
        "PID", "USER", "RUNTIME", "THREADS", "AGE", "ATTACHED", "ATTACH", "COMMAND",
    ];
    if listing.processes.is_empty() {
        return Vec::new();
    }
    let rows = listing.processes.iter().map(|listed| {
        let found = &listed.found;
        let pid = match listed.inner_pid {
            Some(inner) => format!("{} ({inner})", found.pid),
            None => found.pid.to_string(),
        };
        let command = if found.command.is_empty() {
            format!("[{}]", found.name)
        } else {
            found.shown_command()
        };
        [
            pid,
            user(found.uids[0]),
            runtimes(listed),
            listed.threads.to_string(),
            age(listed.started, now),
            listed.attached.to_owned(),
            attach(listed),
            command,
        ]
    });
    // Names may hold any bytes, so they are cleaned before their widths are measured.
    let rows = rows.map(|row| row.map(|text| plain::line(&text).into_owned()));
    let rows: Vec<[String; 8]> = std::iter::once(HEAD.map(str::to_owned))
        .chain(rows)
        .collect();
    let length = |text: &String| text.chars().count();
    let widths: Vec<usize> = (0..7)
        .map(|column| {
            rows.iter()
                .map(|row| length(&row[column]))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut hidden = 0;
    if let Some(columns) = columns {
        let taken = |hidden: usize| -> usize {
            let shown = (0..7).filter(|column| !SPARE[..hidden].contains(column));
            shown.map(|column| widths[column] + 2).sum()
        };
        while hidden < SPARE.len() && taken(hidden) + COMMAND > columns {
            hidden += 1;
        }
    }
    let line = |row: &[String; 8]| {
        let mut line = String::new();
        for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
            if SPARE[..hidden].contains(&column) {
                continue;
            }
            let space = " ".repeat(width - length(text));
            // Numbers are right-aligned, words left-aligned.
            let (before, after) = if matches!(column, 0 | 3 | 4) {
                (space.as_str(), "")
            } else {
                ("", space.as_str())
            };
            line.push_str(&format!("{before}{text}{after}  "));
        }
        line.push_str(&row[7]);
        match columns {
            Some(columns) if length(&line) > columns => line.chars().take(columns).collect(),
            _ => line.trim_end().to_owned(),
        }
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_failure::Kind;
    use midair_session::{Found, Pid, Runtime, RuntimeKind};
    use serde_json::json;
    use std::time::{Duration, UNIX_EPOCH};

    fn listing() -> Listing {
        let listed = |number: u32, command: &str, attachable| Listed {
            found: Found {
                pid: Pid::new(number).unwrap(),
                parent: Pid::new(1),
                start_ticks: 5,
                uids: [1000; 3],
                name: "train".into(),
                command: command.into(),
                runtimes: vec![Runtime {
                    kind: RuntimeKind::Hip,
                    version: "7.2".into(),
                    path: "/opt/libamdhip64.so.7.2".into(),
                    deleted: false,
                }],
                readable: true,
            },
            inner_pid: (number == 4000).then(|| Pid::new(1).unwrap()),
            threads: 12,
            started: UNIX_EPOCH + Duration::from_secs(1000),
            attached: "no",
            attachable,
        };
        let refused = Failure::new(Kind::Stopped, "process 99 is stopped").hint("kill -CONT 99");
        Listing {
            processes: vec![
                listed(99, "python \u{1b}[31mtrain.py", Some(Err(refused))),
                listed(4000, "", Some(Ok("listener"))),
            ],
            unreadable: 3,
        }
    }

    #[test]
    fn rows_fit_and_steer_no_terminal() {
        let now = UNIX_EPOCH + Duration::from_secs(1075);
        let name = |uid: u32| format!("u{uid}");
        let lines = table(&listing(), now, &name, None);
        assert_eq!(
            lines,
            [
                "     PID  USER   RUNTIME  THREADS    AGE  ATTACHED  ATTACH       COMMAND",
                "      99  u1000  HIP 7.2       12  1m15s  no        no: stopped  python \u{fffd}[31mtrain.py",
                "4000 (1)  u1000  HIP 7.2       12  1m15s  no        listener     [train]",
            ]
        );
        // A narrow terminal still shows which process it is, and whether it can be attached to.
        assert_eq!(
            table(&listing(), now, &name, Some(60)),
            [
                "     PID  RUNTIME  ATTACHED  ATTACH       COMMAND",
                "      99  HIP 7.2  no        no: stopped  python \u{fffd}[31mtrain.",
                "4000 (1)  HIP 7.2  no        listener     [train]",
            ]
        );
        for columns in [1, 20, 40, 80] {
            for line in table(&listing(), now, &name, Some(columns)) {
                assert!(line.chars().count() <= columns, "{line}");
            }
        }
        assert_eq!(table(&Listing::default(), now, &name, None), [""; 0]);
    }

    #[test]
    fn the_schema() {
        let told = listing().to_json(hint);
        assert_eq!(
            (&told["version"], &told["unreadable"]),
            (&1.into(), &3.into())
        );
        assert_eq!(
            told["processes"][0],
            json!({
                "pid": 99, "inner_pid": null, "uid": 1000, "name": "train", "command": "python \u{1b}[31mtrain.py", "threads": 12,
                "started": 1000, "attached": "no", "attachable": false, "way": null,
                "runtimes": [{"kind": "HIP", "version": "7.2", "path": "/opt/libamdhip64.so.7.2", "deleted": false}],
                "why": "process 99 is stopped", "hint": "kill -CONT 99", "exit_code": 19,
            })
        );
        assert_eq!(told["processes"][1]["way"], "listener");
        assert_eq!(told["processes"][1]["inner_pid"], 1);
    }

    #[test]
    fn ages() {
        let after = |seconds| age(UNIX_EPOCH, UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(
            [0, 59, 60, 3599, 3600, 86399, 90000].map(after),
            ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d01h"]
        );
    }
}
