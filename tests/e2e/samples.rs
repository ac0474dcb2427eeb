//! A sample client for each service (`tests/clients`), in the shape of AMD's samples. Each is
//! C++17, built by g++ against the installed headers with the headers of AMD's runtimes next to
//! them, and checks every status with an exception. A client is attached to a program at work, and
//! a program is launched with it. The client's counts equal the program's and the GPU log's.

use crate::headers::{include, linked_with_comgr, runtimes, stand_ins};
use midair_tests::caller::{Caller, Counts, between};
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, workspace};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Elements of the arrays of `tests/c/hip_kit.h`.
const ELEMENTS: u64 = 16384;

/// A compiled client.
pub(crate) struct Client<'a> {
    lab: &'a Lab,
    tool: PathBuf,
    log: PathBuf,
}

impl<'a> Client<'a> {
    pub(crate) fn build(lab: &'a Lab, name: &str) -> Result<Client<'a>> {
        let tool = lab.scratch().join(format!("lib{name}.so"));
        let log = lab.scratch().join(format!("{name}.log"));
        let mut compiler = Command::new("g++");
        compiler.env_clear().envs(plain_environment());
        compiler
            .args(["-std=c++17", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"])
            .args(["-Werror", "-Wl,--no-undefined"])
            .arg(format!("-DLOG=\"{}\"", lab.inside(&log)?))
            .arg(workspace().join(format!("tests/clients/{name}.cpp")))
            .arg("-o")
            .arg(&tool)
            .arg(format!("-I{}", include()?.display()))
            .arg(format!("-I{}", stand_ins().display()))
            .args(runtimes(lab)?)
            .arg(format!("-L{}", stage()?.join("lib").display()))
            .arg("-lrocprofiler-sdk");
        if name == "code_objects" {
            compiler.args(linked_with_comgr(lab));
        }
        run(compiler, Duration::from_secs(120))?.success()?;
        Ok(Client { lab, tool, log })
    }

    /// Runs one session and returns what the client counted in it.
    pub(crate) fn attached(&self, pid: i32, work: impl FnOnce() -> Result<()>) -> Result<Counts> {
        let mut attach = command("rocprof-attach")?;
        attach
            .args(["-p", &pid.to_string(), "-t"])
            .arg(&self.tool)
            .current_dir(self.lab.scratch());
        let mut attacher = Target::spawn(attach)?;
        attacher.expect("Press Enter to detach...")?;
        work()?;
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;
        self.counted()
    }

    /// Prepares the program so that it is launched with the client.
    pub(crate) fn launched(&self, program: LabCommand<'a>) -> Result<LabCommand<'a>> {
        let lib = format!("{}/lib", self.lab.stage()?);
        let tool = self.lab.inside(&self.tool)?;
        Ok(program.libs(&lib).env("ROCP_TOOL_LIBRARIES", tool))
    }

    /// Returns what the client counted since the last call. It expects one report without any
    /// error.
    pub(crate) fn counted(&self) -> Result<Counts> {
        let text = std::fs::read_to_string(&self.log)?;
        std::fs::remove_file(&self.log)?;
        let mut counts = Counts::new();
        let mut lines = text.lines();
        for line in lines.by_ref().take_while(|line| *line != "end") {
            let (count, name) = line.split_once(' ').ok_or("a count and a name")?;
            assert!(!name.starts_with("WRONG"), "{text}");
            counts.insert(name.to_owned(), count.parse()?);
        }
        assert!(text.ends_with("end\n") && lines.next().is_none(), "{text}");
        Ok(counts)
    }
}

/// Ends a program that says "done", as [`Caller::quit`] does.
pub(crate) fn quit(mut target: LabTarget) -> Result<ModelLog> {
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    let done = exit.stdout.last().is_some_and(|line| line == "done");
    assert!(
        done && (exit.status.success() || exit.is_abort_of_amds_model()),
        "{exit}"
    );
    ModelLog::read(&log)
}

fn pairs(of: &[(&str, u64)]) -> Counts {
    of.iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

/// Returns the dispatches by kernel and grid, named as the client names them.
fn kernels(grids: &BTreeMap<[u32; 3], usize>) -> Counts {
    let name = |grid: &[u32; 3]| match grid[0] {
        320 => "vadd 320".to_owned(),
        192 => "scale 192".to_owned(),
        other => format!("other {other}"),
    };
    grids
        .iter()
        .map(|(grid, count)| (name(grid), *count as u64))
        .collect()
}

/// Functions that the program `calls` calls in its rounds and nowhere else.
const ONLY_IN_ROUNDS: [&str; 4] = [
    "hipDeviceGetAttribute",
    "hipEventRecord",
    "hipMemcpyAsync",
    "hipModuleLaunchKernel",
];

#[test]
fn buffered_calls() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "buffered_calls")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let before = caller.counts()?;
        let mut told = client.attached(caller.pid(), || {
            caller.tell(&format!("calls {rounds}"))?;
            caller.tell("hsa 7")
        })?;
        // HIP itself reads values of signals, too.
        let loads = told.remove("hsa_signal_load_relaxed").unwrap_or(0);
        assert!(loads >= 7, "{loads}");
        assert_eq!(told, between(&before, &caller.counts()?, "hip"));
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    let made = caller.counts()?;
    caller.quit()?;
    let told = client.counted()?;
    for name in ONLY_IN_ROUNDS {
        assert_eq!(told.get(name), made.get(name), "{name}: {told:?}");
    }
    Ok(())
}

#[test]
fn callback_calls() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "callback_calls")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [2, 6] {
        let before = caller.counts()?;
        let mut told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        assert_eq!(told.remove("bytes of hipMalloc"), Some(rounds * 4096));
        assert_eq!(told, between(&before, &caller.counts()?, "hip"));
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    let made = caller.counts()?;
    caller.quit()?;
    let told = client.counted()?;
    for name in ONLY_IN_ROUNDS {
        assert_eq!(told.get(name), made.get(name), "{name}: {told:?}");
    }
    Ok(())
}

#[test]
fn kernels_with_their_names() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "kernels")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        assert_eq!(told, pairs(&[("scale 192", rounds), ("vadd 320", rounds)]));
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut target = command.spawn()?;
    target.expect("ready")?;
    target.send("calls 4")?;
    target.expect("calls")?;
    let log = quit(target)?;
    assert_eq!(client.counted()?, kernels(&log.grids()));
    Ok(())
}

