//! The plan of hardware counters, which the attacher passes to the target alongside the spool when
//! counters are wanted. For each agent it has counter groups as words of commands for the packet
//! processor, with the places at which to write the address of the memory that they read into. The
//! target needs to know nothing else about counters.
//!
//! The plan is a sequence of little-endian 32-bit words: [`MAGIC`], [`crate::VERSION`], the
//! percentage of the time that counting may take, the interval's low and high half, whether windows
//! are exclusive, whether kernels of batches are counted one by one, the number of groups, the
//! groups, and thread traces ([`crate::trace_plan`]). A group: KFD node id, number of the group on its agent, bytes of the output, how many
//! words only read, four counts (start, read and stop, enabling, places), and the words and places
//! themselves. A place: word, form, and the offset's low and high half.

use crate::trace_plan::{self, Trace};

/// First word.
const MAGIC: u32 = u32::from_le_bytes(*b"mCNT");
/// The most groups of a plan.
pub const MAX_GROUPS: usize = 1024;
/// The largest plan in bytes: 40 full passes of a device with eight XCCs on each of 16 agents.
pub const MAX_BYTES: usize = 256 << 20;
/// The most bytes of a window's commands, and of its output.
const MAX_WINDOW: u32 = 16 << 20;

/// The most words of [`Group::enable`].
const MAX_ENABLE: usize = 16;

/// How an address is written in the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In bytes.
    Bytes,
    /// In units of 256 bytes.
    Pages,
}

/// Where the commands contain an address of the output: two words, the low half first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The index of the first of these words.
    pub word: u32,
    /// How the address is written.
    pub form: Form,
    /// The offset that is added to the address of the output.
    pub offset: u64,
}

/// A counter group of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// KFD node id of the agent.
    pub node: u32,
    /// Number of the group on this agent, from 0.
    pub number: u32,
    /// The number of bytes that the counters are read into, a multiple of 8.
    pub output_bytes: u32,
    /// Commands that start the counters.
    pub start: Vec<u32>,
    /// Commands that read and stop them, for an output at address 0.
    pub read_stop: Vec<u32>,
    /// How many of these words only read: after them the counters go on counting.
    pub read_words: u32,
    /// Commands that make the counters of shader engines count the kernels of the queue that
    /// executes these commands. With 0 as their last word they disable this. Empty: there are no
    /// such commands.
    pub enable: Vec<u32>,
    /// The places of the output's address in `read_stop`.
    pub places: Vec<Place>,
}

impl Group {
    /// Writes an output's address into a copy of [`Group::read_stop`]. The address must be a
    /// multiple of 256.
    pub fn patch(&self, commands: &mut [u32], output: u64) {
        for place in &self.places {
            let address = output.wrapping_add(place.offset);
            let value = match place.form {
                Form::Bytes => address,
                Form::Pages => address >> 8,
            };
            let at = place.word as usize;
            if let Some([low, high]) = commands.get_mut(at..at + 2) {
                (*low, *high) = (value as u32, (value >> 32) as u32);
            }
        }
    }

    /// Whether all sizes are within bounds and all places within the commands.
    fn is_sound(&self) -> bool {
        let words = self.start.len().max(self.read_stop.len());
        self.output_bytes <= MAX_WINDOW
            && self.output_bytes.is_multiple_of(8)
            && words <= MAX_WINDOW as usize / 4
            && self.read_words as usize <= self.read_stop.len()
            && self.enable.len() <= MAX_ENABLE
            && self
                .places
                .iter()
                .all(|place| (place.word as usize) < self.read_stop.len().saturating_sub(1))
    }
}

/// What is to be counted, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The percentage of the elapsed time that windows may take; 100 = no limit.
    pub max_overhead: u32,
    /// How often the counters of the whole device are read, in nanoseconds; 0 = they are counted in
    /// windows around dispatches.
    pub interval: u64,
    /// Whether a window is opened only when nothing else runs on the agent. Other dispatches then
    /// wait for it briefly.
    pub exclusive: bool,
    /// Whether kernels that are launched several at once, as in HIP's graphs, are counted one by
    /// one. Their launch may then wait up to 50 ms.
    pub graph_kernels: bool,
    /// The groups; an agent's groups are in the order of their numbers.
    pub groups: Vec<Group>,
    /// Thread traces. A plan has either groups or these.
    pub traces: Vec<Trace>,
}

