//! Names of the native code that launches work (`--stacks native`).
//!
//! The target's side records places: a module and a linked address. Each module's file is opened as
//! soon as a place in it is recorded, since the process may unload it, or end. Its symbols are read at
//! the end of the session, when nothing waits for this process any more.
//!
//! Calls of PyTorch's modules have the modules' addresses. Their paths are read from the process's memory
//! as soon as a stack has one, since the process may end, or free the modules.

use midair_output::{Index, Mapped, Stacks, demangle_host};
use midair_procinfo::Pid;
use midair_procinfo::maps::Mapping;
use midair_procinfo::module::{Loaded, Module, Modules};
use midair_record::event::{self, Code, Header, IS_MODULE, kind};
use midair_why::TorchModules;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
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
pub(crate) struct CodeNames {
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
}

impl CodeNames {
    /// Opens the files of modules that have places on stacks, and were not opened yet.
    pub(crate) fn look(&mut self, pid: Pid, index: &Index) {
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

    /// Returns records that name all places that have no name yet.
    pub(crate) fn records(&mut self, index: &Index) -> Vec<u8> {
        let stacks = &index.stacks;
        let mut all: Vec<_> = stacks.native.iter().collect();
        all.retain(|(number, (module, _))| {
            let is_known = *module == 0 || stacks.modules.contains_key(module);
            is_known && self.named.insert(**number)
        });
        all.sort_unstable();
        let mut records = self.module_records(stacks);
        for (number, &(module, address)) in all {
            let file = self.files.get(&module).and_then(Option::as_ref);
            let symbol = file.and_then(|file| {
                let names = file.names_at(address.wrapping_add(file.bias));
                names.into_iter().next()
            });
            let name = match symbol {
                Some(symbol) => demangle_host(&symbol),
                None => stacks.place((module, address)),
            };
            let mapped = stacks.modules.get(&module);
            let path = mapped.map_or_else(String::new, Mapped::name);
            records.extend(named(*number, (&path, &name), 0));
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
