//! What the target needs for thread traces of one GPU: the commands that start and stop a trace, and where
//! the shader engines write. The target knows no registers: it gets words, and the places at which to
//! write addresses.
//!
//! A trace's memory starts with the control block, [`CONTROL`] bytes for each shader engine, in which
//! the stop leaves the registers. Behind it is a buffer for each engine that is traced.
//!
//! Encoded, it is a sequence of little-endian 32-bit words.

/// First word.
const MAGIC: u32 = u32::from_le_bytes(*b"mATT");
/// Bytes of the control block for an engine.
pub const CONTROL: u64 = 32;
/// The most shader engines of a GPU, in all its XCCs.
pub const MAX_ENGINES: usize = 256;
/// The most words of a list of commands. A command that skips has 14 bits for their number.
pub const MAX_WORDS: usize = 1 << 13;
/// The most places in a list of commands.
const MAX_SPOTS: usize = 1 << 12;
/// The most bytes of memory, of all GPUs together.
pub const MAX_MEMORY: u64 = 1 << 38;
/// The most GPUs.
const MAX_TRACES: u32 = 256;

/// A word of the commands to which an address is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Its index.
    pub word: u32,
    /// By how many bits the address is shifted to the right; the low 32 bits of the result are added.
    pub shift: u32,
    /// The offset in the memory.
    pub offset: u64,
}

/// A shader engine that is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine {
    /// Its number among all engines of the GPU.
    pub number: u32,
    /// The offset of its buffer in the memory.
    pub offset: u64,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// The eight bytes that AMD's library writes before its data.
    pub header: u64,
}

/// What a word of [`Trace::marker`] gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// The low half of the code object's address.
    AddressLow = 0,
    /// Its high half.
    AddressHigh = 1,
    /// The low half of its size.
    SizeLow = 2,
    /// Its high half.
    SizeHigh = 3,
    /// Its number, shifted by two bits, is added.
    Number = 4,
}

impl Part {
    /// All parts, by number.
    pub const ALL: [Part; 5] = [
        Part::AddressLow,
        Part::AddressHigh,
        Part::SizeLow,
        Part::SizeHigh,
        Part::Number,
    ];
}

/// The traces of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// KFD node id of the agent.
    pub node: u32,
    /// Bytes of a trace's memory.
    pub memory: u64,
    /// The engines that are traced.
    pub engines: Vec<Engine>,
    /// Commands that start a trace, for memory at address 0.
    pub start: Vec<u32>,
    /// Where addresses are in them.
    pub start_spots: Vec<Spot>,
    /// Commands that stop it.
    pub stop: Vec<u32>,
    /// Where addresses are in them.
    pub stop_spots: Vec<Spot>,
    /// Commands that tell a trace of a code object.
    pub marker: Vec<u32>,
    /// Which of their words get what.
    pub holes: Vec<(u32, Part)>,
}

/// Adds the memory's address to commands.
fn patched(words: &[u32], spots: &[Spot], memory: u64) -> Vec<u32> {
    let mut words = words.to_vec();
    for spot in spots {
        let value = memory.wrapping_add(spot.offset) >> spot.shift;
        if let Some(word) = words.get_mut(spot.word as usize) {
            *word = word.wrapping_add(value as u32);
        }
    }
    words
}

impl Trace {
    /// Returns the commands that start a trace in memory at this address.
    pub fn start_at(&self, memory: u64) -> Vec<u32> {
        patched(&self.start, &self.start_spots, memory)
    }

    /// Returns the commands that stop it.
    pub fn stop_at(&self, memory: u64) -> Vec<u32> {
        patched(&self.stop, &self.stop_spots, memory)
    }

    /// Returns the commands that tell a trace of a code object: its number, address and size.
    pub fn marker_of(&self, number: u64, address: u64, size: u64) -> Vec<u32> {
        let mut words = self.marker.clone();
        for (word, part) in &self.holes {
            if let Some(word) = words.get_mut(*word as usize) {
                *word = match part {
                    Part::AddressLow => address as u32,
                    Part::AddressHigh => (address >> 32) as u32,
                    Part::SizeLow => size as u32,
                    Part::SizeHigh => (size >> 32) as u32,
                    Part::Number => word.wrapping_add((number << 2) as u32),
                };
            }
        }
        words
    }

