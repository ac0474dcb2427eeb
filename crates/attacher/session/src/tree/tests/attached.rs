//! Tests of groups whose sessions follow a script. The processes are real.

use super::script::{Scene as Session, *};
use super::*;
use midair_output::table::Style;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Limits = Limits {
    laggards: Duration::from_secs(60),
    attach: Duration::from_secs(60),
    last_attach: Duration::from_secs(60),
};

fn request(selection: Selection) -> GroupRequest {
    let mut each = Request::new(Pid::own(), Settings::new());
    each.wait = Some(Duration::ZERO);
    GroupRequest {
        selection,
        each,
        patient: false,
        merge: false,
        is_default: false,
    }
}

fn attach<F>(limits: Limits, request: GroupRequest, script: F) -> Result<Group, Failure>
where
    F: Fn(Pid) -> Result<Arc<Session>, Failure> + Send + Sync + 'static,
{
    Group::attach_by(Box::new(Script(script)), limits, request)
}

/// Selects the processes of this test.
fn named_own(word: &str) -> Selection {
    Selection::named(&own(word)).unwrap()
}

/// Attaches to all processes with a word on their command lines.
fn attach_named<F>(limits: Limits, word: &str, script: F) -> Result<Group, Failure>
where
    F: Fn(Pid) -> Result<Arc<Session>, Failure> + Send + Sync + 'static,
{
    attach(limits, request(named_own(word)), script)
}

/// Polls until the group says something.
fn poll_until(group: &mut Group, is_so: impl Fn(&Event, &Group) -> bool) {
    until(|| {
        let event = group.poll().unwrap();
        is_so(&event, group)
    });
}

/// Whether a poll of the group says this.
fn runs(records: u64, bytes: u64) -> impl Fn(&Event, &Group) -> bool {
    move |event, _| *event == Event::Running { records, bytes }
}

fn refused(news: &[Notice]) -> Vec<(Pid, Kind)> {
    let of = |notice: &Notice| match &notice.what {
        NoticeKind::Refused(failure) => Some((notice.pid, failure.kind)),
        _ => None,
    };
    news.iter().filter_map(of).collect()
}

/// Two processes are attached, and a third one has no runtime. One ends. What it recorded counts
/// until the end.
#[test]
fn all_that_have_a_runtime_are_attached_and_counted() {
    let word = "group-of-two";
    let (one, two) = (with_runtime(word), with_runtime(word));
    let _three = shell(Path::new("/bin/sh"), "read line", word);
    let (first, second) = (one.pid(), two.pid());
    let sessions = [Session::new(3, 40), Session::new(5, 60)].map(Arc::new);
    let [a, b] = sessions.clone();
    let mut group = attach_named(LONG, word, move |pid| match pid {
        pid if pid == first => Ok(Arc::clone(&a)),
        pid if pid == second => Ok(Arc::clone(&b)),
        pid => panic!("{pid} has no runtime"),
    })
    .unwrap();
    assert_eq!((group.attached(), group.underway), (2, 0));
    let mut news = group.news();
    news.sort_by_key(|notice| notice.pid);
    let mut pids = [first, second];
    pids.sort();
    assert_eq!(news.len(), 2);
    for (notice, pid) in news.iter().zip(pids) {
        let NoticeKind::Attached(entry, _) = &notice.what else {
            panic!("{notice:?}");
        };
        assert_eq!(entry.via, format!("of {pid}"));
        assert_eq!((notice.pid, notice.name.as_str()), (pid, "libamdhip64.so."));
    }
    assert!(group.news().is_empty(), "each is told once");
    poll_until(&mut group, runs(8, 100));

    sessions[0].end(End::Exited(Some(7)));
    let mut fds = [PollFd::new(group.wake(), PollFlags::POLLIN)];
    assert_eq!(
        nix::poll::poll(&mut fds, PollTimeout::from(20_000_u16)),
        Ok(1)
    );
    poll_until(&mut group, |_, group| group.members.len() == 1);
    let news = group.news();
    assert!(
        matches!(news[..], [Notice { pid, what: NoticeKind::Ended(End::Exited(Some(7))), .. }] if pid == first),
        "{news:?}"
    );
    assert_eq!((sessions[0].detached(), sessions[1].detached()), (1, 0));
    assert!(runs(8, 100)(&group.poll().unwrap(), &group));
    sessions[1].say(Ok(Event::Running {
        records: 10,
        bytes: 200,
    }));
    poll_until(&mut group, runs(13, 240));

    let ended = group.detach();
    assert_eq!(sessions[1].detached(), 1);
    let parts: Vec<(Pid, bool)> = ended
        .parts()
        .iter()
        .map(|part| (part.pid, part.collected.is_ok()))
        .collect();
    assert_eq!(parts, pids.map(|pid| (pid, true)));
    assert!(ended.failure().is_none());
}

