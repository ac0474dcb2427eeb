//! HIP and HSA calls: the trace is compared with the application's own counts, for each thread and
//! each function.

use midair_tests::Result;
use midair_tests::attacher::{Attacher, Call, boottime, by_function, check_calls};
use midair_tests::caller::{Caller, between};
use midair_tests::lab::Lab;
use midair_tests::snapshot::Snapshot;
use midair_tests::table::json;
use midair_tests::target::until;
use std::collections::{BTreeMap, BTreeSet};

/// AMD's own output for the same runtimes.
const HIP_GOLDEN: &str =
    include_str!("../../crates/formats/output/tests/golden/r_hip_api_trace.csv");
const HSA_GOLDEN: &str =
    include_str!("../../crates/formats/output/tests/golden/r_hsa_api_trace.csv");
const JSON_GOLDEN: &str = include_str!("../../crates/formats/output/tests/golden/r_results.json");

fn start(lab: &Lab) -> Result<Caller> {
    Caller::start(Caller::command(lab)?.env("MODEL_KERNEL_NS", 2_000))
}

fn header(csv: &str) -> &str {
    csv.split_inclusive('\n').next().unwrap_or_default()
}

/// Collects the path of every key in a JSON value.
fn keys(value: &serde_json::Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                keys(value, &path, into);
                into.insert(path);
            }
        }
        serde_json::Value::Array(list) => {
            list.iter()
                .for_each(|value| keys(value, &format!("{path}[]"), into));
        }
        _ => {}
    }
}