    /// Whether all of it is inside its bounds.
    fn is_sound(&self) -> bool {
        let fits = |words: &[u32], spots: &[Spot]| {
            let is_inside = |spot: &Spot| {
                (spot.word as usize) < words.len()
                    && spot.shift < u64::BITS
                    && spot.offset <= self.memory
            };
            (1..=MAX_WORDS).contains(&words.len())
                && spots.len() <= MAX_SPOTS
                && spots.iter().all(is_inside)
        };
        let is_inside = |engine: &Engine| {
            let control = CONTROL * (u64::from(engine.number) + 1);
            let end = engine.offset.checked_add(engine.bytes);
            engine.offset >= control
                && engine.offset.is_multiple_of(8)
                && end.is_some_and(|end| end <= self.memory)
        };
        (1..=MAX_ENGINES).contains(&self.engines.len())
            && self.engines.iter().all(is_inside)
            && self
                .engines
                .iter()
                .all(|e| (e.number as usize) < MAX_ENGINES)
            && fits(&self.start, &self.start_spots)
            && fits(&self.stop, &self.stop_spots)
            && self.marker.len() <= MAX_WORDS
            && self
                .holes
                .iter()
                .all(|(word, _)| (*word as usize) < self.marker.len())
    }
}

/// Writes traces, of one GPU each.
pub fn encode(traces: &[Trace]) -> Vec<u32> {
    let mut all = vec![MAGIC, crate::VERSION, traces.len() as u32];
    let long = |value: u64| [value as u32, (value >> 32) as u32];
    for trace in traces {
        all.push(trace.node);
        all.extend(long(trace.memory));
        all.push(trace.engines.len() as u32);
        for engine in &trace.engines {
            all.push(engine.number);
            for value in [engine.offset, engine.bytes, engine.header] {
                all.extend(long(value));
            }
        }
        for (words, spots) in [
            (&trace.start, &trace.start_spots),
            (&trace.stop, &trace.stop_spots),
        ] {
            all.extend([words.len() as u32, spots.len() as u32]);
            all.extend(words);
            for spot in spots {
                all.extend([spot.word, spot.shift]);
                all.extend(long(spot.offset));
            }
        }
        all.extend([trace.marker.len() as u32, trace.holes.len() as u32]);
        all.extend(&trace.marker);
        all.extend(
            trace
                .holes
                .iter()
                .flat_map(|(word, part)| [*word, *part as u32]),
        );
    }
    all
}

/// Reads traces; `None` where the words are none of this version, or not sound.
pub fn decode(words: &[u32]) -> Option<Vec<Trace>> {
    let mut rest = Rest(words);
    if rest.one()? != MAGIC || rest.one()? != crate::VERSION {
        return None;
    }
    let count = rest.one().filter(|count| *count <= MAX_TRACES)?;
    let traces: Vec<Trace> = (0..count)
        .map(|_| rest.trace().filter(Trace::is_sound))
        .collect::<Option<_>>()?;
    is_small(&traces)
        .then_some(traces)
        .filter(|_| rest.0.is_empty())
}

/// Whether traces take no more than [`MAX_MEMORY`] together.
pub fn is_small(traces: &[Trace]) -> bool {
    let add = |sum: u64, trace: &Trace| sum.checked_add(trace.memory);
    traces
        .iter()
        .try_fold(0, add)
        .is_some_and(|sum| sum <= MAX_MEMORY)
}

struct Rest<'a>(&'a [u32]);

