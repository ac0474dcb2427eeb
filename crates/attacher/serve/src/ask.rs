//! What a request line asks for. Paths are compared whole, and nothing is decoded: no path or value of
//! ours has a character that would have to be.

use crate::options::Options;
use midair::Format;
use std::time::Duration;

/// The most bytes of a path and its query.
const MOST: usize = 512;
/// The longest look at what a process waits for.
const LONGEST_WHY: Duration = Duration::from_secs(10);
/// How long is recorded or looked at where the request does not say.
const RECORDED: Duration = Duration::from_secs(5);
const LOOKED: Duration = Duration::from_secs(1);
/// The time between two documents of a stream: usual and shortest.
const INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(250);

/// The formats of one file.
const FORMATS: [Format; 8] = [
    Format::Pftrace,
    Format::Html,
    Format::Rocpd,
    Format::Json,
    Format::Kineto,
    Format::Folded,
    Format::Speedscope,
    Format::Pprof,
];
/// The values of `stacks`.
const STACKS: [&str; 4] = ["python", "native", "both", "off"];

/// The labels by which processes are chosen, as profiles have them.
const LABELS: [&str; 5] = ["program", "container", "pod", "job", "rank"];

/// A recording.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// The process, or none for all that may be named.
    pub(crate) pid: Option<u32>,
    /// The labels that they must have.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) time: Duration,
    pub(crate) format: Format,
    pub(crate) stacks: &'static str,
    /// What it may cost the process, in percent.
    pub(crate) overhead: Option<u32>,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ask {
    /// What there is to ask for.
    Index,
    Metrics,
    Processes,
    /// One document, after this time.
    Top {
        pid: u32,
        time: Duration,
    },
    /// A document at each interval, for this time.
    Follow {
        pid: u32,
        time: Duration,
        interval: Duration,
    },
    Why {
        pid: u32,
        time: Duration,
    },
    Record(Record),
}

/// Why nothing is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// There is no such path.
    Path,
    /// The path and its query are too long.
    Long,
    /// Something is wrong with the query.
    Query(String),
}

/// The keys of a query, each at most once.
struct Query<'a>(Vec<(&'a str, &'a str)>);

fn wrong(what: impl Into<String>) -> NotAsked {
    NotAsked::Query(what.into())
}

impl<'a> Query<'a> {
    fn read(text: &'a str, known: &[&str]) -> Result<Query<'a>, NotAsked> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if !known.contains(&key) || !value.bytes().all(is_plain) {
                return Err(wrong(format!("this path knows {}", known.join(", "))));
            }
            if pairs.iter().any(|(other, _)| *other == key) {
                return Err(wrong(format!("{key} is given twice")));
            }
            pairs.push((key, value));
        }
        Ok(Query(pairs))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(other, _)| *other == key);
        found.map(|(_, value)| *value)
    }

    /// Returns a time in seconds, at most `most`.
    fn time(&self, key: &str, usual: Duration, most: Duration) -> Result<Duration, NotAsked> {
        let Some(word) = self.get(key) else {
            return Ok(usual.min(most));
        };
        let is_number = word
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let time = word.parse().ok().filter(|_| is_number);
        let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let fits = time.filter(|time| !time.is_zero() && *time <= most);
        fits.ok_or_else(|| {
            let most = most.as_secs_f64();
            wrong(format!("{key} is not a number of seconds up to {most}"))
        })
    }

    fn one_of<T: Copy>(
        &self,
        key: &str,
        usual: T,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<T, NotAsked> {
        let Some(word) = self.get(key) else {
            return Ok(usual);
        };
        let found = all.iter().find(|it| name(**it) == word).copied();
        found.ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|it| name(*it)).collect();
            wrong(format!("{key} is one of {}", names.join(", ")))
        })
    }
}

/// Returns a process's number as a path or a query has it.
fn pid(word: &str) -> Option<u32> {
    let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|_| is_number)
}

impl Ask {
    /// Reads a path and its query.
    pub(crate) fn read(path: &str, query: &str, options: &Options) -> Result<Ask, NotAsked> {
        if path.len() + query.len() > MOST {
            return Err(NotAsked::Long);
        }
        let none = |ask| Query::read(query, &[]).map(|_| ask);
        match path {
            "/" => return none(Ask::Index),
            "/metrics" => return none(Ask::Metrics),
            "/processes" => return none(Ask::Processes),
            "/debug/pprof/gpu" => {
                let keys = ["pid", "seconds", "stacks", "overhead"];
                let query = Query::read(query, &[&keys[..], &LABELS].concat())?;
                let pid = match query.get("pid") {
                    None => None,
                    Some(word) => Some(pid(word).ok_or_else(|| wrong("pid is no number"))?),
                };
                let format = Format::Pprof;
                return Ask::record(pid, format, "python", &query, options);
            }
            _ => {}
        }
        let mut parts = path.strip_prefix('/').unwrap_or_default().split('/');
        let (of, pid) = (parts.next(), parts.next().and_then(pid));
        let (Some(of), Some(pid), None) = (of, pid, parts.next()) else {
            return Err(NotAsked::Path);
        };
        match of {
            "top" => {
                let query = Query::read(query, &["seconds", "interval", "stream"])?;
                let stream = query.one_of("stream", "0", &["0", "1"], |it| it)? == "1";
                let usual = if stream { options.longest } else { LOOKED };
                let time = query.time("seconds", usual, options.longest)?;
                let interval = query.time("interval", INTERVAL, options.longest)?;
                let interval = interval.max(SHORTEST);
                Ok(match stream {
                    true => Ask::Follow {
                        pid,
                        time,
                        interval,
                    },
                    false => Ask::Top { pid, time },
                })
            }
            "why" => {
                let query = Query::read(query, &["seconds"])?;
                // A look does not end when its client goes.
                let most = options.longest.min(LONGEST_WHY);
                let time = query.time("seconds", LOOKED, most)?;
                Ok(Ask::Why { pid, time })
            }
            "record" => {
                let keys = ["seconds", "format", "stacks", "overhead"];
                let query = Query::read(query, &keys)?;
                let format = query.one_of("format", Format::Pftrace, &FORMATS, Format::name)?;
                Ask::record(Some(pid), format, "off", &query, options)
            }
            _ => Err(NotAsked::Path),
        }
    }

