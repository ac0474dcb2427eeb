//! Whole sessions with a CUPTI of our own: counts are exact, losses are counted, other profilers
//! have priority.
#![cfg(target_arch = "x86_64")]

use super::fake::{self, Bytes, alone, cupti, emit, layouts};
use super::*;
use midair_abi::cupti::{flag, result};
use midair_domain::KindSet;
use midair_record::event::{self, Record, cuda_node, cuda_stream};
use midair_record::spool::{DROP_SLOTS, Reader, ReaderOptions};
use std::collections::HashMap;

fn choice(kernels: bool, copies: bool, calls: bool, markers: bool) -> Choice {
    let kinds = KindSet::EMPTY
        .with_if(kind::KERNEL_DISPATCH, kernels)
        .with_if(kind::MEMORY_COPY, copies)
        .with_if(kind::MEMORY_SET, copies)
        .with_if(kind::CUDA_RUNTIME_API, calls)
        .with_if(kind::CUDA_DRIVER_API, calls)
        .with_if(kind::SYNCHRONIZATION, calls)
        .with_if(kind::MARKER_CORE_RANGE_API, markers);
    Choice {
        kinds,
        all_calls: false,
        hw_trace: false,
        stacks: None,
        cupti: None,
    }
}

struct Attacher {
    reader: Reader,
    bytes: Vec<Vec<u8>>,
}

impl Attacher {
    fn new(size: usize) -> Attacher {
        let options = ReaderOptions {
            size,
            settings: Vec::new(),
            drain_ms: 0,
            lease_ms: 0,
            session: 1,
        };
        Attacher {
            reader: Reader::create(&options).unwrap(),
            bytes: Vec::new(),
        }
    }
    fn begin(&self, choice: &Choice) -> Result<Session, Refused> {
        // SAFETY: the reader outlives the session.
        Session::begin(
            &cupti(),
            choice,
            unsafe { sink(self.reader.area().unwrap()) },
            |_| (),
        )
    }
    fn follow(&mut self) {
        let bytes = &mut self.bytes;
        let moved = self.reader.drain(|part| {
            bytes.push(part.to_vec());
            Ok::<(), ()>(())
        });
        moved.unwrap();
    }
    /// All records that came.
    fn each(&self, mut see: impl FnMut(Record<'_>)) {
        for part in &self.bytes {
            let mut rest = part.as_slice();
            while !rest.is_empty() {
                let (record, size) = event::decode(rest).unwrap();
                see(record);
                rest = &rest[size..];
            }
        }
    }
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        self.each(|record| {
            if let Record::Note(text) = record {
                notes.push(String::from_utf8(text.to_vec()).unwrap());
            }
        });
        notes
    }
    fn lost(&self) -> u64 {
        let slots = self.reader.head().dropped.iter().take(DROP_SLOTS);
        slots
            .map(|slot| slot.load(std::sync::atomic::Ordering::Relaxed))
            .sum()
    }
}

fn kernel(
    name: &'static std::ffi::CStr,
    correlation: u64,
    stream: u64,
    start: u64,
    end: u64,
) -> Bytes {
    let l = &layouts().kernel;
    Bytes::of(activity_kind::CONCURRENT_KERNEL)
        .with(l.name, name.as_ptr().expose_provenance() as u64)
        .with(l.correlation_id, correlation)
        .with(l.device_id, 1)
        .with(l.context_id, 2)
        .with(l.stream_id, stream)
        .with(l.grid_x, 4)
        .with(l.grid_y, 2)
        .with(l.grid_z, 1)
        .with(l.block_x, 128)
        .with(l.block_y, 1)
        .with(l.block_z, 1)
        .with(l.static_shared_memory, 64)
        .with(l.dynamic_shared_memory, 32)
        .with(l.registers_per_thread, 40)
        .with(l.start, start)
        .with(l.end, end)
}

fn call(correlation: u64, runtime: bool) -> Bytes {
    let l = &layouts().call;
    let kind = if runtime {
        activity_kind::RUNTIME
    } else {
        activity_kind::DRIVER
    };
    let time = now();
    Bytes::of(kind)
        .with(l.cbid, 211)
        .with(l.correlation_id, correlation)
        .with(l.thread_id, 4711)
        .with(l.return_value, 2)
        .with(l.start, time)
        .with(l.end, time + 10)
}

