//! What the worker thread does in a CUDA process.

use crate::bursts::Bursting;
use crate::cupti::{Cupti, Driver, load};
use crate::selection::Choice;
use crate::session::{self, Session};
use crate::sink::{Sink, header};
use crate::{callbacks, exit, hardware, launches, thread_ends, watch};
use midair_cupti_file::Process;
use midair_cupti_file::profilers::other_profiler;
use midair_guest::{Refused, Sent, Work, now};
use midair_record::boot::BootBlock;
use midair_record::event::{CudaDevice, NO_STACKS, RuntimeInit, kind};
use midair_record::spool::{Area, outcome, status};
use midair_settings::{ATTACH_ANNOUNCE, COLLECTION_PERIOD, Settings};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;

/// Names the library that receives a program's NVTX ranges.
const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// How long another profiler, or a process that exits, waits for work in progress, ns.
const QUICK: u64 = 1_000_000_000;
/// `RuntimeInit::operation` of CUDA's driver, and of CUPTI.
const CUDA_DRIVER: u32 = 64;
const CUPTI: u32 = 65;

/// Entry function, called by the boot code on the worker thread. Returns only when the thread is to
/// end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for as long as the process
/// lives.
pub unsafe fn enter(boot: *mut BootBlock) {
    // SAFETY: the caller's promise.
    unsafe { midair_guest::enter(boot, &mut Worker::default()) };
}

/// Stage of a session.
#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// The process has not initialised CUDA yet. Enabling CUPTI might do so, and children that it
    /// forks could then not use CUDA any more.
    Waiting(Box<Plan>),
    On(Box<Session>),
    /// It records in bursts.
    Bursts(Box<Bursting>),
    /// It ended by itself, or failed: nothing more is recorded.
    Over,
}

/// What is to start as soon as CUDA is initialised.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) area: Area,
    pub(crate) choice: Choice,
    pub(crate) cupti: Cupti,
    pub(crate) driver: Driver,
    /// What a recording in bursts may cost, in percent of the program's speed. `None` where all is
    /// recorded.
    pub(crate) percent: Option<u32>,
}

/// The worker's own state, kept between sessions.
#[derive(Debug, Default)]
pub struct Worker {
    stage: Stage,
    area: Option<Area>,
    /// Paths of the CUPTIs after which our exit handler was registered.
    handled: Vec<String>,
    /// Whether another profiler had CUPTI before we could use it.
    taken: bool,
    /// Notes for the end of a session that no [`Session`] could store.
    notes: Vec<String>,
    /// Whether this session is announced.
    is_announced: bool,
}

impl Work for Worker {
    fn reset_after_fork(&mut self) {
        if exit::is_forked() {
            watch::reset_after_fork();
            callbacks::reset_after_fork();
            thread_ends::reset_after_fork();
            session::reset_after_fork();
            hardware::reset_after_fork();
            launches::reset_after_fork();
            exit::reset_after_fork();
        }
    }

    fn entered(&mut self) {}

    fn set_up(&mut self, area: Area, sent: Sent) -> Result<(), Refused> {
        // Tools and plans of counters are made for AMD's interface.
        drop(sent);
        (self.area, self.taken) = (Some(area), false);
        guarded(|| self.prepare(area)).unwrap_or_else(|| Err(internal_error()))
    }

    fn is_announced(&self) -> bool {
        self.is_announced
    }

    fn give_up(&mut self) {
        self.stage = Stage::Over;
    }

    fn tick(&mut self) -> bool {
        guarded(|| self.round()).unwrap_or_else(|| {
            if self.notes.is_empty() {
                // Once; kinds that are enabled are disabled at the stop.
                self.notes.push(internal_error().text);
            }
            false
        })
    }

    fn slots(&self) -> u32 {
        match &self.stage {
            Stage::On(session) => session.slots(),
            Stage::Bursts(bursts) => bursts.slots(),
            _ => 0,
        }
    }

    fn leaving(&self) -> Option<u32> {
        if exit::is_exiting() {
            return Some(outcome::PROCESS_EXIT);
        }
        let asked = match &self.stage {
            Stage::On(session) => session.is_requested(),
            Stage::Bursts(bursts) => bursts.is_requested(),
            _ => false,
        };
        (asked || self.taken).then_some(outcome::YIELDED)
    }

    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32 {
        let quick = self.leaving().is_some();
        if quick {
            // Another profiler is here: from now on it may record at any time.
            session::ONLY_OURS.store(false, SeqCst);
        }
        let deadline = if quick { now() + QUICK } else { deadline };
        let told = std::cell::Cell::new(false);
        let detached = || {
            if !told.replace(true) {
                detached();
            }
        };
        let bits = match std::mem::take(&mut self.stage) {
            Stage::On(session) => {
                guarded(|| session.finish(deadline, quick, &detached)).unwrap_or(0)
            }
            Stage::Bursts(bursts) => {
                guarded(|| bursts.finish(deadline, quick, &detached)).unwrap_or(0)
            }
            Stage::Waiting(_) => {
                let text = "the process had not initialized CUDA: there was nothing to record";
                self.notes.push(text.to_owned());
                outcome::NO_TABLES
            }
            Stage::Idle | Stage::Over => 0,
        };
        detached();
        if let (false, Some(area)) = (self.notes.is_empty(), self.area) {
            // SAFETY: the spool is mapped until `end`.
            let mut sink = unsafe { session::sink(area) };
            self.notes.drain(..).for_each(|text| sink.note(&text));
            sink.seal();
        }
        bits
    }

    fn end(&mut self) -> bool {
        self.stage = Stage::Idle;
        self.area = None;
        self.notes.clear();
        exit::set_serving(false);
        launches::are_left()
    }
}

