//! Looking at processes with a deadline.
//!
//! Reading a process may block the reader: one of its threads holds a lock of its address space, a
//! page never arrives, or a disk or a server is gone. So each process is read on a thread of its
//! own. A process that does not answer in time is given up and reported by name. Its thread is left
//! behind ([`left`]), and the others go on.

use crate::left;
use midair_failure::{Failure, Kind};
use midair_procinfo::files::kernel_words;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{Progress, in_helper_process};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a process may take to answer while the thread that reads it does not run.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// The longest time in all, as a multiple of the limit. A thread that runs now and then lacks a
/// processor and is not blocked by the process, but that must not go on for ever.
const LONGEST: u32 = 6;
/// The longest time in all that entering a process takes, also where it is tried again on a machine that
/// gives it no processor.
const LONGEST_ENTRY: Duration = Duration::from_secs(120);
/// How often the reading threads are checked.
const LOOK: Duration = Duration::from_millis(50);
/// When the check itself is so late, this process did not run, nor did its threads (SIGSTOP, suspend).
const LATE: Duration = Duration::from_millis(500);
/// A thread whose look takes longer no longer counts towards the threads that may run at one time.
const SLOW: Duration = Duration::from_millis(100);
/// The most threads of one round.
const MOST_SLOW: usize = 512;

/// Whether a look is under way, over, or given up: the thread that changes it first decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Over,
    GivenUp,
}

/// A look, as its thread and the thread that waits for it see it.
#[derive(Debug, Clone)]
struct Shared {
    key: left::Key,
    state: Arc<Mutex<State>>,
}

impl Shared {
    fn of(pid: Pid) -> Shared {
        Shared {
            key: left::key(pid),
            state: Arc::new(Mutex::new(State::UnderWay)),
        }
    }

    /// Leaves its thread behind, unless that is done.
    fn give_up(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::UnderWay {
            *state = State::GivenUp;
            left::leave(self.key);
        }
    }
}

/// When the thread returns, also by a panic.
impl Drop for Returns {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == State::GivenUp {
            left::back(self.0.key);
        }
        *state = State::Over;
    }
}

/// Lives as long as the look.
struct Returns(Shared);

/// The process did not answer.
pub(crate) fn no_answer(pid: Pid) -> Failure {
    Failure::new(
        Kind::NoAnswer,
        format!("process {pid} did not answer: reading its state or memory took too long"),
    )
    .hint("reading the process blocks, or its files are on a server or disk that does not respond")
}

/// Does `work`, which looks at process `pid`, on a thread of its own.
///
/// # Errors
/// [`Kind::NoAnswer`] when it is not done in time.
pub(crate) fn within<T: Send + 'static>(
    pid: Pid,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let once = Mutex::new(Some(work));
    let take = move |_| {
        let work = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    };
    let answer = each(&[pid], limit, take).pop().flatten().flatten();
    answer.ok_or_else(|| no_answer(pid))
}

/// Does `work`, which enters process `pid`, on a thread of its own. Unlike [`within`], `work` itself
/// is not done in a helper process, only what accesses memory.
///
/// # Errors
/// [`Kind::NoAnswer`] when it is not done in time. From then on `work` starts to trace no thread, and
/// what it returns is dropped.
pub(crate) fn entering<T: Send + 'static>(
    pid: Pid,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let mut look = Look::of(Progress::default(), LONGEST_ENTRY);
    let progress = look.progress.clone();
    let (report, incoming) = channel();
    let thread = std::thread::Builder::new().name("enter".to_owned());
    let entering = move || drop(report.send(progress.follow(work)));
    thread.spawn(entering).map_err(|error| no_thread(&error))?;
    loop {
        match incoming.recv_timeout(LOOK) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) if !look.is_stuck(limit) => {}
            Err(_) => {
                look.progress.give_up();
                return Err(no_answer(pid));
            }
        }
    }
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(Kind::Setup, format!("cannot start a thread: {error}"))
}

/// What a thread reports about the process with this index.
enum Report<T> {
    /// The thread looks at it now.
    Begins(usize, Progress, Shared),
    /// An earlier look at a process still hangs.
    Hangs,
    Done(usize, T),
}

