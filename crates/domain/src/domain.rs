//! What a row of the table says.

use crate::Files;
use core::ffi::CStr;

/// Something that can be traced: a row of [`DOMAINS`](crate::DOMAINS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Its number in records: its position in the table, from 1.
    pub kind: u8,
    /// Its name in files (a csv's `Kind` or `Domain`, rocpd's category, json's `strings`): AMD's, without a prefix.
    pub name: &'static str,
    /// Who asks for it.
    pub asked: RequestedBy,
    /// AMD's buffer-tracing kinds whose records are made from ours; the first is the one that files name.
    pub buffer_kinds: &'static [i32],
    /// AMD's callback-tracing kind, if it has one.
    pub callback: Option<Callback>,
    /// Its number in files (json's and pftrace's `kind`): AMD's buffer-tracing kind; from 56 on the
    /// numbers are ours, which AMD does not use. `None` where neither exists yet.
    pub number: Option<u8>,
    /// CUPTI's activity kinds (`CUpti_ActivityKind`) that its records are made from, in a CUDA process.
    pub activities: &'static [u32],
    /// The runtimes that have it.
    pub runtimes: Runtimes,
    /// What must be prepared in a target with AMD's runtimes.
    pub needs: Needs,
    /// Whether a CUDA process is asked for it where the user asked for nothing.
    pub usual: bool,
    /// Its names in each output format.
    pub files: Files,
    /// Whether it is built. What is not is refused by its option's name, and left out of aggregates.
    pub built: bool,
}

/// Who asks for a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedBy {
    /// Any of these.
    By(&'static [Ask]),
    /// Nobody in particular: it goes with every other domain.
    WithAll,
    /// Only tools that use AMD's interface; no option has it.
    ByTools,
}

/// An option and the setting that it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Long name of the option, without dashes.
    pub option: &'static str,
    /// The setting that a tool in the target reads (source: docs/sources.md#rocprofv3). Older names
    /// are the settings' own.
    pub setting: &'static CStr,
}

impl Ask {
    /// The setting as text.
    pub const fn name(&self) -> &'static str {
        match self.setting.to_str() {
            Ok(name) => name,
            // Settings are ASCII: a test looks.
            Err(_) => "",
        }
    }
}

/// One of AMD's callback-tracing kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callback {
    /// `rocprofiler_callback_tracing_kind_t`.
    pub kind: i32,
    /// When a tool's function is called.
    pub told: CallbackTime,
}

/// When a tool's callback runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackTime {
    /// Before and after the call, on the thread that makes it.
    Around,
    /// When the work is done, on the worker thread.
    Late,
    /// When the work is asked for, on the thread that asks, and when it is done, where that
    /// becomes known.
    Work,
    /// Never: not served yet.
    Never,
}

/// Runtimes that have a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtimes {
    /// HIP and HSA.
    pub amd: bool,
    /// CUDA.
    pub cuda: bool,
}

/// What a domain needs in a target with AMD's runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The calls of its API tables are hooked, and become its records.
    pub calls: bool,
    /// The HSA runtime must be open.
    pub runtime: bool,
    /// The device side: queues, signals, and the collecting of completions.
    pub device: bool,
}

impl Domain {
    /// The options and settings that ask for it; none where it goes with all, or only tools ask.
    pub const fn asks(&self) -> &'static [Ask] {
        match self.asked {
            RequestedBy::By(asks) => asks,
            RequestedBy::WithAll | RequestedBy::ByTools => &[],
        }
    }

    /// The buffer-tracing kind that our own tool asks for, and that files name.
    pub const fn buffer_kind(&self) -> Option<i32> {
        match self.buffer_kinds {
            [first, ..] => Some(*first),
            [] => None,
        }
    }
}
