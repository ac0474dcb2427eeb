//! The model's counters, read by AMD's own packet library. That library makes the commands and
//! reads the memory, with nothing of midair's in between. The expected values follow from the model's
//! rules (`sim/gpu-model/src/pmu/rules.rs`), computed here a second time.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::target::PATIENCE;
use std::collections::BTreeMap;

/// A value that AMD's library read: the index of the event among the program's arguments, the place
/// where it was counted, and the count.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) argument: usize,
    pub(crate) place: BTreeMap<String, u64>,
    pub(crate) value: u64,
}

impl Value {
    pub(crate) fn at(&self, dimension: &str) -> u64 {
        self.place.get(dimension).copied().unwrap_or(0)
    }
}

/// The running program `tests/c/counters.c` in the lab.
pub(crate) struct Program(pub(crate) LabTarget);

impl Program {
    /// Starts the program. `gpu` has the form of `MODEL_GPU`, and is given both to the model and to
    /// the library.
    pub(crate) fn start(lab: &Lab, gpu: &str, events: &[&str]) -> Result<Program> {
        Program::start_as(lab, "gfx942", gpu, events)
    }

    /// Does the same with a GPU of another name for the library.
    fn start_as(lab: &Lab, name: &str, gpu: &str, events: &[&str]) -> Result<Program> {
        let mut command = lab
            .run(&lab.program("counters")?)
            .arg(lab.kernels()?)
            .arg(name)
            .gpu(gpu)
            .log_name(gpu);
        for word in gpu.split(',').take(4).chain(events.iter().copied()) {
            command = command.arg(word);
        }
        let mut target = command.spawn()?;
        target.expect("ready")?;
        Ok(Program(target))
    }

    pub(crate) fn act(&mut self, command: &str) -> Result<()> {
        self.0.send(command)?;
        self.0.expect(&format!("did {command}"))?;
        Ok(())
    }

    /// Runs one kernel in a window on queue 0, and returns what was read.
    fn window(&mut self, grid: u32, workgroup: u32) -> Result<Vec<Value>> {
        self.act("start 0")?;
        self.act(&format!("go 0 {grid} {workgroup}"))?;
        self.act("read 0")?;
        self.act("stop 0")?;
        self.values()
    }

    pub(crate) fn values(&mut self) -> Result<Vec<Value>> {
        let before = self.0.lines().len();
        self.act("values")?;
        let lines = self.0.lines();
        let lines = lines[before..]
            .iter()
            .filter(|line| line.starts_with("value "));
        lines.map(|line| read(line)).collect()
    }

    pub(crate) fn end(mut self) -> Result<ModelLog> {
        self.act_last()?;
        let log = self.0.log.clone();
        self.0.target.wait(PATIENCE)?.success()?;
        let log = ModelLog::read(&log)?;
        log.check()?;
        for record in &log.records {
            if let Event::Pm4(pm4) = &record.event {
                assert_eq!(
                    pm4.unknown, 0,
                    "all that AMD's library says is understood: {pm4:?}"
                );
            }
        }
        Ok(log)
    }

    fn act_last(&mut self) -> Result<()> {
        self.0.send("quit")?;
        self.0.expect("done")?;
        Ok(())
    }
}

/// Parses a line such as `value 0 INSTANCE=0 SE=3 17`.
fn read(line: &str) -> Result<Value> {
    let mut words: Vec<&str> = line.split(' ').skip(1).collect();
    let value = words.pop().ok_or("no value")?.parse()?;
    let argument = words.first().ok_or("no argument")?.parse()?;
    let place = words[1..].iter().map(|word| {
        let (name, number) = word
            .split_once('=')
            .ok_or_else(|| format!("{word}: no place"))?;
        Ok((name.to_owned(), number.parse()?))
    });
    Ok(Value {
        argument,
        place: place.collect::<Result<_>>()?,
        value,
    })
}

/// Returns how many of `all` things go to the place number `at` when they are dealt one by one to
/// `among` places.
fn dealt(all: u64, among: u64, at: u64) -> u64 {
    all / among + u64::from(at < all % among)
}

fn sum(values: &[Value], argument: usize) -> u64 {
    values
        .iter()
        .filter(|v| v.argument == argument)
        .map(|v| v.value)
        .sum()
}

