//! Answers as lines of text.

use midair_output::demangled;

use crate::answer::{Answer, Dispatch, Front, Queue, Thread};
use crate::reasons::{completer, count, kernel, time, wait_words};
use crate::tree::{Ranks, who};

/// The most frames of one stack that are shown.
const FRAMES: usize = 24;
/// The most threads that are shown only for their Python frames.
const PYTHONS: usize = 16;
/// A thread that takes more of a processor than this is shown.
const RUNS: f64 = 0.2;

/// Returns a line with this heading.
fn row(head: &str, text: &str) -> String {
    format!("{head:<9} {text}")
}

/// The answer about one process.
pub fn lines(answer: &Answer) -> Vec<String> {
    let mut lines = vec![row(
        "PROCESS",
        &format!("{}, looked at for {}", who(answer), time(answer.looked)),
    )];
    for (index, reason) in answer.reasons.iter().enumerate() {
        lines.push(row(if index == 0 { "WHY" } else { "" }, &reason.what));
    }
    for queue in &answer.queues {
        queue_lines(queue, &mut lines);
    }
    let (mut shown, mut pythons) = (0, 0);
    for (index, thread) in answer.threads.iter().enumerate() {
        let is_told = index == 0 || tells(thread, answer);
        if !is_told {
            pythons += usize::from(!thread.python.is_empty());
        }
        if is_told || (!thread.python.is_empty() && pythons <= PYTHONS) {
            thread_lines(thread, is_told, &mut lines);
            shown += 1;
        }
    }
    let others = answer.threads.len() - shown;
    let own = answer
        .threads
        .iter()
        .filter(|thread| thread.is_runtimes.is_some())
        .count();
    if others > 0 {
        lines.push(row(
            "THREADS",
            &format!(
                "{} more, {own} of them runtime threads: none is in a GPU runtime call or waits for a lock (--json lists all)",
                others
            ),
        ));
    }
    for note in &answer.notes {
        lines.push(row("NOTE", note));
    }
    lines
}

/// Whether showing a thread helps to understand the answer.
fn tells(thread: &Thread, answer: &Answer) -> bool {
    let holds = |other: &Thread| {
        let lock = other.lock.as_ref();
        lock.is_some_and(|lock| lock.holder == Some(thread.tid))
    };
    thread.call.is_some()
        || thread.lock.is_some()
        || (thread.is_runtimes.is_none() && thread.processor > RUNS)
        || answer.threads.iter().any(holds)
}

fn sizes(of: [u32; 3]) -> String {
    of.map(|size| size.to_string()).join("x")
}

fn running(dispatch: &Dispatch) -> String {
    let for_how_long = match (dispatch.may_have_ended, dispatch.at_least.is_zero()) {
        (true, _) => "unknown whether it has finished".to_owned(),
        (false, true) => "started while midair looked".to_owned(),
        (false, false) => format!("for {} or longer", time(dispatch.at_least)),
    };
    format!(
        "{} {for_how_long}, packet {}, grid {}, workgroup {}",
        kernel(dispatch),
        dispatch.packet,
        sizes(dispatch.grid),
        sizes(dispatch.workgroup)
    )
}

fn queue_lines(queue: &Queue, lines: &mut Vec<String>) {
    let waiting = queue.written.saturating_sub(queue.read);
    let gpu = queue
        .gpu_id
        .map_or_else(String::new, |id| format!("GPU {id}, "));
    let moved = match queue.moved {
        0 => "none started while midair looked".to_owned(),
        moved => format!("{moved} started while midair looked"),
    };
    lines.push(row(
        &format!("QUEUE {}", queue.number),
        &format!(
            "{gpu}{} of {} wait, {moved}",
            count(waiting, "packet"),
            queue.size
        ),
    ));
    for dispatch in &queue.running {
        lines.push(row("", &format!("runs      {}", running(dispatch))));
    }
    match &queue.front {
        Front::Empty => {}
        Front::Unwritten { packet } => lines.push(row(
            "",
            &format!("in front  packet {packet}, reserved but not written"),
        )),
        Front::AfterAll { packet, what } => lines.push(row(
            "",
            &format!("in front  {what}, packet {packet}: waits for all packets before it"),
        )),
        Front::Free { packet, what } => lines.push(row(
            "",
            &format!("in front  {what}, packet {packet}: no visible dependency blocks it"),
        )),
        Front::Signals {
            packet,
            what,
            any,
            waits,
        } => {
            let how = if *any { "one of these" } else { "all of these" };
            lines.push(row(
                "",
                &format!("in front  {what}, packet {packet}: waits for {how}"),
            ));
            for wait in waits {
                lines.push(row("", &format!("          {}", wait_words(wait))));
                for by in wait.by.iter().skip(1) {
                    lines.push(row("", &format!("            or {}", completer(by))));
                }
            }
        }
    }
}

/// Returns the name of a function as people read it. Rust's older symbols are C++ names that end in
/// a hash.
fn plain_name(symbol: &str) -> String {
    let name = demangled(symbol);
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    match name.rsplit_once("::h") {
        Some((path, hash)) if is_hash(hash) => path.to_owned(),
        _ => name,
    }
}

