use super::*;
use crate::index::Stat;
use std::path::Path;

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
PAUSE     one thread of the application stood still for 57.0 us at most
OVERHEAD  midair took 0.8 % of a core in the process, 1.2 % of a core beside it
RESULTS   /r/node7/4242_results.db
OPEN      sqlite3 /r/node7/4242_results.db 'SELECT * FROM top_kernels'

GPU             BUSY  COPIES  STARTING  HOST WAITS  NOTHING QUEUED
GPU 0 gfx942   63.1%    4.2%      1.0%       12.0%           19.7%
7 other GPUs did nothing for this process

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
PAUSE     one thread of the application stood still for 57.0
          us at most
OVERHEAD  midair took 0.8 % of a core in the process, 1.2 %
          of a core beside it
RESULTS   /r/node7/4242_results.db
OPEN      sqlite3 /r/node7/4242_results.db 'SELECT * FROM top_kernels'

GPU 0 gfx942
  BUSY              63.1%
  COPIES             4.2%
  STARTING           1.0%
  HOST WAITS        12.0%
  NOTHING QUEUED    19.7%
7 other GPUs did nothing for this process
";
    assert!(text.starts_with(wanted), "{text}");
    // Lines that are meant to be copied are whole, and all others fit.
    for line in text.lines().filter(|line| !line.starts_with("OPEN")) {
        assert!(line.chars().count() <= 60, "{line}");
    }
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
        "PAUSE     none: no thread of the application was stopped\n",
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
        "PAUSE     process 77: one thread",
        "midair took 1.6 % of a core in the process, 1.2 % of a core beside it",
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
