//! Many processes at once: a tree, those that match a name, or all of the node.
//!
//! Each process has a session and a thread of its own ([`member`]). [`watch`] finds the processes
//! of the group. A process that fails does not delay the others. A process that starts later, or
//! loads a runtime later, is attached then. A process that becomes another program ends its session
//! and is inspected again.

mod ended;
mod foreign;
mod member;
mod watch;

pub use ended::{GroupCollected, Part};
pub use watch::{Selection, tree};

use crate::answer;
use crate::request::{Entry, Event, Request};
use crate::starting::Starting;
use member::{Attacher, Engine, Member, Report, Shared};
use midair_failure::{Failure, Kind};
use midair_procinfo::Pid;
use midair_results::End;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use watch::{Ready, Watch};

/// The most sessions at one time. Each has a thread, some descriptors and a spool.
const MOST: usize = 512;
/// The deadlines of a group.
const LIMITS: Limits = Limits {
    laggards: Duration::from_secs(15),
    attach: Duration::from_secs(60),
    last_attach: Duration::from_secs(10),
};
/// How often an attach to a process that came later is tried, and the pause before the second
/// attempt. The pause doubles each time.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);

/// How long a group waits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// How long the processes that already record wait at the start for those that do not yet.
    /// A process that does not answer is given up before that.
    laggards: Duration,
    /// When an attach is given up. Its own deadlines are shorter, but a process may block whoever
    /// reads its memory.
    attach: Duration,
    /// How long the end waits for attaches in progress.
    last_attach: Duration,
}

/// Which processes, and what to do with each.
#[derive(Debug, Clone)]
pub struct GroupRequest {
    /// Which processes.
    pub selection: Selection,
    /// The request for each of them. The process's own pid replaces the one in the request.
    pub each: Request,
    /// Whether to wait where no process has a runtime yet, and for a process that calls exec to
    /// become attachable again. If not, the first case is a refusal, and the second ends the group
    /// when nothing else is attached.
    pub patient: bool,
    /// Whether to write one result of all instead of one for each process.
    pub merge: bool,
    /// Whether the tree is only the default for a process that the user named. If so, descendants
    /// that may be programs of others are refused.
    pub is_default: bool,
}

/// What happened in a group, to be shown to the user.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Which process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// What happened.
    pub what: NoticeKind,
}

/// See [`Notice`].
#[derive(Debug, Clone)]
pub enum NoticeKind {
    /// The process is being recorded. The duration is the time since the start of its attach.
    Attached(Entry, Duration),
    /// The process was not attached.
    Refused(Failure),
    /// The process ended by itself.
    Ended(End),
    /// The process has no runtime so far, and is watched.
    Watched,
}

#[derive(Debug, Default)]
struct Attempts {
    made: u32,
    /// Whether it existed at the start, so that the user wants to know its outcome immediately.
    from_the_start: bool,
}

/// Attached processes.
#[derive(Debug)]
pub struct Group {
    request: GroupRequest,
    limits: Limits,
    watch: Watch,
    shared: Arc<Shared>,
    reports: Sender<(usize, Report)>,
    incoming: Receiver<(usize, Report)>,
    members: BTreeMap<usize, Member>,
    attempts: BTreeMap<Pid, Attempts>,
    parts: Vec<Part>,
    news: Vec<Notice>,
    /// The number of attaches in progress.
    underway: usize,
    started: usize,
    attached: usize,
    /// The records and bytes of members that have ended.
    finished_totals: (u64, u64),
    last_end: Option<End>,
}

impl Group {
    /// Attaches to all processes that can be attached now, in parallel. When this returns, each of
    /// them records, or [`Group::news`] tells why it does not.
    ///
    /// # Errors
    /// When no process could be attached: why the first one could not.
    pub fn attach(request: GroupRequest) -> Result<Group, Failure> {
        Group::attach_by(Box::new(Engine), LIMITS, request)
    }

