//! Finds out which processes belong to a group, and what has become of each since the last scan.
//!
//! Nothing here waits for a process or touches one. A process is identified by its number and its
//! start time, so a number that is used again is another process. A process that starts and ends
//! between two scans is missed, and so is one whose parent does.

use crate::answer;
use crate::find::{self, Found};
use crate::process::live;
use midair_failure::{Failure, Kind};
use midair_procinfo::files::kernel_words;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::share_memory;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The shortest time between two scans.
const SHORTEST: Duration = Duration::from_millis(100);
/// The scan takes at most one part in this many of a processor's time, because the machine is in
/// production use.
const SHARE: u32 = 50;
/// A process that starts while we scan must have existed for this long before it is entered. Until
/// then it may be a child between `fork` and `exec`, which still shows its parent's libraries.
const SETTLED: Duration = Duration::from_millis(80);

/// Which processes.
#[derive(Debug, Clone)]
pub enum Selection {
    /// A process and all that descend from it.
    Tree(Pid),
    /// Every process that has a GPU runtime.
    All,
    /// Processes whose name or command line matches the expression, and all that descend from them.
    Named(regex_lite::Regex),
}

impl Selection {
    /// Selects processes by an expression for the name or the command line.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the text is not a valid expression.
    pub fn named(expression: &str) -> Result<Selection, Failure> {
        let wanted = regex_lite::Regex::new(expression).map_err(|why| {
            Failure::new(
                Kind::Usage,
                format!("cannot read '{expression}' as a regular expression: {why}"),
            )
        })?;
        Ok(Selection::Named(wanted))
    }

    fn chooses(&self, found: &Found) -> bool {
        match self {
            Selection::Tree(root) => found.pid == *root,
            Selection::All => found.uses_a_gpu(),
            Selection::Named(wanted) => {
                wanted.is_match(&found.name) || wanted.is_match(&found.command)
            }
        }
    }
}

/// What is known of a process.
#[derive(Debug)]
struct Known {
    start_ticks: u64,
    name: String,
    /// Whether it belongs to the group. Other processes are remembered only so that they are not
    /// read again and again.
    chosen: bool,
    stage: Stage,
    /// When it joined the group, or became another program.
    since: Instant,
    /// The pages of its address space when its libraries were last inspected. The number changes
    /// when another library is loaded.
    pages: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The process has no runtime, or must not be entered yet.
    Watched,
    /// The process was handed to a member, which attaches.
    Attaching,
    /// The process is not tried again.
    Abandoned,
}

/// A process that can be attached to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) pid: Pid,
    pub(super) name: String,
}

/// The group as of the last scan.
#[derive(Debug)]
pub(super) struct Watch {
    selection: Selection,
    known: BTreeMap<Pid, Known>,
    next: Instant,
    first: bool,
    /// Processes that did not answer and have not been reported yet.
    silent: Vec<Ready>,
    /// The processor time of the threads that read processes in this scan.
    cost: Duration,
}

impl Watch {
    pub(super) fn new(selection: Selection) -> Watch {
        Watch {
            selection,
            known: BTreeMap::new(),
            next: Instant::now(),
            first: true,
            silent: Vec::new(),
            cost: Duration::ZERO,
        }
    }

    /// Scans, if it is time, and returns the processes that have become ready.
    pub(super) fn scan(&mut self) -> Vec<Ready> {
        if Instant::now() < self.next {
            return Vec::new();
        }
        let before = thread_cpu_time();
        self.cost = Duration::ZERO;
        self.forget_ended();
        match self.selection {
            Selection::Tree(root) if self.first => self.discover(&[root], false),
            Selection::Tree(_) => {}
            Selection::All | Selection::Named(_) => self.discover_all(),
        }
        self.discover_descendants();
        let ready = self.take_ready();
        self.first = false;
        let cost = thread_cpu_time().saturating_sub(before) + self.cost;
        self.next = Instant::now() + pause(cost);
        ready
    }

