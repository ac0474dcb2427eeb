//! The data of the page of the format html: all that it says of small sessions, value by value.

use crate::common::{append, golden_json, list, text, trace_of, writer};
use crate::counter_batches::batch;
use crate::counters::{NODE, amds_plan, put, put_kernel, session, window};
use crate::cuda;
use crate::readings::readings;
use crate::recordings::machine;
use crate::rocpd_rows::{header, plan, put_marker};
use midair_output::{
    Format, GpuMetric, GpuSamples, KernelFilter, Names, Plan, RecordWriter, Trace, write_together,
};
use midair_record::event::{
    self, Allocation, Api, Copy, Header, Kernel, KernelSymbol, KfdEvent, Marker, MemorySet,
    NO_NODE, Scratch, Synchronization, UnifiedMemory, Untimed, cuda_node, cuda_stream, flag, kind,
};
use serde_json::{Value, json};
use std::fs;

/// When the session starts. The page counts from there.
const ZERO: u64 = 1_000_000;
const PID: u32 = 100;

/// Returns the data of these sessions' page.
fn data(sessions: &[Trace], change: impl FnOnce(&mut Plan)) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), &[Format::Html]);
    change(&mut plan);
    write_together(sessions, &Names::amd(), &plan).unwrap();
    let page = fs::read_to_string(directory.path().join("r_results.html")).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// Returns the rows of a page in words: process and name of the row, and its spans, each with its
/// start, its length and its value.
fn told(data: &Value) -> Vec<(String, Vec<String>)> {
    let names = list(&data["names"]);
    let of_row = |row: &Value| {
        assert_eq!(row["merged"], json!([]));
        let mut start = 0;
        let span = |numbers: &[Value]| {
            let [step, time, name, value] = numbers else {
                panic!("{row}");
            };
            start += step.as_i64().unwrap();
            let name = &names[name.as_u64().unwrap() as usize];
            let [category, name] = [0, 1].map(|at| text(&name[at]));
            format!("{category} {name} {start}+{time} {value}")
        };
        let spans = list(&row["spans"]).chunks(4).map(span).collect();
        (format!("{} {}", row["process"], text(&row["name"])), spans)
    };
    list(&data["rows"]).iter().map(of_row).collect()
}

/// Returns the curves of a page: names, and starts, lengths and values.
fn curves(data: &Value) -> Vec<(String, Value)> {
    let curves = list(&data["curves"]).iter();
    curves
        .map(|curve| (text(&curve["name"]), curve["values"].clone()))
        .collect()
}

fn rows<const N: usize>(wanted: [(&str, &[&str]); N]) -> Vec<(String, Vec<String>)> {
    let owned = |(row, spans): (&str, &[&str])| {
        let spans = spans.iter().map(|span| (*span).to_owned());
        (row.to_owned(), spans.collect())
    };
    wanted.into_iter().map(owned).collect()
}

/// Returns a session with these records.
fn trace(writer: RecordWriter) -> Trace {
    let mut trace = trace_of(writer, &golden_json());
    trace.agents = machine();
    let process = &mut trace.process;
    process.pid = PID;
    process.command = vec!["/opt/bin/vadd".to_owned(), "-x".to_owned()];
    process.threads = [(101, "worker".to_owned())].into();
    (process.init_time, process.fini_time) = (ZERO, ZERO + 1_000_000);
    trace
}

fn put_call(writer: &mut RecordWriter, name: &str, tid: u32, (start, end): (u64, u64)) {
    let kind = kind::HIP_RUNTIME_API_EXT;
    let number = midair_domain::domain(kind).unwrap().number.unwrap();
    let names = Names::amd();
    let mut operations = names.buffer[usize::from(number)].operations.iter();
    let operation = operations.position(|known| known == name).unwrap();
    let api = Api {
        header: header(kind, operation as u32),
        start,
        end,
        tid,
        ..Api::default()
    };
    append(writer, &event::encode(&api, &[]));
}

fn put_symbol(writer: &mut RecordWriter, kernel_id: u64, name: &str) {
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    append(writer, &event::encode(&symbol, name.as_bytes()));
}

