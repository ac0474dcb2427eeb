//! The command `midair fleet HOSTS -- attach ...` runs the same command on many hosts by ssh, and
//! prints one summary.
//!
//! Nothing of midair's has to run there beforehand, and nothing stays. Each host gets one ssh, whose
//! end ends the command. An attach without a duration ends at the end of its standard input, which
//! is our end of that ssh.

mod host;
mod summary;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_session::as_real_user;
use midair_settings::Front;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::command::{Parsed, given, parse};
use crate::demo::quoted;
use crate::report::Report;
use crate::wait::{Input, Signals};
use crate::{midair, words};
use host::{Host, Running, Said};

/// The time between two looks at the hosts, the signals and standard input.
const LOOK: Duration = Duration::from_millis(20);

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("fleet")
        .about("Run the same midair command on many hosts by ssh, and show one summary")
        .long_about(
            "Run the same midair command on many hosts by ssh, and show one summary: each host's exit code, records, losses and failure, and \
             for attach the sum of all tables over the hosts, with the slowest host of each row.\n\
             The hosts need \
             an installed midair, but no running service. Each host writes its own results. ssh never prompts (BatchMode): log \
             in by key or agent. An attach without --duration stops on Enter, Ctrl-C or at the end of standard input.\n\
        \
                  The exit code is 0 if all hosts succeed, the hosts' common code if all fail alike, and 35 otherwise.",
        )
        .after_help(crate::help::FLEET)
        .arg(
            Arg::new("HOST")
                .num_args(0..)
                .value_name("HOST")
                .help("Hosts, as ssh knows them"),
        )
        .arg(
            Arg::new("words")
                .last(true)
                .num_args(1..)
                .required(true)
                .value_name("WORDS")
                .value_parser(clap::value_parser!(OsString))
                .help("midair command to run there: attach, ps, doctor ... with its options"),
        )
        .arg(
            Arg::new("hosts")
                .long("hosts")
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Read hosts from this file, one per line; the rest of a line after the host, or after #, is ignored"),
        )
        .arg(
            Arg::new("ssh")
                .long("ssh")
                .value_name("COMMAND")
                .default_value("ssh")
                .help("Connect with this command, such as 'ssh -p 2222'"),
        )
        .arg(
            Arg::new("program")
                .long("program")
                .value_name("PATH")
                .default_value("midair")
                .help("Run this program on the hosts"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .value_parser(clap::value_parser!(u64).range(1..=86_400))
                .default_value("60")
                .help("Limit the time per host to connect, attach and write, in addition to the recording, in seconds"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// What the hosts have to do.
struct Work {
    /// The words after `midair`.
    words: Vec<String>,
    /// Whether it is an attach, whose screen is requested as JSON.
    attaches: bool,
    /// How long it records by itself, or none where it ends by itself or we end it.
    duration: Option<Duration>,
}

pub(crate) fn run(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let names = hosts(matches)?;
    let work = work(matches)?;
    let text = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let ssh: Vec<&str> = text("ssh").split_whitespace().collect();
    let seconds = matches.get_one("timeout").copied().unwrap_or(60);
    let patience = Duration::from_secs(seconds);
    let remote: Vec<String> = std::iter::once(text("program"))
        .chain(work.words.iter().map(String::as_str))
        .map(quoted)
        .collect();
    let remote = remote.join(" ");
    // Signals are blocked before any other thread exists.
    let signals = Signals::block()?;
    let (sender, said) = channel();
    let hosts = midair_failure::plain::counted(names.len(), "host", "hosts");
    report.note(&format!("fleet: {hosts}: {remote}"));
    let mut hosts = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        hosts.push(Host::start(
            index,
            name,
            &ssh,
            &remote,
            work.attaches,
            &sender,
        ));
    }
    drop(sender);
    follow(&mut hosts, &said, &signals, &work, patience, &report);
    signals.release();
    let answers: Vec<_> = hosts.into_iter().map(Host::answer).collect();
    if matches.get_flag("json") {
        report.json(&summary::document(&answers));
    } else {
        for line in summary::lines(&answers, work.attaches) {
            report.line(&line);
        }
    }
    Ok(summary::code(&answers))
}

/// Returns the hosts that were named, each once.
fn hosts(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    let given = matches.get_many::<String>("HOST").into_iter().flatten();
    let mut all: Vec<String> = given.cloned().collect();
    if let Some(file) = matches.get_one::<PathBuf>("hosts") {
        all.extend(listed(file)?);
    }
    for name in all {
        if name.starts_with('-') || name.is_empty() {
            return Err(Failure::new(Kind::Usage, format!("'{name}' is not a host")));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err(Failure::new(Kind::Usage, "no host given")
            .hint("midair fleet node1 node2 -- attach --name train.py --duration 5s")),
        false => Ok(names),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names, with the user's rights"
)]
fn listed(file: &Path) -> Result<Vec<String>, Failure> {
    let text = as_real_user(|| std::fs::read_to_string(file)).flatten();
    let text =
        text.map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))?;
    let first = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().next().map(str::to_owned)
    };
    Ok(text.lines().filter_map(first).collect())
}