    /// Notes that a member attaches to this process, whatever the scan found out about it.
    pub(super) fn mark_attaching(&mut self, pid: Pid) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.stage = Stage::Attaching;
        }
    }

    /// Notes that the process could not be entered. It is tried again after a while.
    pub(super) fn retry_after(&mut self, pid: Pid, after: Duration) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.stage = Stage::Watched;
            known.pages = 0;
            known.since = Instant::now() + after;
        }
    }

    /// Notes that the process has become another program. The next scan inspects it again.
    pub(super) fn rescan(&mut self, pid: Pid) {
        self.retry_after(pid, Duration::ZERO);
    }

    /// Notes that nothing more is to be done with this process.
    pub(super) fn give_up(&mut self, pid: Pid) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.stage = Stage::Abandoned;
        }
    }

    /// Returns the running processes of the group that have no runtime so far, with their names.
    pub(super) fn watched(&self) -> Vec<(Pid, String)> {
        let watched = |(pid, known): (&Pid, &Known)| {
            (known.chosen && known.stage == Stage::Watched).then(|| (*pid, known.name.clone()))
        };
        self.known.iter().filter_map(watched).collect()
    }

    /// Returns how many processes of the group run.
    pub(super) fn alive(&self) -> usize {
        self.known.values().filter(|known| known.chosen).count()
    }

    /// Makes the next scan look, whenever the last one was.
    #[cfg(test)]
    pub(super) fn look_now(&mut self) {
        self.next = Instant::now();
    }

    #[cfg(test)]
    pub(super) fn since(&self, pid: Pid) -> Option<Instant> {
        self.known.get(&pid).map(|known| known.since)
    }

    fn forget_ended(&mut self) {
        self.known.retain(|pid, known| {
            task::stat(*pid).is_ok_and(|stat| {
                // Other threads may run on after the main thread has ended.
                stat.start_ticks == known.start_ticks
                    && (!stat.is_dead() || task::live(*pid).is_ok_and(|tid| tid.is_some()))
            })
        });
    }

    /// Returns the processes that did not answer since the last call. Each is reported once, and is
    /// not read again.
    pub(super) fn silent(&mut self) -> Vec<Ready> {
        std::mem::take(&mut self.silent)
    }

    /// Reads processes, each on another thread and with a deadline. None for a process that no
    /// longer exists, or that did not answer. The latter is then abandoned.
    fn look(&mut self, pids: &[Pid]) -> Vec<Option<Found>> {
        let timed = |pid| {
            let before = thread_cpu_time();
            let found = find::process(pid);
            (found, thread_cpu_time().saturating_sub(before))
        };
        let mut all = Vec::new();
        for (pid, answer) in pids.iter().zip(answer::each(pids, answer::LIMIT, timed)) {
            match answer {
                Some((found, cost)) => {
                    self.cost += cost;
                    all.push(found);
                }
                None => {
                    self.abandon_silent(*pid);
                    all.push(None);
                }
            }
        }
        all
    }

    pub(super) fn abandon_silent(&mut self, pid: Pid) {
        let Some(found) = find::silent(pid) else {
            return;
        };
        let abandoned = Known {
            start_ticks: found.start_ticks,
            name: found.name.clone(),
            chosen: false,
            stage: Stage::Abandoned,
            since: Instant::now(),
            pages: 0,
        };
        self.known.insert(pid, abandoned);
        let name = found.name;
        self.silent.push(Ready { pid, name });
    }

    fn discover(&mut self, pids: &[Pid], by_descent: bool) {
        let mut others = pids.to_vec();
        others.retain(|&pid| pid != Pid::own());
        for found in self.look(&others).into_iter().flatten() {
            let chosen = by_descent || self.selection.chooses(&found);
            let known = Known {
                start_ticks: found.start_ticks,
                name: found.name,
                chosen,
                stage: Stage::Watched,
                since: Instant::now(),
                pages: 0,
            };
            self.known.insert(found.pid, known);
        }
    }

    fn discover_all(&mut self) {
        let mut fresh = Vec::new();
        let mut changed = Vec::new();
        for pid in find::pids() {
            match self.known.get_mut(&pid) {
                None => fresh.push(pid),
                // An exec changes the name, and loading a library takes memory.
                Some(known) if !known.chosen && known.stage != Stage::Abandoned => {
                    let pages = pages(pid);
                    if pages != known.pages {
                        known.pages = pages;
                        changed.push(pid);
                    }
                }
                Some(_) => {}
            }
        }
        self.discover(&fresh, false);
        for found in self.look(&changed).into_iter().flatten() {
            if self.selection.chooses(&found)
                && let Some(known) = self.known.get_mut(&found.pid)
            {
                known.chosen = true;
                known.pages = 0;
                known.since = Instant::now();
            }
        }
    }

    /// Finds the children of the group's processes, their children, and so on. A process whose
    /// parent has ended since stays in the group.
    fn discover_descendants(&mut self) {
        let chosen = self.known.iter().filter(|(_, known)| known.chosen);
        let mut open: Vec<Pid> = chosen.map(|(pid, _)| *pid).collect();
        let mut seen: BTreeSet<Pid> = open.iter().copied().collect();
        let mut by_parent = None;
        while let Some(parent) = open.pop() {
            for child in children(parent, &mut by_parent) {
                if !seen.insert(child) {
                    continue;
                }
                match self.known.get_mut(&child) {
                    Some(known) => known.chosen |= known.stage != Stage::Abandoned,
                    None => self.discover(&[child], true),
                }
                if self.known.contains_key(&child) {
                    open.push(child);
                }
            }
        }
    }

    fn take_ready(&mut self) -> Vec<Ready> {
        let mut moved = Vec::new();
        for (pid, known) in &mut self.known {
            let settled = self.first || known.since.elapsed() >= SETTLED;
            // `since` may be in the future. The process is then left alone until that time.
            if !known.chosen || known.stage != Stage::Watched || !settled {
                continue;
            }
            let pages = pages(*pid);
            if pages == known.pages {
                continue;
            }
            known.pages = pages;
            moved.push(*pid);
        }
        let mut ready = Vec::new();
        for found in self.look(&moved).into_iter().flatten() {
            let pid = found.pid;
            let Some(known) = self.known.get_mut(&pid) else {
                continue;
            };
            known.name.clone_from(&found.name);
            if found.uses_a_gpu() && !shares_memory(pid, found.parent) {
                known.stage = Stage::Attaching;
                let name = found.name;
                ready.push(Ready { pid, name });
            } else if found.uses_a_gpu() {
                known.pages = 0;
            }
        }
        ready
    }
}

