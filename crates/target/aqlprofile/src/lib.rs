//! Templates of counter packets, made by AMD's own library in a separate process.
//!
//! * [`Helper`] starts that process and asks it. If it crashes, this is reported as an error here
//!   and has no other effect ([`Error::Died`]). Where only the root of a target has the library,
//!   the process runs there ([`Inside`]). [`Unseen`] does the same in a program that must not see a
//!   child process.
//! * [`libraries`](fn@libraries) names the files that the library may be.
//! * [`prepare`](fn@prepare) does everything that can be done about a group before a target is
//!   touched: it checks that the counters exist, that the GPU is known and that the counters fit,
//!   and makes the template.

mod decoder;
pub mod descriptors;
mod groups;
mod helper;
mod inside;
mod libraries;
mod maker;
pub mod making;
pub mod planned;
mod prepare;
pub mod traced;
pub mod traces;
mod unseen;

pub use decoder::{decoder, decoder_note};
pub use groups::{REFERENCES, prepare_each, prepare_groups};
pub use helper::{Error, Helper};
pub use inside::{ENTER, Inside, NAME};
pub use libraries::{SONAME, libraries, libraries_among, roots};
pub use maker::Maker;
pub use making::is_traced;
pub use prepare::{failure, for_each_name, gpu, prepare, question};
pub use unseen::{PACKET_HELPER, Unseen};