/// Returns the words for the hosts. A mistake in them is reported once, here, before any host is
/// asked.
fn work(matches: &ArgMatches) -> Result<Work, Failure> {
    let behind = matches.get_many::<OsString>("words").into_iter().flatten();
    let typed: Vec<OsString> = std::iter::once(OsString::from("midair"))
        .chain(behind.cloned())
        .collect();
    let typed = words::tidied(&typed);
    let refused = |what: &str| Err(Failure::new(Kind::Usage, what));
    let parsed = match parse(midair::command(), &typed)? {
        Parsed::Matches(matches) => matches,
        Parsed::Text(_) => return refused("cannot run --help or --version on hosts"),
    };
    let mut all = Vec::new();
    for word in typed.into_iter().skip(1) {
        let word = word.into_string().map_err(|word| {
            Failure::new(Kind::Usage, format!("{} is not UTF-8", word.display()))
        })?;
        all.push(word);
    }
    match parsed.subcommand() {
        Some(("fleet" | "top" | "demo" | "flame", _)) => {
            refused("cannot run this on hosts: use attach, or a command that ends by itself")
        }
        Some(("attach", matches)) => {
            let given = given(matches, Front::Midair)?;
            if given.is_on("until-signal") {
                return refused(
                    "--until-signal cannot be used with fleet: without --duration, an attach ends on Enter or Ctrl-C here",
                );
            }
            if given.is_on("quiet") || given.is_on("dry-run") {
                return Ok(Work {
                    words: all,
                    attaches: false,
                    duration: given.duration("duration"),
                });
            }
            if !given.is_on("json") {
                // Options may stand after the process.
                all.push("--json".to_owned());
            }
            Ok(Work {
                words: all,
                attaches: true,
                duration: given.duration("duration"),
            })
        }
        _ => Ok(Work {
            words: all,
            attaches: false,
            duration: Some(Duration::ZERO),
        }),
    }
}

/// Waits until every host has ended, or has taken too long.
fn follow(
    hosts: &mut [Host],
    said: &Receiver<Said>,
    signals: &Signals,
    work: &Work,
    patience: Duration,
    report: &Report,
) {
    let stdin = std::io::stdin();
    let mut input = match work.duration {
        // With a duration, as for an attach, standard input belongs to the caller.
        Some(_) => Input::ignored(),
        None => Input::watched(stdin.as_fd()),
    };
    let mut until = work
        .duration
        .and_then(|duration| Instant::now().checked_add(duration.saturating_add(patience)));
    let mut stopped = false;
    loop {
        match said.recv_timeout(LOOK) {
            Ok(said) => take(hosts, said, report),
            Err(RecvTimeoutError::Timeout) => {}
            // No host will send anything more, and only their ends remain to be seen.
            Err(RecvTimeoutError::Disconnected) => {
                signals.sleep(LOOK);
            }
        }
        while let Ok(more) = said.try_recv() {
            take(hosts, more, report);
        }
        if hosts.iter_mut().all(|host| host.look() == Running::No) {
            return;
        }
        let came = signals.next();
        if !stopped && (came.is_some() || ended(&mut input)) {
            stopped = true;
            report.note("fleet: stopping the hosts; Ctrl-C again to abandon them");
            until = Instant::now()
                .checked_add(patience.saturating_add(work.duration.unwrap_or_default()));
            hosts.iter_mut().for_each(Host::end_of_input);
        } else if came.is_some() {
            give_up(hosts, "abandoned on Ctrl-C");
        }
        if until.is_some_and(|until| Instant::now() > until) {
            let seconds = patience.as_secs();
            give_up(
                hosts,
                &format!("did not finish within {seconds} s (--timeout)"),
            );
        }
    }
}

fn take(hosts: &mut [Host], said: Said, report: &Report) {
    let Some(host) = hosts.get_mut(said.index) else {
        return;
    };
    if let Some(line) = host.take(said.what) {
        report.note(&format!("{}: {line}", host.name()));
    }
}

fn give_up(hosts: &mut [Host], why: &str) {
    for host in hosts {
        host.give_up(why);
    }
}

/// Whether Enter was pressed, or standard input has ended.
fn ended(input: &mut Input<'_>) -> bool {
    let Some(fd) = input.ready_to_watch() else {
        return false;
    };
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(ready) if ready > 0) && input.read().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<(Vec<String>, Work), Failure> {
        let typed: Vec<&str> = line.split(' ').collect();
        let matches = command().try_get_matches_from(typed).unwrap();
        Ok((hosts(&matches)?, work(&matches)?))
    }

    #[test]
    fn words_for_hosts_are_checked_before_any_host_is_asked() {
        let (hosts, work) = asked("fleet a b a -- attach --name x --duration 2s").unwrap();
        assert_eq!(hosts, ["a", "b"]);
        assert_eq!(work.duration, Some(Duration::from_secs(2)));
        let wanted = ["attach", "--name", "x", "--duration", "2s", "--json"];
        assert_eq!(work.words, wanted);
        assert!(work.attaches);
        let (_, listing) = asked("fleet a -- ps --json").unwrap();
        assert!(!listing.attaches);
        for wrong in [
            "fleet a -- attach --durration 2s 4",
            "fleet a -- attach --until-signal 4",
            "fleet a -- fleet b -- ps",
            "fleet a -- top 5",
            "fleet a -- --help",
            "fleet -- ps",
        ] {
            let failure = asked(wrong).err().unwrap();
            assert_eq!(failure.kind, Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn a_file_of_hosts_has_comments() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"# rack 1\nn1 slots=8\n\nn2 # slow\n").unwrap();
        assert_eq!(listed(file.path()).unwrap(), ["n1", "n2"]);
    }
}
