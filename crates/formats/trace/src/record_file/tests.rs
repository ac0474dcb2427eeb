//! Tests of the store for records: what is kept, and in what order.

use super::*;
use midair_record::event::{Copy, Kernel, kind};

fn kernel(dispatch_id: u64) -> Vec<u8> {
    let header = Header {
        kind: kind::KERNEL_DISPATCH,
        ..Header::default()
    };
    event::encode(
        &Kernel {
            header,
            dispatch_id,
            ..Kernel::default()
        },
        &[],
    )
}

fn ids(file: &RecordFile) -> Vec<u64> {
    let mut ids = Vec::new();
    let walked = file.walk(
        |k| k == kind::KERNEL_DISPATCH,
        |record| {
            if let Record::Kernel(kernel, _) = record {
                ids.push(kernel.dispatch_id);
            }
            Ok::<(), ()>(())
        },
    );
    walked.unwrap();
    ids
}

#[test]
fn more_than_a_block_comes_back_in_order_and_twice() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let copy = event::encode(
        &Copy {
            header: Header {
                kind: kind::MEMORY_COPY,
                ..Header::default()
            },
            ..Copy::default()
        },
        &[],
    );
    let many = (3 * BLOCK / kernel(0).len()) as u64;
    for id in 0..many {
        writer.append(&kernel(id)).unwrap();
        writer.append(&copy).unwrap();
    }
    assert_eq!((writer.records(), writer.malformed_bytes()), (2 * many, 0));
    let file = writer.finish().unwrap();
    assert!(file.bytes() > 2 * BLOCK as u64);
    for _ in 0..2 {
        assert_eq!(ids(&file), (0..many).collect::<Vec<_>>());
    }
    // The same one by one.
    let mut cursor = file.cursor();
    let mut id = |record: &Record<'_>| match record {
        Record::Kernel(kernel, _) => Some(kernel.dispatch_id),
        _ => None,
    };
    for wanted in 0..many {
        assert_eq!(cursor.next(|_| true, &mut id).unwrap(), Some(wanted));
    }
    assert_eq!(cursor.next(|_| true, &mut id).unwrap(), None);
    let all = file.cursor().next(|k| k == kind::MEMORY_COPY, &mut id);
    assert_eq!(all.unwrap(), None);
}

#[test]
fn the_rest_of_a_piece_is_given_up_at_the_first_malformed_record() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut piece = [kernel(1), kernel(2)].concat();
    piece.extend_from_slice(&[7, 0, kind::KERNEL_DISPATCH, 0, 0, 0, 0, 0]);
    piece.extend_from_slice(&kernel(3));
    assert_eq!(writer.append(&piece).unwrap(), 2);
    assert_eq!(writer.append(&kernel(4)).unwrap(), 1);
    assert_eq!(writer.append(&[1, 2, 3]).unwrap(), 0);
    let file = writer.finish().unwrap();
    assert_eq!(ids(&file), [1, 2, 4]);
    assert_eq!(file.malformed_bytes(), 8 + kernel(3).len() as u64 + 3);
}

#[test]
fn beyond_the_limit_records_are_counted_and_descriptions_kept() {
    use midair_record::event::KernelSymbol;
    let size = kernel(0).len() as u64;
    let writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut writer = writer.limited(2 * size + 1);
    let header = Header {
        kind: kind::KERNEL_SYMBOL,
        ..Header::default()
    };
    let symbol = |kernel_id| {
        let symbol = KernelSymbol {
            header,
            kernel_id,
            name_len: 1,
            ..KernelSymbol::default()
        };
        event::encode(&symbol, b"k")
    };
    let piece = [kernel(1), kernel(2), kernel(3), symbol(7)].concat();
    assert_eq!(writer.append(&piece).unwrap(), 2);
    assert!(writer.is_full() && writer.bytes() == 2 * size);
    // Once the store is full, this holds also for a record that would fit.
    assert_eq!(writer.append(&symbol(8)).unwrap(), 0);
    assert_eq!(writer.append(&kernel(4)).unwrap(), 0);
    let barrier = event::Barrier {
        header: Header {
            kind: kind::BARRIER,
            ..Header::default()
        },
        ..event::Barrier::default()
    };
    let barrier = event::encode(&barrier, &[]);
    assert_eq!(writer.append(&barrier).unwrap(), 0);
    let file = writer.finish().unwrap();
    assert_eq!(ids(&file), [1, 2]);
    assert_eq!(file.beyond()[drop_slot(kind::KERNEL_DISPATCH)], 2);
    // A barrier describes nothing: it counts as the call that it belongs to.
    assert_eq!(file.beyond()[drop_slot(kind::HIP_EVENT)], 1);
    assert_eq!(file.beyond().iter().sum::<u64>(), 3);
    assert!(file.index().symbols.contains_key(&7) && file.index().symbols.contains_key(&8));
    assert_eq!((file.index().dispatches, file.malformed_bytes()), (2, 0));
}

