//! `roctxProfilerPause` and `roctxProfilerResume`, compared with what a program did inside and
//! outside of its regions (`tests/c/regions.c` launches the kernel vadd inside and scale outside).

use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced, by_function};
use midair_tests::client::ClientHost;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::stage;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, until};
use std::path::Path;

/// The options for the domains whose records are compared with the program's own counts.
const ALL: [&str; 8] = [
    "--hip-runtime-trace",
    "--hsa-core-trace",
    "--kernel-trace",
    "--memory-copy-trace",
    "--memory-allocation-trace",
    "--scratch-memory-trace",
    "--output-format",
    "csv",
];

struct Program<'a> {
    lab: &'a Lab,
    target: LabTarget,
}

impl<'a> Program<'a> {
    fn start_with(lab: &'a Lab, library: &str) -> Result<Program<'a>> {
        let (program, kernels) = (lab.program("regions")?, lab.kernels()?);
        let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
        target.expect("ready")?;
        Ok(Program { lab, target })
    }

    /// Starts the program with our ROCTx library.
    fn start(lab: &'a Lab) -> Result<Program<'a>> {
        let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
        Program::start_with(lab, &library)
    }

    /// Sends several commands, one after the other.
    fn tell(&mut self, commands: &[&str]) -> Result<()> {
        for command in commands {
            self.target.send(command)?;
            let answer = command.split(' ').next().unwrap_or_default();
            self.target.expect(answer)?;
        }
        Ok(())
    }

    fn tid(&mut self) -> Result<i32> {
        self.target.send("tid")?;
        let line = self.target.expect("tid ")?;
        self.target.expect("tid")?;
        Ok(line.trim_start_matches("tid ").parse()?)
    }

    fn attach(&self, words: &[&str]) -> Result<Attacher> {
        Attacher::start(self.target.pid(), words)
    }

    fn quit(mut self) -> Result<()> {
        self.target.send("quit")?;
        self.target.expect("done")?;
        let exit = self.target.target.wait(PATIENCE)?;
        let _ = self.lab;
        exit.success().map(drop)
    }
}

/// Returns how many kernels of each name a file has.
fn kernels_of(path: &Path) -> Result<[usize; 2]> {
    if !path.exists() {
        return Ok([0, 0]);
    }
    let rows = Csv::read(path)?.rows;
    let count = |name: &str| {
        let found = rows.iter().filter(|row| row["Kernel_Name"].contains(name));
        found.count()
    };
    Ok([count("vadd"), count("scale")])
}

fn kernels(traced: &Traced) -> Result<[usize; 2]> {
    kernels_of(&traced.file("kernel_trace.csv"))
}

fn rows(traced: &Traced, name: &str) -> Result<usize> {
    let path = traced.file(name);
    if !path.exists() {
        return Ok(0);
    }
    Ok(Csv::read(&path)?.rows.len())
}

fn said(traced: &Traced) -> String {
    std::fs::read_to_string(traced.file("notes.txt")).unwrap_or_default()
}

/// Checks that this many rounds inside are recorded, and nothing of those outside.
fn check_rounds(traced: &Traced, inside: usize, tid: i32) -> Result<()> {
    assert_eq!(kernels(traced)?, [inside, 0]);
    assert_eq!(rows(traced, "memory_copy_trace.csv")?, 2 * inside);
    let calls = traced.calls()?;
    let counts = by_function(calls.iter().filter(|call| call.tid == tid));
    for call in ["hipMalloc", "hipFree", "hipModuleLaunchKernel"] {
        let count = counts.get(call).copied().unwrap_or(0);
        assert_eq!(count as usize, inside, "{call}");
    }
    assert_eq!(
        counts.get("hipMemcpyAsync").copied().unwrap_or(0) as usize,
        2 * inside
    );
    Ok(())
}

#[test]
fn a_pause_holds_for_everything_that_is_recorded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab)?;
    let tid = program.tid()?;
    let words: Vec<&str> = ["--marker-trace"].into_iter().chain(ALL).collect();
    for round in 0..2 {
        // A pause from before the attach does not count: a recording starts at once.
        program.tell(&["pause"])?;
        let attacher = program.attach(&words)?;
        program.tell(&["inside 3", "pause", "outside 5", "resume", "inside 4"])?;
        // Calls of another thread hold for all threads, whichever thread they name.
        program.tell(&["thread pause", "outside 2", "thread resume", "inside 1"])?;
        let traced = attacher.detach()?.code(0)?;
        check_rounds(&traced, 8, tid)?;
        // HIP's allocation of 1 MiB is one allocation of HSA, and the same is true of its release.
        let allocations = rows(&traced, "memory_allocation_trace.csv")?;
        assert!((16..24).contains(&allocations), "{allocations}");
        let markers = by_function(&traced.markers()?);
        for (name, count) in [
            ("inside", 8),
            ("mark inside", 8),
            ("roctxProfilerPause", 2),
            ("roctxProfilerResume", 2),
        ] {
            assert_eq!(markers.get(name), Some(&count), "{name}: {markers:?}");
        }
        assert_eq!(markers.len(), 4, "{markers:?}");
        let notes = said(&traced);
        for words in [
            "paused recording 2 times, for ",
            ": 7 dispatches, 14 copies, ",
            "named one thread",
        ] {
            assert!(notes.contains(words), "round {round}: {words}: {notes}");
        }
        assert!(!notes.contains("packet counts of queue"), "{notes}");
    }
    // Without marker tracing the calls have no effect, as with AMD's tool.
    let attacher = program.attach(&ALL)?;
    program.tell(&["pause", "inside 2", "resume"])?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(kernels(&traced)?, [2, 0]);
    assert!(!said(&traced).contains("paused"), "{}", said(&traced));
    program.quit()
}

