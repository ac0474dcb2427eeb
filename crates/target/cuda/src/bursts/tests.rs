//! Bursts with a CUPTI of our own: each is a whole session, and there is nothing between them.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::selection::Choice;
use crate::session::fake::{self, Bytes, cupti, emit, layouts};
use crate::session::{self, KEEP_LOADED};
use crate::work::tests::{INITIALISED, driver};
use midair_abi::cupti::activity_kind;
use midair_record::event::{self, Record};
use midair_record::spool::{Reader, ReaderOptions};
use midair_settings::Settings;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// Bursts of some 150 ms in periods of a second.
const PERCENT: u32 = 10;

struct Attacher(Reader);

/// What came of a session.
#[derive(Default)]
struct Came {
    /// Kernels: correlation id, kernel's id, dispatch's id.
    kernels: Vec<(u64, u64, u64)>,
    symbols: Vec<Vec<u8>>,
    /// The records of bursts, in pairs.
    bursts: Vec<Burst>,
    notes: Vec<String>,
    devices: usize,
}

impl Attacher {
    fn new() -> (Attacher, MutexGuard<'static, ()>) {
        let alone = fake::alone();
        INITIALISED.store(true, SeqCst);
        let options = ReaderOptions {
            size: 1 << 20,
            settings: Vec::new(),
            drain_ms: 100,
            lease_ms: 0,
            session: 1,
        };
        (Attacher(Reader::create(&options).unwrap()), alone)
    }

    fn begin(&self, percent: u32) -> Bursting {
        // SAFETY: the reader outlives the session in each test.
        let area = unsafe { self.0.area() }.unwrap();
        let settings = Settings::from_iter([("ROCPROF_KERNEL_TRACE", "1")]);
        let plan = Plan {
            area,
            choice: Choice::of(&settings),
            cupti: cupti(),
            driver: driver(),
            percent: Some(percent),
        };
        // SAFETY: as above.
        Bursting::new(plan, percent, unsafe { session::sink(area) })
    }

    fn came(&mut self) -> Came {
        let mut came = Came::default();
        let moved = self.0.drain(|part| {
            let mut rest = part;
            while !rest.is_empty() {
                let (record, size) = event::decode(rest).unwrap();
                match record {
                    Record::Kernel(kernel, _) => came.kernels.push((
                        kernel.correlation,
                        kernel.kernel_id,
                        kernel.dispatch_id,
                    )),
                    Record::KernelSymbol(_, name) => came.symbols.push(name.to_vec()),
                    Record::Burst(burst) => came.bursts.push(burst),
                    Record::Note(text) => {
                        came.notes.push(String::from_utf8(text.to_vec()).unwrap());
                    }
                    Record::CudaDevice(..) => came.devices += 1,
                    _ => (),
                }
                rest = &rest[size..];
            }
            Ok::<(), ()>(())
        });
        moved.unwrap();
        came
    }
}

/// CUPTI records a kernel. It restarts the count of its calls in each burst.
fn launch(graph: u64) {
    let (l, time) = (&layouts().kernel, now());
    emit(
        &Bytes::of(activity_kind::CONCURRENT_KERNEL)
            .with(l.name, c"_Z3addPf".as_ptr().expose_provenance() as u64)
            .with(l.correlation_id, 5)
            .with(l.stream_id, 7)
            .with(l.graph_id, graph)
            .with(l.start, time - 1_000)
            .with(l.end, time),
    );
}

