//! Samples of the whole GPU during a session with a CUDA process (`--gpu-metrics`). A helper on
//! this side takes them, and needs nothing of the process. The helper is started before the process
//! is entered, so that whatever it refuses is refused before the entry. If it fails later, the
//! session goes on without it, and a note says so.
//!
//! Decisions: CUDA-030 to CUDA-033 (`docs/deviations/cuda.md`).

use crate::clock::Clock;
use crate::install::Install;
use crate::rights;
use midair_failure::{Failure, Kind};
use midair_live::Counter;
use midair_nvmetrics::{
    Event, FASTEST, HELPER, RATE, Request, SLOWEST, Sampler, Series, candidates, failure, sets,
};
use midair_output::{GpuMetric, GpuSamples, Keep};
use midair_procinfo::access;
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, show, task};
use midair_settings::{GPU_METRICS, GPU_METRICS_DEVICE, GPU_METRICS_RATE, Settings};
use std::time::Duration;

/// The most libraries of the process next to which a CUPTI is looked for.
const MOST_MAPPED: usize = 4096;

/// What a view shows of samples, how much more than its records is kept of them, and how often old
/// ones are forgotten, in ns.
const SHOWN: u64 = 2_000_000_000;
const SPARE: u64 = 60_000_000_000;
const EACH: u64 = 1_000_000_000;

/// A GPU that is being sampled.
#[derive(Debug)]
pub(crate) struct GpuMetrics {
    sampler: Option<Sampler>,
    samples: GpuSamples,
    series: Series,
    overflows: u64,
    /// When old samples were last forgotten, CLOCK_BOOTTIME ns.
    forgotten: u64,
    /// The clock of the process, to which times are converted.
    clock: Clock,
    notes: Vec<String>,
}

/// Whether the settings ask for samples of the GPU.
pub(crate) fn is_asked(settings: &Settings) -> bool {
    settings.text(GPU_METRICS).is_some()
}

/// Removes from the settings what only this side uses.
pub(crate) fn remove(settings: &mut Settings) {
    for name in [GPU_METRICS, GPU_METRICS_DEVICE, GPU_METRICS_RATE] {
        settings.remove(name);
    }
}

/// Returns the refusal where there is no NVIDIA GPU to sample.
pub(crate) fn not_here() -> Failure {
    Failure::new(Kind::Usage, "--gpu-metrics requires a CUDA process")
        .hint("use --pmc-device for AMD GPUs")
}

/// Starts sampling, if the settings ask for it.
///
/// # Errors
/// What cannot be sampled, and why.
pub(crate) fn start(
    pid: Pid,
    settings: &Settings,
    install: &Install,
) -> Result<Option<GpuMetrics>, Failure> {
    let Some(list) = settings.text(GPU_METRICS) else {
        return Ok(None);
    };
    let wrong = |what: String| Failure::new(Kind::Usage, what).hint("midair metrics --list");
    let metrics = sets::parse(list).map_err(|sets::Unknown(word)| {
        wrong(format!("'{word}' is neither a set nor a metric of GPUs"))
    })?;
    let number = |name: &str, otherwise: u32| match settings.text(name) {
        None => Ok(otherwise),
        Some(text) => text
            .parse::<u32>()
            .map_err(|_| wrong(format!("{name} is not a number: {text}"))),
    };
    let rate = number(GPU_METRICS_RATE, RATE)?;
    if !(SLOWEST..=FASTEST).contains(&rate) {
        return Err(wrong(format!(
            "{GPU_METRICS_RATE} must be from {SLOWEST} to {FASTEST}, not {rate}"
        )));
    }
    let request = Request {
        program: install.helper(HELPER)?,
        libraries: candidates(None, &mapped(pid), rights::is_privileged()),
        gpu: number(GPU_METRICS_DEVICE, 0)?,
        rate,
        metrics,
        list: false,
    };
    let sampler = Sampler::start(&request).map_err(|error| failure(&error))?;
    let named: Vec<GpuMetric> = sampler.metrics.iter().map(described).collect();
    if named.is_empty() {
        return Err(Failure::new(
            Kind::NoCounters,
            "cannot sample anything of --gpu-metrics on this GPU",
        )
        .hint("midair metrics --list"));
    }
    let mut samples = GpuSamples::new(request.gpu, rate, named);
    samples.name = sampler.fact("name").to_owned();
    samples.bus = sampler.fact("bus").to_owned();
    let notes = sampler
        .without
        .iter()
        .map(|(name, why)| format!("cannot sample {name} of the GPU: {why}"));
    Ok(Some(GpuMetrics {
        notes: notes.collect(),
        series: Series::new(sampler.metrics.clone(), 1_000_000_000 / u64::from(rate)),
        sampler: Some(sampler),
        samples,
        overflows: 0,
        forgotten: 0,
        clock: Clock::default(),
    }))
}

fn described(metric: &midair_nvmetrics::Metric) -> GpuMetric {
    GpuMetric {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        expression: metric.expression.clone(),
        group: metric.group,
    }
}

