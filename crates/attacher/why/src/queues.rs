//! The state of queues, derived from two looks at their packets and signals.
//!
//! A kernel's packet leaves its queue when the kernel starts. It stays readable in its slot until
//! the slot is used again; only its header is gone. So the running kernels are found among the
//! packets before the read index. If a packet's completion signal has not been decremented, the
//! packet has not ended. A packet without a signal has not ended if the packet in front waits for
//! all packets before it and for nothing else.

use crate::answer::{Completer, Dispatch, Front, Queue, Wait};
use crate::aql::{Form, Packet, Place, passes, signal_value};
use crate::memory::{Bytes, Limited, Limits};
use crate::objects::Objects;
use midair_procinfo::module::Modules;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of packets that are read before the read index, and from it on.
const BEFORE: u64 = 64;
const BEHIND: u64 = 256;
/// The most kernels that are shown as running in one queue.
const MOST_RUNNING: usize = 16;
/// The most packets that are named for one signal.
const MOST_COMPLETERS: usize = 8;

/// What may be read of all queues in one look. A full queue takes some 40 KiB.
const LOOK: Limits = Limits {
    bytes: 32 << 20,
    reads: 1 << 20,
    time: Duration::from_secs(3),
};

/// A queue as it was at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    place: Option<Place>,
    bell: Option<u64>,
    read: u64,
    written: u64,
    /// The packets from the read index on.
    pending: Vec<Packet>,
    /// The packets before the read index, the latest first.
    begun: Vec<Packet>,
    /// The values of all signals of these packets.
    signals: BTreeMap<u64, Option<i64>>,
}

/// Does the same as [`read`], within other limits and without notes.
#[cfg(any(test, feature = "image"))]
pub(crate) fn read_within(memory: &impl Bytes, places: &[Place], limits: Limits) -> Vec<Seen> {
    let memory = Limited::new(memory, limits);
    places.iter().map(|place| one(&memory, *place)).collect()
}

/// Reads the queues as they are now. A queue that cannot be read has no place.
pub(crate) fn read(memory: &impl Bytes, places: &[Place], notes: &mut Vec<String>) -> Vec<Seen> {
    let memory = Limited::new(memory, LOOK);
    let seen = places.iter().map(|place| one(&memory, *place)).collect();
    let what = "some packets and signals may be missing: their number exceeds a limit";
    if memory.is_used_up() && !notes.iter().any(|note| note == what) {
        notes.push(what.to_owned());
    }
    seen
}

fn one(memory: &impl Bytes, place: Place) -> Seen {
    let Some((read, written)) = place.indexes(memory) else {
        return Seen::default();
    };
    let size = u64::from(place.size);
    // The indexes contradict each other, so the queue is being made or destroyed.
    if written < read || written - read > size {
        return Seen::default();
    }
    let pending = (read..written.min(read.saturating_add(BEHIND)))
        .filter_map(|index| place.packet(memory, index))
        .collect::<Vec<_>>();
    // Slots that have been used again since hold other packets.
    let oldest = written
        .saturating_sub(size)
        .max(read.saturating_sub(BEFORE));
    let begun = (oldest..read)
        .rev()
        .filter_map(|index| place.packet(memory, index))
        .collect::<Vec<_>>();
    let mut signals = BTreeMap::new();
    for packet in pending.iter().chain(&begun) {
        for signal in packet
            .dependencies()
            .into_iter()
            .chain([packet.completion()])
            .filter(|signal| *signal != 0)
        {
            signals
                .entry(signal)
                .or_insert_with(|| signal_value(memory, signal));
        }
    }
    Seen {
        bell: place.bell(memory),
        place: Some(place),
        read,
        written,
        pending,
        begun,
        signals,
    }
}

/// Gives kernels their names, from code objects.
pub(crate) trait Names {
    /// The short name.
    fn label(&self, object: u64) -> Option<String>;
    /// The name in the code object.
    fn symbol(&self, object: u64) -> Option<String>;
}

impl Names for Objects<'_> {
    fn label(&self, object: u64) -> Option<String> {
        Objects::label(self, object)
    }
    fn symbol(&self, object: u64) -> Option<String> {
        Objects::symbol(self, object)
    }
}

/// Returns what the queues did between two looks, and what they do now.
pub(crate) fn compare(
    first: &[Seen],
    second: &[Seen],
    looked: Duration,
    names: &impl Names,
    modules: &Modules,
) -> Vec<Queue> {
    let mut queues = told(first, second, looked, names);
    for (queue, seen) in queues
        .iter_mut()
        .zip(live(first, second).map(|pair| pair.1))
    {
        queue.gpu_id = seen.bell.and_then(|bell| gpu_of(modules, bell));
    }
    queues
}