/// Returns a dispatch on queue 3 of the first GPU.
fn dispatch(dispatch_id: u64, kernel_id: u64, start: u64) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start,
        end: start + 500,
        dispatch_id,
        kernel_id,
        queue_id: 3,
        node: 1,
        tid: PID,
        ..Kernel::default()
    }
}

/// Returns a copy of 4,096 bytes that takes 50 ns.
fn copy(operation: u32, (src_node, dst_node): (u32, u32), stream: u64, start: u64) -> Copy {
    Copy {
        header: header(kind::MEMORY_COPY, operation),
        start,
        end: start + 50,
        bytes: 4096,
        stream,
        src_node,
        dst_node,
        tid: PID,
        ..Copy::default()
    }
}

/// Returns what is done on streams of HIP: kernels and copies, with times and without.
fn work() -> RecordWriter {
    let mut all = writer();
    put_symbol(&mut all, 1, "_Z4vaddPKfS0_Pfi.kd");
    let of_stream = |kernel: Kernel| Kernel {
        stream: 0xbeef,
        ..kernel
    };
    let unnamed = |kernel: Kernel, kernel_object| Kernel {
        kernel_object,
        ..kernel
    };
    let untimed = Kernel {
        header: Header {
            flags: flag::UNTIMED,
            ..header(kind::KERNEL_DISPATCH, 1)
        },
        untimed: Untimed::BadTimes as u32,
        ..dispatch(6, 1, ZERO + 9_000)
    };
    for kernel in [
        dispatch(1, 1, ZERO + 1_000),
        of_stream(dispatch(2, 1, ZERO + 1_200)),
        unnamed(dispatch(3, 0, ZERO + 2_000), 0x1000),
        unnamed(dispatch(4, 0, ZERO + 3_000), 0x2000),
        dispatch(5, 1, ZERO + 4_000),
        untimed,
    ] {
        append(&mut all, &event::encode(&kernel, &[]));
    }
    let untimed = Copy {
        header: Header {
            flags: flag::UNTIMED,
            ..header(kind::MEMORY_COPY, 2)
        },
        ..copy(2, (0, 1), 0, ZERO + 9_000)
    };
    for copy in [
        copy(2, (0, 1), 0xbeef, ZERO + 5_000),
        copy(3, (1, 0), 0, ZERO + 5_100),
        // From host to host, and from one GPU to another.
        copy(1, (0, 0), 0, ZERO + 5_200),
        copy(4, (1, 2), 0, ZERO + 5_300),
        // Between nodes that nothing describes.
        copy(4, (8, 9), 0, ZERO + 5_400),
        untimed,
    ] {
        append(&mut all, &event::encode(&copy, &[]));
    }
    all
}

#[test]
fn work_is_in_rows_of_streams() {
    let data = data(&[trace(work())], |_| ());
    let wanted = rows([
        (
            "0 Agent 0 default stream",
            &["copy MEMORY_COPY_HOST_TO_HOST 5200+50 4096"],
        ),
        (
            "0 GPU 0 default stream",
            &[
                "kernel vadd 1000+500 1",
                "kernel unknown_kernel@0x1000 2000+500 3",
                "kernel unknown_kernel@0x2000 3000+500 4",
                "kernel vadd 4000+500 5",
                "copy MEMORY_COPY_DEVICE_TO_HOST 5100+50 4096",
            ],
        ),
        (
            "0 GPU 0 stream 1",
            &[
                "kernel vadd 1200+500 2",
                "copy MEMORY_COPY_HOST_TO_DEVICE 5000+50 4096",
            ],
        ),
        (
            "0 GPU 1 default stream",
            &["copy MEMORY_COPY_DEVICE_TO_DEVICE 5300+50 4096"],
        ),
        (
            "0 GPU 9 default stream",
            &["copy MEMORY_COPY_DEVICE_TO_DEVICE 5400+50 4096"],
        ),
    ]);
    assert_eq!(told(&data), wanted);
    let numbers = ["begin", "end", "records", "bucket"].map(|key| data[key].as_i64().unwrap());
    assert_eq!(numbers, [0, 1_000_000, 10, 0]);
    assert_eq!(data["counters_merged"], false);
    assert_eq!(data["counters_left_out"], 0);
}

