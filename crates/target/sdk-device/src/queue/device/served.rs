//! Counters of a device for a tool in the process. They are started, read and stopped when the tool
//! says so, on the thread on which it says so.

use super::counter::{DeviceCounter, Step};
use super::switch::Switches;
use crate::state::STATE;
use midair_record::counter_plan::Group;
use midair_sdk_hot::clock::now;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest time that the device may take for a step.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest time that queues may take to reach the packet that switches them off.
const OFF: Duration = Duration::from_millis(100);

/// Counters that are counting. Only [`Served::stop`] stops them.
#[derive(Debug)]
pub struct Served {
    counter: DeviceCounter,
    switches: Option<Switches>,
}

/// Starts to watch which queues may be switched on ([`super::switch`]). This happens before
/// counters start, so that they count the kernels of existing queues.
pub fn watch() {
    STATE.windows.switches.store(true, Relaxed);
}

fn deadline(limit: Duration) -> u64 {
    now().saturating_add(limit.as_nanos() as u64)
}

impl Served {
    /// Starts a group on the agent with this handle. When this returns, the group counts.
    ///
    /// # Errors
    /// Says what the runtime does not give, or that the device does not answer.
    pub fn start(agent: u64, group: &Group) -> Result<Served, &'static str> {
        let enable = &group.enable[..];
        let mut disable = enable.to_vec();
        if let Some(last) = disable.last_mut() {
            *last = 0;
        }
        let (counter, further) = DeviceCounter::open(agent, &[group], &[enable, &disable])?;
        let switches = match further[..] {
            [on, off] if !enable.is_empty() => Some(Switches::new(agent, on, off)),
            _ => None,
        };
        if switches.is_some() {
            watch();
        }
        let mut served = Served { counter, switches };
        if !served.step(Step::Start) {
            served.stop();
            return Err("the device does not start its counters");
        }
        served.follow();
        Ok(served)
    }

    fn step(&mut self, step: Step) -> bool {
        self.counter.submit(step, 0) && self.counter.wait(deadline(LIMIT)).is_some()
    }

    /// Switches on queues that the application has made since, too.
    pub fn follow(&mut self) {
        if let Some(switches) = &mut self.switches {
            switches.follow();
        }
    }

    /// Returns what was counted since the start, or `None` if the device does not answer.
    pub fn read(&mut self) -> Option<Vec<u64>> {
        self.step(Step::Read)
            .then(|| self.counter.words(0).collect())
    }

    /// Stops counting and gives everything back. Returns false if something had to be left to the
    /// runtime.
    pub fn stop(mut self) -> bool {
        self.step(Step::Stop);
        let mut open = 0;
        if let Some(mut switches) = self.switches {
            switches.end();
            let end = deadline(OFF);
            while switches.under_way() > 0 && now() < end {
                std::thread::sleep(Duration::from_micros(100));
            }
            open = switches.release();
        }
        self.counter.close(open > 0)
    }
}
