//! The user of the default tool: it counts the groups of a plan, and writes records of windows.

use super::prepared::Prepared;
use super::user::{Choice, Counted, Dispatch, User};
use super::users::add_user;
use crate::queue::window_records::{Writer, is_plausible};
use crate::sink::Sink;
use crate::symbols;
use crate::symbols::kernel_filter::{self, KernelChoice};
use midair_record::counter_plan::Plan;
use midair_record::event::{CounterWindow, WindowResult};
use midair_sdk_hot::pause;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// How long a dispatch waits for the name of a kernel that was loaded a moment ago.
const NAME_LIMIT: Duration = Duration::from_millis(50);

/// Which dispatches are counted, and how many dispatches each kernel has had, by the kernel's id.
#[derive(Debug)]
struct Kernels {
    choice: Arc<KernelChoice>,
    seen: Mutex<HashMap<u64, u64>>,
}

impl Kernels {
    /// Returns whether a dispatch is counted. Call it once for each dispatch: the dispatches of a
    /// kernel are numbered in the order of these calls, as in AMD's tool. A dispatch whose kernel's
    /// name is not known in time is counted; whether it goes into the files is decided again when
    /// names are known.
    fn has(&self, kernel_object: u64) -> bool {
        let (id, is_chosen) =
            kernel_filter::is_chosen_within(kernel_object, NAME_LIMIT).unwrap_or((0, true));
        if !is_chosen || self.choice.iterations.is_empty() {
            return is_chosen;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let number = seen.entry(id).or_default();
        *number += 1;
        self.choice.has_iteration(*number)
    }
}

/// The multiplexed groups of an agent.
#[derive(Debug)]
struct Groups {
    all: Vec<Arc<Prepared>>,
    /// The number of dispatches that were counted.
    next: AtomicU64,
}

/// The default tool's user; see the module's documentation.
#[derive(Debug)]
struct Planned {
    plan: Mutex<Option<Plan>>,
    /// The groups of each agent; `None` outside of a session.
    groups: RwLock<Option<HashMap<u64, Groups>>>,
    /// Which dispatches are counted; `None` means all.
    kernels: RwLock<Option<Kernels>>,
    /// The number of dispatches that a group counts before it is the next group's turn.
    interval: AtomicU64,
    /// The writer of records. Only the worker thread uses it.
    records: Mutex<Writer>,
}

static PLANNED: Planned = Planned {
    plan: Mutex::new(None),
    groups: RwLock::new(None),
    kernels: RwLock::new(None),
    interval: AtomicU64::new(1),
    records: Mutex::new(Writer::new()),
};

/// Sets the plan by which every dispatch is counted from the next session on. A session that is
/// already on must not have started to count. If an agent has several groups, each is used for
/// `interval` dispatches in a row. Returns false if there are too many users.
pub fn set_plan(plan: Plan, interval: u64) -> bool {
    let asks = !plan.groups.is_empty();
    *PLANNED.plan.lock().unwrap_or_else(PoisonError::into_inner) = asks.then_some(plan);
    PLANNED.interval.store(interval.max(1), Relaxed);
    !asks || add_user(&PLANNED)
}

/// Starts a session: asks the runtime, which is open, for memory. Returns complaints for the person
/// who profiles.
pub(super) fn open() -> Vec<String> {
    let mut complaints = Vec::new();
    let mut groups = HashMap::new();
    let plan = PLANNED.plan.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = &*plan {
        for (agent, _) in symbols::agents() {
            let node = symbols::agent_node(agent);
            let here = plan.groups.iter().filter(|group| group.node == node);
            let made: Result<Vec<_>, _> = here
                .map(|group| Prepared::new(agent, group).map(Arc::new))
                .collect();
            match made {
                Ok(all) if !all.is_empty() && symbols::agent_is_gpu(agent) => {
                    let next = AtomicU64::new(0);
                    groups.insert(agent, Groups { all, next });
                }
                Ok(_) => {}
                Err(why) => {
                    complaints.push(format!("no counters on the agent of node {node}: {why}"));
                }
            }
        }
    }
    *PLANNED.records() = Writer::new();
    let kernels = kernel_filter::kernel_choice().map(|choice| Kernels {
        choice,
        seen: Mutex::default(),
    });
    *PLANNED
        .kernels
        .write()
        .unwrap_or_else(PoisonError::into_inner) = kernels;
    let mut place = PLANNED
        .groups
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    *place = Some(groups);
    complaints
}

/// Ends the session: no dispatch is chosen any more.
pub(super) fn close() {
    let mut place = PLANNED
        .groups
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    *place = None;
}

impl Planned {
    fn records(&self) -> MutexGuard<'_, Writer> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl User for Planned {
    fn choose(&self, dispatch: &Dispatch) -> Choice {
        // What starts now is left out of the recording, and so are its values.
        if !pause::is_recording_wanted() {
            return Choice::default();
        }
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernels) = &*kernels
            && !kernels.has(dispatch.packet.kernel_object)
        {
            return Choice::default();
        }
        drop(kernels);
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let groups = groups.as_ref().and_then(|all| all.get(&dispatch.agent));
        let counters = groups.and_then(|groups| {
            let turn = groups.next.fetch_add(1, Relaxed) / self.interval.load(Relaxed);
            let index = turn % (groups.all.len() as u64).max(1);
            groups.all.get(index as usize).cloned()
        });
        Choice { counters, data: 0 }
    }

    fn deliver(&self, counted: &Counted<'_>, sink: &mut Sink) {
        let [begin, start, end, read_end] = counted.window;
        let result = match counted.result {
            WindowResult::Counted if !is_plausible(counted.window) => WindowResult::BadTimes,
            result => result,
        };
        let record = CounterWindow {
            begin,
            start,
            end,
            read_end,
            dispatch_id: counted.dispatch.dispatch_id,
            queue_id: counted.dispatch.queue_id,
            node: counted.counters.node(),
            group: counted.counters.number(),
            result: result as u32,
            ..CounterWindow::default()
        };
        let words = counted.words.iter().copied();
        self.records().put(sink, record, words);
    }
}