/// Runs rounds until `done`, within a limit.
fn rounds(bursting: &mut Bursting, mut done: impl FnMut(&mut Bursting) -> bool) {
    let begin = Instant::now();
    while !done(bursting) {
        assert!(begin.elapsed() < Duration::from_secs(20), "{bursting:?}");
        if !bursting.round() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn finalized() -> usize {
    fake::with(|fake| fake.log.iter().filter(|line| *line == "finalize").count())
}

#[test]
fn each_burst_is_a_whole_session_and_their_records_stay_apart() {
    let (mut attacher, _alone) = Attacher::new();
    let mut bursting = attacher.begin(PERCENT);
    assert!(fake::with(|fake| fake.log.is_empty()), "nothing is touched");
    for burst in 0..3 {
        rounds(&mut bursting, |it| it.slots() > 0);
        launch(0);
        launch(0);
        rounds(&mut bursting, |it| it.slots() == 0);
        assert_eq!(finalized(), burst + 1);
        assert!(fake::with(|fake| fake.enabled.is_empty()));
    }
    assert!(!bursting.is_taken() && !bursting.is_requested());
    assert_eq!(bursting.finish(now(), false, &|| ()), 0);
    assert_eq!(finalized(), 3, "and no more at the end");
    let came = attacher.came();
    assert_eq!((came.devices, came.symbols.len()), (2, 1));
    assert_eq!(came.notes, Vec::<String>::new());
    let calls: Vec<u64> = came.kernels.iter().map(|it| it.0).collect();
    let next = |burst: u64| 5 + (burst << 33);
    assert_eq!(
        calls,
        [next(0), next(0), next(1), next(1), next(2), next(2)]
    );
    assert!(came.kernels.iter().all(|it| it.1 == 1));
    let dispatches: Vec<u64> = came.kernels.iter().map(|it| it.2).collect();
    assert_eq!(dispatches, [1, 2, 3, 4, 5, 6]);
    assert_eq!(came.bursts.len(), 6);
    let mut last = 0;
    for pair in came.bursts.chunks_exact(2) {
        let (begin, all) = (pair[0], pair[1]);
        assert_eq!(
            (begin.from, begin.start, begin.end),
            (all.from, all.start, 0)
        );
        assert!(all.from >= last && all.from < all.start, "{all:?}");
        assert!(
            all.end - all.start >= 20_000_000 && all.end <= all.to,
            "{all:?}"
        );
        // It took some ms at least to see the threads outside of CUPTI.
        assert!(
            begin.switched < all.switched && all.switched > 2_000_000,
            "{all:?}"
        );
        assert_eq!(all.basis, basis::ASSUMED);
        last = all.to;
    }
}

#[test]
fn after_a_graph_there_is_no_further_burst() {
    let (mut attacher, _alone) = Attacher::new();
    let mut bursting = attacher.begin(PERCENT);
    rounds(&mut bursting, |it| it.slots() > 0);
    launch(3);
    rounds(&mut bursting, |it| it.slots() == 0);
    assert!(bursting.is_over && !bursting.is_taken());
    // It goes on, idle, and does not ask for a processor.
    for _ in 0..100 {
        assert!(!bursting.round());
    }
    let told = std::cell::Cell::new(0);
    assert_eq!(
        bursting.finish(now(), false, &|| told.set(told.get() + 1)),
        outcome::BURSTS_ENDED
    );
    assert_eq!((told.get(), finalized()), (1, 0));
    let came = attacher.came();
    assert_eq!((came.kernels.len(), came.bursts.len()), (1, 2));
    let last = came.notes.last().unwrap();
    assert!(
        last.contains("the last burst") && last.contains("(graphs were launched)"),
        "{:?}",
        came.notes
    );
    KEEP_LOADED.store(false, SeqCst);
}

#[test]
fn a_session_that_ends_before_its_first_burst_says_so_and_touches_nothing() {
    let (mut attacher, _alone) = Attacher::new();
    // At 1 % the first one cannot start within the first tenth of a second.
    let mut bursting = attacher.begin(1);
    assert!(!bursting.round());
    assert_eq!(bursting.finish(now(), false, &|| ()), outcome::NO_BURST);
    let came = attacher.came();
    assert!(came.bursts.is_empty() && came.notes.is_empty());
    assert!(fake::with(|fake| fake.log.is_empty()));
}

#[test]
fn a_session_that_ends_within_a_burst_ends_it() {
    let (mut attacher, _alone) = Attacher::new();
    let mut bursting = attacher.begin(PERCENT);
    rounds(&mut bursting, |it| it.slots() > 0);
    launch(0);
    assert_eq!(bursting.finish(now() + 1_000_000_000, false, &|| ()), 0);
    assert_eq!(finalized(), 1);
    let came = attacher.came();
    assert_eq!((came.kernels.len(), came.bursts.len()), (1, 2));
    assert!(came.bursts[1].end > came.bursts[1].start);
    assert_eq!(came.notes, Vec::<String>::new());
}

/// It used CUPTI for the first time while no midair code was there.
#[test]
fn another_profiler_between_bursts_goes_first() {
    let (mut attacher, _alone) = Attacher::new();
    let mut bursting = attacher.begin(PERCENT);
    rounds(&mut bursting, |it| it.slots() > 0);
    launch(0);
    rounds(&mut bursting, |it| it.slots() == 0);
    fake::with(|fake| (fake.used, fake.recorded) = (true, true));
    rounds(&mut bursting, |it| it.is_taken());
    let asked = fake::with(|fake| fake.asked);
    assert_eq!(asked, 0, "the question is not harmless");
    assert_eq!(bursting.finish(now(), true, &|| ()), 0);
    let came = attacher.came();
    assert_eq!((came.kernels.len(), finalized()), (1, 1));
    assert!(
        came.notes[0].contains("another profiler"),
        "{:?}",
        came.notes
    );
    KEEP_LOADED.store(false, SeqCst);
}

#[test]
fn a_cupti_that_refuses_ends_the_bursts_in_its_words() {
    let (mut attacher, _alone) = Attacher::new();
    let mut bursting = attacher.begin(PERCENT);
    fake::with(|fake| fake.refuses = Some(activity_kind::CONCURRENT_KERNEL));
    rounds(&mut bursting, |it| it.is_over);
    assert!(!bursting.is_taken());
    assert_eq!(bursting.finish(now(), false, &|| ()), outcome::NO_BURST);
    let notes = attacher.came().notes;
    assert!(notes[0].contains("cuptiActivityEnable"), "{notes:?}");
    assert!(fake::with(|fake| fake.enabled.is_empty()));
}
