//! What a row of the domain table says.

use crate::Files;
use core::ffi::CStr;

/// Something that can be traced: a row of [`DOMAINS`](crate::DOMAINS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Its number in records: its position in the table, from 1.
    pub kind: u8,
    /// Its name in files (`Kind` or `Domain` in a csv, the category in rocpd, `strings` in json):
    /// AMD's name, without a prefix.
    pub name: &'static str,
    /// The options or tools that ask for it.
    pub asked: RequestedBy,
    /// AMD's buffer-tracing kinds whose records are made from ours. Files use the name of the
    /// first.
    pub buffer_kinds: &'static [i32],
    /// AMD's callback-tracing kind, if it has one.
    pub callback: Option<Callback>,
    /// Its number in files (`kind` in json and pftrace): AMD's buffer-tracing kind. Numbers from 56
    /// on are ours, and AMD does not use them. `None` where it has neither yet.
    pub number: Option<u8>,
    /// CUPTI's activity kinds (`CUpti_ActivityKind`) that its records are made from, in a CUDA
    /// process.
    pub activities: &'static [u32],
    /// The runtimes that have it.
    pub runtimes: Runtimes,
    /// What must be prepared in a target with AMD's runtimes.
    pub needs: Needs,
    /// Whether it is recorded in a CUDA process when the user chose no domain.
    pub usual: bool,
    /// Its names in each output format.
    pub files: Files,
    /// Whether it is built. A domain that is not built is refused by its option's name, and left
    /// out of aggregates.
    pub built: bool,
}

/// What asks for a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedBy {
    /// Any of these options and settings.
    By(&'static [Ask]),
    /// No option in particular: it goes with every other domain.
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
    /// of a setting are handled by the settings themselves.
    pub setting: &'static CStr,
}

impl Ask {
    /// Returns the name of the setting as text.
    pub const fn name(&self) -> &'static str {
        match self.setting.to_str() {
            Ok(name) => name,
            // Unreachable: settings are ASCII, which a test checks.
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
    /// When the work is done, called on the worker thread.
    Late,
    /// When the work is requested, on the thread that requests it, and again when it is done, on
    /// the thread that finds this out.
    Work,
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
    /// The calls in the runtime's API tables are hooked, and become its records.
    pub calls: bool,
    /// The HSA runtime must be open.
    pub runtime: bool,
    /// The device side must be prepared: queues, signals, and the harvest of completions.
    pub device: bool,
}

impl Domain {
    /// Returns the options and settings that ask for it; empty where it goes with all domains, or
    /// where only tools ask for it.
    pub const fn asks(&self) -> &'static [Ask] {
        match self.asked {
            RequestedBy::By(asks) => asks,
            RequestedBy::WithAll | RequestedBy::ByTools => &[],
        }
    }

    /// Returns the buffer-tracing kind that our own tool asks for, and that files name.
    pub const fn buffer_kind(&self) -> Option<i32> {
        match self.buffer_kinds {
            [first, ..] => Some(*first),
            [] => None,
        }
    }
}
