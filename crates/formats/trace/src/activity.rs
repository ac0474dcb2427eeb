//! What each GPU did over the session: kernels, copies, work that waited to start, or nothing, and
//! whether the host was in a synchronize call meanwhile.
//!
//! Records come roughly in the order of their ends, one GPU's queues after another's. Their spans
//! are kept exactly while they are recent ([`Spans`]). Older spans are summed up in buckets of time
//! ([`Past`]), so that memory stays bounded however long a session lasts. A span may arrive after
//! its time was summed up: a synchronize call of many seconds is recorded when it returns. It then
//! takes its share of the buckets that it covers, as if what it displaces were spread evenly in
//! each.

mod past;
mod spans;

use midair_abi::names;
use midair_domain::{KindSet, sets};
use midair_record::event::{Api, Copy, Kernel, MemorySet, Synchronization};
use past::Past;
use spans::Spans;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// Further nodes are not followed: no machine has so many GPUs.
const MOST_NODES: usize = 128;
/// The most spans of one sort that are kept exactly. Where there are more, the older half is summed
/// up.
const MOST_SPANS: usize = 4096;

/// What a GPU does at an instant: the first of these that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// A kernel runs.
    Kernel,
    /// No kernel runs, and a copy does.
    Copy,
    /// Neither runs, and a kernel whose doorbell was rung has not started.
    Starting,
    /// Nothing is queued, and a thread of the host is in a synchronize call.
    Waited,
}

const DOINGS: [Doing; 4] = [Doing::Kernel, Doing::Copy, Doing::Starting, Doing::Waited];

/// How a GPU spent a period, all in nanoseconds. The five add up to the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shares {
    /// At least one kernel ran.
    pub busy: u64,
    /// No kernel ran, and at least one copy or fill did.
    pub copies: u64,
    /// Neither ran, and at least one queued dispatch had not started. Always 0 in a CUDA process,
    /// because CUPTI does not tell when a launch reached the GPU.
    pub starting: u64,
    /// Nothing was queued, and a thread of the process was in a synchronize call.
    pub waited: u64,
    /// Nothing was queued, and no thread was in such a call.
    pub nothing: u64,
}

/// One GPU.
#[derive(Debug, Clone, Default)]
struct Gpu {
    kernels: Spans,
    copies: Spans,
    queued: Spans,
    past: Past,
}

/// The activity of all GPUs, built while records arrive.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    gpus: BTreeMap<u32, Gpu>,
    waits: Spans,
    /// What happened before this time does not count.
    begin: u64,
    /// Everything before this time is in the buckets of each [`Gpu`].
    summed_up: u64,
    /// Whether there was a call or a record that can show a wait of the host.
    sees_waits: bool,
}

impl Activity {
    /// Adds a kernel, and the time that it waited after its doorbell.
    pub fn add_kernel(&mut self, kernel: &Kernel) {
        if kernel.start == 0 || kernel.end <= kernel.start {
            return;
        }
        let rung = match kernel.rung {
            0 => kernel.start,
            rung => rung.min(kernel.start),
        };
        self.add(kernel.node, Doing::Kernel, kernel.start, kernel.end);
        self.add(kernel.node, Doing::Starting, rung, kernel.start);
    }

    /// Adds a copy, which both of its GPUs take part in.
    pub fn add_copy(&mut self, copy: &Copy) {
        self.add(copy.dst_node, Doing::Copy, copy.start, copy.end);
        if copy.src_node != copy.dst_node {
            self.add(copy.src_node, Doing::Copy, copy.start, copy.end);
        }
    }

    /// Adds a fill.
    pub fn add_set(&mut self, set: &MemorySet) {
        self.add(set.node, Doing::Copy, set.start, set.end);
    }

    /// Adds a call of a runtime.
    pub fn add_call(&mut self, call: &Api) {
        self.sees_waits |= SEEN_IN.contains(call.header.kind);
        if is_wait(call.header.kind, call.header.operation) {
            self.add_wait(call.start, call.end);
        }
    }

    /// Adds a wait that CUPTI reports.
    pub fn add_synchronization(&mut self, wait: &Synchronization) {
        self.sees_waits = true;
        // Operation 2 is a stream that waits for an event: no thread waits.
        if wait.header.operation != 2 {
            self.add_wait(wait.start, wait.end);
        }
    }

    /// Leaves out what happened before this time.
    pub fn begin_at(&mut self, time: u64) {
        self.begin = time;
    }

