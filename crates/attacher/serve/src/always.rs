//! Keeps each GPU process recorded in bursts (`--always PERCENT`), for the page of metrics.
//!
//! One thread finds processes and starts what is due. Each attach has a thread of its own, and few at
//! a time, so a process that does not answer delays none that does. A request that attaches to such a
//! process pauses it here meanwhile, since a process has one session.
//!
//! This side has a budget, too: it may take so much of a processor, whatever the number of processes. Where
//! there are many, or the budget is spent, each process has its turn. What is shown are sums over
//! all turns, next to the time that was recorded, so turns make rates less certain and not wrong.

use crate::budget::Budget;
use crate::options::Options;
use crate::processes::Recorded;
use crate::say;
use crate::work::{failure, still};
use midair::{Attach, Live, Session};
use midair_failure::{Failure, Kind};
use midair_live::{Totals, Watched};
use midair_session::{Found, Labels, Newcomers, hanging_looks};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often processes are looked for, and how often what is due is started.
const LOOK: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
/// The most attaches at the same time, sessions at the same time, and processes.
const STARTING: usize = 4;
const RUNNING: usize = 16;
const MOST: usize = 1024;
/// The time until a process that could not be attached to is tried again: at first, and at most.
const AGAIN: Duration = Duration::from_secs(10);
const LATEST: Duration = Duration::from_secs(600);
/// How often records of bursts are collected, and the memory for them in the process.
const COLLECT: Duration = Duration::from_millis(500);
const SPOOL: u64 = 4 << 20;
/// How long a request, or the end, waits for an attach that is under way.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest turn of a process.
const TURN: Duration = Duration::from_secs(10);
/// The most kernels of a process that have names of their own, the bytes of these names, and the name of the others.
const MOST_KERNELS: usize = 1000;
const MOST_NAME_BYTES: usize = 512 << 10;
const FURTHER: &str = "(further kernels)";
/// The threads that detach at the end.
const ENDING: usize = 8;

/// What is done with a process.
#[derive(Debug)]
enum Doing {
    /// Nothing, until it is due.
    Waits,
    /// A thread attaches to it.
    Starts,
    /// It is recorded since then.
    Runs(Session, Instant),
    /// A thread detaches from it.
    Ends,
}

#[derive(Debug)]
struct Member {
    found: Found,
    labels: Labels,
    /// What the turns before this one add up to, and the kernels of them, where someone asks for kernels.
    before: Totals,
    kernels: Kernels,
    watched: Watched,
    doing: Doing,
    /// When its last turn ended.
    last: Instant,
    /// How many requests have it to themselves.
    paused: usize,
    due: Instant,
    failed: u32,
}

/// The calls and the time (ns) of each kernel, by its name in the code object.
pub(crate) type Kernels = BTreeMap<String, (u64, u64)>;

/// The kernels of a process since this server started.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) kernels: Kernels,
}

#[derive(Debug, Default)]
struct State {
    members: BTreeMap<u32, Member>,
    /// Attaches that failed, by exit code.
    failures: BTreeMap<u8, u64>,
    /// How often the thread that manages all this had to start again.
    restarts: u64,
    /// Attaches that succeeded.
    attaches: u64,
    over: bool,
    budget: Option<Budget>,
}

/// The processes that are recorded.
#[derive(Debug)]
pub(crate) struct Always {
    began: Instant,
    /// How much faster everything happens here than it does: 1, but for tests of hours.
    pace: u32,
    percent: u32,
    options: Arc<Options>,
    program: Option<PathBuf>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A process that a request has to itself.
#[derive(Debug)]
pub(crate) struct Paused {
    always: Arc<Always>,
    pid: u32,
}

/// A process at one moment.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// Whether its turn is now.
    pub(crate) is_recorded: bool,
    /// What was recorded of it so far.
    pub(crate) totals: Totals,
}

