//! Tests of the engine on rings made by the tests.

use super::*;
use crate::log::{Event, Packet};
use crate::pmu::Pmu;
use std::cell::{Cell, RefCell};

/// A machine with memory from address 0 on, a clock that only the test advances, and a log.
pub(crate) struct Bench {
    memory: RefCell<Vec<u8>>,
    pub(crate) now: Cell<u64>,
    raised: RefCell<Vec<u32>>,
    pub(crate) log: RefCell<Vec<(u32, Event)>>,
    /// The value of signal 0 when the last record was written, which shows that the log is written
    /// before the completion.
    value_at_log: Cell<u64>,
    mappings: Cell<u64>,
    pub(crate) pmu: Pmu,
}

const QUEUE: u64 = 0x1000;
const RING: u64 = 0x2000;
const PACKETS: u64 = 4;
const DOORBELL_SIGNAL: u64 = 0x3000;
const DOORBELL: u64 = 0x3100;
const SIGNAL: u64 = 0x4000;
const OTHER: u64 = 0x4100;
const MAILBOX: u64 = 0x4200;
const WRITE: u64 = QUEUE + 56;
const READ: u64 = QUEUE + 128;
const PROPERTIES: u64 = QUEUE + 180;

impl Bench {
    pub(crate) fn new() -> Bench {
        let bench = Bench {
            memory: RefCell::new(vec![0; 0x2_0000]),
            now: Cell::new(1_000),
            raised: RefCell::default(),
            log: RefCell::default(),
            value_at_log: Cell::new(0),
            mappings: Cell::new(0),
            pmu: Pmu::new(Settings::default().rules()),
        };
        bench.store_u64(QUEUE + 16, DOORBELL_SIGNAL);
        bench.store_u64(DOORBELL_SIGNAL + 8, DOORBELL);
        for slot in 0..PACKETS {
            bench.store_u16(RING + 64 * slot, 1);
        }
        bench.store_u64(SIGNAL + 8, 1);
        bench.store_u64(SIGNAL + 16, MAILBOX);
        bench.store_u64(SIGNAL + 24, 77);
        bench
    }
    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        self.memory.borrow()[at as usize..][..N].try_into().unwrap()
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn events(&self) -> Vec<Event> {
        self.log
            .take()
            .into_iter()
            .map(|(_, event)| event)
            .collect()
    }
    /// Writes a packet at `index`, its header last.
    fn put(&self, index: u64, words: [u64; 8]) {
        let at = RING + 64 * (index % PACKETS);
        for (n, word) in words.iter().enumerate().rev() {
            self.store_u64(at + 8 * n as u64, *word);
        }
    }
    fn ring(&self, index: u64) {
        self.store_u64(DOORBELL, index);
    }
}

impl Machine for Bench {
    fn load_u16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at))
    }
    fn load_u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(at))
    }
    fn load_u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at))
    }
    fn store_u16(&self, at: u64, value: u16) {
        self.write(at, &value.to_le_bytes());
    }
    fn store_u32(&self, at: u64, value: u32) {
        self.write(at, &value.to_le_bytes());
    }
    fn store_u64(&self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }
    fn add_u64(&self, at: u64, value: u64) {
        self.store_u64(at, self.load_u64(at).wrapping_add(value));
    }
    fn swap_u64(&self, at: u64, from: u64, to: u64) -> bool {
        let same = self.load_u64(at) == from;
        if same {
            self.store_u64(at, to);
        }
        same
    }
    fn increment_u32(&self, at: u64) -> u32 {
        let before = self.load_u32(at);
        self.store_u32(at, before.wrapping_add(1));
        before
    }
    fn copy(&self, to: u64, from: u64, bytes: u64) {
        self.memory
            .borrow_mut()
            .copy_within(from as usize..(from + bytes) as usize, to as usize);
    }
    fn fill(&self, to: u64, pattern: &[u8], bytes: u64) {
        for (n, byte) in pattern.iter().cycle().take(bytes as usize).enumerate() {
            self.write(to + n as u64, &[*byte]);
        }
    }
    fn now(&self) -> u64 {
        self.now.get()
    }
    fn raise(&self, event: u32) {
        self.raised.borrow_mut().push(event);
    }
    fn mappings(&self) -> u64 {
        self.mappings.get()
    }
    fn pmu(&self) -> Option<&Pmu> {
        Some(&self.pmu)
    }
    fn log(&self, queue: u32, event: &Event) {
        self.value_at_log.set(self.load_u64(SIGNAL + 8));
        self.log.borrow_mut().push((queue, event.clone()));
    }
}