#[test]
fn every_call_is_there_once() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = start(&lab)?;
    let pid = caller.pid();

    // HIP calls come from the main thread and from threads that start and end meanwhile.
    let began = boottime();
    let attacher = Attacher::start(pid, &["--hip-trace", "--output-format", "csv"])?;
    let before = caller.counts()?;
    caller.tell("calls 40")?;
    caller.send("workers 6 150")?;
    let workers: BTreeMap<i32, u64> = (0..6)
        .map(|_| {
            let line = caller.expect("worker ")?;
            let words: Vec<&str> = line.split(' ').collect();
            Ok((words[1].parse()?, words[2].parse()?))
        })
        .collect::<Result<_>>()?;
    caller.expect("workers")?;
    let after = caller.counts()?;
    let traced = attacher.detach()?.code(0)?;
    let calls = traced.calls()?;
    check_calls(&calls, pid, (began, boottime()))?;
    assert_eq!(by_function(&calls), between(&before, &after, "hip"));
    for (tid, rounds) in &workers {
        let own = by_function(calls.iter().filter(|call| call.tid == *tid));
        let expected = [("hipGetDevice", *rounds), ("hipGetLastError", *rounds)];
        assert_eq!(
            own,
            expected.map(|(name, n)| (name.to_owned(), n)).into(),
            "thread {tid}"
        );
    }
    assert!(
        calls
            .iter()
            .all(|call| call.tid == pid || workers.contains_key(&call.tid)),
        "a thread that called nothing"
    );
    let text = std::fs::read_to_string(traced.file("hip_api_trace.csv"))?;
    assert_eq!(header(&text), header(HIP_GOLDEN));
    assert!(
        !traced.file("hsa_api_trace.csv").exists(),
        "nobody asked for HSA"
    );

    // HSA calls come from a thread that uses nothing else. The trace also has the calls that the
    // runtimes make on other threads.
    let began = boottime();
    let attacher = Attacher::start(pid, &["--hsa-trace", "--output-format", "csv"])?;
    caller.send("hsa 120")?;
    let line = caller.expect("only ")?;
    caller.expect("hsa")?;
    let traced = attacher.detach()?.code(0)?;
    let calls = traced.calls()?;
    check_calls(&calls, pid, (began, boottime()))?;
    let tid: i32 = line.split(' ').nth(1).unwrap_or_default().parse()?;
    let own: Vec<&Call> = calls.iter().filter(|call| call.tid == tid).collect();
    let each = ["create", "destroy", "load_relaxed", "store_relaxed"];
    let expected = each.map(|name| (format!("hsa_signal_{name}"), 120)).into();
    assert_eq!(by_function(own), expected);
    let text = std::fs::read_to_string(traced.file("hsa_api_trace.csv"))?;
    assert_eq!(header(&text), header(HSA_GOLDEN));

    // With both domains, as csv and json: HSA calls lie inside the HIP calls that made them, and
    // name these.
    let attacher = Attacher::start(
        pid,
        &[
            "--hip-trace",
            "--hsa-trace",
            "--output-format",
            "csv",
            "json",
        ],
    )?;
    let before = caller.counts()?;
    caller.tell("calls 5")?;
    let after = caller.counts()?;
    let traced = attacher.detach()?.code(0)?;
    let calls = traced.calls()?;
    check_calls(&calls, pid, (0, u64::MAX))?;
    let hip = calls.iter().filter(|call| call.domain.starts_with("HIP"));
    assert_eq!(by_function(hip), between(&before, &after, "hip"));
    let document = json(&traced.file("results.json"))?;
    let process = &document["rocprofiler-sdk-tool"][0];
    let records = |kind: &str| {
        process["buffer_records"][kind]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let (hip, hsa) = (records("hip_api"), records("hsa_api"));
    assert_eq!(
        hip.len() + hsa.len(),
        calls.len(),
        "csv and json hold the same calls"
    );
    let number = |record: &serde_json::Value, key: &str| record[key].as_u64().unwrap_or_default();
    let spans: BTreeMap<u64, (u64, u64, u64)> = hip
        .iter()
        .chain(&hsa)
        .map(|record| {
            let span =
                ["start_timestamp", "end_timestamp", "thread_id"].map(|key| number(record, key));
            (
                number(&record["correlation_id"], "internal"),
                (span[0], span[1], span[2]),
            )
        })
        .collect();
    assert_eq!(
        spans.len(),
        calls.len(),
        "correlation ids are unique over both"
    );
    let mut nested = 0;
    for record in &hsa {
        let ancestor = number(&record["correlation_id"], "ancestor");
        if ancestor != 0 {
            let inner = spans[&number(&record["correlation_id"], "internal")];
            let outer = spans
                .get(&ancestor)
                .ok_or_else(|| format!("no ancestor: {record}"))?;
            assert!(
                outer.0 <= inner.0 && inner.1 <= outer.1 && outer.2 == inner.2,
                "{record}"
            );
            nested += 1;
        }
    }
    assert!(nested > 0, "HIP calls call HSA");
    let golden: serde_json::Value = serde_json::from_str(JSON_GOLDEN)?;
    for kind in ["hip_api", "hsa_api"] {
        let of = |document: &serde_json::Value| {
            let mut found = BTreeSet::new();
            keys(
                &document["rocprofiler-sdk-tool"][0]["buffer_records"][kind],
                "",
                &mut found,
            );
            found
        };
        assert_eq!(of(&document), of(&golden), "keys of {kind}");
    }
    let names = |document: &serde_json::Value| -> Vec<String> {
        let map = document["rocprofiler-sdk-tool"][0].as_object();
        map.map(|map| map.keys().cloned().collect())
            .unwrap_or_default()
    };
    assert_eq!(names(&document), names(&golden));

    caller.quit()
}

#[test]
fn ten_thousand_threads_come_and_go() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = start(&lab)?;
    let pid = caller.pid();
    // A session before the measured one takes up what only a first session leaves behind, and the
    // growth of the allocator.
    let attacher = Attacher::start(pid, &["--hip-trace"])?;
    caller.tell("short 2000")?;
    attacher.detach()?.code(0)?;
    let before = Snapshot::take(pid)?;

    let attacher = Attacher::start(pid, &["--hip-trace"])?;
    caller.tell("short 10000")?;
    let traced = attacher.detach()?.code(0)?;
    let calls = traced.calls()?;
    check_calls(&calls, pid, (0, u64::MAX))?;
    assert_eq!(
        by_function(&calls),
        BTreeMap::from([("hipGetLastError".to_owned(), 20_000)])
    );
    let mut threads: BTreeMap<i32, u64> = BTreeMap::new();
    calls
        .iter()
        .for_each(|call| *threads.entry(call.tid).or_default() += 1);
    // The kernel may use a thread id again. As each thread made two calls, each id has an even
    // number of calls.
    assert!(threads.values().all(|count| count % 2 == 0));
    assert!(threads.len() > 8, "{} thread ids", threads.len());

    let after = Snapshot::take(pid)?;
    assert!(
        before.diff(&after).without_heap().is_empty(),
        "{}",
        before.diff(&after).without_heap()
    );
    let anonymous = |snapshot: &Snapshot| -> u64 {
        let of_nobody = snapshot.maps.iter().filter(|map| map.path.is_empty());
        of_nobody.map(|map| map.end - map.start).sum()
    };
    let grown = anonymous(&after).saturating_sub(anonymous(&before));
    assert!(grown < 16 << 20, "grown by {grown} bytes of address space");
    caller.quit()
}