impl Always {
    /// # Errors
    /// Where there can be no thread for it.
    pub(crate) fn start(
        options: &Arc<Options>,
        program: Option<PathBuf>,
    ) -> Result<Option<Arc<Always>>, Failure> {
        let Some(percent) = options.always else {
            return Ok(None);
        };
        let always = Arc::new(Always {
            began: Instant::now(),
            pace: pace(),
            percent,
            options: Arc::clone(options),
            program,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let managed = Arc::clone(&always);
        let mut newcomers = Newcomers::default();
        let manage = move || managed.supervise(TICK, || managed.manage(&mut newcomers));
        let thread = in_thread(manage).ok_or_else(|| {
            Failure::new(
                Kind::Enter,
                "cannot start the thread of --always".to_owned(),
            )
        });
        thread.map(|_| Some(always))
    }

    /// Does something until it returns. A panic is a defect here, and does not end the recording: it is
    /// reported and counted, and everything goes on from what is known.
    fn supervise(&self, pause: Duration, mut act: impl FnMut()) {
        while catch_unwind(AssertUnwindSafe(&mut act)).is_err() {
            let mut state = self.state();
            state.restarts += 1;
            // No thread detaches from them any more.
            for member in state.members.values_mut() {
                if matches!(member.doing, Doing::Ends) && member.paused == 0 {
                    member.doing = Doing::Waits;
                }
            }
            let restarts = state.restarts;
            drop(state);
            say(&format!(
                "error: the recording of all processes failed and starts again ({restarts} times so far); \
                please report this"
            ));
            std::thread::sleep(pause);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most until this time.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let time = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn manage(self: &Arc<Self>, newcomers: &mut Newcomers) {
        let mut look = Instant::now();
        let mut hanging = 0;
        loop {
            if look <= Instant::now() {
                look = Instant::now() + LOOK / self.pace;
                self.take(newcomers);
                hanging = more_hang(hanging);
            }
            for (pid, session) in self.turn() {
                self.finish(pid, session);
            }
            let tick = Instant::now() + TICK / self.pace;
            let mut state = self.state();
            while !state.over && Instant::now() < tick {
                state = self.wait(state, tick);
            }
            if state.over {
                return;
            }
        }
    }

    /// Takes processes that have come, and lets those go that have ended.
    fn take(&self, newcomers: &mut Newcomers) {
        let found = newcomers.look();
        let allowed = found
            .into_iter()
            .filter(|found| self.options.policy.allows(found));
        let came: Vec<Member> = allowed
            .map(|found| Member {
                labels: Labels::of(found.pid).unwrap_or_default(),
                found,
                before: Totals::default(),
                kernels: Kernels::new(),
                watched: Watched::default(),
                doing: Doing::Waits,
                last: Instant::now(),
                paused: 0,
                due: Instant::now(),
                failed: 0,
            })
            .collect();
        let mut state = self.state();
        let mut gone = Vec::new();
        let left = std::mem::take(&mut state.members);
        for (pid, member) in left {
            match newcomers.has(&member.found) || member.paused > 0 {
                true => drop(state.members.insert(pid, member)),
                false => gone.push(member),
            }
        }
        for member in came {
            let known = state.members.get(&member.found.pid.get());
            if known.is_some_and(|it| it.found.start_ticks == member.found.start_ticks) {
                continue;
            }
            if state.members.len() < MOST {
                let before = state.members.insert(member.found.pid.get(), member);
                gone.extend(before);
            } else {
                newcomers.again(&member.found);
            }
        }
        drop(state);
    }

    /// Returns how many sessions there are at the same time.
    fn running(&self) -> usize {
        // In hours that pass quickly, two processes are enough for many turns.
        if self.pace > 1 { 1 } else { RUNNING }
    }

    /// Starts what is due. Returns the sessions whose turn is over.
    fn turn(self: &Arc<Self>) -> Vec<(u32, Session)> {
        let mut state = self.state();
        let now = Instant::now();
        let since = self.began.elapsed();
        let budget = state
            .budget
            .get_or_insert_with(|| Budget::new(since, self.pace));
        let spent = budget.is_spent(since);
        let all = || state.members.iter();
        let is_due =
            |it: &&Member| matches!(it.doing, Doing::Waits) && it.paused == 0 && it.due <= now;
        let due = all().filter(|(_, it)| is_due(it));
        let mut due: Vec<(Instant, u32)> = due.map(|(pid, it)| (it.last, *pid)).collect();
        due.sort_unstable();
        let count = |of: fn(&Doing) -> bool| all().filter(|(_, it)| of(&it.doing)).count();
        let mut starting = count(|doing| matches!(doing, Doing::Starts));
        let mut running = starting + count(|doing| matches!(doing, Doing::Runs(..)));
        let mut over = Vec::new();
        for (pid, member) in &mut state.members {
            let Doing::Runs(session, since) = &member.doing else {
                continue;
            };
            let has_ended = !session.is_running();
            let makes_way = spent || (running >= self.running() && over.len() < due.len());
            if has_ended || (makes_way && since.elapsed() >= TURN / self.pace) {
                let doing = std::mem::replace(&mut member.doing, Doing::Ends);
                if has_ended {
                    member.due = now + AGAIN / self.pace;
                }
                if let Doing::Runs(session, _) = doing {
                    over.push((*pid, session));
                }
            }
        }
        running -= over.len();
        for (_, pid) in due {
            if spent || starting >= STARTING || running >= self.running() {
                break;
            }
            let Some(member) = state.members.get_mut(&pid) else {
                continue;
            };
            let (always, found) = (Arc::clone(self), member.found.clone());
            match in_thread(move || always.attach(pid, &found)) {
                Some(_) => member.doing = Doing::Starts,
                None => member.due = now + AGAIN / self.pace,
            }
            starting += 1;
            running += 1;
        }
        over
    }

    /// Detaches, and adds up what was recorded.
    fn finish(&self, pid: u32, session: Session) {
        drop(session);
        let mut state = self.state();
        if let Some(member) = state.members.get_mut(&pid)
            && matches!(member.doing, Doing::Ends)
        {
            let watched = std::mem::take(&mut member.watched);
            if let Some(totals) = totals(&watched) {
                member.before.add(&totals);
            }
            if self.options.otlp.is_some() {
                add(&mut member.kernels, kernels(&watched));
            }
            member.doing = Doing::Waits;
            member.last = Instant::now();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn attach(&self, pid: u32, found: &Found) {
        let watched = Watched::default();
        let percent = self.percent.to_string();
        let attach = Attach::new(pid)
            .option("max-overhead", [percent.as_str()])
            .live(Live {
                watched: watched.clone(),
                every: COLLECT,
                spool_bytes: SPOOL,
            });
        let attach = match &self.program {
            Some(program) => attach.program(program),
            None => attach,
        };
        let start = || {
            still(&self.options, found)?;
            let session = attach.start().map_err(|error| failure(&error))?;
            still(&self.options, found)?;
            Ok(session)
        };
        let started = catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|_| {
            let what = "the thread that attaches ended".to_owned();
            Err(Failure::new(Kind::Enter, what))
        });
        let mut state = self.state();
        let over = state.over;
        state.attaches += u64::from(started.is_ok());
        if let Err(failure) = &started {
            *state.failures.entry(failure.kind.exit_code()).or_default() += 1;
        }
        let member = state.members.get_mut(&pid);
        let member = member.filter(|member| member.found.start_ticks == found.start_ticks);
        let mut unwanted = None;
        match (member, started) {
            (Some(member), Ok(session)) if member.paused == 0 && !over => {
                member.failed = 0;
                member.watched = watched;
                member.doing = Doing::Runs(session, Instant::now());
            }
            (Some(member), Ok(session)) => {
                member.doing = Doing::Waits;
                unwanted = Some(session);
            }
            (Some(member), Err(_)) => {
                member.failed += 1;
                let pause = AGAIN.saturating_mul(1 << member.failed.min(6));
                member.due = Instant::now() + pause.min(LATEST) / self.pace;
                member.doing = Doing::Waits;
            }
            (None, Ok(session)) => unwanted = Some(session),
            (None, Err(_)) => {}
        }
        drop(state);
        drop(unwanted);
        self.changed.notify_all();
    }

    /// Detaches from a process, until what is returned is dropped.
    pub(crate) fn pause(self: &Arc<Self>, pid: u32) -> Option<Paused> {
        let mut state = self.state();
        state.members.get_mut(&pid)?.paused += 1;
        let paused = Paused {
            always: Arc::clone(self),
            pid,
        };
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let Some(member) = state.members.get_mut(&pid) else {
                break;
            };
            match std::mem::replace(&mut member.doing, Doing::Ends) {
                Doing::Runs(session, _) => {
                    drop(state);
                    self.finish(pid, session);
                    return Some(paused);
                }
                Doing::Waits => {
                    member.doing = Doing::Waits;
                    break;
                }
                under_way => {
                    member.doing = under_way;
                    state = self.wait(state, until);
                }
            }
        }
        drop(state);
        Some(paused)
    }

    /// Detaches from all processes.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        self.changed.notify_all();
        let until = Instant::now() + PATIENCE;
        let starts = |state: &State| {
            let mut all = state.members.values();
            all.any(|member| matches!(member.doing, Doing::Starts | Doing::Ends))
        };
        while starts(&state) && Instant::now() < until {
            state = self.wait(state, until);
        }
        let members = std::mem::take(&mut state.members);
        drop(state);
        let sessions = members
            .into_values()
            .filter_map(|member| match member.doing {
                Doing::Runs(session, _) => Some(session),
                _ => None,
            });
        let sessions = Mutex::new(sessions.collect::<Vec<_>>());
        let next = || {
            sessions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop()
        };
        std::thread::scope(|scope| {
            for _ in 0..ENDING {
                scope.spawn(|| {
                    while let Some(session) = next() {
                        drop(session)
                    }
                });
            }
        });
    }

    /// Returns the kernels of all processes.
    pub(crate) fn ran(&self) -> Vec<Ran> {
        let state = self.state();
        let members = state.members.values();
        let all: Vec<(Ran, Option<Watched>)> = members
            .map(|member| {
                let ran = Ran {
                    pid: member.found.pid.get(),
                    start_ticks: member.found.start_ticks,
                    name: member.found.name.clone(),
                    labels: member.labels.clone(),
                    kernels: member.kernels.clone(),
                };
                let runs = matches!(member.doing, Doing::Runs(..) | Doing::Ends);
                (ran, runs.then(|| member.watched.clone()))
            })
            .collect();
        drop(state);
        let all = all.into_iter().map(|(mut ran, watched)| {
            if let Some(watched) = &watched {
                add(&mut ran.kernels, kernels(watched));
            }
            ran
        });
        all.collect()
    }

    /// Returns what is recorded.
    pub(crate) fn shown(&self) -> Recorded {
        let state = self.state();
        let (failures, attaches) = (state.failures.clone(), state.attaches);
        let restarts = state.restarts;
        let members = state.members.values();
        let all: Vec<(Shown, Option<Watched>)> = members
            .map(|member| {
                let runs = matches!(member.doing, Doing::Runs(..) | Doing::Ends);
                let shown = Shown {
                    pid: member.found.pid.get(),
                    name: member.found.name.clone(),
                    labels: member.labels.clone(),
                    is_recorded: runs,
                    totals: member.before.clone(),
                };
                (shown, runs.then(|| member.watched.clone()))
            })
            .collect();
        drop(state);
        let all = all.into_iter().map(|(mut shown, watched)| {
            if let Some(now) = watched.as_ref().and_then(totals) {
                shown.totals.add(&now);
            }
            shown
        });
        Recorded {
            processes: all.collect(),
            failures,
            attaches,
            restarts,
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let mut state = self.always.state();
        if let Some(member) = state.members.get_mut(&self.pid) {
            member.paused = member.paused.saturating_sub(1);
            member.due = Instant::now();
        }
    }
}

/// Returns what a session has recorded so far.
fn totals(watched: &Watched) -> Option<Totals> {
    let processes = watched.processes();
    let model = &processes.first()?.model;
    let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
    Some(model.totals())
}

/// Returns the kernels that a session has recorded so far.
fn kernels(watched: &Watched) -> Kernels {
    let processes = watched.processes();
    let model = processes.first().map(|process| {
        let model = process.model.lock();
        model.unwrap_or_else(PoisonError::into_inner).kernel_times()
    });
    model.unwrap_or_default()
}

/// Adds kernels. Those beyond the limit have one name.
fn add(sums: &mut Kernels, more: Kernels) {
    let mut bytes: usize = sums.keys().map(String::len).sum();
    for (name, (calls, ns)) in more {
        let is_known = sums.contains_key(&name);
        let fits = sums.len() < MOST_KERNELS && bytes + name.len() <= MOST_NAME_BYTES;
        let name = if fits || is_known {
            name
        } else {
            FURTHER.to_owned()
        };
        bytes += if is_known { 0 } else { name.len() };
        let sum = sums.entry(name).or_default();
        *sum = (sum.0.saturating_add(calls), sum.1.saturating_add(ns));
    }
}

/// Reports processes that do not answer where there are more than before. Returns how many there are.
fn more_hang(before: usize) -> usize {
    let hanging = hanging_looks();
    if hanging > before {
        say(&format!(
            "{hanging} processes do not answer: each keeps a thread of this server until it does"
        ));
    }
    hanging
}

/// Returns how much faster everything happens here than it does. Only a test of hours sets this.
fn pace() -> u32 {
    let word = std::env::var("MIDAIR_SERVE_PACE").ok();
    let number = word.and_then(|word| word.parse().ok());
    number.unwrap_or(1).clamp(1, 1000)
}

/// Does something in a thread of its own, unless there can be none.
fn in_thread(act: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name("always".to_owned());
    thread.spawn(act).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Counts, Sources, page};
    use crate::text::{Text, write};

    /// Names are a process's own words.
    #[test]
    fn kernels_and_their_names_are_limited() {
        let many = |length: usize| -> Kernels {
            let names = (0..3 * MOST_KERNELS).map(|number| format!("{number:0length$}"));
            names.map(|name| (name, (1, 10))).collect()
        };
        for (length, most) in [
            (4, MOST_KERNELS + 1),
            (4 << 10, MOST_NAME_BYTES / (4 << 10) + 1),
        ] {
            let mut sums = Kernels::new();
            for _ in 0..2 {
                add(&mut sums, many(length));
            }
            assert_eq!(sums.len(), most);
            let all = sums
                .values()
                .fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
            assert_eq!(all, (6 * MOST_KERNELS as u64, 60 * MOST_KERNELS as u64));
            assert_eq!(sums.keys().filter(|name| *name == FURTHER).count(), 1);
        }
    }

    #[test]
    fn a_panic_ends_no_recording_and_is_counted() {
        let words = ["--always", "1%", "--only-name", "no-such-program"].map(str::to_owned);
        let options = Arc::new(Options::parse(&words).unwrap());
        let always = Always::start(&options, None).unwrap().unwrap();
        let mut turns = 0;
        always.supervise(Duration::ZERO, || {
            turns += 1;
            let _state = always.state();
            assert!(turns > 2, "a defect");
        });
        assert_eq!(turns, 3);
        let shown = always.shown();
        let page = write(
            &page(
                &Counts::new(),
                &Sources {
                    recorded: Some(&shown),
                    ..Sources::default()
                },
            ),
            Text::Open,
        );
        assert!(page.contains("\nmidair_serve_restarts_total 2\n"), "{page}");
        // What manages it goes on, and ends when it is over.
        always.end();
        always.supervise(Duration::ZERO, || always.manage(&mut Newcomers::default()));
    }
}
