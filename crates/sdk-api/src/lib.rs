//! The tool-facing API: [`registration`] of tools, [`context`]s, [`buffer`]s, callbacks, [`external`] correlation ids,
//! [`arguments`], and the bodies of their C functions in [`capi`].
//!
//! Nothing here hooks a table or touches a device. What the running contexts want is a value ([`context::wanted`]) that
//! `midair-sdk-control` asks for; [`changes`] is where the two meet.

mod agents;
pub mod arguments;
pub mod buffer;
pub mod callback_thread;
pub mod capi;
pub mod changes;
mod code_object;
pub mod context;
mod convert;
mod external;
mod late;
pub mod notes;
pub mod registration;
pub mod setting;
mod state;
pub mod status;

/// In a forked child before its first session: the parent's tools are not the child's.
pub fn begin_anew() {
    changes::begin_anew();
    notes::begin_anew();
    state::begin_anew();
    setting::begin_anew();
    external::begin_anew();
    callback_thread::begin_anew();
    code_object::begin_anew();
    agents::begin_anew();
}
