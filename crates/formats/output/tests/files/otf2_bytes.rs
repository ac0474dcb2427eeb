//! A small reader of OTF2's files, for tests that need no library. It knows the records that we
//! write by the format's own numbers, and stops at whatever the format does not allow.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The types of values, as `OTF2_Type` numbers them.
fn type_name(number: u8) -> &'static str {
    match number {
        4 => "UINT64",
        10 => "DOUBLE",
        11 => "STRING",
        other => panic!("no type that we write: {other}"),
    }
}

/// The numbers and texts of a record that were not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    /// A number of eight bytes.
    fn full(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    /// A number behind the count of its bytes, or none where all of its bits are set.
    fn number(&mut self) -> Option<u64> {
        let count = match self.byte() {
            255 => return None,
            count => usize::from(count),
        };
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(self.take(count));
        Some(u64::from_le_bytes(bytes))
    }

    fn known(&mut self) -> u64 {
        self.number().unwrap()
    }

    fn text(&mut self) -> String {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap();
        let text = String::from_utf8(self.take(length).to_vec()).unwrap();
        self.byte();
        text
    }

    /// The record whose type was read: what is behind its length.
    fn record(&mut self) -> Rest<'a> {
        let length = match self.byte() {
            255 => self.full() as usize,
            length => usize::from(length),
        };
        Rest(self.take(length))
    }

    fn end(self) {
        assert!(self.0.is_empty(), "more than the record has: {:?}", self.0);
    }
}

/// Returns the chunks of a file: the numbers of their first and last event, and their records.
fn chunks(file: &[u8], size: usize) -> Vec<(u64, u64, &[u8])> {
    let mut chunks = Vec::new();
    for chunk in file.chunks(size) {
        let mut rest = Rest(chunk);
        assert_eq!(rest.take(2), [3, b'B'], "a chunk's head");
        chunks.push((rest.full(), rest.full(), rest.0));
    }
    let last = chunks.last_mut().unwrap();
    last.2 = last.2.strip_suffix(&[2, 1]).unwrap();
    chunks
}

/// The type of a chunk's next record, or none where only zeros are left.
fn next(rest: &mut Rest<'_>) -> Option<u8> {
    match rest.0.first() {
        None => None,
        Some(0) => {
            assert!(rest.0.iter().all(|byte| *byte == 0), "zeros to the end");
            None
        }
        Some(_) => Some(rest.byte()),
    }
}

/// What the anchor file says.
pub struct Anchor {
    pub event_chunk: usize,
    pub definition_chunk: usize,
    pub locations: u64,
    pub definitions: u64,
    pub creator: String,
    pub identity: u64,
}

pub fn anchor(directory: &Path) -> Anchor {
    let file = fs::read(directory.join("r_results.otf2")).unwrap();
    let mut rest = Rest(&file);
    assert_eq!(rest.take(2), [3, b'B'], "little endian");
    assert_eq!(rest.text(), "OTF2");
    // The format's version, the library's, and sizes of chunks.
    assert_eq!(rest.take(5), [3, 2, 3, 0, 2]);
    let (event_chunk, definition_chunk) = (rest.full() as usize, rest.full() as usize);
    // Ordinary files, without compression.
    assert_eq!(rest.take(2), [1, 1]);
    let (locations, definitions) = (rest.full(), rest.full());
    let [machine, creator, description] = [rest.text(), rest.text(), rest.text()];
    assert_eq!([machine.as_str(), &description], ["", ""]);
    assert_eq!(rest.take(4), [0; 4], "no properties");
    let identity = rest.full();
    // No snapshots, no thumbnails, and the end of the file.
    assert_eq!(rest.take(8), [0; 8]);
    assert_eq!(rest.take(3), [2, 1, 0]);
    rest.end();
    Anchor {
        event_chunk,
        definition_chunk,
        locations,
        definitions,
        creator,
        identity,
    }
}

/// What a location's definition says.
pub struct Location {
    pub name: String,
    pub of: &'static str,
    pub events: u64,
    pub group: String,
}

/// The definitions, whose numbers are their places.
#[derive(Default)]
pub struct Definitions {
    pub strings: Vec<String>,
    pub attributes: Vec<(String, &'static str)>,
    pub regions: Vec<String>,
    pub metrics: Vec<String>,
    pub groups: Vec<String>,
    pub locations: Vec<Location>,
    /// The first and the last time.
    pub clock: (u64, u64),
    /// All of them but texts, one on each line, with their names for the numbers.
    pub said: String,
}

impl Definitions {
    fn string(&self, rest: &mut Rest<'_>) -> &str {
        &self.strings[rest.known() as usize]
    }

