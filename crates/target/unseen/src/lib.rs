//! Starts a process from inside an application that must not see a child.
//!
//! The application cannot see the process, because it is a grandchild: its parent is a child of
//! ours that ends at once. That child has no exit signal, so that no signal handler of the
//! application runs for it, and no `wait` of the application returns it. The process has a session
//! of its own, so that no signal from a terminal reaches it.
//!
//! The process itself gets an exit signal again when it executes its program. Whoever adopts it
//! sees it end: a container's first process, or a subreaper. An application that is one itself
//! cannot be spared that.
//!
//! The program inherits only standard input, output and error. It gets no signal mask and no signal
//! handler of the application.

mod children;
mod sandbox;

pub use sandbox::note_start;

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The directory of our tools, which is next to our SDK library.
const TOOLS: &str = "rocprofiler-sdk";
/// Beginnings of the variables of midair and of other profilers, which our programs must not obey.
const NOT_ITS: [&[u8]; 6] = [
    b"LD_PRELOAD=",
    b"LD_AUDIT=",
    b"ROCP",
    b"MIDAIR_",
    b"HSA_TOOLS_",
    b"CUDA_INJECTION",
];

/// What is started.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program's file.
    pub program: &'a Path,
    /// The name by which it is called.
    pub name: &'a OsStr,
    /// Its arguments, without its own name.
    pub arguments: &'a [OsString],
    /// More variables for it, `NAME=VALUE`.
    pub variables: &'a [OsString],
    /// Its standard input.
    pub input: BorrowedFd<'a>,
    /// Its standard output.
    pub output: BorrowedFd<'a>,
}

/// Returns the program with this name in the directory of the library that contains this code, or
/// in the directory of our tools below it.
pub fn beside(name: &str) -> Option<PathBuf> {
    let directory = directory()?;
    [directory.join(name), directory.join(TOOLS).join(name)]
        .into_iter()
        .find(|path| is_program(path))
}

/// Returns the installation's `bin/midair`, if the library that contains this code lies in the directory of tools. Called
/// by the name of another of midair's programs, it is that program.
pub fn whole() -> Option<PathBuf> {
    let tools = directory()?;
    let libraries = tools.parent().filter(|_| tools.ends_with(TOOLS))?;
    Some(libraries.parent()?.join("bin/midair")).filter(|path| is_program(path))
}

/// Whether this is the absolute path of a file.
pub fn is_program(path: &Path) -> bool {
    path.is_absolute() && path.is_file()
}

/// Returns the directory of the library that contains this code.
fn directory() -> Option<PathBuf> {
    // SAFETY: all zero bytes are a valid Dl_info, and the address is inside this library. The name
    // lives as long as the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(directory as *const c_void, &mut info);
        (found != 0 && !info.dli_fname.is_null())
            .then(|| CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
    };
    let name = PathBuf::from(OsString::from_vec(name?));
    // The loader has it as it was named: perhaps a link, or relative to the current directory.
    let name = std::fs::canonicalize(&name).unwrap_or(name);
    Some(name.parent()?.to_owned())
}

/// Starts the program. That it could not be executed shows only in the end of its input and output.
///
/// # Errors
/// Why no process can be started here, in words.
pub fn start(start: &Start<'_>) -> Result<(), String> {
    if let Some(why) = sandbox::refuses() {
        return Err(why.to_owned());
    }
    let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
    let program = text(start.program.as_os_str()).ok_or("the program's path has a zero byte")?;
    let arguments: Vec<CString> = std::iter::once(start.name)
        .chain(start.arguments.iter().map(OsString::as_os_str))
        .filter_map(text)
        .collect();
    let environment = environment(start.variables);
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    // Copies have numbers above 2, which the children do not replace.
    let copy = |of: BorrowedFd<'_>| of.try_clone_to_owned().map_err(|error| error.to_string());
    let (input, output) = (copy(start.input)?, copy(start.output)?);
    match children::start(
        &program,
        &arguments,
        &environment,
        input.as_fd(),
        output.as_fd(),
    ) {
        true => Ok(()),
        false => Err("the kernel makes no more processes here".to_owned()),
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let pointers = texts.iter().map(|text| text.as_ptr());
    pointers.chain([std::ptr::null()]).collect()
}

/// Returns the application's variables without those that the program must not obey; none of them
/// in a process with more rights than its user.
fn environment(more: &[OsString]) -> Vec<CString> {
    let own = match midair_secure::has_more_rights() {
        true => None,
        false => Some(std::env::vars_os()),
    };
    let is_its = |entry: &Vec<u8>| !NOT_ITS.iter().any(|begin| entry.starts_with(begin));
    own.into_iter()
        .flatten()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .filter(is_its)
        .chain(more.iter().map(|entry| entry.as_bytes().to_vec()))
        .filter_map(|entry| CString::new(entry).ok())
        .collect()
}
