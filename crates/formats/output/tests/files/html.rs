//! The page of the format html: what is in its text, and what headless Chromium makes of it
//! (`tests/python/html_page.py`).

use crate::common::{append, entries, golden_json, list, names, text, trace, trace_of, writer};
use crate::recordings::recorded;
use crate::rocpd_rows::{header, plan};
use midair_output::{Attach, Format, Names, Plan, Trace, screen::Cost, write, write_together};
use midair_record::event::{self, Api, Kernel, KernelSymbol, Marker, kind};
use midair_tests::chromium;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Writes the page of these sessions, and returns its path.
fn page(parts: &[Trace], names: &Names, directory: &Path) -> PathBuf {
    let plan = Plan {
        stats: true,
        ..plan(directory, &[Format::Html, Format::Csv])
    };
    match parts {
        [one] => write(one, names, &plan),
        many => write_together(many, names, &plan),
    }
    .unwrap();
    let name = "r_results.html".to_owned();
    assert!(entries(directory).contains(&name));
    directory.join(name)
}

/// Returns the data of a page.
pub fn data(page: &Path) -> Value {
    let text = fs::read_to_string(page).unwrap();
    let (_, data) = text
        .split_once("<script type=\"application/json\" id=\"data\">")
        .unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

/// Returns what was found on the page by Chromium, unless there is none. The page loaded nothing,
/// complained of nothing, and fits into 400 pixels.
pub fn looked_at(page: &Path) -> Option<Value> {
    let browser = chromium().unwrap()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/html_page.py");
    let output = Command::new("python3")
        .arg(script)
        .args([&browser, page])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list(&found["asked_for"]).len(), 1, "{found}");
    assert!(list(&found["errors"]).is_empty(), "{found}");
    assert_eq!(found["wide"].as_i64(), Some(0), "{found}");
    assert_eq!(found["images"].as_i64(), Some(0), "{found}");
    Some(found)
}

/// Returns the numbers of spans of a page.
fn spans(data: &Value) -> u64 {
    let rows = list(&data["rows"]).iter();
    rows.map(|row| {
        let single = list(&row["spans"]).len() as u64 / 4;
        let merged = list(&row["merged"]).chunks(6);
        single + merged.map(|span| span[3].as_u64().unwrap()).sum::<u64>()
    })
    .sum()
}

/// Returns the rows of one of csv's statistics: name, calls, total, shortest, longest.
fn statistics(file: &Path) -> Vec<(String, [u64; 4])> {
    let text = fs::read_to_string(file).unwrap();
    let mut rows: Vec<_> = text
        .lines()
        .skip(1)
        .map(|line| {
            let (name, rest) = line[1..].split_once("\",").unwrap();
            let rest: Vec<&str> = rest.split(',').collect();
            let number = |at: usize| rest[at].parse().unwrap();
            (
                name.to_owned(),
                [number(0), number(1), number(4), number(5)],
            )
        })
        .collect();
    rows.sort();
    rows
}