/// Returns the driver's number of the GPU whose doorbells are mapped at this address. The driver
/// encodes the GPU in the offset of the mapping (source: Linux, kfd_priv.h, `KFD_MMAP_GPU_ID`).
fn gpu_of(modules: &Modules, bell: u64) -> Option<u32> {
    const SHIFT: u32 = 46;
    let mapping = modules.mapping_at(bell)?;
    let is_driver = mapping.path == b"/dev/kfd";
    let id = (mapping.offset >> SHIFT & 0xffff) as u32;
    (is_driver && id != 0).then_some(id)
}

/// Returns the queues that could be read both times.
fn live<'a>(first: &'a [Seen], second: &'a [Seen]) -> impl Iterator<Item = (&'a Seen, &'a Seen)> {
    first
        .iter()
        .zip(second)
        .filter(|(first, second)| first.place.is_some() && second.place.is_some())
}

pub(crate) fn told(
    first: &[Seen],
    second: &[Seen],
    looked: Duration,
    names: &impl Names,
) -> Vec<Queue> {
    let now: Vec<&Seen> = live(first, second).map(|pair| pair.1).collect();
    let running = running(&now);
    let completing = completing(&now, &running);
    let before: Vec<&Seen> = live(first, second).map(|pair| pair.0).collect();
    let ran_before = self::running(&before);
    let mut queues = Vec::new();
    for (index, seen) in now.iter().enumerate() {
        let (Some(place), Some(was)) = (seen.place, before.get(index)) else {
            continue;
        };
        let runs = running.get(index).map_or(&[][..], Vec::as_slice);
        let ran = ran_before.get(index).map_or(&[][..], Vec::as_slice);
        let dispatch = |run: &Run| {
            let packet = &run.packet;
            let lasted = ran.iter().any(|it| it.packet.index == packet.index);
            let (grid, workgroup) = packet.sizes();
            let signal = packet.completion();
            Dispatch {
                packet: packet.index,
                kernel: names.label(packet.kernel_object()),
                symbol: names.symbol(packet.kernel_object()),
                kernel_object: packet.kernel_object(),
                grid,
                workgroup,
                signal: seen.value(signal).map(|value| (signal, value)),
                at_least: if lasted { looked } else { Duration::ZERO },
                may_have_ended: run.may_have_ended,
            }
        };
        queues.push(Queue {
            number: index + 1,
            id: place.id,
            address: place.at,
            gpu_id: None,
            size: place.size,
            read: seen.read,
            written: seen.written,
            moved: seen.read.saturating_sub(was.read),
            running: runs.iter().take(MOST_RUNNING).map(dispatch).collect(),
            front: front(seen, &completing, names),
        });
    }
    queues
}

impl Seen {
    fn value(&self, signal: u64) -> Option<i64> {
        self.signals.get(&signal).copied().flatten()
    }

    /// Returns the signals that keep a packet waiting.
    fn missing(&self, packet: &Packet) -> Vec<u64> {
        let form = packet.form();
        let comes = |signal: &u64| self.value(*signal).is_some_and(|value| passes(form, value));
        let all = packet.dependencies();
        let any = form == Form::Any;
        if any && (all.is_empty() || all.iter().any(comes)) {
            return Vec::new();
        }
        all.into_iter().filter(|signal| !comes(signal)).collect()
    }

    /// Whether the packet in front waits only for the end of all packets before it.
    fn waits_for_all(&self) -> bool {
        self.pending.first().is_some_and(|packet| {
            packet.form() != Form::Unwritten
                && packet.is_after_all()
                && self.missing(packet).is_empty()
        })
    }
}

/// A kernel that has started.
#[derive(Debug, Clone, Copy)]
struct Run {
    packet: Packet,
    may_have_ended: bool,
}

/// Returns for each queue the kernels that have started and not ended, the latest first.
fn running(all: &[&Seen]) -> Vec<Vec<Run>> {
    // A signal of a packet that has not started was set up again for that packet. So it says nothing
    // about an older packet with the same signal.
    let later: BTreeSet<u64> = all
        .iter()
        .flat_map(|seen| &seen.pending)
        .filter(|packet| packet.form() != Form::Unwritten)
        .map(Packet::completion)
        .collect();
    let mut runs = Vec::new();
    for seen in all {
        let mut known = BTreeSet::new();
        let mut of_queue = Vec::new();
        for packet in &seen.begun {
            let signal = packet.completion();
            let is_latest = packet.index + 1 == seen.read;
            let runs = match signal {
                0 => is_latest && (seen.waits_for_all() || seen.pending.is_empty()),
                _ if later.contains(&signal) => false,
                _ => known.insert(signal) && seen.value(signal).is_some_and(|value| value > 0),
            };
            if runs && packet.may_have_dispatched() {
                of_queue.push(Run {
                    packet: *packet,
                    may_have_ended: signal == 0 && !seen.waits_for_all(),
                });
            }
        }
        runs.push(of_queue);
    }
    runs
}

