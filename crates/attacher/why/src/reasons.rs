//! What the process waits for, in sentences.

use crate::answer::{Answer, Completer, Dispatch, Front, Queue, Reason, ReasonKind, Thread, Wait};
use std::time::Duration;

/// A thread counts as running if it takes more of a processor than this.
const RUNS: f64 = 0.2;
/// The most reasons of one kind that are reported.
const MOST: usize = 32;

/// Returns the reasons, the most telling first.
pub(crate) fn of(answer: &Answer) -> Vec<Reason> {
    let mut reasons = Vec::new();
    stopped(answer, &mut reasons);
    locks(answer, &mut reasons);
    for queue in &answer.queues {
        queue_reason(queue, &mut reasons);
    }
    calls(answer, &mut reasons);
    if reasons.is_empty() {
        reasons.push(otherwise(answer));
    }
    reasons.sort_by_key(|reason| reason.kind);
    reasons.truncate(4 * MOST);
    reasons
}

fn stopped(answer: &Answer, reasons: &mut Vec<Reason>) {
    let is_stopped = |thread: &Thread| thread.state == 'T' || thread.state == 't';
    if !answer.threads.is_empty() && answer.threads.iter().all(is_stopped) {
        reasons.push(reason(
            ReasonKind::Stopped,
            "the process is stopped: by job control, a debugger, or another tracer".to_owned(),
        ));
    }
}

fn reason(kind: ReasonKind, what: String) -> Reason {
    Reason {
        kind,
        what,
        queue: None,
        thread: None,
    }
}

/// Describes a thread in words.
pub(crate) fn thread_words(thread: &Thread) -> String {
    format!("thread {} ({})", thread.tid, thread.name)
}

