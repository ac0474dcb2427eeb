use super::*;
use crate::Snapshot;
use midair_output::RecordWriter;
use midair_record::event::{Header, Queue, encode, kind};

const SECOND: u64 = 1_000_000_000;
/// Any time, on the border of a slot.
const T: u64 = 1_000 * SECOND;

fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

fn model() -> Model {
    Model::new(Arc::new(Names::amd()), T)
}

fn tell(model: &mut Model, bytes: &[u8]) {
    let (record, _) = event::decode(bytes).unwrap();
    model.record(&record);
}

fn kernel(rung: u64, start: u64, end: u64) -> Vec<u8> {
    let kernel = event::Kernel {
        header: header(kind::KERNEL_DISPATCH, 0),
        rung,
        start,
        end,
        kernel_id: 7,
        queue_id: 1,
        node: 2,
        ..event::Kernel::default()
    };
    encode(&kernel, &[])
}

fn pulse(model: &mut Model, now: u64, flights: Vec<Flight>) {
    model.pulse(Pulse {
        now,
        flights,
        ..Pulse::default()
    });
}

fn near(value: f64, wanted: f64) {
    assert!((value - wanted).abs() < 1e-6, "{value}, not {wanted}");
}

#[test]
fn idle_time_has_one_cause_each() {
    let mut model = model();
    let ms = SECOND / 1_000;
    // In one second, 400 ms of kernels run on two queues and overlap. They were launched 100 ms
    // before the first.
    tell(
        &mut model,
        &kernel(T + 100 * ms, T + 200 * ms, T + 500 * ms),
    );
    tell(
        &mut model,
        &kernel(T + 190 * ms, T + 300 * ms, T + 600 * ms),
    );
    // A copy of 100 ms, half of it alongside a kernel.
    let copy = Copy {
        header: header(kind::MEMORY_COPY, 2),
        start: T + 550 * ms,
        end: T + 650 * ms,
        bytes: 1 << 20,
        dst_node: 2,
        ..Copy::default()
    };
    tell(&mut model, &encode(&copy, &[]));
    // A thread waited from 50 to 700 ms.
    let names = Names::amd();
    let wait = (0..600)
        .find(|operation| {
            names.operation(kind::HIP_RUNTIME_API_EXT, *operation) == "hipDeviceSynchronize"
        })
        .unwrap();
    let api = Api {
        header: header(kind::HIP_RUNTIME_API_EXT, wait),
        start: T + 50 * ms,
        end: T + 700 * ms,
        ..Api::default()
    };
    tell(&mut model, &encode(&api, &[]));
    pulse(&mut model, T + SECOND, Vec::new());
    let snapshot = Snapshot::of(1, "x", &model);
    assert_eq!(snapshot.window, SECOND);
    let device = &snapshot.devices[0];
    near(device.busy, 0.4);
    near(device.idle.copies, 0.05);
    near(device.idle.launching, 0.1);
    near(device.idle.waiting, 0.1);
    near(device.idle.nothing, 0.35);
    near(snapshot.kernel_rate(), 2.0);
    near(snapshot.copy_rate(), f64::from(1 << 20));
    let call = &snapshot.calls[0];
    assert!(call.waits && call.name == "hipDeviceSynchronize");
    near(call.threads, 0.65);
}

#[test]
fn what_runs_counts_as_busy_and_has_an_age() {
    let mut model = model();
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id: 7,
        kernel_object: 0x1000,
        name_len: 7,
        ..KernelSymbol::default()
    };
    tell(&mut model, &encode(&symbol, b"gemm.kd"));
    let queue = Queue {
        header: header(kind::QUEUE, 0),
        queue_id: 1,
        node: 2,
        ..Queue::default()
    };
    tell(&mut model, &encode(&queue, &[]));
    tell(&mut model, &kernel(T, T + 1, T + SECOND / 2));
    let flight = Flight {
        queue: 1,
        node: 2,
        dispatch: 9,
        kernel_object: 0x1000,
        rung: T + 5,
        under_way: 2,
    };
    pulse(&mut model, T + SECOND, vec![flight]);
    let snapshot = Snapshot::of(1, "x", &model);
    near(snapshot.busy(), 1.0 - 1e-9);
    let head = snapshot.queues[0].head.clone().unwrap();
    assert_eq!(
        (head.name.as_str(), head.dispatch, head.under_way),
        ("gemm", 9, 2)
    );
    // The one before it had to end first.
    assert_eq!(head.age, SECOND / 2);
}

