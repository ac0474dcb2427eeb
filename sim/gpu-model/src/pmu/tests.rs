//! Windows of counters, with commands made by the tests.

use super::pm4::{Buffer, Issuer};
use super::registers::{CP_PERFMON_CNTL, GRBM_GFX_INDEX};
use super::*;
use crate::engine::tests::Bench;
use crate::log::Event;
use crate::machine::Machine;
use crate::settings::Settings;

const COMMANDS: u64 = 0x8000;
const OUTPUT: u64 = 0x1_0000;
const ALL: u32 = 0xe000_0000;

fn uconfig(register: u32, value: u32) -> Vec<u32> {
    vec![0xc001_7900, register - 0xc000, value]
}

fn enable() -> Vec<u32> {
    vec![0xc001_7600, 0x20b, 1]
}

fn read(register: u32, to: u64) -> Vec<u32> {
    vec![
        0xc004_4000,
        5 << 8,
        register,
        0,
        to as u32,
        (to >> 32) as u32,
    ]
}

/// Returns commands that reset, apply these selects to all units, run, and make the queue's kernels
/// count.
fn start(selects: &[(u32, u32)]) -> Vec<u32> {
    let mut words = uconfig(CP_PERFMON_CNTL, 0);
    words.extend(uconfig(GRBM_GFX_INDEX, ALL));
    for (register, value) in selects {
        words.extend(uconfig(*register, *value));
    }
    words.extend(enable());
    words.extend(uconfig(CP_PERFMON_CNTL, 1));
    words
}

/// Returns commands that sample, and read these registers of engine `engine` into consecutive
/// words.
fn sample(engine: u32, registers: &[u32]) -> Vec<u32> {
    let mut words = uconfig(CP_PERFMON_CNTL, 0x401);
    words.extend(uconfig(GRBM_GFX_INDEX, 0x6000_0000 | engine << 16));
    for (n, register) in registers.iter().enumerate() {
        words.extend(read(*register, OUTPUT + 4 * n as u64));
    }
    words
}

/// Makes a queue execute the commands. Returns whether its kernels count now.
fn execute(bench: &Bench, queue: u32, words: &[u32]) -> bool {
    for (n, word) in words.iter().enumerate() {
        bench.store_u32(COMMANDS + 4 * n as u64, *word);
    }
    let mut issuer = Issuer {
        queue,
        ring: 0,
        index: 0,
        enabled: false,
    };
    let buffer = Buffer {
        at: COMMANDS,
        words: words.len() as u32,
    };
    bench.pmu.execute(bench, &mut issuer, buffer);
    issuer.enabled
}

/// Returns a kernel of 20 workgroups of 100 work-items (two waves each).
fn work() -> Work {
    Work::new([2000, 1, 1], [100, 1, 1], true)
}

/// Lets a kernel of `queue` run for this many ns.
fn kernel(bench: &Bench, queue: u32, work: Work, ns: u64) {
    let begin = bench.now.get();
    bench.pmu.begin(queue, work, begin, ns);
    bench.now.set(begin + ns);
    bench.pmu.end(queue, || begin + ns);
}

fn output(bench: &Bench, words: usize) -> Vec<u32> {
    (0..words as u64)
        .map(|n| bench.load_u32(OUTPUT + 4 * n))
        .collect()
}

fn last(bench: &Bench) -> crate::log::Pm4 {
    match bench.log.borrow().last() {
        Some((_, Event::Pm4(pm4))) => pm4.clone(),
        other => panic!("{other:?}"),
    }
}

/// The selects of SQ_WAVES, SQ_INSTS_VALU and GRBM_GUI_ACTIVE.
const SELECTS: [(u32, u32); 3] = [(0xd9c0, 0xf0f_f004), (0xd9c1, 0xf0f_f01a), (0xd840, 2)];
const READS: [u32; 4] = [0xd1c0, 0xd1c1, 0xd1c2, 0xd040];

#[test]
fn a_window_holds_what_ran_in_it() {
    let bench = Bench::new();
    kernel(&bench, 1, work(), 500);
    assert!(execute(&bench, 1, &start(&SELECTS)));
    kernel(&bench, 1, work(), 1000);
    // 20 workgroups on 8 engines: 3 on the first four, 2 on the others.
    for (engine, waves) in [(0, 6), (3, 6), (4, 4), (7, 4), (8, 0)] {
        execute(&bench, 1, &sample(engine, &READS));
        // 26 mod 7 + 1 instructions per wave, and 2.1 cycles per ns.
        assert_eq!(output(&bench, 4), [waves, 0, waves * 6, 2100], "{engine}");
    }
    let pm4 = last(&bench);
    assert_eq!((pm4.control, pm4.reads, pm4.unknown), (vec![0x401], 4, 0));
    // What follows the sample is not included in it.
    kernel(&bench, 1, work(), 1000);
    execute(&bench, 1, &sample(0, &READS)[3..]);
    assert_eq!(output(&bench, 1), [6]);
}

