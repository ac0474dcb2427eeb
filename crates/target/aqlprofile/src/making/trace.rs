//! Has the library make the packets of thread traces, and makes a plan from them.
//!
//! The library asks the HSA runtime for the GPU. In the helper its questions are answered by functions
//! of the helper's own (`process/hsa.rs`).

use super::arena::Arena;
use super::library::{Library, Packet, Status, TraceFunctions};
use super::spots::spots;
use crate::traces::{self, Question, Request};
use midair_counters::wire::Answer;
use midair_record::trace_plan::{CONTROL, Engine, Part, Trace};
use std::ffi::{c_int, c_void};

/// The handle of the GPU's agent, by which the library asks for it.
pub const AGENT: u64 = 0x6d69_6461;

/// Two addresses of a trace's memory that differ in all the halves of their forms ([`spots`]).
const ADDRESSES: [u64; 2] = [0x1111_1000_0000, 0x2222_5000_0000];
/// Where commands are made.
const COMMANDS: u64 = 0x3333_1000_0000;
/// The offset of the engines' buffers in the memory.
const BUFFERS: u64 = 1 << 14;
/// The code for answers of the library that are wrong, although it reported no error.
const ODD: u32 = 0xffff_ffff;
/// What the functions return when they fail (`HSA_STATUS_ERROR_OUT_OF_RESOURCES`).
const OUT_OF_RESOURCES: c_int = 0x1008;
/// The bit in an allocation's flags for memory that the host can access.
const HOST: u32 = 2;

/// Numbers of the library's parameters (source: `docs/sources.md#att`).
mod parameter {
    pub const UNIT: u32 = 0;
    pub const ENGINES: u32 = 5;
    pub const SIMDS: u32 = 8;
    pub const OCCUPANCY: u32 = 9;
    pub const BYTES: u32 = 10;
    pub const BYTES_HIGH: u32 = 11;
    pub const COUNTED_UNITS: u32 = 240;
    pub const INTERVAL: u32 = 241;
    pub const COUNTER: u32 = 242;
}

fn parameters(request: &Request) -> Vec<[u32; 2]> {
    let mut all = vec![
        [parameter::UNIT, request.unit],
        [parameter::ENGINES, request.engines as u32],
        [parameter::SIMDS, request.simds],
        [parameter::BYTES, request.bytes as u32],
        [parameter::BYTES_HIGH, (request.bytes >> 32) as u32],
    ];
    if request.waves_only {
        all.push([parameter::OCCUPANCY, 1]);
    }
    if !request.counters.is_empty() {
        all.push([parameter::COUNTED_UNITS, request.units]);
    }
    if let Some(interval) = request.interval {
        all.push([parameter::INTERVAL, interval]);
    }
    let counter =
        |(event, simds): &(u32, u32)| [parameter::COUNTER, event & 0xfff_ffff | simds << 28];
    all.extend(request.counters.iter().map(counter));
    all
}

/// Whether midair can trace threads of a GPU: where waves are written, and how much, is known for gfx9.
pub fn is_traced(gpu: &str) -> bool {
    gpu.starts_with("gfx9")
}

struct Refusal(u32, String);

fn odd(what: impl Into<String>) -> Refusal {
    Refusal(ODD, what.into())
}

fn refused(what: &'static str) -> impl FnOnce(Status) -> Refusal {
    move |Status(code)| Refusal(code, what.to_owned())
}

/// Answers a question with lines.
pub fn trace(library: &Library, question: &Question) -> String {
    match made(library, question) {
        Ok(trace) => traces::answer(&trace),
        Err(Refusal(code, what)) => Answer::Refused { code, what }.to_string(),
    }
}

/// The memory that the library gets.
struct Memory {
    /// The control block.
    control: Arena,
    commands: Arena,
    /// The address of the engines' buffers. There is no memory, since only a device would use it.
    buffers: u64,
    /// How many bytes it asked for.
    bytes: u64,
    /// What it copied last from there: address and bytes.
    copied: Option<(u64, usize)>,
}

