//! Templates of counters' packets, made by AMD's own library in a process of its own.
//!
//! * [`Helper`] starts that process and asks it. A crash there is an answer of its own here, and
//!   nothing else ([`Error::Died`]). [`Unseen`] does it in a program that must not see a child.
//! * [`libraries`](fn@libraries) names the files that the library may be.
//! * [`prepare`](fn@prepare) does all that can be done about a group before a target is touched: counters that
//!   there are, on a GPU that is known, that fit, with their template.

mod groups;
mod helper;
mod libraries;
mod maker;
pub mod making;
pub mod planned;
mod prepare;
mod unseen;

pub use groups::{REFERENCES, prepare_each, prepare_groups};
pub use helper::{Error, Helper};
pub use libraries::{SONAME, libraries};
pub use maker::Maker;
pub use prepare::{failure, for_each_name, gpu, prepare, question};
pub use unseen::{PACKET_HELPER, Unseen};
