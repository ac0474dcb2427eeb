//! Samples of program counters. The ground truth is the model's log: the model writes the samples into
//! the buffers that AMD's runtime allocates, as the trap handler of a GPU does.

use midair_tests::Result;
use midair_tests::lab::Lab;
use midair_tests::modellog::ModelLog;
use midair_tests::target::PATIENCE;
use std::collections::BTreeMap;

/// Where the model takes samples of the kernels with a grid of 64, and how often of ten times.
const WEIGHTS: &str = "64:0*1+8*3+16*6";

/// Returns the number behind the words of one line.
fn number(lines: &[String], words: &str) -> Result<u64> {
    let line = lines.iter().find_map(|line| line.strip_prefix(words));
    Ok(line.ok_or_else(|| format!("no {words}"))?.trim().parse()?)
}

/// AMD's own functions give a program what the model logged, in each of several sessions.
fn amd_reads(method: u32, interval: u32) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = lab
        .run(&lab.program("pc_samples")?)
        .arg(lab.kernels()?)
        .arg(method)
        .arg(interval)
        .arg(20)
        .arg(5)
        .env("MODEL_SAMPLING", 1)
        .env("MODEL_SAMPLES", WEIGHTS)
        .env("MODEL_INVALID_SAMPLES", 20)
        .spawn()?;
    let path = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&path)?;
    let (mut written, mut invalid, mut lost) = (BTreeMap::new(), 0, 0);
    for (_, taken) in log.samples() {
        for (offset, count) in &taken.offsets {
            *written.entry(*offset).or_insert(0) += count;
        }
        invalid += taken.invalid;
        lost += taken.lost;
    }
    let read = written
        .keys()
        .map(|offset| {
            Ok((
                *offset,
                number(&exit.stdout, &format!("offset {offset} samples "))?,
            ))
        })
        .collect::<Result<BTreeMap<u64, u64>>>()?;
    assert_eq!(read, written);
    assert_eq!(number(&exit.stdout, "invalid ")?, invalid);
    assert_eq!(number(&exit.stdout, "foreign ")?, 0);
    assert_eq!(number(&exit.stdout, "times ")?, 0);
    // AMD's runtime reports no more than were lost: each of its flushes forgets the number before.
    assert!(number(&exit.stdout, "lost ")? <= lost);
    assert_eq!(invalid > 0, method == 1);
    // The weights, within five standard deviations.
    let total = written.values().sum::<u64>() as f64;
    for (offset, share) in [(0, 0.1), (8, 0.3), (16, 0.6)] {
        let seen = written[&offset] as f64 / total;
        let deviation = (share * (1.0 - share) / total).sqrt();
        assert!((seen - share).abs() < 5.0 * deviation, "{offset}: {seen}");
    }
    Ok(())
}

#[test]
fn amds_runtime_reads_the_models_host_trap_samples() -> Result<()> {
    amd_reads(0, 1)
}

#[test]
fn amds_runtime_reads_the_models_stochastic_samples() -> Result<()> {
    amd_reads(1, 4096)
}
