//! The paths of PyTorch's modules (`GPT.layers.3.attn`), read from outside while the process runs.
//!
//! A module keeps those below it in a dictionary, `_modules`, and no reference to the one above. So the
//! paths of a whole model are read at once, from the outermost module of a stack. Each read is bounded, and
//! each value is checked, since the process changes its objects meanwhile: what cannot be read, or makes no
//! sense, has no path.
//!
//! CPython keeps an object's attributes in a dictionary, or in an array of values whose names are in the
//! object's type (source: `pycore_dict.h`, `pycore_object.h` and `dictnotes.txt` of 3.11 to 3.13).

use crate::memory::{Bytes, Limited, Limits};
use crate::python::{find, offsets, text};
use midair_procinfo::module::Modules;
use midair_python::{Known, Offsets};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What may be read for the modules of one model, with about ten reads for a module.
const MODEL: Limits = Limits {
    bytes: 32 << 20,
    reads: 1 << 18,
    time: Duration::from_millis(300),
};
/// The most modules of a model, and the most bytes of a path.
const MOST_MODULES: usize = 1 << 14;
const LONGEST_PATH: usize = 512;
/// The most entries of a dictionary that is followed, and bytes of a class's name.
const MOST_ENTRIES: u64 = 1 << 12;
const LONGEST_CLASS: usize = 128;

/// Offsets in dictionaries, their keys and types: the same in 3.11 to 3.13.
const TYPE: u64 = 8;
const DICT_KEYS: u64 = 32;
const DICT_VALUES: u64 = 40;
const KEYS_INDEX_BYTES: u64 = 9;
const KEYS_KIND: u64 = 10;
const KEYS_ENTRIES: u64 = 24;
const KEYS_INDICES: u64 = 32;
const TYPE_NAME: u64 = 24;
const TYPE_FLAGS: u64 = 168;
/// `DICT_KEYS_GENERAL`: its entries have a hash in front.
const GENERAL: u8 = 0;
/// `Py_TPFLAGS_MANAGED_DICT` and `Py_TPFLAGS_INLINE_VALUES`.
const MANAGED: u64 = 1 << 4;
const INLINE: u64 = 1 << 2;

/// How an object refers to its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The dictionary 24 bytes in front of it, the values 32 bytes.
    V11,
    /// Either 24 bytes in front of it: an odd number is the values' address.
    V12,
    /// The dictionary 24 bytes in front of it, the values behind its header.
    V13,
}

/// A process's Python, as far as modules are concerned.
#[derive(Debug)]
pub struct TorchModules {
    offsets: Offsets,
    version: Version,
    keys_of_type: u64,
}

impl TorchModules {
    /// Returns a reader for the Python of a process; None where its version is not one that is known.
    pub fn of(modules: &Modules) -> Option<TorchModules> {
        let (runtime, hex) = find(modules)?;
        let memory = modules.memory();
        let Known::Yes(offsets) = offsets(memory, runtime, hex) else {
            return None;
        };
        TorchModules::with(offsets, hex?)
    }

    fn with(offsets: Offsets, hex: u64) -> Option<TorchModules> {
        let (version, keys_of_type) = match hex >> 16 & 0xffff {
            0x030b => (Version::V11, 872),
            0x030c => (Version::V12, 880),
            0x030d => (Version::V13, 880),
            _ => return None,
        };
        Some(TorchModules {
            offsets,
            version,
            keys_of_type,
        })
    }

    /// Returns the paths of a module and of those below it, by their addresses. The first one is the name
    /// of its class, and a path goes on with the names that each module has in the one above it.
    pub fn paths(&self, modules: &Modules, root: u64) -> HashMap<u64, String> {
        self.read(&Limited::new(modules.memory(), MODEL), root)
    }

    fn read(&self, memory: &impl Bytes, root: u64) -> HashMap<u64, String> {
        let model = Model {
            of: self,
            memory,
            names: RefCell::default(),
        };
        model.paths(root)
    }
}

/// The modules of a model, while they are read.
struct Model<'m, M> {
    of: &'m TorchModules,
    memory: &'m M,
    /// Names by their addresses: most modules have the same ones.
    names: RefCell<HashMap<u64, Option<String>>>,
}

