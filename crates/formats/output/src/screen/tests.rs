use super::*;
use crate::model::Attach;
use crate::process::{Outcome, Process};
use midair_agents::Agent;
use midair_record::event::{
    Burst, Copy, CudaTransfer, Header, Kernel, QueueCounts, cuda_node, encode, kind,
};
use midair_trace::frame_names::Part;
use midair_trace::index::Function;
use midair_trace::index::Stat;
use midair_trace::record_file::RecordWriter;
use midair_trace::steps::{LoopLine, MainLoop, Step};
use std::path::Path;
use std::time::Duration;

fn head() -> Head {
    let shares = Shares {
        busy: 631,
        copies: 42,
        starting: 10,
        waited: 120,
        nothing: 197,
    };
    let shares = Shares {
        busy: shares.busy * 10_000_000,
        copies: shares.copies * 10_000_000,
        starting: shares.starting * 10_000_000,
        waited: shares.waited * 10_000_000,
        nothing: shares.nothing * 10_000_000,
    };
    Head {
        pid: 4242,
        command: ["python3", "train.py", "--batch", "64\x1b[2J"]
            .map(str::to_owned)
            .to_vec(),
        host: "node7".to_owned(),
        began: "2026-11-23 20:52:31 UTC".to_owned(),
        time: 10_000_000_000,
        recorded: 10_000_000_000,
        records: 123_456,
        cost: Cost {
            longest_stop: Some(Duration::from_micros(57)),
            in_process: Some(Duration::from_millis(80)),
            beside: Some(Duration::from_millis(120)),
        },
        gpus: vec![Gpu {
            name: "GPU 0".to_owned(),
            model: "gfx942".to_owned(),
            shares,
            sees_waits: true,
        }],
        idle_gpus: 7,
        ..Head::default()
    }
}

fn screen(heads: Vec<Head>) -> Screen {
    let stat = |calls, total| Stat {
        calls,
        total,
        min: 1,
        max: total,
        squares: 0,
    };
    let rows = [("gemm", stat(3, 750)), ("copy", stat(1, 250))];
    let rows = rows.map(|(name, stat)| (name.to_owned(), stat));
    Screen {
        heads,
        sections: vec![
            Section::new("KERNEL", rows.into_iter().collect()),
            Section::new("HIP CALL", std::collections::HashMap::new()),
        ],
        files: vec![Path::new("/r/node7/4242_results.db").to_path_buf()],
        ..Screen::default()
    }
}

fn style(columns: usize) -> Style {
    Style {
        columns,
        unicode: false,
        ..Style::default()
    }
}

#[test]
fn a_process_with_its_gpu() {
    let wanted = "\
PROCESS   4242  python3 train.py --batch 64?[2J
TIME      10.0 s from 2026-11-23 20:52:31 UTC on node7
RECORDS   123456, none lost
PAUSE     one application thread was stopped for at most 57.0 us
OVERHEAD  midair took 0.8 % of a core in the process, 1.2 % of a core outside it
RESULTS   /r/node7/4242_results.db
OPEN      midair show /r/node7/4242_results.db

GPU             BUSY  COPIES  STARTING  HOST WAITS  NOTHING QUEUED
GPU 0 gfx942   63.1%    4.2%      1.0%       12.0%           19.7%
7 other GPUs were idle for this process

KERNEL       CALLS      TOTAL       MEAN   SHARE
gemm             3     750 ns     250 ns   75.0%  #########
copy             1     250 ns     250 ns   25.0%  ###
";
    assert_eq!(screen(vec![head()]).text(style(100)), wanted);
    assert_eq!(Screen::default().text(style(100)), "");
}

#[test]
fn a_narrow_terminal_has_a_line_for_each_share() {
    let text = screen(vec![head()]).text(style(60));
    let wanted = "\
PROCESS   4242  python3 train.py --batch 64?[2J
TIME      10.0 s from 2026-11-23 20:52:31 UTC on node7
RECORDS   123456, none lost
PAUSE     one application thread was stopped for at most
          57.0 us
OVERHEAD  midair took 0.8 % of a core in the process, 1.2 %
          of a core outside it
RESULTS   /r/node7/4242_results.db
OPEN      midair show /r/node7/4242_results.db

GPU 0 gfx942
  BUSY              63.1%
  COPIES             4.2%
  STARTING           1.0%
  HOST WAITS        12.0%
  NOTHING QUEUED    19.7%
7 other GPUs were idle for this process
";
    assert!(text.starts_with(wanted), "{text}");
    // Lines that are meant to be copied are whole, and all others fit.
    for line in text.lines().filter(|line| !line.starts_with("OPEN")) {
        assert!(line.chars().count() <= 60, "{line}");
    }
}

