//! `--stacks` with graphs, HIP's on AMD's runtimes and the modelled GPU, CUDA's on the stand-in: a kernel belongs to
//! the line that captured it. The sizes of each kernel say which line that is (`tests/python/*graph_lines.py`).

use crate::rocpd::reader;
use crate::top::{Top, counts_by_function};
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::table::Csv;
use midair_tests::target::PATIENCE;
use midair_tests::{Result, cuda, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const BEFORE: &str = "(graph captured before the attach)";
/// The start of the names of the kernels with which HIP copies.
const INTERNAL: &str = "__amd_rocclr_";

/// The GPU's time and the number of kernels by line, and whether the frame [`BEFORE`] is on the stack.
type Times = BTreeMap<(u64, bool), u64>;

/// Returns what the program's sizes say. `orders` has the lines of its kernels of the same size, captured (4) and
/// added (5).
fn wanted(traced: &Traced, orders: [&[u64]; 2]) -> Result<(Times, BTreeMap<u64, u64>)> {
    let (mut times, mut counts) = (Times::new(), BTreeMap::new());
    let mut alike: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for row in Csv::read(&traced.file("kernel_trace.csv"))?.rows {
        let number = |name: &str| Csv::number(&row, name);
        let time = number("End_Timestamp")? - number("Start_Timestamp")?;
        let (line, how) = (number("Grid_Size_X")? / 64, number("Grid_Size_Y")?);
        if row["Kernel_Name"].starts_with(INTERNAL) {
            *counts.entry(0).or_default() += 1;
            continue;
        }
        *counts.entry(how).or_default() += 1;
        if how >= 4 {
            let launch = alike.entry((how, number("Correlation_Id")?)).or_default();
            launch.push((number("Dispatch_Id")?, time));
        } else {
            *times.entry((line, how == 2)).or_default() += time;
        }
    }
    for ((how, _), mut launch) in alike {
        launch.sort_unstable();
        let order = orders[usize::from(how == 5)];
        assert_eq!(launch.len(), order.len());
        for ((_, time), line) in launch.into_iter().zip(order) {
            *times.entry((*line, false)).or_default() += time;
        }
    }
    Ok((times, counts))
}

fn line_of(frame: &str) -> u64 {
    let line = frame.rsplit(':').next().unwrap_or_default();
    line.trim_end_matches(')').parse().unwrap_or(0)
}

/// Returns the same of the stacks in `folded`.
fn found(traced: &Traced) -> Result<Times> {
    let mut times = Times::new();
    for line in std::fs::read_to_string(traced.file("results.folded"))?.lines() {
        let (path, time) = line.rsplit_once(' ').ok_or("a time")?;
        let path: Vec<&str> = path.split(';').collect();
        let (kernel, frames) = path.split_last().ok_or("a kernel")?;
        let own = |frame: &&str| {
            ![
                "launch (",
                "replay (",
                "same (",
                "same_node (",
                "launch_node (",
                "launch_any_node (",
                "launch_by_config (",
            ]
            .iter()
            .any(|it| frame.starts_with(it))
                && *frame != BEFORE
        };
        let caller = frames.iter().rposition(own).ok_or("a caller")?;
        let inside = frames.get(caller + 1..).unwrap_or_default();
        let is_replay = inside.first().is_some_and(|it| it.starts_with("replay ("));
        let is_before = inside.last() == Some(&BEFORE);
        assert!(is_replay || !is_before, "{line}");
        if kernel.starts_with(INTERNAL) {
            assert!(is_replay && !is_before, "{line}");
            continue;
        }
        *times
            .entry((line_of(frames[caller]), is_before))
            .or_default() += time.parse::<u64>()?;
    }
    Ok(times)
}

/// Starts the program of lines that launch graphs. Returns its source, too.
fn graph_lines(lab: &Lab) -> Result<(LabTarget, String)> {
    let kernels = lab.kernels()?;
    let script = lab.scratch().join("graph_lines.py");
    std::fs::copy(workspace().join("tests/python/graph_lines.py"), &script)?;
    let mut target = lab
        .run("/usr/bin/python3")
        .arg(lab.inside(&script)?)
        .arg("/usr/lib/x86_64-linux-gnu/libamdhip64.so.7")
        .arg(&kernels)
        .env("PYTHONDONTWRITEBYTECODE", 1)
        .spawn()?;
    target.expect("ready")?;
    Ok((target, std::fs::read_to_string(&script)?))
}

/// Kernels whose stack in rocpd has no frame with the line that the sizes say.
const ELSEWHERE: &str = "SELECT k.grid_x / 64 AS line, k.grid_y AS how FROM kernels AS k
    WHERE k.grid_y < 4 AND k.name NOT LIKE '\\_\\_amd%' ESCAPE '\\' AND NOT EXISTS (
      SELECT 1 FROM call_stacks AS c WHERE c.guid = k.guid AND c.event_id = k.event_id AND c.line = k.grid_x / 64)";
/// The innermost functions.
const INNERMOST: &str = "SELECT DISTINCT k.grid_y AS how, c.function AS function
    FROM kernels AS k JOIN call_stacks AS c USING (guid, event_id)
    WHERE c.depth = 0 AND k.name NOT LIKE '\\_\\_amd%' ESCAPE '\\'";

#[test]
fn kernels_of_graphs_belong_to_the_lines_that_captured_them() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (mut target, _) = graph_lines(&lab)?;
    let words = [
        "--kernel-trace",
        "--stacks",
        "python",
        "-f",
        "csv,folded,rocpd",
    ];
    // The last session keeps its latest records only.
    for (rounds, more) in [(1, &[][..]), (5, &[]), (2, &["--keep", "60s"])] {
        let words = [&words[..], more].concat();
        let attacher = Attacher::midair(target.target.pid(), &words)?;
        target.send(&format!("work {rounds}"))?;
        let said = target.expect("work")?;
        let order = said
            .split(' ')
            .skip(1)
            .map(str::parse)
            .collect::<std::result::Result<Vec<u64>, _>>()?;
        let mut orders = order.split(|line| *line == 0);
        let mut order = || orders.next().unwrap_or_default();
        let orders = [order(), order()];
        let traced = attacher.detach()?.code(0)?;
        let (wanted, counts) = wanted(&traced, orders)?;
        // In a round: 4 graphs of 6 launches, 2 of 5 and 2 more, 2 of 8, and 3 single ones; 4 of the graph from
        // before; 2 of 2 that are not clear. Of added nodes 2 graphs of 2, 4 more, and 3 in a graph within; 1 and
        // 2 that are not clear.
        let of = |how: u64| counts.get(&how).copied().unwrap_or(0);
        assert_eq!(
            [of(2), of(3), of(4), of(5)],
            [4, 6, 10, 8].map(|of| of * rounds),
            "{counts:?}"
        );
        assert_eq!(found(&traced)?, wanted, "{rounds} {more:?} {counts:?}");
        let read = reader(&traced.file("results.db"), &[ELSEWHERE, INNERMOST])?;
        assert_eq!(
            read["answers"][0].as_array().map(Vec::len),
            Some(0),
            "{read}"
        );
        let rows = read["answers"][1].as_array().ok_or("rows")?.iter();
        let innermost: BTreeSet<(u64, &str)> = rows
            .map(|row| {
                (
                    row["how"].as_u64().unwrap_or(0),
                    row["function"].as_str().unwrap_or(""),
                )
            })
            .collect();
        let by_nodes = [
            "launch",
            "launch_any_node",
            "launch_by_config",
            "launch_node",
        ];
        let mut expected: Vec<_> = by_nodes.iter().map(|by| (1, *by)).collect();
        expected.extend([
            (2, BEFORE),
            (3, "replay"),
            (4, "launch"),
            (5, "launch_node"),
        ]);
        assert_eq!(innermost, BTreeSet::from_iter(expected));
        let said = traced.exit.stdout.join("\n");
        assert!(said.contains("graph_lines.py:"), "{said}");
        assert!(!said.contains(BEFORE), "CODE has lines: {said}");
    }
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&log)?.check()
}

