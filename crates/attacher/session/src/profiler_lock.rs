//! The kernel driver's profiler lock. Its holder is the only profiler of a GPU, provided that all
//! profilers ask for the lock.
//!
//! Where it may, the attacher holds the lock for as long as a session counts, so that the target
//! needs no rights for it. Where the attacher cannot get it, counting goes on without it, as in
//! AMD's tools, and the files say so (AMD-143).

use midair_agents::Agent;
use midair_counters::prepared::HELD;
use midair_ptrace::kfd::{Kfd, ProfilerInterface};
use std::collections::BTreeMap;
use std::io;

/// The part of the driver that concerns the lock.
pub(crate) trait Driver {
    /// Returns the interface that the driver offers.
    fn interface(&self) -> io::Result<ProfilerInterface>;
    /// Takes the lock of a GPU, or releases it. With `enable`, all queues of the GPU count.
    fn set(&self, of: ProfilerInterface, gpu: u32, lock: bool, enable: bool) -> io::Result<()>;
}

impl Driver for Kfd {
    fn interface(&self) -> io::Result<ProfilerInterface> {
        self.profiler_interface()
    }
    fn set(&self, of: ProfilerInterface, gpu: u32, lock: bool, enable: bool) -> io::Result<()> {
        self.set_profiler_lock(of, gpu, lock, enable)
    }
}

/// Locks that are held until this value is dropped.
#[derive(Debug)]
pub(crate) struct ProfilerLock<D: Driver = Kfd> {
    driver: D,
    interface: ProfilerInterface,
    /// The driver's ids of the GPUs whose locks are held.
    held: Vec<u32>,
}

impl<D: Driver> Drop for ProfilerLock<D> {
    fn drop(&mut self) {
        for gpu in &self.held {
            // If this fails, the driver releases the lock itself when this process ends.
            let _ = self.driver.set(self.interface, *gpu, false, false);
        }
    }
}

/// The locks that were taken, and the state of each by KFD node: [`HELD`], or why it is not.
pub(crate) type Taken<D> = (Option<ProfilerLock<D>>, BTreeMap<u32, String>);

/// Takes the locks of GPUs. With `enable`, the counters of SQ and SPI count the queues of all
/// processes while the lock is held.
pub(crate) fn take<D: Driver>(driver: io::Result<D>, gpus: &[&Agent], enable: bool) -> Taken<D> {
    let of_all = |why: &str| {
        let all = gpus.iter().map(|gpu| (gpu.node_id, why.to_owned()));
        (None, all.collect())
    };
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => return of_all(&format!("cannot open /dev/kfd: {error}")),
    };
    let interface = match driver.interface() {
        Ok(interface) => interface,
        Err(error) => return of_all(&not_offered(&error)),
    };
    let mut lock = ProfilerLock {
        driver,
        interface,
        held: Vec::new(),
    };
    let mut became = BTreeMap::new();
    for gpu in gpus {
        let id = gpu.gpu_id as u32;
        let what = match lock.driver.set(interface, id, true, enable) {
            Ok(()) => None,
            Err(error) => match error.raw_os_error() {
                // This process has the lock already.
                Some(libc::EALREADY) => None,
                _ => Some(refused(&error)),
            },
        };
        if what.is_none() {
            lock.held.push(id);
        }
        became.insert(gpu.node_id, what.unwrap_or_else(|| HELD.to_owned()));
    }
    ((!lock.held.is_empty()).then_some(lock), became)
}

/// Returns why no process can get a lock from this driver.
pub(crate) fn not_offered(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
            "the kernel driver has none".to_owned()
        }
        _ => format!("the kernel driver does not answer: {error}"),
    }
}

fn refused(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "it requires CAP_PERFMON: run midair as root".to_owned()
        }
        Some(libc::EBUSY) => "another profiler holds it".to_owned(),
        Some(libc::EINVAL) => "the kernel driver does not know this GPU".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// The requests to the driver: GPU, lock, enable.
    type Attempts = Rc<RefCell<Vec<(u32, bool, bool)>>>;

    struct Model {
        asked: Attempts,
        /// The driver's answer for each GPU, by id.
        answers: fn(u32) -> Option<i32>,
        offers: bool,
    }

    impl Driver for Model {
        fn interface(&self) -> io::Result<ProfilerInterface> {
            match self.offers {
                true => Ok(ProfilerInterface::default()),
                false => Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            }
        }
        fn set(&self, _: ProfilerInterface, gpu: u32, lock: bool, enable: bool) -> io::Result<()> {
            self.asked.borrow_mut().push((gpu, lock, enable));
            match (self.answers)(gpu).filter(|_| lock) {
                Some(error) => Err(io::Error::from_raw_os_error(error)),
                None => Ok(()),
            }
        }
    }

    fn gpus() -> Vec<Agent> {
        let gpu = |node_id, gpu_id| Agent {
            node_id,
            gpu_id,
            ..Agent::default()
        };
        vec![gpu(1, 101), gpu(2, 102), gpu(3, 103), gpu(4, 104)]
    }

    #[test]
    fn what_can_be_had_is_held_and_given_back() {
        let asked = Attempts::default();
        let answers = |gpu| match gpu {
            102 => Some(libc::EPERM),
            103 => Some(libc::EBUSY),
            104 => Some(libc::EALREADY),
            _ => None,
        };
        let model = Model {
            asked: asked.clone(),
            answers,
            offers: true,
        };
        let gpus = gpus();
        let all: Vec<&Agent> = gpus.iter().collect();
        let (lock, became) = take(Ok(model), &all, true);
        assert_eq!(became[&1], HELD);
        assert!(became[&2].contains("CAP_PERFMON"), "{became:?}");
        assert!(became[&3].contains("another profiler"), "{became:?}");
        assert_eq!(became[&4], HELD);
        assert!(asked.borrow().iter().all(|(_, lock, on)| *lock && *on));
        asked.borrow_mut().clear();
        drop(lock);
        assert_eq!(*asked.borrow(), [(101, false, false), (104, false, false)]);
    }

    #[test]
    fn a_driver_without_it_is_told_of_and_nothing_is_asked() {
        let asked = Attempts::default();
        let model = Model {
            asked: asked.clone(),
            answers: |_| None,
            offers: false,
        };
        let gpus = gpus();
        let all: Vec<&Agent> = gpus.iter().collect();
        let (lock, became) = take(Ok(model), &all, false);
        assert!(lock.is_none() && asked.borrow().is_empty());
        assert_eq!(became.len(), 4);
        assert!(
            became
                .values()
                .all(|why| why == "the kernel driver has none")
        );
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let (lock, became) = take::<Model>(Err(missing), &all, false);
        assert!(lock.is_none() && became[&1].contains("/dev/kfd"));
    }
}
