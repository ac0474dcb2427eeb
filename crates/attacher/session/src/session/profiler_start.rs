//! Why a session stays empty: the program starts its own profiler.
//!
//! The first run of PyTorch's profiler in a process takes 3.5 to 5 s, in which the program launches
//! nothing (H200, PyTorch 2.11). Only the threads' stacks show that, so they are read from outside
//! when a session ends without a kernel, and where PyTorch is loaded.

use crate::answer;
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, task};
use midair_why::{Answer, Frame, Options, PythonFrame};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long the look may take: the symbols of large libraries are read.
const LIMIT: Duration = Duration::from_secs(3);

/// A look at the threads of a process whose session ends without a kernel.
#[derive(Debug)]
pub(super) struct ProfilerStart(Receiver<Option<String>>);

impl ProfilerStart {
    /// Begins the look. It has a thread of its own, so it holds up neither the process nor the detach.
    pub(super) fn look_for(pid: Pid) -> Option<ProfilerStart> {
        let (report, said) = channel();
        let look =
            move || drop(report.send(answer::within(pid, LIMIT, move || look(pid)).ok().flatten()));
        std::thread::Builder::new().spawn(look).ok()?;
        Some(ProfilerStart(said))
    }

    /// Returns a sentence about a thread that starts PyTorch's profiler, if there is one.
    pub(super) fn said(self) -> Option<String> {
        self.0.recv_timeout(LIMIT).ok()?
    }
}

fn look(pid: Pid) -> Option<String> {
    let live = task::live(pid).ok()??;
    let modules = Modules::of(live).ok()?;
    let is_torch = |name: &[u8]| name.starts_with(b"libtorch") || name.starts_with(b"libkineto");
    if !modules
        .list
        .iter()
        .any(|module| is_torch(module.file_name()))
    {
        return None;
    }
    let options = Options {
        time: Duration::ZERO,
    };
    said(&midair_why::look(pid, live, "", &modules, options))
}

fn said(answer: &Answer) -> Option<String> {
    answer.threads.iter().find_map(|thread| {
        let function = function(&thread.python, &thread.frames)?;
        Some(format!(
            "torch.profiler was starting or stopping when the session ended (thread {} \"{}\" was in {function}): its first start takes \
             seconds, in which the program launches nothing; attach again later",
            thread.tid, thread.name
        ))
    })
}

/// Returns the function of PyTorch's profiler that a thread with these stacks is in.
fn function(python: &[PythonFrame], native: &[Frame]) -> Option<String> {
    let is_profilers = |frame: &&PythonFrame| {
        ["/torch/profiler/", "/torch/autograd/profiler"]
            .iter()
            .any(|part| frame.file.contains(part))
    };
    let python = python.iter().find(is_profilers);
    let mut native = native.iter().filter_map(|frame| frame.function.clone());
    python
        .map(|frame| frame.function.clone())
        .or_else(|| native.find(|name| name.contains("libkineto")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_of_the_profiler_count() {
        let python = |file: &str| {
            let frame = PythonFrame {
                function: "profile.start_trace".to_owned(),
                file: file.to_owned(),
                line: Some(1),
            };
            function(&[frame], &[])
        };
        let native = |name: &str| {
            let frame = Frame {
                function: Some(name.to_owned()),
                ..Frame::default()
            };
            function(&[], &[frame])
        };
        assert!(python("/usr/lib/python3/torch/profiler/profiler.py").is_some());
        assert!(python("/venv/torch/autograd/profiler.py").is_some());
        assert!(native("libkineto::ActivityProfilerController::init").is_some());
        assert_eq!(python("/venv/torch/nn/modules/module.py"), None);
        assert_eq!(python("/home/me/profiler/profiler.py"), None);
        assert_eq!(native("cuLaunchKernel"), None);
    }
}
