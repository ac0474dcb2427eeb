//! Attach and detach from inside the process: what an injector calls on the listener thread.

use crate::bounded::Cursor;
use crate::client::{CLIENTS, ROCATTACH};
use crate::code::Code;
use crate::config;
use crate::environment::{self, TOOL_ATTACHED, TOOL_LIBRARIES, Variables};
use crate::library::{self, Sdk};
use crate::lock::{self, Which};
use crate::log::{Level, say};
use crate::registration::hand_over;
use crate::store;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The arguments of the last attach, kept for the next one and for the detach. Changed only under
/// [`Which::Operation`].
#[derive(Debug)]
struct Last {
    tool: CString,
    variables: Variables,
}

static LAST: AtomicPtr<Last> = AtomicPtr::new(std::ptr::null_mut());
/// The argument of the last call of `rocprofiler_load_attachment_tool`, no matter what its result
/// was. Changed only under [`Which::Operation`].
static LOADED_TOOL: AtomicPtr<CString> = AtomicPtr::new(std::ptr::null_mut());

fn loaded_tool() -> Option<&'static CString> {
    // SAFETY: the pointer is null or a leaked box. Only the next load frees that box, and the lock
    // that our callers hold excludes a load.
    unsafe { LOADED_TOOL.load(Ordering::Acquire).as_ref() }
}