fn place() -> Place {
    Place {
        number: 3,
        ring: RING,
        ring_bytes: 64 * PACKETS,
        write_index_at: WRITE,
        read_index_at: READ,
        doorbell_at: 0,
    }
}

fn aql(bench: &Bench, settings: Settings) -> Engine {
    let mut engine = Engine::new(false, place(), Arc::new(settings), bench);
    // The engine looks at the empty queue once, as its thread does, and so finds the doorbell.
    assert_eq!(engine.step(bench), Step::Idle { near: false });
    engine
}

fn dispatch(grid: u64, signal: u64) -> [u64; 8] {
    let header = 0x1502 | 2 << 16 | 256 << 32 | 1 << 48;
    [
        header,
        1 | grid << 32,
        4 | 1 << 32,
        16 | 128 << 32,
        0xabc0,
        0xdef0,
        0,
        signal,
    ]
}

/// Returns a vendor packet for five clusters of two workgroups of 64.
fn ext_dispatch(dep: u64, signal: u64) -> [u64; 8] {
    let header = 0x1500 | 3 << 16 | 1 << 24 | 64 << 32 | 1 << 48;
    [
        header,
        1 | 5 << 32,
        1 | 1 << 16 | (2 | 1 << 8 | 1 << 16) << 32,
        16 | 128 << 32,
        0xabc0,
        0xdef0,
        dep,
        signal,
    ]
}

#[test]
fn a_dispatch_as_a_vendor_packet_waits_for_its_signal_and_runs() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    bench.store_u32(PROPERTIES, 1 << 3);
    bench.store_u64(OTHER + 8, 1);
    bench.store_u64(WRITE, 1);
    bench.put(0, ext_dispatch(OTHER, SIGNAL));
    bench.ring(0);
    assert_eq!(queue.step(&bench), Step::Idle { near: false });
    assert_eq!(bench.load_u64(READ), 0, "it stays in the ring meanwhile");
    bench.store_u64(OTHER + 8, 0);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(bench.load_u64(READ), 1);
    assert_eq!(queue.step(&bench), Step::Busy(50_000));
    bench.now.set(51_000);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(bench.load_u64(SIGNAL + 8), 0);
    assert_eq!(
        (bench.load_u64(SIGNAL + 32), bench.load_u64(SIGNAL + 40)),
        (1_000, 51_000)
    );
    let events = bench.events();
    let [Event::Dispatch(ran)] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((ran.format, ran.setup), (3, 1));
    assert_eq!((ran.workgroup, ran.grid), ([64, 1, 1], [640, 1, 1]));
    assert_eq!((ran.kernel_object, ran.kernarg), (0xabc0, 0xdef0));
}

fn barrier(kind: u64, deps: [u64; 5], signal: u64) -> [u64; 8] {
    [kind, deps[0], deps[1], deps[2], deps[3], deps[4], 0, signal]
}

