//! A session's windows: assembled from their records, joined to their dispatches, and judged.
//!
//! Everything here comes from the target. Windows beyond [`MOST`] are only counted, and at most
//! [`MOST_OPEN`] may be incomplete at once. A window's size comes from its group's template, which
//! is the attacher's own.

use super::batch::{self, Batch, ByPacket};
use super::clock::{self, Ticks};
use super::overlap::{Overlaps, overlaps};
use super::readings::Tally;
use super::verdict::Verdict;
use midair_counters::{CounterPlan, Prepared};
use midair_record::event::{CounterWindow, Kernel, Record, WindowResult, kind};
use midair_trace::index::{Index, untimed};
use midair_trace::record_file::{RecordFile, WalkError};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::io;

/// Further windows have no values.
const MOST: usize = if cfg!(test) { 16 } else { 1 << 20 };
/// The most windows whose records may be interleaved. A target writes one window after the other.
const MOST_OPEN: usize = 64;

/// The counter of the device's clock.
const CLOCK: &str = "GRBM_COUNT";

/// A window.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Its first record.
    pub(crate) head: CounterWindow,
    /// The dispatch in it, or the first one of several.
    pub(crate) kernel: Option<Kernel>,
    /// The dispatches in it, where there are several.
    pub(crate) batch: Option<Box<Batch>>,
    /// Whether its values can be used.
    pub(crate) verdict: Verdict,
    /// The number of words that have come.
    received: u32,
    /// What [`CLOCK`] counted in these, at the place that counted least. None: it was not counted.
    ticks: Option<u64>,
    /// Whether its data contradict each other.
    bad: bool,
}

/// Windows of a session.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_id: HashMap<u64, usize>,
    all: Vec<Window>,
    /// The words of [`CLOCK`] in a group's memory, by node and group.
    clocks: HashMap<(u32, u32), Vec<u32>>,
    /// The windows whose words have not all come, the oldest first.
    open: VecDeque<usize>,
    /// The dispatches with values.
    good: HashSet<u64>,
    /// The dispatches whose values were left out because something else ran alongside them, or may
    /// have.
    beside: HashMap<u64, Verdict>,
    /// The number of windows that were only counted.
    pub(crate) beyond: u64,
    /// The readings of whole devices, which are not windows.
    pub(crate) readings: Tally,
    /// The number of dispatches of the session, and of those that are chosen.
    pub(crate) dispatches: u64,
    pub(crate) chosen: u64,
}

/// Since when dispatches without times may have run on an agent. This is known for two queues, so
/// that at least one of them is not the queue of a given window.
#[derive(Debug, Default, Clone, Copy)]
struct Untimed {
    first: Option<(u64, u32)>,
    second: Option<(u64, u32)>,
}

impl Untimed {
    fn add(&mut self, since: u64, queue: u32) {
        match self.first {
            Some((first, of)) if of == queue => self.first = Some((first.min(since), of)),
            Some((first, _)) if first <= since => {
                if self.second.is_none_or(|(second, _)| since < second) {
                    self.second = Some((since, queue));
                }
            }
            before => {
                if let Some(before) = before {
                    self.second = Some(before);
                }
                self.first = Some((since, queue));
            }
        }
    }

    /// Returns since when such a dispatch may have run on a queue other than this one. Packets of
    /// one queue do not run within its own windows, because those are between barriers.
    fn beside(&self, queue: u32) -> Option<u64> {
        [self.first, self.second]
            .into_iter()
            .flatten()
            .find(|(_, of)| *of != queue)
            .map(|(since, _)| since)
    }
}

impl Windows {
    /// Reads the windows. `lost` says that records of dispatches are missing.
    pub(crate) fn read(
        records: &RecordFile,
        plan: &CounterPlan,
        lost: bool,
    ) -> io::Result<Windows> {
        let mut windows = Windows::default();
        let failed = |error: WalkError<Infallible>| match error {
            WalkError::Read(error) => error,
            WalkError::Visit(never) => match never {},
        };
        let parts = records.walk_all(
            |kind| kind == kind::COUNTER_COLLECTION,
            |record| {
                if let Record::CounterWindow(window, words) = record {
                    windows.part(window, words, plan);
                }
                Ok(())
            },
        );
        parts.map_err(failed)?;
        let mut judge = Judge::new(&windows, records.index(), lost);
        let kernels = records.walk_all(
            |kind| kind == kind::KERNEL_DISPATCH,
            |record| {
                if let Record::Kernel(kernel, _) = record {
                    windows.dispatches += 1;
                    let is_chosen = records.is_chosen(kernel);
                    windows.chosen += u64::from(is_chosen);
                    judge.dispatch(kernel, is_chosen, &mut windows);
                }
                Ok(())
            },
        );
        kernels.map_err(failed)?;
        judge.conclude(&mut windows, records);
        Ok(windows)
    }