/// The descriptor to wait for is quiet while nothing happens, so that the caller sleeps.
#[test]
fn a_poll_empties_the_descriptor_that_woke_it() {
    let word = "group-that-sleeps";
    let _one = with_runtime(word);
    let mut group = attach_named(LONG, word, |_| Ok(Arc::new(Session::new(0, 0)))).unwrap();
    group.poll().unwrap();
    let mut fds = [PollFd::new(group.wake(), PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut fds, PollTimeout::ZERO), Ok(0));
}

#[test]
fn one_refusal_does_not_end_the_others() {
    let word = "group-with-one-refused";
    let (one, two) = (with_runtime(word), with_runtime(word));
    let bad = two.pid();
    let script = move |pid| match pid == bad {
        true => Err(failure(Kind::NotPermitted)),
        false => Ok(Arc::new(Session::new(0, 0))),
    };
    let mut group = attach_named(LONG, word, script).unwrap();
    assert_eq!((group.attached(), group.underway), (1, 0));
    assert_eq!(refused(&group.news()), [(bad, Kind::NotPermitted)]);
    // It is not tried again.
    group.watch.look_now();
    group.poll().unwrap();
    assert_eq!(group.started, 2);
    let ended = group.detach();
    assert_eq!(ended.parts().len(), 2);
    // A refusal is no failed detach.
    assert!(ended.failure().is_none());
    drop(one);
}

/// A process that is there at the start is tried once, also where one that came later would be
/// tried again.
#[test]
fn where_nothing_can_be_attached_the_first_reason_is_told() {
    let word = "group-refused";
    let _one = with_runtime(word);
    for kind in [Kind::NotPermitted, Kind::NoParkedThread] {
        let refused = attach_named(LONG, word, move |_| Err(failure(kind)));
        assert_eq!(refused.unwrap_err().kind, kind);
    }
}

/// A process that blocks its attach does not keep the others waiting for ever. At the end it is
/// given up.
#[test]
fn laggards_hold_up_nobody() {
    let word = "group-with-a-laggard";
    let (one, two) = (with_runtime(word), with_runtime(word));
    let late = two.pid();
    let limits = Limits {
        laggards: SHORT,
        last_attach: SHORT,
        ..LONG
    };
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let began = Instant::now();
    let mut group = attach_named(limits, word, move |pid| {
        if pid == late {
            // Until the test ends.
            let _ = held.lock().unwrap().recv();
        }
        Ok(Arc::new(Session::new(1, 1)))
    })
    .unwrap();
    assert!(began.elapsed() > SHORT);
    assert_eq!((group.attached(), group.underway), (1, 1));
    assert_eq!(group.news().len(), 1);
    // The attach is not over.
    assert!(matches!(group.poll(), Ok(Event::Running { .. })));
    let began = Instant::now();
    let ended = group.detach();
    assert!(began.elapsed() > SHORT && began.elapsed() < Duration::from_secs(20));
    let of = |pid: Pid| ended.parts().iter().find(|part| part.pid == pid).unwrap();
    assert!(of(one.pid()).collected.is_ok());
    assert_eq!(
        of(late).collected.as_ref().unwrap_err().kind,
        Kind::NoAnswer
    );
    drop(hold);
}

