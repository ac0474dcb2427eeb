//! Templates of counters' packets, made by our helper with AMD's own library, and used on the
//! model: what they write into memory is read by AMD's library, too, and both say the same.

use crate::model_counters::Program;
use midair_counters::template::Template;
use midair_counters::wire::{Answer, Gpu, Listener, Question, RawEvent};
use midair_counters::{Architecture, Dimension, Position, group};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::target::{PATIENCE, until};
use midair_tests::{Result, stage};
use std::collections::BTreeMap;

const LIBRARY: &str = "libhsa-amd-aqlprofile64.so.1";

/// Our helper, in the lab.
struct Helper {
    process: LabTarget,
    heard: usize,
}

impl Helper {
    fn start(lab: &Lab) -> Result<Helper> {
        let program = stage::stage()?.join("lib/rocprofiler-sdk/midair-aqlprofile");
        let process = lab.run(&lab.install(&program)?).arg(LIBRARY).spawn()?;
        Ok(Helper { process, heard: 0 })
    }

    /// An end of the helper without an answer is an error.
    fn ask(&mut self, question: &Question) -> Result<Answer> {
        for line in question.to_string().lines() {
            self.process.send(line)?;
        }
        let mut answer = None;
        let mut listener = Listener::default();
        until("an answer of the helper", || {
            let lines = self.process.lines();
            for line in &lines[self.heard..] {
                answer = listener.take(line)?;
            }
            self.heard = lines.len();
            if answer.is_none() && !self.process.is_running()? {
                return Err("the helper has ended".into());
            }
            Ok(answer.is_some())
        })?;
        Ok(answer.ok_or("no answer")?)
    }

    fn end(self) -> Result<()> {
        self.process.target.wait(PATIENCE)?.success()?;
        Ok(())
    }
}

/// Asks a fresh helper.
fn ask(lab: &Lab, question: &Question) -> Result<Answer> {
    let mut helper = Helper::start(lab)?;
    let answer = helper.ask(question)?;
    helper.end()?;
    Ok(answer)
}

fn made(answer: Answer) -> Result<Template> {
    match answer {
        Answer::Made(template) => Ok(template),
        other => Err(format!("{other:?}").into()),
    }
}

/// `MODEL_GPU`'s words as a description.
fn gpu(name: &str, words: &str) -> Result<Gpu> {
    let numbers: Vec<u32> = words
        .split(',')
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let [xccs, engines, units, arrays] = numbers[..] else {
        return Err(format!("{words}: not four numbers").into());
    };
    Ok(Gpu {
        name: name.into(),
        xccs,
        engines,
        units,
        arrays,
        ..Gpu::default()
    })
}

/// The question for a group of counters, by their names.
fn question(gpu: Gpu, counters: &[&str]) -> Result<Question> {
    let architecture = Architecture::find(&gpu.name).ok_or("not known")?;
    Ok(question_of(gpu, &group::one(architecture, counters)?))
}

fn question_of(gpu: Gpu, group: &group::Group) -> Question {
    let raw = |event: &midair_counters::Event| RawEvent {
        block: event.block.into(),
        event: event.event,
        flags: event.accumulate as u32,
    };
    Question {
        gpu,
        events: group.events.iter().map(raw).collect(),
    }
}

/// A place as AMD's library prints it.
fn position(place: &BTreeMap<String, u64>) -> Position {
    let dimension = |name: &str| match name {
        "XCD" => Some(Dimension::Xcc),
        "SE" => Some(Dimension::ShaderEngine),
        "SA" => Some(Dimension::ShaderArray),
        "WGP" => Some(Dimension::Wgp),
        "INSTANCE" => Some(Dimension::Instance),
        _ => None,
    };
    place
        .iter()
        .fold(Position::default(), |position, (name, at)| {
            dimension(name).map_or(position, |dimension| position.with(dimension, *at as u32))
        })
}