impl<M: Bytes> Model<'_, M> {
    fn paths(&self, root: u64) -> HashMap<u64, String> {
        let mut paths = HashMap::new();
        let Some(class) = self.class(root) else {
            return paths;
        };
        paths.insert(root, class);
        let mut waiting = VecDeque::from([root]);
        while let Some(module) = waiting.pop_front() {
            let Some(above) = paths.get(&module).cloned() else {
                continue;
            };
            for (name, below) in self.below(module).unwrap_or_default() {
                let path = format!("{above}.{name}");
                // A module that is in two places has the shorter path.
                let is_new = below != 0 && !paths.contains_key(&below);
                if is_new && path.len() <= LONGEST_PATH && paths.len() < MOST_MODULES {
                    paths.insert(below, path);
                    waiting.push_back(below);
                }
            }
        }
        paths
    }

    /// Returns the name of an object's class.
    fn class(&self, object: u64) -> Option<String> {
        let kind = self.memory.word(object.checked_add(TYPE)?)?;
        let name = self.memory.word(kind.checked_add(TYPE_NAME)?)?;
        let name = String::from_utf8(self.memory.text(name, LONGEST_CLASS)?).ok()?;
        let is_name = |letter: char| letter == '_' || letter.is_alphanumeric();
        (!name.is_empty() && name.chars().all(is_name)).then_some(name)
    }

    /// Returns the modules in an object's `_modules`, with their names.
    fn below(&self, object: u64) -> Option<Vec<(String, u64)>> {
        let mut all = Vec::new();
        let modules = self.attribute(object, "_modules")?;
        self.each(modules, |name, value| {
            if let Some(name) = self.name(name) {
                all.push((name, value));
            }
            None::<()>
        });
        Some(all)
    }

    fn name(&self, at: u64) -> Option<String> {
        let mut names = self.names.borrow_mut();
        let name = names
            .entry(at)
            .or_insert_with(|| text(self.memory, at, &self.of.offsets));
        name.clone()
    }

    /// Returns an attribute of an object.
    fn attribute(&self, object: u64, wanted: &str) -> Option<u64> {
        let kind = self.memory.word(object.checked_add(TYPE)?)?;
        let flags = self.memory.word(kind.checked_add(TYPE_FLAGS)?)?;
        if flags & MANAGED == 0 {
            return None;
        }
        let is_wanted = |name: u64, value: u64| {
            let is_it = self.name(name).is_some_and(|name| name == wanted);
            is_it.then_some(value)
        };
        let before = self.memory.word(object.checked_sub(24)?)?;
        let (dict, values) = match self.of.version {
            Version::V11 => (before, self.memory.word(object.checked_sub(32)?)?),
            Version::V12 if before & 1 == 1 => (0, before & !1),
            Version::V12 => (before, 0),
            // Behind the header of the values.
            Version::V13 if flags & INLINE != 0 => (before, object.checked_add(16 + 8)?),
            Version::V13 => (before, 0),
        };
        if dict != 0 {
            return self.each(dict, is_wanted);
        }
        let keys = self.memory.word(kind.checked_add(self.of.keys_of_type)?)?;
        if keys == 0 || values == 0 {
            return None;
        }
        entries(self.memory, keys, Some(values), is_wanted)
    }

    /// Calls `found` with each name and value of a dictionary, in the order of insertion, until it returns
    /// something.
    fn each<T>(&self, dict: u64, found: impl FnMut(u64, u64) -> Option<T>) -> Option<T> {
        let keys = self.memory.word(dict.checked_add(DICT_KEYS)?)?;
        let values = match self.memory.word(dict.checked_add(DICT_VALUES)?)? {
            0 => None,
            // 3.13's values have a header.
            values if self.of.version == Version::V13 => Some(values.checked_add(8)?),
            values => Some(values),
        };
        entries(self.memory, keys, values, found)
    }
}

