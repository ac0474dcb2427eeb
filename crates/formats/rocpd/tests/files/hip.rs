//! Launches of HIP's graphs, HIP's events and events of the kernel driver come back from a database.

use crate::common::{BEGIN, header, session_with};
use crate::convert::check_formats;
use midair_output::{Format, Trace};
use midair_record::event::{
    self, Barrier, EventCall, GraphCall, Kernel, KfdEvent, Untimed, flag, graph, hip_event, kind,
};

const PID: u32 = 4242;
const FORMATS: [Format; 7] = [
    Format::Csv,
    Format::Json,
    Format::Pftrace,
    Format::Otf2,
    Format::Kineto,
    Format::Html,
    Format::Parquet,
];

fn launched(number: u64, handle: u64, start: u64, dispatches: u32) -> Vec<u8> {
    let call = GraphCall {
        header: header(kind::HIP_GRAPH, graph::EXEC_LAUNCH),
        start,
        end: start + 50,
        correlation: 200 + number,
        ancestor: number % 2,
        stream: 0x9990 + number % 2,
        graph: handle,
        dispatches,
        tid: PID + 2,
        ..GraphCall::default()
    };
    event::encode(&call, &[])
}

fn kernel(launch: u64, number: u64, at: u64, is_timed: bool) -> Vec<u8> {
    let mut kernel = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start: at,
        end: at + 10,
        correlation: 200 + launch,
        dispatch_id: 100 + number,
        kernel_id: 1,
        queue_id: 1,
        node: 1,
        tid: PID + 2,
        workgroup: [64, 1, 1],
        grid: [64, 1, 1],
        ..Kernel::default()
    };
    if !is_timed {
        (kernel.start, kernel.end) = (0, 0);
        kernel.header.flags = flag::UNTIMED;
        kernel.untimed = Untimed::SignalReused as u32;
    }
    event::encode(&kernel, &[])
}

/// The second graph is launched first, and its kernels run last.
fn graphs() -> Trace {
    session_with(PID, |put| {
        put(kernel(3, 5, BEGIN + 900, true));
        for (launch, kernels, at) in [(1, 3, BEGIN + 100_000), (2, 2, BEGIN + 90_000)] {
            for number in 0..kernels {
                let at = at + 20 * number;
                put(kernel(launch, 10 * launch + number, at, true));
            }
        }
        put(kernel(4, 41, BEGIN + 95_000, false));
        put(kernel(5, 51, BEGIN + 96_000, false));
        put(kernel(5, 52, BEGIN + 96_500, true));
        put(launched(1, 0xbbb0, BEGIN + 70_000, 3));
        put(launched(2, 0xaaa0, BEGIN + 70_100, 2));
        // More kernels than records of them; none with times; some with times.
        put(launched(3, 0xaaa0, BEGIN + 70_200, 4));
        put(launched(4, 0xbbb0, BEGIN + 70_300, 1));
        put(launched(5, 0xccc0, BEGIN + 70_400, 2));
    })
}

#[test]
fn launches_of_graphs_come_back() {
    let wanted = check_formats(&graphs(), &FORMATS);
    let json = &wanted["r_results.json"];
    assert!(json.contains("\"kernel_dispatch_count\":4"));
}

fn called(operation: u32, number: u64, handle: u64) -> Vec<u8> {
    let call = EventCall {
        header: header(kind::HIP_EVENT, operation),
        start: BEGIN + 70_000 + 100 * number,
        end: BEGIN + 70_050 + 100 * number,
        correlation: 300 + number,
        stream: 0x9990 + number % 2,
        event: handle,
        tid: PID,
        ..EventCall::default()
    };
    event::encode(&call, &[])
}

fn barrier(number: u64, queue: u32, (start, end): (u64, u64), (rung, seen): (u64, u64)) -> Vec<u8> {
    let barrier = Barrier {
        header: header(kind::BARRIER, 0),
        start,
        end,
        rung,
        seen,
        correlation: 300 + number,
        packet_index: number,
        queue_id: queue,
        node: 1,
        tid: PID,
        ..Barrier::default()
    };
    event::encode(&barrier, &[])
}

#[test]
fn events_of_hip_come_back() {
    let at = BEGIN + 80_000;
    let trace = session_with(PID, |put| {
        // The device's times, the doorbell's, and no end at all.
        put(barrier(1, 1, (at, at + 10), (at - 5, at + 20)));
        put(barrier(2, 2, (0, 0), (at + 30, at + 60)));
        put(barrier(3, 1, (0, 0), (at + 70, 0)));
        put(barrier(4, 2, (at + 90, at + 95), (at + 80, at + 99)));
        put(called(hip_event::RECORD, 1, 0xe1));
        put(called(hip_event::WAIT, 2, 0xe1));
        put(called(hip_event::RECORD, 3, 0xe2));
        // Of an event that was recorded before the session.
        put(called(hip_event::WAIT, 4, 0xe3));
    });
    let wanted = check_formats(&trace, &FORMATS);
    let json = &wanted["r_results.json"];
    assert!(json.contains("\"hip_event_handle\":225"));
}

#[test]
fn events_of_the_driver_come_back() {
    let all = [
        (kind::KFD_PAGE_MIGRATE, 29),
        (kind::KFD_PAGE_FAULT, 30),
        (kind::KFD_QUEUE, 31),
        (kind::KFD_EVENT_UNMAP_FROM_GPU, 27),
        (kind::KFD_EVENT_DROPPED_EVENTS, 28),
    ];
    let trace = session_with(PID, |put| {
        for (number, (of, tracing_kind)) in (0..).zip(all) {
            let start = BEGIN + 70_000 + number * 100;
            let driver = KfdEvent {
                header: header(of, 1 + number as u32 % 2),
                start,
                // The last two have no duration.
                end: if number < 3 { start + 40 } else { start },
                address: 0x7f00_0000_0000 + number,
                end_address: 0x7f00_0000_1000,
                tracing_kind,
                pid: PID,
                from: 1,
                to: 2,
                prefetch: 3,
                preferred: 1,
                error: -12,
                count: 7,
            };
            put(event::encode(&driver, &[]));
        }
    });
    let wanted = check_formats(&trace, &FORMATS);
    let json = &wanted["r_results.json"];
    assert!(json.contains("\"error_code\":-12"));
}
