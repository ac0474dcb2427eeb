//! The worker thread's work in a process with AMD's runtimes: it configures and attaches tools, and
//! runs the collection.
//!
//! `midair-guest` decides how the thread gets here, and where it waits between sessions.

use crate::{capi, collect, local, rendezvous};
use midair_guest::{Kept, Refused, Sent, VerifiedFd, Work, descriptor_path, now};
use midair_record::boot::BootBlock;
use midair_record::counter_plan::{self, Plan};
use midair_record::offer::Offer;
use midair_record::spool::{Area, outcome};
use midair_sdk_api::{changes, notes, registration, setting};
use midair_sdk_device::queue::{traces, windows};
use midair_sdk_hot::pause;
use midair_sdk_hot::probe::barrier;
use midair_settings::{
    ATTACH_ANNOUNCE, KEEP_RESULTS, MAX_BYTES, STRICT_REATTACH, Settings, TOOLS_BY_NAME,
};
use std::collections::HashMap;
use std::ffi::c_void;

/// The worker's own state, kept between sessions.
#[derive(Debug, Default)]
struct Worker {
    /// The tools loaded so far, by the identity that the attacher gave them.
    tools: HashMap<u64, Tool>,
    /// What the last session was asked to record.
    recorded: Option<Vec<(String, String)>>,
    /// Whether this session is announced.
    is_announced: bool,
    /// Whether this process was registered for barriers, or the kernel refused it.
    is_registered: bool,
}

/// Returns the settings that decide what a session records. Where and how results are written is
/// the attacher's own affair.
fn recorded(settings: &Settings) -> Vec<(String, String)> {
    const ELSEWHERE: [&str; 5] = [
        "ROCPROF_OUTPUT_",
        "ROCPROF_ATTACH_",
        STRICT_REATTACH,
        MAX_BYTES,
        KEEP_RESULTS,
    ];
    let kept = settings
        .iter()
        .filter(|(name, _)| !ELSEWHERE.iter().any(|part| name.starts_with(part)));
    let mut all: Vec<_> = kept
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    all.sort();
    all
}

/// Refuses settings that differ from the last session's, if the attacher asked for this.
fn refuse_changes(
    before: Option<&Vec<(String, String)>>,
    now: &[(String, String)],
) -> Result<(), Refused> {
    let Some(before) = before.filter(|before| before.as_slice() != now) else {
        return Ok(());
    };
    let added = now.iter().find(|setting| !before.contains(setting));
    let removed = || before.iter().find(|setting| !now.contains(setting));
    let name = added.or_else(removed).map_or("one", |(name, _)| name);
    Err(Refused::from(format!(
        "the previous attach had different settings ({name}), and --strict-reattach ({STRICT_REATTACH}) is set"
    )))
}

/// A loaded tool.
#[derive(Debug, Clone, Copy)]
struct Tool {
    handle: *mut c_void,
}

/// The entry point, which the boot code calls on the worker thread. Returns only when the thread
/// has to end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, and must stay mapped forever.
pub unsafe fn enter(boot: *mut BootBlock) {
    // SAFETY: the caller's promise.
    unsafe { midair_guest::enter(boot, &mut Worker::default()) };
}

impl Work for Worker {
    fn reset_after_fork(&mut self) {
        self.is_registered = false;
        crate::forked::reset_after_fork();
    }

    fn make_way(&mut self) -> Result<(), Kept> {
        local::make_way().map_err(|_| Kept)
    }

    fn go_on(&mut self) {
        local::go_on();
    }

    fn entered(&mut self) {
        changes::become_worker();
        registration::discover::entered_by_engine();
        // This exit handler runs after the next one, so tools are ended after the collection has
        // stopped.
        registration::end_at_exit();
        // SAFETY: `handle_exit` is a function of a library that is never unloaded.
        unsafe { libc::atexit(handle_exit) };
    }

    fn set_up(&mut self, area: Area, sent: Sent) -> Result<(), Refused> {
        let Sent { offer, tools, plan } = sent;
        // If a session has made way, its thread was the worker in the meantime.
        changes::become_worker();
        changes::serve(true);
        let settings =
            Settings::decode(&area.settings()).map_err(|error| format!("the settings: {error}"))?;
        let named: Vec<String> = settings
            .list(TOOLS_BY_NAME, ':')
            .into_iter()
            .map(str::to_owned)
            .collect();
        let recorded = recorded(&settings);
        if settings.is_on(STRICT_REATTACH) {
            refuse_changes(self.recorded.as_ref(), &recorded)?;
        }
        self.is_announced = settings.is_on(ATTACH_ANNOUNCE);
        collect::with(|collection| collection.begin_stacks(&settings));
        crate::collection::Collection::begin_sampling(&settings);
        setting::publish(settings);
        let plan = match plan.as_slice() {
            [] => Plan::default(),
            plan => counter_plan::decode(plan)
                .ok_or_else(|| "the plan of counters is none".to_owned())?,
        };
        traces::set_plan(plan.traces.clone());
        windows::set_plan(plan);
        let goes_on = registration::runs_by_itself();
        collect::with(|collection| collection.begin(Some(area), goes_on));
        // This holds until a tool that writes to the spool sets another mode.
        pause::begin(pause::Mode::default());
        // Tools start their contexts one by one. The collection starts once, with all of them, so
        // that every domain of the trace starts at the same moment.
        self.attach_tools(&offer, tools, &named)?;
        collect::with(|collection| collection.apply())?;
        self.recorded = Some(recorded);
        Ok(())
    }