#[test]
fn what_another_queue_starts_destroys_a_window() {
    let bench = Bench::new();
    execute(&bench, 1, &start(&SELECTS));
    assert_eq!(last(&bench).over, None);
    kernel(&bench, 1, work(), 1000);
    execute(&bench, 2, &start(&[(0xd9c0, 26)]));
    assert_eq!(last(&bench).over, Some(1));
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 4), [0, 0, 0, 0]);
    // Its select is in effect, too.
    kernel(&bench, 1, work(), 1000);
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 1), [36]);
}

#[test]
fn a_kernel_counts_evenly_over_its_time() {
    let bench = Bench::new();
    bench.now.set(10_000);
    bench.pmu.begin(3, work(), 10_000, 1000);
    bench.now.set(10_500);
    execute(&bench, 1, &start(&SELECTS));
    bench.now.set(10_750);
    execute(&bench, 1, &sample(0, &READS));
    // A quarter of 6 waves and of 36 instructions, rounded down.
    assert_eq!(output(&bench, 4), [1, 0, 9, 525]);
    bench.now.set(11_000);
    bench.pmu.end(3, || 11_000);
    bench.now.set(12_000);
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 4), [3, 0, 18, 1050]);
}

#[test]
fn the_time_of_kernels_that_overlap_counts_once() {
    let bench = Bench::new();
    bench.now.set(0);
    execute(&bench, 1, &start(&SELECTS));
    for (queue, begin) in [(1, 100), (2, 200), (3, 1200)] {
        bench.pmu.begin(queue, work(), begin, 1000);
    }
    for (queue, end) in [(2, 500), (1, 1100), (3, 2200)] {
        bench.pmu.end(queue, || end);
    }
    bench.now.set(9000);
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 4)[3], 2000 * 21 / 10);
}

/// Commands of another queue come before a kernel's end or after it. They never come between the
/// time of the end and the moment when the counters learn of it: they would count a kernel that had
/// ended before they started.
#[test]
fn a_kernel_ends_at_one_moment() {
    let bench = Bench::new();
    bench.pmu.begin(3, work(), 0, 1000);
    let end = bench.pmu.end(3, || {
        let others = bench.pmu.0.try_lock();
        assert!(
            others.is_err(),
            "another queue reaches the counters meanwhile"
        );
        1000
    });
    assert_eq!(end, 1000);
    bench.now.set(1001);
    execute(&bench, 1, &start(&SELECTS));
    bench.now.set(2000);
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 4), [0, 0, 0, 0]);
}

#[test]
fn sq_counts_only_queues_that_are_enabled() {
    let bench = Bench::new();
    execute(&bench, 1, &start(&SELECTS));
    let quiet = Work {
        enabled: false,
        ..work()
    };
    kernel(&bench, 2, quiet, 1000);
    execute(&bench, 1, &sample(0, &READS));
    assert_eq!(output(&bench, 4), [0, 0, 0, 2100]);
}

#[test]
fn each_xcc_has_its_own_and_runs_what_it_is_chosen_for() {
    let mut bench = Bench::new();
    bench.pmu = Pmu::new(Rules {
        gpu: Gpu::parse("8,32,304,1").unwrap(),
        clock_mhz: 2100,
        rates: vec![Rate::parse("2000:SQ:26:3").unwrap()],
        trace_detail: 3,
    });
    execute(&bench, 1, &start(&SELECTS));
    kernel(&bench, 1, work(), 1000);
    // 20 workgroups on 8 XCCs: 3 on the first four, one on each of their first three engines.
    let mut words = uconfig(CP_PERFMON_CNTL, 0x401);
    words.extend(uconfig(GRBM_GFX_INDEX, 0x6002_0000));
    for xcc in 0..8u32 {
        let reads: Vec<u32> = [0xd1c0, 0xd1c2]
            .iter()
            .zip(2 * xcc..)
            .flat_map(|(register, n)| read(*register, OUTPUT + 4 * u64::from(n)))
            .collect();
        words.extend([0xc000_2300, 1 << xcc << 24 | reads.len() as u32]);
        words.extend(reads);
    }
    execute(&bench, 1, &words);
    let expected: Vec<u32> = (0..8)
        .flat_map(|xcc| if xcc < 4 { [2, 6] } else { [0, 0] })
        .collect();
    assert_eq!(output(&bench, 16), expected);
    assert_eq!(last(&bench).reads, 16);
}

