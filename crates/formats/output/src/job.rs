//! A session as the writers see it: the trace, its index, and names in the form that the user
//! wants.

use crate::code::Sampled;
use crate::counters::Counting;
use crate::events::Events;
use crate::formats::below::Below;
use crate::graphs::Graphs;
use crate::model::{Plan, Trace};
use crate::options::{AgentIndex, KernelNames};
use midair_agents::Agent;
use midair_record::event::{Kernel, PcSample};
use midair_trace::api::Names;
use midair_trace::cuda::devices::{self, Agents};
use midair_trace::index::Index;
use midair_trace::kernel_name::{Namer, UNSEEN_KERNEL};
use midair_trace::limits;
use midair_trace::range_names::Renamed;
use midair_trace::samples;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The parts of an agent's name.
pub(crate) struct AgentName {
    /// "Agent", or its type.
    pub(crate) label: &'static str,
    pub(crate) index: i64,
    /// "CPU", "GPU", or "UNK" of an unknown one.
    pub(crate) of_type: &'static str,
}

/// The names of a session's kernels.
#[derive(Debug)]
pub struct KernelLabels<'a> {
    index: &'a Index,
    /// Those that have a name in the form that is wanted ([`Namer`]).
    named: HashMap<u64, String>,
}

impl<'a> KernelLabels<'a> {
    /// Makes the names in this form.
    pub fn new(index: &'a Index, form: KernelNames) -> KernelLabels<'a> {
        let mut namer = Namer::new(form);
        let named = index
            .symbols
            .iter()
            .filter_map(|(id, symbol)| Some((*id, namer.name(&symbol.name)?)))
            .collect();
        KernelLabels { index, named }
    }

    /// Returns the name of a kernel with a description, or the symbol itself where it was given no
    /// name.
    fn known(&self, id: u64) -> Option<Cow<'_, str>> {
        match self.named.get(&id) {
            Some(name) => Some(Cow::Borrowed(name)),
            None => Some(limits::text(&self.index.symbols.get(&id)?.name)),
        }
    }

    /// Returns the name of a dispatch's kernel. Where its symbol was never seen, the name is made
    /// of the kernel object's address, so that different kernels stay different.
    pub fn of(&self, kernel: &Kernel) -> Cow<'_, str> {
        match self.known(kernel.kernel_id) {
            Some(name) => name,
            // CUDA's kernels have no such address.
            None if kernel.kernel_object == 0 && self.index.is_cuda() => {
                Cow::Owned(format!("unknown_kernel#{}", kernel.kernel_id))
            }
            None => Cow::Owned(format!("unknown_kernel@{:#x}", kernel.kernel_object)),
        }
    }
}

/// A trace with its index.
pub(crate) struct Job<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) index: &'a Index,
    pub(crate) names: &'a Names,
    pub(crate) plan: &'a Plan,
    /// The machine's agents, and those that were described by records.
    agents: Agents<'a>,
    /// The names of kernels in the form that the user wants.
    kernels: KernelLabels<'a>,
    /// The counters, and which windows have values for them.
    pub(crate) counting: Counting,
    /// What the values of counters show, in words ([`counter_findings::of`](crate::counter_findings::of)).
    /// Several formats ask for it.
    pub(crate) findings: OnceLock<Vec<String>>,
    /// The ranges after which kernels are named, where the user asked for that.
    pub(crate) renamed: Option<Renamed>,
    /// Where kernels are in memory.
    pub(crate) code: samples::Kernels,
    sampled: OnceLock<Sampled>,
    below: OnceLock<Below>,
    /// Launches of HIP's graphs, and their kernels.
    pub(crate) graphs: Graphs,
    /// Records of HIP's events and waits for them, and their barriers.
    pub(crate) events: Events,
}

impl<'a> Job<'a> {
    pub(crate) fn new(trace: &'a Trace, names: &'a Names, plan: &'a Plan) -> Job<'a> {
        let index = trace.records.index();
        let kernels = KernelLabels::new(index, plan.kernel_names);
        let agents = if index.is_cuda() {
            Agents::of_cuda(&trace.agents, &index.cuda.devices)
        } else {
            Agents::of_machine(&trace.agents)
        };
        let counting = Counting::of(trace, |node| agents.get(node).cloned());
        Job {
            code: samples::Kernels::of(index.symbols.values().map(|it| &it.record)),
            sampled: OnceLock::new(),
            below: OnceLock::new(),
            graphs: Graphs::read(trace),
            events: Events::read(trace),
            renamed: plan
                .rename_kernels
                .then(|| match trace.known.ranges.is_empty() {
                    true => Renamed::read(&trace.records),
                    false => Renamed::given(&trace.known.ranges, &trace.records),
                }),
            counting,
            trace,
            index,
            names,
            plan,
            agents,
            kernels,
            findings: OnceLock::new(),
        }
    }

    /// Returns the name of a kernel by its id.
    pub(crate) fn name_of_kernel(&self, id: u64) -> Cow<'_, str> {
        self.kernels
            .known(id)
            .unwrap_or(Cow::Borrowed(UNSEEN_KERNEL))
    }