#[test]
fn every_record_arrives_once_with_its_kernel_stream_and_call() {
    let _alone = alone();
    let mut attacher = Attacher::new(8 << 20);
    let mut session = attacher.begin(&choice(true, true, true, false)).unwrap();
    assert_eq!(session.slots(), 7);
    let begin = now();
    // More than one buffer holds, and a round in between.
    const EACH: u64 = 6000;
    for correlation in 1..=EACH {
        let name = if correlation % 2 == 0 {
            c"_Z5emptyv"
        } else {
            c"_Z3addPf"
        };
        emit(&call(correlation, true));
        emit(&kernel(
            name,
            correlation,
            7 + correlation % 3,
            begin + correlation,
            begin + correlation + 5,
        ));
        if correlation % 1000 == 0 {
            session.tick();
            attacher.follow();
        }
    }
    assert_eq!(session.finish(now() + 2_000_000_000, false, &|| ()), 0);
    attacher.follow();
    let mut kernels = HashMap::new();
    let (mut symbols, mut queues, mut calls) = (HashMap::new(), HashMap::new(), 0);
    attacher.each(|record| match record {
        Record::KernelSymbol(symbol, name) => {
            assert_eq!((symbol.arch_vgpr, symbol.group_segment), (40, 64));
            assert_eq!(symbols.insert(symbol.kernel_id, name.to_vec()), None);
        }
        Record::Queue(queue) => {
            assert_eq!(queue.node, cuda_node(1));
            assert_eq!(queues.insert(queue.queue_id, queue.handle), None);
        }
        Record::Kernel(kernel, Some(launch)) => {
            let name = &symbols[&kernel.kernel_id];
            let odd = kernel.correlation % 2 == 1;
            assert_eq!(
                name.as_slice(),
                if odd { &b"_Z3addPf"[..] } else { b"_Z5emptyv" }
            );
            assert_eq!(
                queues[&kernel.queue_id],
                cuda_stream(2, 7 + kernel.correlation as u32 % 3)
            );
            assert_eq!((kernel.grid, kernel.workgroup), ([512, 2, 1], [128, 1, 1]));
            assert_eq!(
                (
                    kernel.group_segment,
                    launch.dynamic_shared,
                    launch.registers
                ),
                (96, 32, 40)
            );
            // Both clocks are the same here: any drift comes from the brackets of the pairs.
            assert!(kernel.start.abs_diff(begin + kernel.correlation) < 1_000_000);
            assert!((4..=6).contains(&(kernel.end - kernel.start)));
            assert_eq!(kernels.insert(kernel.correlation, kernel.dispatch_id), None);
        }
        Record::Api(api, _) => {
            assert_eq!(
                (api.header.kind, api.header.operation),
                (kind::CUDA_RUNTIME_API, 211)
            );
            assert_eq!((api.tid, api.retval), (4711, 2));
            calls += 1;
        }
        Record::Note(_) => (),
        other => panic!("{other:?}"),
    });
    assert_eq!((kernels.len() as u64, calls), (EACH, EACH));
    assert_eq!((symbols.len(), queues.len(), attacher.lost()), (2, 3, 0));
    let log = fake::with(|fake| fake.log.clone());
    assert_eq!(log.last().map(String::as_str), Some("finalize"));
    assert!(!log.iter().any(|it| it == "subscribe"), "{log:?}");
    let enabled = fake::with(|fake| fake.enabled.len());
    assert_eq!((POOL.outstanding(), enabled), (0, 0));
}

#[test]
fn records_without_a_buffer_are_counted_and_the_rest_arrives() {
    let _alone = alone();
    let mut attacher = Attacher::new(256 << 20);
    let session = attacher.begin(&choice(true, false, false, false)).unwrap();
    let time = now();
    let record = kernel(c"k", 1, 1, time, time + 1);
    // No thread reads meanwhile: the pool runs dry.
    let all = (BUFFERS + 2) * BUFFER / layouts().kernel.size;
    (0..all).for_each(|_| emit(&record));
    session.finish(now() + 20_000_000_000, false, &|| ());
    attacher.follow();
    let mut kernels = 0;
    attacher.each(|record| kernels += usize::from(matches!(record, Record::Kernel(..))));
    let dropped = fake::with(|fake| fake.dropped_ever);
    assert!(dropped > 0);
    assert_eq!(kernels + dropped, all);
    assert_eq!(attacher.lost(), dropped as u64);
    let notes = attacher.notes();
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with(&format!("{dropped} records were dropped"))),
        "{notes:?}"
    );
}