unsafe extern "C" fn allocate(
    to: *mut *mut c_void,
    bytes: usize,
    flags: u32,
    data: *mut c_void,
) -> c_int {
    // SAFETY: `data` is the memory that is passed below, which nothing else uses during the call.
    let memory = unsafe { &mut *data.cast::<Memory>() };
    let at: Option<*mut c_void> = if flags & HOST == 0 {
        memory.bytes += bytes as u64;
        Some(std::ptr::without_provenance_mut(memory.buffers as usize))
    } else if memory.control.allocations.is_empty() {
        memory.control.allocate(bytes).map(<*mut u8>::cast)
    } else {
        memory.commands.allocate(bytes).map(<*mut u8>::cast)
    };
    let Some(at) = at else {
        return OUT_OF_RESOURCES;
    };
    // SAFETY: the library's out pointer is valid.
    unsafe { to.write(at) };
    0
}

unsafe extern "C" fn free(_: *mut c_void, _: *mut c_void) {}

unsafe extern "C" fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as in `allocate`.
    let memory = unsafe { &mut *data.cast::<Memory>() };
    let at = from.addr() as u64;
    if at
        .checked_sub(memory.buffers)
        .is_some_and(|at| at < memory.bytes)
    {
        // There is nothing to read. What the library copies to stays as it is.
        memory.copied = Some((at, bytes));
        return 0;
    }
    // SAFETY: the library copies commands into what it was given; anything else is refused.
    match unsafe { memory.commands.write(to.addr() as u64, from, bytes) } {
        true => 0,
        false => OUT_OF_RESOURCES,
    }
}

/// The result of making the packets once.
struct Commands {
    start: Vec<u32>,
    stop: Vec<u32>,
    bytes: u64,
    engines: Vec<Engine>,
}

fn made(library: &Library, question: &Question) -> Result<Trace, Refusal> {
    let name = &question.gpu.name;
    if !is_traced(name) {
        return Err(odd(format!(
            "trace threads of {name} for midair, which knows gfx9"
        )));
    }
    let functions = library
        .traces()
        .ok_or_else(|| odd("trace threads: it has no functions for that"))?;
    let total = question.gpu.engines;
    let parameters = parameters(&question.request);
    let [one, other] = ADDRESSES.map(|at| commands(functions, &parameters, total, at));
    let (one, other) = (one?, other?);
    if one.engines != other.engines || one.bytes != other.bytes {
        return Err(odd("lay the memory out twice in the same way"));
    }
    let memory = BUFFERS + one.bytes;
    let found = |one: &mut Vec<u32>, other: &[u32]| {
        spots((one, ADDRESSES[0]), (other, ADDRESSES[1]), memory)
            .map_err(|word| odd(format!("make commands that can be moved: word {word}")))
    };
    let (mut start, mut stop) = (one.start, one.stop);
    let start_spots = found(&mut start, &other.start)?;
    let stop_spots = found(&mut stop, &other.stop)?;
    let (marker, holes) = marker(functions)?;
    Ok(Trace {
        node: 0,
        memory,
        engines: one.engines,
        start,
        start_spots,
        stop,
        stop_spots,
        marker,
        holes,
    })
}

