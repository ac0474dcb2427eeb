//! Finds addresses in the target's own C library: the functions that the stub and the worker thread
//! call, and two pieces of code with which system calls are made. They are found in the library's
//! file and then compared with its memory.

use memchr::memmem;
use std::io;

use midair_procinfo::libc_kind::{self, LibcKind};
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, elf};
use midair_ptrace::{Memory, RemoteAddr};

use crate::arch;
use crate::error::Refusal;

/// The oldest version on which our libraries run. Since this version, threads and dlopen are in
/// libc.so.6 itself.
const OLDEST: (u32, u32) = (2, 34);

/// Addresses in the target.
#[derive(Debug, Clone)]
pub struct TargetCode {
    /// Version of its glibc.
    pub version: (u32, u32),
    /// Index of libc.so.6 in the modules.
    pub module: usize,
    pub(crate) pthread_create: RemoteAddr,
    pub(crate) attr_init: RemoteAddr,
    pub(crate) attr_setdetachstate: RemoteAddr,
    pub(crate) attr_setstack: RemoteAddr,
    pub(crate) dlopen: RemoteAddr,
    pub(crate) dlsym: RemoteAddr,
    pub(crate) dlerror: RemoteAddr,
    /// The address of an instruction that makes a system call, followed by a return.
    pub(crate) gadget: RemoteAddr,
    /// The code that calls `rt_sigreturn`. Signal handlers return to it.
    pub(crate) restorer: RemoteAddr,
}

impl TargetCode {
    /// Finds all these addresses, or returns the reason why the C library will not do.
    pub(crate) fn find(
        pid: Pid,
        modules: &Modules,
        memory: &Memory,
    ) -> Result<TargetCode, Refusal> {
        let unreadable = |source: io::Error| Refusal::Unreadable {
            pid,
            what: "the C library".into(),
            source,
        };
        let (module, version) = match libc_kind::find(modules).map_err(unreadable)? {
            LibcKind::Glibc { version, .. } if version < OLDEST => {
                return Err(Refusal::LibcTooOld { pid, version });
            }
            LibcKind::Glibc { module, version } => (module, version),
            LibcKind::Musl => {
                return Err(Refusal::LibcKind {
                    pid,
                    what: "it runs on musl",
                });
            }
            LibcKind::Static => {
                return Err(Refusal::LibcKind {
                    pid,
                    what: "it is linked statically",
                });
            }
            LibcKind::Ambiguous => {
                return Err(Refusal::LibcKind {
                    pid,
                    what: "it has two C libraries",
                });
            }
        };
        let loaded = modules.load(module).map_err(unreadable)?;
        let found = loaded
            .elf
            .exported([
                "pthread_create",
                "pthread_attr_init",
                "pthread_attr_setdetachstate",
                "pthread_attr_setstack",
                "dlopen",
                "dlsym",
                "dlerror",
            ])
            .map_err(unreadable)?;
        let missing = Refusal::LibcKind {
            pid,
            what: "its C library lacks a function that is needed",
        };
        let [
            Some(create),
            Some(init),
            Some(detach),
            Some(stack),
            Some(open),
            Some(sym),
            Some(error),
        ] = found
        else {
            return Err(missing);
        };
        let at = |linked: u64| RemoteAddr::new(linked.wrapping_add(loaded.bias));
        let pieces = loaded.elf.code().map_err(unreadable)?;
        let gadget = search(&pieces, &arch::GETPID_BODY)
            .map(|linked| at(linked).plus(arch::GETPID_CALL))
            .or_else(|| search(&pieces, &arch::SYSCALL_RETURN).map(at));
        let restorer = if arch::RESTORER_IN_VDSO {
            in_vdso(modules, memory)
        } else {
            search(&pieces, &arch::RESTORER).map(at)
        };
        let (Some(gadget), Some(restorer)) = (gadget, restorer) else {
            return Err(missing);
        };
        // The code in memory may have changed, or the file is not the one that was loaded.
        let same = |address: RemoteAddr, bytes: &[u8]| {
            let got = memory.read_vec(address, bytes.len());
            got.map(|got| got == bytes)
                .map_err(|error| Refusal::Unreadable {
                    pid,
                    what: "the memory".into(),
                    source: io::Error::other(error),
                })
        };
        if !same(gadget, &arch::SYSCALL_RETURN)? || !same(restorer, &arch::RESTORER)? {
            return Err(Refusal::LibcKind {
                pid,
                what: "its C library in memory differs from its file",
            });
        }
        Ok(TargetCode {
            version,
            module,
            pthread_create: at(create),
            attr_init: at(init),
            attr_setdetachstate: at(detach),
            attr_setstack: at(stack),
            dlopen: at(open),
            dlsym: at(sym),
            dlerror: at(error),
            gadget,
            restorer,
        })
    }

    /// Returns true if `address` is a return address in the restorer, which marks the frame of a
    /// signal handler.
    pub(crate) fn is_signal_return(&self, address: u64) -> bool {
        address.wrapping_sub(self.restorer.get().wrapping_sub(1)) <= arch::RESTORER.len() as u64
    }
}

fn search(pieces: &[elf::Piece], pattern: &[u8]) -> Option<u64> {
    pieces.iter().find_map(|piece| {
        let at = memmem::find(&piece.bytes, pattern)?;
        Some(piece.address.wrapping_add(at as u64))
    })
}

/// Returns the address of the restorer in the kernel's own code page (vDSO).
fn in_vdso(modules: &Modules, memory: &Memory) -> Option<RemoteAddr> {
    let vdso = modules
        .mappings
        .iter()
        .find(|mapping| mapping.path == b"[vdso]" && mapping.execute)?;
    let len = usize::try_from(vdso.end.wrapping_sub(vdso.start)).ok()?;
    let bytes = memory
        .read_vec(RemoteAddr::new(vdso.start), len.min(1 << 20))
        .ok()?;
    let at = memmem::find(&bytes, &arch::RESTORER)?;
    Some(RemoteAddr::new(vdso.start).plus(at as u64))
}