#[test]
fn a_slow_reader_is_waited_for() {
    let _alone = alone();
    // The spool is smaller than two buffers.
    let mut attacher = Attacher::new(1 << 20);
    let mut session = attacher.begin(&choice(true, false, false, false)).unwrap();
    let time = now();
    let all = 4 * BUFFER / layouts().kernel.size;
    for correlation in 0..all as u64 {
        emit(&kernel(c"k", correlation, 1, time, time + 1));
    }
    for _ in 0..5 {
        session.tick();
    }
    let finished = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let finished = &finished;
        // The session moves to another thread here; in a target the worker thread has it all the
        // time.
        let session = Owned(session);
        let ends = scope.spawn(move || {
            let session = session;
            session.0.finish(now() + 20_000_000_000, false, &|| ());
            finished.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !finished.load(std::sync::atomic::Ordering::SeqCst) {
            attacher.follow();
            std::thread::yield_now();
        }
        ends.join().unwrap();
    });
    attacher.follow();
    let mut kernels = 0;
    attacher.each(|record| kernels += usize::from(matches!(record, Record::Kernel(..))));
    assert_eq!((kernels, attacher.lost()), (all, 0));
}

struct Owned(Session);
// SAFETY: only one thread has it at a time; its pointers are to midair's buffers.
unsafe impl Send for Owned {}

#[test]
fn another_profilers_recording_is_left_alone() {
    let _alone = alone();
    // A profiler that is only subscribed is no obstacle.
    fake::with(|fake| (fake.used, fake.recorded, fake.subscriber) = (true, true, true));
    let attacher = Attacher::new(1 << 20);
    let refused = attacher.begin(&choice(true, true, true, true)).unwrap_err();
    assert_eq!(refused.status, status::OTHER_PROFILER);
    fake::with(|fake| {
        assert!(fake.subscriber && fake.enabled.is_empty());
        assert_eq!(fake.log, Vec::<String>::new());
        fake.recorded = false;
    });
    let session = attacher.begin(&choice(true, true, true, true)).unwrap();
    session.finish(now(), false, &|| ());
    assert!(fake::with(|fake| fake.subscriber));
}

#[test]
fn cupti_is_finalized_after_every_kind_and_never_after_graphs() {
    let _alone = alone();
    let finalized = |choice: &Choice, graph: u64| {
        let mut attacher = Attacher::new(1 << 20);
        fake::with(|fake| fake.log.clear());
        let session = attacher.begin(choice).unwrap();
        let time = now();
        emit(&kernel(c"k", 1, 1, time, time + 1).with(layouts().kernel.graph_id, graph));
        session.finish(now() + 1_000_000_000, false, &|| ());
        attacher.follow();
        let finalized = fake::with(|fake| fake.log.last().map(String::as_str) == Some("finalize"));
        let stays = |text: &String| text.starts_with("CUPTI stays");
        assert_eq!(attacher.notes().iter().any(stays), !finalized);
        finalized
    };
    assert!(finalized(&choice(true, true, false, false), 0));
    assert!(finalized(&choice(true, false, false, false), 0));
    assert!(!finalized(&choice(true, false, false, false), 9));
    // The process has graphs: for good.
    assert!(!finalized(&choice(true, false, false, false), 0));
    KEEP_LOADED.store(false, SeqCst);
    assert!(finalized(&choice(true, false, true, false), 0));
    assert!(finalized(&choice(true, false, false, false), 0));
    assert!(finalized(&choice(true, false, false, true), 0));
    let memory = KindSet::of(&[
        kind::KERNEL_DISPATCH,
        kind::MEMORY_ALLOCATION,
        kind::UNIFIED_MEMORY,
    ]);
    let memory = Choice {
        kinds: memory,
        all_calls: false,
        hw_trace: false,
        stacks: None,
        cupti: None,
    };
    assert!(finalized(&memory, 0));
    assert!(finalized(&choice(true, false, false, false), 0));
    for word in [&KEEP_LOADED, &USED] {
        word.store(false, SeqCst);
    }
    // Another user was the first to use it.
    // SAFETY: the fake's function: its thread ends.
    unsafe { (cupti().functions().finalize)() };
    while workers::are_ours() {
        std::thread::yield_now();
    }
    fake::with(|fake| *fake = fake::Fake::default());
    fake::with(|fake| fake.used = true);
    assert!(!finalized(&choice(true, false, false, false), 0));
}