    /// Makes a group that has not looked at any process yet.
    fn new(
        attacher: Box<dyn Attacher>,
        limits: Limits,
        request: GroupRequest,
    ) -> Result<Group, Failure> {
        let (reports, incoming) = channel();
        Ok(Group {
            watch: Watch::new(request.selection.clone()),
            request,
            limits,
            shared: Arc::new(Shared::new(attacher)?),
            reports,
            incoming,
            members: BTreeMap::new(),
            attempts: BTreeMap::new(),
            parts: Vec::new(),
            news: Vec::new(),
            underway: 0,
            started: 0,
            attached: 0,
            finished_totals: (0, 0),
            last_end: None,
        })
    }

    fn attach_by(
        attacher: Box<dyn Attacher>,
        limits: Limits,
        mut request: GroupRequest,
    ) -> Result<Group, Failure> {
        // The number of any thread stands for its process.
        if let Selection::Tree(root) = &mut request.selection
            && let Ok(status) = midair_procinfo::task::status(*root)
        {
            *root = status.tgid.unwrap_or(*root);
        }
        let mut group = Group::new(attacher, limits, request)?;
        let mut ready = group.watch.scan();
        if let Selection::Tree(root) = group.request.selection
            && !group.request.patient
        {
            // The program has not loaded its runtime yet.
            let starting = Starting::of(root, group.request.each.wait);
            while ready.is_empty()
                && crate::attach::refusal(root).is_some_and(|refused| starting.goes_on(&refused))
            {
                ready = group.watch.scan();
            }
        }
        group.refuse_silent();
        if let Some(root) = group.default_root()
            && let Some(failure) = foreign::refusal(root, &ready)
        {
            return Err(failure);
        }
        let none = ready.is_empty();
        for process in ready {
            group.start(process, true);
        }
        // A runtime under another file name is recognized by its functions, which takes long. So
        // this is checked only for a process that was named.
        if none
            && let Selection::Tree(root) = group.request.selection
            && crate::attach::refusal(root).is_none()
            && let Some(found) = crate::find::process(root)
        {
            group.watch.mark_attaching(root);
            let name = found.name;
            group.start(Ready { pid: root, name }, true);
        }
        let began = Instant::now();
        while group.underway > 0 && !(group.attached > 0 && began.elapsed() > group.limits.laggards)
        {
            if let Ok(report) = group.incoming.recv_timeout(Duration::from_millis(50)) {
                group.handle(report);
            }
            group.give_up_those_held_up();
        }
        if group.attached > 0 {
            return Ok(group);
        }
        if none && group.request.patient && group.watch.alive() > 0 {
            let watched = group.watch.watched();
            group
                .news
                .extend(watched.into_iter().map(|(pid, name)| Notice {
                    pid,
                    name,
                    what: NoticeKind::Watched,
                }));
            return Ok(group);
        }
        let refused = group.parts.iter().position(|part| part.collected.is_err());
        let refused = refused.map(|at| group.parts.swap_remove(at));
        Err(match refused.map(|part| part.collected) {
            Some(Err(failure)) => failure,
            _ => group.nothing_to_attach(),
        })
    }

    /// Returns why no process can be attached.
    fn nothing_to_attach(&self) -> Failure {
        match &self.request.selection {
            // The process is inspected again by itself, which gives the reason.
            Selection::Tree(root) => match crate::attach::refusal(*root) {
                Some(failure) => failure,
                None => Failure::new(
                    Kind::NotGpu,
                    format!(
                        "neither process {root} nor any of its descendants has loaded a HIP, HSA or CUDA runtime"
                    ),
                ),
            },
            Selection::All => Failure::new(
                Kind::NotGpu,
                "no accessible process has loaded a HIP, HSA or CUDA runtime",
            )
            .hint("only root can inspect other users' processes"),
            Selection::Named(wanted) => Failure::new(
                Kind::NoProcess,
                format!("no process has a name or command line that matches '{wanted}'"),
            ),
        }
    }

    /// Refuses the processes that did not even answer the scan.
    fn refuse_silent(&mut self) {
        for Ready { pid, name } in self.watch.silent() {
            self.refuse(pid, name, answer::no_answer(pid));
        }
    }

