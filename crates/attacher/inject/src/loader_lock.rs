//! The lock of the dynamic loader that `pthread_create` takes.
//!
//! `pthread_create` gives the new thread its thread-local storage, and holds the loader's lock for
//! that (`_dl_load_tls_lock`; in glibc 2.34 `_dl_load_lock`). Another thread that loads a library
//! holds it as well, for microseconds, unless it loses its processor meanwhile. The borrowed thread
//! would then wait for as long as the other one waits for its next turn: some tenths of a second on
//! a busy machine. So the lock is looked at first, and no thread is borrowed while it is held.
//!
//! The lock has no name of its own. It is one of two or three recursive mutexes, one behind the
//! other, behind the list of namespaces in the loader's variable `_rtld_global`. That is how they are
//! found. Where they are not found, or seem to be held for long, entering goes on as if there were
//! none: what is read here only says which moment is better.
//!
//! Decisions: ENG-068 (`docs/deviations/engine.md`).

use midair_procinfo::module::Modules;
use midair_ptrace::{Memory, RemoteAddr};

use crate::arch;
use crate::names::{self, Hazard};

/// How many bytes of the variable are read: more than it has in any version.
const VARIABLE: usize = 8192;
/// Offset of the word that tells the kind of a mutex, and the value for a recursive one (sources:
/// glibc's `struct_mutex.h`, pthread.h).
const KIND: usize = 16;
const RECURSIVE: u32 = 1;
/// The most namespaces that the loader has.
const NAMESPACES: u64 = 16;

/// The address of the lock in a process, if it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoaderLock(Option<RemoteAddr>);

impl LoaderLock {
    /// Finds the lock.
    pub(crate) fn find(modules: &Modules) -> LoaderLock {
        LoaderLock(find(modules))
    }

    /// Whether a thread holds the lock now.
    pub(crate) fn is_held(self, memory: &Memory) -> bool {
        self.0
            .is_some_and(|at| memory.read_u32(at).is_ok_and(|word| word != 0))
    }
}

fn find(modules: &Modules) -> Option<RemoteAddr> {
    let mut all = modules.list.iter().enumerate();
    let (index, _) =
        all.find(|(_, module)| names::file_hazard(module.file_name()) == Some(Hazard::Loader))?;
    let loaded = modules.load(index).ok()?;
    let [linked] = loaded.elf.exported_data(["_rtld_global"]).ok()?;
    let variable = RemoteAddr::new(linked?.wrapping_add(loaded.bias));
    let mut bytes = vec![0; VARIABLE];
    let read = modules.memory().read_some(variable, &mut bytes).ok()?;
    let offset = lock_in(bytes.get(..read)?)?;
    Some(variable.plus(offset as u64))
}

/// Returns the offset of the lock in the bytes of `_rtld_global`: of the last in a row of at least
/// two recursive mutexes that follows the number of namespaces, the third at most.
fn lock_in(bytes: &[u8]) -> Option<usize> {
    let kind = |mutex: usize| {
        let word = bytes.get(mutex + KIND..mutex + KIND + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };
    let is_mutex = |at: usize| kind(at) == Some(RECURSIVE);
    let second = arch::MUTEX;
    let third = 2 * arch::MUTEX;
    let mut starts = (8..bytes.len()).step_by(8);
    let first = starts.find(|&at| {
        let number = bytes[at - 8..at].try_into().map(u64::from_le_bytes);
        let number = number.is_ok_and(|number| (1..=NAMESPACES).contains(&number));
        number && is_mutex(at) && is_mutex(at + second)
    })?;
    Some(match is_mutex(first + third) {
        true => first + third,
        // Before there was a lock for thread-local storage alone, the first one was taken.
        false => first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_procinfo::Pid;

    fn variable(mutexes: usize) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        // A mutex alone, as each namespace has one.
        bytes[64 + KIND] = 1;
        bytes[1792] = 2;
        for number in 0..mutexes {
            bytes[1800 + number * arch::MUTEX + KIND] = 1;
        }
        bytes
    }

    #[test]
    fn the_lock_is_the_third_or_the_only_one_that_was_there() {
        assert_eq!(lock_in(&variable(3)), Some(1800 + 2 * arch::MUTEX));
        assert_eq!(lock_in(&variable(2)), Some(1800));
        assert_eq!(lock_in(&variable(1)), None);
        assert_eq!(lock_in(&variable(0)), None);
        let mut none = variable(3);
        none[1792] = 0;
        assert_eq!(lock_in(&none), None);
        assert_eq!(lock_in(&[]), None);
        assert_eq!(lock_in(&variable(3)[..1830]), None);
    }

    /// No thread is borrowed while the lock is held: it would wait for the lock in `pthread_create`.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_thread_is_borrowed_when_the_lock_is_free() {
        use crate::options::{Library, Options};
        use crate::test_target::TestTarget;
        use std::time::{Duration, Instant};

        let mut target = TestTarget::cat();
        let look = target.look();
        let memory = look.memory();
        let at = LoaderLock::find(&look.modules).0.unwrap();
        assert_eq!(memory.read_u32(at).unwrap(), 0);
        let options = Options {
            looks: 0,
            find: Duration::from_secs(30),
            ..Options::default()
        };
        const HELD: Duration = Duration::from_millis(300);
        memory.write(at, &1_u32.to_le_bytes()).unwrap();
        let entered = std::thread::scope(|scope| {
            let began = Instant::now();
            let memory = memory.clone();
            scope.spawn(move || {
                std::thread::sleep(HELD);
                memory.write(at, &0_u32.to_le_bytes()).unwrap();
            });
            let entered = crate::enter(&look, &Library::Nothing, &options).unwrap();
            assert!(began.elapsed() >= HELD, "{:?}", began.elapsed());
            entered
        });
        assert!(entered.times.stub < HELD, "{:?}", entered.times);
        entered.withdraw(&options).unwrap();
        target.answers();
        assert!(!LoaderLock::find(&look.modules).is_held(&memory));
    }

    #[test]
    fn it_is_found_here() {
        let modules = Modules::of(Pid::own()).unwrap();
        let lock = LoaderLock::find(&modules);
        assert!(lock.0.is_some(), "{lock:?}");
        // Other tests make threads, and hold it for microseconds.
        let mut tries = 0..1000;
        assert!(tries.any(|_| !lock.is_held(modules.memory())));
    }
}
