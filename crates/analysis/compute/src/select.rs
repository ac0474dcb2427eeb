//! The chosen parts of the tables and the chosen dispatches: `-b`, `--set`, `-k`, `-d`, `--gpu-id`.

use crate::architecture::{Architecture, Form, Metric, Panel, Table};
use crate::frame::{Frame, field};
use crate::needs;
use crate::report::roofline::Level;
use crate::sample::Rows;
use midair_failure::{Failure, Kind};
use std::collections::BTreeSet;

/// Names of blocks, besides their numbers.
const ALIASES: [(&str, &str); 22] = [
    ("sol", "2"),
    ("speed-of-light", "2"),
    ("memchart", "3"),
    ("memory-chart", "3"),
    ("roofline", "4"),
    ("cp", "5"),
    ("cpf", "5.1"),
    ("cpc", "5.2"),
    ("spi", "6"),
    ("wavefront", "7"),
    ("launch", "7.1"),
    ("instmix", "10"),
    ("pipeline", "11"),
    ("lds", "12"),
    ("l1i", "13"),
    ("sl1d", "14"),
    ("ta", "15"),
    ("td", "15"),
    ("vl1d", "16"),
    ("l2", "17"),
    ("l2-channels", "18"),
    ("pc_sampling", "21"),
];

/// The hardware blocks whose counters can be chosen, as in AMD's versions up to 3.2. Names of AMD's later
/// versions for tables have small letters (AMD-178).
const HARDWARE: [&str; 11] = [
    "SQ", "SQC", "LDS", "TA", "TD", "TCP", "TCC", "SPI", "CPC", "CPF", "GRBM",
];

/// The counters that are always counted, since units of normalization need them.
pub(crate) const ALWAYS: [&str; 2] = ["SQ_WAVES", "GRBM_GUI_ACTIVE"];

/// Whether a counter is one of a hardware block's. LDS is a part of SQ.
fn is_in(counter: &str, block: &str) -> bool {
    let (of, rest) = counter.split_once('_').unwrap_or((counter, ""));
    of == block || block == "LDS" && of == "SQ" && rest.contains("LDS")
}

/// Panels, tables and metrics.
#[derive(Debug, Clone, Default)]
pub struct Blocks {
    /// Numbers of one to three parts; empty: everything.
    ids: Vec<Vec<u32>>,
    /// The levels of memory that the roofline has; empty: all.
    levels: Vec<Level>,
    /// Hardware blocks whose counters are wanted, whether or not a metric has all that it needs.
    hardware: Vec<&'static str>,
}