/// Correlation ids meet the demands of AMD's tests (`test_internal_correlation_ids`).
#[test]
fn correlation_ids_have_no_holes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "correlation_ids")?;
    let whole = |told: &Counts, rounds: u64| {
        assert_eq!(told["calls"], told["largest"], "{told:?}");
        assert!(told["calls"] >= 13 * rounds, "{told:?}");
        assert_eq!(told.get("of no call"), Some(&0), "{told:?}");
        assert!(
            told["launching calls"] >= 2 * rounds && told["copying calls"] >= 2 * rounds,
            "{told:?}"
        );
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        whole(&told, rounds);
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    caller.quit()?;
    whole(&client.counted()?, 4);
    Ok(())
}

#[test]
fn copies_and_allocations() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "memory")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    const COPIES: [&str; 2] = [
        "ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST",
        "ROCPROFILER_MEMORY_COPY_HOST_TO_DEVICE",
    ];
    for rounds in [3, 4] {
        let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        let mut wanted = pairs(&[
            ("ROCPROFILER_MEMORY_ALLOCATION_ALLOCATE", rounds),
            ("ROCPROFILER_MEMORY_ALLOCATION_FREE", rounds),
        ]);
        for name in COPIES {
            wanted.insert(name.to_owned(), rounds);
            wanted.insert(format!("bytes of {name}"), rounds * ELEMENTS * 4);
        }
        assert_eq!(told, wanted);
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut target = command.spawn()?;
    target.expect("ready")?;
    target.send("calls 4")?;
    target.expect("calls")?;
    quit(target)?;
    let told = client.counted()?;
    // The program makes one round before it is ready, so there are five.
    for name in COPIES {
        assert_eq!(told.get(name), Some(&5), "{told:?}");
        assert_eq!(
            told.get(&format!("bytes of {name}")),
            Some(&(5 * ELEMENTS * 4))
        );
    }
    assert!(
        told["ROCPROFILER_MEMORY_ALLOCATION_ALLOCATE"] >= 5,
        "{told:?}"
    );
    Ok(())
}

/// Two dispatches, two copies and an allocation in each round.
#[test]
fn work_from_its_beginning_to_its_end() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "work")?;
    let of = |rounds: u64| {
        pairs(&[
            ("enqueued", 2 * rounds),
            ("completed", 2 * rounds),
            ("work items", (320 + 192) * rounds),
            ("copies", 2 * rounds),
            ("bytes copied", 2 * rounds * ELEMENTS * 4),
        ])
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let mut told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        assert!(
            told.remove("calls that name a stream") >= Some(4 * rounds),
            "{told:?}"
        );
        for what in ["allocated", "freed"] {
            assert_eq!(told.remove(what), Some(rounds), "{what}: {told:?}");
        }
        assert_eq!(told, of(rounds));
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    caller.quit()?;
    // The program makes one round before it is ready.
    let told = client.counted()?;
    for (what, count) in of(5) {
        assert_eq!(told.get(&what), Some(&count), "{what}: {told:?}");
    }
    Ok(())
}