/// A look in progress.
struct Look {
    progress: Progress,
    /// Of a look at a process that is not entered.
    shared: Option<Shared>,
    began: Instant,
    /// When the work was last seen to get on, and how far it had got.
    moved: (Instant, Option<String>),
    slow: bool,
    /// When this was last checked.
    checked: Instant,
    /// How long it may take in all.
    longest: Duration,
}

impl Look {
    fn of(progress: Progress, longest: Duration) -> Look {
        let now = Instant::now();
        Look {
            progress,
            shared: None,
            began: now,
            moved: (now, None),
            slow: false,
            checked: now,
            longest,
        }
    }

    /// Whether to give the look up.
    fn is_stuck(&mut self, limit: Duration) -> bool {
        let since = self.checked.elapsed();
        self.checked = Instant::now();
        if since > LATE {
            self.began += since;
            self.moved.0 = self.checked;
        }
        if self.began.elapsed() > self.longest {
            return true;
        }
        let tid = self.progress.tid();
        let reached = tid.and_then(progress);
        if reached != self.moved.1 {
            self.moved = (Instant::now(), reached);
        }
        // A thread that waits for a processor is not blocked by the process.
        let waits_for_us =
            tid.is_some_and(|tid| task::stat(tid).is_ok_and(|stat| stat.state == b'R'));
        !waits_for_us && self.moved.0.elapsed() > limit
    }
}

/// How far a look has got: which thread does it, that one's processor time, and how often it ran.
fn progress(tid: Tid) -> Option<String> {
    let ran = kernel_words(format!("{tid}/schedstat")).ok()?;
    Some(format!("{tid} {ran}"))
}

