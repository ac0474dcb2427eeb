//! Counters that are ready to be counted on an agent: commands and their output in memory that the
//! device reaches.

use super::super::windows::memory::Memory;
use crate::state::STATE;
use crate::symbols;
use midair_record::counter_plan::Group;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Where commands and outputs begin: at multiples of this.
const ALIGNMENT: usize = 256;

/// A group of counters, ready for an agent. There is one output: an agent runs one dispatch at a
/// time, and its values are taken before the next has its turn. Dropping it gives the memory back:
/// dispatches on their way hold it.
#[derive(Debug)]
pub struct Prepared {
    agent: u64,
    node: u32,
    number: u32,
    memory: Option<Memory>,
    /// Address and number of words of the commands that start.
    start: (u64, u32),
    /// The same of those that read and stop.
    read: (u64, u32),
    /// Address and number of 64-bit words of the output.
    output: (u64, usize),
}

impl Prepared {
    /// Makes a group ready for the agent with this handle. Calls the runtime for memory.
    ///
    /// # Errors
    /// When the runtime gives no memory.
    pub fn new(agent: u64, group: &Group) -> Result<Prepared, &'static str> {
        let size = |bytes: usize| bytes.next_multiple_of(ALIGNMENT);
        let (start, read) = (4 * group.start.len(), 4 * group.read_stop.len());
        let bytes = size(start) + size(read) + size(group.output_bytes as usize);
        let memory = Memory::allocate(agent, bytes.next_multiple_of(4096))
            .ok_or("the runtime gives no memory that the device can take commands from")?;
        let start_at = memory.at;
        let read_at = start_at + size(start) as u64;
        let output_at = read_at + size(read) as u64;
        let mut words = group.read_stop.clone();
        group.patch(&mut words, output_at);
        memory.write(start_at, &group.start);
        memory.write(read_at, &words);
        Ok(Prepared {
            agent,
            node: symbols::agent_node(agent),
            number: group.number,
            memory: Some(memory),
            start: (start_at, group.start.len() as u32),
            read: (read_at, words.len() as u32),
            output: (output_at, group.output_bytes as usize / 8),
        })
    }

    /// Handle of its agent.
    pub fn agent(&self) -> u64 {
        self.agent
    }

    /// KFD node of its agent.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// [`Group::number`].
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn start(&self) -> (u64, u32) {
        self.start
    }

    pub(super) fn read(&self) -> (u64, u32) {
        self.read
    }

    /// What the device has written.
    pub(super) fn words(&self) -> Box<[u64]> {
        let (at, count) = self.output;
        let word = |number: usize| {
            let at = std::ptr::with_exposed_provenance::<AtomicU64>(at as usize + 8 * number);
            // SAFETY: an aligned word of the output, in memory that this value keeps.
            unsafe { (*at).load(Relaxed) }
        };
        (0..count).map(word).collect()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // At the end of a process the runtime may be half gone. One that was shut down has taken its
        // memory back itself, and refuses.
        if let Some(memory) = self.memory.take()
            && !STATE.alone.is_over.load(SeqCst)
        {
            memory.free();
        }
    }
}
