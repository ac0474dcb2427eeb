//! What the worker thread does while a process has not initialised CUDA yet.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::session::fake;
use midair_record::event::{self, Record};
use midair_record::spool::{Reader, ReaderOptions};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

pub(crate) static INITIALISED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn version(version: *mut c_int) -> c_uint {
    // SAFETY: a valid out pointer.
    unsafe { version.write(13_000) };
    0
}
unsafe extern "C" fn count(count: *mut c_int) -> c_uint {
    if !INITIALISED.load(SeqCst) {
        // CUDA_ERROR_NOT_INITIALIZED.
        return 3;
    }
    // SAFETY: a valid out pointer.
    unsafe { count.write(2) };
    0
}
unsafe extern "C" fn get(device: *mut c_int, ordinal: c_int) -> c_uint {
    // SAFETY: a valid out pointer.
    unsafe { device.write(ordinal) };
    0
}

pub(crate) fn driver() -> Driver {
    let look_up = |name: &CStr| -> *mut c_void {
        match name.to_bytes() {
            b"cuDriverGetVersion" => version as *mut c_void,
            b"cuDeviceGetCount" => count as *mut c_void,
            b"cuDeviceGet" => get as *mut c_void,
            _ => std::ptr::null_mut(),
        }
    };
    // SAFETY: functions of these types, which stay.
    unsafe { Driver::find(look_up) }.unwrap()
}

struct Attacher(Reader);

impl Attacher {
    fn new() -> Attacher {
        let options = ReaderOptions {
            size: 1 << 20,
            settings: Vec::new(),
            drain_ms: 0,
            lease_ms: 0,
            session: 1,
        };
        Attacher(Reader::create(&options).unwrap())
    }
    fn worker(&self) -> Worker {
        // SAFETY: the reader outlives the area in each test.
        let area = unsafe { self.0.area() }.unwrap();
        let plan = Plan {
            area,
            choice: Choice::of(&Settings::new()),
            cupti: fake::cupti(),
            driver: driver(),
            percent: None,
        };
        Worker {
            stage: Stage::Waiting(Box::new(plan)),
            area: Some(area),
            ..Worker::default()
        }
    }
    fn told(&mut self) -> (Vec<String>, usize) {
        let (mut notes, mut devices) = (Vec::new(), 0);
        let moved = self.0.drain(|part| {
            let mut rest = part;
            while !rest.is_empty() {
                let (record, size) = event::decode(rest).unwrap();
                match record {
                    Record::Note(text) => notes.push(String::from_utf8(text.to_vec()).unwrap()),
                    Record::CudaDevice(..) => devices += 1,
                    _ => (),
                }
                rest = &rest[size..];
            }
            Ok::<(), ()>(())
        });
        moved.unwrap();
        (notes, devices)
    }
}

#[test]
fn nothing_is_touched_until_the_process_initialises_cuda() {
    let _alone = fake::alone();
    INITIALISED.store(false, SeqCst);
    let mut attacher = Attacher::new();
    let mut worker = attacher.worker();
    for _ in 0..3 {
        assert!(!worker.tick());
    }
    assert_eq!((worker.slots(), worker.leaving()), (0, None));
    assert!(fake::with(|fake| fake.log.is_empty()));
    INITIALISED.store(true, SeqCst);
    assert!(worker.tick());
    assert_eq!(worker.slots(), 4);
    assert!(fake::with(|fake| fake.enabled.contains(&10)));
    let detached = std::cell::Cell::new(0);
    let bits = worker.stop(now() + 1_000_000_000, &|| detached.set(detached.get() + 1));
    assert_eq!((bits, detached.get()), (0, 1));
    assert!(!worker.end());
    assert!(fake::with(|fake| fake.enabled.is_empty()));
    assert_eq!(attacher.told(), (Vec::new(), 2));
}

#[test]
fn a_process_that_never_initialises_cuda_gets_a_note() {
    let _alone = fake::alone();
    INITIALISED.store(false, SeqCst);
    let mut attacher = Attacher::new();
    let mut worker = attacher.worker();
    worker.tick();
    assert_eq!(worker.stop(now(), &|| ()), outcome::NO_TABLES);
    let (notes, _) = attacher.told();
    assert!(
        notes[0].starts_with("the process had not initialized CUDA"),
        "{notes:?}"
    );
    assert!(fake::with(|fake| fake.log.is_empty()));
}

#[test]
fn a_profiler_that_was_first_has_priority() {
    let _alone = fake::alone();
    fake::with(|fake| (fake.used, fake.recorded) = (true, true));
    INITIALISED.store(true, SeqCst);
    let mut attacher = Attacher::new();
    let mut worker = attacher.worker();
    worker.tick();
    assert_eq!(
        (worker.slots(), worker.leaving()),
        (0, Some(outcome::YIELDED))
    );
    worker.stop(now(), &|| ());
    let (notes, _) = attacher.told();
    assert!(
        notes[0].contains("another profiler is recording"),
        "{notes:?}"
    );
    assert!(fake::with(|fake| fake.enabled.is_empty()));
}
