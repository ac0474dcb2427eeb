//! A server that is killed at any moment leaves its processes as they were.

use super::http::Server;
use super::sum;
use crate::cuda::kit::{self, NEWEST};
use midair_tests::Result;
use midair_tests::cuda::Kit;
use midair_tests::snapshot::{Diff, Snapshot};
use midair_tests::stage::workload;
use midair_tests::target::{PATIENCE, Target, until};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::Command;

const NAME: &str = "served-through-kills";
/// Turns of a tenth of a second, so that a server attaches and detaches all the time.
const PACE: (&str, &str) = ("MIDAIR_SERVE_PACE", "100");
const WORDS: [&str; 4] = ["--always", "20%", "--only-name", NAME];
/// The most requests for which a server lives.
const MOST: u64 = 400;

/// Starts the HIP program under a name of its own. It ends by itself after so many seconds.
fn hip(directory: &Path, seconds: &str) -> Result<Target> {
    let usual = workload(&[])?;
    let program = directory.join(NAME);
    std::fs::copy(usual.get_program(), &program)?;
    let mut command = Command::new(program);
    command.env_clear().args(["0", "20000", "alone", seconds]);
    let variables = usual.get_envs();
    command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    let mut target = Target::spawn(command)?;
    target.expect("iter 3")?;
    Ok(target)
}

/// Returns what differs, but for the memory of the program's own heap.
fn since(before: &Snapshot, pid: i32) -> Result<Diff> {
    Ok(before.diff(&Snapshot::take(pid)?).without_heap())
}

/// With `MIDAIR_CYCLES` it lasts so many seconds; three minutes have more than 30 kills.
#[test]
fn a_killed_server_leaves_processes_as_they_were() -> Result<()> {
    let seconds = std::env::var("MIDAIR_CYCLES").unwrap_or_else(|_| "30".to_owned());
    let dir = tempfile::tempdir()?;
    let kit = Kit::new()?;
    let mut hip = hip(dir.path(), &seconds)?;
    let program = kit.program("cuda_work", NEWEST)?;
    let named = dir.path().join(format!("{NAME}-cuda"));
    std::fs::copy(program, &named)?;
    let mut cuda = kit.start_command(Command::new(named), &[("PAUSE_US", "5000")])?;
    cuda.expect("ready")?;
    cuda.ask("start")?;
    let pids = [hip.pid(), cuda.pid()];

    // What stays of a session in a process for good is there behind the first server, which ends in good order.
    let server = Server::start_with(&WORDS, &[PACE])?;
    // A turn is too short here for a whole burst of CUDA.
    let mut had = [false; 2];
    until("turns of both", || {
        let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        for (had, pid) in had.iter_mut().zip(pids) {
            let start = format!("midair_process_info{{pid=\"{pid}\"");
            let mut lines = page.lines().filter(|line| line.starts_with(&start));
            *had |= lines.any(|line| line.contains("recorded=\"yes\""));
        }
        Ok(had == [true; 2] && sum(&page, "midair_attaches_total") >= 4.0)
    })?;
    server.end()?;
    let before = [Snapshot::take(pids[0])?, Snapshot::take(pids[1])?];

    let random = RandomState::new();
    let (mut kills, mut attaches) = (0_u64, 0.0);
    'kills: while hip.is_running()? {
        let mut server = Server::start_with(&WORDS, &[PACE])?;
        let at = random.hash_one(kills) % MOST;
        // Requests are under way as well: a recording, or a stream.
        let path = match at % 3 {
            0 => format!("/debug/pprof/gpu?pid={}&seconds=5", pids[0]),
            1 => format!("/top/{}?stream=1&interval=0.25&seconds=5", pids[1]),
            _ => "/debug/pprof/gpu?seconds=5".to_owned(),
        };
        let asked = server.open(&path, &[])?;
        for _ in 0..at {
            server.get("/")?.bytes(200)?;
        }
        let page = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        attaches += sum(&page, "midair_attaches_total");
        server.process.signal(libc::SIGKILL)?;
        until("the server's end", || Ok(!server.process.is_running()?))?;
        drop(asked);
        kills += 1;
        for (before, pid) in before.iter().zip(pids) {
            let mut diff = Diff::default();
            let mut is_over = false;
            until("a process as it was", || {
                is_over = !hip.is_running()?;
                if is_over {
                    return Ok(true);
                }
                diff = since(before, pid)?;
                Ok(diff.is_empty())
            })
            .map_err(|error| {
                format!("{error} ({kills} kills, the last after {at} answers):\n{diff}")
            })?;
            if is_over {
                break 'kills;
            }
        }
    }
    println!("{kills} kills, {attaches} attaches before them");
    assert!(
        kills >= 3 && attaches > 0.0,
        "{kills} kills, {attaches} attaches"
    );
    let exit = hip.wait(PATIENCE)?.success()?;
    for device in ["device 0 ", "device 1 "] {
        let line = exit.stdout.iter().find(|line| line.starts_with(device));
        assert!(line.is_some_and(|line| line.ends_with(" bad 0")), "{exit}");
    }
    // Another server records it.
    let server = Server::start_with(&WORDS, &[PACE])?;
    // The lease of the killed one ends within seconds.
    let path = format!("/top/{}?seconds=0.5", pids[1]);
    until("a session", || Ok(server.get(&path)?.status == 200))?;
    server.end()?;
    cuda.ask("stop")?;
    kit::quit(cuda)
}