/// As the user asked for it, or where the process does without HIP and so has no streams.
#[test]
fn work_is_in_rows_of_queues() {
    let data = data(&[trace(work())], |plan| plan.group_by_queue = true);
    let wanted = rows([
        (
            "0 GPU 0 queue 3",
            &[
                "kernel vadd 1000+500 1",
                "kernel vadd 1200+500 2",
                "kernel unknown_kernel@0x1000 2000+500 3",
                "kernel unknown_kernel@0x2000 3000+500 4",
                "kernel vadd 4000+500 5",
            ],
        ),
        (
            "0 Agent 0 copies",
            &["copy MEMORY_COPY_HOST_TO_HOST 5200+50 4096"],
        ),
        (
            "0 GPU 0 copies",
            &[
                "copy MEMORY_COPY_HOST_TO_DEVICE 5000+50 4096",
                "copy MEMORY_COPY_DEVICE_TO_HOST 5100+50 4096",
            ],
        ),
        (
            "0 GPU 1 copies",
            &["copy MEMORY_COPY_DEVICE_TO_DEVICE 5300+50 4096"],
        ),
        (
            "0 GPU 9 copies",
            &["copy MEMORY_COPY_DEVICE_TO_DEVICE 5400+50 4096"],
        ),
    ]);
    assert_eq!(told(&data), wanted);
}

#[test]
fn calls_and_ranges_are_in_rows_of_threads() {
    let mut all = writer();
    put_call(&mut all, "hipMalloc", PID, (ZERO - 100, ZERO - 50));
    put_call(&mut all, "hipFree", 101, (ZERO + 200, ZERO + 260));
    put_call(&mut all, "hipMalloc", 102, (ZERO + 300, ZERO + 310));
    put_call(&mut all, "hipFree", PID, (ZERO + 320, ZERO + 330));
    for (number, (kind, operation, tid, message)) in (0..).zip([
        (kind::MARKER_CORE_RANGE_API, 0, 102, "a mark"),
        (kind::MARKER_CORE_RANGE_API, 1, 101, "a step"),
        // This range is the process's, whichever thread started it.
        (kind::MARKER_CORE_RANGE_API, 2, 101, "an epoch"),
        // These calls have the numbers of ranges, but are none.
        (kind::MARKER_CONTROL_API, 1, 101, ""),
        (kind::MARKER_CORE_API, 2, 101, ""),
    ]) {
        let marker = Marker {
            header: header(kind, operation),
            start: ZERO + 1_000 + 100 * number,
            end: ZERO + 1_000 + 110 * number,
            tid,
            ..Marker::default()
        };
        put_marker(&mut all, marker, message.as_bytes());
    }
    let data = data(&[trace(all)], |_| ());
    let wanted = rows([
        (
            "0 main thread vadd",
            &["call hipMalloc -100+50 0", "call hipFree 320+10 0"],
        ),
        (
            "0 thread 101 worker",
            &[
                "call hipFree 200+60 0",
                "range a step 1100+10 0",
                "call roctxProfilerResume 1300+30 0",
                "call roctxRangePop 1400+40 0",
            ],
        ),
        (
            "0 thread 102",
            &["call hipMalloc 300+10 0", "range a mark 1000+0 0"],
        ),
        ("0 ranges of the process", &["range an epoch 1200+20 0"]),
    ]);
    assert_eq!(told(&data), wanted);
    assert_eq!(
        (&data["begin"], &data["records"]),
        (&json!(-100), &json!(9))
    );
}

