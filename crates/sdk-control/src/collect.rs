//! A session that collects: brings hooks, queues and spool into line with what the running contexts
//! want.
//!
//! Only the worker thread changes anything; other threads leave a request ([`changes`]) and wait.
//!
//! At the start originals are saved, signals made ready, slots hooked, and the recording is opened.
//! At the stop nothing new is observed, while the hooks stay until the device has finished what it
//! runs; then the recording is closed, every thread is seen outside, slots are restored, counts are
//! written, and the signals go back to the runtime.

mod relay;

use crate::collection::{Collection, Leftover, Route, Running};
use crate::counting;
use crate::gate::{self, request::TableRequest};
use crate::hooks;
use crate::install::Need;
use crate::local::{self, Kind};
use crate::runtimes;
use crate::state::STATE;
use crate::tables::{self, Live};
use midair_abi::tables::TableId;
use midair_domain::{KindSet, sets};
use midair_record::event::{kind, note};
use midair_record::spool::{Area, ChunkWriter, Reader, ReaderOptions, outcome};
use midair_sdk_api::context::{self, Wanted};
use midair_sdk_api::{changes, code_object, intercept, notes, registration, retirement};
use midair_sdk_device::domain::{self, Device, Domain, Entry};
use midair_sdk_device::queue::harvest::Harvester;
use midair_sdk_device::queue::{alone, state, windows};
use midair_sdk_device::sink::Sink;
use midair_sdk_device::symbols;
use midair_sdk_hot::callbacks;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::host_functions;
use midair_sdk_hot::markers::{self, legacy};
use midair_sdk_hot::pause;
use midair_sdk_hot::probe;
use midair_sdk_hot::wrappers::TABLES;
use relay::relay;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Duration;

/// Runs `act` on the collection. On the worker only.
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
/// How long the device may finish what it runs when a second profiler joins.
const SHARE_DRAIN: Duration = Duration::from_millis(100);
/// Bytes of the private spool that feeds tools' buffers.
const PRIVATE_SPOOL: usize = 8 << 20;
/// How often the list of libraries is searched for runtimes that were loaded since, in ns.
const LOADER_INTERVAL: u64 = 5_000_000;

impl Collection {
    /// A session begins: `spool` is its reader's; without one only tools with buffers can be served.
    /// `goes_on`: it serves tools of the session before it, too, so ids that they know are not used again.
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

    /// [`Self::stop`], if something still runs.
    pub fn stop_all(&mut self, deadline: u64) {
        self.memory_kept |= self.stop(deadline) == Leftover::Memory;
    }

    /// Tools of this session that want runtimes' tables get those that they were not given yet, once
    /// our own functions are in them.
    fn lend(&mut self) {
        if intercept::kinds() == 0 {
            return;
        }
        self.lent.looked = Some((now(), tables::loader_epoch()));
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
        self.lent.lend(&live, hsa_open, root, &STATE.registered);
    }

    /// As [`Self::lend`], where libraries were loaded since it was last done.
    fn lend_what_is_new(&mut self) {
        let is_due = self.lent.looked.is_some_and(|(at, epoch)| {
            now() - at > LOADER_INTERVAL && epoch != tables::loader_epoch()
        });
        if is_due {
            self.lend();
        }
    }