/// The limit for laggards starts to matter when a session records.
#[test]
fn a_single_slow_attach_is_waited_for() {
    let word = "group-of-a-slow-one";
    let _one = with_runtime(word);
    let limits = Limits {
        laggards: Duration::from_millis(1),
        ..LONG
    };
    let group = attach_named(limits, word, |_| {
        std::thread::sleep(SHORT);
        Ok(Arc::new(Session::new(0, 0)))
    });
    assert_eq!(group.unwrap().attached(), 1);
}

#[test]
fn an_attach_that_never_ends_is_given_up() {
    let word = "group-of-a-blocked-one";
    let one = with_runtime(word);
    let limits = Limits {
        attach: SHORT,
        ..LONG
    };
    let (hold, held) = channel::<()>();
    let held = Mutex::new(held);
    let began = Instant::now();
    let failed = attach_named(limits, word, move |_| {
        let _ = held.lock().unwrap().recv();
        Err(failure(Kind::Enter))
    })
    .unwrap_err();
    assert!(began.elapsed() >= SHORT);
    assert_eq!(failed.kind, Kind::NoAnswer);
    assert!(failed.what.contains(&one.pid().to_string()));
    drop(hold);
}

/// A process that records is never given up.
#[test]
fn one_that_is_attached_is_not_given_up() {
    let word = "group-that-lasts";
    let _one = with_runtime(word);
    let limits = Limits {
        attach: Duration::from_millis(1),
        ..LONG
    };
    // It may be given up while it attaches, since the limit is so short.
    let Ok(mut group) = attach_named(LONG, word, |_| Ok(Arc::new(Session::new(2, 20)))) else {
        panic!("not attached");
    };
    group.limits = limits;
    poll_until(&mut group, runs(2, 20));
    assert_eq!(group.members.len(), 1);
}

/// The end comes while an attach is in progress.
#[test]
fn the_end_waits_for_attaches_in_progress() {
    for (kind, parts) in [(None, 1), (Some(Kind::NoAnswer), 1), (Some(Kind::Enter), 0)] {
        let word = "group-that-ends-early";
        let one = with_runtime(word);
        let session = Arc::new(Session::new(0, 0));
        let (go, wait) = channel::<()>();
        let (begun, begins) = channel();
        let wait = Mutex::new(wait);
        let attached = Arc::clone(&session);
        let script = move |_| {
            begun.send(()).unwrap();
            let _ = wait.lock().unwrap().recv();
            kind.map_or_else(|| Ok(Arc::clone(&attached)), |kind| Err(failure(kind)))
        };
        let request = request(named_own(word));
        let mut group = Group::new(Box::new(Script(script)), LONG, request).unwrap();
        for ready in group.watch.scan() {
            group.start(ready, true);
        }
        assert_eq!((group.underway, group.started), (1, 1));
        begins.recv().unwrap();
        let waiting = std::thread::spawn(move || group.detach());
        drop(go);
        let ended = waiting.join().unwrap();
        assert_eq!(ended.parts().len(), parts, "{kind:?}");
        assert_eq!(session.detached(), usize::from(kind.is_none()));
        for part in ended.parts() {
            assert_eq!(part.pid, one.pid());
            assert_eq!(part.collected.as_ref().err().map(|it| it.kind), kind);
        }
    }
}

