//! The annotations of one event, as bytes from the first on. Most bytes of a trace are annotations,
//! and most of them have one of a few names: each of those has a place in a table, so that no text
//! is looked up for it.

use super::interner::Interner;
use super::messages::InternedString;
use super::wire;

/// A value of an annotation whose name is not in the table.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Uint(u64),
    Real(f64),
}

/// Makes the table of names.
macro_rules! keys {
    ($($key:ident = $text:literal,)*) => {
        /// The name of an annotation.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Key {
            $($key,)*
        }

        const TEXTS: &[&str] = &[$($text,)*];
    };
}

keys! {
    BeginNs = "begin_ns",
    EndNs = "end_ns",
    DeltaNs = "delta_ns",
    Tid = "tid",
    Kind = "kind",
    Operation = "operation",
    CorrId = "corr_id",
    AncestorId = "ancestor_id",
    OpenAtDetach = "open_at_detach",
    StreamId = "stream_ID",
    Result = "result",
    Pid = "pid",
    Address = "address",
    From = "from",
    To = "to",
    Count = "count",
    Agent = "agent",
    AgentType = "agent_type",
    Queue = "queue",
    KernelId = "kernel_id",
    ScratchSize = "Scratch_Size",
    LdsBlockSize = "LDS_Block_Size",
    VgprCount = "VGPR_Count",
    AccumVgprCount = "Accum_VGPR_Count",
    SgprCount = "SGPR_Count",
    WorkgroupSize = "workgroup_size",
    GridSize = "grid_size",
    SrcAgent = "src_agent",
    DstAgent = "dst_agent",
    CopyBytes = "copy_bytes",
    AllocationSize = "allocation_size",
    Flags = "flags",
    Version = "version",
    Instance = "instance",
    Untimed = "untimed",
    Device = "device",
    Graph = "graph",
    GraphNode = "graph_node",
    Kernels = "kernel_dispatch_count",
    HipEvent = "hip_event_handle",
    SourceQueue = "source_queue",
    Remark = "remark",
    Context = "context",
    CudaStream = "cuda_stream",
    StaticSharedMemory = "static_shared_memory",
    DynamicSharedMemory = "dynamic_shared_memory",
    SrcMemory = "src_memory",
    DstMemory = "dst_memory",
    Memory = "memory",
    Bytes = "bytes",
    Value = "value",
    Event = "event",
}

/// The annotations of the event under construction.
pub(super) struct Annotations {
    bytes: Vec<u8>,
    /// The numbers of the names in the table, from 1. A name without a number has 0.
    numbers: [u64; TEXTS.len()],
    interner: Interner,
    /// The names that got their numbers in this event.
    new: Vec<InternedString>,
}

impl Default for Annotations {
    fn default() -> Annotations {
        Annotations {
            bytes: Vec::new(),
            numbers: [0; TEXTS.len()],
            interner: Interner::default(),
            new: Vec::new(),
        }
    }
}

impl Annotations {
    /// Starts the annotations of another event.
    pub(super) fn begin(&mut self) -> &mut Annotations {
        self.bytes.clear();
        self
    }

    /// Returns their bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the names that have to be written with the event.
    pub(super) fn take_new(&mut self) -> Vec<InternedString> {
        std::mem::take(&mut self.new)
    }

    #[inline]
    fn number(&mut self, key: Key) -> u64 {
        match self.numbers.get(key as usize) {
            Some(number) if *number != 0 => *number,
            _ => self.first(key),
        }
    }

    /// Gives a name of the table its number.
    #[cold]
    fn first(&mut self, key: Key) -> u64 {
        let text = TEXTS.get(key as usize).copied().unwrap_or_default();
        let number = self.interner.number(&mut self.new, text);
        if let Some(known) = self.numbers.get_mut(key as usize) {
            *known = number;
        }
        number
    }

    #[inline]
    pub(super) fn uint(&mut self, key: Key, value: impl Into<u64>) -> &mut Annotations {
        let name = self.number(key);
        wire::uint(&mut self.bytes, name, value.into());
        self
    }

    #[inline]
    pub(super) fn int(&mut self, key: Key, value: i64) -> &mut Annotations {
        let name = self.number(key);
        wire::int(&mut self.bytes, name, value);
        self
    }

    pub(super) fn yes(&mut self, key: Key) -> &mut Annotations {
        let name = self.number(key);
        wire::yes(&mut self.bytes, name);
        self
    }

    pub(super) fn text(&mut self, key: Key, text: &str) -> &mut Annotations {
        let name = self.number(key);
        wire::text(&mut self.bytes, name, text);
        self
    }

    /// Adds one with the name of a counter or metric.
    pub(super) fn other(&mut self, name: &str, value: Value) -> &mut Annotations {
        let name = self.interner.number(&mut self.new, name);
        match value {
            Value::Uint(value) => wire::uint(&mut self.bytes, name, value),
            Value::Real(value) => wire::real(&mut self.bytes, name, value),
        }
        self
    }
}
