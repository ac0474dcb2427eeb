//! A tool that is configured.

use midair_abi::registration::{ConfigureResult, Finalize, ToolAttach};
use std::ffi::c_void;

/// A configured tool.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number, which its `ClientId` has, too: that one is the tool's to write to.
    pub handle: u32,
    /// Address of its `rocprofiler_configure`, or `rocprofiler_configure_experimental`.
    pub function: usize,
    /// Where it came from.
    pub source: Source,
    /// Named for the attach that is under way, or for the last one.
    pub named: bool,
    pub result: ConfigureResult,
    pub hooks: Hooks,
    pub phase: Phase,
    /// It has been attached before.
    pub was_attached: bool,
    /// Its contexts that the next attach starts: those that its `initialize` started; for a tool
    /// without `tool_attach`, those that ran at the last detach.
    pub resume: Vec<u64>,
}

// SAFETY: the pointers in it are the tool's functions and data, which the tool allows us to use from
// the worker thread.
unsafe impl Send for Client {}

/// The functions of a tool that an attach and a detach call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hooks {
    /// None: its contexts are started and stopped for it.
    None,
    /// `rocprofiler_configure_attach`.
    Attach {
        attach: Option<ToolAttach>,
        detach: Option<Finalize>,
        data: *mut c_void,
    },
    /// `rocprofiler_configure_experimental`: like `None`, and the tool is notified.
    Experimental {
        reattach: Option<Finalize>,
        detach: Option<Finalize>,
        data: *mut c_void,
    },
}

impl Hooks {
    /// Whether the tool starts its contexts itself.
    pub fn starts(self) -> bool {
        matches!(
            self,
            Hooks::Attach {
                attach: Some(_),
                ..
            }
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Configured,
    Initialized,
    Attached,
    /// A thread is detaching it.
    Detaching,
    /// Its `initialize` failed, or the tool ended itself.
    Ended,
}

/// Where a client came from. Two are the same when this is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Named for an attach; by its library handle, so that the next attach finds it again.
    Attachment(usize),
    /// Present when the process was started; by its `rocprofiler_configure`.
    Start(usize),
    /// `rocprofiler_force_configure`; by its function.
    Forced(usize),
}

impl Source {
    pub fn is_attachment(self) -> bool {
        matches!(self, Source::Attachment(_))
    }
}