    /// Takes a record of a window.
    fn part(&mut self, part: &CounterWindow, content: &[u8], plan: &CounterPlan) {
        if self.readings.take(plan, part) {
            return;
        }
        let words = u32::try_from(content.len() / 8).unwrap_or(u32::MAX);
        let at = match self.by_id.get(&part.window) {
            Some(at) => *at,
            None if self.all.len() >= MOST => {
                self.beyond += u64::from(part.first == 0);
                return;
            }
            None => {
                let at = self.all.len();
                self.by_id.insert(part.window, at);
                let counted = part.result == WindowResult::Counted as u32;
                let size = group(plan, part).map(|group| group.template.output_bytes.div_ceil(8));
                self.all.push(Window {
                    head: *part,
                    kernel: None,
                    batch: (part.dispatches > 1).then(Box::default),
                    verdict: Verdict::Incomplete,
                    received: 0,
                    ticks: None,
                    bad: counted && size != Some(u64::from(part.total)),
                });
                if counted {
                    self.open.push_back(at);
                }
                if self.open.len() > MOST_OPEN
                    && let Some(oldest) = self.open.pop_front()
                    && let Some(window) = self.all.get_mut(oldest)
                {
                    window.bad |= window.received < window.head.total;
                }
                at
            }
        };
        let Some(window) = self.all.get_mut(at) else {
            return;
        };
        let head = window.head;
        let same = CounterWindow {
            header: head.header,
            first: head.first,
            words: head.words,
            ..*part
        } == head;
        window.bad |= !same || part.first < window.received;
        // After a lost record the rest is useless, and the window stays incomplete.
        if part.first == window.received {
            window.received = window.received.saturating_add(words);
            let clock = self.clocks.entry((head.node, head.group));
            for word in clock.or_insert_with(|| clock_words(plan, &head)) {
                let at = word.checked_sub(part.first).map(|at| 8 * at as usize);
                let value = at.and_then(|at| content.get(at..)?.first_chunk());
                if let Some(value) = value.map(|bytes| u64::from_le_bytes(*bytes)) {
                    window.ticks = Some(window.ticks.map_or(value, |least| least.min(value)));
                }
            }
        }
        window.bad |= window.received > head.total;
        if window.received >= head.total || window.bad {
            self.open.retain(|open| *open != at);
        }
    }

    /// Returns the window that a record belongs to.
    pub(crate) fn of(&self, part: &CounterWindow) -> Option<&Window> {
        self.all.get(*self.by_id.get(&part.window)?)
    }

    /// Whether a dispatch has values.
    pub(crate) fn has_values(&self, dispatch_id: u64) -> bool {
        self.good.contains(&dispatch_id)
    }

    /// Returns why a dispatch has no values although it was counted alone in its window: something
    /// ran alongside it, or may have.
    pub(crate) fn beside(&self, dispatch_id: u64) -> Option<Verdict> {
        self.beside.get(&dispatch_id).copied()
    }

    /// Whether several dispatches have values together.
    pub(crate) fn has_batches(&self) -> bool {
        let mut windows = self.all.iter();
        windows.any(|window| window.verdict == Verdict::Batch)
    }

    /// Returns how many windows have each verdict.
    pub(crate) fn tally(&self) -> BTreeMap<Verdict, u64> {
        let mut tally = BTreeMap::new();
        for window in &self.all {
            *tally.entry(window.verdict).or_default() += 1;
        }
        tally
    }

    /// Returns the number of all windows, including those that were only counted.
    pub(crate) fn count(&self) -> u64 {
        self.all.len() as u64 + self.beyond
    }

    /// Returns the windows that are kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window> {
        self.all.iter()
    }
}

/// Returns the counter group that a window names.
pub(super) fn group<'p>(plan: &'p CounterPlan, window: &CounterWindow) -> Option<&'p Prepared> {
    plan.agents.get(&window.node)?.get(window.group as usize)
}