#[test]
fn a_dispatch_waits_for_its_doorbell_and_for_its_time() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    bench.store_u32(PROPERTIES, 1 << 3);
    bench.store_u64(WRITE, 1);
    bench.put(0, dispatch(1024, SIGNAL));
    assert_eq!(
        queue.step(&bench),
        Step::Idle { near: true },
        "not rung: the untouched doorbell must not ring packet 0"
    );
    bench.ring(0);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(
        (bench.load_u64(READ), bench.load_u16(RING)),
        (1, 1),
        "the slot is free at launch"
    );
    assert_eq!(queue.step(&bench), Step::Busy(50_000));
    assert_eq!(bench.load_u64(SIGNAL + 8), 1);
    bench.now.set(51_000);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(
        bench.value_at_log.get(),
        1,
        "the record is out before the completion can be seen"
    );
    assert_eq!(bench.load_u64(SIGNAL + 8), 0);
    assert_eq!(
        (bench.load_u64(SIGNAL + 32), bench.load_u64(SIGNAL + 40)),
        (1_000, 51_000)
    );
    assert_eq!(
        (bench.load_u64(MAILBOX), bench.raised.take()),
        (77, vec![77])
    );
    let expected = crate::log::Dispatch {
        packet: Packet {
            ring: RING,
            index: 0,
            header: 0x1502,
            signal: SIGNAL,
            start: 1_000,
            end: 51_000,
            times_written: true,
            doorbell: 0,
        },
        format: 0,
        setup: 2,
        workgroup: [256, 1, 1],
        grid: [1024, 4, 1],
        private_size: 16,
        group_size: 128,
        kernel_object: 0xabc0,
        kernarg: 0xdef0,
    };
    assert_eq!(bench.events(), [Event::Dispatch(expected)]);
}

#[test]
fn an_event_without_a_mailbox_is_raised_and_a_signal_without_an_event_raises_nothing() {
    for (event, raised) in [(77, vec![77]), (0, vec![])] {
        let bench = Bench::new();
        let mut queue = aql(
            &bench,
            Settings {
                kernel_ns: 0,
                ..Default::default()
            },
        );
        bench.store_u64(SIGNAL + 16, 0);
        bench.store_u64(SIGNAL + 24, event);
        bench.store_u64(WRITE, 1);
        bench.put(0, dispatch(1, SIGNAL));
        bench.ring(0);
        assert_eq!(
            (queue.step(&bench), queue.step(&bench)),
            (Step::Progress, Step::Progress)
        );
        assert_eq!(
            (bench.load_u64(SIGNAL + 8), bench.raised.take()),
            (0, raised)
        );
        assert_eq!(bench.load_u64(0), 0, "nothing is written to address 0");
    }
}

#[test]
fn times_are_written_only_where_profiling_is_on() {
    for (always, written) in [(false, 0), (true, 1_000)] {
        let bench = Bench::new();
        let mut queue = aql(
            &bench,
            Settings {
                kernel_ns: 0,
                always_time: always,
                ..Default::default()
            },
        );
        bench.store_u64(WRITE, 1);
        bench.put(0, dispatch(1, SIGNAL));
        bench.ring(0);
        assert_eq!(
            (queue.step(&bench), queue.step(&bench)),
            (Step::Progress, Step::Progress)
        );
        assert_eq!(bench.load_u64(SIGNAL + 32), written);
        let [Event::Dispatch(d)] = bench.events()[..] else {
            panic!("one dispatch")
        };
        assert_eq!(d.packet.times_written, always);
    }
}

