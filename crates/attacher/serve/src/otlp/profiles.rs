//! The GPU's time by kernel and process as profiles of OTLP: one for each process and interval, with the kernels'
//! time and another with their number.

use super::messages::{
    Any, Attribute, Dictionary, Function, Line, Location, Nothing, Profile, Profiles as Request,
    Resource, ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType, attribute, host, scope,
};
use crate::always::{Kernels, Ran};
use midair_failure::plain;
use midair_live::kernel_label;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

/// What was sent so far.
#[derive(Debug)]
pub(super) struct Profiles {
    /// Up to when, ns since 1970.
    until: u64,
    /// The kernels of each process: its number, and its start in clock ticks.
    sent: BTreeMap<(u32, u64), Kernels>,
}

/// The tables of a request.
struct Tables {
    dictionary: Dictionary,
    texts: HashMap<String, i32>,
    stacks: HashMap<String, i32>,
}

impl Tables {
    fn new() -> Tables {
        let dictionary = Dictionary {
            mappings: vec![Nothing {}],
            locations: vec![Location::default()],
            functions: vec![Function::default()],
            links: vec![Nothing {}],
            texts: vec![String::new()],
            attributes: vec![Nothing {}],
            stacks: vec![Stack::default()],
        };
        Tables {
            dictionary,
            texts: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        let text = plain::line(text);
        if let Some(known) = self.texts.get(text.as_ref()) {
            return *known;
        }
        let at = self.dictionary.texts.len() as i32;
        self.dictionary.texts.push(text.clone().into_owned());
        self.texts.insert(text.into_owned(), at);
        at
    }

    /// Returns the stack that is one kernel, by its name in the code object.
    fn stack(&mut self, symbol: &str) -> i32 {
        if let Some(known) = self.stacks.get(symbol) {
            return *known;
        }
        let name = self.text(&kernel_label(symbol));
        let system_name = self.text(symbol);
        // Each table has one entry for each kernel, at the same place.
        let at = self.dictionary.stacks.len() as i32;
        let function = Function { name, system_name };
        self.dictionary.functions.push(function);
        let lines = vec![Line { function: at }];
        self.dictionary.locations.push(Location { lines });
        let locations = vec![at];
        self.dictionary.stacks.push(Stack { locations });
        self.stacks.insert(symbol.to_owned(), at);
        at
    }
}

impl Profiles {
    pub(super) fn new(start: u64) -> Profiles {
        Profiles {
            until: start,
            sent: BTreeMap::new(),
        }
    }

    /// Returns the request with what has run since the last one. None where nothing has.
    pub(super) fn request(&mut self, all: &[Ran], now: u64) -> Option<Vec<u8>> {
        let start = std::mem::replace(&mut self.until, now);
        let before = std::mem::take(&mut self.sent);
        let mut tables = Tables::new();
        let mut resources = Vec::new();
        for ran in all {
            let key = (ran.pid, ran.start_ticks);
            let since = since(&ran.kernels, before.get(&key));
            self.sent.insert(key, ran.kernels.clone());
            if since.is_empty() {
                continue;
            }
            let mut profile = |kind: &str, unit: &str, value: fn(&(u64, u64)) -> u64| {
                let samples = since.iter().map(|(symbol, sum)| Sample {
                    stack: tables.stack(symbol),
                    values: vec![i64::try_from(value(sum)).unwrap_or(i64::MAX)],
                });
                let samples = samples.collect();
                Profile {
                    sample_type: Some(ValueType {
                        kind: tables.text(kind),
                        unit: tables.text(unit),
                    }),
                    samples,
                    start,
                    duration: now.saturating_sub(start),
                    id: id(),
                }
            };
            let profiles = vec![
                profile("gpu_time", "nanoseconds", |(_, ns)| *ns),
                profile("kernels", "count", |(calls, _)| *calls),
            ];
            resources.push(ResourceProfiles {
                resource: Some(Resource {
                    attributes: resource(ran),
                }),
                scopes: vec![ScopeProfiles {
                    scope: Some(scope()),
                    profiles,
                }],
            });
        }
        if resources.is_empty() {
            return None;
        }
        let request = Request {
            resources,
            dictionary: Some(tables.dictionary),
        };
        Some(request.encode_to_vec())
    }
}

/// Returns what has come to `kernels` since they were these.
fn since<'a>(kernels: &'a Kernels, before: Option<&Kernels>) -> Vec<(&'a str, (u64, u64))> {
    let new = kernels.iter().filter_map(|(symbol, (calls, ns))| {
        let before = before.and_then(|it| it.get(symbol)).copied();
        let before = before.unwrap_or_default();
        let calls = calls.saturating_sub(before.0);
        let ns = ns.saturating_sub(before.1);
        (calls > 0).then_some((symbol.as_str(), (calls, ns)))
    });
    new.collect()
}

/// Returns what a process is, by OpenTelemetry's names.
fn resource(ran: &Ran) -> Vec<Attribute> {
    let service = match ran.labels.program.as_str() {
        "" => &ran.name,
        program => program,
    };
    let mut all = vec![
        attribute("service.name", &plain::line(service)),
        Attribute {
            key: "process.pid".to_owned(),
            value: Some(Any {
                text: None,
                number: Some(i64::from(ran.pid)),
            }),
        },
    ];
    all.extend(host());
    let known = [
        ("container.id", &ran.labels.container),
        ("k8s.pod.uid", &ran.labels.pod),
        ("midair.job", &ran.labels.job),
        ("midair.rank", &ran.labels.rank),
    ];
    let known = known.into_iter().filter(|(_, text)| !text.is_empty());
    all.extend(known.map(|(key, text)| attribute(key, text)));
    all
}

/// Returns 16 bytes that no other profile has.
fn id() -> Vec<u8> {
    let part = |number: u64| RandomState::new().hash_one(number).to_le_bytes();
    [part(0), part(1)].concat()
}
