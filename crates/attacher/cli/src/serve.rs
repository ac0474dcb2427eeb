//! The command `midair serve`: this program becomes `midair-serve`, which alone has network code.

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_session::Install;
use midair_settings::{SERVE, ServeOption};
use std::os::unix::process::CommandExt;

/// The program, next to the default tool.
const PROGRAM: &str = "midair-serve";

/// The text below the help.
pub(crate) const HELP: &str = "\
Examples:
  midair serve                                    at http://127.0.0.1:9468
  midair serve --listen unix:/run/midair.sock     at a socket
  midair serve --client-user prometheus           another user may ask, too
  midair serve --listen 0.0.0.0:9468 --token-file /etc/midair/token
  go tool pprof 'http://127.0.0.1:9468/debug/pprof/gpu?pid=4242&seconds=5'";

/// The clap command.
pub(crate) fn command() -> Command {
    let serve = Command::new("serve")
        .about("Serve metrics, profiles and recordings of GPU processes over HTTP")
        .long_about(
            "Serve metrics, profiles and recordings of GPU processes over HTTP, until a signal: /metrics for Prometheus, /processes, \
             /top/PID, /why/PID, /record/PID, and /debug/pprof/gpu?pid=PID for pprof.\n\
             By default only this machine's root and your own user are answered.",
        )
        .after_help(HELP);
    SERVE
        .iter()
        .fold(serve, |serve, option| serve.arg(argument(option)))
}

fn argument(option: &'static ServeOption) -> Arg {
    let argument = Arg::new(option.long)
        .long(option.long)
        .value_name(option.value)
        .help(option.help);
    let argument = match option.many {
        true => argument.action(ArgAction::Append),
        false => argument,
    };
    match option.default {
        Some(default) => argument.default_value(default),
        None => argument,
    }
}

/// Becomes the server. Returns only when that fails.
pub(crate) fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let program = Install::find()?.helper(PROGRAM).map_err(absent)?;
    let mut server = std::process::Command::new(&program);
    for option in SERVE {
        let values = matches.get_many::<String>(option.long);
        for value in values.into_iter().flatten() {
            server.arg(format!("--{}={value}", option.long));
        }
    }
    let what = format!("cannot start {}: {}", program.display(), server.exec());
    Err(absent(Failure::new(Kind::Installation, what)))
}

fn absent(failure: Failure) -> Failure {
    failure.hint(
        "midair serve comes with the packages and the tarball, not with the one file or the wheel",
    )
}
