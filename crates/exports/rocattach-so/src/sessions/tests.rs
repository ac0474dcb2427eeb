//! Sessions over an engine that follows a script.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const fn id(number: u32) -> Pid {
    match Pid::new(number) {
        Some(pid) => pid,
        None => panic!("a process id"),
    }
}

/// What the fake target does, by pid.
const LIVES: Pid = id(1);
const REFUSES: Pid = id(2);
const ENDS: Pid = id(3);
const PANICS: Pid = id(4);
const BREAKS: Pid = id(5);
const LOSES: Pid = id(6);

#[derive(Default)]
struct Fake {
    followed: AtomicU32,
    finished: AtomicU32,
    ended: AtomicBool,
    owner_is_one_thread: AtomicBool,
}

struct FakeLive {
    pid: Pid,
    fake: &'static Fake,
    owner: std::thread::ThreadId,
    seen: Arc<AtomicU32>,
}

impl Engine for Fake {
    fn attach(&self, pid: Pid, settings: Settings) -> Result<Box<dyn LiveSession>, Failure> {
        if pid == REFUSES {
            return Err(Failure::new(Kind::NotGpu, "no GPU runtime").hint("pick another"));
        }
        if pid == LAUNCHES {
            return Err(Failure::new(Kind::NotGpu, "a launcher"));
        }
        if pid == HOLDS {
            return Err(Failure::new(Kind::Busy, "somebody else has it"));
        }
        assert_ne!(settings.get("ROCPROF_KERNEL_TRACE"), None);
        // SAFETY: every fake of these tests is leaked, so it is never freed.
        let fake = unsafe { &*std::ptr::from_ref(self) };
        let owner = std::thread::current().id();
        fake.owner_is_one_thread.store(true, Ordering::SeqCst);
        Ok(Box::new(FakeLive {
            pid,
            fake,
            owner,
            seen: Arc::default(),
        }))
    }

    fn descendants(&self, pid: Pid) -> Vec<Pid> {
        match pid {
            // The tree has two generations. One process has no runtime, and another attacher holds
            // one.
            LIVES => vec![id(11), REFUSES, id(12)],
            LAUNCHES => vec![id(13), HOLDS, id(14)],
            _ => Vec::new(),
        }
    }
}

/// The root of a tree: a launcher without a runtime. All its children are attached, or some of them
/// refuse.
const LAUNCHES: Pid = id(7);

/// Another attacher is attached to it.
const HOLDS: Pid = id(8);

impl LiveSession for FakeLive {
    fn follow(&mut self) -> Result<Progress, Failure> {
        self.fake.followed.fetch_add(1, Ordering::SeqCst);
        if self.owner != std::thread::current().id() {
            self.fake.owner_is_one_thread.store(false, Ordering::SeqCst);
        }
        match (self.pid, self.seen.fetch_add(1, Ordering::SeqCst)) {
            (ENDS, 3) => {
                self.fake.ended.store(true, Ordering::SeqCst);
                Ok(Progress::Ended)
            }
            (PANICS, 1) => panic!("on purpose"),
            (BREAKS, 1) => Err(Failure::new(Kind::Incomplete, "broke")),
            _ => Ok(Progress::Running),
        }
    }
    fn finish(self: Box<Self>) -> Ending {
        self.fake.finished.fetch_add(1, Ordering::SeqCst);
        if self.owner != std::thread::current().id() {
            self.fake.owner_is_one_thread.store(false, Ordering::SeqCst);
        }
        if self.pid == LOSES {
            Err(Failure::new(Kind::Incomplete, "lost 3 records"))
        } else {
            Ok(vec!["out.csv".into()])
        }
    }
}

fn fake() -> &'static Fake {
    Box::leak(Box::default())
}

fn settings() -> Settings {
    let mut settings = Settings::new();
    settings.set("ROCPROF_KERNEL_TRACE", "1");
    settings
}

#[test]
fn a_session_is_followed_and_finished_on_one_thread() {
    let (sessions, fake) = (Sessions::new(), fake());
    sessions.attach(fake, LIVES, settings()).unwrap();
    while fake.followed.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    assert_eq!(fake.finished.load(Ordering::SeqCst), 0);
    assert_eq!(sessions.detach(LIVES).unwrap(), [PathBuf::from("out.csv")]);
    assert_eq!(fake.finished.load(Ordering::SeqCst), 1);
    assert!(fake.owner_is_one_thread.load(Ordering::SeqCst));
    // A second time.
    sessions.attach(fake, LIVES, settings()).unwrap();
    sessions.detach(LIVES).unwrap();
}

