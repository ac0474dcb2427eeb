//! A session that collects. It keeps hooks, queues and spool in line with what the running contexts
//! want.
//!
//! Only the worker thread changes anything. Other threads leave a request ([`changes`]) and wait.
//!
//! At the start, the collection saves the slots' original functions, prepares signals, hooks slots,
//! and opens the recording. At the stop, nothing new is observed, while the hooks stay until the
//! device has finished what it is running. Then the recording is closed, every thread is seen
//! outside, slots are restored, counts are written, and the signals go back to the runtime.

mod hooking;
mod relay;

use crate::bursts::Bursting;
use crate::collection::{Collection, Leftover, Route, Running};
use crate::counting;
use crate::hooks;
use crate::install::Need;
use crate::local::{self, Kind};
use crate::openmp_use::Use;
use crate::rendezvous::{self, request::TableRequest};
use crate::runtimes;
use crate::state::STATE;
use crate::tables::{self, Live};
use midair_abi::constants as c;
use midair_abi::tables::TableId;
use midair_domain::{KindSet, sets};
use midair_record::event::{Plain, encode, kind, note};
use midair_record::spool::{Area, ChunkWriter, Reader, ReaderOptions, outcome};
use midair_sdk_api::context::{self, Wanted};
use midair_sdk_api::sampling::Setting;
use midair_sdk_api::{changes, code_object, events, intercept, notes, registration, retirement};
use midair_sdk_device::domain::{self, Device, Domain};
use midair_sdk_device::queue::{serialized, state, traces, windows};
use midair_sdk_device::sampling;
use midair_sdk_device::sink::Sink;
use midair_sdk_device::symbols;
use midair_sdk_hot::callbacks;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::host_functions;
use midair_sdk_hot::markers;
use midair_sdk_hot::openmp;
use midair_sdk_hot::pause;
use midair_sdk_hot::probe;
use midair_sdk_hot::wrappers::TABLES;
use midair_settings::{
    PC_SAMPLING, PC_SAMPLING_INTERVAL, PC_SAMPLING_METHOD, PC_SAMPLING_UNIT, STACKS, STACKS_BUDGET,
    Settings,
};
use relay::relay;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Duration;

/// Runs `act` on the collection. Only the worker calls this.
pub fn with<T>(act: impl FnOnce(&mut Collection) -> T) -> T {
    let mut guard = STATE
        .collection
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    act(guard.get_or_insert_with(|| Collection::new(hooks::HOOKS)))
}

/// How long a thread may stay in a record store.
const QUIESCE_LIMIT: Duration = Duration::from_millis(250);
/// How long a tool's function may take when a session ends.
const CALLBACK_LIMIT: Duration = Duration::from_secs(2);
/// How long the device has to finish what it is running when a second profiler joins.
const SHARE_DRAIN: Duration = Duration::from_millis(100);
/// The size in bytes of the private spool that feeds tools' buffers.
const PRIVATE_SPOOL: usize = 8 << 20;
/// How many more rounds it takes at most until the calls of events that have ended are passed on: one for a
/// look, and one for a wait whose record ended between two looks.
const EVENT_ROUNDS: usize = 2;
/// How often the list of libraries is searched for newly loaded runtimes, in ns.
const LOADER_INTERVAL: u64 = 5_000_000;

impl Collection {
    /// Starts a session. `spool` is read by the session's reader; without a spool only tools with
    /// buffers can be served. `goes_on`: the session also serves tools of the previous session, so
    /// ids that they know are not used again.
    pub fn begin(&mut self, spool: Option<Area>, goes_on: bool) {
        self.spool = spool;
        if !goes_on {
            self.next_correlation = 1;
            state::number_from_one();
            symbols::forget();
        }
        self.next_correlation = self.next_correlation.max(1);
        self.outcome = 0;
        self.memory_kept = false;
        self.runtimes = runtimes::Reports::new(&STATE.registered);
    }

    /// Starts to take stacks, if the session asks for them. Called between sessions.
    pub fn begin_stacks(&mut self, settings: &Settings) {
        midair_stacks::end();
        let wanted = midair_stacks::Wanted::of(settings.text(STACKS), settings.text(STACKS_BUDGET));
        self.stacks = wanted.map(midair_stacks::begin);
    }

