//! The counters of one device. They are started, read any number of times, and stopped, one step
//! after another.
//!
//! This module knows nothing of sessions and records. Its user says when each step is to be taken.

use super::own::OwnQueue;
use crate::layout::Signal;
use crate::queue::timing::to_clock;
use crate::queue::windows::keeper::{ALIGNMENT, signal, write};
use crate::queue::windows::memory::Memory;
use midair_record::counter_plan::Group;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A step that the device is asked to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reset the counters, select the group's counters, and let them count.
    Start,
    /// Write what they have counted since the start into the output. They go on counting.
    Read,
    /// Stop the counters.
    Stop,
}

/// A step that the device has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The step.
    pub step: Step,
    /// The index of the group.
    pub group: usize,
    /// When the device started and ended the step, on the records' clock; 0 = not known.
    pub times: (u64, u64),
}

/// The places of a group's commands and output: addresses and numbers of words.
#[derive(Debug, Clone, Copy)]
struct At {
    start: (u64, u32),
    read: (u64, u32),
    stop: (u64, u32),
    output: (u64, usize),
}

/// The counters of a device, with their own memory, signal and queue. They count for the whole
/// device, whoever uses it. Only one `DeviceCounter`, or the windows of one session, can count on a
/// device at a time. Only [`DeviceCounter::close`] gives it back.
#[derive(Debug)]
pub struct DeviceCounter {
    agent: u64,
    queue: OwnQueue,
    memory: Memory,
    signal: Signal,
    groups: Vec<At>,
    under_way: Option<(Step, usize)>,
}

/// A device's counters, and the places of further commands: addresses and numbers of words.
pub type Opened = (DeviceCounter, Vec<(u64, u32)>);

impl DeviceCounter {
    /// Asks the runtime for what is needed. `further` are commands for other queues, which are
    /// stored next to the groups' commands; their places are returned.
    ///
    /// # Errors
    /// Says what the runtime does not give.
    pub fn open(agent: u64, groups: &[&Group], further: &[&[u32]]) -> Result<Opened, &'static str> {
        let size = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let of_words = |words: usize| size(4 * words);
        let of_group = |group: &&Group| {
            let read = (group.read_words as usize).min(group.read_stop.len());
            of_words(group.start.len())
                + of_words(read)
                + of_words(group.read_stop.len() - read)
                + size(group.output_bytes as usize)
        };
        let bytes: usize = groups.iter().map(of_group).sum();
        let bytes = bytes
            + further
                .iter()
                .map(|words| of_words(words.len()))
                .sum::<usize>();
        let signal = signal().ok_or("the runtime provides no signal")?;
        let give_back = || {
            // SAFETY: the signal was created above, and nothing uses it.
            unsafe { original::hsa_signal_destroy(signal.0) };
        };
        let Some(memory) = Memory::allocate(agent, bytes.next_multiple_of(4096)) else {
            give_back();
            return Err("the runtime provides no memory for device commands");
        };
        let queue = match OwnQueue::create(agent) {
            Ok(queue) => queue,
            Err(why) => {
                give_back();
                memory.free();
                return Err(why);
            }
        };
        let mut next = memory.at;
        let mut place = |words: &[u32]| {
            let at = next;
            write(at, words);
            next += of_words(words.len()) as u64;
            (at, words.len() as u32)
        };
        let mut all = Vec::new();
        for group in groups {
            let (start, stop) = (place(&group.start), group.read_words as usize);
            let stop = place(group.read_stop.get(stop..).unwrap_or_default());
            // These are written again below, when the output's address is known.
            let mut words = group.read_stop.clone();
            words.truncate(group.read_words as usize);
            let read = place(&words);
            let output = place(&vec![0; group.output_bytes as usize / 4]).0;
            group.patch(&mut words, output);
            write(read.0, &words);
            all.push(At {
                start,
                read,
                stop,
                output: (output, group.output_bytes as usize / 8),
            });
        }
        let further = further.iter().map(|words| place(words)).collect();
        let counter = DeviceCounter {
            agent,
            queue,
            memory,
            signal,
            groups: all,
            under_way: None,
        };
        Ok((counter, further))
    }

    /// Has the device take a step. Returns false while another step is under way, and for a group
    /// that does not exist.
    pub fn submit(&mut self, step: Step, group: usize) -> bool {
        let Some(at) = self.groups.get(group) else {
            return false;
        };
        if self.under_way.is_some() {
            return false;
        }
        let commands = match step {
            Step::Start => at.start,
            Step::Read => at.read,
            Step::Stop => at.stop,
        };
        // SAFETY: this is a midair signal that no packet under way refers to.
        unsafe { self.signal.rearm() };
        if !self.queue.submit(commands, self.signal) {
            return false;
        }
        self.under_way = Some((step, group));
        true
    }

    /// Returns whether a step is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns the step that was under way, if the device has taken it by now.
    pub fn poll(&mut self) -> Option<Taken> {
        let (step, group) = self.under_way?;
        // SAFETY: this is a midair signal, which is alive until `close`.
        let ticks = unsafe {
            if self.signal.value() >= 1 {
                return None;
            }
            (self.signal.start_ticks(), self.signal.end_ticks())
        };
        self.under_way = None;
        Some(Taken {
            step,
            group,
            times: (to_clock(self.agent, ticks.0), to_clock(self.agent, ticks.1)),
        })
    }

    /// Does the same as [`DeviceCounter::poll`], but waits for the step until `deadline`.
    pub fn wait(&mut self, deadline: u64) -> Option<Taken> {
        while self.under_way.is_some() {
            if let Some(taken) = self.poll() {
                return Some(taken);
            }
            if now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        None
    }

    /// Returns what the last [`Step::Read`] of a group has written.
    pub fn words(&self, group: usize) -> impl Iterator<Item = u64> {
        let (at, count) = self.groups.get(group).map_or((0, 0), |at| at.output);
        (0..count).map(move |word| {
            let at = at as usize + 8 * word;
            // SAFETY: this is an aligned word inside a group's output, and the device writes whole
            // words.
            unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(at)).load(Relaxed) }
        })
    }

    /// Returns how many words a group's output has.
    pub fn size(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |at| at.output.1)
    }

    /// Gives everything back. With `keep` the memory stays, since further commands in it may still
    /// be executed. Returns false if something had to be left to the runtime.
    pub fn close(self, keep: bool) -> bool {
        if !self.queue.destroy() {
            return false;
        }
        // SAFETY: this is a midair signal, and the queue that used it is destroyed.
        unsafe { original::hsa_signal_destroy(self.signal.0) };
        if !keep {
            self.memory.free();
        }
        !keep
    }
}
