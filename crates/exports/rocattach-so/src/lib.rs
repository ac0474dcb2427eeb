//! `librocprofiler-sdk-rocattach.so.1`: the C interface of attaching.
//!
//! There are two generations of names over one engine: `rocattach_attach(int)` /
//! `rocattach_detach(int)` with a status, and the older `attach(uint32_t)` / `detach()` without
//! one. The caller's environment says what the tool shall do, in every variable whose name starts
//! with `ROCP`. Every failure is one line on standard error, `rocattach: error: ...`, followed by a
//! `hint:` line where there is a remedy. When a detach returns, the output files are complete.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod connect;
mod engine;
mod sessions;
mod settings;
mod status;
mod trees;

use midair_failure::{Failure, Kind};
use midair_session::Pid;
use sessions::{Ending, Sessions};
use std::ffi::{CStr, c_char, c_int};

static SESSIONS: Sessions = Sessions::new();

/// The version of the SDK that has this interface: major, minor, patch.
const VERSION: (u32, u32, u32) = (1, 2, 1);

/// `rocattach_version_triplet_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionTriplet {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
}

const _: () = assert!(size_of::<VersionTriplet>() == 12);

/// The boundary between C and Rust: a panic becomes the general error.
fn edge(body: impl FnOnce() -> u32) -> u32 {
    midair_capi_build::edge(status::ERROR, body)
}

/// Prints a failure and returns its status.
fn report(failure: &Failure) -> u32 {
    print_line(&format!("rocattach: error: {}", failure.what));
    // That points to the help of a command line.
    let is_general = failure.kind == Kind::Usage && failure.hint == failure.kind.remedy();
    if !is_general {
        print_line(&format!("hint: {}", failure.hint));
    }
    midair_session::rocattach_status(failure.kind)
}

/// Prints one line in one write. If standard error is closed, that is not a failure of our
/// caller's. The text may contain names that other processes chose, so characters that a terminal
/// obeys are removed.
fn print_line(text: &str) {
    use std::io::Write;
    let line = format!("{}\n", midair_failure::plain::line(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Reads the settings from the environment.
fn settings_from_environment() -> Result<midair_settings::Settings, Failure> {
    let (settings, left_out) = settings::of(std::env::vars_os(), midair_secure::has_more_rights())?;
    for name in left_out {
        print_line(&format!(
            "rocattach: warning: {name} is ignored: this program runs with more privileges than its caller"
        ));
    }
    Ok(settings)
}

fn attach_to(pid: c_int) -> u32 {
    let result = settings_from_environment().and_then(|settings| {
        let named =
            sessions::named(pid).inspect_err(|failure| SESSIONS.note(pid, Some(failure)))?;
        SESSIONS.attach(connect::engine(), named, settings)
    });
    match result {
        Ok(()) => status::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn status_of(ending: Ending) -> u32 {
    match ending {
        Ok(_) => status::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Reports each ending. Returns the status of the first failure.
fn statuses_of(endings: Vec<(Pid, Ending)>) -> u32 {
    endings
        .into_iter()
        .map(|(_, ending)| status_of(ending))
        .fold(status::SUCCESS, |all, one| if all == 0 { one } else { all })
}

/// Attaches to a process. Returns when the process's calls are being recorded, or with a status
/// that says why not. In that case the process is as it was before.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_attach(pid: c_int) -> u32 {
    edge(|| attach_to(pid))
}

/// Detaches from a process, or from all when `pid` is 0, and writes the outputs. With 0 and no
/// session it succeeds.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_detach(pid: c_int) -> u32 {
    edge(|| {
        if pid == 0 {
            statuses_of(SESSIONS.detach_all())
        } else {
            status_of(match sessions::named(pid) {
                Ok(pid) => SESSIONS.detach(pid),
                Err(_) => Err(sessions::no_session(pid)),
            })
        }
    })
}

/// Attaches to a process and to all descendants that it has at this moment. The process itself must
/// succeed, or else nothing stays attached. It is skipped only where it has no GPU runtime and a
/// descendant has one. Descendants without a runtime are no failure. If another descendant fails,
/// this returns the last failure's status, and the rest stays attached.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_attach_tree(pid: c_int) -> u32 {
    edge(|| {
        let settings = match settings_from_environment() {
            Ok(settings) => settings,
            Err(failure) => return report(&failure),
        };
        let root = match sessions::named(pid) {
            Ok(root) => root,
            Err(failure) => {
                SESSIONS.note(pid, Some(&failure));
                return report(&failure);
            }
        };
        match SESSIONS.attach_tree(connect::engine(), root, &settings) {
            Ok(()) => status::SUCCESS,
            Err(failures) => failures
                .iter()
                .fold(status::ERROR, |_, (_, failure)| report(failure)),
        }
    })
}

/// Detaches from the processes that [`rocattach_attach_tree`] attached to, and writes the outputs.
/// If there is no such session, the status says that the argument is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_detach_tree(pid: c_int) -> u32 {
    edge(|| {
        let ended = match sessions::named(pid) {
            Ok(root) => SESSIONS.detach_tree(root),
            Err(_) => Err(trees::no_tree(pid)),
        };
        match ended {
            Ok(endings) => statuses_of(endings),
            Err(failure) => report(&failure),
        }
    })
}

/// Returns the version of this interface. Any pointer may be null.
///
/// # Safety
/// Each pointer is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocattach_get_version(
    major: *mut u32,
    minor: *mut u32,
    patch: *mut u32,
) -> u32 {
    for (at, value) in [(major, VERSION.0), (minor, VERSION.1), (patch, VERSION.2)] {
        if !at.is_null() {
            // SAFETY: the pointer is not null, so the caller vouches that it is writable.
            unsafe { at.write(value) };
        }
    }
    status::SUCCESS
}

/// Returns the version of this interface in one struct. Null is an invalid argument.
///
/// # Safety
/// `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocattach_get_version_triplet(info: *mut VersionTriplet) -> u32 {
    if info.is_null() {
        return status::ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the pointer is not null, so the caller vouches that it is writable.
    unsafe {
        info.write(VersionTriplet {
            major: VERSION.0,
            minor: VERSION.1,
            patch: VERSION.2,
        })
    };
    status::SUCCESS
}

/// Returns the name of a status, or null for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_get_status_name(status: u32) -> *const c_char {
    status::name(status).map_or(std::ptr::null(), CStr::as_ptr)
}

/// Returns a sentence about a status, or null for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn rocattach_get_status_string(status: u32) -> *const c_char {
    status::sentence(status).map_or(std::ptr::null(), CStr::as_ptr)
}

/// Attaches to a process, in the first generation. Failures are reported on standard error only.
#[unsafe(no_mangle)]
pub extern "C" fn attach(pid: u32) {
    edge(|| match c_int::try_from(pid) {
        Ok(pid) => attach_to(pid),
        Err(_) => report(&Failure::new(
            Kind::Usage,
            format!("{pid} is not a process id"),
        )),
    });
}

/// Detaches from everything that was attached to, and writes the outputs, in the first generation.
#[unsafe(no_mangle)]
pub extern "C" fn detach() {
    edge(|| {
        let endings = SESSIONS.detach_all();
        if endings.is_empty() {
            let why = match SESSIONS.last_refusal() {
                Some((pid, failure)) => format!(
                    "nothing to detach from: the attach to process {pid} failed ({})",
                    failure.what
                ),
                None => "nothing to detach from".to_owned(),
            };
            return report(&Failure::new(Kind::Usage, why));
        }
        statuses_of(endings)
    });
}