    /// Reads a number that has to be the next one.
    fn place(rest: &mut Rest<'_>, next: usize) {
        assert_eq!(rest.known(), next as u64);
    }

    fn add(&mut self, kind: u8, rest: &mut Rest<'_>) {
        let mut line = String::new();
        match kind {
            // The clock: ticks of a second, the first time, and how long that was.
            5 => {
                let (ticks, first, length) = (rest.known(), rest.known(), rest.known());
                assert_eq!((ticks, rest.number()), (1_000_000_000, None));
                self.clock = (first, first + length);
                line = format!("clock {first} to {}", first + length);
            }
            10 => {
                Self::place(rest, self.strings.len());
                self.strings.push(rest.text());
            }
            11 => {
                Self::place(rest, self.attributes.len());
                let (name, of) = (self.string(rest).to_owned(), type_name(rest.byte()));
                line = format!("attribute {name} {of}: {}", self.string(rest));
                self.attributes.push((name, of));
            }
            12 => {
                let number = rest.known();
                let (name, class) = (self.string(rest).to_owned(), self.string(rest));
                line = format!("node {number} {class} {name:?}");
                if let Some(parent) = rest.number() {
                    assert!(parent < number);
                    write!(line, " below {parent}").unwrap();
                }
            }
            13 => {
                Self::place(rest, self.groups.len());
                let name = self.string(rest).to_owned();
                let of = ["", "PROCESS", "ACCELERATOR"][usize::from(rest.byte())];
                line = format!("group {of} {name:?} of node {}", rest.known());
                if let Some(creator) = rest.number() {
                    let creator = &self.groups[creator as usize];
                    write!(line, ", created by {creator:?}").unwrap();
                }
                self.groups.push(name);
            }
            14 => {
                let number = rest.known();
                let name = self.string(rest).to_owned();
                let of = ["", "CPU_THREAD", "ACCELERATOR_STREAM", "METRIC"];
                let of = of[usize::from(rest.byte())];
                let (events, group) = (rest.known(), rest.known());
                let group = self.groups[group as usize].clone();
                line = format!("location {number} {of} {name:?} of {group:?}: {events} events");
                assert_eq!(number, self.locations.len() as u64);
                let location = Location {
                    name,
                    of,
                    events,
                    group,
                };
                self.locations.push(location);
            }
            15 => {
                Self::place(rest, self.regions.len());
                let name = self.string(rest).to_owned();
                // No description, no type, no file, and no lines.
                assert_eq!(rest.take(5), [0, 0, 255, 0, 0]);
                let symbol = self.string(rest).to_owned();
                let role = match rest.byte() {
                    1 => "FUNCTION",
                    30 => "DATA_TRANSFER",
                    35 => "ALLOCATE",
                    36 => "DEALLOCATE",
                    other => panic!("no role that we write: {other}"),
                };
                let paradigm = match rest.byte() {
                    1 => "USER",
                    5 => "CUDA",
                    23 => "HIP",
                    other => panic!("no paradigm that we write: {other}"),
                };
                assert_eq!(rest.known(), 0, "no flags");
                line = format!("region {role} {paradigm} {name:?}");
                if symbol != name {
                    write!(line, " of {symbol:?}").unwrap();
                }
                self.regions.push(name);
            }
            19 => {
                Self::place(rest, self.metrics.len());
                let name = self.string(rest).to_owned();
                // No description, another source, absolute and valid to the next time, a real
                // number to the base 10.
                assert_eq!(rest.take(6), [0, 0, 0x31, 10, 1, 0]);
                line = format!("metric {name} in {:?}", self.string(rest));
                self.metrics.push(name);
            }
            20 => {
                // The class of the metric before, alone in it. It is asynchronous, of a GPU.
                Self::place(rest, self.metrics.len() - 1);
                assert_eq!(rest.byte(), 1);
                Self::place(rest, self.metrics.len() - 1);
                assert_eq!(rest.take(2), [2, 3]);
            }
            27 => {
                let node = rest.known();
                let domain = match rest.byte() {
                    0 => "MACHINE",
                    7 => "ACCELERATOR_DEVICE",
                    other => panic!("no domain that we write: {other}"),
                };
                line = format!("node {node} is {domain}");
            }
            28 => {
                let group = &self.groups[rest.known() as usize];
                let (name, old) = (self.string(rest), self.string(rest));
                assert_eq!(type_name(rest.byte()), "STRING");
                let value = self.string(rest);
                assert_eq!(old, value);
                line = format!("property of {group:?}: {name} = {value}");
                // How the recording went is not the archive's matter.
                if name.starts_with("midair.") {
                    line.clear();
                }
            }
            other => panic!("no definition that we write: {other}"),
        }
        if !line.is_empty() {
            writeln!(self.said, "{line}").unwrap();
        }
    }
}

/// Reads the definitions.
pub fn definitions(directory: &Path) -> Definitions {
    let anchor = anchor(directory);
    let file = fs::read(directory.join("r_results.def")).unwrap();
    let mut all = Definitions::default();
    let mut count = 0;
    for (first, last, records) in chunks(&file, anchor.definition_chunk) {
        // Definitions are not counted in the heads of their chunks.
        assert_eq!((first, last), (1, 0));
        let mut rest = Rest(records);
        while let Some(kind) = next(&mut rest) {
            let mut record = rest.record();
            all.add(kind, &mut record);
            record.end();
            count += 1;
        }
    }
    assert_eq!(count, anchor.definitions);
    assert_eq!(all.locations.len() as u64, anchor.locations);
    all
}

/// What happened at a location.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A region was entered, with these attributes.
    Enter(String, Vec<(String, String)>),
    Leave(String),
    Metric(String, f64),
}