/// Returns libraries of the process next to which there may be a CUPTI. A CUPTI found there is loaded
/// with our rights, so this is done only for a process of our own user that is confined no more than
/// we are: in a sandbox it could leave a library for us that does what it itself may not.
fn mapped(pid: Pid) -> Vec<String> {
    let (Ok(us), Ok(status)) = (task::status(Pid::own()), task::status(pid)) else {
        return Vec::new();
    };
    let is_ours = status.uid.iter().all(|uid| *uid == us.uid[1]);
    let sees_the_same = access::look(pid).is_ok_and(|access| access.same_mounts);
    if !is_ours || !sees_the_same || status.is_more_confined_than(&us) {
        return Vec::new();
    }
    let Ok(modules) = Modules::of(pid) else {
        return Vec::new();
    };
    let live = modules.list.iter().filter(|module| !module.deleted);
    live.take(MOST_MAPPED)
        .map(|module| show(&module.path))
        .collect()
}

impl GpuMetrics {
    /// Gives samples the times of this clock.
    pub(crate) fn with_clock(self, clock: Clock) -> GpuMetrics {
        GpuMetrics { clock, ..self }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Samples(samples) => {
                self.series.add(&samples);
                let times = samples.times.iter();
                let times = times.map(|(from, to)| (self.clock.at(*from), self.clock.at(*to)));
                let times: Vec<_> = times.collect();
                self.samples.push(samples.group, &times, &samples.values);
            }
            Event::Overflow => self.overflows += 1,
            _ => {}
        }
    }

    /// Takes the events that have arrived. Does not wait.
    pub(crate) fn poll(&mut self) {
        while let Some(sampler) = &mut self.sampler {
            match sampler.next(Duration::ZERO) {
                Ok(Some(event)) => self.take(event),
                Ok(None) => return,
                Err(error) => {
                    self.notes
                        .push(format!("sampling of the GPU ended early: {error}"));
                    self.sampler = None;
                }
            }
        }
    }

    /// Returns the means of the last two seconds, for a view. Where only the latest records are
    /// kept, samples that are much older are forgotten.
    pub(crate) fn recent(&mut self, keep: Keep, now: u64) -> Vec<Counter> {
        if let Keep::Latest { time, .. } = keep
            && now.saturating_sub(self.forgotten) >= EACH
        {
            self.forgotten = now;
            let kept = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let horizon = now.saturating_sub(kept.saturating_add(SPARE));
            self.samples.keep(horizon, u64::MAX);
        }
        let means = self.samples.means_since(now.saturating_sub(SHOWN));
        let named = self.samples.metrics.iter().zip(means);
        named
            .filter_map(|(metric, (mean, readings))| {
                Some(Counter {
                    gpu: self.samples.index,
                    name: metric.name.clone(),
                    unit: metric.unit.clone(),
                    mean: mean?,
                    readings,
                })
            })
            .collect()
    }

    /// Ends the sampling. Returns the samples between the two times of the recording, and notes
    /// about them.
    pub(crate) fn finish(mut self, from: u64, to: u64) -> (GpuSamples, Vec<String>) {
        self.poll();
        if let Some(sampler) = self.sampler.take() {
            let mut last = Vec::new();
            if let Err(error) = sampler.finish(|event| last.push(event)) {
                self.notes
                    .push(format!("sampling of the GPU ended early: {error}"));
            }
            last.into_iter().for_each(|event| self.take(event));
        }
        self.samples.lost = self.series.lost;
        self.samples.keep(from, to);
        if self.series.lost > 0 || self.overflows > 0 {
            self.notes.push(format!(
                "{} samples of the GPU are missing, and its buffer was full {} times: use a lower --gpu-metrics-rate",
                self.series.lost, self.overflows
            ));
        }
        if self.samples.groups() > 1 {
            self.notes.push(format!(
                "{} groups of the GPU's metrics were multiplexed: each was sampled only part of the time",
                self.samples.groups()
            ));
        }
        if self.samples.left_out > 0 {
            self.notes.push(format!(
                "{} samples of the GPU were too many to be kept",
                self.samples.left_out
            ));
        }
        (self.samples, self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::mapped;
    use midair_procinfo::Pid;
    use std::process::{Child, Command, Stdio};

    /// Starts `sleep` by these words and waits until it is that program.
    fn asleep(words: &[&str]) -> (Child, Pid) {
        let mut command = Command::new(words[0]);
        let child = command.args(&words[1..]).stdin(Stdio::null()).spawn();
        let child = child.unwrap();
        let pid = Pid::new(child.id()).unwrap();
        let is_asleep = || {
            let comm = midair_procinfo::task::comm(pid).unwrap_or_default();
            comm.trim_ascii() == b"sleep" && !mapped_names(pid).is_empty()
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_asleep() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        (child, pid)
    }

    fn mapped_names(pid: Pid) -> Vec<String> {
        let modules = midair_procinfo::module::Modules::of(pid).map(|all| all.list);
        let names = modules.unwrap_or_default().into_iter();
        names
            .map(|module| midair_procinfo::show(&module.path))
            .filter(|name| name.contains("libc"))
            .collect()
    }

    /// The libraries of any process of the same user led to a CUPTI that was loaded with the rights
    /// of the attacher.
    #[test]
    fn a_sandboxed_process_leads_to_no_library() {
        let (mut free, pid) = asleep(&["sleep", "60"]);
        assert!(mapped(pid).iter().any(|name| name.contains("libc")));
        free.kill().unwrap();
        free.wait().unwrap();
        let (mut confined, pid) = asleep(&["setpriv", "--no-new-privs", "sleep", "60"]);
        assert_eq!(mapped(pid), [""; 0]);
        confined.kill().unwrap();
        confined.wait().unwrap();
    }
}
