//! The command lines: `rocprofv3` and `rocprofv3-avail`, with AMD's spelling and messages, `midair`, the friendlier one over
//! the same engine, and `rocpd`, for databases.
//!
//! * [`command`] builds clap commands from the table of options in `midair-settings`; nothing is
//!   listed a second time here.
//! * [`engine`] is what the command lines need from the engine, as traits: the tests have an engine
//!   of their own.
//! * [`wait`] is the one wait of an attach: signals, standard input, time, the target's end.
//! * [`attach`] runs one attach for both command lines; they differ in what they print
//!   ([`attach::Messages`]).
//! * [`report`] prints; all output is written by one module, which lets nothing through that a
//!   terminal would interpret.
//!
//! Standard output carries what was asked for. Notes, warnings, progress and errors go to standard
//! error.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod attach;
pub mod avail;
pub mod command;
pub mod connect;
mod counters;
mod demo;
mod doctor;
pub mod engine;
mod flame;
mod fleet;
mod help;
pub mod input;
mod keep;
mod launch;
pub mod man;
mod metrics;
pub mod midair;
pub mod program;
mod ps;
pub mod report;
pub mod rocpd;
pub mod rocprofv3;
mod serve;
mod show;
mod terminal;
mod top;
mod version;
pub mod wait;
mod why;
mod words;