/// Returns the pause after a scan that took this much processor time.
fn pause(cost: Duration) -> Duration {
    SHORTEST.max(cost * SHARE)
}

/// Returns the processor time of this thread. Elapsed time would not do, because a scan can wait
/// for a processor: on an overloaded machine the next scan would be postponed by minutes.
fn thread_cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, Duration::from)
}

/// Returns the pages of a process's address space, or 0 when that cannot be read. A main thread that
/// has ended has none, so another thread is read in its place.
fn pages(pid: Pid) -> u64 {
    let of = |tid: Tid| {
        let text = kernel_words(format!("{pid}/task/{tid}/statm")).unwrap_or_default();
        let first = text.split_ascii_whitespace().next();
        first.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    match of(pid.leader()) {
        0 => live(pid).map_or(0, of),
        pages => pages,
    }
}

/// Whether a process is a child of `vfork`, which runs in its parent's memory until it calls exec.
/// Entering it would enter the parent. Where the kernel does not tell, the child counts as a
/// process of its own.
fn shares_memory(pid: Pid, parent: Option<Pid>) -> bool {
    parent.is_some_and(|parent| share_memory(pid, parent) == Some(true))
}

/// Returns the root and all its present descendants, the root first, or nothing when the root does
/// not exist.
pub fn tree(root: Pid) -> Vec<Found> {
    let mut found: Vec<Found> = find::process(root).into_iter().collect();
    let mut by_parent = None;
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        for child in children(parent.pid, &mut by_parent) {
            if child == Pid::own() || found.iter().any(|known| known.pid == child) {
                continue;
            }
            found.extend(find::process(child));
        }
        next += 1;
    }
    found
}

