//! The command `midair metrics`: counters of a whole NVIDIA GPU over time. It attaches to no
//! process.

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_nvmetrics::{
    Event, FASTEST, HELPER, RATE, Request, SLOWEST, Sampler, Samples, Series, candidates, failure,
    sets,
};
use midair_output::files::OneFile;
use midair_session::Install;
use midair_settings::duration_word;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::doctor::json_argument;
use crate::report::Report;
use crate::wait::Signals;

/// The version of the json's schema. It is raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;
/// How long samples are taken where the user says nothing.
const DURATION: Duration = Duration::from_secs(2);
/// The time between two looks for signals and the end.
const LOOK: Duration = Duration::from_millis(50);

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("metrics")
                .about("Sample the counters of a whole NVIDIA GPU, for all processes that use it")
        .long_about(
            "Sample the counters of a whole NVIDIA GPU, for all processes that use it: how busy its multiprocessors, pipes, \
             caches, memory and links are. midair attaches to no process. Requires CUPTI of CUDA 12.6 or later, from a toolkit \
             or Python packages, and the driver's permission to read counters (RmProfilingAdminOnly).",
        )
        .arg(
            Arg::new("gpu")
                .long("gpu")
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .default_value("0")
                .help("Sample this GPU, by its nvidia-smi index"),
        )
        .arg(
            Arg::new("duration")
                .long("duration")
                .value_name("TIME")
                .value_parser(|word: &str| duration_word(word).ok_or("a time such as 2s, 500ms, 1m"))
                .help("Sample for this long: 2s, 500ms, 1m (default 2s)"),
        )
        .arg(
            Arg::new("set")
                .long("set")
                .value_name("LIST")
                .default_value("default")
                .help("Sample these sets, metrics, or full CUPTI metric names, separated by commas; --list shows them"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("HZ")
                .value_parser(clap::value_parser!(u32).range(i64::from(SLOWEST)..=i64::from(FASTEST)))
                .help("Sample at this rate, in Hz, 1000 to 20000 (default 5000)"),
        )
        .arg(Arg::new("samples").long("samples").value_name("FILE").help("Write each sample to this csv file"))
        .arg(Arg::new("cupti").long("cupti").value_name("PATH").help("Use this CUPTI library (libcupti.so.N); absolute path"))
        .arg(Arg::new("list").long("list").action(ArgAction::SetTrue).help("List sets and metrics, and the metrics of this \
        machine's GPU, if any"))
        .arg(Arg::new("csv").long("csv").action(ArgAction::SetTrue).conflicts_with("json").help("Print csv"))
        .arg(json_argument())
}

pub(crate) fn run(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let signals = Signals::block()?;
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let metrics = asked(text("set").unwrap_or_default())?;
    let list = matches.get_flag("list");
    // Kept until the helper is started, since its path may be a midair descriptor.
    let install = Install::find()?;
    let request = Request {
        program: install.helper(HELPER)?,
        libraries: libraries(text("cupti"))?,
        gpu: matches.get_one::<u32>("gpu").copied().unwrap_or_default(),
        rate: matches.get_one::<u32>("rate").copied().unwrap_or(RATE),
        metrics,
        list,
    };
    if list {
        return Ok(print_list(&request, matches.get_flag("json"), report));
    }
    let mut file = text("samples").map(create).transpose()?;
    let duration = matches
        .get_one::<Duration>("duration")
        .copied()
        .unwrap_or(DURATION);
    let taken = sample(&request, duration, &signals, file.as_mut())?;
    if let Some(file) = file {
        let done = file.finish();
        done.map_err(|error| Failure::new(Kind::Output, error.to_string()))?;
    }
    taken.print(matches, report);
    Ok(if taken.is_whole() {
        0
    } else {
        Kind::Incomplete.exit_code()
    })
}