    /// Takes tables back that tools were given: no function of a tool's is called from here on.
    /// To be called before the tools are detached.
    pub fn take_tables_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        self.lent.take_back();
        if self.running.is_none() {
            // Ours, which the tools' stood over.
            self.installed.restore(&STATE.marks);
        }
        self.lent.take_back();
    }

    /// The session is over. Returns whether its spool must stay mapped.
    pub fn end(&mut self) -> bool {
        self.take_tables_back();
        if self.lent.end() > 0 {
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

    /// Brings everything into line with what the running contexts want. Returns complaints, if it cannot.
    pub fn apply(&mut self) -> Result<(), String> {
        // Changes that were requested before this point are applied when it is done.
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
            // What was observed once is observed until the session ends: a queue some of whose
            // doorbells were missed has no counts.
            need.work |= running.need.work;
            need.called = callbacks::publish(wanted.services.clone());
            retirement::follow(wanted.retirement);
            host_functions::keep(wanted.code_objects);
            running.need = need;
            probe::set_kinds(need.tracked(), need.recorded);
            probe::set_called(need.called);
            running.searched_at = 0;
        }
        self.search_tables();
        Ok(())
    }

    /// A tool in this process wants records as well, which went straight to the attacher so far: the collecting begins
    /// anew, on the way over the tools' buffers. Numbers go on.
    fn share(&mut self, wanted: &Wanted) -> Result<(), String> {
        let began = now();
        self.stop_all(began + SHARE_DRAIN.as_nanos() as u64);
        self.runtimes.set_tells_tools(true);
        let started = self.start(wanted);
        self.runtimes.set_tells_tools(false);
        started?;
        let gap = (now() - began) / 1000;
        self.note(&format!(
            "a profiler in the process began to record, too: for {gap} us nothing was recorded"
        ));
        Ok(())
    }

    fn start(&mut self, wanted: &Wanted) -> Result<(), String> {
        if !probe::prepare() || !state::provide() {
            return Err("cannot map memory for the hooks".to_owned());
        }
        let wanted_work = need_of(wanted).work;
        for domain in &mut self.domains {
            domain.begin(wanted_work);
            domain.wanted(wanted.kinds());
        }
        symbols::begin();
        markers::begin();
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
            // SAFETY: the reader goes into `route`. It is dropped only when every thread was seen
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
            (Route::Direct, self.spool.ok_or("nobody reads the records")?)
        };
        callbacks::begin();
        retirement::follow(wanted.retirement);
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
        // SAFETY: the area is the attacher's spool, which the worker unmaps only when `stop` has
        // returned Leftover::Nothing, or that of the private reader, which lives in `route` until then.
        let generation = unsafe { probe::start(area, self.next_correlation) };
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
            // Who hands tables over is inside `hsa_init`.
            began_closed: need.work.contains(kind::KERNEL_DISPATCH)
                && STATE.request.load(SeqCst) == TableRequest::Hsa,
            hsa_final: false,
            hsa_open: false,
            hsa_ready: false,
            waiting_for: "",
            searched_at: 0,
            epoch: 0,
            reported: Vec::new(),
        });
        notes::open(true);
        STATE.collecting.store(true, SeqCst);
        STATE.went_on_unhooked.store(0, SeqCst);
        STATE
            .device_pending
            .store(u32::from(need.device()), Release);
        // Before `hsa_init` is hooked: a call that returns through the hook finds it set.
        STATE.hsa_closed.store(1, Release);
        match gate::take_search() {
            None => self.search_tables(),
            Some((request, ticket)) => {
                self.hook_tables(request);
                gate::answer_search(ticket);
            }
        }
        probe::set_called(need.called);
        probe::open(need.tracked(), need.recorded);
        Ok(())
    }

    /// How many slots hold our functions.
    pub fn slots(&self) -> u32 {
        self.installed.len() as u32
    }

    /// Searches for tables, opens the device's side where the runtime is open, hooks slots.
    fn search_tables(&mut self) {
        self.find_tables();
        self.hook_slots();
        self.check_hsa();
        if let Some(running) = &mut self.running {
            Self::open_hsa(running, &mut self.domains, &mut self.harvester);
        }
        self.hook_slots();
        self.release_waiters();
    }

    /// Everything is hooked: no thread has to wait for it any more.
    fn release_waiters(&mut self) {
        if let Some(running) = &self.running {
            let waiting = running.need.device() && !running.hsa_open;
            STATE.device_pending.store(u32::from(waiting), Release);
            STATE.hsa_closed.store(u32::from(!running.hsa_up), Release);
        }
    }

    /// Hooks tables without asking the device: the thread that waits for it may be inside `hsa_init`.
    fn hook_tables(&mut self, request: TableRequest) {
        self.find_tables();
        if request == TableRequest::Hsa {
            self.hsa_slots_are_final();
        }
        self.hook_slots();
    }

    /// Before the HSA runtime is open, the tools that it loads by itself may still put their
    /// functions into its slots. So only `hsa_init` is hooked, and the rest when that returns: our
    /// functions then call theirs, as if we had attached later, and nothing is lost.
    fn check_hsa(&mut self) {
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

    /// The slots now hold what the runtime and its own tools want there.
    fn hsa_slots_are_final(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        if !std::mem::replace(&mut running.hsa_final, true) {
            for live in running.live.iter().filter(|live| live.is_hsa()) {
                self.installed.save_originals(live, &STATE.marks);
            }
        }
    }

    fn hook_slots(&mut self) {
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

    fn find_tables(&mut self) {
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
            // SAFETY: the aligned variable was found through the loaded library's own code. Programs
            // do not unload it; if one does, the loader's count changes and it is searched again.
            self.roctx_tap = unsafe { legacy::Tap::install(variable) };
        }
    }

    fn runtime_is_open() -> bool {
        STATE.in_runtime.store(1, SeqCst);
        let open = symbols::runtime_is_open();
        STATE.in_runtime.store(0, SeqCst);
        open
    }

    /// Finds the table through which the runtime reports scratch memory.
    fn find_tools(running: &mut Running) {
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

    /// Once the HSA runtime is there and open: signals, names, profiling of copies. Contexts start
    /// one by one, so what is needed may grow after the runtime was opened.
    fn open_hsa(running: &mut Running, domains: &mut [Box<dyn Domain>], harvester: &mut Harvester) {
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
        let mut device = Device {
            harvester,
            sink: &mut running.sink,
        };
        for domain in domains {
            if domain::needs_device(&**domain) && running.need.work.contains(domain.kind()) {
                domain.open(&mut device);
            }
        }
        counting::devices::opened(running.need.counts_devices);
    }

    /// One round of the worker while a session is on. Returns whether there was anything to do.
    pub fn tick(&mut self) -> bool {
        let asked = changes::rounds_asked();
        let busy = self.round();
        changes::round_done(asked);
        busy
    }

    fn round(&mut self) -> bool {
        registration::expel_reported();
        if changes::is_pending() {
            let _ = self.apply();
        }
        if let Some((request, ticket)) = gate::take_search() {
            self.hook_tables(request);
            gate::answer_search(ticket);
        }
        self.lend_what_is_new();
        let Some(running) = &mut self.running else {
            return false;
        };
        let mut busy = false;
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
        counting::devices::pass();
        let ids = retirement::is_followed().then(|| self.harvester.ids_under_way());
        if let Some(Some(ids)) = &ids {
            retirement::looked(ids);
        }
        busy |= relay(&mut running.route, self.spool, changes::worker());
        if let Some(Some(_)) = ids {
            retirement::delivered();
        }
        if running.hsa_ready {
            // What ended up to now was delivered above; what is loaded up to now is announced.
            symbols::retire(code_object::unload);
        }
        let time = now();
        if time - running.searched_at > LOADER_INTERVAL {
            running.searched_at = time;
            if running.epoch != tables::loader_epoch() {
                self.search_tables();
            } else if running.has_hsa()
                && (!running.hsa_up || !running.hsa_ready && running.need.device())
            {
                // A closed runtime answers at once; nothing has to be searched.
                self.check_hsa();
                if self.running.as_ref().is_some_and(|running| running.hsa_up) {
                    self.search_tables();
                }
            }
        }
        busy
    }

    /// Ends the collecting: what still runs on the device may take until `deadline`.
    ///
    /// First nothing new is observed, while the hooks stay: before an application's thread uses a
    /// signal again, the times in it are still read. Then the slots are restored.
    pub fn stop(&mut self, deadline: u64) -> Leftover {
        let Some(mut running) = self.running.take() else {
            return Leftover::Nothing;
        };
        windows::recording_ends();
        counting::devices::closes();
        probe::close(QUIESCE_LIMIT);
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
        probe::stop();
        self.next_correlation = probe::next_correlation().max(1);
        let outside = probe::quiesce(QUIESCE_LIMIT);
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
            probe::close_session(running.generation, running.need.recorded);
        }
        notes::open(false);
        for text in markers::notes().into_iter().chain(notes::take()) {
            running.sink.put(kind::NOTE, &note(&text));
        }
        if running.hsa_ready {
            symbols::set_changed();
            symbols::refresh(&mut running.sink);
            symbols::retire(|_| ());
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
        } else if running.need.device() {
            running.sink.put(
                kind::NOTE,
                &note(&format!(
                    "no kernels and copies were seen: {}",
                    running.waiting_for
                )),
            );
        } else if running.need.runtime() && !running.hsa_open {
            running.sink.put(
                kind::NOTE,
                &note(&format!(
                    "no changes of memory were seen: {}",
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
        if running.live.is_empty() {
            self.outcome |= outcome::NO_TABLES;
        }
        if STATE.went_on_unhooked.load(SeqCst) > 0 {
            self.outcome |= outcome::HOOKED_LATE;
        }
        // What began in a pause is counted on its way, where it has one.
        relay(&mut running.route, self.spool, changes::worker());
        for text in pause::notes() {
            running.sink.put(kind::NOTE, &note(&text));
        }
        // SAFETY: the spool (or the private one, still in `running`) is mapped, and only the worker uses this writer.
        unsafe { running.sink.writer.seal() };
        relay(&mut running.route, self.spool, changes::worker());
        // What is loaded is told anew, with new numbers, when another recording begins.
        code_object::unload_all();
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
            // The private spool, too, may still be written to.
            std::mem::forget(running.route);
            Leftover::Memory
        }
    }
}

/// Why no region can have been selected, where nothing else is recorded.
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
        "no region can be selected: the program uses the old libroctx64.so.4, which has no roctxProfilerResume"
    } else {
        "no region can be selected: no library with roctxProfilerResume was found in the program"
    })
}

