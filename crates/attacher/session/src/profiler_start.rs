//! Why a session is empty: the program starts its own profiler.
//!
//! The first run of PyTorch's profiler in a process takes 3.5 to 5 s, in which the program launches
//! nothing (H200, PyTorch 2.11). Only the threads' stacks show that, so they are read from outside,
//! and where PyTorch is loaded. Python's frames are read from memory and stop no thread. At the end
//! of a session native stacks are read as well, for which a thread that runs is stopped.

use crate::answer;
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid, task};
use midair_why::{Answer, Frame, Options, PythonFrame, Thread, python_stacks};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// How long the look may take: the symbols of large libraries are read.
const LIMIT: Duration = Duration::from_secs(3);

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The process has no PyTorch with CUDA.
    WithoutTorch,
    /// No thread was seen to start or stop PyTorch's profiler.
    No,
    /// A sentence about the thread that does.
    Yes(String),
}

/// A look at the threads of a process that launches no kernel.
#[derive(Debug)]
pub struct ProfilerStart(Receiver<Said>);

impl ProfilerStart {
    /// Starts a look that stops no thread: at Python's frames.
    pub fn unstopped(pid: Pid) -> Option<ProfilerStart> {
        ProfilerStart::begin(pid, |live, modules| Some(now(live, modules)?.text("is")))
    }

    /// Starts the look at the end of a session, which may stop a thread for a moment.
    pub(crate) fn at_the_end(pid: Pid) -> Option<ProfilerStart> {
        ProfilerStart::begin(pid, move |live, modules| {
            let found = now(live, modules).or_else(|| {
                let options = Options {
                    time: Duration::ZERO,
                };
                of_answer(&midair_why::look(pid, live, "", modules, options))
            })?;
            Some(found.text("was"))
        })
    }

    /// The look has a thread of its own, so it blocks neither the process nor the detach.
    fn begin(
        pid: Pid,
        look: impl FnOnce(Tid, &Modules) -> Option<String> + Send + 'static,
    ) -> Option<ProfilerStart> {
        let (report, said) = channel();
        let look = move || {
            let live = task::live(pid).ok()??;
            let modules = Modules::of(live).ok()?;
            Some(match has_torch(&modules) {
                false => Said::WithoutTorch,
                true => look(live, &modules).map_or(Said::No, Said::Yes),
            })
        };
        let work = move || {
            let said = answer::within(pid, LIMIT, look).ok().flatten();
            // There may be no caller left that waits for it.
            let _ = report.send(said.unwrap_or(Said::No));
        };
        std::thread::Builder::new().spawn(work).ok()?;
        Some(ProfilerStart(said))
    }

    /// Waits for the look.
    pub fn said(self) -> Said {
        self.0.recv_timeout(LIMIT).unwrap_or(Said::No)
    }

    /// Returns what was found.
    ///
    /// # Errors
    /// The look, if it is not done yet.
    pub fn said_by_now(self) -> Result<Said, ProfilerStart> {
        match self.0.try_recv() {
            Ok(said) => Ok(said),
            Err(TryRecvError::Disconnected) => Ok(Said::No),
            Err(TryRecvError::Empty) => Err(self),
        }
    }
}

/// What PyTorch's profiler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    Stop,
}

/// A thread that starts or stops PyTorch's profiler.
#[derive(Debug)]
pub(crate) struct Found {
    step: Step,
    thread: String,
    function: String,
}

impl Found {
    /// Returns a sentence with this verb: "is" for now, "was" for the end of a session.
    fn text(&self, is: &str) -> String {
        let (step, means) = match self.step {
            Step::Start => (
                "starting",
                "its first start takes seconds, in which the program launches nothing",
            ),
            Step::Stop => ("stopping", "that thread launches nothing meanwhile"),
        };
        let when = if is == "was" {
            " when the session ended"
        } else {
            ""
        };
        let Found {
            thread, function, ..
        } = self;
        format!(
            "torch.profiler {is} {step}{when} ({thread} {is} in {function}): {means}; attach again later"
        )
    }
}

fn has_torch(modules: &Modules) -> bool {
    let has = |parts: &[&str]| {
        let mut names = modules.list.iter().map(|module| module.file_name());
        names.any(|name| parts.iter().any(|part| name.starts_with(part.as_bytes())))
    };
    has(&["libtorch", "libkineto"]) && has(&["libcuda.so"])
}