/// The screen has the same lines while the session continues.
#[test]
fn top_has_the_lines_that_captured_kernels_of_graphs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (mut target, source) = graph_lines(&lab)?;
    let lines: Vec<&str> = source.lines().collect();
    let text = |line: u64| lines.get(line as usize - 1).copied().unwrap_or_default();
    let round = |target: &mut LabTarget| -> Result<()> {
        target.send("work 1")?;
        target.expect("work").map(drop)
    };
    let attacher = Attacher::midair(target.target.pid(), &["--kernel-trace", "-f", "csv"])?;
    round(&mut target)?;
    let traced = attacher.detach()?.code(0)?;
    // By the functions that launch, which are innermost.
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for row in Csv::read(&traced.file("kernel_trace.csv"))?.rows {
        let (line, how) = (
            Csv::number(&row, "Grid_Size_X")? / 64,
            Csv::number(&row, "Grid_Size_Y")?,
        );
        let function = match (row["Kernel_Name"].starts_with(INTERNAL), how) {
            (true, _) | (_, 2 | 3) => "replay",
            (_, 5) => "launch_node",
            (_, 1) if text(line).contains("launch_by_config(") => "launch_by_config",
            (_, 1) if text(line).contains("launch_node(") => "launch_node",
            (_, 1) if text(line).contains("launch_any_node(") => "launch_any_node",
            _ => "launch",
        };
        *wanted.entry(function).or_default() += 1;
    }
    assert_eq!(wanted.len(), 5, "{wanted:?}");
    let mut top = Top::start(
        target.target.pid(),
        &["--by", "code", "--interval", "250ms", "--kernel-trace"],
    )?;
    top.until("the first look", |_| true)?;
    let rounds = 3;
    for _ in 0..rounds {
        round(&mut target)?;
    }
    top.until("all launches", |document| {
        let lines = counts_by_function(document);
        wanted.len() == lines.len()
            && wanted
                .iter()
                .all(|(function, count)| lines.get(function) == Some(&(rounds * count)))
    })?;
    top.end()?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn kernels_of_cuda_graphs_belong_to_the_lines_that_captured_them() -> Result<()> {
    let kit = cuda::Kit::new()?;
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(workspace().join("tests/python/cuda_graph_lines.py"))
        .arg(kit.stand_in.runtime(13));
    let mut target = kit.start_command(command, &[("CUPTI_MODEL", "version=130500")])?;
    target.expect("ready")?;
    let words = [
        "--kernel-trace",
        "--stacks",
        "python",
        "-f",
        "csv,folded,rocpd",
    ];
    for (rounds, more) in [(1, &[][..]), (5, &[]), (2, &["--keep", "60s"])] {
        let words = [&words[..], more].concat();
        let attacher = Attacher::midair(target.target.pid(), &words)?;
        target.send(&format!("work {rounds}"))?;
        target.expect("work")?;
        let traced = attacher.detach()?.code(0)?;
        let (wanted, counts) = wanted(&traced, [&[]; 2])?;
        // In a round: 3 graphs of 6 launches, one of 2, 2 of one, and a single one; 4 of the graph from before.
        let counted: Vec<(u64, u64)> = counts.into_iter().collect();
        assert_eq!(counted, [(1, 23 * rounds), (2, 4 * rounds)]);
        assert_eq!(found(&traced)?, wanted, "{rounds} {more:?}");
        let read = reader(&traced.file("results.db"), &[ELSEWHERE])?;
        let elsewhere = read["answers"][0].as_array().map(Vec::len);
        assert_eq!(elsewhere, Some(0), "{read}");
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