fn entries<T>(
    memory: &impl Bytes,
    keys: u64,
    values: Option<u64>,
    mut found: impl FnMut(u64, u64) -> Option<T>,
) -> Option<T> {
    let index_bytes = memory.byte(keys.checked_add(KEYS_INDEX_BYTES)?)?;
    let kind = memory.byte(keys.checked_add(KEYS_KIND)?)?;
    let count = memory.word(keys.checked_add(KEYS_ENTRIES)?)?;
    if index_bytes > 32 || count > MOST_ENTRIES {
        return None;
    }
    let first = keys.checked_add(KEYS_INDICES + (1 << index_bytes))?;
    let words = if kind == GENERAL { 3 } else { 2 };
    let size = usize::try_from(8 * words * count).ok()?;
    let table = memory.bytes(first, size)?;
    let values = match values {
        Some(values) => Some(memory.bytes(values, usize::try_from(8 * count).ok()?)?),
        None => None,
    };
    let word = |bytes: &[u8], index: usize| {
        let word = bytes.get(8 * index..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    for (at, entry) in table.chunks_exact(8 * words as usize).enumerate() {
        let (name, value) = (
            word(entry, words as usize - 2),
            word(entry, words as usize - 1),
        );
        let value = values.as_ref().map_or(value, |values| word(values, at));
        if name == 0 || value == 0 {
            continue;
        }
        if let Some(result) = found(name, value) {
            return Some(result);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::Pieces;

    const MODEL: u64 = 0x10_0000;
    const BLOCK: u64 = 0x11_0000;
    const KEYS: u64 = 0x20_0000;

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Keys without a hash in their entries, as a dictionary or a type has them.
    fn keys(memory: &mut Pieces, at: u64, entries: &[u64]) {
        let mut bytes = vec![0; 40];
        bytes[9] = 3;
        bytes[10] = 1;
        bytes[24..32].copy_from_slice(&(entries.len() as u64 / 2).to_le_bytes());
        bytes.extend(words(entries));
        memory.put(at, &bytes);
    }

    fn ascii(memory: &mut Pieces, at: u64, text: &str) {
        let mut bytes = words(&[0, 0, text.len() as u64, 0, 1 << 2 | 1 << 5 | 1 << 6]);
        bytes.extend_from_slice(text.as_bytes());
        memory.put(at, &bytes);
    }

    /// A model of 3.12 with one module, in which it is itself: the attribute `_modules` of the model is in
    /// values, the one of the module in a dictionary.
    fn memory() -> Pieces {
        let mut memory = Pieces::default();
        ascii(&mut memory, 0x30_0000, "_modules");
        ascii(&mut memory, 0x30_1000, "block");
        ascii(&mut memory, 0x30_2000, "model");
        for (class, name, at) in [
            (0x40_0000, "GPT\0", 0x41_0000),
            (0x42_0000, "Block\0", 0x43_0000),
        ] {
            memory.put(at, name.as_bytes());
            memory.put(class + TYPE_NAME, &words(&[at]));
            memory.put(class + TYPE_FLAGS, &words(&[MANAGED]));
            memory.put(class + 880, &words(&[KEYS]));
        }
        keys(&mut memory, KEYS, &[0x30_0000, 0]);
        memory.put(0x50_0000, &words(&[0x60_0000]));
        memory.put(MODEL - 24, &words(&[0x50_0000 | 1, 0, 0, 1, 0x40_0000]));
        memory.put(0x60_0000, &words(&[1, 0, 1, 0, 0x61_0000, 0]));
        keys(&mut memory, 0x61_0000, &[0x30_1000, BLOCK]);
        memory.put(BLOCK - 24, &words(&[0x62_0000, 0, 0, 1, 0x42_0000]));
        memory.put(0x62_0000, &words(&[1, 0, 1, 0, 0x63_0000, 0]));
        keys(&mut memory, 0x63_0000, &[0x30_0000, 0x64_0000]);
        memory.put(0x64_0000, &words(&[1, 0, 2, 0, 0x65_0000, 0]));
        keys(&mut memory, 0x65_0000, &[0x30_2000, MODEL, 0x30_1000, 0]);
        memory
    }

    fn paths(memory: &Pieces) -> HashMap<u64, String> {
        let Known::Yes(offsets) = offsets(memory, 0, Some(0x030c_01f0)) else {
            panic!("it is known");
        };
        let torch = TorchModules::with(offsets, 0x030c_01f0).unwrap();
        torch.read(memory, MODEL)
    }

    #[test]
    fn a_module_within_itself_has_one_path() {
        let wanted = [(MODEL, "GPT"), (BLOCK, "GPT.block")];
        let wanted = wanted.map(|(at, path)| (at, path.to_owned()));
        assert_eq!(paths(&memory()), HashMap::from(wanted));
    }

    #[test]
    fn values_that_make_no_sense_end_the_path() {
        let only_model = HashMap::from([(MODEL, "GPT".to_owned())]);
        // The model's dictionary, its keys, and their number; then its class.
        for (at, value) in [
            (0x60_0000 + DICT_KEYS, 8),
            (0x60_0000 + DICT_KEYS, u64::MAX),
            (0x61_0000 + KEYS_ENTRIES, u64::MAX),
            (0x61_0000 + KEYS_ENTRIES, MOST_ENTRIES + 1),
            (0x61_0000 + 8, 0xff << 8),
            (0x60_0000 + DICT_VALUES, u64::MAX - 7),
            (0x40_0000 + TYPE_FLAGS, 0),
            (0x40_0000 + 880, 0),
            (MODEL - 24, u64::MAX),
        ] {
            let mut memory = memory();
            memory.set(at, value);
            assert_eq!(paths(&memory), only_model, "{at:#x} {value:#x}");
        }
        let mut memory = memory();
        memory.set(MODEL + TYPE, u64::MAX);
        assert_eq!(paths(&memory), HashMap::new());
    }
}