/// Writes a plan.
pub fn encode(plan: &Plan) -> Vec<u8> {
    let count = plan.groups.len() as u32;
    let interval = [plan.interval as u32, (plan.interval >> 32) as u32];
    let mut words = vec![MAGIC, crate::VERSION, plan.max_overhead];
    words.extend(interval);
    words.extend([
        u32::from(plan.exclusive),
        u32::from(plan.graph_kernels),
        count,
    ]);
    for group in &plan.groups {
        words.extend([
            group.node,
            group.number,
            group.output_bytes,
            group.read_words,
            group.start.len() as u32,
            group.read_stop.len() as u32,
            group.enable.len() as u32,
            group.places.len() as u32,
        ]);
        words.extend(&group.start);
        words.extend(&group.read_stop);
        words.extend(&group.enable);
        for place in &group.places {
            words.extend([
                place.word,
                u32::from(place.form == Form::Pages),
                place.offset as u32,
                (place.offset >> 32) as u32,
            ]);
        }
    }
    words.extend(trace_plan::encode(&plan.traces));
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Reads a plan; `None` when the bytes are not a plan of this version, or when it is not sound.
pub fn decode(bytes: &[u8]) -> Option<Plan> {
    if bytes.len() > MAX_BYTES {
        return None;
    }
    let mut rest = Words(bytes);
    let (magic, version) = (rest.one()?, rest.one()?);
    let max_overhead = rest.one()?;
    let interval = rest.long()?;
    let mut switch = || match rest.one()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let (exclusive, graph_kernels) = (switch()?, switch()?);
    let count = rest.one()?;
    if magic != MAGIC || version != crate::VERSION || count as usize > MAX_GROUPS {
        return None;
    }
    let mut groups = Vec::new();
    for _ in 0..count {
        let mut group = Group {
            node: rest.one()?,
            number: rest.one()?,
            output_bytes: rest.one()?,
            read_words: rest.one()?,
            ..Group::default()
        };
        let (start, read_stop) = (rest.one()?, rest.one()?);
        let (enable, places) = (rest.one()?, rest.one()?);
        group.start = rest.many(start)?;
        group.read_stop = rest.many(read_stop)?;
        group.enable = rest.many(enable)?;
        for _ in 0..places {
            group.places.push(Place {
                word: rest.one()?,
                form: match rest.one()? {
                    0 => Form::Bytes,
                    1 => Form::Pages,
                    _ => return None,
                },
                offset: rest.long()?,
            });
        }
        if !group.is_sound() {
            return None;
        }
        groups.push(group);
    }
    let left = u32::try_from(rest.0.len() / 4).ok()?;
    let traces = trace_plan::decode(&rest.many(left)?)?;
    rest.0.is_empty().then_some(Plan {
        max_overhead,
        interval,
        exclusive,
        graph_kernels,
        groups,
        traces,
    })
}

/// The remaining words.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn one(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    /// Two words, the low half first.
    fn long(&mut self) -> Option<u64> {
        let (long, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*long))
    }

    fn many(&mut self, count: u32) -> Option<Vec<u32>> {
        let (taken, rest) = self.0.split_at_checked((count as usize).checked_mul(4)?)?;
        self.0 = rest;
        let (words, _) = taken.as_chunks();
        Some(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            max_overhead: 2,
            interval: 5 << 32 | 7,
            exclusive: true,
            graph_kernels: true,
            groups: groups(),
            traces: Vec::new(),
        }
    }

    fn groups() -> Vec<Group> {
        let place = |word, form, offset| Place { word, form, offset };
        vec![
            Group {
                node: 1,
                number: 0,
                output_bytes: 64,
                start: vec![1, 2, 3],
                read_stop: vec![7; 9],
                read_words: 6,
                enable: vec![1, 2, 1],
                places: vec![place(0, Form::Bytes, 8), place(7, Form::Pages, 1 << 33)],
            },
            Group {
                node: 2,
                number: 4,
                ..Group::default()
            },
        ]
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        assert_eq!(decode(&encode(&plan())), Some(plan()));
        let none = Plan::default();
        assert_eq!(decode(&encode(&none)), Some(none));
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        let bytes = encode(&plan());
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(decode(&longer), None);
        for (word, value) in [
            (0, 1),
            (1, 1),
            (5, 2),
            (6, 2),
            (7, 2000),
            (10, 60),
            (11, 10),
            (12, u32::MAX),
            (13, u32::MAX),
            (14, 17),
            (15, u32::MAX),
        ] {
            let mut wrong = bytes.clone();
            wrong[4 * word..4 * word + 4].copy_from_slice(&u32::to_le_bytes(value));
            assert_eq!(decode(&wrong), None, "word {word}");
        }
        // The second word of this place is outside the commands, which must contain both.
        let mut outside = plan();
        outside.groups[0].places[1].word = 8;
        assert_eq!(decode(&encode(&outside)), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes two minutes, and all of it is safe code")]
    fn a_plan_has_up_to_1024_groups() {
        let with = |count: usize| Plan {
            groups: vec![Group::default(); count],
            ..Plan::default()
        };
        assert_eq!(decode(&encode(&with(1024))), Some(with(1024)));
        assert_eq!(decode(&encode(&with(1025))), None);
    }

    #[test]
    fn a_group_is_sound_up_to_its_bounds() {
        let zeros = |count: usize| vec![0; count];
        let most = || Group {
            output_bytes: MAX_WINDOW,
            enable: zeros(MAX_ENABLE),
            read_stop: zeros(9),
            read_words: 9,
            places: vec![Place {
                word: 7,
                form: Form::Bytes,
                offset: u64::MAX,
            }],
            ..Group::default()
        };
        assert!(most().is_sound());
        // 16 MiB of commands.
        for (words, sound) in [(4 << 20, true), ((4 << 20) + 1, false)] {
            let start = zeros(words);
            assert_eq!(Group { start, ..most() }.is_sound(), sound, "{words}");
            let read_stop = zeros(words);
            assert_eq!(
                Group {
                    read_stop,
                    ..most()
                }
                .is_sound(),
                sound,
                "{words}"
            );
        }
        type Change = fn(&mut Group);
        for (what, change) in [
            ("output", (|it| it.output_bytes += 8) as Change),
            ("part of a word", |it| it.output_bytes -= 4),
            ("enable", |it| it.enable.push(0)),
            ("read", |it| it.read_words += 1),
            ("place", |it| it.places[0].word += 1),
            ("no commands", |it| it.read_stop.clear()),
        ] {
            let mut group = most();
            change(&mut group);
            assert!(!group.is_sound(), "{what}");
        }
    }

    #[test]
    fn addresses_are_written_into_a_copy() {
        let group = &groups()[0];
        let mut commands = group.read_stop.clone();
        group.patch(&mut commands, 0x1234_5678_9a00);
        assert_eq!(commands[..2], [0x5678_9a08, 0x1234]);
        assert_eq!(commands[2..7], [7; 5]);
        assert_eq!(commands[7..], [0x3656_789a, 0x12]);
    }
}
