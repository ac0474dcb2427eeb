use super::*;
use midair_record::event::{CUDA_NODE, Header};

const GPU: u32 = 1;
const MS: u64 = 1_000_000;

fn kernel(rung: u64, start: u64, end: u64) -> Kernel {
    Kernel {
        rung,
        start,
        end,
        node: GPU,
        ..Kernel::default()
    }
}

fn call(name: &str, start: u64, end: u64) -> Api {
    let (kind, operation) = midair_domain::built()
        .filter(|domain| SEEN_IN.contains(domain.kind))
        .find_map(|domain| {
            let kind = names::BUFFER_KINDS.get(usize::from(domain.number?))?;
            let mut all = kind.operations.iter().chain(kind.added);
            Some((domain.kind, all.position(|known| known.as_str() == name)?))
        })
        .unwrap();
    Api {
        header: Header {
            kind,
            operation: operation as u32,
            ..Header::default()
        },
        start,
        end,
        ..Api::default()
    }
}

#[test]
fn each_instant_is_what_comes_first() {
    let mut activity = Activity::default();
    // Two kernels that overlap, the second queued since 40.
    activity.add_kernel(&kernel(90, 100, 200));
    activity.add_kernel(&kernel(40, 150, 300));
    activity.add_copy(&Copy {
        start: 280,
        end: 350,
        dst_node: 0,
        src_node: GPU,
        ..Copy::default()
    });
    activity.add_call(&call("hipDeviceSynchronize", 250, 500));
    activity.add_call(&call("hipMemcpyAsync", 600, 900));
    let shares = activity.shares(GPU, 0, 1000);
    let wanted = Shares {
        busy: 200,
        copies: 50,
        starting: 60,
        waited: 150,
        nothing: 540,
    };
    assert_eq!(shares, wanted);
    assert!(activity.sees_waits() && activity.has_kernels(GPU) && !activity.has_kernels(0));
    assert_eq!(activity.nodes().collect::<Vec<_>>(), [0, GPU]);
}

#[test]
fn a_node_without_records_did_nothing() {
    let shares = Activity::default().shares(7, 10, 30);
    let nothing = Shares {
        nothing: 20,
        ..Shares::default()
    };
    assert_eq!(shares, nothing);
}

#[test]
fn cuda_streams_that_wait_are_no_waits_of_the_host() {
    let wait = |operation| Synchronization {
        header: Header {
            operation,
            ..Header::default()
        },
        start: 100,
        end: 200,
        ..Synchronization::default()
    };
    for (operation, wanted) in [(1, 100), (2, 0), (3, 100), (4, 100)] {
        let mut activity = Activity::default();
        activity.add_set(&MemorySet {
            start: 300,
            end: 310,
            node: CUDA_NODE,
            ..MemorySet::default()
        });
        activity.add_synchronization(&wait(operation));
        let shares = activity.shares(CUDA_NODE, 100, 400);
        assert_eq!((shares.waited, shares.copies), (wanted, 10), "{operation}");
    }
}

/// A million kernels with gaps run on two queues whose records come in blocks. One synchronize call
/// covers them and is recorded at their end. The sums must be exact to a bucket, and memory must
/// not grow.
#[test]
fn a_long_session_is_summed_up() {
    let mut activity = Activity::default();
    let count = 1_000_000_u64;
    let base = 5 * MS;
    for block in 0..count / 1000 {
        for queue in [0, 1] {
            for number in 0..1000 {
                // Each takes 10 us. The first queue's kernel uses 4 of these, and the second's uses
                // 2 of the same 4.
                let start = base + (block * 1000 + number) * 10_000 + queue * 1000;
                let end = start + 4000 - queue * 2000;
                activity.add_kernel(&kernel(start, start, end));
            }
        }
    }
    let end = base + count * 10_000;
    activity.add_call(&call("hipStreamSynchronize", base + 1000 * MS, end));
    let shares = activity.shares(GPU, base, end);
    assert_eq!(shares.busy, count * 4000);
    let near = |value: u64, wanted: u64| value.abs_diff(wanted) < 2 * MS;
    let second = 1000 * MS;
    assert!(
        near(shares.waited, (count * 6000) - second * 6 / 10),
        "{shares:?}"
    );
    assert!(near(shares.nothing, second * 6 / 10), "{shares:?}");
    let gpu = activity.gpus.get(&GPU).unwrap();
    assert!(gpu.kernels.from(0).len() <= MOST_SPANS);
    assert!(activity.summed_up > base);
}

#[test]
fn late_kernels_displace_what_was_taken_for_idle() {
    let mut activity = Activity::default();
    for number in 0..20_000_u64 {
        let start = MS + number * 1000;
        activity.add_kernel(&kernel(start, start, start + 100));
    }
    assert!(activity.summed_up > 6 * MS);
    let before = activity.shares(GPU, MS, 21 * MS);
    assert_eq!(before.busy, 2 * MS);
    // A whole bucket of two ms, which is recorded last.
    activity.add_kernel(&kernel(2 * MS, 2 * MS, 4 * MS));
    let after = activity.shares(GPU, MS, 21 * MS);
    assert!(
        after.busy.abs_diff(2 * MS + 1_800_000) < 10_000,
        "{after:?}"
    );
    assert_eq!(
        after.busy + after.nothing + after.copies + after.starting + after.waited,
        20 * MS
    );
}

/// The same as of a process's records: what lists of spans have in a part of the time.
#[test]
fn shares_of_lists_are_those_between_two_times() {
    let kernels: &[(u64, u64)] = &[(50, 120), (150, 200)];
    let copies: &[(u64, u64)] = &[(110, 140)];
    let queued: &[(u64, u64)] = &[(130, 160)];
    let waits: &[(u64, u64)] = &[(190, 500)];
    let shares = Shares::of([kernels, copies, queued, waits], 100, 300);
    let wanted = Shares {
        busy: 20 + 50,
        copies: 20,
        starting: 10,
        waited: 100,
        nothing: 0,
    };
    assert_eq!(shares, wanted);
    let nothing = Shares::of([&[], &[], &[], &[]], 100, 300);
    assert_eq!((nothing.busy, nothing.nothing), (0, 200));
}

#[test]
fn waits_are_seen_where_calls_or_waits_were_recorded() {
    let mut activity = Activity::default();
    activity.add_kernel(&kernel(90, 100, 200));
    assert!(!activity.sees_waits());
    // A call of another kind shows none.
    activity.add_call(&Api::default());
    assert!(!activity.sees_waits());
    activity.add_call(&call("hipMemcpyAsync", 600, 900));
    assert!(activity.sees_waits());
}

/// A kernel of another GPU is recorded when everything up to its end was summed up.
#[test]
fn a_kernel_that_is_only_in_the_past_is_there() {
    let mut activity = Activity::default();
    for number in 0..20_000_u64 {
        let start = MS + number * 1000;
        activity.add_kernel(&kernel(start, start, start + 100));
    }
    let late = Kernel {
        node: 2,
        ..kernel(2 * MS, 2 * MS, 3 * MS)
    };
    assert!(activity.summed_up > late.end && !activity.has_kernels(2));
    activity.add_kernel(&late);
    assert!(activity.has_kernels(2));
    assert_eq!(activity.shares(2, 0, 30 * MS).busy, MS);
}