/// The records of a session whose poll failed are kept, with the failure.
#[test]
fn a_failed_poll_ends_the_session_and_keeps_what_it_recorded() {
    let word = "group-with-a-full-disk";
    let _one = with_runtime(word);
    let session = Arc::new(Session::new(0, 0));
    session.say(Err(failure(Kind::Output)));
    let attached = Arc::clone(&session);
    let mut group = attach_named(LONG, word, move |_| Ok(Arc::clone(&attached))).unwrap();
    poll_until(&mut group, |_, group| group.members.is_empty());
    let ended = group.detach();
    assert_eq!(ended.parts().len(), 1);
    let collected = ended.parts()[0].collected.as_ref().unwrap();
    assert_eq!(collected.failure().map(|it| it.kind), Some(Kind::Output));
    assert_eq!(ended.failure().map(|it| it.kind), Some(Kind::Output));
}

#[test]
fn a_detach_that_failed_is_told() {
    let word = "group-that-is-not-detached";
    let _one = with_runtime(word);
    let session = Arc::new(Session::failing(failure(Kind::DetachFailed)));
    let group = attach_named(LONG, word, move |_| Ok(Arc::clone(&session))).unwrap();
    let ended = group.detach();
    assert_eq!(ended.failure().map(|it| it.kind), Some(Kind::DetachFailed));
    // The only process's failure becomes the group's.
    let failed = ended.write(Style::default()).unwrap_err();
    assert_eq!(failed.kind, Kind::DetachFailed);
}

/// No session outlives its group.
#[test]
fn a_group_that_is_dropped_detaches() {
    let word = "group-that-is-dropped";
    let _one = with_runtime(word);
    let session = Arc::new(Session {
        slow: SHORT,
        ..Session::new(0, 0)
    });
    let attached = Arc::clone(&session);
    drop(attach_named(LONG, word, move |_| Ok(Arc::clone(&attached))).unwrap());
    assert_eq!(session.detached(), 1);
}

/// The thread of a session panics, which must not keep the group from ending.
#[test]
fn a_thread_that_died_is_a_part_without_a_result() {
    let word = "group-with-a-panic";
    let (one, two) = (with_runtime(word), with_runtime(word));
    let bad = two.pid();
    let script = move |pid| {
        assert!(pid != bad, "a panic on purpose");
        Ok(Arc::new(Session::new(0, 0)))
    };
    let limits = Limits {
        laggards: SHORT,
        ..LONG
    };
    let group = attach_named(limits, word, script).unwrap();
    until(|| group.members.values().any(Member::is_dead));
    let ended = group.detach();
    assert_eq!(ended.parts().len(), 2);
    for part in ended.parts() {
        assert_eq!(part.collected.is_ok(), part.pid == one.pid());
        if let Err(failure) = &part.collected {
            assert_eq!(failure.kind, Kind::Enter);
        }
    }
}

/// A process that starts while the group records is attached. When it cannot be entered at once, it
/// is tried again.
#[test]
fn one_that_starts_later_is_attached() {
    let word = "group-that-grows";
    let one = with_runtime(word);
    let first = one.pid();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let mut group = attach_named(LONG, word, move |pid| {
        if pid != first && counted.fetch_add(1, SeqCst) == 0 {
            return Err(failure(Kind::NoParkedThread));
        }
        Ok(Arc::new(Session::new(1, 10)))
    })
    .unwrap();
    let two = with_runtime(word);
    poll_until(&mut group, |_, group| group.attached() == 2);
    assert_eq!((tries.load(SeqCst), group.started), (2, 3));
    let news = group.news();
    assert!(refused(&news).is_empty());
    assert_eq!(news.last().unwrap().pid, two.pid());
    poll_until(&mut group, runs(2, 20));
}

/// One that came later and can never be entered is refused after four attempts.
#[test]
fn one_that_starts_later_is_refused_in_the_end() {
    let word = "group-that-does-not-grow";
    let one = with_runtime(word);
    let first = one.pid();
    let mut group = attach_named(LONG, word, move |pid| match pid == first {
        true => Ok(Arc::new(Session::new(0, 0))),
        false => Err(failure(Kind::NoParkedThread)),
    })
    .unwrap();
    group.news();
    let two = with_runtime(word);
    poll_until(&mut group, |_, group| !group.news.is_empty());
    assert_eq!(refused(&group.news()), [(two.pid(), Kind::NoParkedThread)]);
    assert_eq!(group.started, 1 + TRIES as usize);
}