    /// Keeps what the session asks about program counters. Called between sessions.
    pub fn begin_sampling(settings: &Settings) {
        let text = |name| settings.text(name).unwrap_or_default();
        let is_on = settings.is_on(PC_SAMPLING);
        sampling::ask(if is_on {
            sampling::Request::of(
                text(PC_SAMPLING_METHOD),
                text(PC_SAMPLING_UNIT),
                text(PC_SAMPLING_INTERVAL),
            )
        } else {
            None
        });
    }

    /// Says in the records whether stacks are taken.
    fn report_stacks(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        match &self.stacks {
            None => {}
            Some(Ok(started)) => {
                running.sink.put(kind::STACK, started.on.bytes());
                for (module, path) in &started.modules {
                    running.sink.put(kind::MODULE, &encode(module, path));
                }
                if let Some(text) = &started.note {
                    running.sink.put(kind::NOTE, &note(text));
                }
            }
            Some(Err(why)) => running.sink.put(kind::NOTE, &note(&why.text())),
        }
    }

    /// Calls [`Self::stop`], if something is still running.
    pub fn stop_all(&mut self, deadline: u64) {
        self.memory_kept |= self.stop(deadline) == Leftover::Memory;
    }

    /// Lends runtimes' tables to tools of this session that want them and do not have them yet,
    /// after our own functions are in them.
    fn lend(&mut self) {
        if intercept::kinds() == 0 {
            return;
        }
        self.tool_tables.looked = Some((now(), tables::loader_epoch()));
        let (live, hsa_open) = match &self.running {
            Some(running) => (running.live.clone(), running.hsa_final),
            None => {
                let mut found = tables::find();
                for (id, at) in STATE.registered.libraries() {
                    found.complete(id, at);
                }
                let live = found.live;
                for table in &live {
                    self.installed.save_originals(table, &STATE.marks);
                }
                let has_hsa = live.iter().any(Live::is_hsa);
                (live, has_hsa && Self::runtime_is_open())
            }
        };
        let root = STATE.root_table.load(Relaxed);
        self.tool_tables
            .lend(&live, hsa_open, root, &STATE.registered);
    }

    /// Does the same as [`Self::lend`], if libraries were loaded since it was last done.
    fn lend_what_is_new(&mut self) {
        let is_due = self.tool_tables.looked.is_some_and(|(at, epoch)| {
            now() - at > LOADER_INTERVAL && epoch != tables::loader_epoch()
        });
        if is_due {
            self.lend();
        }
    }

    /// Takes tables back that were lent to tools; no function of a tool is called from here on.
    /// Call this before the tools are detached.
    pub fn take_tables_back(&mut self) {
        if self.tool_tables.is_empty() {
            return;
        }
        self.tool_tables.take_back();
        if self.running.is_none() {
            // Restore our functions, which the tools' functions covered.
            self.installed.restore(&STATE.marks);
        }
        self.tool_tables.take_back();
    }

    /// Ends the session. Returns whether its spool must stay mapped.
    pub fn end(&mut self) -> bool {
        self.take_tables_back();
        if self.tool_tables.end() > 0 {
            self.outcome |= outcome::SLOT_KEPT;
        }
        self.spool = None;
        self.memory_kept
    }

    /// Writes a note for the user into the records.
    pub fn note(&mut self, text: &str) {
        if let Some(running) = &mut self.running {
            running.sink.put(kind::NOTE, &note(text));
        }
    }

    /// Whether it collects.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Applies what the running contexts want. Returns an error text if it cannot.
    pub fn apply(&mut self) -> Result<(), String> {
        // Changes that were requested before this point are applied when it returns.
        let ticket = changes::requested();
        let result = self.follow(&context::wanted());
        self.lend();
        changes::applied(ticket);
        result
    }

    fn follow(&mut self, wanted: &Wanted) -> Result<(), String> {
        if wanted.is_empty() {
            self.stop_all(now());
            return Ok(());
        }
        let Some(running) = &self.running else {
            return self.start(wanted);
        };
        if matches!(running.route, Route::Direct) && wanted.delivers() {
            return self.share(wanted);
        }
        let mut need = need_of(wanted);
        for domain in &mut self.domains {
            domain.wanted(wanted.kinds());
        }
        if let Some(running) = &mut self.running {
            // What was observed once is observed until the session ends: a queue has no counts if
            // some of its doorbells were missed.
            need.work |= running.need.work;
            need.called = callbacks::publish(wanted.services.clone());
            retirement::follow(wanted.retirement);
            events::follow(wanted.passes_on_events());
            host_functions::keep(wanted.code_objects);
            running.need = need;
            probe::session::set_kinds(need.tracked(), need.recorded);
            probe::session::set_called(need.called);
            running.searched_at = 0;
        }
        self.search_tables();
        Ok(())
    }