/// Adds the lines of a thread, with its native stack where that is useful.
fn thread_lines(thread: &Thread, with_native: bool, lines: &mut Vec<String>) {
    let does = match (&thread.call, &thread.lock) {
        (_, Some(lock)) => match lock.holder {
            Some(holder) => format!("waits for a lock that thread {holder} holds"),
            None => "waits for a lock".to_owned(),
        },
        (Some((runtime, call)), None) => format!("in {}: {call}", runtime.name()),
        (None, None) => match thread.state {
            'R' => "runs".to_owned(),
            'D' => "is in uninterruptible sleep".to_owned(),
            'T' | 't' => "is stopped".to_owned(),
            _ => "sleeps".to_owned(),
        },
    };
    let share = match thread.processor > RUNS {
        true => format!(", {:.0}% of a processor", 100.0 * thread.processor),
        false => String::new(),
    };
    lines.push(row(
        "THREAD",
        &format!("{} {}  {does}{share}", thread.tid, thread.name),
    ));
    let native = if with_native {
        thread.frames.as_slice()
    } else {
        &[]
    };
    for (index, frame) in native.iter().take(FRAMES).enumerate() {
        let module = frame.module.as_deref().unwrap_or("?");
        let function = match (&frame.function, &frame.module) {
            (Some(symbol), _) => plain_name(symbol),
            (None, Some(_)) => format!("+{:#x}", frame.offset),
            (None, None) => format!("{:#x}", frame.address),
        };
        lines.push(row("", &format!("{index:>3} {function} [{module}]")));
    }
    if let Some(more) = native.len().checked_sub(FRAMES + 1) {
        lines.push(row("", &format!("    and {} more", more + 1)));
    }
    for (index, frame) in thread.python.iter().take(FRAMES).enumerate() {
        let line = frame
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        let head = if index == 0 { "python" } else { "" };
        lines.push(row(
            "",
            &format!("{head:>6}  {} ({}{line})", frame.function, frame.file),
        ));
    }
}

impl Ranks {
    /// Returns what the answers say together, and each by itself.
    pub fn lines(&self) -> Vec<String> {
        let mut all = Vec::new();
        for sentence in self.sentences() {
            all.push(row("RANKS", &sentence));
        }
        for answer in &self.answers {
            if !all.is_empty() {
                all.push(String::new());
            }
            all.extend(lines(answer));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Reason, ReasonKind, Runtime};
    use crate::python;
    use crate::threads::Frame;
    use std::time::Duration;

    #[test]
    fn one_answer_as_text() {
        let answer = Answer {
            pid: 77,
            name: "train".to_owned(),
            looked: Duration::from_secs(1),
            reasons: vec![Reason {
                kind: ReasonKind::Kernel,
                what: "queue 1: kernel scale has been running".to_owned(),
                queue: Some(1),
                thread: None,
            }],
            queues: vec![Queue {
                number: 1,
                size: 64,
                read: 1,
                written: 3,
                running: vec![Dispatch {
                    kernel: Some("scale".to_owned()),
                    grid: [64, 1, 1],
                    workgroup: [64, 1, 1],
                    at_least: Duration::from_secs(1),
                    ..Dispatch::default()
                }],
                front: Front::AfterAll {
                    packet: 1,
                    what: "vadd".to_owned(),
                },
                ..Queue::default()
            }],
            threads: vec![
                Thread {
                    tid: 77,
                    name: "train".to_owned(),
                    state: 'S',
                    call: Some((Runtime::Hip, "hipStreamSynchronize".to_owned())),
                    frames: [
                        (Some("ioctl"), Some("libc.so.6")),
                        (None, Some("libc.so.6")),
                        (
                            Some("_ZN3hip6stream4wait17had9034e984c3e31cE"),
                            Some("a.so"),
                        ),
                        (Some("_ZN2nn5trainEi"), Some("train")),
                        (None, None),
                    ]
                    .map(|(function, module)| Frame {
                        address: 0x7000,
                        function: function.map(str::to_owned),
                        module: module.map(str::to_owned),
                        offset: 0x8a2b4,
                    })
                    .to_vec(),
                    python: vec![python::Frame {
                        function: "step".to_owned(),
                        file: "train.py".to_owned(),
                        line: Some(5),
                    }],
                    ..Thread::default()
                },
                Thread {
                    tid: 78,
                    is_runtimes: Some(Runtime::Hsa),
                    ..Thread::default()
                },
            ],
            notes: vec!["a note".to_owned()],
            ..Answer::default()
        };
        assert_eq!(
            lines(&answer),
            [
                "PROCESS   process 77 (train), looked at for 1.0 s",
                "WHY       queue 1: kernel scale has been running",
                "QUEUE 1   2 packets of 64 wait, none started while midair looked",
                "          runs      scale for 1.0 s or longer, packet 0, grid 64x1x1, workgroup 64x1x1",
                "          in front  vadd, packet 1: waits for all packets before it",
                "THREAD    77 train  in HIP: hipStreamSynchronize",
                "            0 ioctl [libc.so.6]",
                "            1 +0x8a2b4 [libc.so.6]",
                "            2 hip::stream::wait [a.so]",
                "            3 nn::train(int) [train]",
                "            4 0x7000 [?]",
                "          python  step (train.py:5)",
                "THREADS   1 more, 1 of them runtime threads: none is in a GPU runtime call or waits for a lock (--json lists all)",
                "NOTE      a note",
            ]
        );
    }
}
