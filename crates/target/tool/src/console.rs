//! What the tool prints on the application's console.

use crate::sdk::SessionKind;
use midair_failure::Failure;
use midair_record::collector::message;
use midair_settings::{SCREEN, Settings, Verbosity};
use std::io::Write;

/// The command line sets this variable to its own pid, which the program then has. Only that
/// process reports that there was nothing to record; its children, such as a shell script's, do
/// not.
const LAUNCHED: &str = "ROCPROF_LAUNCH_PID";
const NOTHING: &str =
    "nothing was recorded, no file is written: midair saw no call or kernel of the requested kinds";
/// The same message for a program without anything that could have been recorded.
const NO_RUNTIME: &str =
    "nothing was recorded, no file is written: the program used no GPU runtime (HIP, HSA or CUDA)";
/// The beginnings of the file names of GPU runtimes.
const RUNTIMES: [&str; 3] = ["/libamdhip64.so", "/libhsa-runtime64.so", "/libcuda.so"];

/// Whether we may print. We may if the user started the program under the profiler. After an
/// attach, standard error belongs to the application, and is used only on request.
pub(crate) fn may_print(kind: SessionKind, settings: &Settings) -> bool {
    let level = settings.text("ROCPROF_LOG_LEVEL");
    let level = level.and_then(Verbosity::from_word);
    kind == SessionKind::Launched || level.is_some_and(|level| level >= Verbosity::Info)
}

/// Prints a failure, where we may.
pub(crate) fn failure(kind: SessionKind, settings: &Settings, failure: &Failure) {
    if may_print(kind, settings) {
        sentence(settings, &format!("error: {}", failure.what));
        if !failure.hint.is_empty() {
            sentence(settings, &format!("hint: {}", failure.hint));
        }
    }
}

/// Prints what the collector asks for. It asks for nothing where we may not print. What cannot be
/// printed is dropped: that is no error of a program's.
pub(crate) fn print(settings: &Settings, kind: u8, text: &[u8]) {
    let words = || String::from_utf8_lossy(text);
    match kind {
        message::SENTENCE => sentence(settings, &words()),
        message::LINE => line(&words()),
        message::OUTPUT => {
            let mut output = std::io::stdout().lock();
            drop(output.write_all(text).and_then(|()| output.flush()));
        }
        message::ERROR => drop(std::io::stderr().write_all(text)),
        _ => {}
    }
}

/// Prints that nothing was recorded, in the process that the command line became by executing the
/// program.
pub(crate) fn report_empty(settings: &Settings) {
    let is_launched =
        std::env::var(LAUNCHED).is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
    if is_launched {
        let why = match has_runtime() {
            true => NOTHING,
            false => NO_RUNTIME,
        };
        sentence(settings, why);
    }
}

/// Whether a GPU runtime is loaded in this process; true where that cannot be determined.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's file of this process"
)]
fn has_runtime() -> bool {
    let Ok(maps) = std::fs::read("/proc/self/maps") else {
        return true;
    };
    let maps = String::from_utf8_lossy(&maps);
    RUNTIMES.iter().any(|runtime| maps.contains(runtime))
}

/// Prints a sentence of the program that the user called: `midair run`, which asks for its screen,
/// or rocprofv3.
fn sentence(settings: &Settings, text: &str) {
    let program = match settings.get(SCREEN) {
        Some(_) => "midair",
        None => "rocprofv3",
    };
    line(&format!("{program}: {text}"));
}

/// Prints a line on standard error in one write, without any control sequences. A line that cannot
/// be written is dropped.
fn line(text: &str) {
    let line = format!("{}\n", midair_failure::plain::line(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