#[test]
fn calls_that_only_ask_are_left_out_by_cupti_unless_all_are_wanted() {
    let _alone = alone();
    let call = |runtime: bool, name: &str| {
        let id = if runtime {
            midair_abi::cupti::runtime_cbid(name)
        } else {
            midair_abi::cupti::driver_cbid(name)
        };
        (runtime, id.unwrap())
    };
    let left_out = |all_calls: bool| {
        let mut attacher = Attacher::new(1 << 20);
        fake::with(|fake| fake.left_out.clear());
        let wanted = Choice {
            all_calls,
            ..choice(true, false, true, false)
        };
        let session = attacher.begin(&wanted).unwrap();
        let left_out = fake::with(|fake| fake.left_out.clone());
        session.finish(now() + 1_000_000_000, false, &|| ());
        attacher.follow();
        left_out
    };
    let most = left_out(false);
    for silent in [
        call(true, "cudaGetDevice"),
        call(true, "cudaGetLastError"),
        call(false, "cuCtxGetCurrent"),
        call(false, "cuDevicePrimaryCtxGetState"),
        (false, OWN_CALL),
    ] {
        assert!(most.contains(&silent), "{silent:?} of {most:?}");
    }
    for said in [
        call(true, "cudaLaunchKernel"),
        call(true, "cudaEventQuery"),
        call(false, "cuStreamSynchronize"),
    ] {
        assert!(!most.contains(&said), "{said:?}");
    }
    assert_eq!(left_out(true), [(false, OWN_CALL)]);
    // Otherwise threads may have one correlation id for all later calls.
    assert_eq!(fake::with(|fake| fake.left_out_at_the_end), 0);
}

/// CUPTI takes 2 s for it; the other kinds must not go on meanwhile.
#[test]
fn counters_of_unified_memory_are_disabled_last() {
    let _alone = alone();
    let mut attacher = Attacher::new(1 << 20);
    let mut wanted = choice(true, true, true, true);
    wanted.kinds = wanted
        .kinds
        .with_if(kind::MEMORY_ALLOCATION, true)
        .with_if(kind::UNIFIED_MEMORY, true);
    let session = attacher.begin(&wanted).unwrap();
    session.finish(now() + 1_000_000_000, false, &|| ());
    attacher.follow();
    let disabled = fake::with(|fake| fake.disabled.clone());
    assert!(disabled.len() > 5, "{disabled:?}");
    assert_eq!(
        disabled.last(),
        Some(&activity_kind::UNIFIED_MEMORY_COUNTER)
    );
}

/// Finalized, CUPTI would wait for the device, or spoil a graph.
#[test]
fn cupti_stays_after_a_long_kernel_and_after_graphs_of_copies_only() {
    let _alone = alone();
    let finalized = |record: Bytes| {
        let mut attacher = Attacher::new(1 << 20);
        fake::with(|fake| fake.log.clear());
        let session = attacher.begin(&choice(true, true, false, false)).unwrap();
        emit(&record);
        session.finish(now() + 1_000_000_000, false, &|| ());
        attacher.follow();
        KEEP_LOADED.store(false, SeqCst);
        fake::with(|fake| fake.log.last().map(String::as_str) == Some("finalize"))
    };
    let copied = |graph: u64, node: u64| {
        let (l, time) = (&layouts().memcpy, now());
        Bytes::of(activity_kind::MEMCPY)
            .with(l.copy_kind, 8)
            .with(l.bytes, 64)
            .with(l.device_id, 1)
            .with(l.context_id, 2)
            .with(l.start, time)
            .with(l.end, time + 10)
            .with(l.graph_id, graph)
            .with(l.graph_node_id, node)
    };
    assert!(finalized(copied(0, 0)));
    assert!(!finalized(copied(9, 0)));
    assert!(!finalized(copied(0, 9)));
    let time = now();
    let ms = 1_000_000;
    assert!(finalized(kernel(c"k", 1, 1, time, time + 99 * ms)));
    assert!(!finalized(kernel(c"k", 1, 1, time, time + 101 * ms)));
}

