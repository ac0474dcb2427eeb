//! Many machines, made up: what their servers say adds up to what they did, and what it costs.
//!
//! Eight processes a machine, each with one GPU. With `MIDAIR_CYCLES=1250` these are 10,000 processes; the figures that are printed
//! then are in `docs/serve.md`.

use crate::always::Shown;
use crate::form::Form;
use crate::metrics::{Counts, Sources, page};
use crate::processes::Recorded;
use crate::push::encoded;
use crate::push::place::partition;
use crate::text::Text;
use midair_columns::read::{Table, Value};
use midair_live::Totals;
use midair_session::Labels;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const PROCESSES: u32 = 8;
const CLASSES: [&str; 6] = [
    "gemm",
    "attention",
    "collective",
    "normalization",
    "elementwise",
    "other",
];
const DIRECTIONS: [&str; 3] = ["host to device", "device to host", "device to device"];
const FORMS: [Form; 3] = [
    Form::Text(Text::Open),
    Form::Text(Text::Prometheus),
    Form::Protobuf,
];
const SECOND: u64 = 1_000_000_000;

/// What a process did: so many seconds, and kernels by class.
fn process(
    machine: usize,
    number: u32,
    random: impl Fn(&str) -> u64,
) -> (Shown, BTreeMap<&'static str, u64>) {
    let recorded = (1 + random("time") % 86_400) * SECOND;
    let busy = recorded / 100 * (random("busy") % 101);
    let mut totals = Totals {
        bursts: recorded / SECOND,
        recorded,
        time: 100 * recorded,
        overhead: 0.004,
        gpus: vec![(number, [busy, 0, 0, 0, recorded - busy])],
        worker: Some(recorded / 1000),
        ..Totals::default()
    };
    let mut truth = BTreeMap::new();
    for class in CLASSES {
        let calls = random(class) % 1_000_000_000;
        let stat = totals.classes.entry(class).or_default();
        (stat.calls, stat.total) = (calls, 7 * calls);
        truth.insert(class, calls);
    }
    let copies = DIRECTIONS.map(|direction| {
        (
            direction.to_owned(),
            random(direction) % (1 << 50),
            Default::default(),
        )
    });
    totals.copies = copies.to_vec();
    let delays = (0..200).map(|delay| random("delay") % (1 << (10 + delay % 20)));
    totals.delays = delays.collect();
    let hex = |what: &str| format!("{:016x}", random(what));
    let labels = Labels {
        program: "train.py".to_owned(),
        cgroup: format!(
            "/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{}.scope",
            hex("pod"),
            hex("container").repeat(4)
        ),
        container: hex("container").repeat(4),
        pod: hex("pod").repeat(2),
        job: (machine / 16).to_string(),
        rank: (machine as u32 * PROCESSES + number).to_string(),
    };
    let shown = Shown {
        pid: 4_000 + number,
        name: "python3".to_owned(),
        labels,
        is_recorded: true,
        totals,
    };
    (shown, truth)
}

fn machine(
    number: usize,
    processes: u32,
    random: &RandomState,
) -> (Recorded, BTreeMap<&'static str, u64>) {
    let mut recorded = Recorded::default();
    let mut truth: BTreeMap<&str, u64> = BTreeMap::new();
    for process_number in 0..processes {
        let of = |what: &str| random.hash_one((number, process_number, what));
        let (shown, did) = process(number, process_number, of);
        recorded.processes.push(shown);
        for (class, calls) in did {
            *truth.entry(class).or_default() += calls;
        }
    }
    (recorded, truth)
}

fn taken() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap()
}

/// Returns what a page costs to make in each form and as a file: bytes and processor time.
fn costs(recorded: &Recorded) -> (Vec<(usize, Duration)>, Vec<u8>, usize) {
    let counts = Counts::new();
    let made = || {
        page(
            &counts,
            &Sources {
                recorded: Some(recorded),
                ..Sources::default()
            },
        )
    };
    let mut all = Vec::new();
    let mut series = 0;
    for form in FORMS {
        let before = taken();
        let written = form.write(&made());
        all.push((written.len(), taken() - before));
        if form == Form::Text(Text::Prometheus) {
            let lines = std::str::from_utf8(&written).unwrap().lines();
            series = lines.filter(|line| !line.starts_with('#')).count();
        }
    }
    let before = taken();
    let file = encoded(&made(), 1).unwrap();
    all.push((file.len(), taken() - before));
    (all, file, series)
}

#[test]
fn a_fleet_s_files_add_up_to_what_it_did() {
    let machines = std::env::var("MIDAIR_CYCLES")
        .map_or(Ok(3), |word| word.parse())
        .unwrap();
    let random = RandomState::new();
    let dir = tempfile::tempdir().unwrap();
    let (mut truth, mut found): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    let (mut bytes, mut time, mut series) = ([0; 4], [Duration::ZERO; 4], 0);
    for number in 0..machines {
        let (recorded, did) = machine(number, PROCESSES, &random);
        for (class, calls) in did {
            *truth.entry(class.to_owned()).or_default() += calls;
        }
        let (costs, file, lines) = costs(&recorded);
        for (at, (size, took)) in costs.into_iter().enumerate() {
            bytes[at] += size;
            time[at] += took;
        }
        series += lines;
        let host = format!("node{number:05}");
        let at = dir
            .path()
            .join(partition(&host, Duration::from_secs(1_700_000_000)));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("midair-1700000000000-1.parquet"), file).unwrap();
    }
    for host in std::fs::read_dir(dir.path()).unwrap() {
        let day = std::fs::read_dir(host.unwrap().path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let file = std::fs::read_dir(day.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let table = Table::open(std::fs::File::open(file.path()).unwrap()).unwrap();
        let mut take = |row: Vec<Value>| {
            if let [
                _,
                Value::Text(metric),
                _,
                Value::Text(labels),
                Value::Text(value),
            ] = &row[..]
                && metric == "midair_kernels_total"
            {
                let value: f64 = value.parse().unwrap();
                let labels: BTreeMap<String, String> = serde_json::from_str(labels).unwrap();
                *found.entry(labels["class"].clone()).or_default() += value as u64;
            }
            true
        };
        table.each(&mut take).unwrap();
    }
    assert_eq!(found, truth);
    let processes = machines as f64 * f64::from(PROCESSES);
    println!(
        "{machines} machines, {processes} processes, {series} series ({:.1} a process)",
        series as f64 / processes
    );
    for (at, name) in [
        "OpenMetrics",
        "Prometheus' text",
        "protocol buffers",
        "Parquet",
    ]
    .iter()
    .enumerate()
    {
        let of = |sum: f64| sum / machines as f64;
        println!(
            "{name}: {:.0} bytes, {:.3} ms of a machine",
            of(bytes[at] as f64),
            of(time[at].as_secs_f64() * 1e3)
        );
    }
    // One server at its limit of processes.
    let (most, _) = machine(0, 1024, &random);
    let (costs, _, series) = costs(&most);
    println!("1,024 processes of one server: {series} series; bytes and time by format: {costs:?}");
    // One request puts its file.
    assert!(costs[3].0 < crate::push::kept::MOST_FILE / 16, "{costs:?}");
}