/// Returns the words of [`CLOCK`] in the memory of a window's group.
fn clock_words(plan: &CounterPlan, window: &CounterWindow) -> Vec<u32> {
    let event = group(plan, window).and_then(|group| Some((group, group.event(CLOCK)?)));
    let Some((group, event)) = event else {
        return Vec::new();
    };
    let slots = group.template.slots.iter();
    let own = slots.filter(|slot| slot.event == event);
    own.map(|slot| slot.word).collect()
}

impl Window {
    /// Whether it has values.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self.verdict, Verdict::Alone | Verdict::Batch)
    }

    /// Adds a dispatch to its batch.
    fn joined(&mut self, kernel: &Kernel, is_chosen: bool, room: &mut usize) {
        let (head, open) = (self.head, self.open());
        self.bad |= kernel.node != head.node;
        let timed = untimed(kernel.header.flags, kernel.untimed).is_none();
        let times = timed.then_some((kernel.start, kernel.end));
        if let Some(batch) = &mut self.batch {
            batch.add(&head, kernel, times, room);
            batch.is_chosen |= is_chosen;
            let is_inside = |times| open.is_some_and(|open| overlaps(open, times));
            batch.inside += u64::from(times.is_some_and(is_inside));
        }
        let before = self.kernel.map_or(u64::MAX, |kernel| kernel.packet_index);
        if kernel.packet_index < before {
            self.kernel = Some(*kernel);
        }
    }

    /// Returns start and end, where they are plausible.
    fn times(&self) -> Option<(u64, u64)> {
        let (start, end) = (self.head.start, self.head.end);
        (start != 0 && start <= end).then_some((start, end))
    }

    /// Returns the time in which dispatches were counted in it. It starts somewhere in the packet
    /// that starts the counters, one XCC after the other, and ends when they were read.
    fn open(&self) -> Option<(u64, u64)> {
        let (start, end) = self.times()?;
        let begin = match self.head.begin {
            0 => start,
            begin => begin.min(start),
        };
        Some((begin, end.max(self.head.read_end)))
    }

    /// Returns the time in which it used the device's counters. A second window in that time would
    /// lose its counts, or would count what this one has selected.
    fn uses(&self) -> Option<(u64, u64)> {
        let head = &self.head;
        let begin = if head.begin == 0 {
            head.start
        } else {
            head.begin
        };
        let end = if head.read_end == 0 {
            // The window was started, and its end is not known.
            u64::MAX
        } else {
            head.read_end
        };
        (begin != 0).then_some((begin, end.max(begin)))
    }

    /// Returns what its clock counted, where it was counted and the times are known.
    fn ticks(&self, number: usize) -> Option<Ticks> {
        let (start, end) = self.times()?;
        let (begin, read_end) = (self.head.begin, self.head.read_end);
        let class = match &self.batch {
            Some(batch) => batch.sort,
            None => self
                .kernel
                .as_ref()
                .map_or(0, |kernel| batch::sort_of(0, kernel)),
        };
        Some(Ticks {
            number,
            node: self.head.node,
            class,
            begin: start,
            most: match begin {
                0 => 0,
                begin => read_end.max(end).saturating_sub(begin),
            },
            least: end - start,
            count: self.ticks?,
        })
    }

    /// Returns why it has no values, regardless of what ran at the same time.
    fn void(&self) -> Option<Verdict> {
        let known = WindowResult::ALL.into_iter();
        let mut known = known.filter(|result| *result as u32 == self.head.result);
        Some(match known.next() {
            None | Some(WindowResult::Sampled | WindowResult::Disturbed) => Verdict::Contradictory,
            Some(WindowResult::NoDispatch) => Verdict::Empty,
            Some(WindowResult::Open) => Verdict::Open,
            Some(WindowResult::QueueDestroyed) => Verdict::QueueDestroyed,
            Some(WindowResult::BadTimes) => Verdict::BadTimes,
            Some(WindowResult::TooLate) => Verdict::TooLate,
            Some(WindowResult::Counted) => {
                if self.bad || self.head.dispatch_id == 0 {
                    Verdict::Contradictory
                } else if self.received < self.head.total {
                    Verdict::Incomplete
                } else if self.times().is_none() {
                    Verdict::BadTimes
                } else {
                    return None;
                }
            }
        })
    }
}

/// What runs on an agent at the same time as its windows.
struct Agent {
    /// The windows on this agent, by index.
    windows: Vec<usize>,
    overlaps: Overlaps,
    /// How many windows use the counters at the same time as each window.
    used: Overlaps,
    untimed: Untimed,
}