#[test]
fn the_first_user_of_cupti_asks_no_question() {
    let _alone = alone();
    let attacher = Attacher::new(1 << 20);
    let asked = |choice: &Choice| {
        let session = attacher.begin(choice).unwrap();
        session.finish(now(), false, &|| ());
        fake::with(|fake| std::mem::take(&mut fake.asked))
    };
    // Its threads are new each time.
    assert_eq!(asked(&choice(true, false, false, false)), 0);
    assert_eq!(asked(&choice(true, false, true, false)), 0);
    assert_eq!(asked(&choice(true, false, false, true)), 0);
    // CUPTI stays, and no other has used it.
    KEEP_LOADED.store(true, SeqCst);
    for _ in 0..3 {
        assert_eq!(asked(&choice(true, false, false, false)), 0);
    }
    // Another profiler comes after the session, and does not wait. What a thread recorded for it meanwhile is returned
    // to it before CUPTI gets our buffers.
    std::thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            let mut subscriber = std::ptr::null_mut();
            // SAFETY: the fake's function.
            unsafe {
                (cupti().functions().subscribe)(&raw mut subscriber, None, std::ptr::null_mut())
            }
        });
        assert_eq!(theirs.join().unwrap(), 0);
    });
    fake::with(|fake| fake.log.clear());
    assert_eq!(asked(&choice(true, false, false, false)), 1);
    let log = fake::with(|fake| std::mem::take(&mut fake.log));
    assert_eq!(log.first().map(String::as_str), Some("flush"), "{log:?}");
}

#[test]
fn records_in_another_profilers_buffer_are_read() {
    let _alone = alone();
    let mut attacher = Attacher::new(1 << 20);
    let mut theirs = vec![0_u8; 1 << 16];
    let session = attacher.begin(&choice(true, false, false, false)).unwrap();
    let place = (theirs.as_mut_ptr().expose_provenance(), theirs.len(), 0);
    fake::with(|fake| fake.buffer = Some(place));
    let time = now();
    emit(&kernel(c"in theirs", 1, 1, time, time + 1));
    session.finish(now() + 1_000_000_000, false, &|| ());
    attacher.follow();
    let mut kernels = 0;
    attacher.each(|record| kernels += usize::from(matches!(record, Record::Kernel(..))));
    assert_eq!((kernels, attacher.lost()), (1, 0));
    assert_eq!(attacher.notes().len(), 1, "{:?}", attacher.notes());
    assert!(attacher.notes()[0].starts_with("1 buffers of another profiler had"));
}

#[test]
fn threads_have_system_thread_ids() {
    let _alone = alone();
    fake::with(|fake| fake.by_half = true);
    let mut attacher = Attacher::new(1 << 20);
    let session = attacher.begin(&choice(false, false, true, false)).unwrap();
    let tids: Vec<u64> = (0..3)
        .map(|_| {
            let caller = std::thread::spawn(|| {
                let this = caller();
                emit(&call(1, true).with(layouts().call.thread_id, this >> 32));
                // Its own buffer is returned: the next thread requests one.
                // SAFETY: the fake's function.
                unsafe { (cupti().functions().flush_all)(0) };
                this & 0xffff_ffff
            });
            caller.join().unwrap()
        })
        .collect();
    session.finish(now() + 1_000_000_000, false, &|| ());
    attacher.follow();
    let mut told = Vec::new();
    attacher.each(|record| {
        if let Record::Api(api, _) = record {
            told.push(u64::from(api.tid));
        }
    });
    assert_eq!(told, tids);
}