#[test]
fn a_patched_template_reads_what_amds_library_reads() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Among them an event that is accumulated, with a value in the memory that belongs to no event.
    let counters = [
        "SQ_WAVES",
        "SQ_INSTS_VALU",
        "MeanOccupancyPerCU",
        "TCC_HIT",
        "TCC_MISS",
        "TCP_TOTAL_ACCESSES",
        "SPI_CSN_WAVE",
        "TA_BUSY_avr",
    ];
    for words in ["1,8,104,1", "8,32,304,1"] {
        let question = question(gpu("gfx942", words)?, &counters)?;
        let template = made(ask(&lab, &question)?)?;
        let names: Vec<String> = question
            .events
            .iter()
            .map(|e| format!("{}:{}:{}", e.block, e.event, e.flags))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut program = Program::start(&lab, words, &names)?;
        program.0.send("output")?;
        let line = program.0.expect("output 0x")?;
        let (address, bytes) = line["output 0x".len()..].split_once(' ').ok_or("no size")?;
        assert_eq!(template.output_bytes, bytes.parse::<u64>()?);
        let mut read = template.read_stop.clone();
        template.patch(&mut read, u64::from_str_radix(address, 16)?);
        for (name, words) in [("start", &template.start), ("read", &read)] {
            let file = lab.scratch().join(name);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(&file, bytes)?;
            program.act(&format!("use {name} {}", lab.inside(&file)?))?;
        }
        for grid in [64 * 1001, 640_u32] {
            program.act("start 0")?;
            program.act(&format!("go 0 {grid} 64"))?;
            // It stops the counters as well.
            program.act("read 0")?;
            let dump = lab.scratch().join("dump");
            program.act(&format!("dump {}", lab.inside(&dump)?))?;
            let memory: Vec<u64> = std::fs::read(&dump)?
                .chunks_exact(8)
                .map(|word| Ok(u64::from_le_bytes(word.try_into()?)))
                .collect::<Result<_>>()?;
            let mut ours: Vec<(u32, Position, u64)> = template.values(&memory).collect();
            let mut amds: Vec<(u32, Position, u64)> = program
                .values()?
                .iter()
                .map(|v| (v.argument as u32, position(&v.place), v.value))
                .collect();
            ours.sort_unstable();
            amds.sort_unstable();
            assert_eq!(ours, amds);
            let waves = question
                .events
                .iter()
                .position(|e| (e.block.as_str(), e.event) == ("SQ", 4));
            let waves = waves.ok_or("SQ_WAVES was asked for")? as u32;
            let sum: u64 = ours.iter().filter(|v| v.0 == waves).map(|v| v.2).sum();
            assert_eq!(sum, u64::from(grid.div_ceil(64)));
        }
        let log = program.end()?;
        assert!(log.records.iter().any(|r| r.queue != 0));
    }
    Ok(())
}

#[test]
fn templates_are_made_for_every_gpu_whose_counters_are_known() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (name, words) in [
        ("gfx908", "1,8,120,1"),
        ("gfx90a", "1,8,104,1"),
        ("gfx942", "8,32,304,1"),
        ("gfx950", "8,32,256,1"),
        ("gfx1100", "1,6,96,2"),
    ] {
        let question = question(
            gpu(name, words)?,
            &["SQ_WAVES", "GRBM_COUNT", "GRBM_GUI_ACTIVE"],
        )?;
        let template = made(ask(&lab, &question)?).map_err(|error| format!("{name}: {error}"))?;
        assert!(
            !template.places.is_empty() && !template.slots.is_empty(),
            "{name}"
        );
        for event in 0..question.events.len() as u32 {
            let places: Vec<Position> = template
                .slots
                .iter()
                .filter(|s| s.event == event)
                .map(|s| s.position)
                .collect();
            assert!(!places.is_empty(), "{name}: event {event} is read nowhere");
            let mut apart = places.clone();
            apart.sort_unstable();
            apart.dedup();
            assert_eq!(apart.len(), places.len(), "{name}: two values at one place");
        }
    }
    Ok(())
}

#[test]
fn what_amds_library_refuses_is_an_answer() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let event = |block: &str, event| RawEvent {
        block: block.into(),
        event,
        flags: 0,
    };
    // More than the block counts at once.
    let many = Question {
        gpu: gpu("gfx942", "1,8,104,1")?,
        events: (1..=3).map(|number| event("GRBM", number)).collect(),
    };
    let refused = ask(&lab, &many)?;
    assert!(
        matches!(refused, Answer::Refused { code: 0x1000, .. }),
        "{refused:?}"
    );
    let block = Question {
        events: vec![event("NOSUCHBLOCK", 1)],
        ..many.clone()
    };
    let refused = ask(&lab, &block)?;
    assert!(
        matches!(&refused, Answer::Refused { what, .. } if what == "find the block NOSUCHBLOCK"),
        "{refused:?}"
    );
    Ok(())
}

#[test]
fn every_group_that_we_say_fits_is_one_for_amds_library() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut helper = Helper::start(&lab)?;
    for (name, words) in [("gfx90a", "1,8,104,1"), ("gfx942", "1,8,104,1")] {
        let architecture = Architecture::find(name).ok_or("not known")?;
        let names: Vec<&str> = architecture
            .counters
            .iter()
            .filter(|counter| {
                let wanted = architecture.wanted(counter.name);
                wanted.is_ok_and(|wanted| group::fits(architecture, &wanted.events).is_ok())
            })
            .map(|counter| counter.name)
            .collect();
        let groups = group::first_fit(architecture, &names, &["GRBM_COUNT"])?;
        let mut read = 0;
        for group in groups.iter().filter(|group| !group.events.is_empty()) {
            let template = made(helper.ask(&question_of(gpu(name, words)?, group))?)
                .map_err(|error| format!("{name}: {:?}: {error}", group.events))?;
            for event in 0..group.events.len() as u32 {
                assert!(
                    template.slots.iter().any(|slot| slot.event == event),
                    "{name}: {:?} is read nowhere",
                    group.events[event as usize]
                );
            }
            read += template.slots.len();
        }
        assert!(
            groups.len() > 10 && read > 1000,
            "{name}: {} groups, {read} values",
            groups.len()
        );
    }
    helper.end()
}
