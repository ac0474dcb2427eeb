//! The records of a session, from the spool to the writers.
//!
//! A session appends what it drained to a [`RecordWriter`](record_file::RecordWriter), which keeps an
//! [`Index`](index::Index) of the records from the first one on: names, sums, what each GPU did. The
//! writers then walk over the [`RecordFile`](record_file::RecordFile) in constant memory. They know
//! records and [names](api::Names), not runtimes.
//!
//! What comes from a target has limits ([`limits`]).
#![forbid(unsafe_code)]

pub mod activity;
mod amd;
pub mod api;
pub mod bursts;
pub mod code;
mod ctype;
pub mod cuda;
pub mod frame_names;
pub mod index;
pub mod kernel_filter;
pub mod kernel_name;
pub mod limits;
pub mod range_names;
pub mod record_file;
pub mod rolling;
pub mod samples;
pub mod steps;
pub mod thread_traces;