    /// Returns the start of the part of a span that counts, if there is one.
    fn counted(&self, start: u64, end: u64) -> Option<u64> {
        let from = start.max(self.begin);
        (start != 0 && from < end).then_some(from)
    }

    fn add_wait(&mut self, start: u64, end: u64) {
        let Some(start) = self.counted(start, end) else {
            return;
        };
        if start < self.summed_up {
            for gpu in self.gpus.values_mut() {
                gpu.past
                    .displace(Doing::Waited, start, end.min(self.summed_up));
            }
        }
        if self.waits.add(start.max(self.summed_up), end) {
            self.settle();
        }
    }

    fn add(&mut self, node: u32, doing: Doing, start: u64, end: u64) {
        let Some(start) = self.counted(start, end) else {
            return;
        };
        if !self.gpus.contains_key(&node) && self.gpus.len() >= MOST_NODES {
            return;
        }
        let gpu = self.gpus.entry(node).or_default();
        if start < self.summed_up {
            gpu.past.displace(doing, start, end.min(self.summed_up));
        }
        let spans = match doing {
            Doing::Kernel => &mut gpu.kernels,
            Doing::Copy => &mut gpu.copies,
            Doing::Starting => &mut gpu.queued,
            Doing::Waited => return,
        };
        if spans.add(start.max(self.summed_up), end) {
            self.settle();
        }
    }

    /// Sorts the spans that have arrived, and sums the older half up where there are too many.
    fn settle(&mut self) {
        let mut until = None;
        let gpus = self.gpus.values_mut();
        let all = gpus.flat_map(|gpu| [&mut gpu.kernels, &mut gpu.copies, &mut gpu.queued]);
        for spans in all.chain([&mut self.waits]) {
            spans.settle();
            until = until.max(spans.middle(MOST_SPANS));
        }
        let Some(until) = until else {
            return;
        };
        for gpu in self.gpus.values_mut() {
            let Gpu {
                kernels,
                copies,
                queued,
                past,
            } = gpu;
            let lists = [&*kernels, copies, queued, &self.waits];
            let lists = lists.map(|list| list.from(self.summed_up));
            sweep(lists, self.summed_up, until, |doing, start, end| {
                past.add(doing, start, end);
            });
            for spans in [kernels, copies, queued] {
                spans.cut_before(until);
            }
        }
        self.waits.cut_before(until);
        self.summed_up = until;
    }

    /// Returns the nodes with kernels or copies. Nodes of CPUs are among them, as ends of copies.
    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.gpus.keys().copied()
    }

    /// Whether a kernel with known times ran there.
    pub fn has_kernels(&self, node: u32) -> bool {
        let gpu = self.gpus.get(&node);
        gpu.is_some_and(|gpu| !gpu.kernels.is_empty() || gpu.past.total(Doing::Kernel) > 0)
    }

    /// Whether waits of the host would have been seen, because calls or CUPTI's waits were
    /// recorded.
    pub fn sees_waits(&self) -> bool {
        self.sees_waits
    }

    /// Returns how a node spent the time between two times, `CLOCK_BOOTTIME` nanoseconds. Anything
    /// older than the last thousands of records counts as a whole. So start with the session, or
    /// take the difference of two results.
    pub fn shares(&self, node: u32, from: u64, to: u64) -> Shares {
        let all = to.saturating_sub(from);
        let mut sums = [0_u64; DOINGS.len()];
        if let Some(gpu) = self.gpus.get(&node) {
            let [mut kernels, mut copies, mut queued, mut waits] = [
                gpu.kernels.clone(),
                gpu.copies.clone(),
                gpu.queued.clone(),
                self.waits.clone(),
            ];
            for spans in [&mut kernels, &mut copies, &mut queued, &mut waits] {
                spans.settle();
            }
            sums = DOINGS.map(|doing| gpu.past.total(doing));
            let from = from.max(self.summed_up);
            let lists = [&kernels, &copies, &queued, &waits].map(|list| list.from(from));
            sweep(lists, from, to, |doing, start, end| {
                if let Some(sum) = sums.get_mut(doing as usize) {
                    *sum += end - start;
                }
            });
        }
        Shares::of_sums(sums, all)
    }
}