#[test]
fn a_main_loop_has_its_iterations_and_its_slowest() {
    let line = |line, time, kernels| LoopLine {
        line,
        time,
        kernels,
    };
    let step = |at: u64, duration| Step {
        start: 5_000_000_000 + at,
        duration,
        busy: 6_000_000,
        kernels: 40,
    };
    let found = MainLoop {
        function: Function {
            file: "/job/train.py".to_owned(),
            name: "train".to_owned(),
            part: Part::Python,
        },
        tid: 7,
        lines: vec![line(88, 8_000_000, 60), line(90, 24_000_000, 90)],
        steps: vec![
            step(0, 8_000_000),
            step(8_000_000, 8_000_000),
            step(16_000_000, 24_000_000),
        ],
        calls: [(90, "Tensor.backward".to_owned())].into(),
        phases: Vec::new(),
        is_native: false,
        left_out: 0,
    };
    let mut head = head();
    head.main_loop = Some((found, 4_000_000_000));
    let screen = screen(vec![head]);
    let text = screen.text(style(100));
    let wanted = "\
STEPS     3 iterations of the loop in train (train.py:88-90), found in the stacks; median 8.00 ms,
          slowest 24.0 ms (number 3, at 1.02 s); no kernel runs for 55 % of the time, 75 % of the
          slowest; GPU time: line 90 (Tensor.backward) 75 %, line 88 25 %
";
    assert!(text.contains(wanted), "{text}");
    let document = screen.json(10);
    let found = &document["processes"][0]["main_loop"];
    assert_eq!(found["iterations"][2]["duration_ns"], 24_000_000);
    assert_eq!(
        (&found["median_ns"], &found["lines"][1]["kernels"]),
        (&8_000_000.into(), &90.into())
    );
}

