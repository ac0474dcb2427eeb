//! What `midair attach` shows at its end: who was recorded and for how long, what each GPU did,
//! what was lost, what the recording cost, where the results are, and tables of where the time
//! went. It is text ([`Screen::text`]), or one JSON document with the same contents
//! ([`Screen::json`]).
//!
//! Everything comes from the index, so no further pass over the records is needed. The caller
//! provides the tables of counters.

mod heading;
mod json;
mod open;
mod stacks;
mod steps;

pub use crate::model::Cost;
pub(crate) use json::head;
pub(crate) use steps::{phase as phase_of_loop, place as place_of_loop};

use crate::burst_report::BurstReport;
use crate::counter_report::CounterReport;
use crate::model::Trace;
use crate::options::KernelNames;
use crate::table::{LabelledIndex, Section, Style, sections};
use midair_agents::AgentType;
use midair_trace::activity::Shares;
use midair_trace::api::Names;
use midair_trace::bursts::Coverage;
use midair_trace::cuda::devices::{Agents, ordinal};
use midair_trace::index::{Index, StackSummary};
use midair_trace::steps::MainLoop;
use stacks::StackReport;
use std::path::PathBuf;

/// A GPU of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// "GPU 0", by its number among the machine's GPUs.
    pub name: String,
    /// What it is: "gfx942", "NVIDIA H100".
    pub model: String,
    /// How it spent the session.
    pub shares: Shares,
    /// Whether `shares.waited` could be seen at all. Without recorded calls it could not.
    pub sees_waits: bool,
}

/// One session, as shown above the tables.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// The process as the user knows it.
    pub pid: u32,
    /// Command line.
    pub command: Vec<String>,
    /// Name of the machine.
    pub host: String,
    /// When it started, in local time for people, or empty where that is not known.
    pub began: String,
    /// The duration of the session in nanoseconds.
    pub time: u64,
    /// For how much of it there are records. The shares of GPUs are of this time.
    pub recorded: u64,
    /// How it ended, if that was unusual.
    pub outcome: Option<String>,
    /// The number of records that are kept.
    pub records: u64,
    /// The records that were lost: what they were, and how many.
    pub lost: Vec<(String, u64)>,
    /// The number of dispatches and copies without times. They are in no share of a GPU.
    pub untimed: u64,
    /// What it cost.
    pub cost: Cost,
    /// What the stacks of launches cost the threads that launch.
    pub stacks: Option<StackSummary>,
    /// GPUs that did something in it.
    pub gpus: Vec<Gpu>,
    /// GPUs of the machine that did nothing in it.
    pub idle_gpus: usize,
    /// How much of it was recorded, where only bursts were.
    pub coverage: Option<Coverage>,
    /// The main loop of the program, where one was found, and when the session started, ns.
    pub main_loop: Option<(MainLoop, u64)>,
}

impl Head {
    /// Makes the head for a session.
    pub fn of(trace: &Trace) -> Head {
        let index = trace.records.index();
        let process = &trace.process;
        let (from, to) = (process.init_time, process.fini_time);
        let covered = to.saturating_sub(from);
        let unrecorded = trace.attach.unrecorded_ns.min(covered);
        let agents = match index.is_cuda() {
            true => Agents::of_cuda(&trace.agents, &index.cuda.devices),
            false => Agents::of_machine(&trace.agents),
        };
        let mut lost = trace.lost.clone();
        if index.unseen() > 0 {
            lost.push(("packets of queues".to_owned(), index.unseen()));
        }
        let coverage = index.bursts.coverage();
        let mut gpus = Vec::new();
        for node in index.activity.nodes() {
            let agent = agents.get(node);
            let is_gpu = match agent {
                Some(agent) => agent.agent_type == AgentType::Gpu,
                None => ordinal(node).is_some() || index.activity.has_kernels(node),
            };
            // What a GPU did between bursts is not known: a gap there is not idle time.
            if !is_gpu || coverage.is_some() {
                continue;
            }
            let number = agent.map_or_else(
                || i64::from(ordinal(node).unwrap_or(node)),
                |agent| i64::from(agent.logical_node_type_id),
            );
            let model = agent.map_or("", |agent| match agent.name.as_str() {
                "" => agent.product_name.as_str(),
                name => name,
            });
            gpus.push(Gpu {
                name: format!("GPU {number}"),
                model: model.to_owned(),
                shares: index.activity.shares(node, from, to).without(unrecorded),
                sees_waits: index.activity.sees_waits(),
            });
        }
        let main_loop = trace.main_loop().map(|found| (found, from));
        let all = agents.all().iter();
        let all = all
            .filter(|agent| agent.agent_type == AgentType::Gpu)
            .count();
        Head {
            pid: trace.attach.pid.unwrap_or(process.pid),
            command: process.command.clone(),
            host: process.node.hostname.clone(),
            began: trace.attach.began.clone(),
            time: trace.attach.session_ns.unwrap_or(covered),
            recorded: covered - unrecorded,
            outcome: (!trace.outcome.ordinary).then(|| trace.outcome.text.clone()),
            records: trace.records.records(),
            lost,
            untimed: index.untimed.values().sum(),
            cost: trace.attach.cost,
            stacks: index.stacks.summary(),
            idle_gpus: match coverage {
                Some(_) => 0,
                None => all.saturating_sub(gpus.len()),
            },
            gpus,
            coverage,
            main_loop,
        }
    }
}

