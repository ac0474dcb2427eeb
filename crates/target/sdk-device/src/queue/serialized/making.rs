//! Makes counters ready for an agent.

use super::prepared::Prepared;
use crate::queue::windows::memory::Memory;
use crate::symbols;
use midair_record::counter_plan::Group;

/// The alignment of commands and outputs, in bytes.
const ALIGNMENT: usize = 256;

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
            .ok_or("the runtime provides no memory for device commands")?;
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
            memory: memory.at,
            start: (start_at, group.start.len() as u32),
            read: (read_at, words.len() as u32),
            output: (output_at, group.output_bytes as usize / 8),
        })
    }
}
