//! The question for thread traces of a GPU, and its answer, as lines of words.
//!
//! The question is one line: `trace`, the GPU as in a question for counters, the compute unit, the shader
//! engines as a mask, the SIMDs as a mask, the bytes of the buffers, whether only waves are traced, the
//! interval of counters (`-` for none), the units on which they are read as a mask, and the counters
//! (`EVENT:SIMDS`).
//!
//! The answer has lines of `plan` with words in hexadecimal ([`midair_record::trace_plan`]), and ends with
//! `traced`; or it is one line, as an answer about counters.

use midair_counters::wire::{Answer, Gpu, Listener};
use midair_record::trace_plan::{self, Trace};
use std::fmt::{self, Write as _};

/// How many words fit on a line.
const WORDS: usize = 64;
/// The most words of an answer.
const MOST: usize = 1 << 17;
/// The most counters of a trace.
pub const COUNTERS: usize = 8;

/// What is traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The compute unit (0-15) whose waves are traced instruction by instruction.
    pub unit: u32,
    /// The shader engines, one bit each.
    pub engines: u64,
    /// The SIMDs, one bit each.
    pub simds: u32,
    /// Bytes of the buffers of all engines together.
    pub bytes: u64,
    /// Whether only waves are traced, without their instructions.
    pub waves_only: bool,
    /// The interval at which counters are read, in AMD's units.
    pub interval: Option<u32>,
    /// The compute units on which they are read, one bit each.
    pub units: u32,
    /// Counters: events of SQ, and the SIMDs on which they are read.
    pub counters: Vec<(u32, u32)>,
}

/// A question for the packets of thread traces on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The GPU.
    pub gpu: Gpu,
    /// What is traced.
    pub request: Request,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpu, of) = (&self.gpu, &self.request);
        let Gpu {
            name,
            xccs,
            engines,
            units,
            arrays,
            domain,
            location,
        } = gpu;
        write!(
            f,
            "trace {name} {xccs} {engines} {units} {arrays} {domain} {location}"
        )?;
        let waves_only = u8::from(of.waves_only);
        let (unit, mask, simds, bytes) = (of.unit, of.engines, of.simds, of.bytes);
        write!(f, " {unit} {mask} {simds} {bytes} {waves_only} ")?;
        match of.interval {
            Some(interval) => write!(f, "{interval}")?,
            None => f.write_str("-")?,
        }
        write!(f, " {}", of.units)?;
        for (event, simds) in &of.counters {
            write!(f, " {event}:{simds}")?;
        }
        writeln!(f)
    }
}

impl Question {
    /// Reads a line; `None` where it is no question for traces.
    pub fn read(line: &str) -> Option<Question> {
        let mut words = line.strip_prefix("trace ")?.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let gpu = Gpu {
            name,
            xccs: number()?,
            engines: number()?,
            units: number()?,
            arrays: number()?,
            domain: number()?,
            location: number()?,
        };
        let unit = number()?;
        let engines = words.next()?.parse().ok()?;
        let simds = words.next()?.parse().ok()?;
        let bytes = words.next()?.parse().ok()?;
        let waves_only = words.next()? == "1";
        let interval = match words.next()? {
            "-" => None,
            text => Some(text.parse().ok()?),
        };
        let units = words.next()?.parse().ok()?;
        let counter = |text: &str| {
            let (event, simds) = text.split_once(':')?;
            Some((event.parse().ok()?, simds.parse().ok()?))
        };
        let counters: Vec<(u32, u32)> = words.map(counter).collect::<Option<_>>()?;
        (counters.len() <= COUNTERS).then_some(Question {
            gpu,
            request: Request {
                unit,
                engines,
                simds,
                bytes,
                waves_only,
                interval,
                units,
                counters,
            },
        })
    }
}

/// Returns the answer's lines.
pub fn answer(trace: &Trace) -> String {
    let mut text = String::new();
    for words in trace_plan::encode(std::slice::from_ref(trace)).chunks(WORDS) {
        text.push_str("plan");
        for word in words {
            let _ = write!(text, " {word:x}");
        }
        text.push('\n');
    }
    text.push_str("traced\n");
    text
}

/// Reads an answer line by line.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    words: Vec<u32>,
    other: Listener,
}

impl Reader {
    /// Takes a line. Returns the answer when it is complete.
    ///
    /// # Errors
    /// When the line does not belong to an answer: that line.
    pub(crate) fn take(&mut self, line: &str) -> Result<Option<Result<Trace, Answer>>, String> {
        if line == "traced" {
            let traces = trace_plan::decode(&self.words).unwrap_or_default();
            let [trace] = <[Trace; 1]>::try_from(traces).map_err(|_| line.to_owned())?;
            return Ok(Some(Ok(trace)));
        }
        let Some(words) = line.strip_prefix("plan ") else {
            return match self.other.take(line)? {
                Some(Answer::Made(_)) => Err(line.to_owned()),
                answer => Ok(answer.map(Err)),
            };
        };
        for word in words.split_ascii_whitespace() {
            let word = u32::from_str_radix(word, 16).map_err(|_| line.to_owned())?;
            self.words.push(word);
        }
        if self.words.len() > MOST {
            return Err(line.to_owned());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::trace_plan::Engine;

    #[test]
    fn questions_and_answers_survive_their_way() {
        let mut question = Question {
            gpu: Gpu {
                name: "gfx942".into(),
                xccs: 8,
                engines: 32,
                units: 304,
                arrays: 1,
                domain: 2,
                location: 768,
            },
            request: Request {
                unit: 1,
                engines: 1 << 31 | 1,
                simds: 15,
                bytes: 1 << 33,
                waves_only: true,
                interval: Some(3),
                units: u32::MAX,
                counters: vec![(4, 15), (26, 1)],
            },
        };
        for interval in [Some(3), None] {
            question.request.interval = interval;
            let text = question.to_string();
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(Question::read(text.trim_end()), Some(question.clone()));
        }
        assert_eq!(Question::read("trace gfx942 1"), None);
        assert_eq!(Question::read("gpu gfx942 1 8 104 1 0 0"), None);
        let trace = Trace {
            memory: 0x2000,
            engines: vec![Engine {
                number: 1,
                offset: 0x1000,
                bytes: 64,
                header: 5,
            }],
            start: (1..200).collect(),
            stop: vec![2],
            ..Trace::default()
        };
        let mut reader = Reader::default();
        let text = answer(&trace);
        let answers = text.lines().filter_map(|line| reader.take(line).unwrap());
        assert_eq!(answers.collect::<Vec<_>>(), [Ok(trace)]);
        let refused = Answer::Refused {
            code: 0x1000,
            what: "make it".into(),
        };
        let line = refused.to_string();
        let read = Reader::default().take(line.trim_end());
        assert_eq!(read, Ok(Some(Err(refused))));
        for line in ["traced", "made", "plan 1 x", "what"] {
            assert!(Reader::default().take(line).is_err(), "{line}");
        }
    }
}
