//! The settings that an attacher sends, and how they reach a tool that reads the environment.
//!
//! `setenv` in a process with other threads is a race: it moves the array while others read it.
//! Instead, a new array is made and published by one store. When the tool has read it, it is
//! withdrawn by one compare-and-swap. An array that was published is never freed, since some thread
//! may still be walking it.

use crate::bounded::Cursor;
use crate::code::Code;
use crate::log::{Level, say};
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The maximum number of variables in a buffer. With a greater count it is no such buffer.
const MAX_VARIABLES: u32 = 65_536;

/// Variables with their values, in the attacher's order.
pub type Variables = Vec<(CString, CString)>;

/// Set while an attach loads and starts a tool, to tell the tool so.
pub const TOOL_ATTACHED: &CStr = c"ROCPROFILER_REGISTER_TOOL_ATTACHED";
/// Names the tools that an SDK without `rocprofiler_load_attachment_tool` loads.
pub const TOOL_LIBRARIES: &CStr = c"ROCP_TOOL_LIBRARIES";
/// Variables that are not taken from an attacher. Paths of the attacher's own installation mean
/// nothing here, and this process knows better than its attacher whether a tool is attached.
const NOT_FROM_OUTSIDE: [&CStr; 2] = [c"ROCPROFILER_REGISTER_LIBRARY", TOOL_ATTACHED];

/// The maximum size of all variables together, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Reads an environment buffer: a count of four bytes, then that many pairs of NUL-terminated name
/// and value. The buffer has no length field. Unreadable memory is detected without dereferencing
/// it.
///
/// # Errors
/// [`Code::InvalidArgument`] for an invalid buffer: an impossible count, a name that no variable
/// can have, an end before the last value, or more than any attacher sends.
pub fn read_buffer(buffer: *const c_char) -> Result<Variables, Code> {
    let mut at = Cursor::new(buffer);
    let count = at.number()?;
    if count > MAX_VARIABLES {
        return Err(Code::InvalidArgument);
    }
    let mut variables = Variables::new();
    let mut bytes = 0;
    for _ in 0..count {
        let (name, value) = (at.text()?, at.text()?);
        bytes += name.count_bytes() + value.count_bytes();
        if name.is_empty() || name.to_bytes().contains(&b'=') || bytes > MAX_BYTES {
            return Err(Code::InvalidArgument);
        }
        if !NOT_FROM_OUTSIDE.contains(&name.as_c_str()) {
            variables.push((name, value));
        }
    }
    Ok(variables)
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

fn in_place() -> &'static AtomicPtr<*mut c_char> {
    // SAFETY: `environ` is a static of the C library, aligned as a pointer. Other code reads it
    // without atomics. On the supported machines such a read sees either the old or the new
    // address.
    unsafe { AtomicPtr::from_ptr(&raw mut environ) }
}

/// An environment with additional variables, in effect until dropped.
#[derive(Debug)]
pub struct Published {
    before: *mut *mut c_char,
    ours: *mut *mut c_char,
}

/// Publishes an environment in which `variables` are added to the process's variables, or replace
/// them.
pub fn publish(variables: &[(CString, CString)]) -> Published {
    let before = in_place().load(Ordering::Acquire);
    let mut array: Vec<*mut c_char> = Vec::new();
    for (name, value) in variables {
        let mut line = name.as_bytes().to_vec();
        line.push(b'=');
        line.extend_from_slice(value.as_bytes());
        // Neither part can contain a NUL: both are C strings.
        if let Ok(line) = CString::new(line) {
            array.push(line.into_raw());
        }
    }
    let mut at = before;
    while !at.is_null() {
        // SAFETY: `at` walks the process's own environment, which ends with a null entry.
        let line = unsafe { *at };
        if line.is_null() {
            break;
        }
        // SAFETY: each entry before the null is a NUL-terminated text.
        let text = unsafe { CStr::from_ptr(line) }.to_bytes();
        let name = text.split(|b| *b == b'=').next().unwrap_or(text);
        if !variables.iter().any(|(n, _)| n.as_bytes() == name) {
            array.push(line);
        }
        at = at.wrapping_add(1);
    }
    array.push(std::ptr::null_mut());
    let ours = Box::leak(array.into_boxed_slice()).as_mut_ptr();
    in_place().store(ours, Ordering::Release);
    Published { before, ours }
}