/// Returns a time in words.
pub(crate) fn time(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

pub(crate) fn kernel(dispatch: &Dispatch) -> String {
    match &dispatch.kernel {
        Some(name) => name.clone(),
        None => format!("the kernel at {:#x}", dispatch.kernel_object),
    }
}

/// Returns a count of something, with the right plural.
pub(crate) fn count(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn locks(answer: &Answer, reasons: &mut Vec<Reason>) {
    let by_tid = |tid: u32| answer.threads.iter().find(|thread| thread.tid == tid);
    let holder = |thread: &Thread| thread.lock.as_ref()?.holder.and_then(by_tid);
    for thread in answer.threads.iter().take(MOST * MOST) {
        let Some(lock) = &thread.lock else {
            continue;
        };
        // Threads that wait for one another are reported once, for the one with the lowest id.
        let mut ring = vec![thread.tid];
        let mut next = holder(thread);
        while let Some(other) = next.filter(|other| !ring.contains(&other.tid)) {
            ring.push(other.tid);
            next = holder(other);
        }
        let closes = next.is_some_and(|other| other.tid == thread.tid);
        let (kind, what) = match holder(thread) {
            Some(_) if closes && ring.iter().min() != Some(&thread.tid) => continue,
            Some(_) if closes => {
                let names: Vec<String> = ring.iter().map(u32::to_string).collect();
                (
                    ReasonKind::Deadlock,
                    format!(
                        "threads {} are deadlocked on each other's locks",
                        names.join(", ")
                    ),
                )
            }
            Some(other) => {
                let does = match &other.call {
                    Some((runtime, call)) => {
                        format!(", which is in {}: {call}", runtime.name())
                    }
                    None => String::new(),
                };
                let what = format!(
                    "{} waits for the lock at {:#x}, which {} holds{does}",
                    thread_words(thread),
                    lock.address,
                    thread_words(other)
                );
                (ReasonKind::Lock, what)
            }
            None => (
                ReasonKind::Lock,
                format!(
                    "{} waits for the lock at {:#x}, whose owner is unknown",
                    thread_words(thread),
                    lock.address
                ),
            ),
        };
        let mut told = reason(kind, what);
        told.thread = Some(thread.tid);
        reasons.push(told);
    }
}

fn behind(queue: &Queue) -> String {
    match queue.written - queue.read {
        0 => "nothing waits behind it".to_owned(),
        1 => "1 packet waits behind it".to_owned(),
        more => format!("{more} packets wait behind it"),
    }
}

/// Adds the reason why a queue makes no progress, if it makes none.
fn queue_reason(queue: &Queue, reasons: &mut Vec<Reason>) {
    let mut push = |kind, what| {
        let mut told = reason(kind, what);
        told.queue = Some(queue.number);
        reasons.push(told);
    };
    let number = queue.number;
    // The oldest kernel has been running for the longest time.
    let lasting = queue
        .running
        .iter()
        .rfind(|it| !it.may_have_ended && !it.at_least.is_zero());
    if let Some(run) = lasting {
        push(
            ReasonKind::Kernel,
            format!(
                "queue {number}: kernel {} has been running for {} or longer; {}",
                kernel(run),
                time(run.at_least),
                behind(queue)
            ),
        );
    }
    if queue.moved > 0 {
        return;
    }
    match &queue.front {
        Front::Unwritten { packet } => push(
            ReasonKind::Unwritten,
            format!(
                "queue {number}: packet {packet} is reserved but not written, so no packet behind it can start"
            ),
        ),
        Front::Signals {
            packet,
            what,
            any,
            waits,
        } => {
            let lost: Vec<&Wait> = waits.iter().filter(|wait| wait.by.is_empty()).collect();
            // Where one signal is enough, one signal that can still be completed is enough.
            let is_lost = if *any {
                lost.len() == waits.len()
            } else {
                !lost.is_empty()
            };
            let told: Vec<String> = match is_lost {
                true => lost.iter().map(|wait| lost_words(wait)).collect(),
                false => waits.iter().map(wait_words).collect(),
            };
            let kind = match is_lost {
                true => ReasonKind::LostBarrier,
                false => ReasonKind::Barrier,
            };
            push(
                kind,
                format!(
                    "queue {number}: packet {packet} ({what}) waits for {}",
                    told.join(if *any { " or " } else { " and " })
                ),
            );
        }
        Front::Free { packet, what } => push(
            ReasonKind::NotTaken,
            format!(
                "queue {number}: packet {packet} ({what}) waits for no visible dependency and has not started: its doorbell was not rung, or the GPU is busy with other queues"
            ),
        ),
        Front::AfterAll { packet, what } if queue.running.is_empty() => push(
            ReasonKind::NotTaken,
            format!(
                "queue {number}: packet {packet} ({what}) waits for the packets before it, none of which is known to run"
            ),
        ),
        Front::Empty | Front::AfterAll { .. } => {}
    }
}

fn value(wait: &Wait) -> String {
    match wait.value {
        Some(value) => format!("signal {:#x} (value {value})", wait.signal),
        None => format!("signal {:#x} (not readable)", wait.signal),
    }
}

fn lost_words(wait: &Wait) -> String {
    format!(
        "{}, which no packet of these queues completes: only the host, a copy engine or another process can",
        value(wait)
    )
}

pub(crate) fn completer(by: &Completer) -> String {
    let state = if by.runs {
        "which runs"
    } else {
        "which has not started"
    };
    format!(
        "{} on queue {} (packet {}, {state})",
        by.what, by.queue, by.packet
    )
}

pub(crate) fn wait_words(wait: &Wait) -> String {
    match wait.by.first() {
        Some(by) => format!("{}, completed by {}", value(wait), completer(by)),
        None => lost_words(wait),
    }
}

/// Whether a kernel's name denotes a collective operation (source: RCCL and NCCL,
/// `ncclDevKernel`).
pub(crate) fn is_collective(dispatch: &Dispatch) -> bool {
    dispatch
        .symbol
        .as_deref()
        .is_some_and(|symbol| symbol.contains("ncclDevKernel") || symbol.contains("ncclKernel"))
}

/// Returns that a thread which seems to wait has run meanwhile, if it has: its stack is the same at
/// both looks if it makes the same call again and again.
fn gets_on(thread: &Thread) -> String {
    /// A thread that waits in one call wakes seldom.
    const FEW: u64 = 20;
    match thread.turns > FEW {
        true => format!(
            "; it ran {} times in the meantime, so it makes progress or polls",
            thread.turns
        ),
        false => String::new(),
    }
}

fn calls(answer: &Answer, reasons: &mut Vec<Reason>) {
    let is_busy = answer
        .queues
        .iter()
        .any(|queue| queue.moved > 0 || queue.read != queue.written || !queue.running.is_empty());
    for thread in answer.threads.iter().take(MOST * MOST) {
        let Some((runtime, call)) = &thread.call else {
            continue;
        };
        let kind = match runtime.is_collective() {
            true => ReasonKind::Collective,
            false => ReasonKind::Host,
        };
        // What the queues wait for is reported already where they have work.
        let ends = match kind {
            ReasonKind::Host if answer.queues.is_empty() => gets_on(thread),
            ReasonKind::Host if is_busy => continue,
            ReasonKind::Host => ", and no queue has work".to_owned(),
            _ => String::new(),
        };
        let what = format!(
            "{} is in {}: {call}{ends}",
            thread_words(thread),
            runtime.name()
        );
        let mut told = reason(kind, what);
        told.thread = Some(thread.tid);
        reasons.push(told);
    }
    let collective = answer.queues.iter().find_map(|queue| {
        let runs = queue.running.iter().find(|it| is_collective(it))?;
        Some((queue.number, runs))
    });
    if let Some((number, runs)) = collective {
        let mut told = reason(
            ReasonKind::Collective,
            format!(
                "queue {number}: {} waits for the other ranks (midair why --tree PID inspects all of them)",
                kernel(runs)
            ),
        );
        told.queue = Some(number);
        reasons.push(told);
    }
}

/// Returns the reason to report where nothing holds the process up.
fn otherwise(answer: &Answer) -> Reason {
    let moved: u64 = answer.queues.iter().map(|queue| queue.moved).sum();
    let looked = time(answer.looked);
    if moved > 0 {
        return reason(
            ReasonKind::Running,
            format!(
                "it makes progress: its queues started {} in {looked}",
                count(moved, "packet")
            ),
        );
    }
    let busiest = answer
        .threads
        .iter()
        .filter(|thread| thread.is_runtimes.is_none())
        .max_by(|a, b| a.processor.total_cmp(&b.processor))
        .filter(|thread| thread.processor > RUNS);
    let queues = match answer.queues.len() {
        0 => "no queue was found".to_owned(),
        1 => "its queue has no work".to_owned(),
        more => format!("none of its {more} queues has work"),
    };
    match busiest {
        Some(thread) => {
            let mut told = reason(
                ReasonKind::Computing,
                format!(
                    "{queues}, and {} uses {:.0}% of a CPU",
                    thread_words(thread),
                    100.0 * thread.processor
                ),
            );
            told.thread = Some(thread.tid);
            told
        }
        None => reason(
            ReasonKind::Idle,
            format!("it is idle: {queues}, and no thread is in a call of a GPU runtime"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Lock, Runtime};

    fn answer(queues: Vec<Queue>, threads: Vec<Thread>) -> Answer {
        Answer {
            pid: 7,
            looked: Duration::from_secs(1),
            queues,
            threads,
            ..Answer::default()
        }
    }

    fn thread(tid: u32, name: &str) -> Thread {
        Thread {
            tid,
            name: name.to_owned(),
            state: 'S',
            ..Thread::default()
        }
    }

    fn first(answer: &Answer) -> (ReasonKind, String) {
        let told = of(answer).remove(0);
        (told.kind, told.what)
    }

    #[test]
    fn a_kernel_that_does_not_end_comes_before_what_waits_for_it() {
        let mut waits = thread(7, "main");
        waits.call = Some((Runtime::Hip, "hipStreamSynchronize".to_owned()));
        let run = Dispatch {
            kernel: Some("scale".to_owned()),
            at_least: Duration::from_secs(1),
            ..Dispatch::default()
        };
        let queue = Queue {
            number: 1,
            read: 1,
            written: 3,
            running: vec![run.clone()],
            front: Front::AfterAll {
                packet: 1,
                what: "scale".to_owned(),
            },
            ..Queue::default()
        };
        let told = of(&answer(vec![queue.clone()], vec![waits.clone()]));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (told[0].kind, told[0].what.as_str(), told[0].queue),
            (
                ReasonKind::Kernel,
                "queue 1: kernel scale has been running for 1.0 s or longer; 2 packets wait behind it",
                Some(1)
            )
        );
        // The same where nothing is queued: the host waits for something else.
        let (kind, what) = first(&answer(vec![Queue::default()], vec![waits]));
        assert_eq!(kind, ReasonKind::Host);
        assert_eq!(
            what,
            "thread 7 (main) is in HIP: hipStreamSynchronize, and no queue has work"
        );
    }

    #[test]
    fn barriers_say_who_would_let_them_pass() {
        let wait = |by: Vec<Completer>| Queue {
            number: 2,
            written: 1,
            front: Front::Signals {
                packet: 0,
                what: "a barrier".to_owned(),
                any: false,
                waits: vec![Wait {
                    signal: 0x9000,
                    value: Some(1),
                    by,
                }],
            },
            ..Queue::default()
        };
        let (kind, what) = first(&answer(vec![wait(Vec::new())], Vec::new()));
        assert_eq!(kind, ReasonKind::LostBarrier);
        assert!(what.starts_with(
            "queue 2: packet 0 (a barrier) waits for signal 0x9000 (value 1), which no packet of these queues completes"
        ), "{what}");
        let by = Completer {
            queue: 1,
            packet: 5,
            what: "scale".to_owned(),
            runs: true,
        };
        let (kind, what) = first(&answer(vec![wait(vec![by])], Vec::new()));
        assert_eq!(kind, ReasonKind::Barrier);
        assert!(
            what.ends_with("completed by scale on queue 1 (packet 5, which runs)"),
            "{what}"
        );
    }

    #[test]
    fn locks_and_rings_of_them() {
        let waits = |tid, holder| Thread {
            lock: Some(Lock {
                address: 0x1000,
                holder: Some(holder),
            }),
            ..thread(tid, "t")
        };
        let mut holder = thread(2, "worker");
        holder.call = Some((Runtime::Hip, "hipDeviceSynchronize".to_owned()));
        let (kind, what) = first(&answer(Vec::new(), vec![waits(1, 2), holder]));
        assert_eq!(kind, ReasonKind::Lock);
        assert_eq!(
            what,
            "thread 1 (t) waits for the lock at 0x1000, which thread 2 (worker) holds, which is in HIP: hipDeviceSynchronize"
        );
        let told = of(&answer(
            Vec::new(),
            vec![waits(2, 3), waits(3, 1), waits(1, 2)],
        ));
        let kinds: Vec<ReasonKind> = told.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [ReasonKind::Deadlock]);
        assert_eq!(
            told[0].what,
            "threads 1, 2, 3 are deadlocked on each other's locks"
        );
    }

    #[test]
    fn what_gets_on_and_what_has_nothing_to_do() {
        let moving = Queue {
            moved: 5,
            ..Queue::default()
        };
        assert_eq!(
            first(&answer(vec![moving], Vec::new())),
            (
                ReasonKind::Running,
                "it makes progress: its queues started 5 packets in 1.0 s".to_owned()
            )
        );
        let idle = first(&answer(vec![Queue::default()], vec![thread(7, "main")]));
        assert_eq!(idle.0, ReasonKind::Idle);
        let mut busy = thread(7, "main");
        busy.processor = 0.99;
        assert_eq!(
            first(&answer(Vec::new(), vec![busy])).0,
            ReasonKind::Computing
        );
        let mut stopped = thread(7, "main");
        stopped.state = 'T';
        assert_eq!(
            first(&answer(Vec::new(), vec![stopped])).0,
            ReasonKind::Stopped
        );
    }
}
