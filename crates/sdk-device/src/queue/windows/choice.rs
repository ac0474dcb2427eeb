//! Which launches are to have windows, where the user has chosen kernels.
//!
//! A window is taken before its packet is there, so what is known is what usually comes next on the
//! queue ([`Rotation::expected`](midair_rotation::Rotation::expected)). A launch gets none where that
//! is of a kernel that is not chosen, or where the number that it would have among its kernel's is not.
//! What nothing is known of gets one, so the first dispatch of a kernel can be counted. Which values
//! are in the files is decided afterwards, by the dispatches that were there: a wrong guess costs a
//! window, and makes no wrong value.

use crate::state::STATE;
use crate::symbols::choice::{is_chosen, kernel_choice};

/// A session begins. By the worker thread, while no windows are taken.
pub(super) fn begin() {
    let choices = &STATE.windows.choices;
    match kernel_choice() {
        Some(choice) => choices.begin(&choice.iterations),
        None => choices.clear(),
    }
}

/// One round of the worker thread: names decide about the kernels that were seen.
pub(super) fn pass() {
    STATE.windows.choices.judge(is_chosen);
}
