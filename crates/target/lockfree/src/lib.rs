//! State words and slot tables without locks, for code inside the target.
//!
//! Threads of the application claim, publish and release entries here while our worker thread scans
//! them. So nothing in this crate allocates, takes a lock, makes a system call or panics, and
//! everything can be a `static`. For each type, zero bytes are the initial value: fresh mappings,
//! and pages that a fork wipes, need no set-up.
//!
//! * [`AtomicEnum`]: a state machine in one `u32` word; [`word_enum!`] makes the enum.
//! * [`Slot`] and [`SlotTable`]: entries with a state word ([`AtomicEnum`]) or a key
//!   ([`AtomicKey`]), parts that everybody may read, and a private part that belongs to whoever
//!   holds the entry ([`Held`]).
//! * [`WordQueue`]: a bounded queue of words for many producers and consumers.
//!
//! The atomics come from [`mod@sync`], which takes them from `loom` in builds with `--cfg loom`.
//! The models in `tests/` then run under every interleaving; `cargo xtask test` does that.

#![cfg_attr(not(loom), no_std)]

mod atomic_enum;
mod key;
mod slot;
pub mod sync;
mod table;
mod word_queue;

pub use atomic_enum::{AtomicEnum, WordEnum};
pub use key::AtomicKey;
pub use slot::{Held, Slot, SlotState, SlotWord};
pub use table::SlotTable;
pub use word_queue::{Cell, WordQueue};
