//! Names of the native code that launches work (`--stacks native`).
//!
//! The target's side records places: a module and a linked address. Each module's file is opened as
//! soon as a place in it is recorded, since the process may unload it, or end. Its symbols are read at
//! the end of the session, when nothing waits for this process any more.
//!
//! Calls of PyTorch's modules have the modules' addresses. Their paths are read from the process's memory
//! as soon as a stack has one, since the process may end, or free the modules.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use midair_output::{Index, Mapped, Stacks, demangle_host};
use midair_procinfo::Pid;
use midair_procinfo::maps::Mapping;
use midair_procinfo::module::{Loaded, Module, Modules};
use midair_record::event::{self, Code, Header, IS_MODULE, kind};
use midair_why::TorchModules;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The most bytes of a module's path and of a function's name in a record.
const LONGEST_PATH: usize = 1024;
const LONGEST_NAME: usize = 2800;

/// How often the modules below one are read: a model may get further ones.
const MOST_TRIES: u32 = 4;

/// How long modules of a session are read. Records wait meanwhile.
const MOST_READING: Duration = Duration::from_secs(2);

/// The most files that are open at a time. A process launches work from few of its modules.
const MOST_FILES: usize = 256;

/// The files of modules with places on stacks.
#[derive(Debug, Default)]
pub struct CodeNames {
    modules: Option<Modules>,
    /// By the numbers of modules. None where the file cannot be opened.
    files: HashMap<u32, Option<Arc<Loaded>>>,
    /// How many places and modules were looked at.
    seen: (usize, usize),
    /// Places that have a name.
    named: HashSet<u32>,
    /// The reader of PyTorch's modules; None within if there is none for this Python.
    torch: Option<Option<TorchModules>>,
    /// The paths of modules, by their addresses.
    paths: HashMap<u64, String>,
    /// How often the modules below one were read.
    roots: HashMap<u64, u32>,
    /// How long that took.
    reading: Duration,
    /// How many objects and stacks were looked at.
    seen_objects: (usize, usize),
    /// The thread that reads symbols while the session continues; None within if it cannot start.
    reader: Option<Option<SymbolReader>>,
}

/// A place without a name.
#[derive(Debug)]
struct Place {
    number: u32,
    /// The linked address.
    address: u64,
    file: Option<Arc<Loaded>>,
    /// The module's path, and the name of the place without its symbol.
    path: String,
    name: String,
}

impl Place {
    /// Returns the record that names it.
    fn named(&self) -> Vec<u8> {
        let symbol = self.file.as_ref().and_then(|file| {
            let names = file.names_at(self.address.wrapping_add(file.bias));
            names.into_iter().next()
        });
        let name = symbol.map_or_else(|| self.name.clone(), |symbol| demangle_host(&symbol));
        named(self.number, (&self.path, &name), 0)
    }
}

/// A thread that reads symbols, so that the records of a process do not wait meanwhile.
#[derive(Debug)]
struct SymbolReader {
    places: Sender<Vec<Place>>,
    records: Receiver<Vec<u8>>,
}

