//! The attaching side: attach, collect, detach, write.
//!
//! One [`Session`] is one attach to one process. It inspects before it touches anything, enters through the
//! engine (`midair-inject`), passes the spool and the libraries, follows the spool into an unlinked file
//! while the target runs, and ends with a [`Collected`] trace that `midair-results` writes. Every front end
//! (`rocprofv3`, `midair`, the C API) attaches through this crate: none uses `midair-inject`, `midair-ptrace`
//! or `midair-procinfo` itself. `midair-cli` also uses crates beneath this one for its screens and counters
//! (`midair-output`, `midair-live`, `midair-why`, `midair-counters`, `midair-nvmetrics`).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod attach;
mod carried;
mod checks;
mod clock;
mod code_objects;
mod collected;
mod counted;
mod counters;
mod cuda;
mod cupti;
mod entry_lock;
mod explain;
pub mod find;
mod gpu_metrics;
mod gpu_users;
mod headroom;
mod identity;
#[expect(
    clippy::disallowed_methods,
    reason = "our own libraries, and the tools that the caller names"
)]
mod install;
mod instructions;
mod labels;
mod left;
mod list;
mod live;
mod meter;
mod newcomers;
mod no_entry;
mod packets;
mod process;
mod profiler_lock;
mod profiler_start;
mod recorder;
mod request;
#[expect(
    clippy::disallowed_methods,
    reason = "checks each directory on the way to a file of midair or the caller's"
)]
mod rights;
mod runtime;
mod sampling;
mod session;
mod starting;
mod status;
mod target;
pub mod tree;
mod why;

pub use checks::{Check, Verdict, checks, machine_checks};
pub use collected::Collected;
pub use counters::check_launch;
pub use find::{Found, Runtime, RuntimeKind, gpu_processes};
pub use headroom::require_own_descriptors;
pub use install::{Install, Tools};
pub use labels::Labels;
pub use left::hanging_looks;
pub use list::{Listed, Listing, list};
pub use midair_live::{Model, Process, Snapshot, Watched};
pub use midair_output::Keep;
pub use midair_output::table::Style;
pub use midair_output::{Screen, written};
pub use midair_procinfo::access::ADD_TO_CONTAINER;
pub use midair_procinfo::{InvalidId, Pid};
pub use midair_ptrace::close_shared_descriptors;
pub use midair_ptrace::sys::{keep_one_heap, utc_offset};
pub use midair_results::{Console, End, Written};
pub use newcomers::Newcomers;
pub use no_entry::NoEntry;
#[doc(hidden)]
pub use no_entry::read_dispatch_log;
pub use profiler_start::{ProfilerStart, Said as ProfilerStartSaid};
pub use recorder::Recorder;
pub use request::{Entry, Event, Phases, Request, Requested};
pub use rights::{as_real_user, traces_others};
pub use sampling::{Sampling, Way, sampling};
pub use session::Session;
pub use status::rocattach_status;
pub use target::Target;
pub use tree::{Group, GroupCollected, GroupRequest, Notice, NoticeKind, Selection};
pub use why::{why, why_tree};