fn asked(list: &str) -> Result<Vec<sets::MetricRequest>, Failure> {
    sets::parse(list).map_err(|sets::Unknown(word)| {
        Failure::new(
            Kind::Usage,
            format!("'{word}' is neither a set nor a metric"),
        )
        .hint("midair metrics --list")
    })
}

/// Returns the files that may be a CUPTI. If this program has more rights than its user, the user
/// must not name one.
fn libraries(named: Option<&str>) -> Result<Vec<String>, Failure> {
    let secure = midair_secure::has_more_rights();
    match named {
        Some(_) if secure => Err(Failure::new(
            Kind::NotPermitted,
            "--cupti cannot be used while midair has more privileges than its user",
        )),
        Some(path) if !Path::new(path).is_absolute() => Err(Failure::new(
            Kind::Usage,
            "--cupti requires an absolute path",
        )
        .hint("--cupti \"$PWD\"/libcupti.so.13")),
        _ => Ok(candidates(named, &[], secure)),
    }
}

fn written(error: &std::io::Error) -> Failure {
    Failure::new(Kind::Output, format!("cannot write samples: {error}"))
}

fn create(path: &str) -> Result<OneFile, Failure> {
    OneFile::create(Path::new(path)).map_err(|error| Failure::new(Kind::Output, error.to_string()))
}

/// The samples that were taken.
struct Taken {
    gpu: u32,
    rate: u32,
    facts: Vec<(String, String)>,
    without: Vec<(String, String)>,
    series: Series,
    overflows: u64,
}

/// Writes one row for each sample: start, end, and the values of its group.
fn rows(file: &mut OneFile, series: &Series, samples: &Samples) -> std::io::Result<()> {
    let numbers: Vec<usize> = series.of_group(samples.group).collect();
    for ((start, end), values) in samples
        .times
        .iter()
        .zip(samples.values.chunks(numbers.len().max(1)))
    {
        write!(file, "{start},{end}")?;
        for number in 0..series.metrics.len() {
            match numbers
                .iter()
                .position(|it| *it == number)
                .and_then(|at| values.get(at))
            {
                Some(value) if value.is_finite() => write!(file, ",{value}")?,
                _ => write!(file, ",")?,
            }
        }
        writeln!(file)?;
    }
    Ok(())
}

fn sample(
    request: &Request,
    duration: Duration,
    signals: &Signals,
    mut file: Option<&mut OneFile>,
) -> Result<Taken, Failure> {
    let mut sampler = Sampler::start(request).map_err(|error| failure(&error))?;
    let mut taken = Taken {
        gpu: request.gpu,
        rate: request.rate,
        facts: sampler.facts.clone(),
        without: sampler.without.clone(),
        series: Series::new(
            sampler.metrics.clone(),
            1_000_000_000 / u64::from(request.rate),
        ),
        overflows: 0,
    };
    if taken.series.metrics.is_empty() {
        let (name, why) = taken.without.first().cloned().unwrap_or_default();
        return Err(Failure::new(
            Kind::NoCounters,
            format!("cannot sample any of it on this GPU: {name}: {why}"),
        )
        .hint("midair metrics --list"));
    }
    if let Some(file) = file.as_deref_mut() {
        let names: Vec<&str> = taken
            .series
            .metrics
            .iter()
            .map(|metric| metric.name.as_str())
            .collect();
        writeln!(file, "Start_Timestamp,End_Timestamp,{}", names.join(","))
            .map_err(|error| written(&error))?;
    }
    let mut broken = None;
    let mut take = |event: Event| match event {
        Event::Samples(samples) => {
            taken.series.add(&samples);
            if let Some(file) = file.as_deref_mut()
                && broken.is_none()
            {
                broken = rows(file, &taken.series, &samples).err();
            }
        }
        Event::Overflow => taken.overflows += 1,
        _ => {}
    };
    let until = Instant::now() + duration;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || signals.next().is_some() {
            break;
        }
        if let Some(event) = sampler
            .next(left.min(LOOK))
            .map_err(|error| failure(&error))?
        {
            take(event);
        }
    }
    let more = sampler.finish(take).map_err(|error| failure(&error))?;
    taken.facts.extend(more);
    match broken {
        Some(error) => Err(written(&error)),
        None => Ok(taken),
    }
}