/// Joins dispatches to windows, and finds out what ran at the same time.
struct Judge {
    agents: HashMap<u32, Agent>,
    by_dispatch: HashMap<u64, usize>,
    by_packet: ByPacket,
    /// Windows whose dispatch is also claimed by another window.
    twice: Vec<usize>,
    lost: bool,
}

impl Judge {
    fn new(windows: &Windows, index: &Index, lost: bool) -> Judge {
        type Intervals = (Vec<usize>, Vec<(u64, u64)>, Vec<(u64, u64)>);
        let mut of_node: HashMap<u32, Intervals> = HashMap::new();
        let (mut by_dispatch, mut twice) = (HashMap::new(), Vec::new());
        let mut by_packet = ByPacket::default();
        for (at, window) in windows.all.iter().enumerate() {
            if let (None, Some(open), Some(uses)) = (window.void(), window.open(), window.uses()) {
                let (numbers, intervals, used) = of_node.entry(window.head.node).or_default();
                numbers.push(at);
                intervals.push(open);
                used.push(uses);
                let is_first = match window.batch {
                    Some(_) => by_packet.add(&window.head, at),
                    None => by_dispatch.insert(window.head.dispatch_id, at).is_none(),
                };
                if !is_first {
                    twice.push(at);
                }
            }
        }
        let agent = |(node, (windows, intervals, used)): (u32, Intervals)| {
            let overlaps = Overlaps::new(&intervals);
            let used = Overlaps::new(&used);
            let untimed = Untimed::default();
            let agent = Agent {
                windows,
                overlaps,
                used,
                untimed,
            };
            (node, agent)
        };
        let mut agents: HashMap<u32, Agent> = of_node.into_iter().map(agent).collect();
        for window in &windows.all {
            let Some(agent) = agents.get_mut(&window.head.node) else {
                continue;
            };
            match window.uses() {
                Some(uses) => agent.used.add(uses),
                // The counters were read, but the time is not known.
                None if window.head.result == WindowResult::BadTimes as u32 => {
                    agent.untimed.add(0, window.head.queue_id);
                }
                None => {}
            }
        }
        // Packets that were lost may have been dispatches, at any time.
        for counts in index.queue_counts.iter().filter(|counts| counts.lost > 0) {
            let queue = index.queues.get(&counts.queue_id);
            for (node, agent) in &mut agents {
                if queue.is_none_or(|queue| queue.node == *node) {
                    agent.untimed.add(0, counts.queue_id);
                }
            }
        }
        Judge {
            agents,
            by_dispatch,
            by_packet,
            twice,
            lost,
        }
    }

    fn dispatch(&mut self, kernel: &Kernel, is_chosen: bool, windows: &mut Windows) {
        if let Some(agent) = self.agents.get_mut(&kernel.node) {
            match untimed(kernel.header.flags, kernel.untimed) {
                None => agent.overlaps.add((kernel.start, kernel.end)),
                Some(_) => agent.untimed.add(kernel.rung, kernel.queue_id),
            }
        }
        let window = self.by_dispatch.get(&kernel.dispatch_id);
        if let Some(window) = window.and_then(|at| windows.all.get_mut(*at)) {
            let head = &window.head;
            let here = kernel.node == head.node && kernel.queue_id == head.queue_id;
            window.bad |= !here || window.kernel.is_some();
            window.kernel = Some(*kernel);
        }
        if let Some(window) = self
            .by_packet
            .of(kernel)
            .and_then(|at| windows.all.get_mut(at))
        {
            window.joined(kernel, is_chosen, &mut self.by_packet.room);
        }
    }

