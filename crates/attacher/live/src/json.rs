//! A snapshot as a JSON document.

use crate::code::Line;
use crate::gauge::Counter;
use crate::snapshot::{Call, Copies, Device, Kernel, Queue, Snapshot};
use midair_output::Stat;
use serde_json::{Value, json};

/// The name and version of the document. New fields do not change the version; every other change
/// does.
pub const SCHEMA: &str = "midair.top/1";

impl Snapshot {
    /// Returns the snapshot as a document. Names that end in `_ns` are nanoseconds, times are
    /// CLOCK_BOOTTIME, shares lie between 0 and 1, and rates are per second.
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "schema": SCHEMA,
            "pid": self.pid,
            "name": self.name,
            "since_ns": self.since,
            "now_ns": self.now,
            "window_ns": self.window,
            "records": self.records,
            "records_rate": self.records_rate,
            "lost": self.lost,
            "untimed": self.untimed,
            "kept_bytes": self.kept_bytes,
            "worker_share": self.worker,
            "ended": self.ended,
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "kernels": self.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "calls": self.calls.iter().map(call).collect::<Vec<_>>(),
            "copies": self.copies.iter().map(copies).collect::<Vec<_>>(),
            "queues": self.queues.iter().map(queue).collect::<Vec<_>>(),
            "counters": self.counters.iter().map(counter).collect::<Vec<_>>(),
        });
        // Without --stacks there are no such members.
        if let Some(lines) = &self.code {
            document["code"] = lines.iter().map(line).collect();
        }
        if let Some(why) = &self.no_stacks {
            document["no_stacks"] = why.as_str().into();
        }
        document
    }
}

fn device(device: &Device) -> Value {
    let idle = device.idle;
    json!({
        "node": device.node,
        "gpu": device.gpu,
        "window_ns": device.window,
        "busy": device.busy,
        "idle": {
            "copies": idle.copies,
            "launching": idle.launching,
            "waiting": idle.waiting,
            "nothing_queued": idle.nothing,
        },
    })
}

fn total(stat: &Stat) -> Value {
    let (min, max) = match stat.calls {
        0 => (0, 0),
        _ => (stat.min, stat.max),
    };
    json!({ "count": stat.calls, "total_ns": stat.total, "min_ns": min, "max_ns": max })
}

fn kernel(kernel: &Kernel) -> Value {
    let mut members = json!({
        "name": kernel.name,
        "symbol": kernel.symbol,
        "share": kernel.share,
        "share_before": kernel.before,
        "rate": kernel.rate,
        "all": total(&kernel.total),
        "median_ns": kernel.histogram.quantile(0.5),
    });
    if let Some(hottest) = &kernel.hottest {
        members["hottest"] = json!({
            "offset": hottest.offset,
            "samples": hottest.count,
            "kernel_samples": hottest.all,
        });
    }
    members
}

fn line(line: &Line) -> Value {
    json!({
        "name": line.code.name,
        "file": line.code.file,
        "line": line.code.line,
        "function": line.code.function,
        "share": line.share,
        "share_before": line.before,
        "rate": line.rate,
        "all": total(&line.total),
        "median_ns": line.histogram.quantile(0.5),
    })
}

fn call(call: &Call) -> Value {
    json!({
        "name": call.name,
        "waits": call.waits,
        "rate": call.rate,
        "threads": call.threads,
        "all": total(&call.total),
    })
}

fn copies(copies: &Copies) -> Value {
    json!({
        "direction": copies.name,
        "bytes_rate": copies.rate,
        "bytes": copies.bytes,
        "all": total(&copies.total),
    })
}

fn counter(counter: &Counter) -> Value {
    json!({
        "gpu": counter.gpu,
        "name": counter.name,
        "unit": counter.unit,
        "mean": counter.mean,
        "readings": counter.readings,
    })
}

fn queue(queue: &Queue) -> Value {
    let head = queue.head.as_ref().map(|head| {
        json!({
            "kernel": head.name,
            "dispatch": head.dispatch,
            "age_ns": head.age,
            "under_way": head.under_way,
        })
    });
    json!({ "queue": queue.id, "node": queue.node, "gpu": queue.gpu, "ended": queue.ended, "in_flight": head })
}