#[test]
fn counters_of_units_and_channels_add_up_to_the_kernel() {
    let rules = Settings::default().rules();
    let mut tally = Tally::default();
    let work = Work::new([64 * 1000, 3, 1], [64, 1, 1], false);
    tally.add(&work, 7, 7);
    let sum = |name: &str, engines: u32, instances: u32| -> u64 {
        let block = registers::block(Family::Gfx9, name).unwrap();
        (0..engines)
            .flat_map(|engine| (0..instances).map(move |instance| (engine, instance)))
            .map(|(engine, instance)| {
                let unit = registers::Unit::of(engine << 16 | instance);
                rules.value(&tally, block, 1, None, 0, unit)
            })
            .sum()
    };
    // 1 mod 7 + 1 per wave.
    assert_eq!(sum("TCP", 8, 13), 6000);
    assert_eq!(
        sum("TCP", 8, 20),
        6000,
        "units that there are not count nothing"
    );
    assert_eq!(sum("TCC", 1, 16), 6000);
    assert_eq!(sum("CPC", 1, 1), 2);
}

#[test]
fn a_wgp_counts_for_its_two_units() {
    for (family, unit_at) in [("gfx11", [0, 1, 2, 7]), ("gfx12", [0, 1, 4, 13])] {
        // Two engines of two arrays, with eight units in each array.
        let gpu = Gpu::parse(&format!("1,2,32,2,{family}")).unwrap();
        let rules = Rules {
            gpu,
            ..Settings::default().rules()
        };
        let mut tally = Tally::default();
        // 72 workgroups of three waves: 36 on each engine. The first four of its 16 units have three
        // each, the others two.
        let work = Work::new([72 * 192, 1, 1], [192, 1, 1], true);
        tally.add(&work, 7, 7);
        let value = |name: &str, event: u32, index: u32| {
            let block = registers::block(gpu.family, name).unwrap();
            rules.value(&tally, block, event, None, 0, registers::Unit::of(index))
        };
        // Units 0 to 3 of the engine are the first two of both arrays: WGP 0.
        let waves = |engine: u32, array: u32, wgp: u32| {
            value("SQ", 4, engine << 16 | array << 8 | wgp << 2)
        };
        for (engine, array) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let all: Vec<u64> = (0..5).map(|wgp| waves(engine, array, wgp)).collect();
            assert_eq!(all, [18, 12, 12, 12, 0], "{family}: {engine} {array}");
        }
        assert_eq!([waves(2, 0, 0), waves(0, 2, 0)], [0, 0], "not there");
        // TCP's event 1 is raised twice a wave; its units are named by the family's rule.
        let units = unit_at.map(|instance| value("TCP", 1, 1 << 8 | instance));
        assert_eq!(units, [18, 18, 12, 12], "{family}");
        // SPI counts for the engine, and queues that are not enabled count nothing for SQ.
        assert_eq!(value("SPI", 52, 0x6000_0000), 108);
        let mut quiet = Tally::default();
        quiet.add(
            &Work {
                enabled: false,
                ..work
            },
            7,
            7,
        );
        let sq = registers::block(gpu.family, "SQ").unwrap();
        let unit = registers::Unit::of(0);
        assert_eq!(rules.value(&quiet, sq, 4, None, 0, unit), 0);
    }
}

/// Returns commands that start the traces of two engines, with buffers of a page each.
fn start_traces() -> Vec<u32> {
    use super::trace::register::*;
    let mut words = uconfig(GRBM_GFX_INDEX, ALL);
    words.extend(uconfig(MASK, 0xcf81));
    for engine in 0..2 {
        words.extend(uconfig(GRBM_GFX_INDEX, 0x4000_0000 | engine << 16));
        words.extend(uconfig(BASE, (OUTPUT >> 12) as u32 + engine));
        words.extend(uconfig(BASE_HIGH, 0));
        words.extend(uconfig(SIZE, 1));
        words.extend(uconfig(CTRL, 1 << 31));
        words.extend(uconfig(MODE, 0x0224_0000));
    }
    words.extend(uconfig(GRBM_GFX_INDEX, ALL));
    words.extend(uconfig(USER_3, 7));
    words
}

fn end_traces() -> Vec<u32> {
    let mut words = uconfig(GRBM_GFX_INDEX, ALL);
    words.extend(uconfig(super::trace::register::MODE, 0x0204_0000));
    words
}

