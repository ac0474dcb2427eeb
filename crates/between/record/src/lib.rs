//! Records, the spool that carries them, and the boot block shared by attacher and target.
//!
//! Three parties meet here and nowhere else:
//! * the **target** side writes records into a [`spool`] (one memfd per session, made by the
//!   attacher),
//! * the **attaching** side follows it live and treats every byte of it as hostile,
//! * the **boot block** ([`boot`]) is how the attacher finds and wakes the parked worker thread.
//!
//! The layouts are private to one build of midair. Both sides check [`VERSION`], and nothing is
//! converted. Increase it with every change of a `repr(C)` struct here.

pub mod boot;
pub mod collector;
pub mod connect;
pub mod counter_plan;
pub mod event;
pub mod trace_plan;

pub mod offer;
pub mod spool;

/// Version of every layout in this crate. Both sides must agree exactly.
pub const VERSION: u32 = 10;
