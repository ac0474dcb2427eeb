//! The roofline: each kernel's operations per second over its operations per byte at each level of
//! memory, below the limits of the GPU.

mod drawing;
mod level;

pub use drawing::draw;
pub use level::Level;
pub(crate) use level::{intensity, performance};

use super::grid::{Side::Left, Side::Right, draw as draw_grid};
use super::{KernelTime, Options, setting};
use crate::architecture::{Architecture, Form, Newer};
use crate::evaluate::Evaluator;
use crate::frame::field;
use crate::program::Row;
use crate::read::{PEAK, Workload};
use crate::sample::Rows;

/// The numbers of the metrics of 2026 that make up a point.
const INTENSITY: &str = "4.2.6";
const PERFORMANCE: &str = "4.2.7";

/// What computes with a type of data.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// Its name.
    pub name: &'static str,
    /// 10⁹ operations a second.
    pub peak: f64,
    /// Whether the operations are on whole numbers, which no point has.
    pub whole: bool,
}

impl Roof {
    /// Returns what an operation is called in units.
    pub fn operation(&self) -> &'static str {
        match self.whole {
            true => "IOP",
            false => "FLOP",
        }
    }
}

/// The limits of a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Peaks {
    /// Whether they were measured; otherwise they come from the specification.
    pub measured: bool,
    /// The levels of memory, and their bandwidths in GB/s.
    pub memory: Vec<(Level, f64)>,
    /// What computes.
    pub compute: Vec<Roof>,
    /// The chosen types of data that have no roof here.
    pub without: Vec<String>,
}

/// The point of a kernel in the roofline, at one level of memory.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// The level.
    pub level: Level,
    /// Operations per byte.
    pub intensity: f64,
    /// 10⁹ operations a second.
    pub performance: f64,
    /// The share of the time, in percent.
    pub percent: f64,
}

/// What computes with a type of data: the word of `--roofline-data-types`, the name of the roof, and
/// the peak's name in `roofline.csv`.
const ROOFS: [(&str, &str, &str); 14] = [
    ("FP4", "MFMA F4", "MFMAF4Flops"),
    ("FP4", "MFMA F6F4", "MFMAF6F4Flops"),
    ("FP6", "MFMA F6", "MFMAF6Flops"),
    ("FP6", "MFMA F6F4", "MFMAF6F4Flops"),
    ("FP32", "VALU FP32", "FP32Flops"),
    ("FP32", "MFMA F32", "MFMAF32Flops"),
    ("FP16", "MFMA F16", "MFMAF16Flops"),
    ("BF16", "MFMA BF16", "MFMABF16Flops"),
    ("FP8", "MFMA F8", "MFMAF8Flops"),
    ("FP64", "VALU FP64", "FP64Flops"),
    ("FP64", "MFMA F64", "MFMAF64Flops"),
    ("I8", "MFMA I8", "MFMAI8Ops"),
    ("I32", "VALU I32", "I32Ops"),
    ("I64", "VALU I64", "I64Ops"),
];
/// The types whose roofs are shown where none is chosen.
const TYPES: [&str; 2] = ["FP32", "FP16"];
/// The types of whole numbers.
const WHOLE: [&str; 3] = ["I8", "I32", "I64"];

/// Returns the words that name types of data with a roof.
pub fn types() -> Vec<&'static str> {
    let mut all: Vec<&str> = ROOFS.iter().map(|(word, ..)| *word).collect();
    all.dedup();
    all
}

/// Returns the operations of a compute unit in a clock, as in the peaks of table 2.1.
fn per_clock(architecture: &str, roof: &str) -> Option<f64> {
    let [f16, bf16, f8, f64, i8, f6f4] = match architecture {
        "gfx908" => [1024.0, 512.0, 0.0, 0.0, 1024.0, 0.0],
        "gfx90a" => [1024.0, 1024.0, 0.0, 256.0, 1024.0, 0.0],
        "gfx942" => [2048.0, 2048.0, 4096.0, 256.0, 4096.0, 0.0],
        // AMD's table has this number (api/compute/gfx950.json, 2.1.7), and 16384 may be meant.
        "gfx950" => [4096.0, 4096.0, 8192.0, 128.0, 8192.0, 16834.0],
        _ => return None,
    };
    let count = match roof {
        "VALU FP32" => 128.0,
        "MFMA F32" => 256.0,
        "MFMA F16" => f16,
        "MFMA BF16" => bf16,
        "MFMA F8" => f8,
        "MFMA F64" => f64,
        "MFMA I8" => i8,
        "MFMA F6F4" => f6f4,
        // The tables have none.
        _ => 0.0,
    };
    Some(count).filter(|count| *count > 0.0)
}