#[test]
fn external_ids_on_request_and_retirement() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "requests")?;
    let of = |rounds: u64| {
        pairs(&[
            ("asked for a dispatch", 2 * rounds),
            ("asked for a copy", 2 * rounds),
            ("dispatches", 2 * rounds),
            ("copies", 2 * rounds),
            ("never retired", 0),
        ])
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [3, 5] {
        let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        assert_eq!(told, of(rounds));
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    caller.quit()?;
    assert_eq!(client.counted()?, of(5));
    Ok(())
}

#[test]
fn code_objects_and_their_instructions() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "code_objects")?;
    let once = |told: &Counts| {
        assert_eq!(
            (told.get("vadd"), told.get("scale")),
            (Some(&1), Some(&1)),
            "{told:?}"
        );
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    once(&client.attached(caller.pid(), || caller.tell("calls 1"))?);
    caller.quit()?;
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 1")?;
    caller.quit()?;
    once(&client.counted()?);
    Ok(())
}

/// The client learns what the program registers during the session. It cannot know what was
/// registered before.
#[test]
fn functions_by_which_kernels_are_launched() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "host_functions")?;
    let (program, kernels) = (lab.program("host_functions")?, lab.kernels()?);
    let host = || lab.run(&program).arg(&kernels);
    // Returns what the program itself says that it registered.
    let register = |target: &mut LabTarget| -> Result<Counts> {
        target.send("register")?;
        let line = target.expect("register")?;
        let addresses: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [vadd, scale, _] = addresses[..] else {
            return Err(line.into());
        };
        Ok(pairs(&[
            ("host functions", 2),
            ("_Z4vaddPKfS0_Pfi at", vadd),
            ("_Z4vaddPKfS0_Pfi threads", 1024),
            ("_Z4vaddPKfS0_Pfi block", 0),
            ("_Z5scalePffi at", scale),
            ("_Z5scalePffi threads", 256),
            ("_Z5scalePffi block", 123),
        ]))
    };
    let launch = |target: &mut LabTarget| -> Result<()> {
        target.send("launch 2")?;
        target.expect("launch")?;
        Ok(())
    };

    let mut target = host().spawn()?;
    target.expect("ready")?;
    let mut registered = Counts::new();
    let told = client.attached(target.pid(), || {
        registered = register(&mut target)?;
        launch(&mut target)
    })?;
    assert_eq!(told, registered);
    // The kernels are still known at the next attach.
    let told = client.attached(target.pid(), || launch(&mut target))?;
    assert_eq!(told, registered);
    quit(target)?;

    let mut target = host().log_name("before").spawn()?;
    target.expect("ready")?;
    register(&mut target)?;
    launch(&mut target)?;
    let told = client.attached(target.pid(), || launch(&mut target))?;
    assert_eq!(told, pairs(&[("host functions", 0)]));
    quit(target)?;

    let mut target = client.launched(host().log_name("launched"))?.spawn()?;
    target.expect("ready")?;
    let registered = register(&mut target)?;
    launch(&mut target)?;
    quit(target)?;
    assert_eq!(client.counted()?, registered);

    // In a program that hipcc made, the start-up code registers before the tool does.
    let command = lab.run("/lab/vadd").arg(3).log_name("hipcc");
    let mut target = client.launched(command)?.spawn()?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    assert_eq!(client.counted()?["host functions"], 2);
    Ok(())
}

#[test]
fn markers_and_ranges() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "markers")?;
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("told")?, lab.kernels()?);
    let told = || lab.run(&program).arg(&library).arg(&kernels);
    let of = |rounds: u64| {
        pairs(&[
            ("mark: a mark", rounds),
            ("push: a range", rounds),
            ("ranges", 3 * rounds),
            ("record of a call", 5 * rounds),
            ("record of a range", 3 * rounds),
        ])
    };
    let mut target = told().spawn()?;
    target.expect("ready")?;
    for rounds in [2, 5] {
        let counts = client.attached(target.pid(), || {
            target.send(&format!("round {rounds}"))?;
            target.expect(&format!("round {rounds}"))?;
            Ok(())
        })?;
        assert_eq!(counts, of(rounds));
    }
    quit(target)?;

    let mut target = client.launched(told().log_name("launched"))?.spawn()?;
    target.expect("ready")?;
    target.send("round 3")?;
    target.expect("round 3")?;
    quit(target)?;
    assert_eq!(client.counted()?, of(3));
    Ok(())
}