impl SymbolReader {
    /// Starts the thread. It ends when this value is dropped.
    fn start() -> Option<SymbolReader> {
        let (places, asked) = channel::<Vec<Place>>();
        let (answers, records) = channel();
        let read = move || {
            for places in asked {
                let all: Vec<Vec<u8>> = places.iter().map(Place::named).collect();
                if answers.send(all.concat()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("midair-symbols".to_owned());
        thread.spawn(read).ok()?;
        Some(SymbolReader { places, records })
    }
}

impl CodeNames {
    /// Opens the files of modules that have places on stacks, and were not opened yet.
    pub fn look(&mut self, pid: Pid, index: &Index) {
        let stacks = &index.stacks;
        self.look_for_modules(pid, stacks);
        let now = (stacks.native.len(), stacks.modules.len());
        if now == self.seen {
            return;
        }
        self.seen = now;
        for (number, _) in stacks.native.values() {
            if self.files.contains_key(number) || self.files.len() >= MOST_FILES {
                continue;
            }
            // A module's description may come after a place in it.
            if let Some(mapped) = stacks.modules.get(number) {
                let file = self.open(pid, mapped);
                self.files.insert(*number, file);
            }
        }
    }

    fn open(&mut self, pid: Pid, mapped: &Mapped) -> Option<Arc<Loaded>> {
        let module = module_of(mapped);
        if self.modules.is_none() {
            self.modules = Modules::of(pid).ok();
        }
        let listed = |modules: &Modules| modules.load(modules.position_of(&module)?).ok();
        if let Some(found) = listed(self.modules.as_ref()?) {
            return Some(found);
        }
        if let Ok(Some(newer)) = self.modules.as_ref()?.again() {
            self.modules = Some(newer);
        }
        let modules = self.modules.as_ref()?;
        let gone = || modules.load_gone(&module, mapped.module.bias).ok();
        listed(modules).or_else(|| gone().map(Arc::new))
    }

    /// Reads the paths of PyTorch's modules that are on stacks and have none yet.
    fn look_for_modules(&mut self, pid: Pid, stacks: &Stacks) {
        let now = (stacks.objects.len(), stacks.different());
        let is_late = self.reading >= MOST_READING;
        if stacks.objects.is_empty() || now == self.seen_objects || is_late {
            return;
        }
        self.seen_objects = now;
        let started = Instant::now();
        if self.modules.is_none() {
            self.modules = Modules::of(pid).ok();
        }
        let Some(modules) = &self.modules else {
            return;
        };
        let torch = self.torch.get_or_insert_with(|| TorchModules::of(modules));
        let Some(torch) = torch else {
            return;
        };
        for (_, functions) in stacks.described() {
            // From the outermost module on: its model has the paths of the others.
            let objects = functions.rev().filter_map(|it| stacks.objects.get(&it));
            let objects: Vec<u64> = objects.copied().collect();
            for (at, object) in objects.iter().enumerate() {
                for root in objects.iter().take(at + 1) {
                    let tries = self.roots.entry(*root).or_default();
                    if self.paths.contains_key(object) || *tries >= MOST_TRIES {
                        continue;
                    }
                    *tries += 1;
                    for (module, path) in torch.paths(modules, *root) {
                        self.paths.entry(module).or_insert(path);
                    }
                }
            }
            if self.reading + started.elapsed() >= MOST_READING {
                break;
            }
        }
        self.reading += started.elapsed();
    }

    /// Returns records that name PyTorch's modules.
    fn module_records(&mut self, stacks: &Stacks) -> Vec<u8> {
        let mut all: Vec<_> = stacks.objects.iter().collect();
        all.retain(|(number, object)| {
            self.paths.contains_key(object) && self.named.insert(**number)
        });
        all.sort_unstable();
        let mut records = Vec::new();
        for (number, object) in all {
            let file = stacks.function(*number).map_or("", |it| it.file.as_str());
            let path = self.paths.get(object).map_or("", String::as_str);
            records.extend(named(*number, (file, path), IS_MODULE));
        }
        records
    }

    /// Returns the places that have no name yet.
    fn nameless(&mut self, stacks: &Stacks) -> Vec<Place> {
        let mut all: Vec<_> = stacks.native.iter().collect();
        all.retain(|(number, (module, _))| {
            let is_known = *module == 0 || stacks.modules.contains_key(module);
            is_known && self.named.insert(**number)
        });
        all.sort_unstable();
        let place = |(number, place): (&u32, &(u32, u64))| {
            let mapped = stacks.modules.get(&place.0);
            Place {
                number: *number,
                address: place.1,
                file: self.files.get(&place.0).cloned().flatten(),
                path: mapped.map_or_else(String::new, Mapped::name),
                name: stacks.place(*place),
            }
        };
        all.into_iter().map(place).collect()
    }

    /// Returns records that name all places that have no name yet.
    pub fn records(&mut self, index: &Index) -> Vec<u8> {
        let mut records = self.module_records(&index.stacks);
        for place in self.nameless(&index.stacks) {
            records.extend(place.named());
        }
        records
    }

    /// Does the same while the session continues: symbols are read in a thread, and their names come with a
    /// later call.
    pub fn records_so_far(&mut self, index: &Index) -> Vec<u8> {
        let mut records = self.module_records(&index.stacks);
        let places = self.nameless(&index.stacks);
        if self.reader.is_none() && places.is_empty() {
            return records;
        }
        let reader = self.reader.get_or_insert_with(SymbolReader::start);
        if let Some(reader) = reader {
            if !places.is_empty() {
                // A thread that is gone names nothing more.
                let _ = reader.places.send(places);
            }
            reader
                .records
                .try_iter()
                .for_each(|more| records.extend(more));
        }
        records
    }
}

/// Returns the record of a function with these flags.
fn named(number: u32, (file, name): (&str, &str), flags: u8) -> Vec<u8> {
    let (file, name) = (cut(file, LONGEST_PATH), cut(name, LONGEST_NAME));
    let code = Code {
        header: Header {
            size: 0,
            kind: kind::CODE,
            flags,
            operation: number,
        },
        file_len: file.len() as u32,
        name_len: name.len() as u32,
    };
    event::encode(&code, [file, name].concat().as_bytes())
}

/// Returns the start of a text of at most this many bytes.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// Returns a module as it is in a list of mappings, with the first of its parts.
fn module_of(mapped: &Mapped) -> Module {
    let module = &mapped.module;
    let device = ((module.device >> 32) as u32, module.device as u32);
    let (path, deleted) = match mapped.path.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (&mapped.path[..], false),
    };
    let first = Mapping {
        start: module.base,
        end: module.base.saturating_add(1),
        read: true,
        write: false,
        execute: false,
        shared: false,
        offset: 0,
        device,
        inode: module.inode,
        path: path.to_vec(),
        deleted,
    };
    Module {
        path: path.to_vec(),
        deleted,
        identity: (device, module.inode),
        base: module.base,
        parts: vec![first],
    }
}