impl Rest<'_> {
    fn one(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*word)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.one()?) | u64::from(self.one()?) << 32)
    }

    fn many(&mut self, count: u32) -> Option<Vec<u32>> {
        let (taken, rest) = self.0.split_at_checked(count as usize)?;
        self.0 = rest;
        Some(taken.to_vec())
    }

    fn commands(&mut self) -> Option<(Vec<u32>, Vec<Spot>)> {
        let (words, spots) = (self.one()?, self.one()?);
        let words = self.many(words)?;
        let spot = |_| {
            Some(Spot {
                word: self.one()?,
                shift: self.one()?,
                offset: self.long()?,
            })
        };
        Some((words, (0..spots).map(spot).collect::<Option<_>>()?))
    }

    fn trace(&mut self) -> Option<Trace> {
        let (node, memory, engines) = (self.one()?, self.long()?, self.one()?);
        let engine = |_| {
            Some(Engine {
                number: self.one()?,
                offset: self.long()?,
                bytes: self.long()?,
                header: self.long()?,
            })
        };
        let engines = (0..engines).map(engine).collect::<Option<_>>()?;
        let (start, start_spots) = self.commands()?;
        let (stop, stop_spots) = self.commands()?;
        let (marker, holes) = (self.one()?, self.one()?);
        let marker = self.many(marker)?;
        let hole = |_| {
            let (word, part) = (self.one()?, self.one()?);
            Some((word, *Part::ALL.get(part as usize)?))
        };
        Some(Trace {
            node,
            memory,
            engines,
            start,
            start_spots,
            stop,
            stop_spots,
            marker,
            holes: (0..holes).map(hole).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let spot = |word, shift, offset| Spot {
            word,
            shift,
            offset,
        };
        Trace {
            node: 3,
            memory: 0x3000,
            engines: vec![
                Engine {
                    number: 0,
                    offset: 0x1000,
                    bytes: 0x1000,
                    header: 7,
                },
                Engine {
                    number: 5,
                    offset: 0x2000,
                    bytes: 0x1000,
                    header: 8 << 40,
                },
            ],
            start: vec![1, 0, 0x10],
            start_spots: vec![spot(1, 12, 0x2000), spot(2, 44, 0x2000)],
            stop: vec![0, 0],
            stop_spots: vec![spot(0, 0, 0x20), spot(1, 32, 0x20)],
            marker: vec![9, 0, 0, 0, 0, 1],
            holes: (1..).zip(Part::ALL).collect(),
        }
    }

    #[test]
    fn traces_are_read_as_they_were_written() {
        let other = Trace {
            node: 4,
            marker: Vec::new(),
            holes: Vec::new(),
            ..trace()
        };
        for traces in [vec![], vec![trace()], vec![trace(), other]] {
            let words = encode(&traces);
            assert_eq!(decode(&words), Some(traces));
            for length in 0..words.len() {
                assert_eq!(decode(&words[..length]), None, "{length}");
            }
            let longer = [&words[..], &[0]].concat();
            assert_eq!(decode(&longer), None);
        }
    }

    #[test]
    fn what_is_outside_the_memory_or_the_commands_is_refused() {
        type Change = fn(&mut Trace);
        let changes: [Change; 9] = [
            |it| it.engines[1].bytes += 8,
            |it| it.engines[0].offset = 0,
            |it| it.engines[0].bytes = u64::MAX,
            |it| it.engines.clear(),
            |it| it.start_spots[0].word = 3,
            |it| it.stop_spots[0].shift = 64,
            |it| it.stop.clear(),
            |it| it.holes[0].0 = 6,
            |it| it.start = vec![0; MAX_WORDS + 1],
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut it = trace();
            change(&mut it);
            assert_eq!(decode(&encode(&[it])), None, "{number}");
        }
    }

    #[test]
    fn the_memory_of_all_gpus_together_is_bounded() {
        let of = |memory| Trace { memory, ..trace() };
        let half = MAX_MEMORY / 2;
        assert!(decode(&encode(&[of(half), of(half)])).is_some());
        for memory in [half + 1, u64::MAX] {
            assert_eq!(decode(&encode(&[of(half), of(memory)])), None, "{memory}");
        }
    }

    #[test]
    fn addresses_and_code_objects_are_written_into_copies() {
        let it = trace();
        assert_eq!(it.start_at(0x2111_1234_5000), [1, 0x1111_2347, 0x12]);
        assert_eq!(it.stop_at(0x7_ffff_fff0), [0x10, 8]);
        let marker = it.marker_of(6, 0x1_0000_0002, 0x3_0000_0004);
        assert_eq!(marker, [9, 2, 1, 4, 3, 25]);
    }
}
