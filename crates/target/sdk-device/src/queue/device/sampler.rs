//! Reads the counters of whole devices at an interval, group by group, and writes what they counted.
//!
//! A single group goes on counting from reading to reading, so nothing is missed in between.
//! Several groups are multiplexed, one interval each, in a random order in each round. All of this
//! happens in rounds of the worker thread, which does not wait for the device.
//!
//! While the program has paused the recording, nothing counts: the round that sees the pause reads
//! and stops the counters, and the round that sees its end starts them again, at most some 5 ms
//! after the calls. A reading says from when to when it counted.

use super::counter::{DeviceCounter, Step, Taken};
use super::switch::Switches;
use crate::queue::window_records::Writer;
use crate::queue::windows;
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_record::counter_plan::{Group, Plan};
use midair_record::event::{CounterWindow, WindowResult, kind, note};
use midair_rotation::permuted;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;
use std::sync::atomic::Ordering::Relaxed;

/// How many nanoseconds the start of a session waits for the devices to start their counters.
const STARTED_WITHIN: u64 = 100_000_000;

/// What a device is doing for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The device does nothing for us.
    Idle,
    /// The counters count, and are to be read at this time.
    Counting(u64),
    /// A step is under way.
    Busy,
    /// Everything is over.
    Ended,
}

/// A device.
#[derive(Debug)]
struct Device {
    node: u32,
    counter: DeviceCounter,
    switches: Option<Switches>,
    /// For each group: its number in the plan.
    groups: Vec<u32>,
    phase: Phase,
    /// The index of the group whose turn it is; `turns` is the number of turns so far.
    group: usize,
    turns: u64,
    /// Since when it counts what was not yet read, on the records' clock.
    since: u64,
    /// The values of the last reading.
    before: Vec<u64>,
    /// How many nanoseconds the steps have cost the device since the last reading.
    cost: u64,
    /// Whether the session is closing, so that no new turn starts.
    is_closing: bool,
    /// Whether recording is paused: then no turn starts, and the current turn ends.
    is_paused: bool,
}

/// The devices of a session.
#[derive(Debug)]
pub struct Sampler {
    devices: Vec<Device>,
    /// The nanoseconds between readings.
    interval: u64,
    /// The percentage of the time that steps may take.
    max_overhead: u64,
    /// Writes readings.
    records: Writer,
    complaints: Vec<String>,
}

impl Sampler {
    /// Asks the runtime, which is open, for queues and memory for the session's plan. Returns
    /// `None` if the plan asks for windows or for nothing.
    pub fn open() -> Option<Sampler> {
        let plan = windows::session_plan().filter(|plan| plan.interval != 0)?;
        let mut sampler = Sampler {
            devices: Vec::new(),
            interval: plan.interval,
            max_overhead: u64::from(plan.max_overhead.clamp(1, 100)),
            records: Writer::new(),
            complaints: Vec::new(),
        };
        for (agent, _) in symbols::agents() {
            if symbols::agent_is_gpu(agent)
                && let Err(why) = sampler.add(agent, &plan)
            {
                let node = symbols::agent_node(agent);
                let text = format!("no counters of the whole device of node {node}: {why}");
                sampler.complaints.push(text);
            }
        }
        // Wait until all devices count, so that everything that is launched after the start of the
        // session is counted.
        for device in &mut sampler.devices {
            device.go_on(now());
        }
        let limit = now() + STARTED_WITHIN;
        for device in &mut sampler.devices {
            if let Some(taken) = device.counter.wait(limit) {
                device.took(&taken, (sampler.interval, sampler.max_overhead));
            }
        }
        let switches = sampler.devices.iter().any(|d| d.switches.is_some());
        STATE.windows.switches.store(switches, Relaxed);
        Some(sampler)
    }