/// Returns the times of a location's events, and what they were. Times do not run backwards, and
/// none is outside the clock's.
pub fn events(directory: &Path, all: &Definitions, number: usize) -> Vec<(u64, What)> {
    let size = anchor(directory).event_chunk;
    let parts = directory.join("r_results");
    let own = fs::read(parts.join(format!("{number}.def"))).unwrap();
    assert_eq!(chunks(&own, size), [(1, 0, &[][..])], "no definitions");
    let file = fs::read(parts.join(format!("{number}.evt"))).unwrap();
    let mut events = Vec::new();
    let mut last_time = all.clock.0;
    for (first, last, records) in chunks(&file, size) {
        assert_eq!(first, events.len() as u64 + 1);
        let mut rest = Rest(records);
        // Each chunk starts with a time of its own.
        let mut time = None;
        let mut attributes = Vec::new();
        while let Some(kind) = next(&mut rest) {
            let what = match kind {
                5 => {
                    let now = rest.full();
                    assert!(time != Some(now), "a time that is told already");
                    assert!((last_time..=all.clock.1).contains(&now), "{now}");
                    (time, last_time) = (Some(now), now);
                    continue;
                }
                6 => {
                    let mut list = rest.record();
                    let count = list.known();
                    assert!(count > 0 && attributes.is_empty());
                    for _attribute in 0..count {
                        let (name, of) = &all.attributes[list.known() as usize];
                        assert_eq!(type_name(list.byte()), *of);
                        let value = match *of {
                            "STRING" => all.string(&mut list).to_owned(),
                            "DOUBLE" => format!("{:?}", f64::from_bits(list.full())),
                            _ => list.number().map_or("none".to_owned(), |it| it.to_string()),
                        };
                        attributes.push((name.clone(), value));
                    }
                    list.end();
                    continue;
                }
                12 => {
                    let region = all.regions[rest.known() as usize].clone();
                    What::Enter(region, std::mem::take(&mut attributes))
                }
                13 => What::Leave(all.regions[rest.known() as usize].clone()),
                31 => {
                    let mut record = rest.record();
                    let metric = all.metrics[record.known() as usize].clone();
                    assert_eq!(record.take(2), [1, 10], "one real number");
                    let value = f64::from_bits(record.known());
                    record.end();
                    What::Metric(metric, value)
                }
                other => panic!("no event that we write: {other}"),
            };
            assert!(attributes.is_empty(), "attributes of {what:?}");
            events.push((time.unwrap(), what));
        }
        assert_eq!(last, events.len() as u64);
    }
    assert_eq!(events.len() as u64, all.locations[number].events);
    events
}

/// Returns everything in an archive: definitions, and then the events of each location.
pub fn archive(directory: &Path) -> String {
    let all = definitions(directory);
    let mut said = all.said.clone();
    for (number, location) in all.locations.iter().enumerate() {
        writeln!(said, "\n{}", location.name).unwrap();
        for (time, what) in events(directory, &all, number) {
            match what {
                What::Enter(region, attributes) => {
                    write!(said, "{time} enter {region}").unwrap();
                    for (name, value) in attributes {
                        write!(said, "; {name} {value}").unwrap();
                    }
                    writeln!(said).unwrap();
                }
                What::Leave(region) => writeln!(said, "{time} leave {region}").unwrap(),
                What::Metric(metric, value) => writeln!(said, "{time} {metric} = {value}").unwrap(),
            }
        }
    }
    said
}
