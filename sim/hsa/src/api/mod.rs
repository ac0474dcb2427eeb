//! The implemented functions of the C interface, in files as in AMD's headers. `build.rs` puts each
//! function that is named here into its slot. Their arguments, results and ownership are as in
//! AMD's functions with the same names.
#![expect(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "AMD's functions under AMD's names: what they do and need is in AMD's documents"
)]

mod agents;
mod code;
mod copies;
mod memory;
mod profiling;
mod queues;
mod signal;
mod system;

pub use agents::*;
pub use code::*;
pub use copies::*;
pub use memory::*;
pub use profiling::*;
pub use queues::*;
pub use signal::*;
pub use system::*;