/// Makes the packets once, for memory at a given address.
fn commands(
    functions: &TraceFunctions,
    parameters: &[[u32; 2]],
    total: u32,
    address: u64,
) -> Result<Commands, Refusal> {
    let arena = |at| Arena::at(at).map_err(|error| odd(format!("get memory at {at:#x}: {error}")));
    let mut memory = Memory {
        control: arena(address)?,
        commands: arena(COMMANDS)?,
        buffers: address + BUFFERS,
        bytes: 0,
        copied: None,
    };
    // The buffers follow the control block in one memory, whatever the arena's size is.
    let control = CONTROL * u64::from(total);
    if control > BUFFERS {
        return Err(odd(format!("trace {total} shader engines for midair")));
    }
    memory.control.limit(BUFFERS as usize);
    let data: *mut c_void = (&raw mut memory).cast();
    // SAFETY: the functions take a `Memory` as `data`, which lives longer than `made`.
    let made = unsafe { functions.create(AGENT, parameters, (allocate, free, copy), data) };
    let made = made.map_err(refused("make packets for a thread trace"))?;
    let words = |packet: &Packet| {
        let (address, count) = packet.commands();
        let words = memory.commands.words(address, count);
        words
            .filter(|words| !words.is_empty())
            .ok_or_else(|| odd("make packets in the memory that it was given"))
    };
    let (start, stop) = (words(&made.packets[0])?, words(&made.packets[1])?);
    // Each engine has written one block of 32 bytes.
    memory.control.fill(address, control as usize, |word| {
        u64::from(word % (CONTROL / 8) == 1)
    });
    let mut engines = Vec::new();
    made.data(|engine, header, bytes| {
        // SAFETY: the memory lives, and the library's call of `copy` has returned.
        let Some((at, copied)) = (unsafe { (*data.cast::<Memory>()).copied.take() }) else {
            return;
        };
        if copied == 32 && bytes == 40 {
            engines.push(Engine {
                number: engine,
                offset: at - address,
                bytes: 0,
                header,
            });
        }
    })
    .map_err(refused("read the data of a trace"))?;
    let end = BUFFERS + memory.bytes;
    let starts: Vec<u64> = engines.iter().map(|engine| engine.offset).collect();
    for (at, engine) in engines.iter_mut().enumerate() {
        let next = starts.get(at + 1).copied().unwrap_or(end);
        engine.bytes = next
            .checked_sub(engine.offset)
            .ok_or_else(|| odd("give each engine a buffer"))?;
    }
    if engines.is_empty() {
        return Err(odd("trace any shader engine"));
    }
    Ok(Commands {
        start,
        stop,
        bytes: memory.bytes,
        engines,
    })
}

/// A code object with values that differ from one another.
const NUMBER: u64 = 0x0123_4567;
const PLACE: u64 = 0x0000_7a1b_2c3d_4e50;
const SIZE: u64 = 0x0000_0061_7283_94a5;

/// Words, and which of them get what.
type Marker = (Vec<u32>, Vec<(u32, Part)>);

/// Makes the commands that tell a trace of a code object, and finds its values in them.
fn marker(functions: &TraceFunctions) -> Result<Marker, Refusal> {
    let arena = Arena::at(COMMANDS).map_err(|error| odd(format!("get memory: {error}")))?;
    let control = Arena::at(ADDRESSES[0]).map_err(|error| odd(format!("get memory: {error}")))?;
    let mut memory = Memory {
        control,
        commands: arena,
        buffers: 0,
        bytes: 0,
        copied: None,
    };
    let data: *mut c_void = (&raw mut memory).cast();
    // SAFETY: as above.
    let made = unsafe { functions.marker((NUMBER, PLACE, SIZE), AGENT, (allocate, free), data) };
    let made = made.map_err(refused("make the packet for a code object"))?;
    let (at, count) = made.packets[0].commands();
    let mut words = memory
        .control
        .words(at, count)
        .ok_or_else(|| odd("make the packet for a code object in its memory"))?;
    let values = [
        (PLACE as u32, Part::AddressLow),
        ((PLACE >> 32) as u32, Part::AddressHigh),
        (SIZE as u32, Part::SizeLow),
        ((SIZE >> 32) as u32, Part::SizeHigh),
    ];
    let mut holes = Vec::new();
    for (value, part) in values {
        let mut found = (0..).zip(&words).filter(|(_, word)| **word == value);
        match (found.next(), found.next()) {
            (Some((word, _)), None) => holes.push((word, part)),
            _ => return Err(odd("tell a trace of a code object's place")),
        }
    }
    let shifted = (NUMBER << 2) as u32;
    let mut found = (0..)
        .zip(&mut words)
        .filter(|(_, word)| **word & !3 == shifted);
    match (found.next(), found.next()) {
        (Some((at, word)), None) => {
            holes.push((at, Part::Number));
            *word &= 3;
        }
        _ => return Err(odd("tell a trace of a code object's number")),
    }
    Ok((words, holes))
}