/// Parses a number of one to three parts, such as `11.2.4`.
fn parts(word: &str) -> Option<Vec<u32>> {
    let parts: Option<Vec<u32>> = word
        .split('.')
        .map(|part| {
            let digits = (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        })
        .collect();
    parts.filter(|parts| parts.len() <= 3)
}

/// The panel of the roofline.
pub(crate) const ROOFLINE: u32 = 4;

impl Blocks {
    /// Reads words of a command line. Numbers that the architecture does not have are left out with
    /// a warning.
    ///
    /// # Errors
    /// When a word is neither a number nor the name of a block.
    pub fn read(
        words: &[String],
        architecture: &'static Architecture,
        form: Form,
        warn: &mut dyn FnMut(String),
    ) -> Result<Blocks, Failure> {
        let (mut ids, mut hardware) = (Vec::new(), Vec::new());
        for word in words.iter().flat_map(|word| word.split([',', ' '])) {
            let word = word.trim();
            if word.is_empty() {
                continue;
            }
            if let Some(block) = HARDWARE.into_iter().find(|block| *block == word) {
                hardware.push(block);
                continue;
            }
            let lower = word.to_ascii_lowercase();
            let alias = ALIASES.iter().find(|(alias, _)| *alias == lower);
            let Some(id) = parts(alias.map_or(word, |(_, id)| id)) else {
                return Err(Failure::new(
                    Kind::Usage,
                    format!("{word} is neither a block number nor a block name"),
                )
                .hint(format!("--list-blocks {} lists both", architecture.name)));
            };
            let one = Blocks {
                ids: vec![id.clone()],
                ..Blocks::default()
            };
            let there = architecture.panels.iter().any(|panel| {
                (id.len() == 1 && panel.id == id[0])
                    || panel.tables.iter().any(|table| {
                        (id.len() == 2 && table.id == id[0] * 100 + id[1])
                            || table
                                .rows(form)
                                .iter()
                                .any(|(number, _)| one.has_metric(number))
                    })
            });
            if there {
                ids.push(id);
            } else {
                warn(format!(
                    "Skipping {word}: {} does not have it",
                    architecture.name
                ));
            }
        }
        let mut blocks = Blocks {
            ids,
            levels: Vec::new(),
            hardware,
        };
        blocks.add_metrics_of_hardware(architecture, form);
        if blocks.is_all() && words.iter().any(|word| !word.trim().is_empty()) {
            return Err(
                Failure::new(Kind::Usage, "none of the selected blocks exists")
                    .hint(format!("--list-metrics {} lists all", architecture.name)),
            );
        }
        Ok(blocks)
    }

    /// Adds the metrics that need only counters of the chosen hardware blocks.
    fn add_metrics_of_hardware(&mut self, architecture: &'static Architecture, form: Form) {
        if self.hardware.is_empty() {
            return;
        }
        for (number, metric) in Blocks::default().metrics(architecture, form) {
            let counters = needs::counters(metric, architecture);
            let is_counted =
                |name: &String| self.has_counter(name) || ALWAYS.contains(&name.as_str());
            let is_wanted = counters.iter().any(|name| self.has_counter(name));
            if is_wanted && counters.iter().all(is_counted) && !self.has_id(number) {
                self.ids.extend(parts(number));
            }
        }
    }

    /// Whether a counter of a chosen hardware block has this name.
    pub(crate) fn has_counter(&self, name: &str) -> bool {
        self.hardware.iter().any(|block| is_in(name, block))
    }

    /// Whether hardware blocks were chosen.
    pub(crate) fn has_hardware(&self) -> bool {
        !self.hardware.is_empty()
    }

    /// Returns the blocks of the roofline.
    pub fn roofline() -> Blocks {
        Blocks {
            ids: vec![vec![ROOFLINE]],
            ..Blocks::default()
        }
    }

    /// Chooses the levels of memory that the roofline has.
    pub fn with_levels(self, levels: Vec<Level>) -> Blocks {
        Blocks { levels, ..self }
    }

    /// Returns the levels of memory that the roofline has.
    pub fn levels(&self) -> &[Level] {
        match self.levels.as_slice() {
            [] => &Level::ALL,
            levels => levels,
        }
    }

    /// Whether the whole roofline panel was chosen. Then the points of the kernels are wanted as
    /// well, which belong to no metric of 2025.
    pub fn has_roofline(&self) -> bool {
        self.ids.iter().any(|id| id.as_slice() == [ROOFLINE])
    }

    /// Whether nothing was chosen, so that everything is wanted.
    pub fn is_all(&self) -> bool {
        self.ids.is_empty() && self.hardware.is_empty()
    }

    /// Whether any part of a panel is wanted.
    pub fn has_panel(&self, panel: &Panel) -> bool {
        self.is_all() || self.ids.iter().any(|id| id[0] == panel.id)
    }

    /// Whether any part of a table is wanted.
    pub fn has_table(&self, table: &Table) -> bool {
        let number = [table.id / 100, table.id % 100];
        self.is_all()
            || self
                .ids
                .iter()
                .any(|id| id.iter().zip(number).all(|(a, b)| *a == b))
    }

    /// Whether the metric with this number is wanted.
    pub fn has_metric(&self, number: &str) -> bool {
        self.is_all() || self.has_id(number)
    }

    fn has_id(&self, number: &str) -> bool {
        let number = parts(number).unwrap_or_default();
        self.ids.iter().any(|id| number.starts_with(id))
    }

    /// Returns the chosen numbers.
    pub fn numbers(&self) -> Vec<String> {
        let text = |id: &Vec<u32>| {
            let parts: Vec<String> = id.iter().map(u32::to_string).collect();
            parts.join(".")
        };
        self.ids.iter().map(text).collect()
    }

    /// Returns the wanted metrics.
    pub fn metrics(
        &self,
        architecture: &'static Architecture,
        form: Form,
    ) -> Vec<(&'static str, &'static Metric)> {
        let rows = architecture
            .tables()
            .flat_map(|(_, table)| table.rows(form));
        rows.filter(|(number, _)| self.has_metric(number)).collect()
    }
}

/// Returns the names of blocks with their numbers.
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALIASES.into_iter()
}

/// Which dispatches are chosen.
#[derive(Debug, Clone, Default)]
pub struct Dispatches {
    /// Kernels by their places in `--list-stats`; empty: all.
    pub kernels: Vec<u32>,
    /// Dispatches as numbers or `> N`; empty: all.
    pub dispatches: Vec<String>,
    /// GPUs; empty: all.
    pub gpus: Vec<String>,
}

