//! The user that the default tool has: groups of a plan, and records of windows.

use super::prepared::Prepared;
use super::user::{Choice, Counted, Dispatch, User};
use super::users::add_user;
use crate::queue::window_records::{Writer, is_plausible};
use crate::sink::Sink;
use crate::symbols;
use crate::symbols::choice::{self, KernelChoice};
use midair_record::counter_plan::Plan;
use midair_record::event::{CounterWindow, WindowResult};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// How long a dispatch waits for the name of a kernel that was loaded a moment ago.
const NAME_LIMIT: Duration = Duration::from_millis(50);

/// Which dispatches are counted, and how many each kernel had, by its number.
#[derive(Debug)]
struct Kernels {
    choice: Arc<KernelChoice>,
    seen: Mutex<HashMap<u64, u64>>,
}

impl Kernels {
    /// Whether a dispatch is counted. Once for each: those of a kernel are numbered in this order, as
    /// AMD's tool does. One of a kernel whose name does not come in time is counted; whether it is in
    /// the files is decided once more when names are known.
    fn has(&self, kernel_object: u64) -> bool {
        let (id, is_chosen) =
            choice::is_chosen_within(kernel_object, NAME_LIMIT).unwrap_or((0, true));
        if !is_chosen || self.choice.iterations.is_empty() {
            return is_chosen;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let number = seen.entry(id).or_default();
        *number += 1;
        self.choice.has_iteration(*number)
    }
}

/// An agent's groups, which take turns.
#[derive(Debug)]
struct Groups {
    all: Vec<Arc<Prepared>>,
    /// Dispatches that were counted.
    next: AtomicU64,
}

/// See the module.
#[derive(Debug)]
struct Planned {
    plan: Mutex<Option<Plan>>,
    /// By agent.
    groups: RwLock<Option<HashMap<u64, Groups>>>,
    /// Which dispatches; none: every one.
    kernels: RwLock<Option<Kernels>>,
    /// Dispatches that a group counts before the next has its turn.
    interval: AtomicU64,
    /// The worker thread's.
    records: Mutex<Writer>,
}

static PLANNED: Planned = Planned {
    plan: Mutex::new(None),
    groups: RwLock::new(None),
    kernels: RwLock::new(None),
    interval: AtomicU64::new(1),
    records: Mutex::new(Writer::new()),
};

/// Every dispatch is to be counted by this plan, from the next session on; one that is on must not
/// have begun to. With several groups on an agent, `interval` dispatches have the same one. False:
/// there are too many users.
pub fn set_plan(plan: Plan, interval: u64) -> bool {
    let asks = !plan.groups.is_empty();
    *PLANNED.plan.lock().unwrap_or_else(PoisonError::into_inner) = asks.then_some(plan);
    PLANNED.interval.store(interval.max(1), Relaxed);
    !asks || add_user(&PLANNED)
}

/// The runtime is open: asks it for memory. Returns what to tell the user.
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
    let kernels = choice::kernel_choice().map(|choice| Kernels {
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

/// The session is over: nothing is chosen any more.
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