/// A process that calls exec is another program, which is attached again.
#[test]
fn one_that_became_another_program_is_attached_again() {
    let word = "group-of-one-that-calls-exec";
    let one = with_runtime(word);
    let session = Arc::new(Session::new(4, 4));
    session.end(End::Exec);
    let first = Mutex::new(Some(Arc::clone(&session)));
    let mut patient = request(named_own(word));
    patient.patient = true;
    let mut group = attach(LONG, patient, move |_| {
        let first = first.lock().unwrap().take();
        Ok(first.unwrap_or_else(|| Arc::new(Session::new(1, 1))))
    })
    .unwrap();
    poll_until(&mut group, |_, group| group.attached() == 2);
    assert_eq!(session.detached(), 1);
    let parts = group.detach();
    assert_eq!(parts.parts().len(), 2);
    assert!(parts.parts().iter().all(|part| part.pid == one.pid()));
}

/// A tree without a runtime is refused, or watched where the caller is patient.
#[test]
fn a_tree_without_a_runtime() {
    let root = process();
    let nothing = |_| panic!("nothing is attached");
    let refused = attach(LONG, request(Selection::Tree(root.pid())), nothing).unwrap_err();
    assert_eq!(refused.kind, Kind::NotGpu);
    assert!(refused.what.contains(&root.pid().to_string()));

    let mut patient = request(Selection::Tree(root.pid()));
    patient.patient = true;
    patient.each.wait = None;
    let mut group = attach(LONG, patient, nothing).unwrap();
    let news = group.news();
    assert!(
        matches!(&news[..], [Notice { pid, name, what: NoticeKind::Watched }] if *pid == root.pid() && name == "cat"),
        "{news:?}"
    );
    group.watch.look_now();
    assert!(runs(0, 0)(&group.poll().unwrap(), &group));
    // A watched process that ends is the end of the group.
    drop(root);
    poll_until(&mut group, |event, _| {
        *event == Event::TargetExited(End::Exited(None))
    });
}

#[test]
fn a_name_that_nobody_has() {
    for patient in [false, true] {
        let mut request = request(Selection::named("no-such-group, nowhere").unwrap());
        request.patient = patient;
        let refused = attach(LONG, request, |_| panic!("nothing is attached")).unwrap_err();
        assert_eq!(refused.kind, Kind::NoProcess);
        assert!(refused.what.contains("no-such-group"));
    }
    assert_eq!(Selection::named("(").unwrap_err().kind, Kind::Usage);
}

/// The root of the tree becomes a program with a runtime a moment after the attach started.
#[test]
fn a_program_that_is_still_starting_is_waited_for() {
    let script = format!("sleep 0.3; exec {} -c 'read line'", runtime().display());
    let root = shell(Path::new("/bin/sh"), &script, "starting");
    let mut request = request(Selection::Tree(root.pid()));
    request.each.wait = Some(Duration::from_secs(20));
    let pid = root.pid();
    let group = attach(LONG, request, move |asked| match asked == pid {
        true => Ok(Arc::new(Session::new(0, 0))),
        // A test's own helper.
        false => Err(failure(Kind::NotGpu)),
    });
    assert_eq!(group.unwrap().attached(), 1);
}

/// The runtime's file has another name. It is recognized where the process was named, and is not
/// attached twice.
#[test]
fn a_runtime_under_another_file_name() {
    let (root, pid) = of_shape(&family()[0], "other");
    let script = |_| Ok(Arc::new(Session::new(1, 1)));
    let mut group = attach(LONG, request(Selection::Tree(pid)), script).unwrap();
    assert_eq!(group.attached(), 1);
    let news = group.news();
    assert_eq!((news[0].pid, news[0].name.as_str()), (pid, "family"));
    group.watch.look_now();
    poll_until(&mut group, runs(1, 1));
    assert_eq!(group.started, 1);
    drop(root);
    // A tree whose runtime has a name is attached by the name alone.
    let root = with_runtime("group-under-its-own-name");
    let group = attach(LONG, request(Selection::Tree(root.pid())), script).unwrap();
    assert_eq!((group.attached(), group.started), (1, 1));
}