#[test]
fn what_cannot_be_is_refused_by_its_own_words() {
    let (sessions, fake) = (Sessions::new(), fake());
    for pid in [0, -1, i32::MIN] {
        assert_eq!(named(pid).unwrap_err().kind, Kind::Usage);
    }
    assert_eq!(
        sessions.attach(fake, REFUSES, settings()).unwrap_err().kind,
        Kind::NotGpu
    );
    let (pid, failure) = sessions.last_refusal().unwrap();
    assert_eq!(
        (pid, failure.what.as_str()),
        (REFUSES.raw(), "no GPU runtime")
    );
    assert_eq!(sessions.detach(REFUSES).unwrap_err().kind, Kind::Usage);

    sessions.attach(fake, LIVES, settings()).unwrap();
    assert!(sessions.last_refusal().is_none());
    assert_eq!(
        sessions.attach(fake, LIVES, settings()).unwrap_err().kind,
        Kind::Usage
    );
    sessions.detach(LIVES).unwrap();
    assert_eq!(sessions.detach(LIVES).unwrap_err().kind, Kind::Usage);
}

#[test]
fn a_target_that_ends_is_written_at_once_and_told_at_the_detach() {
    let (sessions, fake) = (Sessions::new(), fake());
    sessions.attach(fake, ENDS, settings()).unwrap();
    while fake.finished.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(fake.ended.load(Ordering::SeqCst));
    assert_eq!(sessions.detach(ENDS).unwrap().len(), 1);
}

#[test]
fn trouble_is_never_a_success() {
    let (sessions, fake) = (Sessions::new(), fake());
    for pid in [PANICS, BREAKS, LOSES] {
        sessions.attach(fake, pid, settings()).unwrap();
    }
    // Each session gets the time to run into its failure.
    while fake.followed.load(Ordering::SeqCst) < 6 {
        std::thread::yield_now();
    }
    let endings = sessions.detach_all();
    let kinds: Vec<(Pid, Kind)> = endings
        .into_iter()
        .map(|(pid, ending)| (pid, ending.unwrap_err().kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (PANICS, Kind::Enter),
            (BREAKS, Kind::Incomplete),
            (LOSES, Kind::Incomplete)
        ]
    );
    assert!(sessions.detach_all().is_empty());
}

#[test]
fn a_tree_is_attached_and_detached_as_it_was() {
    let (fake, sessions) = (fake(), Sessions::new());
    sessions.attach_tree(fake, LIVES, &settings()).unwrap();
    assert!([LIVES, id(11), id(12)].iter().all(|pid| sessions.has(*pid)) && !sessions.has(REFUSES));
    let twice = sessions.attach_tree(fake, LIVES, &settings()).unwrap_err();
    assert_eq!(twice[0].1.kind, Kind::Usage);
    // A process that was detached individually is left out.
    sessions.detach(id(11)).unwrap();
    let mut endings = sessions.detach_tree(LIVES).unwrap();
    endings.sort_by_key(|(pid, _)| *pid);
    assert_eq!(
        endings.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(),
        [LIVES, id(12)]
    );
    assert!(endings.iter().all(|(_, ending)| ending.is_ok()));
    assert_eq!(sessions.detach_tree(LIVES).unwrap_err().kind, Kind::Usage);
}

#[test]
fn a_launcher_is_passed_over_and_a_root_that_fails_otherwise_is_not() {
    let (fake, sessions) = (fake(), Sessions::new());
    let failures = sessions
        .attach_tree(fake, LAUNCHES, &settings())
        .unwrap_err();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].0, failures[0].1.kind), (HOLDS, Kind::Busy));
    assert!(sessions.has(id(13)) && sessions.has(id(14)) && !sessions.has(LAUNCHES));
    assert_eq!(sessions.detach_tree(LAUNCHES).unwrap().len(), 2);
    for root in [REFUSES, HOLDS] {
        let failures = sessions.attach_tree(fake, root, &settings()).unwrap_err();
        assert_eq!((failures.len(), failures[0].0), (1, root));
        assert!(!sessions.has(root));
    }
}