    /// Restarts the collection, because a tool in this process wants records as well, which went
    /// straight to the attacher so far. From now on they pass through the tools' buffers. Numbers
    /// continue.
    fn share(&mut self, wanted: &Wanted) -> Result<(), String> {
        let began = now();
        self.stop_all(began + SHARE_DRAIN.as_nanos() as u64);
        self.runtimes.set_tells_tools(true);
        let started = self.start(wanted);
        self.runtimes.set_tells_tools(false);
        started?;
        let gap = (now() - began) / 1000;
        self.note(&format!(
            "another profiler in the process started recording: nothing was recorded for {gap} us"
        ));
        Ok(())
    }

    fn start(&mut self, wanted: &Wanted) -> Result<(), String> {
        if !probe::session::prepare() || !state::provide() {
            return Err("cannot map memory for the hooks".to_owned());
        }
        let wanted_work = need_of(wanted).work;
        for domain in &mut self.domains {
            domain.begin(wanted_work);
            domain.wanted(wanted.kinds());
        }
        symbols::begin();
        markers::begin();
        openmp::begin();
        pause::set_shared(wanted.delivers());
        let (route, area) = if wanted.delivers() {
            let options = ReaderOptions {
                size: PRIVATE_SPOOL,
                settings: Vec::new(),
                drain_ms: 0,
                lease_ms: 0,
                session: 0,
            };
            let reader = Reader::create(&options).map_err(|error| error.to_string())?;
            // SAFETY: the reader goes into `route`. It is dropped only after every thread was seen
            // outside, and leaked otherwise.
            let area = unsafe { reader.area() }.ok_or("the private spool is not one")?;
            (
                Route::Relay {
                    reader,
                    onward: ChunkWriter::new(),
                },
                area,
            )
        } else {
            (
                Route::Direct,
                self.spool.ok_or("no process reads the records")?,
            )
        };
        callbacks::begin();
        retirement::follow(wanted.retirement);
        events::follow(wanted.passes_on_events());
        host_functions::keep(wanted.code_objects);
        let mut need = need_of(wanted);
        need.called = callbacks::publish(wanted.services.clone());
        let no_markers =
            wanted.kinds().intersects(markers::KINDS) && !need.recorded.intersects(markers::KINDS);
        if !wanted.services.is_empty() && need.called.is_empty() || no_markers {
            return Err("cannot map memory for callbacks and markers".to_owned());
        }
        self.runtimes.want(wanted);
        let tid = changes::worker();
        // SAFETY: the area is the attacher's spool, which the worker unmaps only after `stop` has
        // returned Leftover::Nothing, or the spool of the private reader, which lives in `route`
        // until then.
        let generation = unsafe { probe::session::start(area, self.next_correlation) };
        self.running = Some(Running {
            generation,
            need,
            sink: Sink {
                area,
                writer: ChunkWriter::new(),
                tid,
            },
            route,
            live: Vec::new(),
            tools: None,
            hsa_up: false,
            // A thread that registers tables is inside `hsa_init`, so the runtime is still closed.
            began_closed: need.work.contains(kind::KERNEL_DISPATCH)
                && STATE.request.load(SeqCst) == TableRequest::Hsa,
            hsa_final: false,
            hsa_open: false,
            hsa_ready: false,
            waiting_for: "",
            searched_at: 0,
            epoch: 0,
            reported: Vec::new(),
            bursts: Bursting::begin(),
        });
        self.report_stacks();
        notes::open(true);
        STATE.collecting.store(true, SeqCst);
        STATE.went_on_unhooked.store(0, SeqCst);
        STATE
            .device_pending
            .store(u32::from(need.device()), Release);
        // Set this before `hsa_init` is hooked, so that a call that returns through the hook sees
        // it.
        STATE.hsa_closed.store(1, Release);
        match rendezvous::take_search() {
            None => self.search_tables(),
            Some((request, ticket)) => {
                self.hook_tables(request);
                rendezvous::answer_search(ticket);
            }
        }
        probe::session::set_called(need.called);
        probe::session::open(need.tracked(), need.recorded);
        Ok(())
    }