impl Drop for Published {
    fn drop(&mut self) {
        let back = in_place().compare_exchange(
            self.ours,
            self.before,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if back.is_err() {
            // The program called setenv meanwhile. Its array is a copy of midair's with its own change,
            // which must not be lost.
            say(
                Level::Warning,
                "the program changed its environment during the attach; the attacher's variables stay in it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut out = (pairs.len() as u32).to_le_bytes().to_vec();
        for (name, value) in pairs {
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            out.extend_from_slice(value.as_bytes());
            out.push(0);
        }
        out
    }

    fn read(bytes: &[u8]) -> Result<Variables, Code> {
        read_buffer(bytes.as_ptr().cast())
    }

    #[test]
    fn a_buffer_is_read_in_order_and_filtered() {
        let bytes = buffer(&[
            ("ROCPROF_KERNEL_TRACE", "1"),
            ("ROCPROF_OUTPUT_PATH", ""),
            ("ROCPROFILER_REGISTER_LIBRARY", "/host/lib.so"),
            ("ROCPROFILER_REGISTER_TOOL_ATTACHED", "1"),
            ("ROCP_X", "a=b"),
        ]);
        let got = read(&bytes).unwrap();
        let got: Vec<(&str, &str)> = got
            .iter()
            .map(|(n, v)| (n.to_str().unwrap(), v.to_str().unwrap()))
            .collect();
        assert_eq!(
            got,
            [
                ("ROCPROF_KERNEL_TRACE", "1"),
                ("ROCPROF_OUTPUT_PATH", ""),
                ("ROCP_X", "a=b")
            ]
        );
        assert_eq!(read(&buffer(&[])).unwrap(), []);
        // The buffer lies at an odd address.
        let mut shifted = vec![0xff];
        shifted.extend_from_slice(&bytes);
        assert_eq!(read(&shifted[1..]).unwrap().len(), 3);
    }

    #[test]
    fn an_invalid_buffer_is_refused() {
        assert_eq!(read(&u32::MAX.to_le_bytes()), Err(Code::InvalidArgument));
        assert_eq!(read(&buffer(&[("", "x")])), Err(Code::InvalidArgument));
        assert_eq!(read(&buffer(&[("A=B", "x")])), Err(Code::InvalidArgument));
    }

    #[test]
    fn a_buffer_has_its_most_variables_and_its_most_bytes() {
        let many = vec![("A", ""); MAX_VARIABLES as usize];
        assert_eq!(read(&buffer(&many)).map(|got| got.len()), Ok(many.len()));
        let more = [&many[..], &many[..1]].concat();
        assert_eq!(read(&buffer(&more)), Err(Code::InvalidArgument));
        // Each of these has a mebibyte with its name.
        let value = "x".repeat((1 << 20) - 1);
        let large = vec![("A", value.as_str()); MAX_BYTES >> 20];
        assert_eq!(read(&buffer(&large)).map(|got| got.len()), Ok(large.len()));
        let larger = [&large[..], &[("A", "")]].concat();
        assert_eq!(read(&buffer(&larger)), Err(Code::InvalidArgument));
    }

    #[test]
    fn published_variables_are_seen_by_getenv_and_removed_afterwards() {
        let get = |name: &CStr| crate::config::variable(name);
        let path_before = get(c"PATH");
        let array_before = in_place().load(Ordering::Relaxed);
        let all = || {
            let mut all: Vec<_> = std::env::vars_os().collect();
            all.sort();
            all
        };
        let mut wanted = all();
        wanted.retain(|(name, _)| name != "PATH");
        wanted.push(("PATH".into(), "/elsewhere".into()));
        wanted.push(("ROCP_TEST_PUBLISHED".into(), "yes".into()));
        wanted.sort();
        let published = publish(&[
            (c"ROCP_TEST_PUBLISHED".into(), c"yes".into()),
            (c"PATH".into(), c"/elsewhere".into()),
        ]);
        assert_eq!(get(c"ROCP_TEST_PUBLISHED").as_deref(), Some(c"yes"));
        assert_eq!(get(c"PATH").as_deref(), Some(c"/elsewhere"));
        assert_eq!(all(), wanted, "all others are as they were");
        drop(published);
        assert_eq!(get(c"ROCP_TEST_PUBLISHED"), None);
        assert_eq!(get(c"PATH"), path_before);
        assert_eq!(in_place().load(Ordering::Relaxed), array_before);
    }
}