/// The number of any thread stands for its process.
#[test]
fn a_thread_stands_for_its_process() {
    let (root, tid) = of_shape(&family()[1], "threads");
    assert_ne!(tid, root.pid());
    let pid = root.pid();
    let group = attach(LONG, request(Selection::Tree(tid)), move |asked| {
        assert_eq!(asked, pid);
        Ok(Arc::new(Session::new(0, 0)))
    });
    assert_eq!(group.unwrap().attached(), 1);
}

/// Processes of a tree that have ended are its end, however many there were.
#[test]
fn a_tree_of_one_is_over_when_its_process_ends() {
    let root = with_runtime("group-of-one");
    let session = Arc::new(Session::new(0, 0));
    let attached = Arc::clone(&session);
    let selection = Selection::Tree(root.pid());
    let mut group = attach(LONG, request(selection.clone()), move |_| {
        Ok(Arc::clone(&attached))
    })
    .unwrap();
    assert!(runs(0, 0)(&group.poll().unwrap(), &group));
    session.end(End::Signal(9));
    // The process itself goes on: only its session ends, which comes first.
    poll_until(&mut group, |event, _| {
        *event == Event::TargetExited(End::Signal(9))
    });

    // Whoever is patient waits for what the process becomes.
    let mut patient = request(selection);
    patient.patient = true;
    let session = Arc::new(Session::new(0, 0));
    session.end(End::Exec);
    let attached = Arc::clone(&session);
    let mut group = attach(LONG, patient, move |_| Ok(Arc::clone(&attached))).unwrap();
    poll_until(&mut group, |event, group| {
        assert!(matches!(event, Event::Running { .. }));
        group.attached() > 1
    });
}

/// A group that has attached no process so far is not over.
#[test]
fn a_group_that_waits_for_its_first_process_goes_on() {
    let root = process();
    let mut group = group(Selection::Tree(root.pid()), root.pid());
    assert!(!is_over(group.poll()));
    // Processes are found by name for as long as the group lasts.
    let selection = Selection::named("no-such-group, nowhere").unwrap();
    let mut group = self::group(selection, root.pid());
    group.watch.look_now();
    assert!(!is_over(group.poll()));
    assert_eq!(group.watch.alive(), 0);
}

/// A process that did not even answer the first look is refused by name.
#[test]
fn one_that_does_not_answer_is_refused() {
    let root = process();
    let mut group = group(Selection::Tree(root.pid()), root.pid());
    group.watch.abandon_silent(root.pid());
    group.poll().unwrap();
    assert_eq!(refused(&group.news()), [(root.pid(), Kind::NoAnswer)]);
    group.poll().unwrap();
    assert!(group.news().is_empty());
}

/// A process of the tree that has ended, or has no runtime any more, is no refusal. The root is
/// what the user asked for.
#[test]
fn only_of_the_root_an_early_end_is_told() {
    let (root, other) = (process(), process());
    let mut command = Command::new("sh");
    command.args(["-c", "cat; true"]).stdin(Stdio::piped());
    let shell = Ended(command.spawn().unwrap());
    for kind in [Kind::NoProcess, Kind::Zombie, Kind::NotGpu] {
        let mut group = group(Selection::Tree(shell.pid()), shell.pid());
        until(|| {
            group.watch.look_now();
            group.watch.scan();
            group.watch.alive() == 2
        });
        let watched = group.watch.watched();
        let (child, _) = watched.iter().find(|(pid, _)| *pid != shell.pid()).unwrap();
        group.watch.mark_attaching(*child);
        group.retry_or_refuse(*child, "cat".to_owned(), failure(kind));
        assert!(group.parts.is_empty() && group.news.is_empty(), "{kind:?}");
        // One without a runtime may load one later.
        assert_eq!(is_watched(&group, *child), kind == Kind::NotGpu);
        group.retry_or_refuse(shell.pid(), "sh".to_owned(), failure(kind));
        assert_eq!(refused(&group.news()), [(shell.pid(), kind)]);
        assert_eq!(group.parts.len(), 1);
    }
    drop((root, other));
}