#[test]
fn memory_and_the_driver_have_rows_of_their_own() {
    let mut all = writer();
    let allocation = |(start, end)| Allocation {
        header: header(kind::MEMORY_ALLOCATION, 1),
        start,
        end,
        bytes: 1 << 20,
        node: 1,
        tid: PID,
        ..Allocation::default()
    };
    for times in [(ZERO + 10, ZERO + 30), (ZERO + 40, 0)] {
        append(&mut all, &event::encode(&allocation(times), &[]));
    }
    let scratch = Scratch {
        header: header(kind::SCRATCH_MEMORY, 1),
        start: ZERO + 100,
        end: ZERO + 105,
        bytes: 8192,
        node: 2,
        tid: PID,
        ..Scratch::default()
    };
    append(&mut all, &event::encode(&scratch, &[]));
    // The first of these two is a part of what the second has in one.
    for (tracing_kind, start) in [(24, ZERO + 200), (29, ZERO + 300)] {
        let moved = KfdEvent {
            header: header(kind::KFD_PAGE_MIGRATE, 0),
            start,
            end: start + 70,
            tracing_kind,
            pid: PID,
            ..KfdEvent::default()
        };
        append(&mut all, &event::encode(&moved, &[]));
    }
    let names = Names::amd();
    let moved = names.operation(kind::KFD_PAGE_MIGRATE, 0);
    let moved = format!("driver {moved} 300+70 0");
    let data = data(&[trace(all)], |_| ());
    let wanted = rows([
        (
            "0 GPU 1 scratch memory",
            &["memory SCRATCH_MEMORY_ALLOC 100+5 8192"],
        ),
        (
            "0 memory allocation",
            &["memory MEMORY_ALLOCATION_ALLOCATE 10+20 1048576"],
        ),
        ("0 kfd page migrate", &[moved.as_str()]),
    ]);
    let mut found = told(&data);
    found.sort();
    let mut sorted = wanted;
    sorted.sort();
    assert_eq!(found, sorted);
}

/// Returns a kernel, copies, fills, waits and moves of a CUDA process.
fn of_cuda() -> Trace {
    let mut all = writer();
    cuda::device(&mut all, 0);
    put_symbol(&mut all, 1, "_Z4vaddPKfS0_Pfi");
    let (kernel, launch) = cuda::kernel();
    append(&mut all, &event::encode(&kernel, launch.bytes()));
    cuda::copy(&mut all, 1, (NO_NODE, cuda_node(0)), 4_000);
    // Device 5 has no description.
    cuda::copy(&mut all, 2, (cuda_node(5), NO_NODE), 4_200);
    cuda::copy(&mut all, 10, (cuda_node(5), cuda_node(0)), 4_400);
    for end in [4_650, 0] {
        let set = MemorySet {
            header: header(kind::MEMORY_SET, 3),
            start: 4_600,
            end,
            bytes: 512,
            stream: cuda_stream(1, 7),
            node: cuda_node(0),
            ..MemorySet::default()
        };
        append(&mut all, &event::encode(&set, &[]));
    }
    let wait = Synchronization {
        header: header(kind::SYNCHRONIZATION, 3),
        start: 5_000,
        end: 5_060,
        stream: cuda_stream(1, 7),
        ..Synchronization::default()
    };
    append(&mut all, &event::encode(&wait, &[]));
    let moved = UnifiedMemory {
        header: header(kind::UNIFIED_MEMORY, 1),
        start: 6_000,
        end: 6_025,
        value: 65_536,
        src_node: NO_NODE,
        dst_node: cuda_node(0),
        ..UnifiedMemory::default()
    };
    append(&mut all, &event::encode(&moved, &[]));
    let mut trace = trace(all);
    trace.agents.truncate(1);
    (trace.process.init_time, trace.process.fini_time) = (1_000, 10_000);
    trace
}

#[test]
fn work_of_cuda_is_in_rows_of_contexts_and_streams() {
    let data = data(&[of_cuda()], |_| ());
    let wanted = rows([
        (
            "0 GPU 0 context 1 stream 7",
            &[
                "kernel vadd 1000+1500 1",
                "copy MEMORY_COPY_HOST_TO_DEVICE 3000+100 4096",
                "copy MEMORY_COPY_PEER_TO_PEER 3400+100 4096",
                "copy MEMORY_SET_DEVICE 3600+50 512",
            ],
        ),
        (
            "0 GPU 5 context 1 stream 7",
            &["copy MEMORY_COPY_DEVICE_TO_HOST 3200+100 4096"],
        ),
        (
            "0 synchronization",
            &["wait SYNCHRONIZATION_STREAM 4000+60 0"],
        ),
        (
            "0 unified memory",
            &["memory UNIFIED_MEMORY_HOST_TO_DEVICE 5000+25 0"],
        ),
    ]);
    assert_eq!(told(&data), wanted);
}