/// Returns whether the next dispatch gets times.
fn is_timed(bench: &Bench, queue: &mut Engine, index: u64) -> bool {
    bench.put(index, dispatch(64, SIGNAL));
    bench.store_u64(WRITE, index + 1);
    bench.ring(index);
    assert_eq!(queue.step(bench), Step::Progress);
    bench.now.set(bench.now.get() + 100_000);
    assert_eq!(queue.step(bench), Step::Progress);
    match bench.events().last() {
        Some(Event::Dispatch(dispatch)) => dispatch.packet.times_written,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_profiling_bit_is_taken_up_at_the_first_dispatch_after_a_mapping() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    assert!(!is_timed(&bench, &mut queue, 0));
    bench.store_u32(PROPERTIES, 1 << 3);
    assert!(!is_timed(&bench, &mut queue, 1), "set too late");
    bench.mappings.set(1);
    assert!(is_timed(&bench, &mut queue, 2), "mapped anew");
    bench.store_u32(PROPERTIES, 0);
    assert!(is_timed(&bench, &mut queue, 3), "cleared too late");
    let friendly = Settings {
        latch: false,
        ..Settings::default()
    };
    let bench = Bench::new();
    let mut queue = aql(&bench, friendly);
    assert!(!is_timed(&bench, &mut queue, 0));
    bench.store_u32(PROPERTIES, 1 << 3);
    assert!(is_timed(&bench, &mut queue, 1));
}

#[test]
fn a_gap_stops_the_queue_until_it_is_closed_and_the_ring_wraps() {
    let bench = Bench::new();
    let mut queue = aql(
        &bench,
        Settings {
            kernel_ns: 0,
            ..Default::default()
        },
    );
    let mut seen = Vec::new();
    for round in 0..5u64 {
        bench.store_u64(WRITE, 3 * round + 3);
        bench.put(3 * round, dispatch(3 * round, 0));
        bench.put(3 * round + 2, dispatch(3 * round + 2, 0));
        bench.ring(3 * round + 2);
        while queue.step(&bench) == Step::Progress {}
        assert_eq!(
            bench.load_u64(READ),
            3 * round + 1,
            "stops at the packet that is not written"
        );
        bench.put(3 * round + 1, dispatch(3 * round + 1, 0));
        while queue.step(&bench) == Step::Progress {}
        seen.extend(bench.events());
    }
    let grids: Vec<u32> = seen
        .iter()
        .map(|e| {
            if let Event::Dispatch(d) = e {
                d.grid[0]
            } else {
                u32::MAX
            }
        })
        .collect();
    assert_eq!(grids, (0..15).collect::<Vec<u32>>());
}

#[test]
fn eager_takes_what_is_valid_without_a_doorbell_and_nothing_that_is_not() {
    let bench = Bench::new();
    let mut queue = Engine::new(
        false,
        place(),
        Arc::new(Settings {
            kernel_ns: 0,
            eager: true,
            ..Default::default()
        }),
        &bench,
    );
    let _ = queue.step(&bench);
    bench.store_u64(WRITE, 2);
    for _ in 0..100 {
        assert_eq!(
            queue.step(&bench),
            Step::Idle { near: true },
            "the packet is not valid yet"
        );
    }
    bench.put(0, dispatch(9, 0));
    let mut looks = 0;
    while bench.load_u64(READ) == 0 {
        let _ = queue.step(&bench);
        looks += 1;
        assert!(looks < 64, "64 tails in a row");
    }
    while queue.step(&bench) == Step::Progress {}
    let [Event::Dispatch(d)] = bench.events()[..] else {
        panic!("one dispatch")
    };
    assert_eq!((d.packet.index, d.packet.doorbell), (0, -1));
}

#[test]
fn an_overwritten_doorbell_is_recovered_and_none_is_invented() {
    let bench = Bench::new();
    let settings = Settings {
        kernel_ns: 0,
        ..Default::default()
    };
    let mut queue = aql(&bench, settings);
    bench.store_u64(WRITE, 4);
    for index in 0..3 {
        bench.put(index, dispatch(index, 0));
    }
    // Packet 2 was rung, then packet 0, before the model looked.
    bench.ring(2);
    bench.ring(0);
    while queue.step(&bench) == Step::Progress {}
    assert_eq!(bench.load_u64(READ), 1);
    // Packet 3 becomes valid after the last ring.
    bench.put(3, dispatch(3, 0));
    bench.now.set(1_000 + 20_000_001);
    while queue.step(&bench) == Step::Progress {}
    assert_eq!(
        bench.load_u64(READ),
        3,
        "packets that were valid at the ring are taken, the one after them is not"
    );
    bench.now.set(1_000_000_000);
    assert_eq!(queue.step(&bench), Step::Idle { near: true });
    bench.ring(3);
    while queue.step(&bench) == Step::Progress {}
    assert_eq!(bench.load_u64(READ), 4);
    // A late ring for a packet that was taken already changes nothing.
    bench.ring(1);
    assert_eq!(queue.step(&bench), Step::Idle { near: false });
    let told: Vec<i64> = bench
        .events()
        .iter()
        .map(|e| {
            if let Event::Dispatch(d) = e {
                d.packet.doorbell
            } else {
                9
            }
        })
        .collect();
    assert_eq!(told, [0, 0, 0, 3]);
}

#[test]
fn barriers_wait_for_what_they_name() {
    // (packet, signal values at which it waits, signal values at which it passes); the signals are
    // SIGNAL and OTHER.
    let and = barrier(3, [SIGNAL, 0, 0, 0, OTHER], 0);
    let or = barrier(5, [SIGNAL, 0, 0, OTHER, 0], 0);
    let value = |condition: u64| [2 << 16, SIGNAL, 5, 0xff, condition, 0, 0, 0];
    type Values = (u64, u64);
    let cases: [([u64; 8], Option<Values>, Values); 8] = [
        (and, Some((0, 1)), (0, 0)),
        (and, Some((1, 0)), (0, 0)),
        (or, Some((1, 1)), (1, 0)),
        (barrier(5, [0; 5], 0), None, (1, 1)),
        (value(0), Some((6, 0)), (0x105, 0)),
        (value(1), Some((5, 0)), (6, 0)),
        (value(2), Some((5, 0)), (4, 0)),
        (value(3), Some((4, 0)), (5, 0)),
    ];
    for (n, (packet, waits, passes)) in cases.into_iter().enumerate() {
        let bench = Bench::new();
        let mut queue = aql(&bench, Settings::default());
        bench.store_u64(WRITE, 1);
        bench.put(0, packet);
        bench.ring(0);
        if let Some((a, b)) = waits {
            bench.store_u64(SIGNAL + 8, a);
            bench.store_u64(OTHER + 8, b);
            assert_eq!(queue.step(&bench), Step::Idle { near: false }, "case {n}");
            assert_eq!(
                bench.load_u64(READ),
                0,
                "case {n}: a waiting barrier keeps its slot"
            );
        }
        bench.store_u64(SIGNAL + 8, passes.0);
        bench.store_u64(OTHER + 8, passes.1);
        assert_eq!(queue.step(&bench), Step::Progress, "case {n}");
        assert!(
            matches!(
                bench.events()[..],
                [Event::Barrier { .. } | Event::Vendor { format: 2, .. }]
            ),
            "case {n}"
        );
    }
}

#[test]
fn a_queue_destroyed_during_a_long_kernel_says_so() {
    let bench = Bench::new();
    let mut queue = aql(
        &bench,
        Settings {
            long_kernels: vec![(640, 30_000_000_000)],
            ..Default::default()
        },
    );
    bench.store_u64(WRITE, 1);
    bench.put(0, dispatch(640, SIGNAL));
    bench.ring(0);
    assert_eq!(
        (queue.step(&bench), queue.step(&bench)),
        (Step::Progress, Step::Busy(30_000_000_000))
    );
    queue.end(&bench);
    assert_eq!(bench.load_u64(SIGNAL + 8), 1);
    let [Event::Begin(b), Event::Cut(c), Event::QueueEnd { index: 1 }] = bench.events()[..] else {
        panic!("three")
    };
    assert_eq!(
        (b.packet.end, c.grid[0], queue.step(&bench)),
        (0, 640, Step::Halted)
    );
}

#[test]
fn an_unknown_packet_halts_its_queue() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    bench.store_u64(WRITE, 1);
    bench.put(0, [9, 0, 0, 0, 0, 0, 0, 0]);
    bench.ring(0);
    assert_eq!(
        (queue.step(&bench), queue.step(&bench)),
        (Step::Halted, Step::Halted)
    );
    assert_eq!(
        bench.events(),
        [Event::Unknown {
            ring: RING,
            index: 0,
            word: 9
        }]
    );
}

