//! Reads workload directories: AMD's of 2025 (csv) and of 2026 (rocpd), and ours.

mod age;
pub(crate) mod bound;
pub(crate) mod csv;
mod long;
mod passes;
pub(crate) mod rocpd;
mod scan;

use crate::architecture::{self, Architecture, Form};
use crate::files::{self, file_name};
pub(crate) use crate::files::{unreadable, unusable};
use crate::frame::Frame;
use crate::samples::Samples;
use crate::vintage::Vintage;
use midair_failure::Failure;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A workload directory.
#[derive(Debug)]
pub struct Workload {
    /// The directory.
    pub path: PathBuf,
    /// The workload's name.
    pub name: String,
    /// What is known about the machine, in the order of the file.
    pub system: Vec<(String, String)>,
    /// The same values, as far as they are numbers.
    pub properties: HashMap<String, f64>,
    /// The GPU's architecture.
    pub architecture: &'static Architecture,
    /// What was asked for when the directory was made, by option.
    pub profiling: Profiling,
    /// AMD's version that makes such directories, whose words tables have.
    pub vintage: Vintage,
    /// The formulas: that version's, or ratios of sums where counters were multiplexed.
    pub form: Form,
    /// Which numbers the metrics have.
    pub numbers: Form,
    /// The dispatches.
    pub frame: Frame,
    /// Samples of program counters.
    pub samples: Samples,
    /// What a reader of the results should know.
    pub notes: Vec<String>,
}

/// `profiling_config.yaml`, as far as it is used.
#[derive(Debug, Clone, Default)]
pub struct Profiling {
    /// Options and their values; lists are joined with commas.
    pub all: BTreeMap<String, String>,
    /// The blocks that `-b` or `--set` chose; empty: everything.
    pub blocks: Vec<String>,
}

/// The suffix of a measured peak's name in expressions.
pub(crate) const PEAK: &str = "_empirical_peak";

/// The key of `profiling_config.yaml` that marks a midair directory.
pub(crate) const OWN: &str = "midair_version";

pub(crate) use age::KEY as VINTAGE;

/// The column of `--live-counters` that says how many dispatches a line stands for.
const LIVE_WEIGHT: &str = "Dispatches";

impl Workload {
    /// Reads a directory.
    ///
    /// # Errors
    /// When files are missing or wrong: names the file and the reason.
    pub fn read(path: &Path, corrections: &[(String, String)]) -> Result<Workload, Failure> {
        Workload::read_by(rocpd::Reader::default(), path, corrections)
    }

    /// Reads a directory, with all columns of `pmc_perf.csv`. Metrics need fewer.
    ///
    /// # Errors
    /// As [`Workload::read`].
    pub(crate) fn read_whole(path: &Path) -> Result<Workload, Failure> {
        Workload::read_by(rocpd::Reader::whole(), path, &[])
    }