/// Returns the rows of a table in the browser, in the same form.
fn shown(found: &Value, title: &str) -> Vec<(String, [u64; 4])> {
    let tables = list(&found["tables"]);
    let table = tables.iter().find(|table| text(&table["title"]) == title);
    let mut rows: Vec<_> = list(&table.unwrap()["rows"])
        .iter()
        .map(|row| {
            let whole = match text(&row[1]) {
                whole if whole.is_empty() => text(&row[0]),
                whole => whole,
            };
            let number = |at: usize| row[at].as_u64().unwrap();
            (whole, [number(2), number(3), number(5), number(6)])
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn the_page_has_what_csv_has_and_can_be_zoomed() {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let mut trace = trace(&golden, &names);
    trace.attach = Attach {
        pid: Some(77),
        began: "2026-11-24 03:00:00 UTC".to_owned(),
        began_ns: 0,
        cost: Cost {
            longest_stop: Some(Duration::from_micros(120)),
            in_process: Some(Duration::from_millis(2)),
            beside: Some(Duration::from_millis(20)),
        },
        session_ns: Some(60_000_000_000),
        unrecorded_ns: 0,
        code: Default::default(),
    };
    let index = trace.records.index();
    let untimed: u64 = index.untimed.values().sum();
    let events = trace.records.records() - untimed;
    let page = page(&[trace], &names, directory.path());
    let data = data(&page);
    assert_eq!(data["bucket"], 0);
    assert!(spans(&data) <= events && spans(&data) > 0);
    let Some(found) = looked_at(&page) else {
        return;
    };
    let heading = text(&found["heading"]);
    for part in [
        "process 77",
        "Pause",
        "120.000 us",
        "of a core in the process",
        "none lost",
        "GPU 0",
        "60.000 s from",
        "records cover",
    ] {
        assert!(heading.contains(part), "{part}: {heading}");
    }
    let file = |name: &str| directory.path().join(name);
    assert_eq!(
        shown(&found, "Kernel"),
        statistics(&file("r_kernel_stats.csv"))
    );
    let mut calls = statistics(&file("r_hip_api_stats.csv"));
    calls.extend(statistics(&file("r_hsa_api_stats.csv")));
    calls.sort();
    assert_eq!(shown(&found, "Call"), calls);
    // Zoom and moves, by buttons and keys.
    let range = |of: &str| text(&found["shown"][of]);
    let all = text(&found["range"]);
    assert_eq!(
        [range("button all"), range("key 0")],
        [all.clone(), all.clone()]
    );
    let changed = ["button in", "button left", "key w", "key d", "key s"].map(range);
    assert!(changed[..4].iter().all(|range| *range != all), "{found}");
    assert_eq!(range("button in"), range("key w"));
    assert_ne!(range("button in"), range("button left"));
    assert_ne!(range("key w"), range("key d"));
    assert_eq!(range("key ArrowLeft"), range("key w"));
    // Something is drawn, in several colours, and the pointer finds calls and kernels.
    assert!(found["drawn"][0].as_u64() > Some(1000) && found["drawn"][1].as_u64() > Some(5));
    let tips: Vec<String> = list(&found["tips"]).iter().map(text).collect();
    for category in ["kernel, ", "call, "] {
        let is_there = tips.iter().any(|tip| tip.contains(category));
        assert!(is_there, "{category}: {tips:#?}");
    }
    // Sorted and searched.
    let calls = |of: &str| -> Vec<u64> {
        let rows = list(&found["sorted"][of]).iter();
        rows.map(|row| row[2].as_u64().unwrap()).collect()
    };
    assert!(calls("calls").is_sorted_by(|a, b| a >= b), "{found}");
    assert!(calls("calls again").is_sorted(), "{found}");
    assert!(!list(&found["searched"]).is_empty(), "{found}");
    assert!(list(&found["none"]).is_empty(), "{found}");
}

/// All that a target names is text, whatever it contains.
#[test]
fn names_of_a_hostile_target_are_text() {
    const NAME: &str = "</script><img src=x onerror=alert(1)>\u{2028}&lt;\\\"'<!--";
    let mut writer = writer();
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id: 1,
        name_len: NAME.len() as u32,
        ..KernelSymbol::default()
    };
    append(&mut writer, &event::encode(&symbol, NAME.as_bytes()));
    let kernel = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start: 2_000,
        end: 900_000_000,
        kernel_id: 1,
        dispatch_id: 1,
        node: 1,
        ..Kernel::default()
    };
    append(&mut writer, &event::encode(&kernel, &[]));
    let marker = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 1),
        start: 1_000,
        end: 950_000_000,
        tid: 3,
        len: NAME.len() as u32,
        ..Marker::default()
    };
    append(&mut writer, &event::encode(&marker, NAME.as_bytes()));
    let mut trace = trace_of(writer, &golden_json());
    trace.process.command = vec![NAME.to_owned()];
    trace.process.threads = [(3, NAME.to_owned())].into();
    trace.process.node.hostname = NAME.to_owned();
    (trace.process.init_time, trace.process.fini_time) = (500, 1_000_000_000);
    trace.notes = vec![NAME.to_owned()];
    trace.attach.began = NAME.to_owned();
    let directory = tempfile::tempdir().unwrap();
    let page = page(&[trace], &Names::amd(), directory.path());
    let whole = fs::read_to_string(&page).unwrap();
    assert!(!whole.contains("<img") && whole.matches("</script>").count() == 2);
    assert!(whole.contains("default-src 'none'"));
    let Some(found) = looked_at(&page) else {
        return;
    };
    let kernels = &found["tables"][0]["rows"];
    assert_eq!(kernels[0][0], NAME, "{found}");
    assert!(
        text(&found["heading"]).matches(NAME).count() >= 4,
        "{found}"
    );
    let tips: Vec<String> = list(&found["tips"]).iter().map(text).collect();
    assert!(tips.iter().any(|tip| tip.contains(NAME)), "{tips:?}");
}