/// Returns a number with at most two digits after the point, and fewer for large numbers.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        large if large >= 10.0 => format!("{value:.1}"),
        large if large >= 0.01 || large == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.2e}"),
    }
}

impl Taken {
    fn fact(&self, key: &str) -> &str {
        self.facts
            .iter()
            .find(|(it, _)| it == key)
            .map_or("", |(_, value)| value)
    }

    fn is_whole(&self) -> bool {
        self.series.lost == 0 && self.overflows == 0
    }

    fn seconds(&self) -> f64 {
        self.series
            .span
            .map_or(0.0, |(start, end)| end.saturating_sub(start) as f64 / 1e9)
    }

    /// Returns the percentage of the time that samples of a metric cover.
    fn share(&self, number: usize) -> f64 {
        let samples = self.series.lines.get(number).map_or(0, |line| line.samples);
        let all = self.seconds() * f64::from(self.rate);
        if all > 0.0 {
            (100.0 * samples as f64 / all).min(100.0)
        } else {
            0.0
        }
    }

    fn print(&self, matches: &ArgMatches, report: Report) {
        if matches.get_flag("json") {
            report.json(&self.document());
        } else if matches.get_flag("csv") {
            report.text(self.csv().as_bytes());
        } else {
            report.text(self.table().as_bytes());
        }
        for (name, why) in &self.without {
            report.warning(&format!("cannot sample {name}: {why}"));
        }
        if !self.is_whole() {
            report.warning(&format!(
                "{} samples are missing, and the GPU's buffer was full {} times: use a lower --rate",
                self.series.lost, self.overflows
            ));
        }
    }

    fn table(&self) -> String {
        let series = &self.series;
        let width = series
            .metrics
            .iter()
            .map(|metric| metric.name.len())
            .max()
            .unwrap_or(0)
            // A formatter's width is at most that.
            .clamp(6, usize::from(u16::MAX));
        // Writing to a String cannot fail.
        let mut out = String::new();
        let _ = writeln!(
            out,
            "GPU {}: {} ({}, {}); {} samples a second for {:.2} s",
            self.gpu,
            self.fact("name"),
            self.fact("chip"),
            self.fact("bus"),
            self.rate,
            self.seconds()
        );
        let _ = writeln!(
            out,
            "{:<width$} {:>10} {:>10} {:>10}  {:<6} {:>9} {:>6}",
            "METRIC", "MEAN", "LEAST", "MOST", "UNIT", "SAMPLES", "LOST"
        );
        for (metric, line) in series.metrics.iter().zip(&series.lines) {
            let [mean, least, most] = match line.mean() {
                Some(mean) => [mean, line.least, line.most].map(number),
                None => ["-", "-", "-"].map(str::to_owned),
            };
            let mark = if series.groups() > 1 { " *" } else { "" };
            let _ = writeln!(
                out,
                "{:<width$} {mean:>10} {least:>10} {most:>10}  {:<6} {:>9} {:>6}{mark}",
                metric.name, metric.unit, line.samples, series.lost
            );
        }
        if series.groups() > 1 {
            let _ = writeln!(
                out,
                "* {} groups are multiplexed: each metric is sampled only part of the time",
                series.groups()
            );
        }
        out
    }