    /// Gives up attaches that are blocked by their processes. The others go on.
    fn give_up_those_held_up(&mut self) {
        let longest = self.limits.attach;
        let held_up =
            |(number, member): (&usize, &Member)| member.is_held_up(longest).then_some(*number);
        let numbers: Vec<usize> = self.members.iter().filter_map(held_up).collect();
        for number in numbers {
            self.abandon(number);
        }
    }

    fn abandon(&mut self, number: usize) {
        if let Some(member) = self.members.remove(&number) {
            let (pid, name) = (member.pid, member.name.clone());
            self.underway = self.underway.saturating_sub(1);
            member.abandon();
            self.refuse(pid, name, answer::no_answer(pid));
        }
    }

    fn start(&mut self, process: Ready, from_the_start: bool) {
        let attempts = self.attempts.entry(process.pid).or_default();
        attempts.made += 1;
        attempts.from_the_start |= from_the_start;
        let mut request = self.request.each.clone();
        request.pid = process.pid;
        // Processes without a runtime are watched here, so the attach itself must not wait for
        // them.
        request.wait = Some(Duration::ZERO);
        let number = self.started;
        self.started += 1;
        let name = process.name.clone();
        let member = if self.members.len() >= MOST {
            Err(Failure::new(
                Kind::Setup,
                format!("the limit of {MOST} attached processes is reached"),
            ))
        } else {
            Member::start(number, name, request, &self.shared, self.reports.clone())
        };
        match member {
            Ok(member) => {
                self.underway += 1;
                self.members.insert(number, member);
            }
            Err(failure) => self.refuse(process.pid, process.name, failure),
        }
    }