/// The pause before each further attempt is twice as long.
#[test]
fn the_pauses_between_attempts_double() {
    let later = with_runtime("group-with-pauses");
    let pid = later.pid();
    let mut group = group(named_own("group-with-pauses"), pid);
    for made in 1..TRIES {
        group.attempts.entry(pid).or_default().made = made;
        let before = Instant::now();
        group.retry_or_refuse(pid, String::new(), failure(Kind::Enter));
        let after = Instant::now();
        let pause = PAUSE * 2_u32.pow(made);
        let since = group.watch.since(pid).unwrap();
        assert!(before + pause <= since && since <= after + pause);
    }
}

/// What a group writes.
mod written {
    use super::*;

    fn parts(kinds: &[Option<Kind>], directory: &Path) -> Vec<Part> {
        let part = |(at, kind): (usize, &Option<Kind>)| {
            let mut settings = Settings::new();
            settings.set("ROCPROF_OUTPUT_PATH", directory.to_str().unwrap());
            settings.set("ROCPROF_OUTPUT_FORMAT", "json");
            settings.set("ROCPROF_KERNEL_TRACE", "1");
            let mut collected = script::collected(settings);
            let pid = 1000 + at as u32;
            collected.finished.identity.keys.pid = pid;
            collected.finished.identity.process.pid = pid;
            Part {
                pid: Pid::new(pid).unwrap(),
                name: format!("program{at}"),
                collected: kind.map_or(Ok(collected), |kind| Err(failure(kind))),
            }
        };
        kinds.iter().enumerate().map(part).collect()
    }

    fn write(merge: bool, kinds: &[Option<Kind>]) -> Result<usize, Kind> {
        let directory = tempfile::tempdir().unwrap();
        let mut request = request(Selection::named("x").unwrap());
        request.merge = merge;
        request
            .each
            .settings
            .set("ROCPROF_OUTPUT_PATH", directory.path().to_str().unwrap());
        request.each.settings.set("ROCPROF_OUTPUT_FORMAT", "json");
        let mut all = parts(kinds, directory.path());
        // Parts are sorted by process.
        all.reverse();
        let group = GroupCollected::new(request, all);
        assert!(group.parts().windows(2).all(|two| two[0].pid < two[1].pid));
        let written = group.write(Style::default()).map_err(|it| it.kind)?;
        assert!(written.files.iter().all(|file| file.exists()));
        Ok(written.files.len())
    }

    #[test]
    fn each_process_has_files_of_its_own_unless_they_are_merged() {
        assert_eq!(write(false, &[None]), Ok(1));
        assert_eq!(write(false, &[None, None]), Ok(2));
        assert_eq!(write(true, &[None, None]), Ok(1));
        assert_eq!(write(true, &[None]), Ok(1));
        assert_eq!(write(false, &[None, Some(Kind::Enter)]), Ok(1));
    }

    #[test]
    fn a_group_without_a_result_has_a_reason() {
        assert_eq!(write(false, &[]), Err(Kind::NotGpu));
        assert_eq!(write(true, &[]), Err(Kind::NotGpu));
        for merge in [false, true] {
            assert_eq!(write(merge, &[Some(Kind::Enter)]), Err(Kind::Enter));
            let two = [Some(Kind::Busy), Some(Kind::Enter)];
            assert_eq!(write(merge, &two), Err(Kind::Busy));
        }
    }
}
