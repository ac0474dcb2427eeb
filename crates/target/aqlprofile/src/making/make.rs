//! Has the library make a group's packets, and makes a template from them.

use super::arena::{self, Arena};
use super::library::{Agent, Event, Library, Made, Status, Value};
use midair_counters::template::{self, Slot, Template};
use midair_counters::wire::{Answer, Question};
use midair_counters::{Dimension, Position};

/// Two addresses that differ in both halves, both in bytes and in units of 256 (see
/// [`template::places`]).
const ADDRESSES: [u64; 2] = [0x1111_1000_0000, 0x2222_5000_0000];

/// The code for answers of the library that are wrong, although it reported no error.
const ODD: u32 = 0xffff_ffff;

struct Refusal(u32, String);

impl Refusal {
    fn odd(what: impl Into<String>) -> Refusal {
        Refusal(ODD, what.into())
    }
}

/// Answers a question.
pub fn template(library: &Library, question: &Question) -> Answer {
    match made(library, question) {
        Ok(template) => Answer::Made(template),
        Err(Refusal(code, what)) => Answer::Refused { code, what },
    }
}

/// The result of making the packets once.
struct Commands {
    start: Vec<u32>,
    read: Vec<u32>,
    stop: Vec<u32>,
    /// The address and size of the memory that is read into.
    output: (u64, usize),
    slots: Vec<Slot>,
}

fn made(library: &Library, question: &Question) -> Result<Template, Refusal> {
    let to = |what: String| move |Status(code)| Refusal(code, what);
    let agent = library
        .describe(&question.gpu)
        .map_err(to(format!("take {} for a GPU", question.gpu.name)))?;
    let mut events = Vec::new();
    // For each of these events: which event of the question it stands for.
    let mut asked = Vec::new();
    for (number, event) in question.events.iter().enumerate() {
        let (block, instances) = library
            .block(agent, &event.block)
            .map_err(to(format!("find the block {}", event.block)))?;
        for instance in 0..instances {
            events.push(Event {
                instance,
                event: event.event,
                flags: event.flags,
                block,
            });
            asked.push(number as u32);
        }
    }
    let events: Vec<(Event, u32)> = events.into_iter().zip(asked).collect();
    let [one, other] = ADDRESSES.map(|address| commands(library, agent, &events, address));
    let (one, other) = (one?, other?);
    if one.start != other.start || one.stop != other.stop {
        return Err(Refusal::odd(
            "make a start and a stop that depend on no address",
        ));
    }
    if one.output.1 != other.output.1 || one.slots != other.slots {
        return Err(Refusal::odd("lay the output out twice in the same way"));
    }
    let bytes = one.output.1 as u64;
    let mut read_stop = one.read;
    let places = template::places(
        (&read_stop, one.output.0),
        (&other.read, other.output.0),
        bytes,
    )
    .map_err(|unknown| Refusal::odd(format!("make commands that can be moved: {unknown}")))?;
    let read_words = read_stop.len() as u32;
    read_stop.extend(one.stop);
    let mut template = Template {
        start: one.start,
        read_stop,
        read_words,
        places,
        output_bytes: bytes,
        slots: one.slots,
    };
    let mut moved = std::mem::take(&mut template.read_stop);
    template.patch(&mut moved, 0);
    template.read_stop = moved;
    Ok(template)
}

/// Makes the packets once, with memory at a given address.
fn commands(
    library: &Library,
    agent: Agent,
    asked: &[(Event, u32)],
    address: u64,
) -> Result<Commands, Refusal> {
    let mut memory = Arena::at(address)
        .map_err(|error| Refusal::odd(format!("get memory at {address:#x}: {error}")))?;
    let events: Vec<Event> = asked.iter().map(|(event, _)| *event).collect();
    let data = (&raw mut memory).cast();
    let functions: (_, _, _) = (
        arena::allocate as super::library::Allocate,
        arena::free as super::library::Free,
        arena::copy as super::library::Copy,
    );
    // SAFETY: the functions take an arena as `data`. The arena lives longer than `made`, which is
    // dropped at the end of this function.
    let made = unsafe { library.create(agent, &events, functions, data) };
    let made = made.map_err(|Status(code)| {
        Refusal(code, format!("make packets for {} events", events.len()))
    })?;
    let words = |packet: &super::library::Packet| {
        let (address, count) = packet.commands();
        let words = memory
            .words(address, count)
            .filter(|words| !words.is_empty());
        words.ok_or_else(|| Refusal::odd("make packets in the memory that it was given"))
    };
    let (start, read, stop) = (
        words(&made.packets.start)?,
        words(&made.packets.read)?,
        words(&made.packets.stop)?,
    );
    // The commands are in one allocation, and the output is the other one.
    let (commands_at, _) = made.packets.start.commands();
    let holds = |(at, bytes): &(u64, usize)| (*at..at + *bytes as u64).contains(&commands_at);
    let outputs: Vec<(u64, usize)> = memory
        .allocations
        .iter()
        .copied()
        .filter(|a| !holds(a))
        .collect();
    let [output] = outputs[..] else {
        return Err(Refusal::odd(format!(
            "take one output, not {}",
            outputs.len()
        )));
    };
    let slots = slots(&made, asked, &mut memory, output)?;
    Ok(Commands {
        start,
        read,
        stop,
        output,
        slots,
    })
}

/// Finds out what each word of the output means: fills the output with numbers of its own words,
/// twice and in different ways, and has the library read it.
fn slots(
    made: &Made<'_>,
    asked: &[(Event, u32)],
    memory: &mut Arena,
    output: (u64, usize),
) -> Result<Vec<Slot>, Refusal> {
    let (address, bytes) = output;
    let words = bytes as u64 / 8;
    let read = |memory: &mut Arena, of: &dyn Fn(u64) -> u64| {
        memory.fill(address, bytes, of);
        made.values()
            .map_err(|Status(code)| Refusal(code, "read its output".into()))
    };
    let other = |word: u64| 7 * (words - word) + 3;
    let first: Vec<Value> = read(memory, &|word| word)?;
    let second: Vec<Value> = read(memory, &other)?;
    if first.len() != second.len() {
        return Err(Refusal::odd("read the same values twice"));
    }
    let mut slots = Vec::with_capacity(first.len());
    for ((event, sample, word), (_, _, again)) in first.into_iter().zip(second) {
        if word >= words || again != other(word) {
            return Err(Refusal::odd("read its output word by word"));
        }
        let same = |(it, _): &&(Event, u32)| (it.block, it.event) == (event.block, event.event);
        let number = asked
            .iter()
            .filter(same)
            .find(|(it, _)| it.flags == event.flags)
            .or_else(|| asked.iter().find(same))
            .ok_or_else(|| Refusal::odd("read only what it was asked for"))?;
        let mut position = Position::default();
        let place = made
            .place(event, sample)
            .map_err(|Status(code)| Refusal(code, "tell where a value was counted".into()))?;
        for (dimension, at) in place {
            let dimension = Dimension::of_library(dimension);
            let at = u32::try_from(at).ok().filter(|at| *at <= Position::MAX);
            let (Some(dimension), Some(at)) = (dimension, at) else {
                return Err(Refusal::odd("use dimensions that are known"));
            };
            position = position.with(dimension, at);
        }
        slots.push(Slot {
            word: word as u32,
            event: number.1,
            position,
        });
    }
    slots.sort_by_key(|slot| slot.word);
    Ok(slots)
}
