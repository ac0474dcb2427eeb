//! A running target, with a snapshot from before the first attach.

use crate::cell::slower;
use crate::kit::Kit;
use crate::spec::{Program, Spec};
use crate::state::{State, StateFile};
use crate::tally::Tally;
use midair_tests::Result;
use midair_tests::snapshot::{Diff, Snapshot, What};
use midair_tests::target::Target;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a target may take for its own work on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running target.
pub struct Rig {
    // This field comes before the one for what the target runs in, because fields are dropped in
    // this order.
    target: Target,
    spec: Spec,
    /// The target's pid in our own pid namespace.
    pub pid: i32,
    state: Option<StateFile>,
    before: Snapshot,
    last: BTreeMap<i32, u64>,
    pings: u64,
    foreign_rounds: u64,
    /// The number of probe libraries that must have been loaded.
    marks: u32,
    epoch: u32,
    eintr: BTreeMap<i32, (String, u64)>,
}

/// What is wrong with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Harm {
    /// It is gone.
    Crashed(String),
    /// Its own checks failed, or it makes no progress.
    Wrong(String),
}

impl Rig {
    /// Starts the target and waits until it is at work.
    ///
    /// # Errors
    /// Fails when the target does not start.
    pub fn start(kit: &Kit, spec: &Spec) -> Result<Rig> {
        let path = kit.fresh("state");
        // The target may belong to another user, who must be able to write the file.
        std::fs::write(&path, "")?;
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        }
        let state = StateFile::at(&path);
        let target = Target::spawn(spec.command(kit, &path))?;
        let mut rig = Rig {
            spec: spec.clone(),
            pid: target.pid(),
            target,
            state: matches!(spec.program, Program::Ours { .. }).then_some(state),
            before: Snapshot {
                maps: [].into(),
                fds: [].into(),
                threads: [].into(),
                caught: 0,
                ignored: 0,
                tracer: 0,
            },
            last: BTreeMap::new(),
            pings: 0,
            foreign_rounds: 0,
            marks: 0,
            epoch: 0,
            eintr: BTreeMap::new(),
        };
        rig.until_ready()?;
        if rig.spec.forked {
            rig.pid = rig.target.only_child()?;
        } else if rig.spec.says_pid {
            rig.pid = rig.state()?.map_or(rig.pid, |state| state.pid);
        }
        rig.until_at_work()?;
        if let Some(then) = rig.spec.then {
            then(rig.pid)?;
        }
        if matches!(&spec.program, Program::Ours { words, .. } if words[0] == "zombie") {
            let ended = format!("/proc/{}/task/{0}/stat", rig.pid);
            midair_tests::target::until("the end of the first thread", || {
                Ok(std::fs::read_to_string(&ended)?.contains(") Z "))
            })?;
        }
        if rig.spec.stopped {
            let rig = &rig;
            midair_tests::target::until("the stop", || Ok(rig.is_stopped()))?;
        }
        rig.is_preloaded()?;
        rig.before = at_rest(rig.pid)?;
        Ok(rig)
    }

    /// Checks that each library was preloaded. The loader goes on without one that it cannot
    /// preload, and then the cell would not be what it says.
    fn is_preloaded(&self) -> Result<()> {
        let preloads = self
            .spec
            .env
            .iter()
            .filter(|(name, _)| name == "LD_PRELOAD");
        for (_, library) in preloads {
            let name = library.rsplit('/').next().unwrap_or(library);
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
            let stem = name.split(".so").next().unwrap_or(name);
            if !maps.contains(stem) {
                return Err(format!("{library} is not in the target").into());
            }
        }
        Ok(())
    }

    fn until_ready(&mut self) -> Result<()> {
        let Some(state) = self.state.clone() else {
            self.target.expect("ready")?;
            return Ok(());
        };
        let deadline = Instant::now() + slower(PATIENCE);
        while !state.is_ready() {
            if !self.target.is_running()? && !self.spec.says_pid {
                return Err(self.last_words("ended at its start").into());
            }
            if Instant::now() > deadline {
                return Err(self.last_words("did not get ready").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until every thread has done its first round. Until then threads open and map what they
    /// need, which would count as left behind.
    fn until_at_work(&self) -> Result<()> {
        let deadline = Instant::now() + slower(PATIENCE);
        while let Some(state) = self.state()? {
            let idle = state.slots.iter().find(|slot| {
                !matches!(slot.kind.as_str(), "stdin" | "flood" | "zombie") && slot.rounds == 0
            });
            let Some(idle) = idle else { break };
            if Instant::now() > deadline {
                return Err(format!("{} ({}) does not begin", idle.tid, idle.kind).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn last_words(&mut self, what: &str) -> String {
        if self.target.is_running().unwrap_or(false) {
            return what.to_owned();
        }
        match self.target.expect("no such line") {
            Err(error) => format!("{what}: {error}"),
            Ok(line) => line,
        }
    }

    /// Returns what the target says of itself, or `None` for a target that is not ours.
    ///
    /// # Errors
    /// Fails when the target's file cannot be read.
    pub fn state(&self) -> Result<Option<State>> {
        self.state.as_ref().map(StateFile::read).transpose()
    }

    /// Returns whether the process lives.
    pub fn is_alive(&mut self) -> bool {
        let there = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let ended = there.is_ok_and(|stat| {
            // The first thread may be a zombie while other threads live.
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            matches!(state, Some('X'))
                || (state == Some('Z')
                    && std::fs::read_dir(format!("/proc/{}/task", self.pid))
                        .map_or(true, |tasks| tasks.count() <= 1))
        });
        !ended
            && std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
            && (self.spec.says_pid || self.target.is_running().unwrap_or(false))
    }

    /// Returns whether the target is stopped, as far as can be seen from outside.
    fn is_stopped(&self) -> bool {
        matches!(self.letter(), Some('T' | 't'))
    }

    /// Returns whether a tracer holds its first thread.
    fn is_held(&self) -> bool {
        self.letter() == Some('t')
    }

    /// Returns the state of its first thread.
    fn letter(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let rest = stat.rsplit(") ").next()?;
        rest.chars().next()
    }

    /// Notes that one more probe library must have been loaded.
    pub fn expect_mark(&mut self) {
        self.marks += 1;
    }

    /// Notes that at least one probe library must have been loaded. Our listener loads one only
    /// once, and calls it again each time.
    pub fn expect_one_mark(&mut self) {
        self.marks = self.marks.max(1);
    }

    /// Makes the target measure gaps again.
    pub fn begin_gaps(&mut self) {
        self.epoch += 1;
        if let Some(state) = &self.state {
            let _gone = state.begin_gaps(self.epoch);
        }
    }

    /// Returns the longest gap of a busy thread since [`Rig::begin_gaps`]. It waits until each busy
    /// thread has made progress, but no longer than `patience`.
    pub fn gap(&self, patience: Duration) -> Option<Duration> {
        let deadline = Instant::now() + patience;
        loop {
            let state = self.state().ok()??;
            if state.all_busy_seen() || Instant::now() > deadline {
                return state.gap().map(Duration::from_nanos);
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Checks the target after a cycle: it is alive, nothing is wrong, and no thread but `chosen`
    /// was disturbed.
    ///
    /// # Errors
    /// Returns the harm.
    pub fn check(
        &mut self,
        tally: &mut Tally,
        chosen: Option<i32>,
    ) -> std::result::Result<(), Harm> {
        if !self.is_alive() {
            return Err(Harm::Crashed(self.last_words("is gone")));
        }
        let deadline = Instant::now() + Duration::from_secs(1);
        while self.is_held() {
            if Instant::now() > deadline {
                return Err(Harm::Wrong("a tracer was left, which holds it".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.spec.stopped && !self.is_stopped() {
            return Err(Harm::Wrong("it was stopped and goes on".to_owned()));
        }
        let Some(state) = self.state().ok().flatten() else {
            return self.ping();
        };
        if state.wrong() > 0 {
            return Err(Harm::Wrong(self.words_of_wrong(&state)));
        }
        if state.mark < self.marks {
            let marks = self.marks;
            self.marks = state.mark;
            return Err(Harm::Wrong(format!(
                "{marks} libraries were said to be in, {} are",
                state.mark
            )));
        }
        if !self.spec.storm {
            self.count_eintr(&state, tally, chosen);
        }
        Ok(())
    }

    fn words_of_wrong(&self, state: &State) -> String {
        let bad = state.slots.iter().filter(|slot| slot.wrong > 0);
        let kinds: Vec<&str> = bad.map(|slot| slot.kind.as_str()).collect();
        format!(
            "a check failed at line {} ({})",
            state.line,
            kinds.join(", ")
        )
    }

    fn count_eintr(&mut self, state: &State, tally: &mut Tally, chosen: Option<i32>) {
        let now = state.eintr();
        for (tid, (kind, count)) in &now {
            let more = count - self.eintr.get(tid).map_or(0, |(_, before)| *before);
            if more == 0 {
                continue;
            }
            if chosen.and_then(|tid| inside(self.pid, tid)) == Some(*tid)
                || (self.spec.noticing && tally.eintr_own < 4 * tally.entered)
            {
                tally.eintr_own += more;
            } else {
                tally.eintr += more;
                tally.note(format!(
                    "EINTR in {kind} (thread {tid}), borrowed was {chosen:?}"
                ));
            }
        }
        self.eintr = now;
    }

    /// Asks a program that is not ours whether it still works.
    fn ping(&mut self) -> std::result::Result<(), Harm> {
        if self.is_stopped() {
            return Ok(());
        }
        self.pings += 1;
        let wanted = format!("pong {} ", self.pings);
        let asked = self.target.send(&format!("ping {}", self.pings));
        let answer = asked.and_then(|()| self.target.expect(&wanted));
        let line = answer.map_err(|error| {
            if self.is_alive() {
                Harm::Wrong(error.to_string())
            } else {
                Harm::Crashed(error.to_string())
            }
        })?;
        let rounds = line[wanted.len()..].trim().parse().unwrap_or(0);
        if rounds < self.foreign_rounds {
            return Err(Harm::Wrong(format!("its work went back: {line}")));
        }
        self.foreign_rounds = rounds;
        Ok(())
    }

    /// Waits until every thread that works has made progress since the last time.
    ///
    /// # Errors
    /// Returns the thread that makes no progress.
    pub fn all_go_on(&mut self) -> std::result::Result<(), Harm> {
        if self.is_stopped() {
            return Ok(());
        }
        let deadline = Instant::now() + slower(PATIENCE);
        loop {
            let Some(state) = self.state().ok().flatten() else {
                return self.ping();
            };
            let still: Vec<String> = state
                .slots
                .iter()
                .filter(|slot| {
                    !matches!(slot.kind.as_str(), "stdin" | "parked" | "flood" | "zombie")
                })
                .filter(|slot| slot.rounds <= self.last.get(&slot.tid).copied().unwrap_or(0))
                .map(|slot| format!("{} ({})", slot.tid, slot.kind))
                .collect();
            if still.is_empty() {
                self.last = state
                    .slots
                    .iter()
                    .map(|slot| (slot.tid, slot.rounds))
                    .collect();
                return Ok(());
            }
            if !self.is_alive() {
                return Err(Harm::Crashed(self.last_words("is gone")));
            }
            if Instant::now() > deadline {
                return Err(Harm::Wrong(format!("stand still: {}", still.join(", "))));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns what is different from before, except for libraries that were brought in (they stay)
    /// and for what the target does by itself. It looks again for a while, since a thread of the
    /// target may be in the middle of something.
    ///
    /// # Errors
    /// Fails when the process is gone.
    pub fn residue(&self) -> Result<Diff> {
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let diff = self.before.diff(&snapshot(self.pid)?).without_heap();
            let steady = self.spec.steady;
            let diff = diff.without(|change| {
                let name = change.name.as_str();
                let brought = name.contains("midair-agent-") || name.contains("probe");
                // The C library opens this file when it gives memory back.
                let heap = name == "/proc/sys/vm/overcommit_memory";
                match change.what {
                    What::Map => brought || !steady,
                    What::Fd => heap || !steady,
                    What::Thread => !steady,
                    What::Process => false,
                }
            });
            if diff.is_empty() || Instant::now() > deadline {
                return Ok(diff);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes the target end by its own code.
    ///
    /// # Errors
    /// Returns what the target says of itself, if that is not all well.
    pub fn finish(mut self) -> std::result::Result<(), Harm> {
        if self.spec.killed {
            return Ok(());
        }
        if self.is_stopped() {
            // The target was stopped from the start, and must go on to end.
            // SAFETY: kill takes numbers only. The pid belongs to a child of midair's that is not
            // reaped yet.
            unsafe { libc::kill(self.pid, libc::SIGCONT) };
        }
        if let Some(state) = &self.state {
            let _gone = state.stop();
        }
        self.target.close_stdin();
        if self.spec.says_pid {
            // The target is not our child, and its parent waits for ever.
            let deadline = Instant::now() + slower(PATIENCE);
            while self.is_alive() {
                if Instant::now() > deadline {
                    return Err(Harm::Wrong("it does not end".to_owned()));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(());
        }
        let exit = self.target.wait(slower(PATIENCE) * 2);
        let exit = exit.map_err(|error| Harm::Wrong(error.to_string()))?;
        match (exit.status.success(), exit.signal()) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(Harm::Crashed(exit.to_string())),
            (false, None) => Err(Harm::Wrong(exit.to_string())),
        }
    }
}

/// Takes a snapshot through a thread that lives, because a first thread that has ended shows no
/// mappings. The signals that the C library keeps for itself (32 and 33) are left out: it installs
/// their handlers when the first thread is created, whoever creates that.
fn snapshot(pid: i32) -> Result<Snapshot> {
    let zombie = |tid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
        stat.is_ok_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('Z'))
        })
    };
    let mut live = pid;
    if zombie(pid) {
        for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid = entry?.file_name().to_string_lossy().parse()?;
            if !zombie(tid) {
                live = tid;
                break;
            }
        }
    }
    let mut snapshot = Snapshot::take(live)?;
    snapshot.caught &= !(0b11 << 31);
    if live != pid {
        snapshot.threads.remove(&pid);
    }
    Ok(snapshot)
}

/// Takes a snapshot with the lasting signal mask of each thread. During `fork` and the like the C
/// library blocks all signals for a moment.
fn at_rest(pid: i32) -> Result<Snapshot> {
    let mut first = snapshot(pid)?;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(1));
        for (tid, thread) in snapshot(pid)?.threads {
            if let Some(own) = first.threads.get_mut(&tid) {
                own.blocked &= thread.blocked;
            }
        }
    }
    Ok(first)
}

/// Returns the id that a thread has within its own process.
fn inside(pid: i32, tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}