/// Returns a sentence about a thread that starts or stops PyTorch's profiler now, if there is one. No
/// thread is stopped.
pub(crate) fn said_now(live: Tid, modules: &Modules) -> Option<String> {
    let found = has_torch(modules).then(|| now(live, modules)).flatten();
    Some(found?.text("is"))
}

/// Looks at Python's frames in the process's memory, and stops no thread.
fn now(live: Tid, modules: &Modules) -> Option<Found> {
    let threads = python_stacks(live, modules);
    threads.iter().find_map(|thread| {
        let (step, function) = of_python(&thread.python)?;
        Some(found(thread, step, function))
    })
}

fn of_answer(answer: &Answer) -> Option<Found> {
    answer.threads.iter().find_map(|thread| {
        let (step, function) = of_native(&thread.frames)?;
        Some(found(thread, step, function))
    })
}

fn found(thread: &Thread, step: Step, function: String) -> Found {
    let (tid, name) = (thread.tid, &thread.name);
    Found {
        step,
        thread: format!("thread {tid} \"{name}\""),
        function,
    }
}

/// Returns the function that starts or stops the profiler, of a stack with the innermost frame first.
/// Programs call other functions of these files at each step, and for each range that they name.
fn of_python(frames: &[PythonFrame]) -> Option<(Step, String)> {
    let is_profilers = |frame: &&PythonFrame| {
        ["/torch/profiler/", "/torch/autograd/profiler"]
            .iter()
            .any(|part| frame.file.contains(part))
    };
    frames.iter().filter(is_profilers).find_map(|frame| {
        let mut parts = frame.function.rsplit('.');
        let name = parts.next()?;
        let of = parts.next().unwrap_or_default();
        if of.starts_with("record_function") || of.starts_with("emit_") {
            return None;
        }
        let step = match name.trim_start_matches('_') {
            "enter__" | "start" | "start_trace" | "prepare_trace" => Step::Start,
            "exit__" | "stop" | "stop_trace" => Step::Stop,
            _ => return None,
        };
        Some((step, frame.function.clone()))
    })
}

/// Does the same for native frames. Kineto's own threads wait in its functions for ever.
fn of_native(frames: &[Frame]) -> Option<(Step, String)> {
    let names = frames.iter().filter_map(|frame| frame.function.as_ref());
    names.into_iter().find_map(|name| {
        let rest = name.split_once("libkineto")?.1;
        let has = |parts: &[&str]| parts.iter().any(|part| rest.contains(part));
        let step = if has(&["::init", "_init", "prepareTrace", "startTrace", "::enable"]) {
            Step::Start
        } else if has(&["stopTrace", "::disable"]) {
            Step::Stop
        } else {
            return None;
        };
        Some((step, name.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_start_or_stop_the_profiler_count() {
        let python = |function: &str, file: &str| {
            let frame = PythonFrame {
                function: function.to_owned(),
                file: file.to_owned(),
                line: Some(1),
            };
            of_python(&[frame]).map(|(step, _)| step)
        };
        let native = |name: &str| {
            let frame = Frame {
                function: Some(name.to_owned()),
                ..Frame::default()
            };
            of_native(&[frame]).map(|(step, _)| step)
        };
        let (own, old) = (
            "/usr/lib/python3/torch/profiler/profiler.py",
            "/venv/torch/autograd/profiler.py",
        );
        for (function, file, step) in [
            ("_KinetoProfile.start_trace", own, Some(Step::Start)),
            ("profile.__enter__", own, Some(Step::Start)),
            ("profile._prepare_trace", old, Some(Step::Start)),
            ("profile.__exit__", old, Some(Step::Stop)),
            ("profile.stop", own, Some(Step::Stop)),
            ("profile.step", own, None),
            ("_KinetoProfile.export_chrome_trace", own, None),
            ("record_function.__enter__", old, None),
            ("profile.start", "/venv/torch/nn/modules/module.py", None),
            ("profile.start", "/home/me/profiler/profiler.py", None),
        ] {
            assert_eq!(python(function, file), step, "{function} {file}");
        }
        for (name, step) in [
            (
                "libkineto::ActivityProfilerController::init",
                Some(Step::Start),
            ),
            ("libkineto_init", Some(Step::Start)),
            (
                "libkineto::CuptiActivityApi::disableCuptiActivities",
                Some(Step::Stop),
            ),
            (
                "libkineto::ActivityProfilerController::profilerLoop()",
                None,
            ),
            ("libkineto::ConfigLoader::updateConfigThread()", None),
            ("cuLaunchKernel", None),
        ] {
            assert_eq!(native(name), step, "{name}");
        }
    }
}