#[test]
fn a_doorbell_rung_before_it_was_found_counts() {
    let bench = Bench::new();
    bench.store_u64(WRITE, 1);
    bench.put(0, dispatch(1, 0));
    bench.ring(0);
    let mut queue = Engine::new(false, place(), Arc::new(Settings::default()), &bench);
    assert_eq!(queue.step(&bench), Step::Progress);
}

/// Writes an SDMA packet after the previous ones, lets the queue run, and returns what was logged.
fn sdma(bench: &Bench, queue: &mut Engine, dwords: &[u32]) -> (Step, Vec<Event>) {
    let start = bench.load_u64(WRITE);
    for (n, word) in dwords.iter().enumerate() {
        bench.store_u32(RING + (start + 4 * n as u64) % 256, *word);
    }
    bench.store_u64(WRITE, start + 4 * dwords.len() as u64);
    let step = queue.step(bench);
    (step, bench.events())
}

#[test]
fn sdma_packets_do_what_they_say() {
    let bench = Bench::new();
    let place = Place {
        ring_bytes: 256,
        ..place()
    };
    let mut queue = Engine::new(true, place, Arc::new(Settings::default()), &bench);
    bench.write(0x8000, b"midair model");
    // More rounds than fit into the ring, so that packets lie across its end.
    for round in 0..20u64 {
        let (step, events) = sdma(&bench, &mut queue, &[1, 11, 0, 0x8000, 0, 0x9000, 0]);
        assert_eq!(
            (step, &bench.read::<12>(0x9000)),
            (Step::Progress, b"midair model")
        );
        assert!(
            matches!(events[..], [Event::Copy(c)] if (c.bytes, c.src, c.dst, c.rect) == (12, 0x8000, 0x9000, false))
        );
        bench.write(0x9000, &[0; 12]);

        let poll = [8 | 3 << 28 | 1 << 31, 0x5000, 0, 7, 0xff, 0];
        bench.store_u32(0x5000, 6);
        assert_eq!(
            sdma(&bench, &mut queue, &poll).0,
            Step::Idle { near: false }
        );
        bench.store_u32(0x5000, 0x107);
        assert_eq!(queue.step(&bench), Step::Progress);
        assert!(matches!(
            bench.events()[..],
            [Event::Sdma { op: "poll", .. }]
        ));

        sdma(&bench, &mut queue, &[5, 0x5100, 0, 99]);
        assert_eq!(bench.load_u32(0x5100), 99);
        sdma(
            &bench,
            &mut queue,
            &[10 | 47 << 25, 0x5200, 0, u32::MAX, u32::MAX, 0, 0, 0],
        );
        assert_eq!(bench.load_u64(0x5200), u64::MAX.wrapping_mul(round + 1));
        sdma(
            &bench,
            &mut queue,
            &[11 | 2 << 30, 0x5300, 0, 0x0403_0201, 6],
        );
        assert_eq!(bench.read::<8>(0x5300), [1, 2, 3, 4, 1, 2, 3, 0]);
        sdma(&bench, &mut queue, &[13, 0x5400, 0]);
        assert_eq!(bench.load_u64(0x5400), 1_000);
        sdma(&bench, &mut queue, &[6, 42]);
        assert_eq!(bench.raised.take(), [42]);
        sdma(&bench, &mut queue, &[17, 0, 0, 0, 0]);
        sdma(&bench, &mut queue, &[2 << 16, 0, 0]);
        assert_eq!(bench.load_u64(READ), bench.load_u64(WRITE));
    }
    assert_eq!(sdma(&bench, &mut queue, &[0xee]).0, Step::Halted);
}