impl Worker {
    fn prepare(&mut self, area: Area) -> Result<(), Refused> {
        let settings =
            Settings::decode(&area.settings()).map_err(|error| format!("the settings: {error}"))?;
        self.is_announced = settings.is_on(ATTACH_ANNOUNCE);
        let percent = settings.burst_percent().map_err(|bad| bad.to_string())?;
        let choice = Choice::of(&settings);
        let selects = [
            "ROCPROF_SELECTED_REGIONS",
            "ROCPROF_SELECTED_REGIONS_REF_COUNT",
        ]
        .iter()
        .any(|setting| settings.is_on(setting));
        if settings.text(COLLECTION_PERIOD).is_some() {
            self.notes.push(
                "--collection-period has no effect in a CUDA process: everything is recorded"
                    .to_owned(),
            );
        }
        let driver =
            Driver::open().ok_or_else(|| "the process no longer has libcuda.so.1".to_owned())?;
        let process = Process::own(midair_secure::has_more_rights());
        if let Some(text) = other_profiler(&process) {
            return Err(Refused {
                status: status::OTHER_PROFILER,
                text,
            });
        }
        // NVTX calls of this process may lead into CUPTI without our functions, before and after a
        // session.
        let heard = process.variable(NVTX_INJECTION).is_some();
        session::KEEP_LOADED.fetch_or(heard, SeqCst);
        let found = load(&process, choice.cupti.as_deref(), driver.version());
        let cupti = found.map_err(|text| Refused {
            status: status::NO_CUPTI,
            text,
        })?;
        let plan = Plan {
            area,
            choice,
            cupti,
            driver,
            percent,
        };
        if selects {
            self.notes.push(
                "--selected-regions has no effect in a CUDA process: everything is recorded"
                    .to_owned(),
            );
        }
        exit::set_serving(true);
        if plan.driver.devices().is_empty() {
            self.stage = Stage::Waiting(Box::new(plan));
            return Ok(());
        }
        self.begin(plan)
    }

    fn begin(&mut self, mut plan: Plan) -> Result<(), Refused> {
        if let Some(percent) = plan.percent {
            if plan.choice.stacks.take().is_some() {
                self.notes.push(format!(
                    "{NO_STACKS}--max-overhead records a CUDA process in bursts, without stacks"
                ));
            }
            // SAFETY: as below.
            let sink = unsafe { session::sink(plan.area) };
            let hw_trace = plan.choice.hw_trace;
            self.stage = Stage::Bursts(Box::new(Bursting::new(plan, percent, sink)));
            if hw_trace {
                self.notes.push(hardware::NOT_IN_BURSTS.to_owned());
            }
            // No CUPTI is used yet. After its first use the handler is registered again.
            self.handle_exit("");
            return Ok(());
        }
        // SAFETY: the caller keeps the spool mapped until `end`, and the session is over before.
        let sink = unsafe { session::sink(plan.area) };
        let session = Session::begin(&plan.cupti, &plan.choice, sink, |sink| {
            let timing = hardware::switch_on(&plan.cupti, &plan.driver, plan.choice.hw_trace);
            timing.iter().for_each(|text| sink.note(text));
            describe(&plan, sink);
        })?;
        self.stage = Stage::On(Box::new(session));
        self.handle_exit(plan.cupti.path());
        Ok(())
    }

    /// Has the exit of the process wait for us, now that this CUPTI was used.
    fn handle_exit(&mut self, path: &str) {
        if !self.handled.iter().any(|known| known == path) {
            // Our handler is registered after CUPTI's own, which are registered when it is loaded
            // or first used: so ours runs before them.
            exit::register();
            self.handled.push(path.to_owned());
        }
    }

    fn round(&mut self) -> bool {
        match &mut self.stage {
            Stage::On(session) => session.tick(),
            Stage::Bursts(bursts) => {
                let soon = bursts.round();
                self.taken |= bursts.is_taken();
                if let Some(path) = bursts.used() {
                    self.handle_exit(&path);
                }
                soon
            }
            Stage::Waiting(plan) if !plan.driver.devices().is_empty() => {
                let Stage::Waiting(plan) = std::mem::replace(&mut self.stage, Stage::Over) else {
                    return false;
                };
                if let Err(why) = self.begin(*plan) {
                    self.taken = why.status == status::OTHER_PROFILER;
                    self.notes.push(why.text);
                }
                true
            }
            _ => false,
        }
    }
}

/// Runs what must not unwind any further. `None` after a panic.
fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

fn internal_error() -> Refused {
    "an internal error of midair in the target; please report it"
        .to_owned()
        .into()
}

/// Records what is known of the process: its runtimes and its GPUs.
pub(crate) fn describe(plan: &Plan, sink: &mut Sink) {
    let driver = u64::from(plan.driver.version());
    let (major, minor) = plan.cupti.cuda();
    let versions = [
        (
            CUDA_DRIVER,
            driver / 1000 * 10_000 + driver % 1000 / 10 * 100,
        ),
        (CUPTI, u64::from(major) * 10_000 + u64::from(minor) * 100),
    ];
    for (operation, version) in versions {
        let runtime = RuntimeInit {
            header: header::<RuntimeInit>(kind::RUNTIME_INITIALIZATION, operation, 0, 0),
            time: now(),
            version,
            ..RuntimeInit::default()
        };
        sink.put(&runtime, &[]);
    }
    for (device, name) in plan.driver.devices() {
        let device = CudaDevice {
            header: header::<CudaDevice>(kind::CUDA_DEVICE, 0, 0, 0),
            name_len: name.len() as u32,
            ..device
        };
        sink.put_with_text(&device, name.as_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests;