#[test]
fn kinds_that_cannot_be_enabled_are_refused_or_noted() {
    let _alone = alone();
    fake::with(|fake| fake.refuses = Some(activity_kind::CONCURRENT_KERNEL));
    let attacher = Attacher::new(1 << 20);
    let refused = attacher
        .begin(&choice(true, true, false, false))
        .unwrap_err();
    assert_eq!(refused.status, status::NO_CUPTI);
    for part in [
        "CUPTI 13.0",
        "cuptiActivityEnable(CONCURRENT_KERNEL)",
        "INSUFFICIENT_PRIVILEGES",
    ] {
        assert!(refused.text.contains(part), "{}", refused.text);
    }
    fake::with(|fake| {
        assert!(fake.enabled.is_empty() && !fake.subscriber);
        assert_eq!(fake.log.last().map(String::as_str), Some("finalize"));
        fake.refuses = Some(activity_kind::MARKER);
    });
    let mut attacher = Attacher::new(1 << 20);
    let session = attacher.begin(&choice(true, false, false, true)).unwrap();
    assert_eq!((session.slots(), KEEP_LOADED.load(SeqCst)), (1, false));
    session.finish(now(), false, &|| ());
    attacher.follow();
    assert!(attacher.notes()[0].starts_with("cuptiActivityEnable(MARKER) says"));
    fake::with(|fake| fake.refuses = Some(activity_kind::MARKER));
    let refused = attacher
        .begin(&choice(false, false, false, true))
        .unwrap_err();
    assert_eq!(refused.status, status::NO_CUPTI);
}

#[test]
fn another_profiler_subscribes_only_after_the_session() {
    let _alone = alone();
    let mut attacher = Attacher::new(1 << 20);
    for round in 0..5 {
        let session = attacher.begin(&choice(true, false, false, false)).unwrap();
        assert!(session.watch.is_some());
        let time = now();
        emit(&kernel(c"k", round, 1, time, time + 1));
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                let functions = *cupti().functions();
                let mut subscriber = std::ptr::null_mut();
                // SAFETY: the fake's function.
                let code = unsafe {
                    (functions.subscribe)(&raw mut subscriber, None, std::ptr::null_mut())
                };
                fake::with(|fake| fake.log.push("theirs".to_owned()));
                code
            });
            while !session.is_requested() {
                std::thread::yield_now();
            }
            assert!(!fake::with(|fake| fake.subscriber));
            session.finish(now() + 1_000_000_000, true, &|| ());
            assert_eq!(theirs.join().unwrap(), 0);
        });
        fake::with(|fake| {
            let at = |what: &str| fake.log.iter().rposition(|it| it == what);
            assert!(at("flush") < at("theirs"), "{:?}", fake.log);
            assert!(at("finalize").is_none() && fake.enabled.is_empty());
            fake.subscriber = false;
        });
    }
    attacher.follow();
    let mut kernels = 0;
    attacher.each(|record| kernels += usize::from(matches!(record, Record::Kernel(..))));
    assert_eq!((kernels, attacher.lost()), (5, 0));
}

#[test]
fn ranges_have_begin_and_end_and_open_ones_are_recorded() {
    let _alone = alone();
    let mut attacher = Attacher::new(1 << 20);
    let session = attacher.begin(&choice(false, false, false, true)).unwrap();
    let l = &layouts().marker;
    let time = now();
    let marker = |flags: u32, at: u64, name: Option<&'static std::ffi::CStr>| {
        let name = name.map_or(0, |name| name.as_ptr().expose_provenance() as u64);
        Bytes::of(activity_kind::MARKER)
            .with(l.flags, flags.into())
            .with(l.timestamp, time + at)
            .with(l.thread_id, 99)
            .with(l.name, name)
            .with(l.domain, 0)
    };
    emit(&marker(flag::MARKER_END, 1, None));
    emit(&marker(flag::MARKER_START, 2, Some(c"step")));
    emit(&marker(flag::MARKER_START, 3, Some(c"forward")));
    emit(&marker(flag::MARKER_INSTANTANEOUS, 4, Some(c"here")));
    emit(&marker(flag::MARKER_END, 5, None));
    session.finish(now() + 1_000_000_000, false, &|| ());
    attacher.follow();
    let mut told = Vec::new();
    attacher.each(|record| {
        if let Record::Marker(marker, text) = record {
            assert_eq!(marker.tid, 99);
            let open = marker.header.flags == event::flag::OPEN_AT_DETACH;
            told.push((
                marker.header.operation,
                String::from_utf8(text.to_vec()).unwrap(),
                open,
            ));
        }
    });
    let expected = [(0, "here", false), (1, "forward", false), (1, "step", true)];
    assert_eq!(
        told,
        expected.map(|(operation, text, open)| (operation, text.to_owned(), open))
    );
    let notes = attacher.notes();
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("1 NVTX ranges ended that had started before")),
        "{notes:?}"
    );
}

