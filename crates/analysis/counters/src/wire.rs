//! Questions and answers between the attacher and the process that has loaded AMD's library, as
//! lines of words.
//!
//! | line | words |
//! |---|---|
//! | `gpu` | name, XCCs, engines, units, arrays, PCI domain, PCI location |
//! | `event` | block, event, flags: one for each event of the group |
//! | `make` | end of a question |
//! | `output` | bytes |
//! | `start`, `read` | words of the commands, in hexadecimal, on as many lines as it takes |
//! | `place` | `bytes` or `pages`, word, offset |
//! | `slot` | word, event, position in hexadecimal |
//! | `made` | end of an answer |
//! | `missing` | why the library could not be loaded; also the end of an answer |
//! | `refused` | the library's code in hexadecimal, and the request; also the end of an answer |
//! | `outside` | why the root of the target could not be entered; also the end of an answer |

use crate::dimension::Position;
use crate::template::{Form, Place, Slot, Template};
use std::fmt::{self, Write};

/// A question for a group's packets for a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// The GPU.
    pub gpu: Gpu,
    /// The group's events. AMD's library orders them itself; [`Slot::event`] is an index into this
    /// list.
    pub events: Vec<RawEvent>,
}

/// The description of a GPU that AMD's packet library needs. Totals cover all XCCs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpu {
    /// "gfx942".
    pub name: String,
    /// Accelerator complex dies.
    pub xccs: u32,
    /// Shader engines.
    pub engines: u32,
    /// Compute units.
    pub units: u32,
    /// Shader arrays of an engine.
    pub arrays: u32,
    /// PCI domain.
    pub domain: u32,
    /// PCI bus, device and function.
    pub location: u32,
}

/// An event in the library's terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawEvent {
    /// Name of its block.
    pub block: String,
    /// Its number in the block.
    pub event: u32,
    /// How it is summed up; see [`crate::Accumulate`].
    pub flags: u32,
}

/// The answer of the process with AMD's library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The packets.
    Made(Template),
    /// The library could not be loaded.
    Missing(String),
    /// The library returned an error.
    Refused {
        /// Its status.
        code: u32,
        /// What it was asked to do.
        what: String,
    },
    /// The process that should load the library in the root of a target could not enter it: why.
    Outside(String),
}

/// The most words of the commands that start, and of those that read and stop; the most bytes of the
/// memory that they read into. A full pass of a device with eight XCCs takes 300 KB.
const MOST_WORDS: usize = 4 << 20;
const MOST_OUTPUT: u64 = 16 << 20;

/// How many words of the commands fit on a line.
const WORDS: usize = 64;

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gpu {
            name,
            xccs,
            engines,
            units,
            arrays,
            domain,
            location,
        } = &self.gpu;
        writeln!(
            f,
            "gpu {name} {xccs} {engines} {units} {arrays} {domain} {location}"
        )?;
        for RawEvent {
            block,
            event,
            flags,
        } in &self.events
        {
            writeln!(f, "event {block} {event} {flags}")?;
        }
        writeln!(f, "make")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let template = match self {
            Answer::Made(template) => template,
            Answer::Missing(why) => return writeln!(f, "missing {why}"),
            Answer::Outside(why) => return writeln!(f, "outside {why}"),
            Answer::Refused { code, what } => return writeln!(f, "refused {code:x} {what}"),
        };
        writeln!(f, "output {}", template.output_bytes)?;
        writeln!(f, "reads {}", template.read_words)?;
        for (name, words) in [("start", &template.start), ("read", &template.read_stop)] {
            for line in words.chunks(WORDS) {
                let mut text = String::with_capacity(9 * WORDS);
                for word in line {
                    write!(text, " {word:x}")?;
                }
                writeln!(f, "{name}{text}")?;
            }
        }
        for Place { word, offset, form } in &template.places {
            let form = match form {
                Form::Bytes => "bytes",
                Form::Pages => "pages",
            };
            writeln!(f, "place {form} {word} {offset}")?;
        }
        for Slot {
            word,
            event,
            position,
        } in &template.slots
        {
            writeln!(f, "slot {word} {event} {:x}", position.0)?;
        }
        writeln!(f, "made")
    }
}