    fn add(&mut self, agent: u64, plan: &Plan) -> Result<(), &'static str> {
        let node = symbols::agent_node(agent);
        let groups: Vec<&Group> = plan.groups.iter().filter(|g| g.node == node).collect();
        if groups.is_empty() {
            return Ok(());
        }
        let enable = groups.iter().map(|group| &group.enable[..]);
        let enable = enable.max_by_key(|words| words.len()).unwrap_or_default();
        let mut disable = enable.to_vec();
        if let Some(last) = disable.last_mut() {
            *last = 0;
        }
        let (counter, further) = DeviceCounter::open(agent, &groups, &[enable, &disable])?;
        let switches = match further[..] {
            [on, off] if !enable.is_empty() => Some(Switches::new(agent, on, off)),
            _ => None,
        };
        self.devices.push(Device {
            node,
            counter,
            switches,
            groups: groups.iter().map(|group| group.number).collect(),
            phase: Phase::Idle,
            group: 0,
            turns: 0,
            since: 0,
            before: Vec::new(),
            cost: 0,
            is_closing: false,
            is_paused: !pause::is_recording_wanted(),
        });
        Ok(())
    }

    /// Does one round. Returns whether anything was written.
    pub fn pass(&mut self, sink: &mut Sink) -> bool {
        for text in self.complaints.drain(..) {
            sink.put(kind::NOTE, &note(&text));
        }
        let before = self.records.written();
        for device in &mut self.devices {
            if let Some(switches) = &mut device.switches {
                switches.follow();
            }
            if let Some(taken) = device.counter.poll() {
                let pace = (self.interval, self.max_overhead);
                if device.took(&taken, pace) {
                    device.write(taken.times, &mut self.records, sink);
                }
            }
            device.is_paused = !pause::is_recording_wanted();
            device.go_on(now());
            if device.phase == Phase::Ended
                && let Some(switches) = &mut device.switches
            {
                switches.end();
            }
        }
        self.records.written() > before
    }

    /// Stops start new turns. Counters that count are read once more.
    pub fn close(&mut self) {
        for device in &mut self.devices {
            device.is_closing = true;
        }
    }

    /// Switches off the queues that are still on. This is the last moment for packets in queues of
    /// the application.
    pub fn restore(&mut self) {
        for device in &mut self.devices {
            if let Some(switches) = &mut device.switches {
                switches.end();
            }
        }
    }

    /// Returns the number of our steps and packets that the device has not reached.
    pub fn under_way(&mut self) -> u64 {
        let of = |device: &mut Device| {
            let steps = match device.phase {
                Phase::Ended => 0,
                _ if device.is_closing => 1,
                Phase::Busy => 1,
                Phase::Counting(due) => usize::from(due <= now()),
                Phase::Idle => 0,
            };
            let is_closing = device.is_closing;
            let switches = device.switches.as_mut().filter(|_| is_closing);
            steps + switches.map_or(0, Switches::under_way)
        };
        self.devices.iter_mut().map(of).sum::<usize>() as u64
    }

    /// Writes a note about what was counted.
    pub fn finish(&mut self, sink: &mut Sink) {
        STATE.windows.switches.store(false, Relaxed);
        let left_out: usize = self
            .devices
            .iter()
            .filter_map(|device| device.switches.as_ref())
            .map(Switches::left_out)
            .sum();
        if left_out > 0 {
            let text = format!(
                "counters of the whole device: SQ and SPI counters miss the kernels of {left_out} queues, into which midair could put no packet"
            );
            sink.put(kind::NOTE, &note(&text));
        }
        let unread = |device: &&Device| !matches!(device.phase, Phase::Ended | Phase::Idle);
        let unread = self.devices.iter().filter(unread).count();
        if unread > 0 {
            let text = format!(
                "counters of the whole device: the last reading of {unread} devices timed out"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }

    /// Gives everything back.
    pub fn release(self, sink: &mut Sink) {
        let mut left = 0;
        for device in self.devices {
            let open = device.switches.map_or(0, Switches::release);
            if !device.counter.close(open > 0) {
                left += 1;
            }
        }
        if left > 0 {
            let text = format!(
                "counters of the whole device: the device has not processed all of midair's packets on {left} agents: their memory stays allocated"
            );
            sink.put(kind::NOTE, &note(&text));
        }
    }
}

impl Device {
    /// Takes the next step if it is time for it.
    fn go_on(&mut self, time: u64) {
        let (step, group) = match self.phase {
            Phase::Idle if self.is_closing => {
                self.phase = Phase::Ended;
                return;
            }
            Phase::Idle if self.is_paused => return,
            Phase::Idle => {
                let count = self.groups.len() as u64;
                let (round, at) = (self.turns / count, self.turns % count);
                self.group = permuted(at as u32, count as u32, round) as usize;
                self.turns += 1;
                (Step::Start, self.group)
            }
            Phase::Counting(due) if self.is_closing || self.is_paused || due <= time => {
                (Step::Read, self.group)
            }
            _ => return,
        };
        self.submit(step, group);
    }

    fn submit(&mut self, step: Step, group: usize) {
        if self.counter.submit(step, group) {
            self.phase = Phase::Busy;
        }
    }

    /// Goes on after a step that the device has taken. Returns whether there is something to write.
    fn took(&mut self, taken: &Taken, (interval, max_overhead): (u64, u64)) -> bool {
        let (begin, end) = taken.times;
        self.cost = self.cost.saturating_add(end.saturating_sub(begin));
        // A reading with a high cost is done less often.
        let due = || {
            let least = self.cost.saturating_mul(100) / max_overhead;
            now().saturating_add(interval.max(least))
        };
        match taken.step {
            Step::Start => {
                self.since = end;
                self.before.clear();
                self.before.resize(self.counter.size(self.group), 0);
                self.phase = Phase::Counting(due());
                false
            }
            Step::Read => {
                let is_over = self.is_closing || self.is_paused || self.groups.len() > 1;
                self.phase = Phase::Counting(due());
                self.cost = 0;
                if is_over {
                    self.submit(Step::Stop, self.group);
                }
                true
            }
            Step::Stop => {
                self.phase = Phase::Idle;
                false
            }
        }
    }

    /// Writes what was counted since the previous reading.
    fn write(&mut self, (begin, end): (u64, u64), records: &mut Writer, sink: &mut Sink) {
        let Some(&group) = self.groups.get(self.group) else {
            return;
        };
        let words: Vec<u64> = self.counter.words(self.group).collect();
        let since = std::mem::replace(&mut self.since, begin);
        let before = std::mem::replace(&mut self.before, words);
        let is_less = self
            .before
            .iter()
            .zip(&before)
            .any(|(now, then)| now < then);
        let result = match (is_less, since != 0 && begin >= since) {
            (true, _) => WindowResult::Disturbed,
            (false, false) => WindowResult::BadTimes,
            (false, true) => WindowResult::Sampled,
        };
        let counted = match result {
            WindowResult::Sampled => self.before.len(),
            _ => 0,
        };
        let record = CounterWindow {
            begin: since,
            start: since,
            end: begin,
            read_end: end,
            node: self.node,
            group,
            result: result as u32,
            ..CounterWindow::default()
        };
        let both = self.before.iter().zip(&before).take(counted);
        records.put(sink, record, both.map(|(now, then)| now - then));
    }
}