/// Returns the children of all threads of a process. On a kernel without the lists of children
/// (CONFIG_PROC_CHILDREN) this takes one pass over all processes, which is cached in `by_parent`.
fn children(pid: Pid, by_parent: &mut Option<BTreeMap<Pid, Vec<Pid>>>) -> Vec<Pid> {
    let mut all = Vec::new();
    for tid in task::list(pid).unwrap_or_default() {
        match kernel_words(format!("{pid}/task/{tid}/children")) {
            Ok(text) => all.extend(
                text.split_ascii_whitespace()
                    .filter_map(|word| word.parse::<Pid>().ok()),
            ),
            // The thread has ended, or the kernel has no such file.
            Err(_) if task::is_alive(tid) => {
                let by_parent = by_parent.get_or_insert_with(all_by_parent);
                return by_parent.get(&pid).cloned().unwrap_or_default();
            }
            Err(_) => {}
        }
    }
    all
}

fn all_by_parent() -> BTreeMap<Pid, Vec<Pid>> {
    let mut by_parent: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for pid in find::pids() {
        if let Some(parent) = task::stat(pid).ok().and_then(|stat| stat.parent) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    by_parent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::script::{
        Ended, family as shapes, of_shape, own, shell, until, with_runtime,
    };
    use std::path::Path;
    use std::process::{Command, Stdio};

    /// A shell whose child has a child. All end with the shell's standard input.
    fn family() -> Ended {
        let script = "sh -c 'cat; true'; true";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        Ended(command.spawn().unwrap())
    }

    #[test]
    fn a_tree_has_all_generations_and_both_ways_of_finding_agree() {
        let shell = family();
        let deadline = Instant::now() + Duration::from_secs(20);
        let found = loop {
            let found = tree(Pid::of_child(&shell.0));
            if found.len() == 3 && found[2].name == "cat" {
                break found;
            }
            assert!(Instant::now() < deadline, "{found:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(found[0].pid, Pid::of_child(&shell.0));
        assert_eq!(found[1].parent, Some(found[0].pid));
        let by_parent = all_by_parent();
        for pair in found.windows(2) {
            assert_eq!(by_parent[&pair[0].pid], [pair[1].pid]);
        }
        assert!(tree(Pid::MAX).is_empty());
        // We are left out of the tree that we are in.
        if let Some(parent) = task::stat(Pid::own()).unwrap().parent {
            assert!(tree(parent).iter().all(|found| found.pid != Pid::own()));
        }
    }

    #[test]
    fn those_without_a_runtime_are_watched_until_they_end() {
        let shell = family();
        let mut watch = Watch::new(Selection::Tree(Pid::of_child(&shell.0)));
        let deadline = Instant::now() + Duration::from_secs(20);
        while watch.alive() < 3 {
            assert!(watch.scan().is_empty());
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(watch.watched().len(), 3);
        drop(shell);
        while watch.alive() > 0 {
            watch.scan();
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(watch.watched().is_empty());
    }

    #[test]
    fn names_choose() {
        let shell = family();
        let pid = Pid::of_child(&shell.0);
        let wanted = regex_lite::Regex::new("sh -c sh -c 'cat; true'; true").unwrap();
        let mut watch = Watch::new(Selection::Named(wanted));
        watch.scan();
        assert!(watch.watched().iter().any(|(known, _)| *known == pid));
        let nobody = regex_lite::Regex::new("no such name, nowhere").unwrap();
        let mut watch = Watch::new(Selection::Named(nobody));
        assert!(watch.scan().is_empty());
        // The test's own process is left out.
        assert_eq!(watch.alive(), 0);
    }

    /// Watches the processes of this test.
    fn named(word: &str) -> Watch {
        Watch::new(Selection::named(&own(word)).unwrap())
    }

    /// Scans, whenever the last scan was.
    fn scan(watch: &mut Watch) -> Vec<Pid> {
        watch.look_now();
        watch.scan().into_iter().map(|ready| ready.pid).collect()
    }

    /// Scans until something is ready.
    fn scan_until_ready(watch: &mut Watch) -> Vec<Pid> {
        let mut ready = Vec::new();
        until(|| {
            ready = scan(watch);
            !ready.is_empty()
        });
        ready
    }

    #[test]
    fn one_with_a_runtime_is_ready_once() {
        let one = with_runtime("watch-ready");
        let mut watch = named("watch-ready");
        let ready = watch.scan();
        let name = "libamdhip64.so.".to_owned();
        assert_eq!(
            ready,
            [Ready {
                pid: one.pid(),
                name
            }]
        );
        assert!(scan(&mut watch).is_empty());
        assert_eq!((watch.alive(), watch.watched().len()), (1, 0));
        // It goes on, and is the same process.
        watch.rescan(one.pid());
        assert_eq!(watch.watched(), [(one.pid(), "libamdhip64.so.".to_owned())]);
        assert_eq!(scan_until_ready(&mut watch), [one.pid()]);
        watch.retry_after(one.pid(), Duration::from_secs(3600));
        std::thread::sleep(2 * SETTLED);
        assert!(scan(&mut watch).is_empty(), "its time has not come");
        assert_eq!(watch.watched().len(), 1);
        watch.give_up(one.pid());
        std::thread::sleep(2 * SETTLED);
        assert!(scan(&mut watch).is_empty());
        assert_eq!((watch.alive(), watch.watched().len()), (1, 0));
        drop(one);
        scan(&mut watch);
        assert_eq!(watch.alive(), 0);
    }

    #[test]
    fn all_that_have_a_runtime_are_chosen() {
        let one = with_runtime("watch-all");
        let other = shell(Path::new("/bin/sh"), "read line", "watch-all");
        let mut watch = Watch::new(Selection::All);
        let ready = scan(&mut watch);
        assert!(ready.contains(&one.pid()) && !ready.contains(&other.pid()));
        assert!(!watch.watched().iter().any(|(pid, _)| *pid == other.pid()));
    }

    /// A new process may be a child between `fork` and `exec`. Those that exist at the first scan
    /// are older.
    #[test]
    fn a_new_process_is_left_alone_for_a_moment() {
        let mut watch = named("watch-settles");
        assert!(scan(&mut watch).is_empty());
        let one = with_runtime("watch-settles");
        let began = Instant::now();
        assert_eq!(scan_until_ready(&mut watch), [one.pid()]);
        assert!(began.elapsed() >= SETTLED);
    }

    /// A shell becomes a program with a runtime.
    #[test]
    fn one_that_loads_a_runtime_becomes_ready() {
        let exec = |word: &str| format!("read line; exec {} other {word}", shapes()[1].display());
        // It is in the group from the start, or only by its new command line.
        for (old, new) in [("watch-loads", "watch-loads"), ("other", "watch-loads")] {
            // The script itself does not have the word.
            let script = exec(&own(new).replace('-', "-''"));
            let mut one = shell(Path::new("/bin/sh"), &script, old);
            let pid = one.pid();
            let mut watch = named("watch-loads");
            assert!(scan(&mut watch).is_empty());
            assert_eq!(watch.alive(), usize::from(old == new));
            assert!(scan(&mut watch).is_empty());
            one.send("go");
            assert_eq!(scan_until_ready(&mut watch), [pid]);
            assert_eq!(watch.alive(), 1);
        }
    }

    /// The root of a tree is found once. Later scans leave it as it is.
    #[test]
    fn a_tree_keeps_what_is_known_of_its_root() {
        let one = with_runtime("watch-tree");
        let mut watch = Watch::new(Selection::Tree(one.pid()));
        assert_eq!(scan(&mut watch), [one.pid()]);
        assert!(scan(&mut watch).is_empty());
        assert!(watch.watched().is_empty());
    }

    /// All that descends from a chosen process belongs to the group, whatever it is called.
    #[test]
    fn descendants_of_those_chosen_by_name_belong_to_the_group() {
        let (script, word) = ("sh -c 'cat; true' x; true", "watch-descends");
        let one = shell(Path::new("/bin/sh"), script, word);
        // All have become what they are: only the first one has the word.
        until(|| {
            tree(one.pid())
                .last()
                .is_some_and(|last| last.name == "cat")
        });
        let mut watch = named("watch-descends");
        scan(&mut watch);
        assert_eq!(watch.alive(), 3);
        let mut names: Vec<String> = watch.watched().into_iter().map(|(_, name)| name).collect();
        names.sort();
        assert_eq!(names, ["cat", "sh", "sh"]);
        drop(one);
    }

    /// A process that does not answer is reported once, and belongs to no group.
    #[test]
    fn one_that_does_not_answer_is_told_once() {
        let shell = family();
        let root = Pid::of_child(&shell.0);
        let mut watch = Watch::new(Selection::Tree(root));
        until(|| {
            scan(&mut watch);
            watch.alive() == 3
        });
        assert!(watch.silent().is_empty());
        let child = tree(root)[1].pid;
        watch.abandon_silent(child);
        let told = watch.silent();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].pid, told[0].name.as_str()), (child, "sh"));
        assert!(watch.silent().is_empty());
        scan(&mut watch);
        assert_eq!(watch.known[&child].stage, Stage::Abandoned);
        assert!(!watch.known[&child].chosen);
        // One that has ended is not silent.
        watch.abandon_silent(Pid::MAX);
        assert!(watch.silent().is_empty());
    }

    /// Among all processes, too, a silent one is not read again.
    #[test]
    fn one_that_does_not_answer_is_not_read_again() {
        let mut one = shell(
            Path::new("/bin/sh"),
            &format!("read line; exec {} other", shapes()[1].display()),
            "watch-silent",
        );
        let mut watch = named("watch-silent");
        watch.abandon_silent(one.pid());
        assert_eq!(watch.silent().len(), 1);
        scan(&mut watch);
        assert_eq!(watch.alive(), 0);
        one.send("go");
        until(|| crate::find::process(one.pid()).is_some_and(|found| found.uses_a_gpu()));
        assert!(scan(&mut watch).is_empty());
        assert_eq!(watch.alive(), 0);
    }

    /// The child of `vfork` runs in its parent's memory. Entering it would enter the parent.
    #[test]
    fn a_child_that_shares_its_parents_memory_is_not_ready() {
        let (parent, child) = of_shape(&shapes()[1], "vfork");
        let mut watch = Watch::new(Selection::Tree(parent.pid()));
        assert_eq!(scan(&mut watch), [parent.pid()]);
        assert_eq!(watch.alive(), 2);
        // Since it may call exec, it is looked at again.
        assert_eq!(watch.watched().len(), 1);
        assert_eq!(watch.watched()[0].0, child);
        assert_eq!(watch.known[&child].pages, 0);
        assert!(shares_memory(child, Some(parent.pid())));
        assert!(!shares_memory(parent.pid(), Some(Pid::own())));
        assert!(!shares_memory(child, None));
    }

    #[test]
    fn one_whose_main_thread_has_ended_goes_on() {
        let (one, _) = of_shape(&shapes()[1], "headless");
        let pid = one.pid();
        until(|| task::stat(pid).is_ok_and(|stat| stat.is_dead()));
        let mut watch = Watch::new(Selection::Tree(pid));
        assert_eq!(scan(&mut watch), [pid]);
        assert!(scan(&mut watch).is_empty(), "it was ready once");
        assert_eq!(watch.alive(), 1);
        // Its number may be another process's later.
        watch.known.get_mut(&pid).unwrap().start_ticks -= 1;
        scan(&mut watch);
        assert_eq!(watch.alive(), 0);
    }

    /// Its number is there until its parent asks how it ended, but it is no process any more.
    #[test]
    fn one_that_has_ended_is_forgotten_before_it_is_reaped() {
        let mut one = with_runtime("watch-unreaped");
        let pid = one.pid();
        let mut watch = Watch::new(Selection::Tree(pid));
        assert_eq!(scan(&mut watch), [pid]);
        one.0.kill().unwrap();
        until(|| task::stat(pid).is_ok_and(|stat| stat.is_dead()));
        assert!(scan(&mut watch).is_empty());
        assert_eq!(watch.alive(), 0);
    }

    /// A scan takes one part in fifty of a processor at most, and there are at most ten in a second.
    #[test]
    fn scans_pace_themselves() {
        assert_eq!(pause(Duration::from_millis(1)), SHORTEST);
        assert_eq!(pause(Duration::from_millis(10)), Duration::from_millis(500));
        let one = with_runtime("watch-paced");
        let mut watch = named("watch-paced");
        let before = Instant::now();
        assert_eq!(watch.scan().len(), 1);
        assert!(watch.cost > Duration::ZERO, "reading takes time");
        assert!(watch.next >= before + SHORTEST.max(watch.cost * SHARE));
        watch.rescan(one.pid());
        watch.next = Instant::now() + Duration::from_secs(3600);
        std::thread::sleep(2 * SETTLED);
        assert!(watch.scan().is_empty(), "it is not time");
        assert!(thread_cpu_time() > Duration::ZERO);
    }
}