/// The words of a line after its first.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn text(&mut self) -> Option<String> {
        self.0.next().map(str::to_owned)
    }
    /// Returns all words that are left.
    fn rest(&mut self) -> String {
        self.0.by_ref().collect::<Vec<_>>().join(" ")
    }
    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }
    fn hex(&mut self) -> Option<u64> {
        u64::from_str_radix(self.0.next()?, 16).ok()
    }
}

fn split(line: &str) -> (&str, Words<'_>) {
    let mut words = line.split_ascii_whitespace();
    (words.next().unwrap_or_default(), Words(words))
}

impl Question {
    /// Takes a line. Returns true when the question is complete.
    ///
    /// # Errors
    /// When the line does not belong to a question: that line.
    pub fn take(&mut self, line: &str) -> Result<bool, String> {
        let (name, mut words) = split(line);
        let mut take = || match name {
            "gpu" => {
                self.gpu = Gpu {
                    name: words.text()?,
                    xccs: words.number()?,
                    engines: words.number()?,
                    units: words.number()?,
                    arrays: words.number()?,
                    domain: words.number()?,
                    location: words.number()?,
                };
                Some(false)
            }
            "event" => {
                self.events.push(RawEvent {
                    block: words.text()?,
                    event: words.number()?,
                    flags: words.number()?,
                });
                Some(false)
            }
            "make" => Some(true),
            _ => None,
        };
        take().ok_or_else(|| line.to_owned())
    }
}

/// Reads an answer line by line.
#[derive(Debug, Default)]
pub struct Listener(Template);

impl Listener {
    /// Takes a line. Returns the answer when it is complete.
    ///
    /// # Errors
    /// When the line does not belong to an answer, or when a template refers to something outside
    /// itself.
    pub fn take(&mut self, line: &str) -> Result<Option<Answer>, String> {
        let (name, mut words) = split(line);
        let template = &mut self.0;
        let mut take = || {
            match name {
                "output" => {
                    template.output_bytes = words.number().filter(|bytes| *bytes <= MOST_OUTPUT)?;
                }
                "reads" => template.read_words = words.number()?,
                "start" | "read" => {
                    let commands = if name == "start" {
                        &mut template.start
                    } else {
                        &mut template.read_stop
                    };
                    for word in words.0.by_ref() {
                        commands.push(u32::from_str_radix(word, 16).ok()?);
                    }
                    if commands.len() > MOST_WORDS {
                        return None;
                    }
                }
                "place" => {
                    let form = match words.0.next()? {
                        "bytes" => Form::Bytes,
                        "pages" => Form::Pages,
                        _ => return None,
                    };
                    template.places.push(Place {
                        form,
                        word: words.number()?,
                        offset: words.number()?,
                    });
                }
                "slot" => template.slots.push(Slot {
                    word: words.number()?,
                    event: words.number()?,
                    position: Position(words.hex()?),
                }),
                "made" => return Some(Some(Answer::Made(std::mem::take(template)))),
                "missing" => return Some(Some(Answer::Missing(words.rest()))),
                "outside" => return Some(Some(Answer::Outside(words.rest()))),
                "refused" => {
                    return Some(Some(Answer::Refused {
                        code: u32::try_from(words.hex()?).ok()?,
                        what: words.rest(),
                    }));
                }
                _ => return None,
            }
            Some(None)
        };
        match take().ok_or_else(|| line.to_owned())? {
            Some(Answer::Made(template)) if !is_sound(&template) => {
                Err("a template that names what it does not have".into())
            }
            answer => Ok(answer),
        }
    }
}