#[test]
fn fills_of_cuda_are_with_copies_where_queues_have_the_rows() {
    let data = data(&[of_cuda()], |plan| plan.group_by_queue = true);
    let found = told(&data);
    let row = found.iter().find(|(name, _)| name == "0 GPU 0 copies");
    assert_eq!(
        row.unwrap().1,
        [
            "copy MEMORY_COPY_HOST_TO_DEVICE 3000+100 4096",
            "copy MEMORY_COPY_PEER_TO_PEER 3400+100 4096",
            "copy MEMORY_SET_DEVICE 3600+50 512",
        ]
    );
}

/// Sessions whose start is not known do not count for the start of the page.
#[test]
fn the_page_counts_from_the_first_session_whose_begin_is_known() {
    let one_call = |start: u64| {
        let mut all = writer();
        put_call(&mut all, "hipMalloc", PID, (start, start + 10));
        trace(all)
    };
    let mut unknown = one_call(ZERO + 30);
    (unknown.process.init_time, unknown.process.fini_time) = (0, 0);
    let mut later = one_call(ZERO + 70);
    (later.process.init_time, later.process.fini_time) = (ZERO + 20, ZERO + 90);
    let all = data(&[unknown, later], |_| ());
    let wanted = rows([
        ("0 main thread vadd", &["call hipMalloc 10+10 0"]),
        ("1 main thread vadd", &["call hipMalloc 50+10 0"]),
    ]);
    assert_eq!(told(&all), wanted);
    assert_eq!((&all["begin"], &all["end"]), (&json!(0), &json!(70)));
}

#[test]
fn readings_of_devices_are_curves_of_rates() {
    const HALF: u64 = 500_000_000;
    let mut trace = readings();
    trace.process.init_time = 1_000_000_000;
    trace.process.fini_time = 4_000_000_000;
    let data = data(&[trace], |_| ());
    // Half a second each, the last one after a gap. A wave is counted on each of eight engines.
    let wanted = |rates: [f64; 3]| {
        json!([
            0,
            HALF,
            rates[0],
            HALF,
            HALF,
            rates[1],
            4 * HALF,
            HALF,
            rates[2]
        ])
    };
    assert_eq!(
        curves(&data),
        [
            ("GPU 0 GRBM_COUNT /s".to_owned(), wanted([20.0, 40.0, 10.0])),
            ("GPU 0 SQ_WAVES /s".to_owned(), wanted([160.0, 320.0, 80.0])),
        ]
    );
}

#[test]
fn counters_of_dispatches_are_curves() {
    let kernel = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start: 20_000,
        end: 21_000,
        rung: 19_000,
        dispatch_id: 2,
        kernel_id: 11,
        queue_id: 1,
        node: NODE,
        ..Kernel::default()
    };
    let mut all = writer();
    put_kernel(&mut all, &kernel);
    put(&mut all, window(1, &kernel, 9), &[3; 9], 9);
    let from = |mut trace: Trace| {
        let names = Plan::default().kernel_names;
        let all = KernelFilter::default();
        trace.records.choose(&all, names, false).unwrap();
        (trace.process.init_time, trace.process.fini_time) = (10_000, 30_000);
        trace
    };
    let single = from(session(all, amds_plan()));
    let several = from(batch(|_| ()));
    let data = data(&[single, several], |_| ());
    let named = |name: &str, values| (name.to_owned(), values);
    assert_eq!(
        curves(&data),
        [
            named("GPU 0 GRBM_COUNT", json!([10_000, 1_000, 3.0])),
            named("GPU 0 SQ_WAVES", json!([10_000, 1_000, 24.0])),
            named("GPU 0 GRBM_COUNT of batches", json!([1_000, 3_500, 3.0])),
            named("GPU 0 SQ_WAVES of batches", json!([1_000, 3_500, 24.0])),
        ]
    );
    let processes = list(&data["curves"]).iter();
    let processes: Vec<&Value> = processes.map(|curve| &curve["process"]).collect();
    assert_eq!(processes, [0, 0, 1, 1]);
}

