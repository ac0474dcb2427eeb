//! The rule, and ROCr's way of taking the samples.

use super::*;
use crate::engine::tests::Bench;
use crate::log::Packet;
use crate::pmu::pm4::{Buffer, Issuer, has_to_wait};

const DATA: u64 = 0x8000;
const SIZE: u64 = 8;
const DONE: u64 = 0x4000;
const KERNEL: u64 = 0x6000;
const COMMANDS: u64 = 0x1_0000;
const HOST: u64 = 0x1_8000;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.store_u32(DATA + field::SIZE, SIZE as u32);
    for buffer in 0..2 {
        let at = DATA + buffer * field::NEXT;
        bench.store_u32(at + field::WATERMARK, 6);
        bench.store_u64(at + field::DONE, DONE + 0x40 * buffer);
        bench.store_u64(DONE + 0x40 * buffer + 8, 1);
    }
    bench.store_u64(KERNEL + 16, 0x100);
    bench
}

fn sampled(bench: &Bench, stochastic: bool, from: u64, to: u64) -> Taken {
    let rule = Rule {
        kernels: vec![(128, vec![(4, 1), (8, 1)])],
        waves: 2,
        invalid_one_in: 3,
    };
    let sampling = Sampling {
        at: DATA,
        stochastic,
        interval: 1000,
    };
    let dispatch = Dispatch {
        packet: Packet {
            index: 70,
            ..Packet::default()
        },
        workgroup: [64, 1, 1],
        grid: [128, 1, 1],
        kernel_object: KERNEL,
        ..Dispatch::default()
    };
    let mut random = 0_u64;
    take(
        bench,
        &rule,
        sampling,
        &dispatch,
        (64, 0x88),
        (from, to),
        || {
            random += 1;
            random | random << 32
        },
    )
}

#[test]
fn each_multiple_of_the_interval_samples_the_first_waves() {
    let bench = bench();
    // At 2000 and 3000, two waves each: random numbers 1 to 4 choose 8, 4, 8, 4.
    let taken = sampled(&bench, false, 1000, 3999);
    assert_eq!(taken.offsets, [(4, 2), (8, 2)].into());
    assert_eq!((taken.invalid, taken.lost), (0, 0));
    let word = |sample: u64, n: u64| bench.load_u64(DATA + HEADER + SAMPLE * sample + 8 * n);
    assert_eq!([word(0, 0), word(0, 2), word(0, 6)], [0x6108, 0, 2000]);
    assert_eq!([word(3, 0), word(3, 2), word(3, 6)], [0x6104, 1, 3000]);
    // Packet 70 of a ring of 64, doorbell 17.
    assert_eq!(word(3, 7), 6 | 17 << 32);
    assert_eq!(bench.load_u64(DONE + 8), 1, "four are below the watermark");
    // Six more: four find room, and the seventh raises the signal.
    let taken = sampled(&bench, false, 3999, 6000);
    assert_eq!((taken.offsets.values().sum::<u64>(), taken.lost), (4, 2));
    assert_eq!(bench.load_u64(DONE + 8), 0);
}

#[test]
fn invalid_samples_are_counted_by_themselves() {
    let bench = bench();
    let taken = sampled(&bench, true, 0, 2000);
    // The second number of each sample decides: 2, 4, 6 and 8, of which 6 is a multiple of 3.
    assert_eq!((taken.offsets.values().sum::<u64>(), taken.invalid), (3, 1));
}

/// The two buffers of commands with which ROCr takes the samples of buffer 0.
#[test]
fn commands_exchange_the_buffers_and_copy_one() {
    let bench = bench();
    sampled(&bench, false, 0, 2000);
    let put = |words: &[u32]| {
        for (n, word) in (0..).zip(words) {
            bench.store_u32(COMMANDS + 4 * n, *word);
        }
        Buffer {
            at: COMMANDS,
            words: words.len() as u32,
        }
    };
    let header = |opcode: u32, words: u32| 3 << 30 | (words - 2) << 16 | opcode << 8;
    let run = |buffer| {
        let mut issuer = Issuer {
            queue: 1,
            ring: 0,
            index: 0,
            enabled: false,
        };
        bench.pmu.execute(&bench, &mut issuer, buffer);
    };
    let (data, host) = (DATA as u32, HOST as u32);
    let exchange = put(&[
        header(0x1e, 9),
        0x27,
        data,
        0,
        0,
        1 << 31,
        0,
        0,
        0,
        header(0x40, 6),
        6 | 2 << 8 | 1 << 16,
        0,
        0,
        host,
        0,
    ]);
    assert!(!has_to_wait(&bench, exchange));
    run(exchange);
    assert_eq!(bench.load_u64(HOST), 4);
    assert_eq!(bench.load_u64(DATA), 1 << 63);
    // New samples go into the other buffer.
    sampled(&bench, false, 2000, 3000);
    assert_eq!(bench.load_u32(DATA + field::NEXT + field::WRITTEN), 2);
    let written = data + field::WRITTEN as u32;
    let copy = |count: u32| {
        put(&[
            header(0x3c, 7),
            3 | 1 << 4,
            written,
            0,
            count,
            u32::MAX,
            4,
            header(0x50, 7),
            0,
            data + 64,
            0,
            host,
            0,
            4 * 64,
            header(0x37, 5),
            0,
            written,
            0,
            0,
        ])
    };
    assert!(has_to_wait(&bench, copy(5)));
    let buffer = copy(4);
    assert!(!has_to_wait(&bench, buffer));
    run(buffer);
    assert_eq!(bench.load_u64(HOST), 0x6108);
    assert_eq!(bench.load_u64(HOST + 3 * 64 + 48), 2000);
    assert_eq!(bench.load_u32(DATA + field::WRITTEN), 0);
}