/// Describes a packet by a word or by the kernel's name.
fn what(packet: &Packet, has_begun: bool, names: &impl Names) -> String {
    let kernel = || {
        names
            .label(packet.kernel_object())
            .unwrap_or_else(|| format!("the kernel at {:#x}", packet.kernel_object()))
    };
    match packet.form() {
        _ if has_begun => kernel(),
        Form::Dispatch => kernel(),
        Form::All | Form::Any => "a barrier".to_owned(),
        Form::Value { .. } => "a barrier on a value".to_owned(),
        Form::Commands => "a packet with commands".to_owned(),
        Form::Unwritten => "an unwritten packet".to_owned(),
    }
}

fn front(seen: &Seen, completing: &Completing, names: &impl Names) -> Front {
    let Some(packet) = seen.pending.first() else {
        return Front::Empty;
    };
    let index = packet.index;
    if packet.form() == Form::Unwritten {
        return Front::Unwritten { packet: index };
    }
    let what = what(packet, false, names);
    let missing = seen.missing(packet);
    if !missing.is_empty() {
        let wait = |signal: u64| Wait {
            signal,
            value: seen.value(signal),
            by: completers(signal, completing, names),
        };
        return Front::Signals {
            packet: index,
            what,
            any: packet.form() == Form::Any,
            waits: missing.into_iter().map(wait).collect(),
        };
    }
    match packet.is_after_all() {
        true => Front::AfterAll {
            packet: index,
            what,
        },
        false => Front::Free {
            packet: index,
            what,
        },
    }
}

/// The packets of all queues whose end completes a signal, by signal: the queue's index, the packet,
/// and whether it has started.
type Completing = BTreeMap<u64, Vec<(usize, Packet, bool)>>;

/// Returns all packets that complete signals. They are looked up for each queue, so they are sorted
/// once.
fn completing(all: &[&Seen], running: &[Vec<Run>]) -> Completing {
    let mut found = Completing::new();
    for (index, seen) in all.iter().enumerate() {
        let runs = running.get(index).map_or(&[][..], Vec::as_slice);
        let begun = runs.iter().map(|run| (&run.packet, true));
        let pending = seen
            .pending
            .iter()
            .filter(|packet| packet.form() != Form::Unwritten)
            .map(|packet| (packet, false));
        for (packet, runs) in begun.chain(pending) {
            let of_signal = found.entry(packet.completion()).or_default();
            if of_signal.len() < MOST_COMPLETERS {
                of_signal.push((index, *packet, runs));
            }
        }
    }
    found
}