    fn is_announced(&self) -> bool {
        self.is_announced
    }

    fn give_up(&mut self) {
        // Do this first, so that tools get everything before they are detached.
        collect::with(|collection| {
            collection.take_tables_back();
            collection.stop_all(now());
            collection.take_tables_back();
        });
        let _ = registration::detach();
    }

    fn tick(&mut self) -> bool {
        let busy = collect::with(|collection| collection.tick());
        if !self.is_registered {
            // The end of the session needs it, and nothing waits for this thread meanwhile.
            barrier::register();
            self.is_registered = true;
        }
        busy
    }

    fn slots(&self) -> u32 {
        collect::with(|collection| collection.slots())
    }

    fn leaving(&self) -> Option<u32> {
        if rendezvous::runtime_leaves() {
            return Some(outcome::RUNTIME_SHUT_DOWN);
        }
        rendezvous::process_leaves().then_some(outcome::PROCESS_EXIT)
    }

    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32 {
        // All domains end at the same moment. Then the tools stop their contexts, after everything
        // was delivered.
        collect::with(|collection| {
            collection.take_tables_back();
            collection.stop_all(deadline);
            collection.take_tables_back();
        });
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
        // What this process records by itself afterwards has no stacks.
        midair_stacks::end();
        windows::set_plan(Plan::default());
        traces::set_plan(Vec::new());
        let is_kept = collect::with(|collection| collection.end());
        if !is_kept {
            midair_stacks::release();
        }
        is_kept
    }
}

impl Worker {
    /// Attaches the tools of this session and no others; configures those that were not configured
    /// before.
    fn attach_tools(
        &mut self,
        offer: &Offer,
        tools: Vec<VerifiedFd>,
        named: &[String],
    ) -> Result<(), String> {
        registration::begin_session();
        for (fd, identity) in tools.into_iter().zip(offer.tool_identity) {
            let tool = self.load(fd, identity)?;
            // SAFETY: the handle is from dlopen and is never closed.
            unsafe { registration::load(tool.handle, capi::table()) }
                .map_err(|status| format!("cannot use the tool: {}", registration::why(status)))?;
        }
        for name in named {
            let handle = registration::library::open_named(name)
                .map_err(|why| format!("cannot load the tool {name}: {why}"))?;
            // SAFETY: as above.
            unsafe { registration::load(handle, capi::table()) }.map_err(|status| {
                format!("cannot use the tool {name}: {}", registration::why(status))
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
        let opened = registration::library::open(&path, 0);
        drop(fd);
        let handle = opened.map_err(|why| format!("cannot load the tool: {why}"))?;
        let tool = Tool { handle };
        self.tools.insert(identity, tool);
        Ok(tool)
    }
}

extern "C" fn handle_exit() {
    if midair_sdk_hot::probe::generation() != 0 {
        rendezvous::set_process_leaves();
        rendezvous::wait_for_stop(rendezvous::LEAVE_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_recorded_counts_as_changed() {
        let settings = |pairs: &[(&str, &str)]| {
            let mut settings = Settings::new();
            for (name, value) in pairs {
                settings.set(*name, *value);
            }
            recorded(&settings)
        };
        let kernels = ("ROCPROF_KERNEL_TRACE", "1");
        let first = settings(&[kernels, ("ROCPROF_OUTPUT_PATH", "/a")]);
        let same = settings(&[
            kernels,
            ("ROCPROF_OUTPUT_PATH", "/b"),
            (STRICT_REATTACH, "1"),
        ]);
        let more = settings(&[kernels, ("ROCPROF_HIP_RUNTIME_API_TRACE", "1")]);
        assert_eq!(refuse_changes(None, &more), Ok(()));
        assert_eq!(refuse_changes(Some(&first), &same), Ok(()));
        for (before, now) in [(&first, &more), (&more, &first)] {
            let text = refuse_changes(Some(before), now).unwrap_err().text;
            assert!(
                text.contains("different settings (ROCPROF_HIP_RUNTIME_API_TRACE)"),
                "{text}"
            );
        }
    }
}