impl Shares {
    /// Returns how a GPU spent the time between two times. The lists are spans in nanoseconds: when
    /// kernels ran, when copies ran, when dispatches were queued that had not started, and when a
    /// thread waited. Each list is sorted, and its spans do not touch one another.
    pub fn of(lists: [&[(u64, u64)]; 4], from: u64, to: u64) -> Shares {
        let mut sums = [0_u64; DOINGS.len()];
        sweep(lists, from, to, |doing, start, end| {
            if let Some(sum) = sums.get_mut(doing as usize) {
                *sum += end - start;
            }
        });
        Shares::of_sums(sums, to.saturating_sub(from))
    }

    /// Returns the shares of the time in which something was recorded, which is shorter by so much.
    /// Nothing is known to have happened in the rest.
    #[must_use]
    pub fn without(mut self, unrecorded: u64) -> Shares {
        self.nothing = self.nothing.saturating_sub(unrecorded);
        self
    }

    /// Returns the sum of all shares.
    pub fn sum(&self) -> u64 {
        let all = [
            self.busy,
            self.copies,
            self.starting,
            self.waited,
            self.nothing,
        ];
        all.into_iter().fold(0, u64::saturating_add)
    }

    /// Makes the shares from sums in the order of [`Doing`]. The rest of `all` counts as nothing.
    fn of_sums(sums: [u64; DOINGS.len()], all: u64) -> Shares {
        let mut left = all;
        let [busy, copies, starting, waited] = sums.map(|sum| {
            let part = sum.min(left);
            left -= part;
            part
        });
        Shares {
            busy,
            copies,
            starting,
            waited,
            nothing: left,
        }
    }
}

/// Visits the time between two times in pieces in which a GPU did one thing, and leaves out those
/// in which it did nothing. The lists are in the order of [`Doing`], and each is sorted.
fn sweep(
    lists: [&[(u64, u64)]; DOINGS.len()],
    from: u64,
    to: u64,
    mut visit: impl FnMut(Doing, u64, u64),
) {
    let mut rest = lists;
    let mut now = from;
    while now < to {
        let (mut doing, mut next) = (None, to);
        for (list, what) in rest.iter_mut().zip(DOINGS) {
            while let Some((first, tail)) = list.split_first() {
                if first.1 > now {
                    break;
                }
                *list = tail;
            }
            let Some((start, end)) = list.first() else {
                continue;
            };
            if *start > now {
                next = next.min(*start);
            } else {
                next = next.min(*end);
                doing = doing.or(Some(what));
            }
        }
        if let Some(doing) = doing {
            visit(doing, now, next);
        }
        now = next;
    }
}

/// The kinds of records that can show waits of the host.
const SEEN_IN: KindSet = sets::HIP_CALLS
    .union(sets::HSA_CALLS)
    .union(sets::CUDA_CALLS);

/// Calls in which the host waits for a GPU: for each kind, a flag for each operation.
static WAITS: LazyLock<HashMap<u8, Vec<bool>>> = LazyLock::new(|| {
    let mut all: HashMap<u8, Vec<bool>> = HashMap::new();
    for known in midair_domain::built().filter(|domain| SEEN_IN.contains(domain.kind)) {
        let Some(number) = known.number else {
            continue;
        };
        let operations: Vec<bool> = match names::BUFFER_KINDS.get(usize::from(number)) {
            Some(kind) => {
                let names = kind.operations.iter().chain(kind.added);
                names.map(|name| names_a_wait(name.as_str())).collect()
            }
            None => {
                let ours = crate::cuda::kinds();
                let Some(kind) = usize::from(number)
                    .checked_sub(crate::cuda::FIRST_KIND)
                    .and_then(|at| ours.get(at))
                else {
                    continue;
                };
                kind.operations
                    .iter()
                    .map(|name| names_a_wait(name))
                    .collect()
            }
        };
        all.insert(known.kind, operations);
    }
    all
});

/// Whether the host waits in the call with this name. Blocking copies do not count as waits here,
/// because the GPU is busy copying meanwhile.
fn names_a_wait(name: &str) -> bool {
    name.contains("Synchronize")
        || name.starts_with("hsa_signal_wait")
        || name.starts_with("hsa_amd_signal_wait")
}

/// Whether the host waits for a GPU in this call, by its kind and operation.
pub fn is_wait(kind: u8, operation: u32) -> bool {
    let operations = WAITS.get(&kind);
    operations.is_some_and(|all| all.get(operation as usize) == Some(&true))
}

#[cfg(test)]
mod tests;