#[test]
fn a_page_of_nothing_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(writer(), &golden_json());
    let page = page(&[trace], &Names::amd(), directory.path());
    let Some(found) = looked_at(&page) else {
        return;
    };
    assert_eq!(
        (&found["empty"], &found["has_timeline"]),
        (&true.into(), &false.into())
    );
    assert!(text(&found["heading"]).contains("none lost"), "{found}");
}

/// More spans than a page may have: it is not larger for it, and says so.
#[test]
fn a_large_recording_is_merged_on_a_small_page() {
    const CALLS: u64 = 1_200_000;
    let mut writer = writer();
    for number in 0..CALLS {
        let start = 1_000_000_000 + number * 1000;
        let api = Api {
            header: header(kind::HIP_RUNTIME_API_EXT, (number % 300) as u32),
            start,
            end: start + 100 + number % 700,
            correlation: number,
            tid: (number % 16) as u32 + 1,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&api, &[]));
    }
    let mut trace = trace_of(writer, &golden_json());
    (trace.process.init_time, trace.process.fini_time) = (1_000_000_000, 2_300_000_000);
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Html]);
    let files = write(&trace, &Names::amd(), &plan).unwrap();
    let size = fs::metadata(&files[0]).unwrap().len();
    assert!(size < 12 << 20, "{size} bytes");
    let data = data(&files[0]);
    assert_eq!(spans(&data), CALLS);
    assert!(data["bucket"].as_u64() > Some(0));
    let Some(found) = looked_at(&files[0]) else {
        return;
    };
    let said = text(&found["merged"]);
    assert!(said.contains("1200000 spans"), "{said}");
    let tips = list(&found["tips"]);
    let merged = tips
        .iter()
        .any(|tip| text(tip).contains(" of these within "));
    assert!(merged, "{tips:?}");
}

/// CUDA, several processes on one page, and records that no program makes.
#[test]
fn sessions_of_all_sorts_have_a_page() {
    for name in [
        "cuda",
        "memories",
        "domains",
        "cuda_domains",
        "odd",
        "cuda_odd",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let trace = recorded(name);
        let page = page(&[trace], &Names::amd(), directory.path());
        assert!(spans(&data(&page)) > 0, "{name}");
    }
    let directory = tempfile::tempdir().unwrap();
    let parts = [recorded("cuda"), recorded("hip"), recorded("odd")];
    let page = page(&parts, &Names::amd(), directory.path());
    let rows: Vec<String> = list(&data(&page)["rows"])
        .iter()
        .map(|row| format!("{} {}", row["process"], text(&row["name"])))
        .collect();
    for wanted in [
        "0 GPU 1 context 2 stream 13",
        "1 GPU 0 stream 1",
        "1 main thread hip",
    ] {
        assert!(rows.iter().any(|row| row == wanted), "{wanted}: {rows:#?}");
    }
    let Some(found) = looked_at(&page) else {
        return;
    };
    assert_eq!(found["title"], "3 processes - midair");
    let titles: Vec<String> = list(&found["tables"])
        .iter()
        .map(|table| text(&table["title"]))
        .collect();
    assert_eq!(titles[0], "Kernels of process", "{titles:?}");
    for wanted in [
        "process 21432 cuda",
        "process 21157 hip",
        "process 4242 odd",
    ] {
        assert!(
            text(&found["heading"])
                .contains(wanted.split_once(' ').unwrap().1.split_once(' ').unwrap().0)
        );
        let rows = shown(&found, "Kernels of process");
        assert!(rows.iter().any(|(name, _)| name == wanted), "{rows:?}");
    }
}

/// The page's policy names its script and its style.
#[test]
fn the_policy_allows_the_script_of_the_page_alone() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(writer(), &golden_json());
    assert_policy(&page(&[trace], &Names::amd(), directory.path()));
}

/// Asserts that a page's policy names its script and its style.
pub fn assert_policy(page: &Path) {
    let script = "import base64, hashlib, re, sys\n\
                  page = open(sys.argv[1], newline='').read()\n\
                  for tag in ('style', 'script'):\n    \
                      text = re.findall(f'<{tag}>(.*?)</{tag}>', page, re.S)[-1]\n    \
                      digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()\n    \
                      assert f\"{tag}-src 'sha256-{digest}'\" in page, f'{tag} has the digest {digest}'\n";
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(page)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