fn need_of(wanted: &Wanted) -> Need {
    let is_launched = local::kind() == Kind::Launched;
    if wanted.counts_dispatches && is_launched {
        counting::take_dispatches();
    }
    counting::chosen::serve(wanted.counts_dispatches && !is_launched);
    let mut kinds = wanted.kinds();
    if kinds.intersects(markers::KINDS) && !markers::prepare() {
        kinds = kinds - markers::KINDS;
    }
    let work = (kinds & sets::NEEDS_RUNTIME).with_if(kind::KERNEL_DISPATCH, wanted.code_objects);
    let counts = wanted.counts_devices
        || work.contains(kind::KERNEL_DISPATCH)
            && (windows::has_plan() || alone::is_asked() || windows::chosen::is_wanted());
    let work = work.with_if(kind::COUNTER_COLLECTION, counts);
    let mut recorded = kinds & sets::HOOKED_CALLS;
    if wanted.retirement {
        // The record of a call tells that it has returned.
        recorded |= wanted.services.kinds() & sets::HOOKED_CALLS;
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

/// Domains whose work is done by the device.
fn on_device(domains: &mut [Box<dyn Domain>]) -> impl Iterator<Item = &mut Box<dyn Domain>> {
    domains
        .iter_mut()
        .filter(|domain| domain::needs_device(&***domain))
}

/// All others.
fn off_device(domains: &mut [Box<dyn Domain>]) -> impl Iterator<Item = &mut Box<dyn Domain>> {
    domains
        .iter_mut()
        .filter(|domain| !domain::needs_device(&***domain))
}

/// Work of the device that has not ended.
fn under_way(domains: &mut [Box<dyn Domain>]) -> u64 {
    on_device(domains).map(|domain| domain.under_way()).sum()
}