fn traces(bench: &Bench) -> Vec<crate::log::Trace> {
    let all = bench.log.borrow();
    let all = all.iter().filter_map(|(_, event)| match event {
        Event::Trace(trace) => Some(*trace),
        _ => None,
    });
    all.collect()
}

#[test]
fn engines_trace_the_kernels_between_start_and_end() {
    use super::trace::{BLOCK, USER, WAVE, hash_of};
    let bench = Bench::new();
    execute(&bench, 1, &start_traces());
    // 8 engines with 13 units each: two workgroups on each engine, on its first two units.
    let dispatch = crate::log::Dispatch {
        packet: crate::log::Packet {
            index: 5,
            start: bench.now(),
            ..Default::default()
        },
        grid: [16 * 128, 1, 1],
        workgroup: [128, 1, 1],
        kernel_object: 0x7_1234_5678,
        ..Default::default()
    };
    bench.pmu.trace(&bench, &dispatch);
    let early = crate::log::Dispatch {
        packet: crate::log::Packet::default(),
        ..dispatch
    };
    bench.pmu.trace(&bench, &early);
    assert_eq!(traces(&bench), []);
    execute(&bench, 1, &end_traces());
    // A word for the trace, four waves, and three steps of each of the two on unit 1.
    let words: Vec<u32> = (0..)
        .map(|n| bench.load_u32(OUTPUT + 4 * n))
        .take(8 * 11)
        .collect();
    let tags: Vec<u32> = words.chunks(8).map(|block| block[0]).collect();
    let (written, rest) = tags.split_at(11);
    assert_eq!(
        (written[0], &written[1..], rest),
        (USER, &[WAVE; 10][..], &[][..])
    );
    assert_eq!(words[8..16], [WAVE, 0x1234_5678, 7, 5, 0, 0, 0, 1]);
    assert_eq!(words[80..88], [WAVE, 0x1234_5678, 7, 5, 3, 0, 0, 10]);
    let ended = traces(&bench);
    assert_eq!(ended.len(), 2);
    for (engine, trace) in (0..).zip(&ended) {
        assert_eq!(
            (trace.engine, trace.bytes, trace.full),
            (engine, 11 * BLOCK, false)
        );
        assert_eq!(trace.base, OUTPUT + 4096 * u64::from(engine));
    }
    assert_eq!(
        ended[0].hash,
        hash_of(words.iter().flat_map(|word| word.to_le_bytes()))
    );
    // The registers say how much it was; without a start nothing is traced.
    let mut reads = uconfig(GRBM_GFX_INDEX, 0x4000_0000);
    for (n, register) in (0..).zip([0xc339, 0xc33a]) {
        reads.extend(read(register, COMMANDS + 0x4000 + 4 * n));
    }
    execute(&bench, 1, &reads);
    let read = |n: u64| bench.load_u32(COMMANDS + 0x4000 + 4 * n);
    assert_eq!([read(0), read(1)], [11, 0]);
    bench.pmu.trace(&bench, &dispatch);
    execute(&bench, 1, &end_traces());
    assert_eq!(traces(&bench).len(), 2);
}

#[test]
fn a_trace_that_finds_no_room_is_full() {
    use super::trace::BLOCK;
    let bench = Bench::new();
    execute(&bench, 1, &start_traces());
    let dispatch = crate::log::Dispatch {
        packet: crate::log::Packet {
            start: bench.now(),
            ..Default::default()
        },
        grid: [8 * 64 * 200, 1, 1],
        workgroup: [64, 1, 1],
        ..Default::default()
    };
    bench.pmu.trace(&bench, &dispatch);
    execute(&bench, 1, &end_traces());
    let ended = traces(&bench);
    assert!(
        ended.iter().all(|trace| trace.full && trace.bytes == 4096),
        "{ended:?}"
    );
    assert_eq!(4096 % BLOCK, 0);
    let mut reads = uconfig(GRBM_GFX_INDEX, 0x4001_0000);
    reads.extend(read(0xc33a, COMMANDS + 0x4000));
    execute(&bench, 1, &reads);
    assert_eq!(bench.load_u32(COMMANDS + 0x4000), 1 << 31);
}

#[test]
fn what_is_not_understood_is_said() {
    let bench = Bench::new();
    let mut words = vec![0xc000_4900, 0];
    words.extend(enable());
    assert!(execute(&bench, 1, &words), "it is passed by its length");
    assert_eq!(last(&bench).unknown, 0xc000_4900);
    assert!(!execute(&bench, 1, &[0xc005_7600, 0x20b, 1]), "cut off");
    assert_eq!(last(&bench).unknown, 0xc005_7600);
    assert!(!execute(&bench, 1, &[]));
    assert_eq!(last(&bench).unknown, 0);
}
