use super::*;
use crate::record_file::RecordWriter;
use midair_record::event::{self, Note};

fn index(records: &[Vec<u8>]) -> Index {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    for record in records {
        assert_eq!(writer.append(record).unwrap(), 1);
    }
    writer.finish().unwrap().into_index()
}

fn kernel(kernel_id: u64, stream: u64, untimed: u32, flags: u8) -> Vec<u8> {
    let header = Header {
        kind: kind::KERNEL_DISPATCH,
        flags,
        ..Header::default()
    };
    let (start, end) = if untimed == 0 { (100, 130) } else { (0, 0) };
    event::encode(
        &Kernel {
            header,
            kernel_id,
            stream,
            untimed,
            start,
            end,
            ..Kernel::default()
        },
        &[],
    )
}

#[test]
fn streams_are_numbered_in_order_of_appearance() {
    let index = index(&[
        kernel(1, 0xb0, 0, 0),
        kernel(1, 0, 0, 0),
        kernel(1, 0xa0, 0, 0),
        kernel(1, 0xb0, 0, 0),
    ]);
    assert_eq!(
        [0, 0xb0, 0xa0, 0xc0].map(|handle| index.stream(handle)),
        [0, 1, 2, 0]
    );
}

#[test]
fn untimed_work_is_counted_by_reason_and_not_summed() {
    let index = index(&[
        kernel(7, 0, 0, 0),
        kernel(7, 0, 2, flag::UNTIMED),
        kernel(7, 0, 99, 0),
        kernel(7, 0, 4, flag::OPEN_AT_DETACH | flag::ORPHAN),
    ]);
    assert_eq!(
        index.kernels[&7],
        Stat {
            calls: 1,
            total: 30,
            min: 30,
            max: 30,
            squares: 900
        }
    );
    assert_eq!(index.dispatches, 4);
    let reasons: Vec<_> = index
        .untimed
        .iter()
        .map(|(reason, n)| (*reason, *n))
        .collect();
    assert_eq!(
        reasons,
        [
            ("no free signal", 1),
            ("no reason was recorded", 1),
            ("still running at detach", 1)
        ]
    );
    assert_eq!((index.open_at_detach, index.orphans), (1, 1));
}

#[test]
fn impossible_ids_and_endless_notes_are_limited() {
    let header = Header {
        kind: kind::KERNEL_SYMBOL,
        ..Header::default()
    };
    let symbol = |kernel_id| {
        event::encode(
            &KernelSymbol {
                header,
                kernel_id,
                name_len: 1,
                ..KernelSymbol::default()
            },
            b"k",
        )
    };
    let note = event::encode(
        &Note {
            header: Header {
                kind: kind::NOTE,
                ..Header::default()
            },
            len: 6,
            reserved: 0,
        },
        b"a\x1b[2Jz",
    );
    let mut records = vec![symbol(0), symbol(u64::MAX), symbol(3)];
    records.extend(std::iter::repeat_n(note, MOST_NOTES + 2));
    let index = index(&records);
    assert_eq!(
        (
            index.symbols.keys().copied().collect::<Vec<_>>(),
            index.ids_refused
        ),
        (vec![3], 2)
    );
    assert_eq!((index.notes.len(), index.notes_left_out), (MOST_NOTES, 2));
    assert_eq!(index.notes[0], "a [2Jz");
}

#[test]
fn counts_of_queues_are_checked() {
    let header = Header {
        kind: kind::QUEUE_COUNTS,
        ..Header::default()
    };
    let right = QueueCounts {
        header,
        queue_id: 3,
        first_index: 10,
        last_index: 20,
        dispatches: 6,
        other_packets: 3,
        ours: 0,
        lost: 1,
        timed: 6,
        ..QueueCounts::default()
    };
    let wrong = QueueCounts {
        queue_id: 4,
        timed: 5,
        ..right
    };
    let index = index(&[event::encode(&right, &[]), event::encode(&wrong, &[])]);
    assert_eq!(index.unseen(), 2);
    let found = index.unbalanced();
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("queue 4"), "{found:?}");
}

#[test]
fn a_snapshot_grows_with_the_session() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    writer.append(&kernel(7, 0, 0, 0)).unwrap();
    let before = writer.index().snapshot();
    let symbol = KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Header::default()
        },
        kernel_id: 7,
        name_len: 1,
        ..KernelSymbol::default()
    };
    writer.append(&event::encode(&symbol, b"k")).unwrap();
    writer.append(&kernel(7, 0, 0, 0)).unwrap();
    writer.append(&kernel(7, 0, 2, flag::UNTIMED)).unwrap();
    let after = writer.index().snapshot();
    assert_eq!(before.counts, [(kind::KERNEL_DISPATCH, 1)]);
    assert_eq!(after.counts, [(kind::KERNEL_DISPATCH, 3)]);
    assert_eq!(before.kernels[0].1, None);
    let (id, name, stat) = &after.kernels[0];
    assert_eq!(
        (*id, name.as_deref(), stat.calls, stat.total),
        (7, Some(&b"k"[..]), 2, 60)
    );
    assert_eq!((before.untimed, after.untimed), (0, 1));
}

