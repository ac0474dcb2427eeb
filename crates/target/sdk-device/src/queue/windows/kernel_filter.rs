//! Decides which launches get windows if the person who profiles has chosen kernels.
//!
//! A window is taken before its packet is written, so all that is known is what usually comes next
//! on the queue ([`Rotation::expected`](midair_rotation::Rotation::expected)). A launch gets no
//! window if the expected dispatch is of a kernel that is not chosen, or if its number among the
//! dispatches of its kernel is not chosen. A launch about which nothing is known gets a window, so
//! that the first dispatch of a kernel can be counted. Which values go into the files is decided
//! afterwards, by the dispatches that really ran: a wrong guess costs a window, but makes no wrong
//! value.

use crate::state::STATE;
use crate::symbols::kernel_filter::{is_chosen, kernel_choice};

/// Starts a session. Called by the worker thread while no windows are taken.
pub(in crate::queue) fn begin() {
    let choices = &STATE.windows.choices;
    match kernel_choice() {
        Some(choice) => choices.begin(&choice.iterations, choice.takes.is_some()),
        None => choices.clear(),
    }
}

/// Decides about the kernels that were seen, by their names. Called in each round of the worker
/// thread.
pub(in crate::queue) fn pass() {
    STATE.windows.choices.judge(is_chosen);
}
