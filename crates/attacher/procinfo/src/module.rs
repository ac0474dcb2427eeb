//! Files mapped into a process as programs or libraries.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use midair_ptrace::{Memory, RemoteAddr};

use crate::elf::{ElfFile, Symbols};
use crate::files::{self, Place, Rules};
use crate::maps::{self, Mapping};
use crate::{Allowance, Tid, show};

/// A mapped file of which at least one part is executable.
#[derive(Debug, Clone)]
pub struct Module {
    /// The path as the kernel prints it, seen from the target.
    pub path: Vec<u8>,
    /// Whether the file's name was removed after it was mapped.
    pub deleted: bool,
    /// The device and inode number of the file.
    pub identity: ((u32, u32), u64),
    /// First address of its first mapping.
    pub base: u64,
    /// Its mappings, by address.
    pub parts: Vec<Mapping>,
}

impl Module {
    /// Whether `address` lies in one of its mappings.
    pub fn holds(&self, address: u64) -> bool {
        self.parts.iter().any(|part| part.holds(address))
    }
    /// Last component of the path.
    pub fn file_name(&self) -> &[u8] {
        self.path
            .rsplit(|&byte| byte == b'/')
            .next()
            .unwrap_or(&self.path)
    }
    /// Returns the Build-ID that the target's memory holds, if its note lies in the first page.
    /// Reads no file.
    pub fn build_id(&self, memory: &Memory) -> Option<Vec<u8>> {
        let mut page = vec![0; 4096];
        let n = memory
            .read_some(RemoteAddr::new(self.base), &mut page)
            .ok()?;
        build_id_in(&page[..n])
    }
}

/// Finds the Build-ID note of an ELF image of which `bytes` is the start.
fn build_id_in(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.get(..4)? != b"\x7fELF" {
        return None;
    }
    // A note is: name size (4), description size, type (3), "GNU\0", description (source: the ELF
    // gABI, binutils' --build-id).
    let at = bytes.windows(16).position(|note| {
        note[..4] == [4, 0, 0, 0] && note[5..8] == [0, 0, 0] && note[8..] == *b"\x03\0\0\0GNU\0"
    })?;
    let len = usize::from(*bytes.get(at + 4)?);
    bytes.get(at + 16..at + 16 + len).map(<[u8]>::to_vec)
}

/// The modules of a process at one time. Their files are opened when they are first needed.
#[derive(Debug)]
pub struct Modules {
    tid: Tid,
    /// All mappings.
    pub mappings: Vec<Mapping>,
    /// Modules by address.
    pub list: Vec<Module>,
    loaded: Mutex<HashMap<usize, Arc<Loaded>>>,
    /// How much may still be read of their files.
    allowance: Allowance,
    memory: Memory,
    rules: Arc<Rules>,
}

/// A module whose file is open.
#[derive(Debug)]
pub struct Loaded {
    /// The file.
    pub elf: ElfFile,
    /// What to add to a linked address to get the address in memory.
    pub bias: u64,
    symbols: OnceLock<Symbols>,
}

impl Loaded {
    /// Returns the names of the function that covers `address` of the target.
    pub fn names_at(&self, address: u64) -> Vec<String> {
        let symbols = self
            .symbols
            .get_or_init(|| self.elf.symbols().unwrap_or_default());
        symbols
            .at(address.wrapping_sub(self.bias))
            .into_iter()
            .map(show)
            .collect()
    }
}

impl Modules {
    /// Reads the list of modules through a live thread.
    ///
    /// # Errors
    /// The kernel's error; not permitted when this user may not read the process.
    pub fn of(tid: impl Into<Tid>) -> io::Result<Modules> {
        let tid = tid.into();
        let mappings = maps::parse(&files::kernel_text(format!("{tid}/maps"))?);
        let list = group(&mappings);
        let rules = Arc::new(Rules::of(tid)?);
        let memory = files::memory(tid, &mappings, &rules);
        Ok(Modules {
            tid,
            mappings,
            list,
            loaded: Mutex::default(),
            allowance: Allowance::default(),
            memory,
            rules,
        })
    }