/// Returns the peaks of what the options choose: the measured ones, where the directory has them.
pub fn peaks(workload: &Workload, options: &Options) -> Option<Peaks> {
    let get = |name: &str| {
        workload
            .properties
            .get(name)
            .copied()
            .filter(|value| *value > 0.0)
    };
    let measured = |name: &str| get(&format!("{name}{PEAK}"));
    let is_measured = Level::ALL
        .iter()
        .any(|level| measured(level.peak()).is_some());
    let architecture = workload.architecture.name;
    // Computed as in the shorthands and peaks of the tables.
    let units = || Some(get("max_sclk")? * get("cu_per_gpu")? / 1000.0);
    let memory: Vec<(Level, f64)> = options
        .levels()
        .iter()
        .filter_map(|&level| {
            let bandwidth = match is_measured {
                true => measured(level.peak()),
                false => level.specified(architecture, get),
            };
            Some((level, bandwidth?))
        })
        .collect();
    let mut without = options.data_types.clone();
    let mut compute: Vec<Roof> = Vec::new();
    let roofs = ROOFS
        .into_iter()
        .filter(|(word, ..)| match options.data_types.as_slice() {
            [] => TYPES.contains(word),
            types => types.iter().any(|chosen| chosen == word),
        })
        .filter_map(|(word, name, key)| {
            let peak = match is_measured {
                true => measured(key),
                false => units().and_then(|units| Some(units * per_clock(architecture, name)?)),
            };
            let roof = Roof {
                name,
                peak: peak?,
                whole: WHOLE.contains(&word),
            };
            Some((word, roof))
        });
    for (word, roof) in roofs {
        without.retain(|chosen| chosen != word);
        // Two types may share a roof.
        if !compute.contains(&roof) {
            compute.push(roof);
        }
    }
    let known = is_measured || per_clock(architecture, "VALU FP32").is_some();
    (known && !memory.is_empty()).then_some(Peaks {
        measured: is_measured,
        memory,
        compute,
        without,
    })
}

fn formula(architecture: &'static Architecture, id: &str) -> Option<&'static str> {
    let rows = architecture.tables().flat_map(|(_, table)| table.newer);
    let mut own = rows.filter_map(|row| match row {
        Newer::Own(metric) if metric.id == id => Some(metric),
        _ => None,
    });
    let cells = own.next()?.cells;
    cells
        .iter()
        .find(|cell| cell.column == "value")?
        .content
        .formula(Form::Sums)
}

/// What has points of its own: a kernel, or one dispatch.
struct Placed {
    name: String,
    rows: Vec<u32>,
    /// The share of the time, in percent.
    percent: f64,
}

/// Returns the kernels that took the longest.
fn longest_kernels(
    workload: &Workload,
    kernels: &[KernelTime],
    chosen: &Rows,
    most: usize,
) -> Vec<Placed> {
    let of = |kernel: &KernelTime| {
        let rows = chosen
            .iter()
            .filter(|row| workload.frame.kernel[*row] == kernel.kernel);
        Placed {
            name: workload.frame.names.text(kernel.kernel).to_owned(),
            rows: rows.filter_map(|row| u32::try_from(row).ok()).collect(),
            percent: kernel.percent,
        }
    };
    kernels.iter().take(most).map(of).collect()
}

/// Returns the dispatches that took the longest.
fn longest_dispatches(workload: &Workload, chosen: &Rows, most: usize) -> Vec<Placed> {
    let frame = &workload.frame;
    let at = |name: &str, row: usize| frame.named(name).map_or(f64::NAN, |it| it.get(row));
    let took = |row: usize| at(field::END, row) - at(field::START, row);
    let mut rows: Vec<(f64, usize)> = chosen
        .iter()
        .map(|row| (took(row), row))
        .filter(|(took, _)| !took.is_nan())
        .collect();
    let all: f64 = rows.iter().map(|(took, _)| took).sum();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    rows.truncate(most);
    let of = |(took, row): (f64, usize)| {
        let kernel = frame.kernel.get(row).copied().unwrap_or(0);
        Placed {
            name: format!("{}: {}", at(field::DISPATCH, row), frame.names.text(kernel)),
            rows: u32::try_from(row).into_iter().collect(),
            percent: if all > 0.0 { 100.0 * took / all } else { 0.0 },
        }
    };
    rows.into_iter().map(of).collect()
}

/// Returns the points of each kernel, or of each dispatch, whose counters were collected, by time, the
/// longest first.
pub fn points(
    workload: &Workload,
    kernels: &[KernelTime],
    chosen: &Rows,
    options: &Options,
) -> Vec<Point> {
    // The user's panels may lack what a point is made of.
    let of = workload.architecture;
    let built_in = Architecture::named(of.name).unwrap_or(of);
    let Some(performance) = performance(built_in) else {
        return Vec::new();
    };
    let setting = setting(workload, Form::Sums, options);
    let mut evaluator = Evaluator::new(setting, &workload.frame, Rows::All(0));
    let mut points = Vec::new();
    let placed = match options.of_dispatches {
        true => longest_dispatches(workload, chosen, options.most),
        false => longest_kernels(workload, kernels, chosen, options.most),
    };
    for placed in placed {
        evaluator.choose(Rows::Some(placed.rows));
        let mut value = |text| {
            let number = evaluator.value(text, Row::default()).number();
            number.filter(|number| *number > 0.0)
        };
        let Some(performance) = value(performance) else {
            continue;
        };
        for &level in options.levels() {
            let text = intensity(built_in, level);
            if let Some(intensity) = text.and_then(&mut value) {
                points.push(Point {
                    name: placed.name.clone(),
                    level,
                    intensity,
                    performance,
                    percent: placed.percent,
                });
            }
        }
    }
    points
}

/// Returns a sentence that names the levels at which no kernel has a point.
pub fn missing(peaks: &Peaks, points: &[Point]) -> Option<String> {
    if points.is_empty() {
        return Some("No kernel can be placed: operations or bytes were not counted.".to_owned());
    }
    let without = |level: &Level| !points.iter().any(|point| point.level == *level);
    let levels = peaks.memory.iter().map(|(level, _)| *level);
    let names: Vec<&str> = levels.filter(without).map(Level::word).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("No kernel can be placed at {names}: bytes were not counted there, or none moved.")
    })
}