    fn csv(&self) -> String {
        let mut out = String::from(
            "Gpu,Metric,Unit,Mean,Min,Max,Samples,Lost,Covered_Percent,Group,Groups,Cupti_Metric\n",
        );
        for (at, (metric, line)) in self
            .series
            .metrics
            .iter()
            .zip(&self.series.lines)
            .enumerate()
        {
            let [mean, least, most] = match line.mean() {
                Some(mean) => [mean, line.least, line.most].map(|value| value.to_string()),
                None => Default::default(),
            };
            let _ = writeln!(
                out,
                "{},{},{},{mean},{least},{most},{},{},{:.1},{},{},{}",
                self.gpu,
                metric.name,
                metric.unit,
                line.samples,
                self.series.lost,
                self.share(at),
                metric.group,
                self.series.groups(),
                metric.expression
            );
        }
        out
    }

    /// Returns the document. Its schema: `version`; `gpu` with `index`, `name`, `chip`, `bus`;
    /// `rate` in Hz; `seconds`; `samples` and `lost` of all; `groups` that took turns; `metrics`,
    /// each with `name`, `unit`, `mean`, `min`, `max` (null without samples), `samples`,
    /// `covered_percent`, `group` and `cupti`; `without`, each with `name` and `why`; `helper`,
    /// facts on CUPTI and what sampling took.
    fn document(&self) -> Value {
        let metrics = self
            .series
            .metrics
            .iter()
            .zip(&self.series.lines)
            .enumerate();
        let metrics: Vec<Value> = metrics
            .map(|(at, (metric, line))| {
                let mean = line.mean();
                json!({
                    "name": metric.name, "unit": metric.unit, "mean": mean, "min": mean.map(|_| line.least),
                    "max": mean.map(|_| line.most), "samples": line.samples, "covered_percent": self.share(at),
                    "group": metric.group, "cupti": metric.expression,
                })
            })
            .collect();
        let without: Vec<Value> = self
            .without
            .iter()
            .map(|(name, why)| json!({"name": name, "why": why}))
            .collect();
        let helper: serde_json::Map<String, Value> = self
            .facts
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect();
        json!({
            "version": SCHEMA,
            "gpu": {"index": self.gpu, "name": self.fact("name"), "chip": self.fact("chip"), "bus": self.fact("bus")},
            "rate": self.rate, "seconds": self.seconds(), "samples": self.series.samples, "lost": self.series.lost,
            "overflows": self.overflows, "groups": self.series.groups(), "metrics": metrics, "without": without, "helper": helper,
        })
    }
}

/// Prints sets, our metrics and, where there is a GPU, CUPTI's names. Returns the exit code.
fn print_list(request: &Request, as_json: bool, report: Report) -> u8 {
    let own = Sampler::start(request);
    if as_json {
        let sets: Vec<Value> = sets::SETS
            .iter()
            .map(|(name, metrics)| json!({"name": name, "metrics": metrics}))
            .collect();
        let metrics = sets::METRICS
            .iter()
            .map(|it| json!({"name": it.name, "unit": it.unit, "about": it.about}));
        let metrics: Vec<Value> = metrics.collect();
        let names = own
            .as_ref()
            .map(|sampler| sampler.names.clone())
            .unwrap_or_default();
        report.json(&json!({"version": SCHEMA, "sets": sets, "metrics": metrics, "cupti": names}));
    } else {
        let mut out = String::from("SETS\n");
        for (name, metrics) in sets::SETS {
            let _ = writeln!(out, "  {name:<10} {}", metrics.join(", "));
        }
        out.push_str("METRICS\n");
        for it in sets::METRICS {
            let _ = writeln!(out, "  {:<10} {:<5} {}", it.name, it.unit, it.about);
        }
        if let Ok(sampler) = &own {
            let _ = writeln!(
                out,
                "OF {} ({}); append a suffix such as .avg.pct_of_peak_sustained_elapsed or .sum.per_second",
                sampler.fact("name"),
                sampler.fact("chip")
            );
            for name in &sampler.names {
                let _ = writeln!(out, "  {name}");
            }
        }
        report.text(out.as_bytes());
    }
    match own {
        Ok(_) => 0,
        // The general list was printed. What this GPU offers is not known.
        Err(error) => report.failure(&failure(&error)),
    }
}