#[test]
fn only_the_selected_regions_are_recorded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab)?;
    let tid = program.tid()?;
    let words: Vec<&str> = ["--selected-regions"].into_iter().chain(ALL).collect();
    let attacher = program.attach(&words)?;
    program.tell(&["outside 2", "resume", "inside 3", "pause", "outside 4"])?;
    // Nested pairs end with the first pause.
    program.tell(&[
        "resume",
        "resume",
        "inside 1",
        "pause",
        "outside 1",
        "pause",
    ])?;
    let traced = attacher.detach()?.code(0)?;
    check_rounds(&traced, 4, tid)?;
    assert!(traced.markers()?.is_empty(), "markers were not asked for");
    let notes = said(&traced);
    for words in [
        "and from the start, as requested",
        ": 7 dispatches, 14 copies",
        "the recording was paused when it ended",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }

    // A program that never resumes has no records, and a note says why.
    let attacher = program.attach(&words)?;
    program.tell(&["outside 2"])?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(kernels(&traced)?, [0, 0]);
    let told = format!("{} {}", said(&traced), traced.exit);
    assert!(told.contains("did not call roctxProfilerResume"), "{told}");
    program.quit()
}

/// Follows AMD's attachment test `roctx-pause-resume` in the mode `selected-ref-count-reattach`.
#[test]
fn nested_pairs_are_counted_and_each_attach_counts_anew() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab)?;
    let words = [
        "--selected-regions",
        "--selected-regions-ref-count",
        "--kernel-trace",
    ];
    // The first session leaves two regions open.
    let attacher = program.attach(&words)?;
    program.tell(&["resume", "resume", "inside 1"])?;
    assert_eq!(kernels(&attacher.detach()?.code(0)?)?, [1, 0]);
    // The pause at the start is not counted. The pair after it is.
    let attacher = program.attach(&words)?;
    program.tell(&["pause", "resume", "inside 2", "pause", "outside 3"])?;
    assert_eq!(kernels(&attacher.detach()?.code(0)?)?, [2, 0]);
    // Inner pairs change nothing.
    let attacher = program.attach(&words)?;
    program.tell(&["outside 1", "pause", "outside 1", "resume", "inside 1"])?;
    program.tell(&[
        "resume",
        "inside 1",
        "pause",
        "inside 1",
        "pause",
        "outside 1",
    ])?;
    assert_eq!(kernels(&attacher.detach()?.code(0)?)?, [3, 0]);
    // Regions of several threads overlap. Every launch is inside one of them, and at the end none
    // is open.
    let attacher = program.attach(&words)?;
    program.tell(&["pause", "parallel 8 40", "outside 2"])?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(kernels(&traced)?, [320, 0]);
    assert!(
        said(&traced).contains(": 2 dispatches"),
        "{}",
        said(&traced)
    );
    program.quit()
}