    /// Returns how many slots contain our functions.
    pub fn slots(&self) -> u32 {
        self.installed.len() as u32
    }

    /// Runs one round of the worker during a session. Returns whether there was anything to do.
    pub fn tick(&mut self) -> bool {
        let asked = changes::rounds_asked();
        let mut busy = self.round();
        // A tool that flushes a buffer gets what has ended.
        for _ in 0..EVENT_ROUNDS {
            if changes::is_round_due(asked) && events::is_waiting() {
                busy |= self.round();
            }
        }
        changes::round_done(asked);
        busy
    }

    fn round(&mut self) -> bool {
        registration::expel_reported();
        if changes::is_pending() {
            let _ = self.apply();
        }
        if let Some((request, ticket)) = rendezvous::take_search() {
            self.hook_tables(request);
            rendezvous::answer_search(ticket);
        }
        self.lend_what_is_new();
        let Some(running) = &mut self.running else {
            return false;
        };
        let mut busy = false;
        let leaving = symbols::leaving::asked();
        for text in notes::take() {
            running.sink.put(kind::NOTE, &note(&text));
        }
        let mut device = Device {
            harvester: &mut self.harvester,
            sink: &mut running.sink,
        };
        if running.hsa_ready {
            for domain in on_device(&mut self.domains) {
                busy |= domain.pass(&mut device);
            }
            busy |= on_device(&mut self.domains).any(|domain| domain.under_way() > 0);
            symbols::refresh(device.sink);
        }
        for domain in off_device(&mut self.domains) {
            busy |= domain.pass(&mut device);
        }
        if let Some(bursts) = &mut running.bursts {
            busy |= bursts.round(&mut running.sink);
        }
        counting::devices::pass();
        tell_time_off(self.spool);
        let is_asked = retirement::is_followed() || events::is_followed();
        let packets = is_asked.then(|| self.harvester.packets_under_way());
        let packets = packets.flatten();
        let ids = packets
            .as_ref()
            .filter(|_| retirement::is_followed())
            .and_then(|packets| self.harvester.ids_under_way(packets));
        if let Some(packets) = &packets {
            events::looked(packets);
        }
        if let Some(ids) = &ids {
            retirement::looked(ids);
        }
        busy |= relay(&mut running.route, self.spool, changes::worker());
        if packets.is_some() {
            // Ahead of the ids that are done: an id is not retired before its last record.
            events::delivered();
        }
        busy |= events::is_waiting();
        if ids.is_some() {
            retirement::delivered();
        }
        if running.hsa_ready {
            // What has ended up to now was delivered above, and what is loaded up to now was
            // announced.
            symbols::retire(leaving, code_object::unload);
        }
        let time = now();
        if time - running.searched_at > LOADER_INTERVAL {
            running.searched_at = time;
            for (module, path) in midair_stacks::refresh() {
                running.sink.put(kind::MODULE, &encode(&module, &path));
            }
            if running.epoch != tables::loader_epoch() {
                self.search_tables();
            } else if running.has_hsa()
                && (!running.hsa_up || !running.hsa_ready && running.need.device())
            {
                // A closed runtime answers at once, so nothing has to be searched.
                self.check_hsa();
                if self.running.as_ref().is_some_and(|running| running.hsa_up) {
                    self.search_tables();
                }
            }
        }
        busy
    }