/// Whether everything that a template refers to is inside it.
fn is_sound(template: &Template) -> bool {
    let words = template.read_stop.len() as u64;
    let places = template.places.iter();
    let slots = template.slots.iter();
    !template.start.is_empty()
        && words > 0
        && u64::from(template.read_words) <= words
        && places.clone().all(|p| u64::from(p.word) + 2 <= words)
        && places.clone().all(|p| p.offset <= template.output_bytes)
        && slots
            .clone()
            .all(|s| (u64::from(s.word) + 1) * 8 <= template.output_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Template {
        Template {
            start: (0..200).collect(),
            read_stop: vec![0xffff_ffff; 65],
            read_words: 60,
            places: vec![
                Place {
                    word: 3,
                    offset: 8,
                    form: Form::Bytes,
                },
                Place {
                    word: 60,
                    offset: 0,
                    form: Form::Pages,
                },
            ],
            output_bytes: 16,
            slots: vec![Slot {
                word: 1,
                event: 2,
                position: Position(5 << 12),
            }],
        }
    }

    fn heard(text: &str) -> Result<Option<Answer>, String> {
        let mut listener = Listener::default();
        let mut last = None;
        for line in text.lines() {
            assert_eq!(last, None, "nothing follows an answer");
            last = listener.take(line)?;
        }
        Ok(last)
    }

    #[test]
    fn questions_and_answers_survive_their_way() {
        let question = Question {
            gpu: Gpu {
                name: "gfx942".into(),
                xccs: 8,
                engines: 32,
                units: 304,
                arrays: 1,
                domain: 2,
                location: 768,
            },
            events: vec![
                RawEvent {
                    block: "SQ".into(),
                    event: 4,
                    flags: 0,
                },
                RawEvent {
                    block: "SQ".into(),
                    event: 5,
                    flags: 2,
                },
            ],
        };
        let mut asked = Question::default();
        let ends: Vec<bool> = question
            .to_string()
            .lines()
            .map(|line| asked.take(line).unwrap())
            .collect();
        assert_eq!((asked, ends), (question, vec![false, false, false, true]));
        let made = Answer::Made(template());
        assert_eq!(heard(&made.to_string()), Ok(Some(made)));
        let refused = Answer::Refused {
            code: 0x1000,
            what: "make the packets".into(),
        };
        assert_eq!(heard(&refused.to_string()), Ok(Some(refused)));
        let missing = Answer::Missing("no such file".into());
        assert_eq!(heard(&missing.to_string()), Ok(Some(missing)));
        let outside = Answer::Outside("not permitted".into());
        assert_eq!(heard(&outside.to_string()), Ok(Some(outside)));
    }

    /// A library of a target's root may answer anything.
    #[test]
    fn an_answer_without_end_is_refused() {
        let line = format!("read{}", " 1".repeat(1 << 16));
        let mut listener = Listener::default();
        let taken = (0..=64).filter(|_| listener.take(&line).is_ok()).count();
        assert_eq!(taken, 64);
        assert!(heard("output 16777217\n").is_err() && heard("output 16777216\n").is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "what",
            "start xyz",
            "place else 1 2",
            "slot 1",
            "output -1",
            "refused",
        ] {
            assert!(heard(&format!("{text}\n")).is_err(), "{text}");
            assert!(Question::default().take(text).is_err(), "{text}");
        }
        // The template refers to something outside itself.
        let answer = |change: fn(&mut Template)| {
            let mut template = template();
            change(&mut template);
            heard(&Answer::Made(template).to_string())
        };
        assert!(answer(|_| {}).is_ok());
        assert!(answer(|t| t.places[0].word = 64).is_err());
        assert!(answer(|t| t.places[0].offset = 17).is_err());
        assert!(answer(|t| t.slots[0].word = 2).is_err());
        assert!(answer(|t| t.start.clear()).is_err());
        assert!(answer(|t| t.slots[0].word = u32::MAX).is_err());
    }
}