    /// Reads the list again, and returns it if it has changed. Files that were opened before are
    /// not opened again. Both lists have the same memory, so a new mapping is noted in both.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn again(&self) -> io::Result<Option<Modules>> {
        let mappings = maps::parse(&files::kernel_text(format!("{}/maps", self.tid))?);
        if mappings == self.mappings {
            return Ok(None);
        }
        let list = group(&mappings);
        let loaded = {
            let known = self.known();
            let same = |(index, module): (usize, &Module)| {
                let before = self.position_of(module)?;
                Some((index, Arc::clone(known.get(&before)?)))
            };
            list.iter().enumerate().filter_map(same).collect()
        };
        Ok(Some(Modules {
            tid: self.tid,
            mappings,
            list,
            loaded: Mutex::new(loaded),
            allowance: self.allowance.clone(),
            memory: self.memory.clone(),
            rules: Arc::clone(&self.rules),
        }))
    }

    /// Returns the index of the module that shows the same file at the same place as one of another
    /// list of this process.
    pub fn position_of(&self, other: &Module) -> Option<usize> {
        let place = (other.identity, other.base);
        self.list
            .iter()
            .position(|module| (module.identity, module.base) == place)
    }

    /// Returns the thread through which the list was read.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Returns the memory of the process, as far as it answers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the module that contains `address`.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.list.iter().position(|module| module.holds(address))
    }

    /// Returns the mapping that contains `address`.
    pub fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        self.mappings[..after]
            .last()
            .filter(|mapping| mapping.holds(address))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Arc<Loaded>>> {
        // A thread that panicked left out one entry at most.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file of a module: exactly the file that is mapped, or none.
    ///
    /// # Errors
    /// The kernel's error; invalid data when it is no ELF file or the file at its path is another
    /// one.
    pub fn load(&self, index: usize) -> io::Result<Arc<Loaded>> {
        if let Some(known) = self.known().get(&index) {
            return Ok(Arc::clone(known));
        }
        let module = self
            .list
            .get(index)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let elf = ElfFile::within(self.open(module)?, self.allowance.clone())?;
        let part = module
            .parts
            .iter()
            .find(|part| part.execute)
            .or(module.parts.first());
        let bias = part
            .and_then(|part| elf.bias(part.start, part.offset))
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the mappings do not match the file",
                )
            })?;
        let loaded = Arc::new(Loaded {
            elf,
            bias,
            symbols: OnceLock::new(),
        });
        self.known().insert(index, Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Opens the file of a module that is not in the list any more. `bias` is as in [`Loaded`].
    ///
    /// # Errors
    /// As [`Modules::load`].
    pub fn load_gone(&self, module: &Module, bias: u64) -> io::Result<Loaded> {
        let elf = ElfFile::within(self.open(module)?, self.allowance.clone())?;
        Ok(Loaded {
            elf,
            bias,
            symbols: OnceLock::new(),
        })
    }

    fn open(&self, module: &Module) -> io::Result<File> {
        // An entry of map_files is the mapped file itself, no matter what became of its name. It
        // requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
        for part in &module.parts {
            if let Ok(file) = files::mapped(self.tid, part.start, part.end, &self.rules) {
                return Ok(file);
            }
        }
        // The program itself can be opened in another way (`exe`). That works for everybody who may
        // trace the process, even if the program was deleted.
        if let Ok(file) = files::program_under(self.tid, &self.rules)
            && (is_file(module, &file) || self.is_same_build(module, &file))
        {
            return Ok(file);
        }
        // A process in another mount namespace has the file beneath its own root. However, the
        // kernel prints paths as seen from the reader's root. So if the process has only changed
        // its root (chroot), the path is one of midair's.
        let mut trouble = io::Error::from(io::ErrorKind::NotFound);
        let roots = [
            Place::root_under(self.tid, &self.rules),
            Place::own_root_under(&self.rules),
        ];
        for name in spellings(module) {
            let path = Path::new(OsStr::from_bytes(&name));
            for root in &roots {
                match open_file(root, path) {
                    // Overlay and btrfs print another device in maps than stat returns, so the
                    // inode number alone may have to suffice. The code that is used later is
                    // compared with the target's memory in any case.
                    Ok((inode, file)) if inode == module.identity.1 => return Ok(file),
                    Ok((_, file)) if self.is_same_build(module, &file) => return Ok(file),
                    Ok(_) => {
                        trouble = io::Error::new(
                            io::ErrorKind::InvalidData,
                            "the file at its path differs from the mapped file",
                        );
                    }
                    Err(error) if trouble.kind() == io::ErrorKind::NotFound => trouble = error,
                    Err(_) => {}
                }
            }
        }
        Err(trouble)
    }

    /// Whether another file has the same contents, judged by the Build-ID in the target's memory.
    /// An upgrade to the same version makes such a file, and so does a copy to an overlay's upper
    /// layer.
    fn is_same_build(&self, module: &Module, file: &File) -> bool {
        let in_memory = module.build_id(&self.memory);
        let in_file = file
            .try_clone()
            .and_then(|file| ElfFile::within(file, self.allowance.clone()))
            .map(|elf| elf.build_id)
            .unwrap_or_default();
        in_memory.is_some_and(|id| !id.is_empty() && id == in_file)
    }
}

/// Whether the module shows this very file, judged by device and inode number.
fn is_file(module: &Module, file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| {
        // This is how the C library packs a device into one number (source: sys/sysmacros.h).
        let device = metadata.dev();
        let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
        let minor = (device & 0xff) | ((device >> 12) & !0xff);
        let ((of_major, of_minor), inode) = module.identity;
        inode == metadata.ino() && (u64::from(of_major), u64::from(of_minor)) == (major, minor)
    })
}

/// Opens a regular file beneath a root. Returns its inode number, too.
fn open_file(root: &io::Result<Place>, path: &Path) -> io::Result<(u64, File)> {
    let root = root
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let found = root.find(path)?;
    Ok((found.inode(), found.open()?))
}

