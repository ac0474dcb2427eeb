//! Every record survives its conversion to text and back.

use super::*;

fn packet() -> Packet {
    Packet {
        ring: 0x4a0_0000,
        index: 70_000,
        header: 0x1502,
        signal: 0x7f_f100,
        start: 11,
        end: 12,
        times_written: true,
        doorbell: -1,
    }
}

#[test]
fn every_kind_of_record_survives_the_log() {
    let d = Dispatch {
        packet: packet(),
        format: 3,
        setup: 3,
        workgroup: [256, 2, 1],
        grid: [65_536, 4, 1],
        private_size: 16,
        group_size: 128,
        kernel_object: 0x10_0019_7d80,
        kernarg: 0x11_0140_0000,
    };
    let copy = Copy {
        ring: 1,
        index: 2,
        doorbell: 3,
        rect: true,
        bytes: 4,
        src: 5,
        dst: 6,
        start: 7,
        end: 8,
    };
    let mut events = vec![
        Event::Model {
            eager: true,
            seed: 3,
            kernel_ns: 4,
        },
        Event::Queue {
            sdma: true,
            ring: 1,
            size: 2,
            write_index_at: 3,
            read_index_at: 4,
            doorbell_at: 5,
        },
        Event::Samples {
            ring: 1,
            index: 2,
            kernel_object: 3,
            taken: crate::sampling::Taken {
                offsets: [(0, 4), (8, 5)].into(),
                invalid: 6,
                lost: 7,
            },
        },
        Event::Samples {
            ring: 1,
            index: 2,
            kernel_object: 3,
            taken: crate::sampling::Taken::default(),
        },
        Event::Trace(Trace {
            ring: 1,
            index: 2,
            xcc: 3,
            engine: 4,
            base: 5 << 40,
            bytes: 64,
            full: true,
            hash: u64::MAX,
        }),
        Event::QueueEnd { index: 9 },
        Event::Begin(d),
        Event::Dispatch(Dispatch {
            packet: Packet {
                times_written: false,
                ..packet()
            },
            ..d
        }),
        Event::Cut(d),
        Event::Barrier {
            packet: packet(),
            or: true,
            deps: [1, 0, 3, 0, u64::MAX],
        },
        Event::Vendor {
            packet: packet(),
            format: 2,
        },
        Event::Register(Register {
            ring: 1,
            index: 2,
            xcc: 7,
            write: true,
            register: 0xc200,
            unit: 0xe000_0000,
            value: 5,
            at: 0,
        }),
        Event::Pm4(Pm4 {
            ring: 1,
            index: 2,
            at: 3,
            words: 4,
            control: vec![0, 0x401],
            reads: 8,
            enabled: true,
            over: Some(3),
            unknown: 0,
        }),
        Event::Pm4(Pm4::default()),
        Event::Copy(copy),
        Event::Copy(Copy {
            rect: false,
            ..copy
        }),
        Event::Reads {
            ring: 1,
            index: 2,
            count: 3,
        },
        Event::Stop {
            ring: 1,
            index: 2,
            code: 512,
            need: 16,
            have: 0,
        },
        Event::Unknown {
            ring: 1,
            index: 2,
            word: 0xffff,
        },
    ];
    events.extend(SDMA_OPS.map(|op| Event::Sdma {
        ring: 1,
        index: 2,
        doorbell: -1,
        op,
        at: 5,
        value: 6,
    }));
    let records: Vec<Record> = events
        .into_iter()
        .map(|event| Record {
            time: 5,
            pid: 6,
            queue: 7,
            event,
        })
        .collect();
    let text: String = records.iter().map(Record::line).collect();
    assert_eq!(text.lines().count(), records.len());
    assert_eq!(parse(&text), Ok(records));
}

#[test]
fn a_damaged_log_is_refused() {
    assert!(parse("t=1 pid=2 q=3 ev=queue-end idx=4").is_err());
    assert!(
        parse("t=1 pid=2 q=3 ev=queue-end\n")
            .unwrap_err()
            .starts_with("no idx")
    );
    assert!(
        parse("t=1 pid=2 q=3 ev=surprise idx=4\n")
            .unwrap_err()
            .starts_with("ev=surprise")
    );
    assert!(parse("t=-1 pid=2 q=3 ev=queue-end idx=4\n").is_err());
}