#[test]
fn a_rectangle_is_moved_row_by_row() {
    let bench = Bench::new();
    let place = Place {
        ring_bytes: 256,
        ..place()
    };
    let mut queue = Engine::new(true, place, Arc::new(Settings::default()), &bench);
    bench.write(0x8000, &(0..64).collect::<Vec<u8>>());
    // 2 rows of 3 elements of 2 bytes. The source starts at x=1, y=1 in rows of 8 elements, and the
    // target has rows of 4.
    let dwords = [
        1 | 4 << 8 | 1 << 29,
        0x8000,
        0,
        1 | 1 << 16,
        7 << 13,
        63,
        0x9000,
        0,
        0,
        3 << 13,
        63,
        2 | 1 << 16,
        0,
    ];
    let (step, events) = sdma(&bench, &mut queue, &dwords);
    assert_eq!(step, Step::Progress);
    assert_eq!(
        bench.read::<14>(0x9000),
        [18, 19, 20, 21, 22, 23, 0, 0, 34, 35, 36, 37, 38, 39]
    );
    let [Event::Copy(copy)] = events[..] else {
        panic!("one copy")
    };
    assert_eq!(
        (copy.rect, copy.bytes, copy.src, copy.dst),
        (true, 12, 0x8012, 0x9000)
    );
}

