//! The messages between this side and the helper. Questions are lines. Answers are frames: one byte
//! for the type, four for the length, and that many bytes. Both sides come from one build, so there
//! are no versions.

use crate::sets::MetricRequest;
use std::fmt::Write;
use std::io::{self, Read};

/// The most bytes of a frame. A thousand samples of everything that fits into a pass are 200 KB.
const MOST: usize = 16 << 20;
/// Metrics of one question, at most.
pub const MOST_METRICS: usize = 512;

/// What the helper is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Number of the GPU, in the order of their places on the bus.
    pub gpu: u32,
    /// Nanoseconds between samples.
    pub interval: u64,
    /// Milliseconds of a group's turn, where there are several groups.
    pub turn: u64,
    /// Only list the names of CUPTI's metrics.
    pub list: bool,
    /// What to sample.
    pub metrics: Vec<MetricRequest>,
}

impl Question {
    /// Returns the question as lines.
    pub fn text(&self) -> String {
        // Writing to a String cannot fail.
        let mut text = String::new();
        let _ = writeln!(text, "gpu {}", self.gpu);
        let _ = writeln!(text, "interval {}", self.interval);
        let _ = writeln!(text, "turn {}", self.turn);
        for metric in &self.metrics {
            let unit = metric.unit.unwrap_or("-");
            let _ = writeln!(
                text,
                "metric {} {unit} {:e} {}",
                metric.name,
                metric.divisor,
                metric.expressions.join(" ")
            );
        }
        text.push_str(if self.list { "list\n" } else { "go\n" });
        text
    }

    /// Reads a question from lines. Returns `None` where they make no sense.
    pub fn read(lines: impl Iterator<Item = String>) -> Option<Question> {
        let mut question = Question {
            gpu: 0,
            interval: 0,
            turn: 0,
            list: false,
            metrics: Vec::new(),
        };
        for line in lines {
            let mut words = line.split(' ');
            match words.next()? {
                "gpu" => question.gpu = words.next()?.parse().ok()?,
                "interval" => question.interval = words.next()?.parse().ok()?,
                "turn" => question.turn = words.next()?.parse().ok()?,
                "metric" if question.metrics.len() < MOST_METRICS => {
                    question.metrics.push(MetricRequest {
                        name: words.next()?.to_owned(),
                        unit: match words.next()? {
                            "%" => Some("%"),
                            "GB/s" => Some("GB/s"),
                            _ => None,
                        },
                        divisor: words.next()?.parse().ok()?,
                        expressions: words.map(str::to_owned).collect(),
                    })
                }
                "go" => return Some(question),
                "list" => {
                    question.list = true;
                    return Some(question);
                }
                _ => return None,
            }
        }
        None
    }
}

/// A metric that is sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// What CUPTI calls it.
    pub expression: String,
    /// The group that it is counted in.
    pub group: u32,
}

/// Consecutive samples of one group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// The group.
    pub group: u32,
    /// Start and end of each sample, CLOCK_BOOTTIME ns.
    pub times: Vec<(u64, u64)>,
    /// For each sample the values of all the group's metrics, in their order. NaN where a ratio had
    /// nothing to be computed from.
    pub values: Vec<f64>,
}

/// An answer of the helper.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The GPU and CUPTI, as `key value` lines.
    Hello(Vec<(String, String)>),
    /// What is sampled, and what is not, with the reason.
    Metrics(Vec<Metric>, Vec<(String, String)>),
    /// Sampling started.
    Started,
    /// Samples.
    Samples(Samples),
    /// The hardware's buffer was full: what followed is lost until the next turn.
    Overflow,
    /// The names of metrics, where a list was asked for.
    Names(Vec<String>),
    /// The end, with the facts that the helper reports, as `key value` lines.
    End(Vec<(String, String)>),
    /// The helper cannot go on: the function, CUPTI's status (-1: none), and words.
    Refused {
        /// CUPTI's or the driver's function, or what was tried.
        what: String,
        /// Its status.
        status: i32,
        /// More, if there is more.
        words: String,
    },
}

const HELLO: u8 = 1;
const METRICS: u8 = 2;
const STARTED: u8 = 3;
const SAMPLES: u8 = 4;
const OVERFLOW: u8 = 5;
const NAMES: u8 = 6;
const END: u8 = 7;
const REFUSED: u8 = 8;

fn line(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
}

impl Event {
    /// Returns the answer as a frame.
    pub fn bytes(&self) -> Vec<u8> {
        let pairs = |pairs: &[(String, String)]| {
            let lines = pairs
                .iter()
                .map(|(key, value)| format!("{}\t{}\n", line(key), line(value)));
            lines.collect::<String>().into_bytes()
        };
        let (kind, payload) = match self {
            Event::Hello(facts) => (HELLO, pairs(facts)),
            Event::End(facts) => (END, pairs(facts)),
            Event::Metrics(metrics, without) => {
                let mut text = String::new();
                for it in metrics {
                    let _ = writeln!(
                        text,
                        "+\t{}\t{}\t{}\t{}",
                        it.group,
                        line(&it.name),
                        line(&it.unit),
                        line(&it.expression)
                    );
                }
                for (name, why) in without {
                    let _ = writeln!(text, "-\t{}\t{}", line(name), line(why));
                }
                (METRICS, text.into_bytes())
            }
            Event::Started => (STARTED, Vec::new()),
            Event::Overflow => (OVERFLOW, Vec::new()),
            Event::Names(names) => (
                NAMES,
                names
                    .iter()
                    .map(|name| line(name) + "\n")
                    .collect::<String>()
                    .into_bytes(),
            ),
            Event::Refused {
                what,
                status,
                words,
            } => (
                REFUSED,
                format!("{}\t{status}\t{}", line(what), line(words)).into_bytes(),
            ),
            Event::Samples(samples) => {
                let mut bytes =
                    Vec::with_capacity(8 + 16 * samples.times.len() + 8 * samples.values.len());
                bytes.extend(samples.group.to_le_bytes());
                bytes.extend((samples.times.len() as u32).to_le_bytes());
                for (start, end) in &samples.times {
                    bytes.extend(start.to_le_bytes());
                    bytes.extend(end.to_le_bytes());
                }
                for value in &samples.values {
                    bytes.extend(value.to_le_bytes());
                }
                (SAMPLES, bytes)
            }
        };
        let mut frame = vec![kind];
        frame.extend((payload.len() as u32).to_le_bytes());
        frame.extend(payload);
        frame
    }