fn set_loaded_tool(tool: &CStr) {
    let before = LOADED_TOOL.swap(Box::into_raw(Box::new(tool.to_owned())), Ordering::AcqRel);
    if !before.is_null() {
        // SAFETY: the box was leaked here. Only the holder of the lock reads it, and that is this
        // thread.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// Returns the tool when none is named: ours, if it is next to this library, otherwise AMD's name
/// for it, which the loader resolves.
fn default_tool() -> CString {
    library::own_directory()
        .map(|directory| directory.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1"))
        .filter(|path| path.is_file())
        .and_then(|path| CString::new(path.as_os_str().as_bytes()).ok())
        .unwrap_or_else(|| c"librocprofiler-sdk-tool.so.1".to_owned())
}

/// Whether an attach could succeed.
fn attachable() -> bool {
    config::enabled()
        && config::attach() != config::Attach::Refused
        && (0..CLIENTS.len()).any(store::has)
}

/// Loads the SDK and the tool, hands over the tables that are kept, and starts the tool
/// (`rocprofiler_register_attach`).
///
/// Results:
///
/// * [`Code::AttachmentNotAvailable`] when nothing is registered, attaching is switched off, or the
///   SDK is AMD's and its attach helper is not there (AMD's register library crashes then);
/// * [`Code::InvalidArgument`] for an invalid buffer, or for another tool than last time where the
///   SDK is AMD's;
/// * [`Code::NoTools`] when there is no SDK, or one that cannot attach;
/// * [`Code::RocprofilerError`] when the SDK or the tool refuses;
/// * [`Code::Deadlock`] from within an attach or detach.
///
/// The attacher's settings are in the environment only while this runs.
///
/// `settings` is null or an environment buffer. `tool` is null, or a NUL-terminated path or list of
/// paths. An invalid address is detected without dereferencing it.
pub fn attach(settings: *const c_char, tool: *const c_char) -> Code {
    let Ok(_held) = lock::take(Which::Operation) else {
        return Code::Deadlock;
    };
    if !attachable() {
        return Code::AttachmentNotAvailable;
    }
    let named = if tool.is_null() {
        CString::default()
    } else {
        match Cursor::new(tool).text() {
            Ok(named) => named,
            Err(code) => return code,
        }
    };
    let tool = if named.is_empty() {
        default_tool()
    } else {
        named
    };
    let variables = if settings.is_null() {
        say(Level::Warning, "attached without settings");
        Variables::new()
    } else {
        match environment::read_buffer(settings) {
            Ok(variables) => variables,
            Err(code) => return code,
        }
    };
    let last = Box::new(Last { tool, variables });
    match start(&last) {
        Ok(()) => {
            let before = LAST.swap(Box::into_raw(last), Ordering::AcqRel);
            if !before.is_null() {
                // SAFETY: an earlier attach leaked the box here. Only the holder of this lock reads
                // it.
                drop(unsafe { Box::from_raw(before) });
            }
            Code::Success
        }
        Err(code) => {
            say(
                Level::Warning,
                &format!(
                    "attach failed: {}",
                    crate::code::text(code.raw()).to_string_lossy()
                ),
            );
            code
        }
    }
}

fn last() -> Option<&'static Last> {
    // SAFETY: the pointer is null or a leaked box. Only the next attach frees that box, and the
    // lock that our callers hold excludes an attach.
    unsafe { LAST.load(Ordering::Acquire).as_ref() }
}

/// Publishes the environment for SDK and tool. The attacher's variables come last and override the
/// list of tools, as with AMD's library.
fn environment_for(with: &Last, tool_list: bool) -> environment::Published {
    let mut variables: Variables = vec![(TOOL_ATTACHED.to_owned(), c"1".to_owned())];
    if tool_list
        && !with
            .variables
            .iter()
            .any(|(name, _)| name.as_c_str() == TOOL_LIBRARIES)
    {
        variables.push((TOOL_LIBRARIES.to_owned(), with.tool.clone()));
    }
    variables.extend(with.variables.iter().cloned());
    environment::publish(&variables)
}

fn start(now: &Last) -> Result<(), Code> {
    let other_tool = last().is_some_and(|last| last.tool != now.tool);
    let first = last().is_none();
    // The SDK is searched for before its environment is in effect, because the attacher's paths
    // must not select it.
    let sdk = library::sdk().ok_or(Code::NoTools)?;
    let attach = sdk.attach.ok_or(Code::NoTools)?;
    if !sdk.ours && !store::has(ROCATTACH) {
        return Err(Code::AttachmentNotAvailable);
    }
    if other_tool && !(sdk.ours && sdk.load_tool.is_some()) {
        return Err(Code::InvalidArgument);
    }
    let _published = environment_for(now, sdk.load_tool.is_none());
    // An attach that failed may have named other tools after the last one that succeeded.
    let changed = sdk.ours && loaded_tool().is_some_and(|loaded| *loaded != now.tool);
    if first || other_tool || changed {
        load(sdk, &now.tool, first)?;
    }
    // Before the tool starts to record, so that a runtime can prepare its first dispatch (AMD-175).
    crate::activation::activate(crate::activation::ATTACH);
    // SAFETY: the SDK's own function, which takes no arguments.
    match unsafe { attach() } {
        0 => Ok(()),
        refused => {
            say(
                Level::Warning,
                &format!("rocprofiler_attach returned {refused}"),
            );
            Err(Code::RocprofilerError)
        }
    }
}

/// Loads the tool into the SDK, and hands over the tables.
fn load(sdk: Sdk, tool: &CStr, first: bool) -> Result<(), Code> {
    // Only the attach's lock is held while the SDK's functions run: a runtime that
    // registers meanwhile may hold locks that the SDK will take. Each table has its own claim, so
    // none is handed over twice.
    match sdk.load_tool {
        Some(load_tool) => {
            // SAFETY: the SDK's own function; the path is NUL-terminated and outlives the call.
            let refused = unsafe { load_tool(tool.as_ptr()) };
            set_loaded_tool(tool);
            if refused != 0 {
                say(
                    Level::Warning,
                    &format!(
                        "the SDK could not load {}: {refused}",
                        tool.to_string_lossy()
                    ),
                );
                return Err(Code::RocprofilerError);
            }
            // The SDK may have asked for the tables itself. This is for an SDK that did not.
            hand_over(sdk, store::entries(), false)
        }
        // An older SDK loads the tools of ROCP_TOOL_LIBRARIES at the first table.
        None => hand_over(sdk, store::entries(), first),
    }
}

/// Stops the tool (`rocprofiler_register_detach`). The tool's settings are in the environment again
/// meanwhile, since a tool may read there how to write its output. A second detach is no error
/// here: the SDK decides.
pub fn detach() -> Code {
    let Ok(_held) = lock::take(Which::Operation) else {
        return Code::Deadlock;
    };
    if !attachable() {
        return Code::AttachmentNotAvailable;
    }
    let Some(detach) = library::known().and_then(|sdk| sdk.detach) else {
        return Code::NoTools;
    };
    let _published = last().map(|last| environment_for(last, false));
    // SAFETY: the SDK's own function, which takes no arguments.
    match unsafe { detach() } {
        0 => Code::Success,
        refused => {
            say(
                Level::Warning,
                &format!("rocprofiler_detach returned {refused}"),
            );
            Code::RocprofilerError
        }
    }
}

/// Attaches again with the tool and settings of the last attach
/// (`rocprofiler_register_invoke_reattach`, and `rocprofiler_call_client_reattach` of the first
/// generation).
pub fn reattach() -> Code {
    let Ok(_held) = lock::take(Which::Operation) else {
        return Code::Deadlock;
    };
    match last() {
        Some(last) => start(last).err().unwrap_or(Code::Success),
        None => Code::AttachmentNotAvailable,
    }
}