/// Does `work` for each of these processes, several at one time, each within `limit`. Returns the
/// answers in the order of `pids`, with None for a process that did not answer in time.
pub(crate) fn each<T: Send + 'static>(
    pids: &[Pid],
    limit: Duration,
    work: impl Fn(Pid) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    if pids.is_empty() {
        // A session asks for new processes ten times a second.
        return Vec::new();
    }
    let work = Arc::new(work);
    let queue: VecDeque<(usize, Pid)> = pids.iter().copied().enumerate().collect();
    let queue = Arc::new(Mutex::new(queue));
    let (reports, incoming) = channel();
    let start = |reports: Sender<Report<T>>| {
        let (work, queue) = (Arc::clone(&work), Arc::clone(&queue));
        let thread = std::thread::Builder::new().name("look".to_owned());
        // The handle is dropped because no caller waits for the thread.
        thread.spawn(move || {
            let next = || {
                queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front()
            };
            while let Some((index, pid)) = next() {
                // No caller reads a report if this look was given up.
                if !left::may_look(pid) {
                    match reports.send(Report::Hangs) {
                        Ok(()) => continue,
                        Err(_) => return,
                    }
                }
                let progress = Progress::default();
                let shared = Shared::of(pid);
                let _returns = Returns(shared.clone());
                let done = progress.follow(|| {
                    in_helper_process(pid, || {
                        reports
                            .send(Report::Begins(index, progress.clone(), shared))
                            .ok()?;
                        Some(work(pid))
                    })
                });
                let told = done.map(|done| reports.send(Report::Done(index, done)));
                if !matches!(told, Some(Ok(()))) {
                    return;
                }
            }
        })
    };
    let at_once = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
    let started = (0..at_once.min(pids.len())).filter(|_| start(reports.clone()).is_ok());
    // Counts all threads that were started, and how many of them are not slow.
    let mut threads = started.count();
    let mut free = threads;
    let mut answers: Vec<Option<T>> = pids.iter().map(|_| None).collect();
    let mut waited = pids.len();
    let mut looks: BTreeMap<usize, Look> = BTreeMap::new();
    while waited > 0 && (free > 0 || !looks.is_empty()) {
        match incoming.recv_timeout(LOOK) {
            Ok(Report::Begins(index, progress, shared)) => {
                let look = Look {
                    shared: Some(shared),
                    ..Look::of(progress, limit * LONGEST)
                };
                looks.insert(index, look);
                continue;
            }
            Ok(Report::Hangs) => {
                waited -= 1;
                continue;
            }
            Ok(Report::Done(index, done)) => {
                if let Some(look) = looks.remove(&index)
                    && let Some(answer) = answers.get_mut(index)
                {
                    *answer = Some(done);
                    waited -= 1;
                    free += usize::from(look.slow);
                }
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // This cannot happen while we hold a sender ourselves.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let mut stuck = Vec::new();
        for (index, look) in &mut looks {
            if !look.slow && look.began.elapsed() > SLOW {
                look.slow = true;
                free = free.saturating_sub(1);
            }
            if look.is_stuck(limit) {
                stuck.push(*index);
            }
        }
        for index in stuck {
            if let Some(look) = looks.remove(&index) {
                look.progress.give_up();
                if let Some(shared) = &look.shared {
                    shared.give_up();
                }
            }
            waited -= 1;
        }
        // New threads replace the slow ones, so that these delay no other process.
        let waiting = queue.lock().unwrap_or_else(PoisonError::into_inner).len();
        while free < at_once.min(waiting) && threads < MOST_SLOW {
            match start(reports.clone()) {
                Ok(_) => (threads, free) = (threads + 1, free + 1),
                Err(_) => break,
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const SHORT: Duration = Duration::from_millis(200);

    fn pids(count: u32) -> Vec<Pid> {
        (1..=count).filter_map(Pid::new).collect()
    }

    /// A pipe that no process writes to: a read from it does not return.
    fn blocks() -> impl Fn() + Send + Sync + 'static {
        let (end, other) = nix::unistd::pipe().unwrap();
        move || {
            let _keep = &other;
            let _ = nix::unistd::read(end.as_fd(), &mut [0; 1]);
        }
    }

    #[test]
    fn those_that_answer_do_so_in_order() {
        let all = pids(50);
        let answers = each(&all, LIMIT, |pid| pid);
        assert_eq!(answers, all.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(each(&[], LIMIT, |pid| pid), []);
        assert_eq!(within(Pid::own(), LIMIT, || 7).unwrap(), 7);
    }

    #[test]
    fn some_that_never_answer_hold_up_nobody() {
        let all = pids(60);
        let block = blocks();
        let began = Instant::now();
        let answers = each(&all, SHORT, move |pid| {
            if pid.get() % 2 == 0 {
                block();
            }
            pid
        });
        for (pid, answer) in all.iter().zip(answers) {
            assert_eq!(answer, (pid.get() % 2 == 1).then_some(*pid));
        }
        assert!(began.elapsed() < Duration::from_secs(30));
        let block = blocks();
        let failure = within(Pid::new(61).unwrap(), SHORT, block).unwrap_err();
        assert_eq!(failure.kind, Kind::NoAnswer);
    }

    /// As a server asks: again and again.
    #[test]
    fn one_that_hangs_keeps_one_thread_and_is_asked_again_when_that_is_back() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::of_child(&child);
        let key = left::key(pid);
        let (end, other) = nix::unistd::pipe().unwrap();
        let began = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&began);
        let block = move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = nix::unistd::read(end.as_fd(), &mut [0; 1]);
        };
        let block = Arc::new(block);
        for _ in 0..3 {
            let block = Arc::clone(&block);
            let failure = within(pid, SHORT, move || block()).unwrap_err();
            assert_eq!(failure.kind, Kind::NoAnswer);
        }
        assert_eq!(began.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(left::hanging_looks() > 0 && !left::may_look(pid));
        // Another process of the same user is looked at meanwhile.
        assert_eq!(within(Pid::own(), SHORT, || 7).unwrap(), 7);
        drop(other);
        let until = Instant::now() + Duration::from_secs(10);
        while !left::may_look(pid) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(within(pid, SHORT, || 7).unwrap(), 7);
        assert_eq!(left::key(pid), key);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_that_gets_on_is_waited_for() {
        let busy = || {
            let began = Instant::now();
            while began.elapsed() < 2 * SHORT {
                std::hint::black_box(1);
            }
            1
        };
        assert_eq!(within(Pid::own(), SHORT, busy).unwrap(), 1);
    }
}