/// Returns a symbol whose name has `len` bytes.
fn symbol(kernel_id: u64, len: usize) -> Vec<u8> {
    let symbol = KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Header::default()
        },
        kernel_id,
        name_len: len as u32,
        ..KernelSymbol::default()
    };
    event::encode(&symbol, &vec![b'k'; len])
}

#[test]
fn names_of_kernels_have_a_total() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    // The same symbol again and again takes its space only once.
    for _ in 0..40_000 {
        writer.append(&symbol(1, 4000)).unwrap();
    }
    assert_eq!(writer.index().names_refused, 0);
    let fit = (limits::NAMES / 4000) as u64;
    for id in 1..=fit + 10 {
        writer.append(&symbol(id, 4000)).unwrap();
    }
    let index = writer.finish().unwrap().into_index();
    assert_eq!((index.symbols.len() as u64, index.names_refused), (fit, 10));
}

/// The squares of so many long calls are more than a number of 128 bits times the calls.
#[test]
fn the_variance_of_very_long_calls_is_about_right() {
    let calls = 1_u64 << 20;
    let stat = Stat {
        calls,
        total: calls << 40,
        squares: 1 << 110,
        ..Stat::default()
    };
    // Each square is 2^90 on average, of which the square of the mean is 2^80.
    let wanted = (2_f64.powi(90) - 2_f64.powi(80)) * (calls as f64 / (calls - 1) as f64);
    assert!((stat.variance() / wanted - 1.0).abs() < 1e-12);
}

#[test]
fn the_number_that_stands_for_no_device_names_none() {
    let header = Header {
        kind: kind::CUDA_DEVICE,
        ..Header::default()
    };
    let device = |ordinal| {
        let device = event::CudaDevice {
            header,
            ordinal,
            ..event::CudaDevice::default()
        };
        event::encode(&device, &[])
    };
    let last = event::NO_NODE - event::CUDA_NODE;
    let index = index(&[device(0), device(last), device(last), device(1)]);
    let ordinals: Vec<u32> = index.cuda.devices.keys().copied().collect();
    assert_eq!((ordinals, index.ids_refused), (vec![0, 1], 2));
}

#[test]
fn descriptions_alone_are_nothing_that_happened() {
    assert!(Index::default().is_idle());
    assert!(index(&[symbol(1, 3)]).is_idle());
    assert!(!index(&[kernel(1, 0, 0, 0)]).is_idle());
}

#[test]
fn what_is_left_out_is_in_no_sum() {
    let mut index = index(&[
        kernel(1, 0, 0, 0),
        kernel(2, 0, 2, flag::UNTIMED | flag::ORPHAN),
        kernel(3, 0, 2, flag::UNTIMED | flag::OPEN_AT_DETACH),
        kernel(4, 0, 0, 0),
    ]);
    let kernel = |kernel_id, flags: u8, untimed| {
        let header = Header {
            kind: kind::KERNEL_DISPATCH,
            flags,
            ..Header::default()
        };
        let (start, end) = if untimed == 0 { (100, 130) } else { (0, 0) };
        Kernel {
            header,
            kernel_id,
            untimed,
            start,
            end,
            ..Kernel::default()
        }
    };
    let reasons = |index: &Index| index.untimed.values().copied().collect::<Vec<u64>>();
    let counts = |index: &Index| (index.dispatches, index.orphans, index.open_at_detach);
    assert_eq!((counts(&index), reasons(&index)), ((4, 1, 1), vec![2]));
    index.forget_kernels();
    index.drop_kernel(&kernel(1, 0, 0));
    index.keep_kernel(&kernel(4, 0, 0));
    assert_eq!(index.kernels.keys().collect::<Vec<_>>(), [&4]);
    assert_eq!(index.kernels[&4].total, 30);
    index.drop_kernel(&kernel(2, flag::UNTIMED | flag::ORPHAN, 2));
    assert_eq!((counts(&index), reasons(&index)), ((2, 0, 1), vec![1]));
    // A reason of which none is left is not reported.
    let last = kernel(3, flag::UNTIMED | flag::OPEN_AT_DETACH, 2);
    index.drop_kernel(&last);
    assert_eq!((counts(&index), reasons(&index)), ((1, 0, 0), vec![]));
    // One without times has no part in a kernel's sum, although it stays.
    index.keep_kernel(&last);
    assert_eq!(index.kernels.len(), 1);
}