/// A kernel and its time on the GPU.
#[derive(Debug, Clone)]
pub struct KernelTime {
    /// Its number in `Frame::names`.
    pub kernel: u32,
    /// How often it ran.
    pub count: usize,
    /// The sum of its times in nanoseconds.
    pub sum: f64,
    /// The median of its times in nanoseconds.
    pub median: f64,
    /// Its share of all kernels' time, in percent.
    pub percent: f64,
}

/// Returns the kernels of the chosen dispatches, by time, the longest first.
pub fn kernel_times(frame: &Frame, rows: &Rows) -> Vec<KernelTime> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); frame.names.all().len()];
    let mut sums = vec![(0_usize, 0.0); times.len()];
    let (start, end) = (frame.named(field::START), frame.named(field::END));
    for row in rows.iter() {
        let at = |column: Option<&crate::frame::Column>| column.map_or(f64::NAN, |c| c.get(row));
        let time = at(end) - at(start);
        let kernel = frame.kernel.get(row).map_or(usize::MAX, |k| *k as usize);
        if let (Some(times), Some((count, sum))) = (times.get_mut(kernel), sums.get_mut(kernel)) {
            let (time, weight) = (if time.is_nan() { 0.0 } else { time }, frame.weight(row));
            times.push(time);
            *count += weight as usize;
            *sum += time * weight;
        }
    }
    let total: f64 = sums.iter().map(|(_, sum)| sum).sum();
    let mut all: Vec<KernelTime> = (0_u32..)
        .zip(&mut times)
        .zip(sums)
        .filter(|((_, times), _)| !times.is_empty())
        .map(|((kernel, times), (count, sum))| KernelTime {
            kernel,
            count,
            sum,
            median: crate::evaluate::quantile(times, 0.5),
            percent: if total > 0.0 {
                100.0 * sum / total
            } else {
                0.0
            },
        })
        .collect();
    all.sort_by(|a, b| b.sum.total_cmp(&a.sum).then(a.kernel.cmp(&b.kernel)));
    all
}

impl Dispatches {
    /// Returns the chosen rows of a frame.
    ///
    /// # Errors
    /// When a chosen kernel, dispatch or GPU does not exist.
    pub fn rows(&self, frame: &Frame) -> Result<Rows, Failure> {
        let everything = Rows::All(frame.rows);
        if self.kernels.is_empty() && self.dispatches.is_empty() && self.gpus.is_empty() {
            return Ok(everything);
        }
        let usage = |what: String| {
            Failure::new(Kind::Usage, what).hint("--list-stats lists kernels and dispatches")
        };
        let mut kernels = BTreeSet::new();
        if !self.kernels.is_empty() {
            let times = kernel_times(frame, &everything);
            for place in &self.kernels {
                let Some(time) = times.get(*place as usize) else {
                    return Err(usage(format!(
                        "-k {place} is out of range: there are {} kernels, numbered from 0",
                        times.len()
                    )));
                };
                kernels.insert(time.kernel);
            }
        }
        let mut single = BTreeSet::new();
        let mut above = None;
        for word in self.dispatches.iter().flat_map(|word| word.split(',')) {
            let word = word.trim();
            let (is_above, number) = match word.strip_prefix('>') {
                Some(number) => (true, number.trim()),
                None => (false, word),
            };
            if word.is_empty() {
                continue;
            }
            let number: u64 = number
                .parse()
                .map_err(|_| usage(format!("-d {word} is not a dispatch number")))?;
            if is_above {
                above = Some(above.unwrap_or(number).min(number));
            } else {
                single.insert(number);
            }
        }
        let mut gpus = BTreeSet::new();
        for word in self.gpus.iter().flat_map(|word| word.split(',')) {
            let gpu: u64 = word
                .trim()
                .parse()
                .map_err(|_| usage(format!("--gpu-id {word} is not a GPU number")))?;
            gpus.insert(gpu);
        }
        let whole = |column: Option<&crate::frame::Column>, row: usize| {
            column.map_or(0.0, |column| column.get(row)) as u64
        };
        let (ids, gpu) = (frame.named(field::DISPATCH), frame.named(field::GPU));
        let mut rows = Vec::new();
        for row in 0..frame.rows {
            let id = whole(ids, row);
            let chosen = (self.dispatches.is_empty()
                || single.contains(&id)
                || above.is_some_and(|above| id > above))
                && (kernels.is_empty()
                    || frame.kernel.get(row).is_some_and(|k| kernels.contains(k)))
                && (gpus.is_empty() || gpus.contains(&whole(gpu, row)));
            if chosen {
                rows.extend(u32::try_from(row));
            }
        }
        if rows.is_empty() {
            return Err(usage("-k, -d and --gpu-id select no dispatch".to_owned()));
        }
        Ok(Rows::Some(rows))
    }
}
