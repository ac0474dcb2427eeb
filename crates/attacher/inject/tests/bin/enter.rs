//! An attacher as a process of its own: it enters a process, says how it went, and withdraws. The
//! tests kill it half way.
//!
//! `midair-enter serve` attaches repeatedly, as the lines of its standard input say. A line is "N
//! WHAT PID CONTROL": WHAT happens to process PID after step N, or at the point of that name (see
//! `strike.rs`). After each attach it says how it went and what it has open.
//!
//! `midair-enter PID [--library FILE] [--fault POINT] [--stop-at POINT] [--stop-for-ever-at POINT]
//! [--die-after N] [--cycles N] [--stay] [--any-way]`

mod strike;

use midair_procinfo::Pid;
use midair_ptrace::fault::{self, Action};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use midair_inject::{
    EnterError, Entered, FaultPoint, Library, Options, approach, enter, enter_by, inspect,
};

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(args: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    if args.first().is_some_and(|word| word == "serve") {
        return serve(args.get(1).map(Into::into));
    }
    let mut words = args.into_iter();
    let pid: Pid = words.next().ok_or("no process named")?.parse()?;
    let (mut library, mut options) = (Library::Nothing, Options::default());
    let (mut cycles, mut stay, mut die_after) = (1_u32, false, None);
    // Enter by the process's own listener if it has one, and otherwise by tracing.
    let mut any_way = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--library" => library = Library::File(value()?.into()),
            "--cycles" => cycles = value()?.parse()?,
            "--die-after" => die_after = Some(value()?.parse::<u64>()?),
            "--find-ms" => options.find = Duration::from_millis(value()?.parse()?),
            "--boot-ms" => options.boot = Duration::from_millis(value()?.parse()?),
            "--stay" => stay = true,
            "--any-way" => any_way = true,
            "--fault" => fault::arm_at(point(&value()?)?.name(), Action::DieHere),
            // Stops this process, as its user may do: once, or again whenever it goes on.
            "--stop-for-ever-at" => fault::arm_at(
                point(&value()?)?.name(),
                Action::Strike(Box::new(|_| {
                    loop {
                        fault::stop_here();
                    }
                })),
            ),
            "--stop-at" => fault::arm_at(
                point(&value()?)?.name(),
                Action::Strike(Box::new(|_| fault::stop_here())),
            ),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    if let Some(operations) = die_after {
        fault::arm(operations, Action::DieHere);
    }
    for _ in 0..cycles {
        let entered = if any_way {
            let seen = approach(pid)?;
            enter_by(&seen, &library, &options).map_err(|error| match &seen.inspection {
                Err(refusal) => format!("{error} (and {refusal})"),
                Ok(_) => error.to_string(),
            })?
        } else {
            enter(&inspect(pid)?, &library, &options)?
        };
        println!(
            "entered agent={} via={:?} thread={} name={:?} doing={:?} find={} seize={} stub={} release={}",
            entered.worker_tid,
            entered.via.path,
            entered.via.tid,
            entered.via.name,
            entered.via.doing,
            entered.times.find.as_nanos(),
            entered.times.seize.as_nanos(),
            entered.times.stub.as_nanos(),
            entered.times.release.as_nanos(),
        );
        std::io::stdout().flush()?;
        if stay {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line)?;
        }
        entered.require_same_rights()?;
        entered.withdraw(&options)?;
        println!("withdrawn operations={}", fault::operations());
    }
    Ok(())
}

fn point(name: &str) -> Result<FaultPoint, String> {
    FaultPoint::ALL
        .into_iter()
        .find(|point| point.name() == name)
        .ok_or(format!("no point is called {name}"))
}

/// Enters through the socket of the process's own listener if there is a library to load.
fn come_in(pid: Pid, socket: Option<&PathBuf>, options: &Options) -> Result<Entered, EnterError> {
    match socket {
        Some(library) => enter_by(&approach(pid)?, &Library::File(library.clone()), options),
        None => enter(&inspect(pid)?, &Library::Nothing, options),
    }
}

fn serve(socket: Option<PathBuf>) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        find: Duration::from_secs(20),
        ..Options::default()
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let [number, what, pid, control] = words[..] else {
            return Err(format!("what is {line:?}?").into());
        };
        let pid: Pid = pid.parse()?;
        let struck = strike::arm(number, what, pid, Path::new(control))?;
        let done = come_in(pid, socket.as_ref(), &options).and_then(|entered| {
            entered.require_same_rights()?;
            entered.withdraw(&options)
        });
        let (steps, _) = fault::disarm();
        let (took, step) = match struck.told() {
            Some((at, step)) => (at.elapsed(), step),
            None => (Duration::ZERO, String::new()),
        };
        println!(
            "round steps={steps} took={} had={:?} at={step:?} {}",
            took.as_micros(),
            strike::possessions(),
            match done {
                Ok(()) => "ok".to_owned(),
                Err(error) => format!("failed: {error}"),
            }
        );
        std::io::stdout().flush()?;
    }
    Ok(())
}
