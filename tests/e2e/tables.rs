//! An attach finds the live tables of HIP and HSA and records calls, however the process was
//! started, and puts every entry back.

use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced, by_function, check_calls};
use midair_tests::caller::{Caller, between, changed};
use midair_tests::lab::{Lab, LabCommand};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::stage;
use midair_tests::target::PATIENCE;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the lines of the probes' log.
fn noted(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn entered_by(traced: &Traced) -> String {
    let said = traced.exit.stderr.iter();
    said.filter_map(|line| line.split("entered by ").nth(1))
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Runs two sessions on a program that was started in this way. It checks that the counts are
/// right, that the tables are hooked and restored, and that the second session changes nothing
/// else. Returns the entry path of each.
fn sessions(command: LabCommand<'_>) -> Result<[String; 2]> {
    let mut caller = Caller::start(command)?;
    let pid = caller.pid();
    let before = caller.tables()?;
    let mut ways = [String::new(), String::new()];
    let mut after_first = None;
    for way in &mut ways {
        let attacher = Attacher::start(
            pid,
            &[
                "--hip-trace",
                "--hsa-trace",
                "--log-level",
                "info",
                "--output-format",
                "csv",
            ],
        )?;
        let during = changed(&before, &caller.tables()?);
        let (all, some) = (450, 50);
        assert!(
            during["hip"] > all && during["hip_compiler"] > 0,
            "{during:?}"
        );
        assert!(
            during["hsa_core"] > some && during["hsa_amd"] > some,
            "{during:?}"
        );
        let counted = caller.counts()?;
        caller.tell("calls 10")?;
        caller.send("hsa 10")?;
        let tid: i32 = caller
            .expect("only ")?
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .parse()?;
        caller.expect("hsa")?;
        let counted = (counted, caller.counts()?);
        let traced = attacher.detach()?.code(0)?;
        let calls = traced.calls()?;
        check_calls(&calls, pid, (0, u64::MAX))?;
        let hip = calls.iter().filter(|call| call.domain.starts_with("HIP_"));
        assert_eq!(by_function(hip), between(&counted.0, &counted.1, "hip"));
        let hsa = calls
            .iter()
            .filter(|call| call.tid == tid && call.domain.starts_with("HSA_"));
        assert_eq!(by_function(hsa), between(&counted.0, &counted.1, "hsa"));
        assert!(
            caller.tables()? == before,
            "{:?}",
            changed(&before, &caller.tables()?)
        );
        *way = entered_by(&traced);
        let now = Snapshot::take(pid)?;
        if let Some(first) = after_first.replace(now.clone()) {
            let diff = Snapshot::diff(&first, &now).without_heap();
            assert!(diff.is_empty(), "a second session left something:\n{diff}");
        }
    }
    let woken = "the worker thread";
    let by_listener = "the listener of the process, over its socket";
    let expected = if ways[0].starts_with(by_listener) {
        by_listener
    } else {
        woken
    };
    assert!(ways[1].starts_with(expected), "{ways:?}");
    caller.quit()?;
    Ok(ways)
}

#[test]
fn debians_runtimes_unmodified() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let [way, _] = sessions(Caller::command(&lab)?.register(false))?;
    assert!(way.starts_with("a parked thread"), "{way}");
    Ok(())
}

#[test]
fn amds_register_with_nothing_set() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let [way, _] = sessions(Caller::command(&lab)?)?;
    assert!(way.starts_with("a parked thread"), "{way}");
    Ok(())
}

#[test]
fn amds_register_with_attaching_enabled() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Without the helper library, AMD's register library reports that and goes on without a
    // listener.
    let told = || Ok::<_, midair_tests::Error>(Caller::command(&lab)?.env("ROCP_TOOL_ATTACH", 1));
    let [way, _] = sessions(told()?)?;
    assert!(way.starts_with("a parked thread"), "{way}");

    // With the helper library, the attach goes through the listener, and AMD's own ways of
    // attaching are not used.
    let helper = lab.library("probe_attach", "librocprofiler-sdk-attach.so")?;
    let log = lab.scratch().join("helper.log");
    let inside = lab.inside(&log)?;
    let [way, _] = sessions(
        told()?
            .libs(&helper)
            .env("PROBE_LOG", inside)
            .log_name("second"),
    )?;
    assert!(way.starts_with("the listener thread"), "{way}");
    assert_eq!(noted(&log), ["helper set_api_table hsa"]);
    Ok(())
}