#[test]
fn calls_that_do_not_fit_into_the_spool_are_counted() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = start(&lab)?;
    let pid = caller.pid();
    let words = ["--hip-trace", "--spool-size", "1", "--output-format", "csv"];
    let mut attacher = Attacher::midair(pid, &words)?;
    // The attacher is stopped, so for a while it does not read records. This lasts less than the
    // lease of 5 s. The spool of 1 MiB is full after some thousand records.
    attacher.process().signal(libc::SIGSTOP)?;
    caller.tell("tight 100000")?;
    attacher.process().signal(libc::SIGCONT)?;
    let traced = attacher.detach()?.code(32)?;
    let calls = traced.calls()?;
    check_calls(&calls, pid, (0, u64::MAX))?;
    let said = traced.exit.stderr.join("\n");
    let lost: usize = said
        .split("records were lost: ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .ok_or_else(|| format!("the loss was not said: {said}"))?;
    assert!(lost > 0 && !calls.is_empty());
    assert_eq!(calls.len() + lost, 100_000, "what is missing is counted");
    assert!(said.contains("HIP calls"), "{said}");

    // The next session has the whole spool for itself again.
    let attacher = Attacher::midair(pid, &words)?;
    caller.tell("tight 2000")?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(traced.calls()?.len(), 2_000);
    caller.quit()
}

#[test]
fn each_option_records_its_domains_and_no_others() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = lab.run("/lab/vadd").arg(1_000_000).arg(5_000).spawn()?;
    target.expect("iter 2")?;
    let (runtime, compiler) = ("HIP_RUNTIME_API_EXT", "HIP_COMPILER_API_EXT");
    let (core, amd) = ("HSA_CORE_API", "HSA_AMD_EXT_API");
    let every = [runtime, compiler, core, amd];
    for (options, domains, kernels, copies) in [
        (
            ["--hip-runtime-trace"].as_slice(),
            [runtime].as_slice(),
            false,
            false,
        ),
        (&["--hip-compiler-trace"], &[compiler], false, false),
        (&["--hip-trace"], &[runtime, compiler], false, false),
        (&["--hsa-core-trace"], &[core], false, false),
        (&["--hsa-amd-trace"], &[amd], false, false),
        (&["--hsa-trace"], &[core, amd], false, false),
        (&["--kernel-trace"], &[], true, false),
        (&["--memory-copy-trace"], &[], false, true),
        (
            &["--hip-compiler-trace", "--kernel-trace"],
            &[compiler],
            true,
            false,
        ),
        (&["--runtime-trace"], &[runtime], true, true),
        (&["--sys-trace"], &every, true, true),
    ] {
        let words = [options, &["--output-format", "csv"]].concat();
        let attacher = Attacher::start(target.pid(), &words)?;
        let before = target.model_log()?.dispatches().count();
        // Waits for three rounds of the program, at whichever of its kernels the first one starts.
        until("some rounds", || {
            Ok(target.model_log()?.dispatches().count() > before + 9)
        })?;
        let traced = attacher.detach()?.code(0)?;
        let calls = traced.calls()?;
        check_calls(&calls, target.pid(), (0, u64::MAX))?;
        let found: BTreeSet<&str> = calls.iter().map(|call| call.domain.as_str()).collect();
        assert_eq!(found, domains.iter().copied().collect(), "{options:?}");
        let there = |name: &str| traced.file(&format!("{name}_trace.csv")).exists();
        assert_eq!(
            (there("kernel"), there("memory_copy")),
            (kernels, copies),
            "{options:?}"
        );
    }
    assert!(target.is_running()?);
    Ok(())
}