/// One of the sessions on a screen.
#[derive(Debug)]
pub struct Session<'a> {
    /// The process in words.
    pub label: String,
    /// What is shown above the tables.
    pub head: Head,
    /// The index from which the tables are made.
    pub index: &'a Index,
}

/// Everything that is shown.
#[derive(Debug, Clone, Default)]
pub struct Screen {
    heads: Vec<Head>,
    sections: Vec<Section>,
    /// What bursts tell about the whole time, and the labels of their processes.
    bursts: Vec<(String, BurstReport)>,
    /// What is shown of counters.
    counters: CounterReport,
    stacks: StackReport,
    files: Vec<PathBuf>,
    warnings: Vec<String>,
}

impl Screen {
    /// Makes the screen for these sessions, one or more, whose results are in these files.
    pub fn new(
        sessions: Vec<Session<'_>>,
        names: &Names,
        kernel_names: KernelNames,
        files: &[PathBuf],
    ) -> Screen {
        let of: Vec<LabelledIndex<'_>> = sessions
            .iter()
            .map(|session| LabelledIndex {
                label: session.label.clone(),
                index: session.index,
            })
            .collect();
        let bursts = sessions.iter().filter_map(|session| {
            let Session { label, head, index } = session;
            let report = BurstReport::of(head.pid, index, head.time, kernel_names)?;
            Some((label.clone(), report))
        });
        Screen {
            stacks: StackReport::of(&sessions, names, kernel_names),
            bursts: bursts.collect(),
            sections: sections(&of, names, kernel_names),
            heads: sessions.into_iter().map(|session| session.head).collect(),
            counters: CounterReport::default(),
            files: files.to_vec(),
            warnings: Vec::new(),
        }
    }

    /// Adds what is shown of counters.
    #[must_use]
    pub fn with_counters(mut self, counters: CounterReport) -> Screen {
        self.counters = counters;
        self
    }

    /// Adds what the user should know, and why the results are incomplete, if they are. Both are in
    /// the JSON document.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[String], incomplete: Option<&str>) -> Screen {
        self.warnings = warnings.to_vec();
        self.warnings.extend(incomplete.map(str::to_owned));
        self
    }

    /// Returns the screen as text for a terminal or a file. Empty where there was no session.
    pub fn text(&self, style: Style) -> String {
        let heading = heading::heading(&self.heads, &self.files, style);
        let tables = self.sections.iter().map(|section| section.text(style));
        let label = |label| (self.heads.len() > 1).then_some(label);
        let bursts = self.bursts.iter();
        let bursts = bursts.map(|(of, report)| report.text(label(of.as_str()), style));
        let all = std::iter::once(heading).chain(bursts).chain(tables);
        let all = all.chain(std::iter::once(self.counters.text.clone()));
        let all: Vec<String> = all.filter(|part| !part.is_empty()).collect();
        all.join("\n")
    }
}

#[cfg(test)]
mod tests;
