//! What the worker thread does in a process of AMD's runtimes: tools are configured and attached,
//! and the collection runs.
//!
//! How it came here, and where it waits between sessions, is `midair-guest`'s.

use crate::{capi, collect, gate};
use midair_guest::{Refused, VerifiedFd, Work, descriptor_path, now};
use midair_record::boot::BootBlock;
use midair_record::offer::Offer;
use midair_record::spool::{Area, outcome};
use midair_sdk_api::{changes, notes, registration, setting};
use midair_settings::{Settings, TOOLS_BY_NAME};
use std::collections::HashMap;
use std::ffi::{CStr, c_void};

/// The worker's own state, kept between sessions.
#[derive(Debug, Default)]
struct Worker {
    /// Tools loaded so far, by the identity that the attacher gave them.
    tools: HashMap<u64, Tool>,
}

/// A loaded tool.
#[derive(Debug, Clone, Copy)]
struct Tool {
    handle: *mut c_void,
}

/// Entry point, called by the boot code on the worker thread. Returns only when the thread shall end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for ever.
pub unsafe fn enter(boot: *mut BootBlock) {
    // SAFETY: the caller's promise.
    unsafe { midair_guest::enter(boot, &mut Worker::default()) };
}

impl Work for Worker {
    fn reset_after_fork(&mut self) {
        crate::forked::reset_after_fork();
    }

    fn entered(&mut self) {
        changes::become_worker();
        registration::discover::entered_by_engine();
        // Called after the next one: tools are ended when collecting has stopped.
        registration::end_at_exit();
        // SAFETY: `handle_exit` is a function of a library that is never unloaded.
        unsafe { libc::atexit(handle_exit) };
    }

    fn set_up(&mut self, area: Area, offer: &Offer, tools: Vec<VerifiedFd>) -> Result<(), Refused> {
        changes::serve(true);
        let settings =
            Settings::decode(&area.settings()).map_err(|error| format!("the settings: {error}"))?;
        let named: Vec<String> = settings
            .list(TOOLS_BY_NAME, ':')
            .into_iter()
            .map(str::to_owned)
            .collect();
        setting::publish(settings);
        collect::with(|collection| collection.begin(Some(area)));
        // Tools start their contexts one by one; the collection begins once, with all of them, so
        // that every domain of the trace begins at the same moment.
        self.attach_tools(offer, tools, &named)?;
        collect::with(|collection| collection.apply())?;
        Ok(())
    }

    fn give_up(&mut self) {
        // First, so that what the tools are told at their detach is all there is.
        collect::with(|collection| collection.stop_all(now()));
        let _ = registration::detach();
    }

    fn tick(&mut self) -> bool {
        collect::with(|collection| collection.tick())
    }

    fn slots(&self) -> u32 {
        collect::with(|collection| collection.slots())
    }

    fn leaving(&self) -> Option<u32> {
        if gate::runtime_leaves() {
            return Some(outcome::RUNTIME_SHUT_DOWN);
        }
        gate::process_leaves().then_some(outcome::PROCESS_EXIT)
    }

    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32 {
        // All domains end at the same moment; then the tools stop their contexts, with everything delivered.
        collect::with(|collection| collection.stop_all(deadline));
        let _ = registration::detach();
        detached();
        collect::with(|collection| collection.outcome)
    }

    fn last_words(&mut self) -> String {
        registration::expel_reported();
        notes::last_words()
    }

    fn end(&mut self) -> bool {
        changes::serve(false);
        collect::with(|collection| collection.end())
    }
}

impl Worker {
    /// Configures the tools of this session where that was not done before, and attaches them, and no others.
    fn attach_tools(
        &mut self,
        offer: &Offer,
        tools: Vec<VerifiedFd>,
        named: &[String],
    ) -> Result<(), String> {
        registration::begin_session();
        for (fd, identity) in tools.into_iter().zip(offer.tool_identity) {
            let tool = self.load(fd, identity)?;
            // SAFETY: a handle from dlopen that is never closed.
            unsafe { registration::load(tool.handle, capi::table()) }.map_err(|status| {
                format!("the tool cannot be used: {}", registration::why(status))
            })?;
        }
        for name in named {
            let handle = registration::library::open_named(name)
                .map_err(|why| format!("the tool {name} cannot be loaded: {why}"))?;
            // SAFETY: as above.
            unsafe { registration::load(handle, capi::table()) }.map_err(|status| {
                format!(
                    "the tool {name} cannot be used: {}",
                    registration::why(status)
                )
            })?;
        }
        registration::attach()
            .map_err(|status| format!("the tool refused to attach: {}", registration::why(status)))
    }

    fn load(&mut self, fd: VerifiedFd, identity: u64) -> Result<Tool, String> {
        if let Some(known) = self.tools.get(&identity) {
            return Ok(*known);
        }
        let fd = descriptor_path::renumber(fd)?;
        let path = std::ffi::CString::new(format!("{}{}", descriptor_path::DIRECTORY, fd.number()))
            .map_err(|error| error.to_string())?;
        // SAFETY: a NUL-terminated path; the library's initialisers run, as its user asked for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        drop(fd);
        if handle.is_null() {
            // SAFETY: dlerror gives null or a string that is valid until the next call on this thread.
            let why = unsafe {
                let text = libc::dlerror();
                if text.is_null() {
                    c"unknown".into()
                } else {
                    CStr::from_ptr(text).to_owned()
                }
            };
            return Err(format!(
                "the tool cannot be loaded: {}",
                why.to_string_lossy()
            ));
        }
        let tool = Tool { handle };
        self.tools.insert(identity, tool);
        Ok(tool)
    }
}

extern "C" fn handle_exit() {
    if midair_sdk_hot::probe::generation() != 0 {
        gate::set_process_leaves();
        gate::wait_for_stop(gate::LEAVE_LIMIT);
    }
}