#[test]
fn what_crosses_the_edge_of_a_pause_belongs_to_where_it_began() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab)?;
    let tid = program.tid()?;
    let words = ["--marker-trace", "--hsa-core-trace", "--kernel-trace"];
    let attacher = program.attach(&words)?;
    program.tell(&[
        "push begun before",
        "start apart before",
        "pause",
        "pop",
        "stop",
    ])?;
    program.tell(&[
        "push begun in it",
        "start apart in it",
        "resume",
        "pop",
        "stop",
    ])?;
    program.tell(&["push after", "pop"])?;
    // A call during which the pause starts is recorded, but not the calls that it makes after that.
    // With the resume it is the other way round.
    program.tell(&["into", "outside 1", "out", "inside 1"])?;
    // The session ends in a pause, with one range open from before the pause and one from within.
    program.tell(&[
        "push left open",
        "pause",
        "push left open in it",
        "outside 1",
    ])?;
    let traced = attacher.detach()?.code(0)?;
    let markers = by_function(&traced.markers()?);
    for name in [
        "begun before",
        "apart before",
        "after",
        "left open",
        "inside",
        "mark inside",
    ] {
        assert_eq!(markers.get(name), Some(&1), "{name}: {markers:?}");
    }
    // There are six of these markers, and two functions that pause and resume.
    assert_eq!(markers.len(), 8, "{markers:?}");
    assert!(
        !said(&traced).contains("had started before"),
        "{}",
        said(&traced)
    );
    let calls = traced.calls()?;
    let counts = by_function(calls.iter().filter(|call| call.tid == tid));
    for name in ["hsa_iterate_agents", "hsa_agent_get_info"] {
        assert_eq!(counts.get(name), Some(&1), "{name}: {counts:?}");
    }
    assert_eq!(kernels(&traced)?, [1, 0]);
    // The next session is not paused, although the program paused the last one.
    let attacher = program.attach(&words)?;
    program.tell(&["inside 2", "pop", "pop"])?;
    assert_eq!(kernels(&attacher.detach()?.code(0)?)?, [2, 0]);
    program.quit()
}

/// The same for a program that is launched under the profiler.
#[test]
fn a_program_that_is_started_pauses_its_profiler() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("regions")?, lab.kernels()?);
    let at = lab.stage()?;
    let library = format!("{at}/lib/librocprofiler-sdk-roctx.so.1");
    for (round, (mode, expected)) in [("--marker-trace", 5), ("--selected-regions", 4)]
        .into_iter()
        .enumerate()
    {
        let dir = format!("{at}/regions{round}");
        let rocprofv3 = format!("{at}/bin/rocprofv3");
        let words = [
            &rocprofv3,
            mode,
            "--kernel-trace",
            "-f",
            "csv",
            "-o",
            "t",
            "-d",
            &dir,
            "--",
        ];
        let mut target = lab
            .run(&program)
            .arg(&library)
            .arg(&kernels)
            .under(&words)
            .libs(&format!("{at}/lib"))
            .log_name(&format!("log-{round}"))
            .spawn()?;
        target.expect("ready")?;
        let mut program = Program { lab: &lab, target };
        let first = if round == 0 { "inside 1" } else { "outside 1" };
        program.tell(&[first, "pause", "outside 2", "resume", "inside 4", "pause"])?;
        program.tell(&["outside 1"])?;
        program.quit()?;
        let path = lab.outside(&dir).join("t_kernel_trace.csv");
        assert_eq!(kernels_of(&path)?, [expected, 0], "{mode}");
    }
    Ok(())
}