#[test]
fn samples_of_a_gpu_are_curves() {
    let mut trace = trace(writer());
    let metric = |name: &str| GpuMetric {
        name: name.to_owned(),
        unit: "%".to_owned(),
        expression: String::new(),
        group: 0,
    };
    let mut samples = GpuSamples::new(3, 1000, vec![metric("SM"), metric("DRAM")]);
    let times = [(ZERO, ZERO + 10), (ZERO + 10, ZERO + 30)];
    samples.push(0, &times, &[50.0, 5.0, 75.0, 7.5]);
    trace.gpu = Some(samples);
    assert_eq!(
        curves(&data(&[trace], |_| ())),
        [
            (
                "GPU 3 SM (%)".to_owned(),
                json!([0, 10, 50.0, 10, 20, 75.0])
            ),
            (
                "GPU 3 DRAM (%)".to_owned(),
                json!([0, 10, 5.0, 10, 20, 7.5])
            ),
        ]
    );
}

/// The tables have the names by which kernels are known and, where these are shorter, the whole
/// ones.
#[test]
fn tables_have_calls_total_shortest_longest_and_deviation() {
    let mut all = work();
    let longer = Kernel {
        end: ZERO + 20_800,
        ..dispatch(7, 1, ZERO + 20_000)
    };
    append(&mut all, &event::encode(&longer, &[]));
    put_call(&mut all, "hipMalloc", PID, (ZERO + 200, ZERO + 210));
    let data = data(&[trace(all)], |_| ());
    let vadd = "vadd(float const*, float const*, float*, int)";
    let unseen = "(kernel whose name was not seen)";
    // The mean of 500, 500, 500 and 800 is 575, and the squares of the differences are 67,500, a third of
    // which is the variance.
    let deviation = 150.0;
    let table = |title: &str, kernels: bool, note: Value, rows: Value| json!({ "title": title, "kernels": kernels, "note": note, "rows": rows });
    assert_eq!(
        data["tables"],
        json!([
            table(
                "KERNEL",
                true,
                json!("1 of 7 dispatches have no times"),
                json!([
                    ["vadd", vadd, 4, 2300, 500, 800, deviation],
                    [unseen, null, 2, 1000, 500, 500, 0.0],
                ])
            ),
            table(
                "CALL",
                false,
                Value::Null,
                json!([["hipMalloc", null, 1, 10, 10, 10, 0.0]])
            ),
            table(
                "COPY",
                false,
                Value::Null,
                json!([
                    ["device to device", null, 2, 100, 50, 50, 0.0],
                    ["device to host", null, 1, 50, 50, 50, 0.0],
                    ["host to device", null, 1, 50, 50, 50, 0.0],
                    ["host to host", null, 1, 50, 50, 50, 0.0],
                ])
            ),
        ])
    );
}

#[test]
fn several_processes_have_a_table_of_them() {
    let mut first = trace(work());
    first.attach.pid = Some(77);
    let mut second = trace(writer());
    second.process.command.clear();
    let data = data(&[first, second], |_| ());
    let table = &data["tables"][0];
    assert_eq!(table["title"], "KERNELS OF PROCESS");
    assert_eq!(table["kernels"], false);
    assert_eq!(
        table["rows"],
        json!([
            ["process 77 vadd", null, 5, 2500, 500, 500, 0.0],
            ["process 100", null, 0, 0, 0, 0, 0.0],
        ])
    );
}

#[test]
fn notes_of_a_session_are_above_the_tables() {
    for (count, more) in [(100, None), (103, Some("3 more notes were omitted"))] {
        let mut trace = trace(work());
        trace.notes = (0..count).map(|number| format!("note {number}")).collect();
        let wanted: Vec<String> = trace.notes[..100].to_vec();
        let data = data(&[trace], |_| ());
        let head = &data["processes"][0];
        let notes = list(&head["notes"]);
        assert_eq!(notes[..100], wanted);
        let rest: Vec<&str> = notes[100..].iter().map(|it| it.as_str().unwrap()).collect();
        assert_eq!(rest, more.into_iter().collect::<Vec<_>>());
        assert_eq!(
            head["untimed"],
            json!([[Untimed::BadTimes.text(), 1], ["no reason was recorded", 1]])
        );
    }
}
