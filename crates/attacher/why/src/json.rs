//! Answers as JSON documents.

use crate::answer::{Answer, Completer, Dispatch, Front, Queue, Reason, Thread, Wait};
use crate::tree::Ranks;
use serde_json::{Value, json};

/// The name and version of the document about one process. New fields do not change the version;
/// every other change does.
pub const SCHEMA: &str = "midair.why/1";
/// The name and version of the document about several processes.
pub const SCHEMA_TREE: &str = "midair.why.tree/1";

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Answer {
    /// Returns the answer as a document. Names that end in `_ns` are nanoseconds, signals and
    /// addresses are numbers, and shares lie between 0 and 1.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "pid": self.pid,
            "name": self.name,
            "rank": self.rank,
            "looked_ns": nanos(self.looked),
            "took_ns": nanos(self.took),
            "reasons": self.reasons.iter().map(reason).collect::<Vec<_>>(),
            "queues": self.queues.iter().map(queue).collect::<Vec<_>>(),
            "threads": self.threads.iter().map(thread).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

impl Ranks {
    /// Returns the answers as a document: what they say together, and each by itself. `late` holds
    /// pids.
    pub fn to_json(&self) -> Value {
        let late = self.late();
        let pids: Vec<u32> = late
            .iter()
            .filter_map(|index| Some(self.answers.get(*index)?.pid))
            .collect();
        json!({
            "schema": SCHEMA_TREE,
            "late": pids,
            "sentences": self.sentences(),
            "processes": self.answers.iter().map(Answer::to_json).collect::<Vec<_>>(),
        })
    }
}

fn reason(reason: &Reason) -> Value {
    json!({
        "kind": reason.kind.name(),
        "what": reason.what,
        "queue": reason.queue,
        "thread": reason.thread,
    })
}

fn queue(queue: &Queue) -> Value {
    json!({
        "queue": queue.number,
        "id": queue.id,
        "address": queue.address,
        "gpu_id": queue.gpu_id,
        "size": queue.size,
        "read_index": queue.read,
        "write_index": queue.written,
        "moved": queue.moved,
        "running": queue.running.iter().map(dispatch).collect::<Vec<_>>(),
        "front": front(&queue.front),
    })
}

fn dispatch(dispatch: &Dispatch) -> Value {
    json!({
        "packet": dispatch.packet,
        "kernel": dispatch.kernel,
        "symbol": dispatch.symbol,
        "kernel_object": dispatch.kernel_object,
        "grid": dispatch.grid,
        "workgroup": dispatch.workgroup,
        "signal": dispatch.signal.map(|(handle, value)| json!({"handle": handle, "value": value})),
        "at_least_ns": nanos(dispatch.at_least),
        "may_have_ended": dispatch.may_have_ended,
    })
}

fn front(front: &Front) -> Value {
    match front {
        Front::Empty => json!({"state": "empty"}),
        Front::Unwritten { packet } => json!({"state": "unwritten", "packet": packet}),
        Front::AfterAll { packet, what } => {
            json!({"state": "after_all_before_it", "packet": packet, "what": what})
        }
        Front::Free { packet, what } => {
            json!({"state": "not_taken", "packet": packet, "what": what})
        }
        Front::Signals {
            packet,
            what,
            any,
            waits,
        } => json!({
            "state": "signals",
            "packet": packet,
            "what": what,
            "one_is_enough": any,
            "waits": waits.iter().map(wait).collect::<Vec<_>>(),
        }),
    }
}

fn wait(wait: &Wait) -> Value {
    json!({
        "signal": wait.signal,
        "value": wait.value,
        "completed_by": wait.by.iter().map(completer).collect::<Vec<_>>(),
    })
}

fn completer(by: &Completer) -> Value {
    json!({"queue": by.queue, "packet": by.packet, "what": by.what, "runs": by.runs})
}

fn thread(thread: &Thread) -> Value {
    let call = thread
        .call
        .as_ref()
        .map(|(runtime, function)| json!({"runtime": runtime.name(), "function": function}));
    let lock = thread
        .lock
        .as_ref()
        .map(|lock| json!({"address": lock.address, "holder": lock.holder}));
    let frames = thread.frames.iter().map(|frame| {
        json!({"address": frame.address, "function": frame.function, "module": frame.module})
    });
    let python = thread
        .python
        .iter()
        .map(|frame| json!({"function": frame.function, "file": frame.file, "line": frame.line}));
    json!({
        "tid": thread.tid,
        "own_tid": thread.own_tid,
        "name": thread.name,
        "state": thread.state.to_string(),
        "processor_share": thread.processor,
        "call": call,
        "runtimes_own": thread.is_runtimes.map(crate::Runtime::name),
        "lock": lock,
        "frames": frames.collect::<Vec<_>>(),
        "whole": thread.rooted,
        "python": python.collect::<Vec<_>>(),
    })
}