#[test]
fn nothing_grows_with_the_time() {
    let mut model = model();
    let mut now = T;
    for id in 0..20_000_u64 {
        let kernel = event::Kernel {
            header: header(kind::KERNEL_DISPATCH, 0),
            start: now,
            end: now + 10,
            kernel_id: id,
            queue_id: id as u32,
            node: id as u32,
            ..event::Kernel::default()
        };
        tell(&mut model, &encode(&kernel, &[]));
        let api = Api {
            header: header(kind::HIP_RUNTIME_API_EXT, id as u32),
            start: now,
            end: now + 10,
            ..Api::default()
        };
        tell(&mut model, &encode(&api, &[]));
        now += SECOND;
        pulse(&mut model, now, Vec::new());
    }
    assert!(model.kernels.len() <= MOST_KERNELS + 1);
    assert!(model.calls.len() <= MOST_CALLS && model.queues.len() <= MOST_QUEUES);
    assert!(model.devices.len() <= MOST_DEVICES);
    let spans: usize = model.devices.values().map(|lanes| lanes.busy.len()).sum();
    assert!(spans <= 8 * MOST_DEVICES, "{spans}");
    let counted: u64 = model.kernels.values().map(|ran| ran.total.calls).sum();
    assert_eq!(counted, 20_000, "what has no line of its own is summed up");
}

#[test]
fn times_that_cannot_be_do_no_harm() {
    let mut model = model();
    for (start, end) in [
        (u64::MAX - 5, u64::MAX),
        (1, u64::MAX),
        (u64::MAX, 1),
        (0, 0),
    ] {
        tell(&mut model, &kernel(u64::MAX, start, end));
    }
    tell(&mut model, &kernel(T, T + 1, T + 1_000));
    pulse(&mut model, T + SECOND, Vec::new());
    let snapshot = Snapshot::of(1, "x", &model);
    assert!(snapshot.busy() <= 1.0 && snapshot.kernels.len() == 1);
    assert!(snapshot.to_json()["kernels"][0]["share"].as_f64().unwrap() <= 1.0);
}

/// A pseudo-random number below `below`, the same in each run.
fn next(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % below
}

/// The live view and the screen after an attach compute idle time by themselves. Any records in
/// any order must give the same shares.
#[test]
fn idle_time_is_the_same_as_on_the_screen_after_an_attach() {
    let names = Names::amd();
    let operations: Vec<(u8, u32)> = [
        kind::HIP_RUNTIME_API_EXT,
        kind::HSA_CORE_API,
        kind::HSA_AMD_EXT_API,
    ]
    .into_iter()
    .flat_map(|of| (0..700).map(move |operation| (of, operation)))
    .filter(|(of, operation)| {
        let name = names.operation(*of, *operation);
        ["Synchronize", "wait", "Memcpy", "hipMalloc"]
            .iter()
            .any(|part| name.contains(part))
    })
    .collect();
    assert!(operations.len() > 10);
    let ms = SECOND / 1_000;
    let mut seed = 11;
    for round in 0..200 {
        let mut model = model();
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        let mut give = |bytes: &[u8]| {
            tell(&mut model, bytes);
            assert_eq!(writer.append(bytes).unwrap(), 1);
        };
        for _ in 0..20 {
            let start = T + next(&mut seed, 900) * ms;
            let end = start + (1 + next(&mut seed, 90)) * ms;
            let node = 1 + next(&mut seed, 2) as u32;
            match next(&mut seed, 4) {
                0 => {
                    let kernel = event::Kernel {
                        header: header(kind::KERNEL_DISPATCH, 0),
                        rung: [0, start - (start - T).min(20 * ms)][next(&mut seed, 2) as usize],
                        start,
                        end,
                        queue_id: node,
                        node,
                        ..event::Kernel::default()
                    };
                    give(&encode(&kernel, &[]));
                }
                1 => {
                    let copy = Copy {
                        header: header(kind::MEMORY_COPY, 2),
                        start,
                        end,
                        src_node: next(&mut seed, 3) as u32,
                        dst_node: node,
                        ..Copy::default()
                    };
                    give(&encode(&copy, &[]));
                }
                2 => {
                    let set = MemorySet {
                        header: header(kind::MEMORY_SET, 0),
                        start,
                        end,
                        node,
                        ..MemorySet::default()
                    };
                    give(&encode(&set, &[]));
                }
                _ => {
                    let which = next(&mut seed, operations.len() as u64) as usize;
                    let api = Api {
                        header: header(operations[which].0, operations[which].1),
                        start,
                        end,
                        ..Api::default()
                    };
                    give(&encode(&api, &[]));
                }
            }
        }
        pulse(&mut model, T + SECOND, Vec::new());
        let activity = &writer.index().activity;
        let snapshot = Snapshot::of(1, "x", &model);
        let with_kernels = activity.nodes().filter(|node| activity.has_kernels(*node));
        assert_eq!(
            snapshot
                .devices
                .iter()
                .map(|it| it.node)
                .collect::<Vec<_>>(),
            with_kernels.collect::<Vec<_>>()
        );
        for device in &snapshot.devices {
            let wanted = activity.shares(device.node, T, T + SECOND);
            let found = [
                device.busy,
                device.idle.copies,
                device.idle.launching,
                device.idle.waiting,
                device.idle.nothing,
            ];
            let wanted = [
                wanted.busy,
                wanted.copies,
                wanted.starting,
                wanted.waited,
                wanted.nothing,
            ];
            for (found, wanted) in found.into_iter().zip(wanted) {
                let wanted = wanted as f64 / SECOND as f64;
                assert!(
                    (found - wanted).abs() < 1e-9,
                    "round {round}: {found}, not {wanted}"
                );
            }
        }
    }
}