#[test]
fn amds_library_reads_what_the_rules_say() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // SQ_WAVES, SQ_INSTS_VALU, an accumulated SQ_LEVEL_WAVES, GRBM_GUI_ACTIVE, a TCP and a TCC
    // event, SPI_CSN_NUM_THREADGROUPS, a CPC event, GRBM_COUNT.
    let events = [
        "SQ:4", "SQ:26", "SQ:5:2", "GRBM:2", "TCP:1", "TCC:1", "SPI:49", "CPC:25", "GRBM:0",
    ];
    let mut program = Program::start(&lab, "1,8,104,1", &events)?;
    for (grid, workgroup) in [
        (2000, 100),
        (64, 64),
        (65_536, 256),
        (1, 1024),
        (1_000_003, 192),
    ] {
        let values = program.window(grid, workgroup)?;
        let groups = u64::from(grid.div_ceil(workgroup));
        let waves = u64::from(workgroup.div_ceil(64));
        let all = groups * waves;
        for value in &values {
            let engine = dealt(groups, 8, value.at("SE"));
            let unit = if value.at("INSTANCE") < 13 {
                dealt(engine, 13, value.at("INSTANCE"))
            } else {
                0
            };
            let expected = match value.argument {
                0 => engine * waves,
                1 => 6 * engine * waves,
                2 => 16 * 6 * engine * waves,
                4 => 2 * unit * waves,
                5 => dealt(2 * all, 16, value.at("INSTANCE")),
                6 => engine,
                7 => 5,
                _ => continue,
            };
            assert_eq!(value.value, expected, "grid {grid}: {value:?}");
        }
        let count = |argument| values.iter().filter(|v| v.argument == argument).count();
        assert_eq!(
            [0, 1, 2, 3, 5, 6, 7, 8].map(count),
            [8, 8, 8, 1, 16, 8, 1, 1]
        );
        let sums = [0, 1, 4, 5, 6].map(|argument| sum(&values, argument));
        assert_eq!(sums, [all, 6 * all, 2 * all, 2 * all, groups]);
        // The cycles of the kernel as the log has it, and the cycles of the window around it.
        let log = program.0.model_log()?;
        let kernel = log
            .dispatches()
            .last()
            .ok_or("no kernel in the log")?
            .packet;
        assert_eq!(sum(&values, 3), (kernel.end - kernel.start) * 21 / 10);
        assert!(sum(&values, 8) > sum(&values, 3));
    }
    let log = program.end()?;
    let read: Vec<_> = log
        .records
        .iter()
        .filter_map(|record| match record.event {
            Event::Register(register) if !register.write => Some(register),
            _ => None,
        })
        .collect();
    let reads: u32 = log
        .records
        .iter()
        .filter_map(|record| {
            if let Event::Pm4(pm4) = &record.event {
                Some(pm4.reads)
            } else {
                None
            }
        })
        .sum();
    assert_eq!(read.len() as u32, reads, "every read is in the log");
    assert!(read.iter().all(|register| register.at != 0));
    Ok(())
}