#[test]
fn arguments_and_external_correlation_ids() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "arguments")?;
    let of = |rounds: u64| {
        pairs(&[
            ("blocks", 11 * rounds),
            ("blocks in words", 11 * rounds),
            ("external id", 2 * rounds),
        ])
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for rounds in [2, 5] {
        let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
        assert_eq!(told, of(rounds));
    }
    caller.quit()?;
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 3")?;
    caller.quit()?;
    assert_eq!(client.counted()?, of(4));
    Ok(())
}

/// A process that is attached to has registered its tables before, so each attach passes them to
/// the tool.
#[test]
fn tables_and_threads() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "tables")?;
    let threads = pairs(&[("threads begun", 1), ("threads made", 1)]);
    let lent = pairs(&[
        ("HIP's table", 1),
        ("HIP's table for compilers", 1),
        ("HSA's table", 1),
    ]);
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let told = client.attached(caller.pid(), || caller.tell("calls 1"))?;
    let mut both = threads.clone();
    both.extend(lent.clone());
    assert_eq!(told, both);
    // The tool has been configured already, and makes no new threads.
    let told = client.attached(caller.pid(), || caller.tell("calls 1"))?;
    assert_eq!(told, lent);
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 1")?;
    caller.quit()?;
    let mut all = threads;
    all.extend(pairs(&[
        ("HSA's table", 1),
        ("HIP's table", 1),
        ("HIP's table for compilers", 1),
    ]));
    assert_eq!(client.counted()?, all);
    Ok(())
}

#[test]
fn runtimes_that_are_there() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "runtimes")?;
    let check = |told: &Counts| {
        for runtime in ["HSA", "HIP"] {
            for by in ["callback", "record"] {
                let name = format!("{by} ROCPROFILER_RUNTIME_INITIALIZATION_{runtime}");
                assert_eq!(told.get(&name), Some(&1), "{name}: {told:?}");
            }
        }
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    check(&client.attached(caller.pid(), || caller.tell("calls 1"))?);
    caller.quit()?;
    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 1")?;
    caller.quit()?;
    check(&client.counted()?);
    Ok(())
}

/// While the HSA runtime is shut down, collecting stops, and starts again afterwards. The client is
/// not sent again what it received before. The end of each HIP program is such a case, since HIP
/// shuts HSA down by itself.
#[test]
fn a_runtime_that_is_shut_down_is_told_of_once() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "runtimes")?;
    let mut target = client
        .launched(lab.run(&lab.program("shut_down")?))?
        .spawn()?;
    target.expect("ready")?;
    target.send("shut down")?;
    target.expect("shut down")?;
    quit(target)?;
    // HIP is loaded in every program of the lab.
    let once = pairs(&[
        ("callback ROCPROFILER_RUNTIME_INITIALIZATION_HIP", 1),
        ("callback ROCPROFILER_RUNTIME_INITIALIZATION_HSA", 1),
        ("record ROCPROFILER_RUNTIME_INITIALIZATION_HIP", 1),
        ("record ROCPROFILER_RUNTIME_INITIALIZATION_HSA", 1),
    ]);
    assert_eq!(client.counted()?, once);
    Ok(())
}

/// Functions that the client `intercept` puts over those in HIP's table.
const REPLACED: [&str; 2] = ["hipMemcpyAsync", "hipModuleLaunchKernel"];

/// Checks that a tool gets the tables of a running process as AMD's SDK gives them: at the attach,
/// with our functions in them where the tool also has those calls traced. After the detach the
/// tool's functions are out again.
fn intercepted(name: &str, traced: bool) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, name)?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let untouched = caller.tables()?;
    for rounds in [3, 5] {
        let before = caller.counts()?;
        let mut told = client.attached(caller.pid(), || {
            caller.tell(&format!("calls {rounds}"))?;
            caller.tell("hsa 7")
        })?;
        for table in ["table of HIP", "table of HSA"] {
            assert_eq!(told.remove(table), Some(1), "{told:?}");
        }
        let loads = told.remove("hsa_signal_load_relaxed").unwrap_or(0);
        assert!(loads >= 7, "{loads}");
        let mut made = between(&before, &caller.counts()?, "hip");
        made.retain(|name, _| REPLACED.contains(&name.as_str()));
        assert_eq!(made.len(), REPLACED.len());
        for name in REPLACED.iter().filter(|_| traced) {
            // Below the tool's function is ours, which tells the tool of the same call.
            made.insert(format!("traced {name}"), made[*name]);
        }
        assert_eq!(told, made);
        assert_eq!(caller.tables()?, untouched);
        // The tool must not see these calls, so the next session counts from nothing.
        caller.tell("calls 2")?;
    }
    caller.quit()?;

    let command = client.launched(Caller::command(&lab)?.log_name("launched"))?;
    let mut caller = Caller::start(command)?;
    caller.tell("calls 4")?;
    let made = caller.counts()?;
    caller.quit()?;
    let told = client.counted()?;
    assert_eq!((told["table of HIP"], told["table of HSA"]), (1, 1));
    for name in REPLACED {
        assert_eq!(told.get(name), made.get(name), "{name}: {told:?}");
    }
    Ok(())
}