    /// Handles a member's report.
    fn handle(&mut self, (number, report): (usize, Report)) {
        let Some(member) = self.members.get(&number) else {
            return;
        };
        let (pid, name) = (member.pid, member.name.clone());
        match report {
            Report::Attached(entry, took) => {
                self.underway -= 1;
                self.attached += 1;
                if let Some(member) = self.members.get_mut(&number) {
                    member.attached = true;
                }
                self.news.push(Notice {
                    pid,
                    name,
                    what: NoticeKind::Attached(entry, took),
                });
            }
            Report::Refused(failure) => {
                self.underway -= 1;
                self.members.remove(&number);
                self.retry_or_refuse(pid, name, failure);
            }
            Report::Ending(end) => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.ending = true;
                }
                self.last_end = Some(end);
                self.news.push(Notice {
                    pid,
                    name,
                    what: NoticeKind::Ended(end),
                });
            }
            Report::Over(end, collected) => {
                if let Some(mut member) = self.members.remove(&number) {
                    member.join();
                    self.finished_totals.0 += member.counters.records.load(Relaxed);
                    self.finished_totals.1 += member.counters.bytes.load(Relaxed);
                }
                if let Some(end) = end {
                    match end {
                        // The process runs on, as another program or without a session.
                        End::Exec | End::Lapsed => {
                            self.attempts.remove(&pid);
                            self.watch.rescan(pid);
                        }
                        _ => self.watch.give_up(pid),
                    }
                }
                self.parts.push(Part {
                    pid,
                    name,
                    collected: *collected,
                });
            }
        }
    }

    /// Called after a failed attach. Refuses the process, or schedules another attempt.
    fn retry_or_refuse(&mut self, pid: Pid, name: String, failure: Failure) {
        let attempts = self.attempts.get(&pid);
        let (made, from_the_start) =
            attempts.map_or((1, false), |tried| (tried.made, tried.from_the_start));
        let is_root = matches!(self.request.selection, Selection::Tree(root) if root == pid);
        match failure.kind {
            // It has ended meanwhile, or has become another program: the next scan shows what it is now.
            Kind::NoProcess | Kind::Zombie if !is_root => self.watch.give_up(pid),
            Kind::NotGpu if !is_root => self.watch.rescan(pid),
            Kind::NoParkedThread | Kind::Enter | Kind::Setup if !from_the_start && made < TRIES => {
                self.watch.retry_after(pid, PAUSE * (1 << made));
            }
            _ => self.refuse(pid, name, failure),
        }
    }

    fn refuse(&mut self, pid: Pid, name: String, failure: Failure) {
        self.watch.give_up(pid);
        self.news.push(Notice {
            pid,
            name: name.clone(),
            what: NoticeKind::Refused(failure.clone()),
        });
        self.parts.push(Part {
            pid,
            name,
            collected: Err(failure),
        });
    }

    /// What has happened since the last call.
    pub fn news(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.news)
    }

    /// How many processes have been attached so far.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Becomes readable when there is a reason to call [`Group::poll`].
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wakeup.as_fd()
    }

    /// Handles the members' reports, finds new processes, and tells the state of all together. Does not wait.
    /// Call it about every 100 ms.
    ///
    /// # Errors
    /// None at present; each member reports its own.
    pub fn poll(&mut self) -> Result<Event, Failure> {
        let _ = self.shared.wakeup.read();
        while let Ok(report) = self.incoming.try_recv() {
            self.handle(report);
        }
        let over = self.attached > 0 && self.members.values().all(|member| member.ending);
        if over && !self.request.patient && !self.has_successors() {
            return Ok(Event::TargetExited(
                self.last_end.unwrap_or(End::Exited(None)),
            ));
        }
        self.give_up_those_held_up();
        for ready in self.watch.scan() {
            let root = self.default_root();
            match root.and_then(|root| foreign::refusal_of_one(root, &ready)) {
                Some(failure) => self.refuse(ready.pid, ready.name, failure),
                None => self.start(ready, false),
            }
        }
        self.refuse_silent();
        let forever = !matches!(self.request.selection, Selection::Tree(_));
        if self.members.is_empty() && !forever && self.watch.alive() == 0 {
            return Ok(Event::TargetExited(
                self.last_end.unwrap_or(End::Exited(None)),
            ));
        }
        let (mut records, mut bytes) = self.finished_totals;
        for member in self.members.values() {
            records += member.counters.records.load(Relaxed);
            bytes += member.counters.bytes.load(Relaxed);
        }
        Ok(Event::Running { records, bytes })
    }

    /// Returns the root of the tree, where the tree is only the default.
    fn default_root(&self) -> Option<Pid> {
        match self.request.selection {
            Selection::Tree(root) if self.request.is_default => Some(root),
            _ => None,
        }
    }

    /// Whether the tree has processes besides the one that was attached.
    fn has_successors(&self) -> bool {
        self.started > 1 || self.watch.alive() > 1
    }

    /// Detaches from all processes, in parallel, and collects what was recorded.
    pub fn detach(mut self) -> GroupCollected {
        self.members.values().for_each(Member::stop);
        let began = Instant::now();
        while !self.members.is_empty() {
            let Ok(report) = self.incoming.recv_timeout(Duration::from_millis(200)) else {
                self.remove_dead();
                // An attach that has not ended by now will take much longer.
                if began.elapsed() > self.limits.last_attach {
                    let late = |(number, it): (&usize, &Member)| (!it.attached).then_some(*number);
                    let late: Vec<usize> = self.members.iter().filter_map(late).collect();
                    late.into_iter().for_each(|number| self.abandon(number));
                }
                continue;
            };
            match report {
                (number, Report::Refused(failure)) => {
                    let member = self.members.remove(&number);
                    // For other failures the attach had not started.
                    if let Some(member) = member.filter(|_| failure.kind == Kind::NoAnswer) {
                        self.refuse(member.pid, member.name.clone(), failure);
                    }
                }
                report => self.handle(report),
            }
        }
        GroupCollected::new(self.request, std::mem::take(&mut self.parts))
    }

    /// Removes members whose threads panicked without a last report.
    fn remove_dead(&mut self) {
        let dead: Vec<usize> = self
            .members
            .iter()
            .filter(|(_, member)| member.is_dead())
            .map(|(number, _)| *number)
            .collect();
        for number in dead {
            // Its last report may have arrived since.
            while let Ok(report) = self.incoming.try_recv() {
                self.handle(report);
            }
            if let Some(member) = self.members.remove(&number) {
                self.parts.push(Part {
                    pid: member.pid,
                    name: member.name.clone(),
                    collected: Err(Failure::new(
                        Kind::Enter,
                        "the thread of its session ended unexpectedly",
                    )),
                });
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