#[test]
fn our_own_register() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let dir = lab.scratch().join("lib");
    std::fs::create_dir(&dir)?;
    let name = "librocprofiler-register.so.0";
    std::fs::copy(stage()?.join("lib").join(name), dir.join(name))?;
    let [way, _] = sessions(Caller::command(&lab)?.libs(&lab.inside(&dir)?))?;
    assert!(way.starts_with("the listener of the process"), "{way}");
    Ok(())
}

#[test]
fn foreign_sdk_and_tool_are_left_alone() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let sdk = lab.library("probe_sdk", "librocprofiler-sdk.so.1")? + "/librocprofiler-sdk.so.1";
    let tool = lab.library("probe_tool", "libambient.so")? + "/libambient.so";
    let log = lab.scratch().join("probe.log");
    let inside = lab.inside(&log)?;
    for register in [true, false] {
        let _ = std::fs::remove_file(&log);
        let command = Caller::command(&lab)?
            .env("PROBE_LOG", &inside)
            .preload(&sdk)
            .preload(&tool);
        let command = command
            .register(register)
            .log_name(&format!("model-{register}"));
        let mut caller = Caller::start(command)?;
        // AMD's register library gives its tables to an SDK that is there from the start. That
        // happens between those two alone.
        let before = noted(&log);
        assert_eq!(before.is_empty(), !register, "{before:?}");
        assert!(!before.contains(&"attach".to_owned()), "{before:?}");
        let attacher = Attacher::start(caller.pid(), &["--hip-trace"])?;
        let counted = caller.counts()?;
        caller.tell("calls 3")?;
        let counted = (counted, caller.counts()?);
        let traced = attacher.detach()?.code(0)?;
        assert_eq!(
            by_function(&traced.calls()?),
            between(&counted.0, &counted.1, "hip")
        );
        assert_eq!(
            noted(&log),
            before,
            "somebody of ours called a library that is not ours"
        );
        caller.quit()?;
    }
    Ok(())
}

#[test]
fn before_the_first_call() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("late")?, lab.kernels()?);
    for (register, commands) in [
        (true, ["init", "load", "go 5"]),
        (false, ["load", "go 3", "go 2"]),
    ] {
        let command = lab.run(&program).arg(&kernels).register(register);
        let mut target = command.log_name(&format!("late-{register}")).spawn()?;
        target.expect("ready")?;
        let pid = target.pid();
        let words = ["--hip-trace", "--hsa-trace", "--kernel-trace"];
        let attacher = Attacher::start(pid, &words)?;
        // When the runtime is initialised, it opens the driver. Here this is the model, which then
        // writes the first line of its log. So an empty log shows that the attach has not
        // initialised it.
        assert!(
            target.model_log()?.records.is_empty(),
            "attaching initialised the runtime"
        );
        for command in commands {
            target.send(command)?;
            target.expect(&command[..2])?;
        }
        let traced = attacher.detach()?.code(0)?;
        let calls = traced.calls()?;
        check_calls(&calls, pid, (0, u64::MAX))?;
        let hip = by_function(calls.iter().filter(|call| call.domain.starts_with("HIP_")));
        let mut expected = BTreeMap::from([
            ("hipModuleLaunchKernel", 10),
            ("hipMemcpyAsync", 10),
            ("hipStreamSynchronize", 5),
            ("hipModuleLoad", 1),
            ("hipModuleGetFunction", 2),
            ("hipStreamCreate", 1),
            ("hipMalloc", 3),
        ]);
        // Debian's HIP makes its table in its first call, which is therefore not recorded. Where
        // the runtime registers as AMD's does, the table is there from the start.
        if register {
            expected.extend([("hipInit", 1), ("hipGetDeviceCount", 1)]);
        }
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|(name, n)| (name.to_owned(), n))
            .collect();
        assert_eq!(hip, expected);
        // `hsa_init` makes the HSA table after the attach, and calls from then on are recorded,
        // too.
        let queues = calls
            .iter()
            .filter(|call| call.function == "hsa_queue_create")
            .count();
        assert!(
            queues > 0,
            "no HSA call of a runtime that came up while attached"
        );
        let kernels = midair_tests::table::Csv::read(&traced.file("kernel_trace.csv"))?.rows;
        let ours = kernels
            .iter()
            .filter(|row| ["448", "288"].contains(&row["Grid_Size_X"].as_str()));
        assert_eq!(ours.count(), 10);
        target.send("quit")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}