    fn record(
        pid: Option<u32>,
        format: Format,
        stacks: &'static str,
        query: &Query<'_>,
        options: &Options,
    ) -> Result<Ask, NotAsked> {
        let overhead = match query.get("overhead") {
            None => None,
            Some(word) => {
                let number = word.parse().ok().filter(|it| (1..=100).contains(it));
                Some(number.ok_or_else(|| wrong("overhead is a number from 1 to 100"))?)
            }
        };
        let labels = LABELS
            .iter()
            .filter_map(|key| Some((*key, query.get(key)?)));
        let labels: Vec<_> = labels.map(|(key, value)| (key, value.to_owned())).collect();
        if pid.is_some() && !labels.is_empty() {
            return Err(wrong("pid is given, and labels"));
        }
        Ok(Ask::Record(Record {
            pid,
            labels,
            time: query.time("seconds", RECORDED, options.longest)?,
            format,
            stacks: query.one_of("stacks", stacks, &STACKS, |it| it)?,
            overhead,
        }))
    }

    /// Returns what kind of request it is, for counting.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Ask::Index => "index",
            Ask::Metrics => "metrics",
            Ask::Processes => "processes",
            Ask::Top { .. } | Ask::Follow { .. } => "top",
            Ask::Why { .. } => "why",
            Ask::Record(Record {
                format: Format::Pprof,
                ..
            }) => "pprof",
            Ask::Record(_) => "record",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str) -> Result<Ask, NotAsked> {
        let options = Options::parse(&[]).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ask::read(path, query, &options)
    }

    #[test]
    fn what_there_is() {
        let seconds = Duration::from_secs;
        assert_eq!(ask("/metrics"), Ok(Ask::Metrics));
        assert_eq!(
            ask("/why/42?seconds=2"),
            Ok(Ask::Why {
                pid: 42,
                time: seconds(2)
            })
        );
        assert_eq!(
            ask("/top/42?stream=1&interval=0.1"),
            Ok(Ask::Follow {
                pid: 42,
                time: seconds(60),
                interval: SHORTEST
            })
        );
        assert_eq!(
            ask("/debug/pprof/gpu?pid=42&seconds=0.5"),
            Ok(Ask::Record(Record {
                pid: Some(42),
                labels: Vec::new(),
                time: Duration::from_millis(500),
                format: Format::Pprof,
                stacks: "python",
                overhead: None
            }))
        );
        assert_eq!(
            ask("/record/7?format=html&stacks=both&overhead=3"),
            Ok(Ask::Record(Record {
                pid: Some(7),
                labels: Vec::new(),
                time: seconds(5),
                format: Format::Html,
                stacks: "both",
                overhead: Some(3)
            }))
        );
        let chosen = ask("/debug/pprof/gpu?job=77&pod=a-1.b_2");
        let Ok(Ask::Record(Record {
            labels, pid: None, ..
        })) = chosen
        else {
            panic!("{chosen:?}");
        };
        let wanted = [("pod", "a-1.b_2"), ("job", "77")];
        assert!(
            labels
                .iter()
                .map(|(key, value)| (*key, value.as_str()))
                .eq(wanted)
        );
    }

    #[test]
    fn paths_have_no_tricks() {
        for path in [
            "",
            "//metrics",
            "/metrics/",
            "/../metrics",
            "/%6detrics",
            "/top",
            "/top/",
            "/top/self",
            "/top/+4",
            "/top/-4",
            "/top/4/..",
            "/top/4/",
            "/top/4294967296",
            "/record/4/../../etc/passwd",
            "/debug/pprof",
        ] {
            assert_eq!(ask(path), Err(NotAsked::Path), "{path}");
        }
        assert_eq!(ask(&"/x".repeat(300)), Err(NotAsked::Long));
        assert_eq!(
            ask(&format!("/metrics?{}", "a".repeat(600))),
            Err(NotAsked::Long)
        );
    }

    #[test]
    fn queries_mean_one_thing_or_nothing() {
        for target in [
            "/metrics?x",
            "/debug/pprof/gpu?pid=",
            "/debug/pprof/gpu?pid=self",
            "/debug/pprof/gpu?pid=1&job=2",
            "/debug/pprof/gpu?job=1&job=2",
            "/debug/pprof/gpu?job=a/b",
            "/record/1?job=2",
            "/debug/pprof/gpu?pid=1&pid=2",
            "/debug/pprof/gpu?pid=1&seconds=0",
            "/debug/pprof/gpu?pid=1&seconds=61",
            "/debug/pprof/gpu?pid=1&seconds=inf",
            "/debug/pprof/gpu?pid=1&seconds=1e1",
            "/debug/pprof/gpu?pid=1&seconds=-1",
            "/debug/pprof/gpu?pid=1&seconds=%31",
            "/record/1?format=csv",
            "/record/1?format=../x",
            "/record/1?stacks=all",
            "/record/1?overhead=0",
            "/record/1?directory=x",
            "/top/1?stream=2",
        ] {
            assert!(matches!(ask(target), Err(NotAsked::Query(_))), "{target}");
        }
    }
}