    fn conclude(self, windows: &mut Windows, records: &RecordFile) {
        for at in self.twice {
            if let Some(window) = windows.all.get_mut(at) {
                // The earlier window no longer has a dispatch, and is reported as such.
                window.bad = true;
            }
        }
        for agent in self.agents.into_values() {
            let counts = agent.overlaps.counts().into_iter().zip(agent.used.counts());
            for (at, (count, used)) in agent.windows.iter().zip(counts) {
                let Some(window) = windows.all.get_mut(*at) else {
                    continue;
                };
                let Some(open) = window.open() else {
                    continue;
                };
                let Some(kernel) = window.kernel else {
                    window.verdict = Verdict::NoDispatch;
                    continue;
                };
                let (own, is_chosen, good) = match &window.batch {
                    Some(batch) if batch.count != u64::from(window.head.dispatches) => {
                        window.verdict = Verdict::NoDispatch;
                        continue;
                    }
                    Some(batch) => (batch.inside, batch.is_chosen, Verdict::Batch),
                    None => {
                        let timed = untimed(kernel.header.flags, kernel.untimed).is_none();
                        let own = timed && overlaps(open, (kernel.start, kernel.end));
                        // Where every dispatch may get a window, it was decided at that time which
                        // of a kernel's dispatches are counted, in their order.
                        let is_chosen = match window.head.packets {
                            0 => records.is_chosen_kernel(&kernel),
                            _ => records.is_chosen(&kernel),
                        };
                        (u64::from(own), is_chosen, Verdict::Alone)
                    }
                };
                let beside = agent.untimed.beside(window.head.queue_id);
                window.verdict = if !is_chosen {
                    Verdict::NotSelected
                } else if count > own || used > 1 {
                    Verdict::Shared
                } else if self.lost || beside.is_some_and(|since| since < open.1) {
                    Verdict::NotKnown
                } else {
                    good
                };
            }
        }
        let counted = windows.all.iter().enumerate();
        let counted = counted.filter(|(_, window)| window.void().is_none());
        let ticks = counted.filter_map(|(number, window)| window.ticks(number));
        for number in clock::disturbed(ticks.collect()) {
            // What else is wrong with a window is reported first.
            if let Some(window) = windows.all.get_mut(number).filter(|w| w.is_good()) {
                window.verdict = Verdict::Disturbed;
            }
        }
        for window in &mut windows.all {
            if let Some(void) = window.void() {
                window.verdict = void;
            }
            match window.verdict {
                Verdict::Alone => {
                    windows.good.insert(window.head.dispatch_id);
                }
                Verdict::Shared | Verdict::NotKnown if window.batch.is_none() => {
                    let dispatch = window.head.dispatch_id;
                    windows.beside.insert(dispatch, window.verdict);
                }
                _ => {}
            }
            if let Some(batch) = &mut window.batch {
                batch.members.sort_unstable();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window beyond the limit is counted once, however many records it has.
    #[test]
    fn windows_beyond_the_limit_are_counted() {
        let mut windows = Windows::default();
        for window in 0..MOST as u64 + 3 {
            for first in [0, 2, 4] {
                let part = CounterWindow {
                    window,
                    first,
                    words: 2,
                    total: 6,
                    ..CounterWindow::default()
                };
                windows.part(&part, &[0; 16], &CounterPlan::default());
            }
        }
        assert_eq!((windows.all.len(), windows.beyond), (MOST, 3));
        assert_eq!(windows.count(), MOST as u64 + 3);
    }

    /// A dispatch without times may run from its launch on, alongside the windows of all queues but its
    /// own.
    #[test]
    fn the_earliest_launches_without_times_on_two_queues_are_known() {
        type Added = &'static [(u64, u32)];
        let cases: [(Added, [Option<u64>; 4]); 9] = [
            // For windows on queues 1, 2, 3 and 4.
            (&[], [None; 4]),
            (&[(5, 1)], [None, Some(5), Some(5), Some(5)]),
            (&[(5, 1), (3, 1)], [None, Some(3), Some(3), Some(3)]),
            (&[(5, 1), (7, 2)], [Some(7), Some(5), Some(5), Some(5)]),
            (&[(5, 1), (3, 2)], [Some(3), Some(5), Some(3), Some(3)]),
            (
                &[(5, 1), (7, 2), (6, 3)],
                [Some(6), Some(5), Some(5), Some(5)],
            ),
            (
                &[(5, 1), (6, 2), (7, 3)],
                [Some(6), Some(5), Some(5), Some(5)],
            ),
            (
                &[(5, 1), (7, 1), (8, 2)],
                [Some(8), Some(5), Some(5), Some(5)],
            ),
            (
                &[(5, 1), (6, 2), (4, 3)],
                [Some(4), Some(4), Some(5), Some(4)],
            ),
        ];
        for (added, wanted) in cases {
            let mut untimed = Untimed::default();
            for (since, queue) in added {
                untimed.add(*since, *queue);
            }
            let found = [1, 2, 3, 4].map(|queue| untimed.beside(queue));
            assert_eq!(found, wanted, "{added:?}");
        }
    }
}
