//! A configured tool.

use midair_abi::registration::{ConfigureResult, Finalize, ToolAttach};
use std::ffi::c_void;

/// The record of a configured tool.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number. Its `ClientId` has the number as well, but the tool may write to that one.
    pub handle: u32,
    /// Address of its `rocprofiler_configure`, or `rocprofiler_configure_experimental`.
    pub function: usize,
    /// Where it came from.
    pub source: Source,
    /// Whether it is named for the attach that is under way, or was named for the last one.
    pub named: bool,
    pub result: ConfigureResult,
    pub hooks: Hooks,
    pub phase: Phase,
    /// Whether it has been attached before.
    pub was_attached: bool,
    /// The contexts that the next attach starts: those that its `initialize` started; for a tool
    /// without `tool_attach`, those that were running at the last detach.
    pub resume: Vec<u64>,
}

// SAFETY: the pointers in it are the tool's functions and data, which the tool allows us to use on
// the worker thread.
unsafe impl Send for Client {}

/// The functions of a tool that are called at an attach and at a detach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hooks {
    /// None: we start and stop its contexts for it.
    None,
    /// `rocprofiler_configure_attach`.
    Attach {
        attach: Option<ToolAttach>,
        detach: Option<Finalize>,
        data: *mut c_void,
    },
    /// `rocprofiler_configure_experimental`: as with `None`, and the tool is notified.
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

/// Where a client came from. Equal values mean the same client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Named for an attach; identified by its library handle, so that the next attach finds it
    /// again.
    Attachment(usize),
    /// Present when the process was started; identified by its `rocprofiler_configure`.
    Start(usize),
    /// Passed to `rocprofiler_force_configure`; identified by its function.
    Forced(usize),
}

impl Source {
    pub fn is_attachment(self) -> bool {
        matches!(self, Source::Attachment(_))
    }
}