    /// Returns the sampled instructions.
    pub(crate) fn sampled(&self) -> &Sampled {
        self.sampled.get_or_init(|| {
            Sampled::read(&self.trace.records, |sample| {
                let (instruction, comment) = self.instruction(sample);
                (instruction.into_owned(), comment.into_owned())
            })
        })
    }

    /// Returns the samples of kernels, for flame graphs.
    pub(crate) fn below(&self) -> &Below {
        self.below.get_or_init(|| Below::read(self))
    }

    /// Returns a sampled instruction as text, and its line in the sources. Without a disassembler the
    /// instruction is a place: the kernel and the offset in it, as debuggers write it.
    pub(crate) fn instruction(&self, sample: &PcSample) -> (Cow<'_, str>, Cow<'_, str>) {
        let known = self.index.instructions.of(sample);
        let line = known.map_or("", |text| text.line.as_str());
        let text = known.map_or("", |text| text.instruction.as_str());
        if !text.is_empty() {
            return (Cow::Borrowed(text), Cow::Borrowed(line));
        }
        let place = match self.code.find(sample.code_object_id, sample.pc) {
            Some((id, offset)) => format!("{}+{offset:#x}", self.name_of_kernel(id)),
            None => format!("{:#x}", sample.pc),
        };
        (Cow::Owned(place), Cow::Borrowed(line))
    }

    /// Returns all agents.
    pub(crate) fn agents(&self) -> &[Agent] {
        self.agents.all()
    }

    /// Returns the number of the node that a record names. A KFD node has the same number.
    pub(crate) fn node(&self, named: u32) -> u32 {
        self.agents.node(named)
    }

    /// Returns the agent that a record names, by KFD node, as a CUDA device, or as the host of a
    /// CUDA process.
    pub(crate) fn agent(&self, named: u32) -> Option<&Agent> {
        self.agents.get(named)
    }

    /// Returns the agent that the kernel driver knows by this id. The id 0 is the host.
    pub(crate) fn agent_of_driver(&self, id: u32) -> Option<&Agent> {
        let mut all = self.agents.all().iter();
        all.find(|agent| agent.gpu_id == u64::from(id))
    }

    /// Returns the handle of the agent that a record names, or 0 when the agent is not known.
    pub(crate) fn handle(&self, node: u32) -> u64 {
        self.agent(node).map_or(0, |agent| agent.handle)
    }

    /// Returns "Agent 1" or "GPU 0", as the user asked for it.
    pub(crate) fn agent_name(&self, node: u32) -> String {
        let agent = self.agent_index(node);
        format!("{} {}", agent.label, agent.index)
    }

    /// Returns the parts of an agent's name.
    pub(crate) fn agent_index(&self, node: u32) -> AgentName {
        let agent = self.agent(node);
        if agent.is_none()
            && let Some(ordinal) = devices::ordinal(node)
        {
            // A CUDA device without a description.
            return AgentName {
                label: "Device",
                index: i64::from(ordinal),
                of_type: "GPU",
            };
        }
        let of_type = agent.map_or("UNK", |agent| agent.agent_type.text());
        let (label, index) = match (agent, self.plan.agent_index) {
            (Some(agent), AgentIndex::Relative) => ("Agent", i64::from(agent.logical_node_id)),
            (Some(agent), AgentIndex::TypeRelative) => {
                (of_type, i64::from(agent.logical_node_type_id))
            }
            (_, AgentIndex::Absolute) | (None, _) => ("Agent", i64::from(self.node(node))),
        };
        AgentName {
            label,
            index,
            of_type,
        }
    }

    /// Returns the name of a kernel by its id.
    pub(crate) fn kernel_name_by_id(&self, id: u64) -> Cow<'_, str> {
        self.kernels
            .known(id)
            .unwrap_or(Cow::Borrowed(UNSEEN_KERNEL))
    }

    /// Whether a kernel with a description has a name of its own.
    pub(crate) fn is_named(&self, id: u64) -> bool {
        self.kernels.named.contains_key(&id)
    }

    /// Returns the name of a dispatch: the name of the range in which it was launched, or of its
    /// kernel where there is none or no such name is wanted.
    pub(crate) fn dispatch_name(&self, kernel: &Kernel) -> Cow<'_, str> {
        match self.renamed.as_ref().and_then(|renamed| renamed.of(kernel)) {
            Some((_, message)) => Cow::Borrowed(message),
            None => self.kernel_name(kernel),
        }
    }

    /// Returns the name of a dispatch's kernel ([`KernelLabels::of`]).
    pub(crate) fn kernel_name(&self, kernel: &Kernel) -> Cow<'_, str> {
        self.kernels.of(kernel)
    }
}

/// Returns an address as AMD's files have it, with all its digits.
pub(crate) fn address(address: u64) -> String {
    format!("{address:#018x}")
}