#[test]
fn what_was_appended_so_far_is_read_while_more_comes() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    writer.append(&kernel(1)).unwrap();
    let first = writer.so_far().unwrap();
    writer.append(&kernel(2)).unwrap();
    let second = writer.so_far().unwrap();
    writer.append(&kernel(3)).unwrap();
    assert_eq!((ids(&first), first.index().dispatches), (vec![1], 1));
    assert_eq!((ids(&second), second.index().dispatches), (vec![1, 2], 2));
    assert_eq!(ids(&writer.finish().unwrap()), [1, 2, 3]);
    assert_eq!(ids(&first), [1]);
}

#[test]
fn a_visitor_can_stop_the_walk() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    writer.append(&kernel(1)).unwrap();
    let file = writer.finish().unwrap();
    let stopped = file.walk(|_| true, |_| Err("enough"));
    assert!(matches!(stopped, Err(WalkError::Visit("enough"))));
}

/// Counts what it is notified of.
#[derive(Debug, Default)]
struct Seen(Vec<u64>);

impl Observer for Seen {
    fn record(&mut self, record: &Record<'_>) {
        if let Record::Kernel(kernel, _) = record {
            self.0.push(kernel.dispatch_id);
        }
    }
}

#[test]
fn an_observer_is_told_of_each_record_from_then_on_and_the_limit_is_kept() {
    let limit = 2 * kernel(0).len() as u64;
    let writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut writer = writer.limited(limit);
    writer.append(&kernel(1)).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    writer.observed(seen.clone());
    for id in [2, 3] {
        writer.append(&kernel(id)).unwrap();
    }
    let file = writer.finish().unwrap();
    // The third does not fit, and is seen all the same.
    assert_eq!((file.limit(), ids(&file)), (limit, vec![1, 2]));
    assert_eq!(seen.lock().unwrap().0, [2, 3]);
}

/// What was taken over stays whole, wherever the file ends, and the rest is counted.
#[test]
fn a_file_system_without_room_ends_the_recording() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let piece = kernel(7).repeat(500);
    let blocks = 2 * BLOCK / piece.len();
    for _ in 0..blocks {
        writer.append(&piece).unwrap();
    }
    assert!(!writer.is_full());
    let before = writer.records();
    writer.file = File::options().write(true).open("/dev/full").unwrap();
    let (mut kept, mut given) = (before, before);
    for _ in 0..blocks {
        kept += writer.append(&piece).unwrap();
        given += 500;
    }
    assert!(writer.is_full());
    let beyond: u64 = writer.beyond.iter().sum();
    assert!(
        beyond > 0 && kept + beyond == given,
        "{kept} {beyond} {given}"
    );
    let file = writer.finish().unwrap();
    let no_room = file.no_room().unwrap();
    assert_eq!(no_room.directory, std::env::temp_dir());
    assert!(no_room.why.contains("No space"), "{}", no_room.why);
    assert_eq!(file.bytes(), kept * kernel(7).len() as u64);
    assert_eq!(file.records(), kept);
}

#[test]
fn records_that_are_not_in_the_file_are_walked_behind_those_that_are() {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    writer.append(&kernel(1)).unwrap();
    writer.flush().unwrap();
    writer.append(&kernel(2)).unwrap();
    let there = std::mem::replace(
        &mut writer.file,
        File::options().write(true).open("/dev/full").unwrap(),
    );
    let mut file = writer.finish().unwrap();
    file.file = there;
    assert_eq!(ids(&file), [1, 2]);
    assert!(file.no_room().is_some());
}
