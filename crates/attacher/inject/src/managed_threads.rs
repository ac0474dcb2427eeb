//! Runtimes that manage the threads of their process, and crash at a thread or at code that comes
//! past them.
//!
//! The worker thread is made by the C library's own `pthread_create`. Most runtimes that stand
//! between a program and its C library accept such a thread: sessions in programs with
//! AddressSanitizer, LeakSanitizer, UndefinedBehaviorSanitizer, SafeStack, jemalloc, tcmalloc and
//! Boehm's garbage collector do no harm to them. These do not accept it:
//! * ThreadSanitizer gives each thread its state in its own `pthread_create`. The first `malloc` of
//!   a thread without that state is a SIGSEGV.
//! * MemorySanitizer counts as uninitialized whatever was written by code that it did not compile,
//!   and ends the process when such bytes reach a function of the C library. Our libraries cause
//!   hundreds of such reports in a session.
//! * HWAddressSanitizer keeps a state of each thread, too. It is not tested, since it needs
//!   processors that ignore the upper bits of addresses.
//! * Valgrind, DynamoRIO and Pin execute a translation of the program's code. The thread pointer
//!   and the stack of a thread belong to the translator, so a function of the C library that is
//!   called there directly is a SIGSEGV.
//!
//! Decisions: ENG-064 (`docs/deviations/engine.md`).

use midair_procinfo::elf::ElfFile;
use midair_procinfo::module::Modules;

/// A runtime that manages all threads of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadManager {
    /// A runtime that the compiler adds.
    Sanitizer {
        /// Its name.
        name: &'static str,
        /// Its word for `-fsanitize=`.
        word: &'static str,
        /// What it would do.
        does: &'static str,
    },
    /// A program that executes a translation of another one.
    Translator(&'static str),
}

impl ThreadManager {
    /// Returns what is the matter with the process, to follow its name in a sentence.
    pub fn words(self) -> String {
        match self {
            ThreadManager::Sanitizer { name, word, does } => {
                format!("is built with {name} (-fsanitize={word}), which {does}")
            }
            ThreadManager::Translator(name) => {
                format!("runs under {name}, which crashes on code that it does not translate")
            }
        }
    }

    /// Returns what to do about it.
    pub fn remedy(self) -> String {
        match self {
            ThreadManager::Sanitizer { word, .. } => {
                format!("profile a build without -fsanitize={word}")
            }
            ThreadManager::Translator(name) => {
                format!("profile the program without {name}")
            }
        }
    }
}

const THREAD: ThreadManager = ThreadManager::Sanitizer {
    name: "ThreadSanitizer",
    word: "thread",
    does: "crashes on a thread that it did not create",
};
const MEMORY: ThreadManager = ThreadManager::Sanitizer {
    name: "MemorySanitizer",
    word: "memory",
    does: "ends a process when uninstrumented libraries write memory",
};
const HWADDRESS: ThreadManager = ThreadManager::Sanitizer {
    name: "HWAddressSanitizer",
    word: "hwaddress",
    does: "keeps state for each thread that it creates",
};

/// The beginnings of the names of mapped files that show such a runtime: its library, or the
/// program that translates.
const FILES: &[(&str, ThreadManager)] = &[
    ("libtsan.so", THREAD),
    ("libclang_rt.tsan", THREAD),
    ("libclang_rt.msan", MEMORY),
    ("libhwasan.so", HWADDRESS),
    ("libclang_rt.hwasan", HWADDRESS),
    ("vgpreload_core", ThreadManager::Translator("Valgrind")),
    ("libdynamorio.so", ThreadManager::Translator("DynamoRIO")),
    ("pinbin", ThreadManager::Translator("Pin")),
];

/// Returns the runtime of this kind in a process, if there is one. `program` is the file of its
/// program, which is linked with the C library dynamically.
pub fn find(program: &ElfFile, modules: &Modules) -> Option<ThreadManager> {
    let mut files = modules.list.iter();
    files
        .find_map(|module| of_file(module.file_name()))
        .or_else(|| in_program(program))
}

fn of_file(name: &[u8]) -> Option<ThreadManager> {
    let mut all = FILES.iter();
    all.find(|(beginning, _)| name.starts_with(beginning.as_bytes()))
        .map(|(_, manager)| *manager)
}

/// Finds a sanitizer that is linked into the program. clang exports its interface. gcc
/// (`-static-libtsan`) exports only functions that replace the C library's, and ThreadSanitizer
/// alone replaces `setjmp` besides `pthread_create`.
fn in_program(program: &ElfFile) -> Option<ThreadManager> {
    let found = program.exported([
        "__tsan_init",
        "__msan_init",
        "__hwasan_init",
        "pthread_create",
        "__sigsetjmp",
    ]);
    // Without such a table nothing replaces the C library's functions.
    match found.ok()? {
        [Some(_), ..] | [_, _, _, Some(_), Some(_)] => Some(THREAD),
        [_, Some(_), ..] => Some(MEMORY),
        [_, _, Some(_), ..] => Some(HWADDRESS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_the_runtime() {
        for (name, manager) in [
            ("libtsan.so.2", Some(THREAD)),
            ("libclang_rt.tsan-x86_64.so", Some(THREAD)),
            ("libclang_rt.msan-aarch64.so", Some(MEMORY)),
            ("libclang_rt.hwasan-aarch64.so", Some(HWADDRESS)),
            (
                "vgpreload_core-amd64-linux.so",
                Some(ThreadManager::Translator("Valgrind")),
            ),
            (
                "libdynamorio.so",
                Some(ThreadManager::Translator("DynamoRIO")),
            ),
            ("pinbin", Some(ThreadManager::Translator("Pin"))),
            ("libasan.so.8", None),
            ("liblsan.so.0", None),
            ("libubsan.so.1", None),
            ("libclang_rt.asan-x86_64.so", None),
            ("libgc.so.1", None),
            ("libjemalloc.so.2", None),
        ] {
            assert_eq!(of_file(name.as_bytes()), manager, "{name}");
        }
    }

    #[test]
    fn each_says_what_to_do() {
        for (_, manager) in FILES {
            assert!(!manager.words().is_empty() && manager.remedy().starts_with("profile "));
        }
    }
}
