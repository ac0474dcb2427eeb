//! Kernels timed by the GPU's own hardware, where the user asks for it (`--cuda-hw-trace`).
//!
//! NVIDIA's GPUs from Blackwell on note by themselves when a kernel starts and ends (HES). CUPTI
//! uses that if it is asked while the process has no context, and does not give it up again as
//! long as it is in the process (CUDA-039). So it is off unless the user asks; CUPTI then stays.

use crate::cupti::{Cupti, Driver, Status};
use crate::session::KEEP_LOADED;
use midair_abi::cupti::result;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// The name of a thread of CUDA's driver.
const HANDLER: &[u8] = b"cuda-EvtHandlr";

/// What is noted where recording is in bursts.
pub const NOT_IN_BURSTS: &str = "kernels are timed as usual, not by GPU hardware (--cuda-hw-trace): with --max-overhead, midair removes \
                                 CUPTI after each burst, which hardware timing forbids";

/// Whether a midair session has switched it on in this process.
static ON: AtomicBool = AtomicBool::new(false);

/// Switches it on if that is `wanted` and possible; otherwise CUPTI times kernels as usual. Returns
/// what the session's notes say of it. CUPTI is in use already, and no kind is enabled yet.
pub fn switch_on(cupti: &Cupti, driver: &Driver, wanted: bool) -> Option<String> {
    if ON.load(SeqCst) {
        let text =
            "kernels are timed by GPU hardware, which an earlier session enabled (--cuda-hw-trace)";
        return Some(text.to_owned());
    }
    if !wanted {
        return None;
    }
    Some(match ask(cupti, driver) {
        Ok(()) => {
            ON.store(true, SeqCst);
            KEEP_LOADED.store(true, SeqCst);
            "kernels are timed by GPU hardware (--cuda-hw-trace); CUPTI cannot disable that, so it stays on in this process"
                .to_owned()
        }
        Err(why) => {
            format!("kernels are timed as usual, not by GPU hardware (--cuda-hw-trace): {why}")
        }
    })
}

/// Asks CUPTI for it.
///
/// # Errors
/// Why it cannot be had, for the user.
fn ask(cupti: &Cupti, driver: &Driver) -> Result<(), String> {
    if cupti.functions().enable_hw_trace.is_none() {
        let (major, minor) = cupti.cuda();
        return Err(format!(
            "CUPTI {major}.{minor} has no function for it, as 12.8 and later have"
        ));
    }
    // What CUPTI does with a later request is not described, so it gets none.
    if driver.has_primary_context() || has_handler() {
        let why = "the process already has a CUDA context, and CUPTI can enable it only before";
        return Err(why.to_owned());
    }
    cupti.enable_hw_trace().map_err(|why| match why {
        Status(result::ERROR_NOT_SUPPORTED) => {
            format!("the GPU or its configuration does not support it ({why})")
        }
        _ => format!("CUPTI says {why}"),
    })
}

/// Whether the driver has the thread that it makes with a process's first context, also with one
/// that the program made for itself (580.159; docs/sources.md#cupti).
fn has_handler() -> bool {
    // Not /proc/self: that is the main thread, which may have ended.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", std::process::id()));
    let mut names = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read(task.path().join("comm")).ok());
    names.any(|name| name.trim_ascii_end() == HANDLER)
}

/// In a forked child, before its first session.
pub fn reset_after_fork() {
    ON.store(false, SeqCst);
}

#[cfg(test)]
mod tests;