#[test]
fn gpus_have_the_numbers_of_the_screen_after_an_attach() {
    let mut model = model();
    model.number_gpus([(1, 0), (2, 1)]);
    // Without a known agent a CUDA device has its ordinal, and another one its node.
    let nodes = [1, 2, 7, CUDA_NODE, CUDA_NODE + 3];
    assert_eq!(nodes.map(|node| model.gpu(node)), [0, 1, 7, 0, 3]);
}

#[test]
fn bursts_add_up_to_their_time_and_no_more() {
    let mut model = model();
    let ms = SECOND / 1_000;
    tell(&mut model, &kernel(T, T + 50 * ms, T + 120 * ms));
    tell(
        &mut model,
        &kernel(T + 130 * ms, T + 150 * ms, T + 170 * ms),
    );
    let burst = |from: u64, start: u64, end: u64, to: u64| event::Burst {
        header: header(kind::BURST, 0),
        from: T + from * ms,
        start: T + start * ms,
        end: T + end * ms,
        to: T + to * ms,
        cost: 100_000,
        ..event::Burst::default()
    };
    tell(&mut model, &encode(&burst(0, 100, 200, 500), &[]));
    // What a target says of the past, of the future, or of no time at all counts for nothing.
    let past = event::Burst {
        start: T - SECOND,
        ..burst(0, 0, 100, 200)
    };
    let open = event::Burst {
        end: 0,
        ..burst(0, 600, 0, 0)
    };
    let future = event::Burst {
        start: u64::MAX - 1,
        end: u64::MAX,
        ..burst(0, 0, 0, 0)
    };
    for wrong in [past, open, future, burst(0, 300, 300, 400)] {
        tell(&mut model, &encode(&wrong, &[]));
    }
    let totals = model.totals();
    assert_eq!((totals.bursts, totals.recorded), (1, 100 * ms));
    // 20 ms of the first kernel and 20 ms of the second; 20 ms between a doorbell and a start.
    let states = [40, 0, 20, 0, 40].map(|time| time * ms);
    assert_eq!(totals.gpus, [(2, states)]);
    near(totals.overhead, 0.1 * 0.2);
    assert_eq!(totals.delays.sum(), 70 * ms);
    assert_eq!(totals.classes["other"].calls, 2);
    // A later session of the process adds to it.
    let mut both = totals.clone();
    both.add(&totals);
    assert_eq!((both.bursts, both.recorded), (2, 200 * ms));
    assert_eq!(both.gpus, [(2, states.map(|time| 2 * time))]);
    assert_eq!(both.classes["other"].calls, 4);
    near(both.overhead, totals.overhead);
}

#[test]
fn a_sampled_kernel_has_its_hottest_instruction() {
    let mut model = model();
    let symbol = event::KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id: 7,
        code_object_id: 3,
        kernel_object: 0x1000,
        entry_offset: 0x100,
        name_len: 4,
        ..event::KernelSymbol::default()
    };
    tell(&mut model, &encode(&symbol, b"k.kd"));
    tell(&mut model, &kernel(T, T + 1, T + 1000));
    for pc in [0x1100, 0x1108, 0x1108] {
        let sample = event::PcSample {
            header: header(kind::PC_SAMPLING_HOST_TRAP, 0),
            pc,
            code_object_id: 3,
            ..event::PcSample::default()
        };
        tell(&mut model, &encode(&sample, &[]));
    }
    pulse(&mut model, T + SECOND, Vec::new());
    let snapshot = Snapshot::of(1, "x", &model);
    let hottest = snapshot.kernels[0].hottest.unwrap();
    assert_eq!((hottest.offset, hottest.count, hottest.all), (8, 2, 3));
    let document = snapshot.to_json();
    assert_eq!(document["kernels"][0]["hottest"]["offset"], 8);
}
