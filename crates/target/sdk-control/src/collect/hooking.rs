//! Finding the tables of loaded runtimes, hooking their slots, and opening the device side.

use crate::collection::{Collection, Running};
use crate::counting;
use crate::rendezvous::request::TableRequest;
use crate::state::STATE;
use crate::tables::{self, Live};
use midair_domain::KindSet;
use midair_record::event::{kind, note};
use midair_sdk_device::domain::{self, Device, Domain, Entry};
use midair_sdk_device::queue::harvest::Harvester;
use midair_sdk_device::sampling;
use midair_sdk_device::symbols;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::markers::legacy;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

impl Collection {
    /// Searches for tables, opens the device side if the runtime is open, and hooks slots.
    pub(super) fn search_tables(&mut self) {
        self.find_tables();
        self.hook_slots();
        self.check_hsa();
        if let Some(running) = &mut self.running {
            Self::open_hsa(running, &mut self.domains, &mut self.harvester);
        }
        self.hook_slots();
        self.release_waiters();
    }

    /// Lets waiting threads continue, because everything is hooked.
    pub(super) fn release_waiters(&mut self) {
        if let Some(running) = &self.running {
            let waiting = running.need.device() && !running.hsa_open;
            STATE.device_pending.store(u32::from(waiting), Release);
            STATE.hsa_closed.store(u32::from(!running.hsa_up), Release);
        }
    }

    /// Hooks tables without asking the device, since the thread that waits for this may be inside
    /// `hsa_init`.
    pub(super) fn hook_tables(&mut self, request: TableRequest) {
        self.find_tables();
        if request == TableRequest::Hsa {
            self.hsa_slots_are_final();
        }
        self.hook_slots();
    }

    /// Checks the state of HSA. Before the HSA runtime is open, the tools that it loads itself may
    /// still put their functions into its slots. So only `hsa_init` is hooked at first, and the
    /// rest when that returns. Our functions then call those tools' functions, as if we had
    /// attached later, and nothing is lost.
    pub(super) fn check_hsa(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        if running.hsa_up || !running.has_hsa() {
            return;
        }
        running.hsa_up = Self::runtime_is_open();
        if !running.hsa_up {
            running.began_closed = running.need.work.contains(kind::KERNEL_DISPATCH);
        }
        if running.hsa_up {
            self.hsa_slots_are_final();
        }
    }

    /// Notes that HSA's slots now contain what the runtime and its own tools want there.
    pub(super) fn hsa_slots_are_final(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        if !std::mem::replace(&mut running.hsa_final, true) {
            for live in running.live.iter().filter(|live| live.is_hsa()) {
                self.installed.save_originals(live, &STATE.marks);
            }
        }
    }

    pub(super) fn hook_slots(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        for live in &running.live {
            if running.hsa_final || !live.is_hsa() {
                self.installed.hook(live, &running.need);
            } else {
                self.installed.hook_opener(live);
            }
        }
        if !running.hsa_final {
            return;
        }
        let entries: Vec<Entry> = self
            .domains
            .iter()
            .filter(|domain| running.need.work.contains(domain.kind()))
            .flat_map(|domain| domain.entries())
            .collect();
        if entries.is_empty() {
            return;
        }
        Self::find_tools(running);
        if let Some(table) = &running.tools {
            for (index, (original, hook)) in entries.into_iter().enumerate() {
                if let Some(cell) = table.slot(tables::tools::FIRST + 8 * index) {
                    self.installed
                        .hook_entry(cell, table.home(), original, hook);
                }
            }
        }
    }

    pub(super) fn find_tables(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        running.searched_at = now();
        let epoch = tables::loader_epoch();
        let mut found = tables::find();
        for (id, at) in STATE.registered.libraries() {
            found.complete(id, at);
        }
        running.epoch = if found.not_yet.is_empty() { epoch } else { 0 };
        for why in found.refused {
            if !running.reported.contains(&why) {
                running.sink.put(kind::NOTE, &note(&why));
                running.reported.push(why);
            }
        }
        for live in found.live {
            match running
                .live
                .iter_mut()
                .find(|known| known.index() == live.index())
            {
                Some(known) if known.base() == live.base() => {}
                Some(known) => *known = live,
                None => {
                    self.installed.save_originals(&live, &STATE.marks);
                    running.live.push(live);
                    self.runtimes.report(&live, &mut running.sink);
                }
            }
        }
        if running.need.markers()
            && let Some(variable) = found.legacy_roctx
            && !self.roctx_tap.is_some_and(|tap| tap.is_in(variable))
        {
            // SAFETY: the aligned variable was found through the loaded library's own code.
            // Programs do not unload that library. If one does, the loader's count changes, and the
            // library is searched for again.
            self.roctx_tap = unsafe { legacy::Tap::install(variable) };
        }
    }

    pub(super) fn runtime_is_open() -> bool {
        STATE.in_runtime.store(1, SeqCst);
        let open = symbols::runtime_is_open();
        STATE.in_runtime.store(0, SeqCst);
        open
    }

    /// Finds the table through which the runtime reports scratch memory.
    pub(super) fn find_tools(running: &mut Running) {
        if running.tools.is_some() {
            return;
        }
        match tables::tools::find(&running.live, STATE.root_table.load(Relaxed)) {
            Ok(table) => running.tools = Some(table),
            Err(Some(why)) if !running.reported.contains(&why) => {
                running.sink.put(kind::NOTE, &note(&why));
                running.reported.push(why);
            }
            Err(_) => {}
        }
    }

    /// Prepares signals, names and the profiling of copies, when the HSA runtime is open. Contexts
    /// start one by one, so more may be needed after the runtime was opened.
    pub(super) fn open_hsa(
        running: &mut Running,
        domains: &mut [Box<dyn Domain>],
        harvester: &mut Harvester,
    ) {
        if !running.need.runtime() {
            return;
        }
        if !running.hsa_open {
            running.waiting_for = if !running.has_hsa() {
                "no table of an HSA runtime was found"
            } else if !running.hsa_up {
                "the HSA runtime was not initialised"
            } else {
                running.hsa_open = true;
                ""
            };
            if !running.hsa_open {
                return;
            }
            for domain in &mut *domains {
                domain.runtime_is_open(running.began_closed);
            }
            symbols::write_agents(&mut running.sink);
        }
        if !running.need.device() {
            return;
        }
        if !running.hsa_ready {
            if !harvester.prepare() {
                running.waiting_for = "the HSA runtime gave no signals";
                return;
            }
            running.hsa_ready = true;
            if let Some(complaint) = symbols::refresh(&mut running.sink) {
                running.sink.put(kind::NOTE, &note(complaint));
            }
        }
        let (running_live, root) = (&running.live, STATE.root_table.load(Relaxed));
        let mut device = Device {
            harvester,
            sink: &mut running.sink,
        };
        for domain in domains {
            if domain::needs_device(&**domain) && running.need.work.contains(domain.kind()) {
                if SAMPLES.contains(domain.kind()) {
                    offer_samples(running_live, root);
                }
                domain.open(&mut device);
            }
        }
        counting::devices::opened(running.need.counts_devices);
    }
}

const SAMPLES: KindSet = KindSet::of(&[kind::PC_SAMPLING_HOST_TRAP, kind::PC_SAMPLING_STOCHASTIC]);

/// Passes the runtime's functions for samples of program counters on.
fn offer_samples(live: &[Live], root: usize) {
    if let Some(entries) = tables::samples::find(live, root) {
        // SAFETY: they were found in the runtime's own table, and the runtime is not unloaded.
        unsafe { sampling::offer(entries) };
    }
}