    fn read_by(
        mut read: rocpd::Reader,
        path: &Path,
        corrections: &[(String, String)],
    ) -> Result<Workload, Failure> {
        let found = files::entries(path).map_err(|error| unreadable(path, &error))?;
        let found = once(found);
        let named = |name: &str| found.iter().find(|file| files::unpacked_name(file) == name);
        let databases: Vec<&PathBuf> = found.iter().filter(|f| has_end(f, ".db")).collect();
        let mut notes = Vec::new();
        let mut system = match named("sysinfo.csv") {
            Some(file) => csv::single(file)?,
            None => Vec::new(),
        };
        let samples = Samples::read(&found)?;
        let joined = match named("pmc_perf.csv") {
            Some(file) => Some((file, long::is_long(file)?)),
            None => None,
        };
        // AMD's `analyze` makes a long file of the databases, and leaves it next to them.
        let joined = joined.filter(|(_, is_long)| !is_long || databases.is_empty());
        let mut frame = if let Some((file, true)) = joined {
            long::pivoted(&[file])?
        } else if let Some((file, false)) = joined {
            // Levels are in separate files where they were not joined.
            let mut all = vec![file];
            all.extend(found.iter().filter(|file| is_level(file)));
            match all.len() {
                1 => {
                    let frame = csv::wide(&all)?;
                    csv::once(file, &frame)?;
                    frame
                }
                _ => passes::joined(&all)?,
            }
        } else if !databases.is_empty() {
            for file in &databases {
                read.file(file)?;
            }
            if system.is_empty() {
                system = read.system();
                notes.push(format!(
                    "{} has no sysinfo.csv: the GPU's properties come from the database",
                    path.display()
                ));
            }
            let passes = databases.len();
            read.finish(passes > 1, &mut notes)
        } else {
            let passes: Vec<&PathBuf> = found.iter().filter(|file| is_pass(file)).collect();
            let long: Vec<&PathBuf> = found.iter().filter(|file| is_long(file)).collect();
            match (passes.as_slice(), long.as_slice()) {
                ([], []) if !samples.is_empty() => samples.frame(),
                ([], []) => return Err(nothing_in(path, &found)),
                (passes, []) => passes::joined(passes)?,
                (_, long) => long::pivoted(long)?,
            }
        };
        if system.is_empty() {
            return Err(unusable(format!(
                "{} has no sysinfo.csv, so its GPU is not known",
                path.display()
            ))
            .hint("copy the file from another profile of the same machine"));
        }
        for (name, value) in corrections {
            match system.iter_mut().find(|(known, _)| known == name) {
                Some(known) => known.1.clone_from(value),
                None => system.push((name.clone(), value.clone())),
            }
        }
        let (architecture, mut properties) = gpu(path, &system)?;
        if let Some(file) = named("roofline.csv") {
            for (name, value) in csv::single(file)? {
                if let Ok(peak) = value.parse::<f64>()
                    && name != "device"
                {
                    properties.insert(format!("{name}{PEAK}"), peak);
                }
            }
        }
        frame.classify();
        let profiling = match named("profiling_config.yaml") {
            Some(file) => Profiling::read(file)?,
            None => Profiling::default(),
        };
        let vintage = age::of(&found, &system, &profiling);
        let numbers = vintage.form();
        // AMD's tool makes no such directory: means of ratios need all counters of a dispatch.
        let is_own = profiling.all.contains_key(OWN);
        let form = match is_own && age::took_turns(&found, &profiling) {
            true => Form::Sums,
            false => numbers,
        };
        let directory = files::named(path);
        // Since 3.7 the name is only in the configuration.
        let configured = profiling.all.get("name").map(String::as_str);
        let name = match text(&system, "workload_name").or(configured) {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => directory
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        };
        Ok(Workload {
            path: path.to_owned(),
            name,
            system,
            properties,
            architecture,
            profiling,
            vintage,
            form,
            numbers,
            frame,
            samples,
            notes,
        })
    }

    /// Returns a midair directory whose collection is still running, without any dispatch. `groups` is the number
    /// of groups that are multiplexed.
    ///
    /// # Errors
    /// When there are no tables for the GPU.
    pub fn begun(
        path: &Path,
        name: &str,
        system: Vec<(String, String)>,
        (vintage, groups): (Vintage, usize),
    ) -> Result<Workload, Failure> {
        let (architecture, properties) = gpu(path, &system)?;
        Ok(Workload {
            path: path.to_owned(),
            name: name.to_owned(),
            system,
            properties,
            architecture,
            profiling: Profiling::default(),
            vintage,
            form: match groups {
                0 | 1 => vintage.form(),
                _ => Form::Sums,
            },
            numbers: vintage.form(),
            frame: Frame::default(),
            samples: Samples::default(),
            notes: Vec::new(),
        })
    }

    /// Replaces the dispatches by those in files that `rocprofv3 --live-counters` wrote.
    ///
    /// # Errors
    /// When the files cannot be read, or contain no dispatch.
    pub fn refresh(&mut self, files: &[PathBuf]) -> Result<(), Failure> {
        self.frame = csv::wide(&files.iter().collect::<Vec<_>>())?;
        self.frame.weigh(LIVE_WEIGHT);
        self.frame.classify();
        Ok(())
    }
}

fn text<'s>(system: &'s [(String, String)], name: &str) -> Option<&'s str> {
    let found = system.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Returns the tables of the GPU's architecture, and the known properties that are numbers.
fn gpu(
    path: &Path,
    system: &[(String, String)],
) -> Result<(&'static Architecture, HashMap<String, f64>), Failure> {
    let named = text(system, "gpu_arch").or(text(system, "arch"));
    let Some(architecture) = Architecture::named(named.unwrap_or_default()) else {
        let mut failure = match named.unwrap_or_default() {
            "" => unusable("sysinfo.csv does not name the architecture"),
            gpu => architecture::unknown(gpu),
        };
        failure.what = format!("{}: {}", path.display(), failure.what);
        return Err(failure);
    };
    let mut properties = HashMap::new();
    for (name, value) in system {
        if let Ok(number) = value.trim().parse::<f64>()
            && number.is_finite()
        {
            properties.insert(name.clone(), number);
        }
    }
    Ok((architecture, properties))
}

/// Returns the files, without those that are there packed as well: AMD's tool takes the packed one.
fn once(found: Vec<PathBuf>) -> Vec<PathBuf> {
    let packed: HashSet<String> = found
        .iter()
        .filter(|file| has_end(file, ".csv.gz"))
        .map(|file| files::unpacked_name(file))
        .collect();
    let is_once = |file: &PathBuf| !packed.contains(&file_name(file));
    found.into_iter().filter(is_once).collect()
}

