//! The tool-facing API: [`registration`] of tools, [`context`]s, [`buffer`]s, callbacks,
//! [`external`] correlation ids, [`arguments`], and the bodies of their C functions in [`capi`].
//!
//! Nothing here hooks a table or accesses a device. What the running contexts want is a value
//! ([`context::wanted`]) that `midair-sdk-control` reads; [`changes`] is the interface between the
//! two.

mod agents;
pub mod arguments;
pub mod buffer;
pub mod callback_thread;
pub mod capi;
pub mod changes;
pub mod code_object;
pub mod context;
mod convert;
mod converted;
pub mod counting;
mod deferred_callbacks;
pub mod ended;
pub mod events;
mod external;
pub mod gpus;
mod graphs;
mod hardware;
pub mod intercept;
mod interned;
mod kfd;
pub mod notes;
pub mod registration;
mod registry;
pub mod retirement;
pub mod sampling;
pub mod setting;
mod state;
pub mod status;

pub use state::reset_after_fork;
