//! The application's code behind the GPU's time: names of frames, and sums by stack.

use crate::frame_names::Part;
use crate::index::{Function, Index, Stacks, Stat};
use std::borrow::Cow;
use std::collections::HashMap;

/// The name of the outermost frame of work whose launch has no stack.
pub const NO_STACK: &str = "(launched outside of Python)";
/// The same where the stack's description is missing: there were too many, or it was lost.
pub const UNKNOWN_STACK: &str = "(stack not recorded)";
/// The name of the innermost frame of kernels of a graph whose capture was not seen.
pub const CAPTURED_BEFORE: &str = "(graph captured before the attach)";
/// Where systems, ROCm and CUDA have their libraries.
const SYSTEM: [&str; 6] = [
    "/usr/lib",
    "/lib/",
    "/lib64/",
    "/lib32/",
    "/opt/rocm",
    "/usr/local/cuda",
];
/// Parts of the paths of files that come with Python and its packages.
const LIBRARIES: [&str; 4] = [
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "<frozen ",
];

/// Returns the name of a frame, as `loss (train.py:31)`. A line of 0 is not known.
pub fn frame(function: &Function, line: u32) -> String {
    let name = one_line(&function.name);
    if name == CAPTURED_BEFORE {
        return name.into_owned();
    }
    let name = if name.is_empty() { "?" } else { name.as_ref() };
    format!("{name} ({})", place(function, line))
}

/// Returns file and line, as `train.py:31`, with the last two parts of a path.
fn place(function: &Function, line: u32) -> String {
    let file = one_line(&function.file);
    let short = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    let file = file.get(short..).unwrap_or_default();
    let file = if file.is_empty() { "?" } else { file };
    match line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    }
}

/// Returns a text as one line that no terminal interprets.
pub fn one_line(text: &str) -> Cow<'_, str> {
    midair_failure::plain::line(text)
}

/// Whether a file is the user's own rather than a library's.
fn is_own(function: &Function) -> bool {
    let file = &function.file;
    let is_library = matches!(function.part, Part::Operator | Part::Module | Part::Inner)
        || LIBRARIES.iter().any(|part| file.contains(part))
        || SYSTEM.iter().any(|start| file.starts_with(start))
        || is_interpreter(file)
        || is_cudas(&function.name);
    !is_library && !function.file.is_empty()
}

/// Whether a file is Python's interpreter, wherever it is installed: a native frame in it says less than
/// the Python frame that it executes.
fn is_interpreter(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    let version = name
        .strip_prefix("libpython")
        .or_else(|| name.strip_prefix("python"));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// Whether a function is of the CUDA runtime that nvcc links into programs.
fn is_cudas(name: &str) -> bool {
    let exported = name.strip_prefix("cuda");
    name.starts_with("libcudart_static_")
        || exported.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// The line of the application that launched some work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeLine {
    /// Its name in tables, as `job/train.py:31 loss`.
    pub name: String,
    /// The whole path of its file. Empty where there is no stack.
    pub file: String,
    /// Its number; 0 where it is not known.
    pub line: u32,
    /// The function.
    pub function: String,
}

impl CodeLine {
    fn only(name: &str) -> CodeLine {
        CodeLine {
            name: name.to_owned(),
            ..CodeLine::default()
        }
    }

    /// Returns the line for the work that was launched at a stack: the innermost one in code that is
    /// not a library's, or the innermost where all are. The stack 0 is no stack.
    pub fn of(stacks: &Stacks, stack: u32) -> CodeLine {
        if stack == 0 {
            return CodeLine::only(stacks.no_stack());
        }
        CodeLine::among(stacks.frames(stack).into_iter().flatten())
    }

    /// Does the same for the frames of a stack, the innermost first.
    pub fn among<'f>(frames: impl Iterator<Item = (&'f Function, u32)>) -> CodeLine {
        let frames: Vec<_> = frames.collect();
        let own = frames.iter().find(|(function, _)| is_own(function));
        match own.or(frames.first()) {
            Some((function, line)) => CodeLine {
                name: format!("{} {}", place(function, *line), one_line(&function.name)),
                file: one_line(&function.file).into_owned(),
                line: *line,
                function: one_line(&function.name).into_owned(),
            },
            None => CodeLine::only(UNKNOWN_STACK),
        }
    }

    /// Returns the name with the whole path.
    pub fn whole(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => self.name.clone(),
            (false, 0) => format!("{} {}", self.file, self.function),
            (false, line) => format!("{}:{line} {}", self.file, self.function),
        }
    }
}

/// Returns the GPU's time by the line that launched the work.
pub fn by_line(index: &Index) -> HashMap<String, Stat> {
    let mut all: HashMap<String, Stat> = HashMap::new();
    for (stack, _, sum) in index.stacks.all() {
        let line = CodeLine::of(&index.stacks, stack);
        all.entry(line.name).or_default().merge(&sum.stat);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(file: &str, name: &str) -> Function {
        Function {
            file: file.to_owned(),
            name: name.to_owned(),
            part: Part::Native,
        }
    }

    #[test]
    fn a_frame_has_the_last_parts_of_its_path() {
        let of = |file: &str, line| frame(&function(file, "f"), line);
        assert_eq!(of("/home/me/job/train.py", 7), "f (job/train.py:7)");
        assert_eq!(of("train.py", 7), "f (train.py:7)");
        assert_eq!(of("/train.py", 0), "f (/train.py)");
        assert_eq!(of("", 0), "f (?)");
    }

    #[test]
    fn code_of_libraries_is_told_from_the_users_own() {
        let own = ["/srv/app/serve.py", "<string>", "train.py"];
        let libraries = [
            "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py",
            "/usr/lib/python3.11/threading.py",
            "/usr/lib/x86_64-linux-gnu/librocblas.so.4",
            "/opt/rocm-6.4.0/lib/libhipblas.so.2",
            "/lib64/libc.so.6",
            "<frozen importlib._bootstrap>",
            "",
        ];
        assert!(own.iter().all(|file| is_own(&function(file, "f"))));
        assert!(!libraries.iter().any(|file| is_own(&function(file, "f"))));
    }

    #[test]
    fn the_interpreter_and_a_linked_runtime_are_not_the_users_own() {
        let line = |frames: &[(&str, &str)]| {
            let frames: Vec<_> = frames
                .iter()
                .map(|(file, name)| function(file, name))
                .collect();
            CodeLine::among(frames.iter().map(|function| (function, 0))).function
        };
        let train = ("/job/train.py", "step");
        assert_eq!(
            line(&[("/venv/bin/python3.12", "python3.12+0x551417"), train]),
            "step"
        );
        assert_eq!(
            line(&[("/srv/python/libpython3.11.so.1.0", "f"), train]),
            "step"
        );
        let work = ("/srv/app/server", "work(int)");
        let linked = ["libcudart_static_3e3e0cdc", "cudaMemsetAsync"];
        assert_eq!(
            line(
                &linked
                    .map(|name| ("/srv/app/server", name))
                    .into_iter()
                    .chain([work])
                    .collect::<Vec<_>>()
            ),
            "work(int)"
        );
        assert_eq!(
            line(&[("/srv/app/python_server", "cudaify"), train]),
            "cudaify"
        );
    }
}