/// On GPUs with WGPs, AMD's library reads SQ's counters of each WGP of each array.
#[test]
fn each_wgp_is_read_by_itself() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Six engines of two arrays with eight units each: four WGPs. SQ_WAVES, another event of SQ, TCP
    // by unit, SPI by engine.
    let events = ["SQ:4", "SQ:26", "TCP:1", "SPI:52", "GRBM:0"];
    let mut program = Program::start_as(&lab, "gfx1100", "1,6,96,2,gfx11", &events)?;
    let mut windows = Vec::new();
    for (grid, workgroup) in [(64 * 1001, 64), (256 * 5, 256), (192 * 100_000, 192)] {
        let values = program.window(grid, workgroup)?;
        let (groups, waves) = (u64::from(grid / workgroup), u64::from(workgroup / 64));
        let on_wgp = |engine: u64, array: u64, wgp: u64| {
            let unit = |at: u64| dealt(dealt(groups, 6, engine), 16, 2 * at + array);
            waves * (unit(2 * wgp) + unit(2 * wgp + 1))
        };
        let all = groups * waves;
        for value in &values {
            // The library reads engines, their arrays and these arrays' WGPs, in this order. What it
            // calls a value's place (7.2.4) counts the values in another order. So the name tells
            // which value it is, and its number in the memory where it was counted.
            let number = value.at("SA") + 2 * value.at("SE") + 12 * value.at("WGP");
            let wgp = on_wgp(number / 8, number / 4 % 2, number % 4);
            let expected = match value.argument {
                0 => wgp,
                1 => 6 * wgp,
                3 => waves * dealt(groups, 6, value.at("SE")),
                _ => continue,
            };
            assert_eq!(value.value, expected, "grid {grid}: {value:?}");
        }
        let count = |argument| values.iter().filter(|v| v.argument == argument).count();
        assert_eq!([0, 1, 3].map(count), [48, 48, 6]);
        let sums = [0, 1, 2, 3].map(|argument| sum(&values, argument));
        assert_eq!(sums, [all, 6 * all, 2 * all, all], "grid {grid}");
        assert!(sum(&values, 4) > 0);
        for (engine, array, wgp) in (0..48).map(|n| (n / 8, n / 4 % 2, n % 4)) {
            windows.push((
                engine << 16 | array << 8 | wgp << 2,
                on_wgp(engine, array, wgp),
            ));
        }
    }
    // The registers themselves, by the address that the library gave.
    let log = program.end()?;
    let events = log.records.iter().map(|record| &record.event);
    let read: Vec<(u64, u64)> = events
        .filter_map(|event| match event {
            Event::Register(register) if !register.write && register.register == 0xd1c0 => {
                Some((u64::from(register.unit), u64::from(register.value)))
            }
            _ => None,
        })
        .collect();
    assert_eq!(read, windows);
    Ok(())
}

#[test]
fn each_of_eight_xccs_is_read_by_itself() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let events = ["SQ:4", "GRBM:2", "TCC:1", "TCP:1"];
    let mut program = Program::start(&lab, "8,32,304,1", &events)?;
    for (grid, workgroup) in [(64 * 1001, 64), (256 * 5, 256), (64 * 100_000, 64)] {
        let values = program.window(grid, workgroup)?;
        let (groups, waves) = (u64::from(grid / workgroup), u64::from(workgroup / 64));
        for value in &values {
            let xcc = dealt(groups, 8, value.at("XCD"));
            let engine = dealt(xcc, 4, value.at("SE"));
            let expected = match value.argument {
                0 => engine * waves,
                2 => dealt(2 * xcc * waves, 16, value.at("INSTANCE")),
                _ => continue,
            };
            assert_eq!(value.value, expected, "grid {grid}: {value:?}");
        }
        let count = |argument| values.iter().filter(|v| v.argument == argument).count();
        assert_eq!([0, 1, 2].map(count), [32, 8, 128]);
        let all = groups * waves;
        assert_eq!(
            [0, 2, 3].map(|argument| sum(&values, argument)),
            [all, 2 * all, 2 * all]
        );
    }
    program.end()?;
    Ok(())
}

#[test]
fn another_queues_start_destroys_a_window() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Program::start(&lab, "1,8,104,1", &["SQ:4", "CPC:25"])?;
    // A kernel of a queue that was never enabled is counted by the CPC alone.
    program.act("start 0")?;
    program.act("go 1 640 64")?;
    program.act("read 0")?;
    let values = program.values()?;
    assert_eq!((sum(&values, 0), sum(&values, 1)), (0, 5));
    program.act("go 0 640 64")?;
    program.act("start 1")?;
    program.act("read 0")?;
    let values = program.values()?;
    assert_eq!(
        (sum(&values, 0), sum(&values, 1)),
        (0, 0),
        "what was counted is gone"
    );
    program.act("go 1 640 64")?;
    program.act("read 1")?;
    assert_eq!(sum(&program.values()?, 0), 10);
    program.act("stop 1")?;
    // After the stop, further work is not counted, and the values stay.
    program.act("go 1 640 64")?;
    program.act("read 1")?;
    assert_eq!(sum(&program.values()?, 0), 10);
    let log = program.end()?;
    let over: Vec<u32> = log
        .records
        .iter()
        .filter_map(|record| {
            if let Event::Pm4(pm4) = &record.event {
                pm4.over
            } else {
                None
            }
        })
        .collect();
    assert_eq!(over.len(), 1, "one start destroyed a window: {over:?}");
    Ok(())
}