fn has_end(file: &Path, end: &str) -> bool {
    let name = file.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.ends_with(end) && !name.starts_with('.'))
}

fn is_csv(file: &Path) -> bool {
    has_end(file, ".csv") || has_end(file, ".csv.gz")
}

/// Whether a file is one pass of 2025: `pmc_perf_3.csv`, or `SQ_LEVEL_WAVES.csv` for a level
/// counter.
fn is_pass(file: &Path) -> bool {
    let name = files::unpacked_name(file);
    is_csv(file) && (name.starts_with("pmc_perf_") || is_level(file))
}

/// Whether a file is the pass of a level counter, such as `SQ_LEVEL_WAVES.csv`.
fn is_level(file: &Path) -> bool {
    let name = files::unpacked_name(file);
    is_csv(file) && name.starts_with("SQ") && name.contains("LEVEL")
}

/// Whether a file is one pass in which each counter has its own line.
fn is_long(file: &Path) -> bool {
    let name = files::unpacked_name(file);
    is_csv(file) && (name.starts_with("results_") || name.ends_with("counter_collection.csv"))
}

/// Returns the refusal of a process that used CUDA, which has no panels.
fn of_cuda(path: &Path, gpu: &str) -> Failure {
    unusable(format!(
        "{} has a CUDA process on {gpu}: panels need AMD counters",
        path.display()
    ))
    .hint("use `midair attach` to record the kernels, copies and waits of a CUDA process")
}

/// Returns the GPU's name if the files are results of a CUDA process: the list of its GPUs names
/// the vendor.
fn cuda_gpu(found: &[PathBuf]) -> Option<String> {
    let mut lists = found.iter().filter(|file| has_end(file, "agent_info.csv"));
    lists.find_map(|file| {
        let text = files::text(file).ok()?;
        let mut lines = text.lines().map(|line| csv::words(line.as_bytes()));
        let headings = lines.next()?;
        let column = |name: &str| headings.iter().position(|heading| heading == name);
        let (vendor, product) = (column("Vendor_Name")?, column("Product_Name")?);
        let mut gpus = lines.filter(|line| line.get(vendor).is_some_and(|v| v == "NVIDIA"));
        Some(gpus.next()?.get(product)?.clone())
    })
}

fn nothing_in(path: &Path, found: &[PathBuf]) -> Failure {
    if let Some(gpu) = cuda_gpu(found) {
        return of_cuda(path, &gpu);
    }
    let deeper = found.iter().find(|file| {
        ["sysinfo.csv", "pmc_perf.csv"]
            .iter()
            .any(|name| files::is_file(&file.join(name)))
    });
    let failure = unusable(format!(
        "{} is not a workload directory: it has neither pmc_perf.csv nor a database",
        path.display()
    ));
    match deeper {
        Some(deeper) => failure.hint(format!("-p {}", deeper.display())),
        None => failure.hint("name the directory that `profile` wrote, such as workloads/NAME/GPU"),
    }
}

impl Profiling {
    /// Reads the subset of YAML that the file uses: `key: value`, and lists with dashes or
    /// brackets.
    fn read(file: &Path) -> Result<Profiling, Failure> {
        let text = files::read(file).map_err(|error| unreadable(file, &error))?;
        let text = String::from_utf8_lossy(&text);
        let plain = |word: &str| {
            let word = word.trim();
            let inner = word
                .strip_prefix('\'')
                .and_then(|word| word.strip_suffix('\''))
                .or_else(|| {
                    word.strip_prefix('"')
                        .and_then(|word| word.strip_suffix('"'))
                });
            inner.unwrap_or(word).to_owned()
        };
        let mut profiling = Profiling::default();
        let mut key = String::new();
        let mut blocks = Vec::new();
        for line in text.lines() {
            let inner = line.trim_start();
            if let Some(item) = inner.strip_prefix("- ").filter(|_| !key.is_empty()) {
                let item = plain(item);
                if key == "filter_blocks" {
                    blocks.push(item.clone());
                }
                let all: &mut String = profiling.all.entry(key.clone()).or_default();
                if !all.is_empty() {
                    all.push(',');
                }
                all.push_str(&item);
            } else if let Some((name, value)) = inner.split_once(':') {
                let nested = inner.len() != line.len();
                if nested && key == "filter_blocks" {
                    // Versions before 3.3 store a kind for each block.
                    blocks.push(plain(name));
                    continue;
                }
                key = plain(name);
                let value = plain(value);
                if key == "filter_blocks"
                    && let Some(list) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']'))
                {
                    blocks.extend(list.split(',').map(plain).filter(|word| !word.is_empty()));
                }
                profiling.all.insert(key.clone(), value);
            }
        }
        profiling.blocks = blocks;
        Ok(profiling)
    }
}