/// Returns the paths that a module may really have. The kernel prints a newline as `\012`, and "
/// (deleted)" may be part of a name.
fn spellings(module: &Module) -> Vec<Vec<u8>> {
    let mut all = vec![module.path.clone()];
    if let Some(at) = module.path.windows(4).position(|part| part == b"\\012") {
        let mut plain = module.path[..at].to_vec();
        let mut rest = &module.path[at..];
        while let [first, tail @ ..] = rest {
            match rest.strip_prefix(b"\\012") {
                Some(tail) => {
                    plain.push(b'\n');
                    rest = tail;
                }
                None => {
                    plain.push(*first);
                    rest = tail;
                }
            }
        }
        all.push(plain);
    }
    if module.deleted {
        for index in 0..all.len() {
            let named = [&all[index][..], b" (deleted)"].concat();
            all.push(named);
        }
    }
    all
}

/// Groups the mappings by file. A second copy of a file (in other namespaces of the dynamic loader)
/// is a module of its own; it is recognized by offsets that restart.
fn group(mappings: &[Mapping]) -> Vec<Module> {
    let mut list: Vec<Module> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.is_file()) {
        let identity = (mapping.device, mapping.inode);
        let same = list
            .iter_mut()
            .rev()
            .find(|module| module.identity == identity)
            .filter(|module| {
                module
                    .parts
                    .last()
                    .is_some_and(|last| mapping.offset >= last.offset && mapping.offset != 0)
            });
        match same {
            Some(module) => module.parts.push(mapping.clone()),
            None => list.push(Module {
                path: mapping.path.clone(),
                deleted: mapping.deleted,
                identity,
                base: mapping.start,
                parts: vec![mapping.clone()],
            }),
        }
    }
    list.retain(|module| module.parts.iter().any(|part| part.execute));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, execute: bool, offset: u64, inode: u64) -> Mapping {
        let perms = if execute { "r-xp" } else { "r--p" };
        let text = format!(
            "{start:x}-{:x} {perms} {offset:x} 08:01 {inode} /lib/l{inode}.so",
            start + 0x1000
        );
        maps::line(text.as_bytes()).unwrap()
    }

    #[test]
    fn two_copies_of_a_file_are_two_modules_and_data_is_none() {
        let list = group(&[
            map(0x1000, false, 0, 5),
            map(0x2000, true, 0x1000, 5),
            map(0x3000, false, 0, 6),
            map(0x4000, false, 0, 5),
            map(0x5000, true, 0x1000, 5),
            map(0x6000, false, 0x1000, 5),
        ]);
        assert_eq!(
            list.iter()
                .map(|module| (module.base, module.parts.len()))
                .collect::<Vec<_>>(),
            [(0x1000, 2), (0x4000, 3)]
        );
        assert_eq!(list[0].file_name(), b"l5.so");
    }

    #[test]
    fn the_program_is_the_file_that_it_runs_from() {
        let me = crate::Pid::own();
        let modules = Modules::of(me).unwrap();
        let here = the_program_is_the_file_that_it_runs_from as *const () as u64;
        let program = &modules.list[modules.at(here).unwrap()];
        let file = File::open("/proc/self/exe").unwrap();
        assert!(is_file(program, &file) || modules.is_same_build(program, &file));
        let others = modules
            .list
            .iter()
            .filter(|module| module.base != program.base);
        for other in others {
            assert!(!is_file(other, &file) && !modules.is_same_build(other, &file));
        }
    }

    #[test]
    fn a_path_may_be_printed_otherwise_than_it_is() {
        let module = |path: &[u8], deleted| Module {
            path: path.to_vec(),
            deleted,
            identity: ((0, 0), 1),
            base: 0,
            parts: Vec::new(),
        };
        assert_eq!(spellings(&module(b"/a/b.so", false)), [b"/a/b.so"]);
        assert_eq!(
            spellings(&module(b"/a\\012b\\012.so", true)),
            [
                &b"/a\\012b\\012.so"[..],
                b"/a\nb\n.so",
                b"/a\\012b\\012.so (deleted)",
                b"/a\nb\n.so (deleted)"
            ]
        );
    }

    #[test]
    fn ourselves_by_file_and_by_memory() {
        let me = crate::Pid::own();
        let modules = Modules::of(me).unwrap();
        let here = ourselves_by_file_and_by_memory as *const () as u64;
        let index = modules.at(here).unwrap();
        let loaded = modules.load(index).unwrap();
        assert!(
            loaded
                .names_at(here)
                .iter()
                .any(|name| name.contains("ourselves_by_file"))
        );
        assert!(modules.mapping_at(here).unwrap().execute);
        let by_memory = modules.list[index]
            .build_id(&Memory::of(me))
            .unwrap_or_default();
        assert_eq!(by_memory, loaded.elf.build_id);
        let libc = modules
            .list
            .iter()
            .position(|module| module.file_name() == b"libc.so.6")
            .unwrap();
        let id = modules.list[libc].build_id(&Memory::of(me)).unwrap();
        assert_eq!(id, modules.load(libc).unwrap().elf.build_id);
        assert_eq!(id.len(), 20);
    }
}
