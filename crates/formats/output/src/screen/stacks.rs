//! Stacks and lines of code in the JSON document (`--stacks`).

use super::Session;
use crate::options::KernelNames;
use midair_domain::kind;
use midair_trace::api::Names;
use midair_trace::code::CodeLine;
use midair_trace::index::{Index, Sum, Work};
use midair_trace::kernel_name::{Namer, UNSEEN_KERNEL};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The most stacks in the document: those with the most time. rocpd has all.
const MOST_STACKS: usize = 1000;

/// The stacks of all sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct StackReport {
    /// The lines of the table of code, by the names that they have there.
    lines: HashMap<String, CodeLine>,
    /// The stacks with the most time, and how many more there are. None where no session takes stacks.
    stacks: Option<(Vec<Value>, usize)>,
}

impl StackReport {
    pub(super) fn of(
        sessions: &[Session<'_>],
        names: &Names,
        kernel_names: KernelNames,
    ) -> StackReport {
        let mut report = StackReport::default();
        let mut namer = Namer::new(kernel_names);
        let with = sessions.iter().filter(|it| it.index.stacks.is_on);
        let mut all: Vec<(&Session<'_>, (u32, Work, Sum))> = Vec::new();
        for session in with {
            all.extend(session.index.stacks.all().map(|sum| (session, sum)));
            report.stacks.get_or_insert_default();
        }
        all.sort_by_key(|(session, (stack, work, sum))| {
            (Reverse(sum.stat.total), session.head.pid, *stack, *work)
        });
        for (session, (stack, ..)) in &all {
            let line = CodeLine::of(&session.index.stacks, *stack);
            report.lines.entry(line.name.clone()).or_insert(line);
        }
        let left_out = all.len().saturating_sub(MOST_STACKS);
        let shown = all.into_iter().take(MOST_STACKS);
        let shown = shown.map(|(session, (stack, work, sum))| {
            let work = match work {
                Work::Kernel(id) => kernel(session.index, id, &mut namer),
                Work::Copy(direction) => names.operation(kind::MEMORY_COPY, direction).into_owned(),
            };
            json!({
                "process": session.head.pid,
                "frames": frames(session.index, stack),
                "work": work,
                "calls": sum.stat.calls,
                "total_ns": sum.stat.total,
            })
        });
        report.stacks = report.stacks.map(|_| (shown.collect(), left_out));
        report
    }

    /// Adds what the document says of a line to the row of the table of code with its name.
    pub(super) fn complete(&self, name: &str, row: &mut Value) {
        if let Some(line) = self.lines.get(name) {
            row["file"] = line.file.as_str().into();
            row["line"] = line.line.into();
            row["function"] = line.function.as_str().into();
        }
    }

    /// Adds the stacks to the document, this many at most.
    pub(super) fn put(&self, members: &mut Map<String, Value>, rows: usize) {
        let Some((stacks, left_out)) = &self.stacks else {
            return;
        };
        let shown: Vec<Value> = stacks.iter().take(rows).cloned().collect();
        let left_out = left_out + stacks.len() - shown.len();
        members.insert("stacks".to_owned(), shown.into());
        members.insert("stacks_left_out".to_owned(), left_out.into());
    }
}

fn kernel(index: &Index, id: u64, namer: &mut Namer) -> String {
    match index.symbols.get(&id) {
        Some(symbol) => namer.name_or_symbol(&symbol.name),
        None => UNSEEN_KERNEL.to_owned(),
    }
}

/// Returns the frames of a stack, the innermost first; none where there is no stack.
fn frames(index: &Index, stack: u32) -> Vec<Value> {
    let frames = index.stacks.frames(stack).into_iter().flatten();
    let frame = |(function, line): (&midair_trace::index::Function, u32)| json!({ "function": function.name, "file": function.file, "line": line });
    frames.map(frame).collect()
}