#[test]
fn what_was_lost_and_never_seen_is_said() {
    let mut head = head();
    head.lost = vec![
        ("HIP calls".to_owned(), 5),
        ("packets of queues".to_owned(), 2),
    ];
    head.untimed = 3;
    head.outcome = Some("another profiler came".to_owned());
    head.cost = Cost {
        longest_stop: Some(Duration::ZERO),
        ..Cost::default()
    };
    head.gpus[0].sees_waits = false;
    let text = screen(vec![head]).text(style(120));
    for wanted in [
        "RECORDS   123456; LOST: 5 HIP calls, 2 packets of queues; 3 dispatches or copies have no times\n",
        "ENDED     another profiler came\n",
        "PAUSE     none: no application thread was stopped\n",
        "GPU 0 gfx942   63.1%    4.2%      1.0%           -           19.7%\n",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(!text.contains("OVERHEAD"), "{text}");
}

#[test]
fn several_processes_share_the_heading() {
    let mut second = head();
    second.pid = 77;
    second.cost.longest_stop = Some(Duration::from_micros(90));
    let text = screen(vec![head(), second]).text(style(100));
    for wanted in [
        "PROCESSES 2\n",
        "RECORDS   246912, none lost\n",
        "PAUSE     process 77: one application thread",
        "midair took 1.6 % of a core in the process, 1.2 % of a core outside it",
        "\nGPU 0 of 77 gfx942 ",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
}

#[test]
fn the_document_has_what_the_screen_has() {
    let warnings = ["careful".to_owned()];
    let screen = screen(vec![head()]).with_warnings(&warnings, Some("records were lost"));
    let document = screen.json(1);
    assert_eq!(document["schema"], 1);
    let process = &document["processes"][0];
    assert_eq!(process["pid"], 4242);
    assert_eq!(process["outcome"], "complete");
    assert_eq!(process["longest_stop_ns"], 57_000);
    assert_eq!(process["gpus"][0]["busy_ns"], 6_310_000_000_u64);
    assert_eq!(process["gpus"][0]["host_waits_ns"], 1_200_000_000);
    let tables = document["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 1);
    assert_eq!(tables[0]["rows"][0]["name"], "gemm");
    assert_eq!(tables[0]["rows"][0]["share"], 0.75);
    assert_eq!(tables[0]["rows_left_out"], 1);
    assert_eq!(document["files"][0], "/r/node7/4242_results.db");
    assert_eq!(document["warnings"][1], "records were lost");
    for member in [
        "counters",
        "kernel_counters",
        "device_counters",
        "gpu_metrics",
    ] {
        assert_eq!(document[member], serde_json::json!([]), "{member}");
    }
}

fn agent(of: AgentType, node_id: u32, number: i32, name: &str, product: &str) -> Agent {
    Agent {
        agent_type: of,
        node_id,
        logical_node_id: node_id as i32,
        logical_node_type_id: number,
        name: name.to_owned(),
        product_name: product.to_owned(),
        ..Agent::default()
    }
}

/// Returns a session of a machine with a CPU and three GPUs, from 1,000 to 2,000 ns.
fn trace(records: &[Vec<u8>]) -> Trace {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    for record in records {
        assert_eq!(writer.append(record).unwrap(), 1);
    }
    Trace {
        known: Default::default(),
        process: Process {
            pid: 42,
            command: vec!["train".to_owned()],
            init_time: 1_000,
            fini_time: 2_000,
            ..Process::default()
        },
        agents: vec![
            agent(AgentType::Cpu, 0, 0, "", "EPYC"),
            agent(AgentType::Gpu, 1, 0, "gfx942", "MI300X"),
            agent(AgentType::Gpu, 2, 1, "", "MI210"),
            agent(AgentType::Gpu, 3, 2, "gfx90a", ""),
        ],
        records: writer.finish().unwrap(),
        lost: vec![("HIP calls".to_owned(), 3)],
        notes: Vec::new(),
        outcome: Outcome::default(),
        counters: Default::default(),
        gpu: None,
        attach: Attach::default(),
    }
}

fn header_of(kind: u8) -> Header {
    Header {
        kind,
        ..Header::default()
    }
}

fn kernel_on(node: u32) -> Vec<u8> {
    let kernel = Kernel {
        header: header_of(kind::KERNEL_DISPATCH),
        rung: 1_100,
        start: 1_100,
        end: 1_300,
        node,
        ..Kernel::default()
    };
    encode(&kernel, &[])
}

fn copy_between(src_node: u32, dst_node: u32, extra: Option<&CudaTransfer>) -> Vec<u8> {
    let copy = Copy {
        header: header_of(kind::MEMORY_COPY),
        start: 1_500,
        end: 1_550,
        src_node,
        dst_node,
        ..Copy::default()
    };
    encode(&copy, extra.map_or(&[][..], CudaTransfer::bytes))
}

fn told(head: &Head) -> Vec<(&str, &str, u64, u64)> {
    let gpus = head.gpus.iter();
    gpus.map(|gpu| {
        let Shares { busy, copies, .. } = gpu.shares;
        (gpu.name.as_str(), gpu.model.as_str(), busy, copies)
    })
    .collect()
}

#[test]
fn a_head_has_the_gpus_that_did_something() {
    // Nothing describes the nodes 8 and 9. There is a kernel on one of them, so it is a GPU.
    let trace = trace(&[
        kernel_on(1),
        copy_between(0, 2, None),
        kernel_on(9),
        copy_between(8, 0, None),
    ]);
    let head = Head::of(&trace);
    let wanted = [
        ("GPU 0", "gfx942", 200, 0),
        ("GPU 1", "MI210", 0, 50),
        ("GPU 9", "", 200, 0),
    ];
    assert_eq!(told(&head), wanted);
    assert_eq!((head.pid, head.time, head.records), (42, 1_000, 4));
    assert_eq!(head.command, ["train"]);
    assert_eq!(head.outcome, None);
    assert_eq!(head.lost, [("HIP calls".to_owned(), 3)]);
}

/// A GPU is not idle while nothing is recorded.
#[test]
fn shares_are_of_the_time_that_records_cover() {
    let mut trace = trace(&[kernel_on(1)]);
    trace.attach.session_ns = Some(6_000);
    trace.attach.unrecorded_ns = 600;
    let head = Head::of(&trace);
    assert_eq!((head.time, head.recorded), (6_000, 400));
    let shares = head.gpus[0].shares;
    assert_eq!((shares.busy, shares.nothing, shares.sum()), (200, 200, 400));
    let screen = screen(vec![head]);
    let text = screen.text(style(100));
    assert!(
        text.contains("6.00 us; records cover 400 ns of it\n"),
        "{text}"
    );
    assert!(text.contains("GPU 0 gfx942   50.0% "), "{text}");
    let process = &screen.json(1)["processes"][0];
    assert_eq!(process["duration_ns"], 6_000);
    assert_eq!(process["recorded_ns"], 400);
    // A kernel that runs on in a pause takes no more than there is.
    trace.attach.unrecorded_ns = 900;
    let shares = Head::of(&trace).gpus[0].shares;
    assert_eq!((shares.busy, shares.sum()), (200, 200));
}

#[test]
fn a_head_says_what_was_lost_and_how_it_ended() {
    let counts = QueueCounts {
        header: header_of(kind::QUEUE_COUNTS),
        lost: 1,
        ..QueueCounts::default()
    };
    let mut trace = trace(&[encode(&counts, &[])]);
    trace.attach.pid = Some(7);
    trace.outcome = Outcome {
        text: "killed".to_owned(),
        ordinary: false,
    };
    let head = Head::of(&trace);
    let wanted = [("HIP calls", 3), ("packets of queues", 1)];
    assert_eq!(
        head.lost,
        wanted.map(|(what, count)| (what.to_owned(), count))
    );
    assert_eq!(head.outcome.as_deref(), Some("killed"));
    assert_eq!((head.pid, head.idle_gpus), (7, 3));
}

/// A device of CUDA is a GPU even where nothing describes it and there are only copies.
#[test]
fn a_head_has_devices_of_cuda() {
    let extra = CudaTransfer {
        copy_kind: 1,
        ..CudaTransfer::default()
    };
    let mut trace = trace(&[copy_between(0, cuda_node(5), Some(&extra))]);
    trace.agents.truncate(1);
    let head = Head::of(&trace);
    assert_eq!(told(&head), [("GPU 5", "", 0, 50)]);
    assert_eq!(head.idle_gpus, 0);
}

/// Between bursts there is no record of what the GPUs did.
#[test]
fn a_head_of_bursts_has_no_gpus() {
    let burst = |end, to| Burst {
        header: header_of(kind::BURST),
        from: 1_000,
        start: 1_050,
        end,
        to,
        ..Burst::default()
    };
    let bursts = [burst(0, 0), burst(1_450, 2_000)].map(|burst| encode(&burst, &[]));
    let [begin, end] = bursts;
    let trace = trace(&[begin, kernel_on(1), end]);
    let head = Head::of(&trace);
    assert_eq!((told(&head), head.idle_gpus), (Vec::new(), 0));
    let coverage = head.coverage.unwrap();
    assert_eq!((coverage.recorded, coverage.time), (400, 1_000));

    let session = |label: &str| Session {
        label: label.to_owned(),
        head: head.clone(),
        index: trace.records.index(),
    };
    let screen = |sessions| Screen::new(sessions, &Names::amd(), KernelNames::default(), &[]);
    let table = "KERNEL, IN ALL OF THE TIME";
    let one = screen(vec![session("process 42")]).text(style(100));
    assert!(one.contains(&format!("\n\n{table}")), "{one}");
    let two = screen(vec![session("process 42"), session("process 43")]).text(style(100));
    for label in ["process 42", "process 43"] {
        assert!(two.contains(&format!("\n{label}\n{table}")), "{two}");
    }
}

#[test]
fn what_several_processes_lost_is_summed_up() {
    let [mut first, mut second] = [head(), head()];
    first.lost = vec![("HIP calls".to_owned(), 5)];
    second.lost = vec![("copies".to_owned(), 2), ("HIP calls".to_owned(), 7)];
    let text = screen(vec![first, second]).text(style(100));
    assert!(
        text.contains("RECORDS   246912; LOST: 12 HIP calls, 2 copies\n"),
        "{text}"
    );
}

#[test]
fn lines_are_cut_and_wrapped_at_the_last_column() {
    let line = |of: &str, command: &str, outcome: &str| {
        let mut head = head();
        head.pid = 1;
        head.command = vec![command.to_owned()];
        head.outcome = Some(outcome.to_owned());
        let text = screen(vec![head]).text(style(40));
        let mut lines = text.lines().skip_while(|line| !line.starts_with(of));
        let found = [lines.next(), lines.next()];
        found.map(|line| line.unwrap_or_default().to_owned())
    };
    // The words have 30 columns, of which pid and spaces take three.
    let [fits, over] = [27, 28].map(|length| "x".repeat(length));
    let first = |command: &str| line("PROCESS", command, "gone")[0].clone();
    assert_eq!(first(&fits), format!("PROCESS   1  {fits}"));
    assert_eq!(first(&over), format!("PROCESS   1  {}...", "x".repeat(24)));
    let [a, b, c] = [14, 15, 16].map(|length| "y".repeat(length));
    let [fits, _] = line("ENDED", "x", &format!("{a} {b}"));
    assert_eq!(fits, format!("ENDED     {a} {b}"));
    let over = line("ENDED", "x", &format!("{a} {c}"));
    assert_eq!(over, [format!("ENDED     {a}"), format!("          {c}")]);
}