    /// Ends the collection. Work that is still running on the device may take until `deadline`.
    ///
    /// First nothing new is observed, while the hooks stay: before a thread of the application uses
    /// a signal again, the times in it are still read. Then the slots are restored.
    pub fn stop(&mut self, deadline: u64) -> Leftover {
        let Some(mut running) = self.running.take() else {
            return Leftover::Nothing;
        };
        if let Some(bursts) = &mut running.bursts {
            bursts.finish(&mut running.sink);
        }
        windows::recording_ends();
        counting::devices::closes();
        probe::session::close(QUIESCE_LIMIT);
        tell_time_off(self.spool);
        if running.hsa_ready {
            let mut device = Device {
                harvester: &mut self.harvester,
                sink: &mut running.sink,
            };
            for domain in on_device(&mut self.domains) {
                domain.close(&mut device);
            }
            loop {
                for domain in on_device(&mut self.domains) {
                    domain.pass(&mut device);
                }
                if under_way(&mut self.domains) == 0 || now() >= deadline {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            for domain in on_device(&mut self.domains) {
                domain.restore(&mut device);
            }
        }
        for text in callbacks::close(CALLBACK_LIMIT) {
            running.sink.put(kind::NOTE, &note(&text));
        }
        probe::session::stop();
        self.next_correlation = probe::session::next_correlation().max(1);
        let outside = probe::quiesce(QUIESCE_LIMIT);
        if let Some(Ok(_)) = self.stacks {
            let (record, words) = midair_stacks::cost().record();
            running.sink.put(kind::STACK, &encode(&record, &words));
        }
        if let Some(why) = why_never_selected(&running, self.roctx_tap.is_some()) {
            running.sink.put(kind::NOTE, &note(why));
        }
        if let Some(tap) = self.roctx_tap.take() {
            tap.remove();
        }
        if self.installed.restore(&STATE.marks) > 0 {
            self.outcome |= outcome::SLOT_KEPT;
        }
        if outside {
            probe::session::close_session(running.generation, running.need.recorded);
        }
        notes::open(false);
        for text in markers::notes()
            .into_iter()
            .chain(openmp::notes())
            .chain(notes::take())
        {
            running.sink.put(kind::NOTE, &note(&text));
        }
        if running.hsa_ready {
            symbols::set_changed();
            symbols::refresh(&mut running.sink);
            symbols::finish(&mut running.sink);
            if let Some(text) = symbols::note() {
                running.sink.put(kind::NOTE, &note(&text));
            }
            if under_way(&mut self.domains) > 0 {
                self.outcome |= outcome::STILL_RUNNING;
            }
            let mut device = Device {
                harvester: &mut self.harvester,
                sink: &mut running.sink,
            };
            for domain in on_device(&mut self.domains) {
                domain.books(&mut device);
            }
            for domain in on_device(&mut self.domains) {
                domain.release(&mut device);
            }
            // Only now: the books above write dispatches that have ended since the last look.
            symbols::retire(symbols::leaving::asked(), |_| ());
        } else if running.need.device() {
            running.sink.put(
                kind::NOTE,
                &note(&format!(
                    "no kernels and copies were recorded: {}",
                    running.waiting_for
                )),
            );
        } else if running.need.runtime() && !running.hsa_open {
            running.sink.put(
                kind::NOTE,
                &note(&format!(
                    "no memory operations were recorded: {}",
                    running.waiting_for
                )),
            );
        }
        let mut device = Device {
            harvester: &mut self.harvester,
            sink: &mut running.sink,
        };
        for domain in off_device(&mut self.domains) {
            domain.books(&mut device);
            domain.release(&mut device);
        }
        for text in counting::close() {
            running.sink.put(kind::NOTE, &note(&text));
        }
        if running.live.is_empty() && STATE.openmp.load(SeqCst) == Use::Never {
            self.outcome |= outcome::NO_TABLES;
        }
        if STATE.went_on_unhooked.load(SeqCst) > 0 {
            self.outcome |= outcome::HOOKED_LATE;
        }
        // Relay first: records that started during a pause are counted on this way, if there is one.
        relay(&mut running.route, self.spool, changes::worker());
        for text in pause::notes() {
            running.sink.put(kind::NOTE, &note(&text));
        }
        // SAFETY: the spool (or the private one, which is still in `running`) is mapped, and only
        // the worker uses this writer.
        unsafe { running.sink.writer.seal() };
        relay(&mut running.route, self.spool, changes::worker());
        // What is loaded is reported again, with new numbers, when another recording starts.
        code_object::unload_all();
        events::finish();
        if retirement::is_followed() {
            retirement::finish();
            retirement::follow(false);
        }
        if let Route::Relay { onward, .. } = &mut running.route {
            // SAFETY: the attacher's spool is mapped until the session ends.
            unsafe { onward.seal() };
        }
        STATE.collecting.store(false, SeqCst);
        STATE.device_pending.store(0, Release);
        STATE.hsa_closed.store(0, Release);
        if outside {
            Leftover::Nothing
        } else {
            self.outcome |= outcome::MEMORY_KEPT;
            // Threads may still write to the private spool as well.
            std::mem::forget(running.route);
            Leftover::Memory
        }
    }
}

/// Tells the attacher for how long nothing was recorded so far.
fn tell_time_off(spool: Option<Area>) {
    if let Some(spool) = spool {
        spool.head().unrecorded.store(pause::off_time(), Relaxed);
    }
}

/// Returns why no region can have been selected, if nothing else is recorded.
fn why_never_selected(running: &Running, has_old_library: bool) -> Option<&'static str> {
    let is_control = |live: &tables::Live| {
        TABLES
            .get(live.index())
            .is_some_and(|table| table.id == TableId::RoctxControl)
    };
    if !pause::is_selected() || running.live.iter().any(is_control) {
        return None;
    }
    Some(if has_old_library {
        "cannot select regions: the program uses the old libroctx64.so.4, which has no roctxProfilerResume"
    } else {
        "cannot select regions: no library with roctxProfilerResume found in the program"
    })
}

fn need_of(wanted: &Wanted) -> Need {
    let is_launched = local::kind() == Kind::Launched;
    if wanted.counts_dispatches && is_launched {
        counting::take_dispatches();
    }
    counting::tool_requests::serve(wanted.counts_dispatches && !is_launched);
    if let Some(setting) = wanted.samples.filter(|_| sampling::asked().is_none()) {
        sampling::ask(request_of(&setting));
    }
    let mut kinds = wanted.kinds();
    if kinds.intersects(markers::KINDS) && !markers::prepare() {
        kinds = kinds - markers::KINDS;
    }
    let work = (kinds & sets::NEEDS_RUNTIME).with_if(kind::KERNEL_DISPATCH, wanted.code_objects);
    let counts = wanted.counts_devices
        || work.contains(kind::KERNEL_DISPATCH)
            && (windows::has_plan()
                || serialized::is_asked()
                || windows::tool_requests::is_wanted());
    let work = work.with_if(kind::COUNTER_COLLECTION, counts);
    // Traces and samples are of dispatches, so they come with them.
    let work = work.with_if(
        kind::THREAD_TRACE,
        work.contains(kind::KERNEL_DISPATCH) && traces::has_plan(),
    );
    let sampled = sampling::asked().filter(|_| work.contains(kind::KERNEL_DISPATCH));
    let method = sampled.map(|request| request.method);
    let work = work
        .with_if(
            kind::PC_SAMPLING_HOST_TRAP,
            method == Some(sampling::Method::HostTrap),
        )
        .with_if(
            kind::PC_SAMPLING_STOCHASTIC,
            method == Some(sampling::Method::Stochastic),
        );
    let mut recorded = kinds & (sets::HOOKED_CALLS | sets::TOLD);
    if wanted.retirement {
        // The record of a call tells that the call has returned.
        recorded |= wanted.services.kinds() & (sets::HOOKED_CALLS | sets::TOLD);
        if work.intersects(sets::NEEDS_DEVICE) {
            recorded |= sets::HIP_CALLS;
        }
    }
    Need {
        recorded,
        called: KindSet::EMPTY,
        work,
        counts_devices: wanted.counts_devices,
        pauses: pause::is_honoured(),
    }
}

/// Returns what tools sample as a request; `None` for numbers without a meaning.
fn request_of(setting: &Setting) -> Option<sampling::Request> {
    Some(sampling::Request {
        method: match setting.is_stochastic() {
            true => sampling::Method::Stochastic,
            false => sampling::Method::HostTrap,
        },
        unit: match setting.unit {
            c::ROCPROFILER_PC_SAMPLING_UNIT_TIME => sampling::Unit::Time,
            c::ROCPROFILER_PC_SAMPLING_UNIT_CYCLES => sampling::Unit::Cycles,
            c::ROCPROFILER_PC_SAMPLING_UNIT_INSTRUCTIONS => sampling::Unit::Instructions,
            _ => return None,
        },
        interval: setting.interval,
    })
}

/// Returns the domains whose work is done by the device.
fn on_device(domains: &mut [Box<dyn Domain>]) -> impl Iterator<Item = &mut Box<dyn Domain>> {
    domains
        .iter_mut()
        .filter(|domain| domain::needs_device(&***domain))
}

/// Returns all other domains.
fn off_device(domains: &mut [Box<dyn Domain>]) -> impl Iterator<Item = &mut Box<dyn Domain>> {
    domains
        .iter_mut()
        .filter(|domain| !domain::needs_device(&***domain))
}

/// Returns how much of the device's work has not ended.
fn under_way(domains: &mut [Box<dyn Domain>]) -> u64 {
    on_device(domains).map(|domain| domain.under_way()).sum()
}
