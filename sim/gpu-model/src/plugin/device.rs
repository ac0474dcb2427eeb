//! The same model without ROCr's interface, for a runtime of our own (`sim/hsa`). Addresses are
//! the process's own, which several devices may share.

use super::worker::Worker;
use super::{Raise, Shared, give_up};
use crate::engine::Place;
use crate::log::Event;
use crate::settings::Settings;
use std::ffi::c_void;
use std::io;
use std::sync::{Arc, PoisonError};

/// How many queue numbers a node has. A number divided by this is the number of its node. Programs
/// whose threads come and go make hundreds of queues a second, and no two of them share a number.
pub const QUEUES_PER_NODE: u32 = 1_000_000;

/// A model with its settings from the environment, and its log. The caller numbers the queues.
pub struct Device(Arc<Shared>);

/// A queue that is being served. The device serves it on a separate thread (`gpu-model-N`) until
/// [`Served::stop`].
pub struct Served {
    worker: Worker,
    shared: Arc<Shared>,
}

impl Device {
    /// Reads the environment and opens the log. The queues' threads call `raise` with the event of
    /// each signal that they complete.
    ///
    /// Ends the process when the settings cannot be parsed or the log cannot be opened: a test must
    /// not run with another model than it asked for.
    pub fn of_environment(raise: unsafe extern "C" fn(*mut c_void, u32)) -> Device {
        let settings = Settings::from_lookup(|name| std::env::var(name).ok())
            .unwrap_or_else(|what| give_up(&what));
        let (eager, seed, kernel_ns) = (settings.eager, settings.seed, settings.kernel_ns);
        let shared = Arc::new(Shared::new(settings));
        let raise: Raise = raise;
        *shared
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(super::Interrupt {
            raise,
            data: std::ptr::null_mut(),
        });
        shared.write(
            0,
            &Event::Model {
                eager,
                seed,
                kernel_ns,
            },
        );
        Device(shared)
    }

    /// Serves a queue.
    ///
    /// # Errors
    /// Fails when no thread can be created for the queue.
    pub fn serve(&self, sdma: bool, place: Place) -> io::Result<Served> {
        if let Some(log) = &self.0.firmware_log {
            // The file exists as soon as the device is used.
            log.begin(place.number);
        }
        self.0.map_anew();
        let worker = Worker::start(Arc::clone(&self.0), sdma, place)?;
        Ok(Served {
            worker,
            shared: Arc::clone(&self.0),
        })
    }
}

impl Served {
    /// Ends the queue. Returns when its thread has ended.
    pub fn stop(self) {
        self.worker.stop();
        self.shared.map_anew();
    }
}