const SCRATCH: u64 = QUEUE + 176;
const INACTIVE: u64 = 0x5000;

#[test]
fn a_dispatch_without_enough_scratch_stops_the_queue_until_the_runtime_provides_it() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    bench.store_u64(QUEUE + 192, INACTIVE);
    bench.store_u32(INACTIVE + 24, 88);
    bench.store_u64(WRITE, 2);
    bench.put(0, dispatch(64, 0));
    bench.put(1, dispatch(64, 0));
    bench.ring(1);
    assert_eq!(queue.step(&bench), Step::Progress);
    let stop = |code, index, have| Event::Stop {
        ring: RING,
        index,
        code,
        need: 16,
        have,
    };
    assert_eq!(bench.events(), [stop(1, 0, 0)]);
    assert_eq!(
        (bench.load_u64(INACTIVE + 8), bench.raised.take()),
        (1, vec![88])
    );
    assert_eq!(queue.step(&bench), Step::Idle { near: true });
    assert_eq!(
        bench.load_u64(READ),
        0,
        "the packet is still the runtime's to see"
    );
    // Memory for this dispatch only.
    bench.store_u32(SCRATCH, 16);
    bench.store_u32(PROPERTIES, 1 << 4);
    bench.store_u64(INACTIVE + 8, 0);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(queue.step(&bench), Step::Progress);
    bench.now.set(51_000);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert!(matches!(
        bench.events()[..],
        [
            Event::Dispatch(_),
            Event::Stop {
                code: 512,
                index: 0,
                have: 16,
                ..
            }
        ]
    ));
    assert_eq!(bench.load_u64(INACTIVE + 8), 512);
    assert_eq!(queue.step(&bench), Step::Idle { near: true });
    // The runtime took the memory back, so the next dispatch asks again.
    bench.store_u32(SCRATCH, 0);
    bench.store_u32(PROPERTIES, 0);
    bench.store_u64(INACTIVE + 8, 0);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(queue.step(&bench), Step::Progress);
    assert_eq!(bench.events(), [stop(1, 1, 0)]);
}

#[test]
fn times_are_spread_around_theirs() {
    let mut dice = super::Dice::new(5, 0);
    assert_eq!(dice.spread(1000, 0), 1000);
    let times: Vec<u64> = (0..2000).map(|_| dice.spread(100_000, 20)).collect();
    let mean = times.iter().sum::<u64>() / 2000;
    assert!((97_000..107_000).contains(&mean), "{mean}");
    let near = times
        .iter()
        .filter(|time| (80_000..122_000).contains(*time));
    // Two thirds of normally distributed values lie within one deviation.
    assert!((1200..1500).contains(&near.count()));
    let mut again = super::Dice::new(5, 0);
    again.spread(1000, 0);
    assert_eq!(again.spread(100_000, 20), times[0], "the seed decides");
}

#[test]
fn the_commands_of_a_vendor_packet_are_carried_out_before_it_completes() {
    let bench = Bench::new();
    let mut queue = aql(&bench, Settings::default());
    // SET_SH_REG COMPUTE_PERFCOUNT_ENABLE 1
    let commands = 0x1_0000u64;
    for (n, word) in [0xc001_7600u32, 0x20b, 1].into_iter().enumerate() {
        bench.store_u32(commands + 4 * n as u64, word);
    }
    let vendor = [
        1 << 16 | 0xc002_3f00 << 32,
        commands,
        10 << 32 | 3 | 0x1080_0000,
        0,
        0,
        0,
        0,
        SIGNAL,
    ];
    bench.put(0, vendor);
    bench.put(1, dispatch(512, 0));
    bench.store_u64(WRITE, 2);
    bench.ring(1);
    assert_eq!(queue.step(&bench), Step::Progress);
    let events = bench.events();
    let [
        Event::Register(register),
        Event::Pm4(pm4),
        Event::Vendor { format: 1, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (register.write, register.register, register.value),
        (true, 0x2e0b, 1)
    );
    assert_eq!((pm4.words, pm4.enabled, pm4.unknown), (3, true, 0));
    assert_eq!(bench.load_u64(SIGNAL + 8), 0);
}