/// The pause applies to midair. A profiler of the program's own is not paused and gets all records.
#[test]
fn another_profiler_is_not_paused() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?)?;
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    host.send(&format!("roctx {library}"))?;
    host.expect("roctx")?;
    host.load(&lab, "proton")?;
    assert_eq!(host.client("start")?, 0);
    let words = ["--marker-trace", "--kernel-trace", "--hip-runtime-trace"];
    let attacher = Attacher::start(host.pid(), &words)?;
    let control = |host: &mut ClientHost, word: &str| -> Result<()> {
        host.send(word)?;
        host.expect(word).map(drop)
    };
    host.round(3)?;
    control(&mut host, "pause")?;
    host.round(5)?;
    control(&mut host, "resume")?;
    host.round(2)?;
    until("the client's kernels", || {
        assert_eq!(host.client("flush")?, 0);
        Ok(host.count()?["kernels"] >= 10)
    })?;
    let count = host.count()?;
    assert_eq!((count["kernels"], count["enters"]), (10, 10), "{count:?}");
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(kernels(&traced)?, [5, 0]);
    let launches = by_function(&traced.calls()?)["hipModuleLaunchKernel"];
    assert_eq!(launches, 5);
    let notes = said(&traced);
    assert!(notes.contains(": 5 dispatches"), "{notes}");
    assert!(!notes.contains("packet counts of queue"), "{notes}");
    host.quit()
}

/// A json file has the notes in it, with the counts of what was left out.
#[test]
fn what_was_left_out_is_in_the_file() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab)?;
    let words = [
        "--marker-trace",
        "--kernel-trace",
        "--output-format",
        "json",
    ];
    let attacher = program.attach(&words)?;
    program.tell(&["inside 1", "pause", "outside 6", "resume"])?;
    let traced = attacher.detach()?.code(0)?;
    let whole = json(&traced.file("results.json"))?;
    let text = whole.to_string();
    assert!(text.contains(": 6 dispatches that started then are excluded"));
    assert!(
        traced
            .exit
            .to_string()
            .contains("6 dispatches were launched while the program had paused"),
        "{}",
        traced.exit
    );
    program.quit()
}

/// The library of the old roctracer has neither call, so its programs cannot select regions.
#[test]
fn the_old_library_cannot_pause() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = format!(
        "{}/libroctx64.so.4",
        lab.library("old_roctx", "libroctx64.so.4")?
    );
    let mut program = Program::start_with(&lab, &library)?;
    let attacher = program.attach(&["--selected-regions", "--marker-trace", "--kernel-trace"])?;
    program.tell(&["outside 2"])?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(kernels(&traced)?, [0, 0]);
    assert!(traced.markers()?.is_empty());
    let told = format!("{} {}", said(&traced), traced.exit);
    assert!(told.contains("has no roctxProfilerResume"), "{told}");
    program.quit()
}

/// Tests ROCTx libraries whose tables are parts of one object, which each function reaches as in
/// AMD's library.
#[test]
fn a_library_in_the_shape_of_amds() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for source in ["amd_roctx", "amd_roctx_called"] {
        let file = "librocprofiler-sdk-roctx.so.1";
        let library = format!("{}/{file}", lab.library(source, file)?);
        let mut program = Program::start_with(&lab, &library)?;
        let tid = program.tid()?;
        program.tell(&["outside 1"])?;
        let words: Vec<&str> = ["--marker-trace"].into_iter().chain(ALL).collect();
        let attacher = program.attach(&words)?;
        program.tell(&["inside 2", "pause", "outside 3", "resume", "inside 1"])?;
        let traced = attacher.detach()?.code(0)?;
        check_rounds(&traced, 3, tid)?;
        let markers = by_function(&traced.markers()?);
        assert_eq!((markers["inside"], markers.len()), (3, 4), "{markers:?}");
        program.quit()?;
    }
    Ok(())
}