/// Describes the packets whose end completes a signal.
fn completers(signal: u64, completing: &Completing, names: &impl Names) -> Vec<Completer> {
    let found = completing.get(&signal).map_or(&[][..], Vec::as_slice);
    let completer = |(index, packet, runs): &(usize, Packet, bool)| Completer {
        queue: index + 1,
        packet: packet.index,
        what: what(packet, *runs, names),
        runs: *runs,
    };
    found.iter().map(completer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::Pieces;

    const KERNEL: u64 = 0x7000_0040;

    struct Two;

    impl Names for Two {
        fn label(&self, object: u64) -> Option<String> {
            (object == KERNEL).then(|| "scale".to_owned())
        }
        fn symbol(&self, object: u64) -> Option<String> {
            (object == KERNEL).then(|| "_Z5scalePffi".to_owned())
        }
    }

    /// A machine of queues with 8 packets each.
    #[derive(Default)]
    struct Machine {
        memory: Pieces,
        places: Vec<Place>,
    }

    const DISPATCH: u64 = 2 | 1 << 16;
    const ORDERED: u64 = 1 << 8;
    const BARRIER: u64 = 3;

    impl Machine {
        fn queue(&mut self) -> usize {
            let at = 0x10_0000 * (self.places.len() as u64 + 1);
            let mut words = [0; 18];
            (words[1], words[2], words[3], words[4]) = (at + 0x1000, at + 0x2000, 8, at);
            words[17] = 128;
            self.memory.words(at, &words);
            self.memory.put(at + 0x1000, &[0; 512]);
            self.memory
                .words(at + 0x2000, &[u64::MAX, 0, 0, 0, 0, 0, at, 0]);
            let mut bytes = [0; 144];
            assert!(self.memory.fill(at, &mut bytes));
            bytes[4] = 1;
            self.memory.put(at, &bytes);
            self.places.push(Place::of(at, &bytes).unwrap());
            self.places.len() - 1
        }

        fn signal(&mut self, at: u64, value: i64) -> u64 {
            self.memory.words(at, &[1, value as u64]);
            at
        }

        fn packet(&mut self, queue: usize, words: [u64; 8]) {
            let place = self.places[queue];
            let written = self.memory.word(place.at + 56).unwrap();
            for (n, word) in words.into_iter().enumerate() {
                let at = place.ring + 64 * (written % 8) + 8 * n as u64;
                self.memory.set(at, word);
            }
            self.memory.set(place.at + 56, written + 1);
        }

        /// Takes the first packet, as the device does.
        fn take(&mut self, queue: usize) {
            let place = self.places[queue];
            let read = self.memory.word(place.at + 128).unwrap();
            let at = place.ring + 64 * (read % 8);
            let first = self.memory.word(at).unwrap();
            self.memory.set(at, first & !0xffff | 1);
            self.memory.set(place.at + 128, read + 1);
        }

        fn told(&self) -> Vec<Queue> {
            let seen = read(&self.memory, &self.places, &mut Vec::new());
            told(&seen, &seen, Duration::from_secs(1), &Two)
        }
    }

    fn dispatch(signal: u64) -> [u64; 8] {
        let grid = 64_u64 << 32 | 1;
        [
            DISPATCH | ORDERED | 64 << 32 | 1 << 48,
            grid,
            1 | 1 << 32,
            0,
            KERNEL,
            0,
            0,
            signal,
        ]
    }

    #[test]
    fn a_kernel_without_a_signal_runs_while_the_next_waits_for_it() {
        let mut machine = Machine::default();
        machine.queue();
        assert_eq!(machine.told()[0].front, Front::Empty);
        machine.packet(0, dispatch(0));
        machine.take(0);
        let alone = machine.told().remove(0);
        assert!(alone.running[0].may_have_ended, "{alone:?}");
        machine.packet(0, dispatch(0));
        machine.packet(0, dispatch(0));
        let queue = machine.told().remove(0);
        let run = &queue.running[0];
        assert_eq!((run.packet, run.kernel.as_deref()), (0, Some("scale")));
        assert_eq!((run.grid, run.workgroup), ([64, 1, 1], [64, 1, 1]));
        assert_eq!(
            (run.at_least, run.may_have_ended),
            (Duration::from_secs(1), false)
        );
        let Front::AfterAll { packet: 1, what } = &queue.front else {
            panic!("{queue:?}");
        };
        assert_eq!((what.as_str(), queue.written - queue.read), ("scale", 2));
    }

    #[test]
    fn a_signal_says_which_of_several_run() {
        let mut machine = Machine::default();
        machine.queue();
        let signals = [(0x9000, 1), (0xa000, 0), (0xb000, 1)];
        for (at, value) in signals {
            machine.signal(at, value);
            machine.packet(0, dispatch(at));
            machine.take(0);
        }
        let running: Vec<u64> = machine.told()[0]
            .running
            .iter()
            .map(|it| it.packet)
            .collect();
        assert_eq!(running, [2, 0]);
        // The first packet's signal was set up again for a packet that has not started.
        machine.packet(0, dispatch(0x9000));
        let running: Vec<u64> = machine.told()[0]
            .running
            .iter()
            .map(|it| it.packet)
            .collect();
        assert_eq!(running, [2]);
    }

    #[test]
    fn a_barrier_names_the_queue_that_would_let_it_pass() {
        let mut machine = Machine::default();
        let (one, two) = (machine.queue(), machine.queue());
        let (done, lost) = (machine.signal(0x9000, 1), machine.signal(0xa000, 1));
        let past = machine.signal(0xb000, 0);
        machine.packet(one, dispatch(done));
        machine.take(one);
        machine.packet(two, [BARRIER, done, past, lost, 0, 0, 0, 0]);
        let queues = machine.told();
        let Front::Signals {
            waits, any: false, ..
        } = &queues[1].front
        else {
            panic!("{queues:?}");
        };
        assert_eq!(waits.len(), 2);
        assert_eq!((waits[0].signal, waits[0].value), (done, Some(1)));
        let by = &waits[0].by[0];
        assert_eq!(
            (by.queue, by.packet, by.what.as_str(), by.runs),
            (1, 0, "scale", true)
        );
        assert_eq!((waits[1].signal, waits[1].by.len()), (lost, 0));
    }

    #[test]
    fn a_packet_that_nobody_writes_is_seen() {
        let mut machine = Machine::default();
        machine.queue();
        machine.packet(0, [1, 0, 0, 0, 0, 0, 0, 0]);
        machine.packet(0, dispatch(0));
        assert_eq!(machine.told()[0].front, Front::Unwritten { packet: 0 });
    }

    #[test]
    fn indexes_that_contradict_each_other_are_not_believed() {
        let mut machine = Machine::default();
        machine.queue();
        let at = machine.places[0].at;
        machine.memory.set(at + 56, 1 << 60);
        assert!(machine.told().is_empty());
        machine.memory.set(at + 128, u64::MAX);
        machine.memory.set(at + 56, 3);
        assert!(machine.told().is_empty());
    }
}