impl Peaks {
    /// Returns where the peaks come from.
    pub fn origin(&self) -> &'static str {
        match self.measured {
            true => "as measured",
            false => "from the specification, not measured",
        }
    }

    /// Returns the most that a kernel with this intensity at a level can reach, in 10⁹ operations a
    /// second, and whether the memory is what limits it. Points have operations of floating-point
    /// numbers alone, so the roofs of whole numbers limit none.
    pub fn limit(&self, level: Level, intensity: f64) -> Option<(f64, bool)> {
        let compute = self.compute.iter().filter(|roof| !roof.whole);
        let compute = compute.map(|roof| roof.peak).reduce(f64::max);
        let mut memory = self.memory.iter();
        let memory = memory.find(|(known, _)| *known == level);
        let memory = memory.map(|(_, bandwidth)| intensity * bandwidth);
        match (memory, compute) {
            (Some(memory), Some(compute)) if memory >= compute => Some((compute, false)),
            (Some(memory), _) => Some((memory, true)),
            (None, compute) => compute.map(|compute| (compute, false)),
        }
    }
}

/// Returns peaks and kernels as tables.
pub fn tables(peaks: &Peaks, points: &[Point], decimals: usize) -> String {
    let number = |value: f64| format!("{value:.decimals$}");
    let memory = peaks
        .memory
        .iter()
        .map(|(level, bandwidth)| [level.word(), &number(*bandwidth), "GB/s"].map(str::to_owned));
    let compute = peaks.compute.iter().map(|roof| {
        let unit = format!("G{}/s", roof.operation());
        [roof.name, &number(roof.peak), &unit].map(str::to_owned)
    });
    let rows: Vec<Vec<String>> = memory.chain(compute).map(Vec::from).collect();
    let heading = format!("Peak, {}", peaks.origin());
    let headings = [heading.as_str(), "Value", "Unit"].map(str::to_owned);
    let mut out = String::from("Roofline\n");
    out.push_str(&draw_grid(&headings, &rows, &[Left, Right, Left]));
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            let limit = peaks.limit(point.level, point.intensity);
            let of = limit.map(|(limit, _)| number(100.0 * point.performance / limit));
            let by = limit.map(|(_, by_memory)| match by_memory {
                true => point.level.word(),
                false => "operations",
            });
            vec![
                point.name.clone(),
                point.level.word().to_owned(),
                number(point.intensity),
                number(point.performance),
                of.unwrap_or_else(|| "N/A".to_owned()),
                by.unwrap_or("N/A").to_owned(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        let headings = [
            "Kernel",
            "Memory",
            "Operations per byte",
            "GFLOP/s",
            "Percent of the roof",
            "Limited by",
        ];
        let sides = [Left, Left, Right, Right, Right, Left];
        out.push_str(&draw_grid(&headings.map(str::to_owned), &rows, &sides));
    }
    if !peaks.without.is_empty() {
        let types = peaks.without.join(", ");
        let of = peaks.origin();
        out.push_str(&format!("No roof is known for {types} ({of}).\n"));
    }
    if let Some(missing) = missing(peaks, points) {
        out.push_str(&missing);
        out.push('\n');
    }
    out
}
