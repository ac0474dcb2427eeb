//! The screens of `midair top`.
//!
//! A [`View`] holds what the user chose (order, filter, pause, a kernel to look at) and the latest
//! snapshots. [`View::key`] takes keys, [`View::lines`] makes a screen of any size, which
//! [`View::draw`] puts into ratatui's buffer, and [`View::text`] into a text for those who have no
//! terminal. Nothing here knows of sessions, and nothing reads or writes.
#![forbid(unsafe_code)]

mod code;
mod details;
mod draw;
mod keys;
mod processes;
mod rows;
mod screen;
mod view;
mod words;

pub use keys::{Action, Key};
pub use view::{By, Look, Sort, View};
