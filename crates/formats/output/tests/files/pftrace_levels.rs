//! Counter tracks of Perfetto traces: bytes under way and in use, and how many dispatches a queue holds.

use crate::common::{append, list, writer};
use crate::pftrace::traced;
use crate::rocpd_rows::{header, one_kernel};
use midair_record::event::{self, Allocation, Copy, Kernel, NO_NODE, RuntimeInit, Scratch, kind};
use serde_json::{Value, json};

#[test]
fn levels_follow_copies_allocations_and_scratch() {
    let mut writer = writer();
    let copy = |start, end, bytes| Copy {
        header: header(kind::MEMORY_COPY, 2),
        start,
        end,
        bytes,
        dst_node: 1,
        ..Copy::default()
    };
    for record in [copy(100, 200, 10), copy(150, 300, 5), copy(120, 130, 1)] {
        append(&mut writer, &event::encode(&record, &[]));
    }
    let allocation = |operation, start, address, bytes| Allocation {
        header: header(kind::MEMORY_ALLOCATION, operation),
        start,
        end: start + 10,
        address,
        bytes,
        node: if operation <= 2 { 1 } else { NO_NODE },
        ..Allocation::default()
    };
    // The release comes from another thread's chunk, before its allocation.
    for record in [
        allocation(3, 500, 0x1000, 0),
        allocation(1, 100, 0x1000, 4096),
        allocation(2, 200, 0x2000, 1 << 40),
        allocation(3, 600, 0x9999, 0),
    ] {
        append(&mut writer, &event::encode(&record, &[]));
    }
    for (operation, start, bytes) in [(1, 100, 300), (2, 200, 0)] {
        let scratch = Scratch {
            header: header(kind::SCRATCH_MEMORY, operation),
            start,
            end: start + 1,
            bytes,
            queue_id: 1,
            node: 1,
            ..Scratch::default()
        };
        append(&mut writer, &event::encode(&scratch, &[]));
    }
    let runtime = RuntimeInit {
        header: header(kind::RUNTIME_INITIALIZATION, 2),
        time: 90,
        version: 70_204,
        tid: 3,
        ..RuntimeInit::default()
    };
    append(&mut writer, &event::encode(&runtime, &[]));
    let ours = traced(writer, |_| ());
    // The first value is the level before the first change.
    let counter = |name: &str| Value::from(list(&ours["counters"][name])[1..].to_vec());
    assert_eq!(
        counter("COPY BYTES to Agent [1] (GPU)"),
        json!([
            [100, 10],
            [120, 11],
            [130, 10],
            [150, 15],
            [200, 5],
            [300, 0]
        ])
    );
    let large = (1_u64 << 40) + 4096;
    assert_eq!(
        counter("ALLOCATE BYTES on Agent [1] (GPU)"),
        json!([[110, 4096], [210, large], [500, 1_u64 << 40]])
    );
    assert_eq!(
        counter("SCRATCH MEMORY on Agent [1] (GPU)"),
        json!([[101, 300], [201, 0]])
    );
    let instant = &ours["instants"][0];
    assert_eq!(
        (
            &instant["category"],
            &instant["name"],
            &instant["time"],
            &instant["notes"]["version"]
        ),
        (
            &json!("runtime_initialization"),
            &json!("RUNTIME_INITIALIZATION_HIP"),
            &json!(90),
            &json!(70_204)
        )
    );
}

/// Tests how many dispatches a queue holds, from their launch to their end.
#[test]
fn a_queue_has_its_depth() {
    let mut writer = writer();
    for (id, (rung, start, end)) in [(10, 20, 40), (15, 40, 60), (70, 80, 90)]
        .into_iter()
        .enumerate()
    {
        let kernel = Kernel {
            dispatch_id: id as u64 + 1,
            rung,
            start,
            end,
            queue_id: 1,
            ..one_kernel()
        };
        append(&mut writer, &event::encode(&kernel, &[]));
    }
    let ours = traced(writer, |_| ());
    let depth = list(&ours["counters"]["QUEUE DEPTH of Agent [1] QUEUE [0]"]);
    let depth: Vec<(u64, u64)> = depth
        .iter()
        .map(|at| (at[0].as_u64().unwrap(), at[1].as_u64().unwrap()))
        .collect();
    assert_eq!(
        depth[1..],
        [(10, 1), (15, 2), (40, 1), (60, 0), (70, 1), (90, 0)]
    );
}
