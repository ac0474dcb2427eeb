//! The part of the page about processes that are always recorded.

use crate::always::Shown;
use crate::page::{Kind, Page, Value};
use midair_live::{STATES, Totals};
use std::collections::BTreeMap;

/// What is recorded all the time.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) processes: Vec<Shown>,
    /// How many attaches failed, by exit code.
    pub(crate) failures: BTreeMap<u8, u64>,
    /// How many attaches succeeded.
    pub(crate) attaches: u64,
    /// How often what records had to start again.
    pub(crate) restarts: u64,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Adds a sample: labels besides the process, and the value.
type Add<'a> = dyn FnMut(&[(&'static str, &str)], f64) + 'a;

/// A family, and how its samples follow from a process.
struct Family {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    /// Adds the samples of a process.
    samples: fn(&Totals, &mut Add<'_>),
}

/// The families of counters. All of them grow in bursts: divide by the recorded time.
const COUNTERS: [Family; 9] = [
    Family {
        name: "midair_recorded_seconds",
        unit: "seconds",
        help: "Time in which the process was recorded; divide the others by it",
        samples: |totals, add| add(&[], seconds(totals.recorded)),
    },
    Family {
        name: "midair_gpu_time_seconds",
        unit: "seconds",
        help: "Recorded time in which a GPU was busy for the process, or why it was not",
        samples: |totals, add| {
            for (gpu, times) in &totals.gpus {
                let gpu = gpu.to_string();
                for (state, time) in STATES.iter().zip(times) {
                    add(&[("gpu", &gpu), ("state", state)], seconds(*time));
                }
            }
        },
    },
    Family {
        name: "midair_kernels",
        unit: "",
        help: "Recorded kernels, by class",
        samples: |totals, add| {
            for (class, stat) in &totals.classes {
                add(&[("class", class)], stat.calls as f64);
            }
        },
    },
    Family {
        name: "midair_kernel_seconds",
        unit: "seconds",
        help: "Time of recorded kernels, by class",
        samples: |totals, add| {
            for (class, stat) in &totals.classes {
                add(&[("class", class)], seconds(stat.total));
            }
        },
    },
    Family {
        name: "midair_copied_bytes",
        unit: "bytes",
        help: "Bytes of recorded copies, by direction",
        samples: |totals, add| {
            for (direction, bytes, _) in &totals.copies {
                add(&[("direction", direction)], *bytes as f64);
            }
        },
    },
    Family {
        name: "midair_copy_seconds",
        unit: "seconds",
        help: "Time of recorded copies, by direction",
        samples: |totals, add| {
            for (direction, _, stat) in &totals.copies {
                add(&[("direction", direction)], seconds(stat.total));
            }
        },
    },
    Family {
        name: "midair_lost_records",
        unit: "",
        help: "Records that were lost",
        samples: |totals, add| add(&[], totals.lost as f64),
    },
    Family {
        name: "midair_untimed_records",
        unit: "",
        help: "Kernels and copies without times",
        samples: |totals, add| add(&[], totals.untimed as f64),
    },
    Family {
        name: "midair_worker_cpu_seconds",
        unit: "seconds",
        help: "Processor time of midair's thread in the process",
        samples: |totals, add| {
            if let Some(ns) = totals.worker {
                add(&[], seconds(ns));
            }
        },
    },
];

/// Writes the families.
pub(crate) fn write(page: &mut Page, recorded: &Recorded) {
    let help = "What a process is, and whether it is recorded now";
    let processes = page.family("midair_process", Kind::Info, "", help);
    for it in &recorded.processes {
        let (labels, pid) = (&it.labels, it.pid.to_string());
        let recorded = if it.is_recorded { "yes" } else { "no" };
        let all = [
            ("pid", pid.as_str()),
            ("name", &it.name),
            ("program", &labels.program),
            ("cgroup", &labels.cgroup),
            ("container", &labels.container),
            ("pod", &labels.pod),
            ("job", &labels.job),
            ("rank", &labels.rank),
            ("recorded", recorded),
        ];
        processes.add(&all, 1.0);
    }
    let help = "Attaches that succeeded, each a turn of a process";
    page.family("midair_attaches", Kind::Counter, "", help)
        .add(&[], recorded.attaches as f64);
    let help = "Attaches that failed, by exit code";
    let failures = page.family("midair_attach_failures", Kind::Counter, "", help);
    for (code, count) in &recorded.failures {
        failures.add(&[("exit_code", &code.to_string())], *count as f64);
    }
    let help = "Times that the recording of all processes failed and started again";
    page.family("midair_serve_restarts", Kind::Counter, "", help)
        .add(&[], recorded.restarts as f64);
    // Of processes that come and go unrecorded there are no series.
    let recorded: Vec<(String, &Totals)> = (recorded.processes.iter())
        .filter(|it| it.totals.bursts > 0)
        .map(|it| (it.pid.to_string(), &it.totals))
        .collect();
    for family in &COUNTERS {
        let to = page.family(family.name, Kind::Counter, family.unit, family.help);
        for (pid, totals) in &recorded {
            (family.samples)(totals, &mut |more, value| {
                let mut labels = vec![("pid", pid.as_str())];
                labels.extend_from_slice(more);
                to.add(&labels, value);
            });
        }
    }
    let help = "Share of its speed that the process loses by being recorded";
    let overheads = page.family("midair_overhead_ratio", Kind::Gauge, "ratio", help);
    for (pid, totals) in &recorded {
        overheads.add(&[("pid", pid)], totals.overhead);
    }
    let help = "Time from a kernel's doorbell to its start";
    let delays = page.family(
        "midair_launch_delay_seconds",
        Kind::Histogram,
        "seconds",
        help,
    );
    for (pid, totals) in &recorded {
        delays.add(&[("pid", pid)], Value::Delays(totals.delays.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{self, Text};
    use midair_session::Labels;
    use std::collections::BTreeSet;

    /// Returns the page with one process.
    fn written(text: Text) -> String {
        let mut totals = Totals {
            bursts: 1,
            recorded: 2_000_000_000,
            gpus: vec![(3, [5, 0, 0, 0, 1_999_999_995])],
            copies: vec![("host to device".to_owned(), 7, Default::default())],
            worker: Some(1),
            ..Totals::default()
        };
        totals.classes.insert("gemm", Default::default());
        let shown = Shown {
            pid: 42,
            name: "train".to_owned(),
            labels: Labels::default(),
            is_recorded: true,
            totals,
        };
        let mut page = Page::default();
        let recorded = Recorded {
            processes: vec![shown],
            failures: BTreeMap::from([(15, 2)]),
            attaches: 2,
            restarts: 1,
        };
        write(&mut page, &recorded);
        text::write(&page, text)
    }

    #[test]
    fn each_family_has_samples_and_they_stand_together() {
        for text in [Text::Open, Text::Prometheus] {
            let page = written(text);
            let mut family = String::new();
            let mut seen = BTreeSet::new();
            let mut samples = 1;
            for line in page.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    assert!(samples > 0, "{family} has no sample");
                    family = rest.split(' ').next().unwrap().to_owned();
                    assert!(seen.insert(family.clone()), "{family} is there twice");
                    samples = 0;
                } else if !line.starts_with('#') {
                    assert!(line.starts_with(&family), "{line} in {family}");
                    samples += 1;
                }
            }
            assert!(samples > 0);
        }
    }

    /// Families that are there where metrics are sent or written.
    const OTLP: [&str; 4] = [
        "midair_otlp_requests_total",
        "midair_otlp_rejected_total",
        "midair_push_files_total",
        "midair_push_uploads_total",
    ];

    /// What comes with midair and asks for metrics asks for those that are there.
    #[test]
    fn recipes_and_documents_name_what_is_there() {
        let page = written(Text::Prometheus);
        let server = [
            "requests_total",
            "sessions",
            "cpu_seconds_total",
            "uptime_seconds",
            "hanging_looks",
            "refused_connections_total",
        ];
        let server = server.map(|name| format!("midair_serve_{name}"));
        let server = [server.as_slice(), &OTLP.map(str::to_owned)].concat();
        for recipe in [
            include_str!("../../../../examples/serve/alerts.yaml"),
            include_str!("../../../../examples/serve/dashboard.json"),
            include_str!("../../../../docs/serve.md"),
        ] {
            let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
            let words = recipe.split(|char| !is_word(char));
            let named: BTreeSet<&str> = words.filter(|word| word.starts_with("midair_")).collect();
            assert!(named.len() > 4, "{named:?}");
            for name in named {
                let has = page.contains(&format!("\n{name}{{"))
                    || page.starts_with(&format!("# TYPE {name} "));
                let has = has || page.contains(&format!("\n# TYPE {name} "));
                let is_of_server =
                    name == "midair_build_info" || server.iter().any(|it| it == name);
                assert!(has || is_of_server, "there is no {name}");
            }
        }
        let dashboard = include_str!("../../../../examples/serve/dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() > 4);
    }
}
