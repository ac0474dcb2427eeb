//! Names of the native code that launches work (`--stacks native`).
//!
//! The target's side records places: a module and a linked address. Each module's file is opened as
//! soon as a place in it is recorded, since the process may unload it, or end. Its symbols are read at
//! the end of the session, when nothing waits for this process any more.

use midair_output::{Index, Mapped, demangle_host};
use midair_procinfo::Pid;
use midair_procinfo::maps::Mapping;
use midair_procinfo::module::{Loaded, Module, Modules};
use midair_record::event::{self, Code, Header, kind};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The most bytes of a module's path and of a function's name in a record.
const LONGEST_PATH: usize = 1024;
const LONGEST_NAME: usize = 2800;

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
}

impl CodeNames {
    /// Opens the files of modules that have places on stacks, and were not opened yet.
    pub(crate) fn look(&mut self, pid: Pid, index: &Index) {
        let stacks = &index.stacks;
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

    /// Returns records that name all places that have no name yet.
    pub(crate) fn records(&mut self, index: &Index) -> Vec<u8> {
        let stacks = &index.stacks;
        let mut all: Vec<_> = stacks.native.iter().collect();
        all.retain(|(number, (module, _))| {
            let is_known = *module == 0 || stacks.modules.contains_key(module);
            is_known && self.named.insert(**number)
        });
        all.sort_unstable();
        let mut records = Vec::new();
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
            let (path, name) = (cut(&path, LONGEST_PATH), cut(&name, LONGEST_NAME));
            let code = Code {
                header: Header {
                    size: 0,
                    kind: kind::CODE,
                    flags: 0,
                    operation: *number,
                },
                file_len: path.len() as u32,
                name_len: name.len() as u32,
            };
            records.extend(event::encode(&code, [path, name].concat().as_bytes()));
        }
        records
    }
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