#[test]
fn buffers_that_cannot_be_read_are_counted() {
    let _alone = alone();
    let mut attacher = Attacher::new(1 << 20);
    let session = attacher.begin(&choice(true, false, false, false)).unwrap();
    let time = now();
    fake::with(|fake| fake.end = result::ERROR_UNKNOWN);
    emit(&kernel(c"k", 1, 1, time, time + 1));
    emit(&kernel(c"k", 2, 1, 0, 0));
    let left = session.finish(now() + 1_000_000_000, false, &|| ());
    assert_eq!(left, midair_record::spool::outcome::STILL_RUNNING);
    attacher.follow();
    let mut flags = Vec::new();
    attacher.each(|record| {
        if let Record::Kernel(kernel, _) = record {
            flags.push((kernel.header.flags & event::flag::UNTIMED, kernel.untimed));
        }
    });
    assert_eq!(
        flags,
        [
            (0, 0),
            (event::flag::UNTIMED, event::Untimed::RunningAtDetach as u32)
        ]
    );
    assert_eq!(attacher.lost(), 1);
    assert!(
        attacher
            .notes()
            .iter()
            .any(|note| note.contains("could not be read completely"))
    );
}

/// As when a thread that makes a context returns from CUPTI after the last flush (H200, CUPTI 13.5).
#[test]
fn a_buffer_that_comes_after_the_last_flush_is_read() {
    for stays in [false, true] {
        let _alone = alone();
        let mut attacher = Attacher::new(1 << 20);
        let session = attacher.begin(&choice(true, false, true, false)).unwrap();
        KEEP_LOADED.store(stays, SeqCst);
        fake::with(|fake| fake.returns_late = true);
        let time = now();
        emit(&kernel(c"k", 1, 1, time, time + 1));
        session.finish(now() + 1_000_000_000, false, &|| ());
        attacher.follow();
        let mut kernels = 0;
        attacher.each(|record| kernels += usize::from(matches!(record, Record::Kernel(..))));
        assert_eq!((kernels, attacher.lost()), (1, 0), "stays: {stays}");
    }
}

/// CPU time of this thread, ns: other programs do not count.
fn spent() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn the_drain_is_faster_than_any_gpu_launches() {
    let _alone = alone();
    let mut attacher = Attacher::new(64 << 20);
    let mut session = attacher.begin(&choice(true, false, true, false)).unwrap();
    let (mut count, mut time) = (0_u64, 0);
    let names = [c"_Z5emptyv", c"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"];
    for _ in 0..20 {
        let at = now();
        for correlation in 0..6000_u64 {
            emit(&call(correlation, true));
            emit(&kernel(
                names[correlation as usize % 2],
                correlation,
                correlation % 4,
                at,
                at + 5,
            ));
            count += 2;
        }
        fake::with(|_| ());
        let begin = spent();
        session.tick();
        time += spent() - begin;
        attacher.follow();
    }
    session.finish(now() + 2_000_000_000, false, &|| ());
    attacher.follow();
    let mut arrived = 0;
    attacher.each(|record| {
        arrived += u64::from(matches!(record, Record::Kernel(..) | Record::Api(..)))
    });
    assert_eq!((arrived, attacher.lost()), (count, 0));
    let rate = count * 1_000_000 / (time / 1000).max(1);
    println!("{rate} records/s of one core");
    // The target for a release build is 2,000,000; this is a debug build.
    assert!(rate > 300_000, "{rate} records/s");
}

#[test]
fn the_call_that_cupti_makes_itself_has_its_number() {
    assert_eq!(
        midair_abi::cupti::driver_name(super::OWN_CALL),
        Some("cuKernelGetName")
    );
}