#[test]
fn tables_of_a_tool_that_asks_for_nothing_else() -> Result<()> {
    intercepted("intercept", false)
}

#[test]
fn tables_of_a_tool_that_has_calls_traced() -> Result<()> {
    intercepted("intercept_traced", true)
}

/// Each kind is accepted, except those that AMD's SDK refuses, too, and those that are not built. Kinds of things that do not
/// exist here have no events. All others have some.
#[test]
fn every_kind() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "every_kind")?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let told = client.attached(caller.pid(), || {
        caller.tell("calls 2")?;
        caller.tell("hsa 2")
    })?;
    caller.quit()?;
    let refused: Vec<&String> = told
        .keys()
        .filter(|name| name.starts_with("refused"))
        .collect();
    assert_eq!(
        refused,
        [
            "refused callback HIPFILE_API: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused callback HIP_GRAPH: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused callback KERNEL_REPLAY: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused callback NONE: ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND",
            "refused callback ROCSHMEM_API: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused record HIPFILE_API: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused record HIPFILE_API_EXT: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused record HIP_STREAM: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused record NONE: ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND",
            "refused record ROCSHMEM_API: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
            "refused record ROCSHMEM_API_EXT: ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED",
        ]
    );
    const ABSENT: [&str; 5] = ["RCCL", "OMPT", "ROCDECODE", "ROCJPEG", "KFD"];
    for name in told.keys() {
        assert!(!ABSENT.iter().any(|absent| name.contains(absent)), "{name}");
    }
    for name in [
        "record HIP_RUNTIME_API",
        "record HIP_RUNTIME_API_EXT",
        "record HSA_CORE_API",
        "record HSA_AMD_EXT_API",
        "record KERNEL_DISPATCH",
        "record MEMORY_COPY",
        "record MEMORY_ALLOCATION",
        "record RUNTIME_INITIALIZATION",
        "record CORRELATION_ID_RETIREMENT",
        "callback HIP_RUNTIME_API",
        "callback HSA_CORE_API",
        "callback KERNEL_DISPATCH",
        "callback MEMORY_COPY",
        "callback MEMORY_ALLOCATION",
        "callback CODE_OBJECT",
        "callback RUNTIME_INITIALIZATION",
    ] {
        assert!(told.contains_key(name), "{name}: {told:?}");
    }
    Ok(())
}

#[test]
fn scratch_memory() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "scratch")?;
    let (program, kernels) = (lab.program("memory")?, lab.kernels()?);
    // The queue needs more scratch memory than it has twice, and then it is destroyed.
    let work = |target: &mut LabTarget| -> Result<()> {
        for (command, answer) in [
            ("scratch 64 64", "scratch"),
            ("scratch 32 4096", "scratch"),
            ("scratch 256 64", "scratch"),
            ("queue", "queue"),
        ] {
            target.send(command)?;
            while target.expect("")? != answer {}
        }
        Ok(())
    };
    let asked = |log: &ModelLog| {
        log.records
            .iter()
            .filter(|record| matches!(record.event, Event::Stop { code: 1, .. }))
            .count() as u64
    };
    let of = |asked: u64| {
        let mut all = Counts::new();
        for what in ["ALLOC", "FREE"] {
            for when in ["", "begin ", "end "] {
                all.insert(format!("{when}ROCPROFILER_SCRATCH_MEMORY_{what}"), asked);
            }
        }
        all
    };
    let mut target = lab.run(&program).arg(&kernels).register(false).spawn()?;
    target.expect("ready")?;
    for _ in 0..2 {
        let before = asked(&target.model_log()?);
        let told = client.attached(target.pid(), || work(&mut target))?;
        let asked = asked(&target.model_log()?) - before;
        assert_eq!((told, asked), (of(2), 2));
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;

    let command = lab.run(&program).arg(&kernels).log_name("launched");
    let mut target = client.launched(command)?.spawn()?;
    target.expect("ready")?;
    work(&mut target)?;
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    assert_eq!(client.counted()?, of(asked(&ModelLog::read(&log)?)));
    Ok(())
}