    /// Returns the next frame, or none at the end.
    ///
    /// # Errors
    /// When what was read is not a frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Event>> {
        let mut head = [0; 5];
        let mut filled = 0;
        while filled < head.len() {
            match from.read(&mut head[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        }
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        let event = Event::of(kind, &payload);
        event
            .map(Some)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn of(kind: u8, payload: &[u8]) -> Option<Event> {
        if kind == SAMPLES {
            return samples(payload).map(Event::Samples);
        }
        let text = std::str::from_utf8(payload).ok()?;
        let pairs = || -> Option<Vec<(String, String)>> {
            let pair = |line: &str| {
                line.split_once('\t')
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
            };
            text.lines().map(pair).collect()
        };
        Some(match kind {
            HELLO => Event::Hello(pairs()?),
            END => Event::End(pairs()?),
            STARTED => Event::Started,
            OVERFLOW => Event::Overflow,
            NAMES => Event::Names(text.lines().map(str::to_owned).collect()),
            METRICS => {
                let (mut metrics, mut without) = (Vec::new(), Vec::new());
                for line in text.lines() {
                    let mut words = line.split('\t').map(str::to_owned);
                    if words.next()? == "-" {
                        without.push((words.next()?, words.next()?));
                        continue;
                    }
                    let group = words.next()?.parse().ok()?;
                    metrics.push(Metric {
                        group,
                        name: words.next()?,
                        unit: words.next()?,
                        expression: words.next()?,
                    });
                }
                Event::Metrics(metrics, without)
            }
            REFUSED => {
                let mut words = text.splitn(3, '\t');
                Event::Refused {
                    what: words.next()?.to_owned(),
                    status: words.next()?.parse().ok()?,
                    words: words.next()?.to_owned(),
                }
            }
            _ => return None,
        })
    }
}

fn samples(payload: &[u8]) -> Option<Samples> {
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            payload.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let (group, count) = (word(0)?, word(4)? as usize);
    let (times, values) = payload.get(8..)?.split_at_checked(count.checked_mul(16)?)?;
    let (times, _) = times.as_chunks::<8>();
    let times: Vec<u64> = times.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (values, rest) = values.as_chunks::<8>();
    let whole = rest.is_empty() && (count == 0 || values.len() % count == 0);
    whole.then(|| Samples {
        group,
        times: times
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect(),
        values: values
            .iter()
            .map(|word| f64::from_le_bytes(*word))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let events = [
            Event::Hello(vec![("name".into(), "an H100\n".into())]),
            Event::Metrics(
                vec![Metric {
                    name: "a".into(),
                    unit: "GB/s".into(),
                    expression: "a__b.sum".into(),
                    group: 1,
                }],
                vec![("c".into(), "it needs 3 passes".into())],
            ),
            Event::Started,
            Event::Samples(Samples {
                group: 1,
                times: vec![(1, 2), (2, 3)],
                values: vec![0.5, 1.0, 2.0, -1.0],
            }),
            Event::Overflow,
            Event::Names(vec!["x".into(), "y".into()]),
            Event::End(Vec::new()),
            Event::Refused {
                what: "cuInit".into(),
                status: -1,
                words: "no driver".into(),
            },
        ];
        let bytes: Vec<u8> = events.iter().flat_map(Event::bytes).collect();
        let mut from = bytes.as_slice();
        for event in &events {
            let got = Event::read(&mut from).unwrap().unwrap();
            if let Event::Hello(facts) = &got {
                assert_eq!(facts[0].1, "an H100 ");
            } else {
                assert_eq!(&got, event);
            }
        }
        assert_eq!(Event::read(&mut from).unwrap(), None);
    }

    #[test]
    fn what_makes_no_sense_is_an_error_and_no_more() {
        for wrong in [
            &[SAMPLES, 4, 0, 0, 0, 1, 0, 0, 0][..],
            &[9, 0, 0, 0, 0],
            &[HELLO, 255, 255, 255, 255],
            &[HELLO, 1],
        ] {
            assert!(Event::read(&mut &*wrong).is_err(), "{wrong:?}");
        }
        let mut many = vec![SAMPLES, 8, 0, 0, 0, 1, 0, 0, 0];
        many.extend(u32::MAX.to_le_bytes());
        assert!(Event::read(&mut many.as_slice()).is_err());
    }

    #[test]
    fn questions_are_the_same_on_both_sides() {
        let question = Question {
            gpu: 3,
            interval: 200_000,
            turn: 100,
            list: false,
            metrics: crate::sets::parse("links,sm__warps_active.avg.per_cycle_active").unwrap(),
        };
        let lines = question.text();
        assert_eq!(
            Question::read(lines.lines().map(str::to_owned)),
            Some(question)
        );
        assert_eq!(Question::read(["gpu x".to_owned()].into_iter()), None);
        assert_eq!(Question::read(["gpu 1".to_owned()].into_iter()), None);
    }
}
