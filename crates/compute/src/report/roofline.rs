//! The roofline: each kernel's operations per second over its operations per byte of memory, below
//! the limits of the GPU.

use super::grid::{Side::Left, Side::Right, draw as draw_grid};
use super::{KernelTime, Options, setting};
use crate::architecture::{Architecture, Form, Newer};
use crate::evaluate::Evaluator;
use crate::program::Row;
use crate::read::{PEAK, Workload};
use crate::sample::Rows;
use std::fmt::Write;

/// The numbers of the metrics of 2026 that make up a point.
const INTENSITY: &str = "4.2.6";
const PERFORMANCE: &str = "4.2.7";

/// The limits of a GPU, in 10⁹ operations or bytes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Peaks {
    /// Whether they were measured; otherwise they are those of the specification.
    pub measured: bool,
    /// Bandwidth of the memory.
    pub bandwidth: f64,
    /// What computes, and how fast.
    pub compute: Vec<(&'static str, f64)>,
}

/// The point of a kernel in the roofline.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// Operations per byte.
    pub intensity: f64,
    /// 10⁹ operations a second.
    pub performance: f64,
    /// The share of the time, in percent.
    pub percent: f64,
}

/// What computes with a type of data: the word of `--roofline-data-types`, the name of the roof, and
/// the peak's name in `roofline.csv`.
const ROOFS: [(&str, &str, &str); 8] = [
    ("FP32", "VALU FP32", "FP32Flops"),
    ("FP32", "MFMA F32", "MFMAF32Flops"),
    ("FP16", "MFMA F16", "MFMAF16Flops"),
    ("BF16", "MFMA BF16", "MFMABF16Flops"),
    ("FP8", "MFMA F8", "MFMAF8Flops"),
    ("FP64", "VALU FP64", "FP64Flops"),
    ("FP64", "MFMA F64", "MFMAF64Flops"),
    ("I8", "MFMA I8", "MFMAI8Ops"),
];
/// The types whose roofs are shown where none is chosen.
const TYPES: [&str; 2] = ["FP32", "FP16"];

/// Returns the words that name types of data with a roof.
pub fn types() -> Vec<&'static str> {
    let mut all: Vec<&str> = ROOFS.iter().map(|(word, ..)| *word).collect();
    all.dedup();
    all
}

/// Returns the operations of a compute unit in a clock, as in the peaks of table 2.1.
fn per_clock(architecture: &str, roof: &str) -> Option<f64> {
    let [f16, bf16, f8, f64, i8] = match architecture {
        "gfx908" => [1024.0, 512.0, 0.0, 0.0, 1024.0],
        "gfx90a" => [1024.0, 1024.0, 0.0, 256.0, 1024.0],
        "gfx942" => [2048.0, 2048.0, 4096.0, 256.0, 4096.0],
        "gfx950" => [4096.0, 4096.0, 8192.0, 128.0, 8192.0],
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
        // The tables have none.
        _ => 0.0,
    };
    Some(count).filter(|count| *count > 0.0)
}

/// Returns the peaks: the measured ones, where the directory has them. `types` are the types of data
/// whose roofs are wanted; none stands for those of [`TYPES`].
pub fn peaks(workload: &Workload, types: &[String]) -> Option<Peaks> {
    let get = |name: &str| {
        workload
            .properties
            .get(name)
            .copied()
            .filter(|value| *value > 0.0)
    };
    let measured = |name: &str| get(&format!("{name}{PEAK}"));
    let roofs = || {
        ROOFS.into_iter().filter(|(word, ..)| match types {
            [] => TYPES.contains(word),
            types => types.iter().any(|chosen| chosen == word),
        })
    };
    if let Some(bandwidth) = measured("HBMBw") {
        return Some(Peaks {
            measured: true,
            bandwidth,
            compute: roofs()
                .filter_map(|(_, name, key)| Some((name, measured(key)?)))
                .collect(),
        });
    }
    // Computed as in the shorthands and peaks of the tables.
    let channels = get("num_hbm_channels").or_else(|| get("num_memory_channels"))?;
    let clock = get("max_sclk")? * get("cu_per_gpu")? / 1000.0;
    let architecture = workload.architecture.name;
    per_clock(architecture, "VALU FP32")?;
    Some(Peaks {
        measured: false,
        bandwidth: get("max_mclk")? / 1000.0 * 32.0 * channels,
        compute: roofs()
            .filter_map(|(_, name, _)| Some((name, clock * per_clock(architecture, name)?)))
            .collect(),
    })
}

/// The operations of vector and matrix instructions.
macro_rules! operations {
    () => {
        "64 * (SQ_INSTS_VALU_ADD_F16 + SQ_INSTS_VALU_MUL_F16 + SQ_INSTS_VALU_TRANS_F16 + 2 * SQ_INSTS_VALU_FMA_F16 \
         + SQ_INSTS_VALU_ADD_F32 + SQ_INSTS_VALU_MUL_F32 + SQ_INSTS_VALU_TRANS_F32 + 2 * SQ_INSTS_VALU_FMA_F32 \
         + SQ_INSTS_VALU_ADD_F64 + SQ_INSTS_VALU_MUL_F64 + SQ_INSTS_VALU_TRANS_F64 + 2 * SQ_INSTS_VALU_FMA_F64) \
         + 512 * (SQ_INSTS_VALU_MFMA_MOPS_F16 + SQ_INSTS_VALU_MFMA_MOPS_BF16 + SQ_INSTS_VALU_MFMA_MOPS_F32 \
         + SQ_INSTS_VALU_MFMA_MOPS_F64)"
    };
}

/// The formulas of a point, for an architecture whose tables have none: made from these bytes of
/// memory.
macro_rules! point {
    ($bytes:literal) => {
        (
            concat!("SUM(", operations!(), ") / SUM(", $bytes, ")"),
            concat!(
                "SUM(",
                operations!(),
                ") / SUM(End_Timestamp - Start_Timestamp)"
            ),
        )
    };
}

/// Returns the expressions of a point: intensity and performance. They are those of the tables,
/// where the tables have them. Otherwise they are made of the operations and memory bytes that the
/// tables count. The counters of gfx908 do not tell kinds of operations apart.
pub(crate) fn formulas(
    architecture: &'static Architecture,
) -> Option<(&'static str, &'static str)> {
    match architecture.name {
        "gfx90a" => Some(point!(
            "TCC_EA_RDREQ_32B_sum * 32 + (TCC_EA_RDREQ_sum - TCC_EA_RDREQ_32B_sum) * 64 \
             + TCC_EA_WRREQ_64B_sum * 64 + (TCC_EA_WRREQ_sum - TCC_EA_WRREQ_64B_sum) * 32"
        )),
        "gfx950" => Some(point!(
            "TCC_EA0_RDREQ_32B_sum * 32 + TCC_EA0_RDREQ_64B_sum * 64 + TCC_EA0_RDREQ_128B_sum * 128 \
             + TCC_EA0_WRREQ_64B_sum * 64 + (TCC_EA0_WRREQ_sum - TCC_EA0_WRREQ_64B_sum) * 32"
        )),
        _ => Some((
            formula(architecture, INTENSITY)?,
            formula(architecture, PERFORMANCE)?,
        )),
    }
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

/// Returns the point of each kernel whose counters were collected, by time, the longest first.
pub fn points(
    workload: &Workload,
    kernels: &[KernelTime],
    chosen: &Rows,
    options: &Options,
) -> Vec<Point> {
    let Some((intensity, performance)) = formulas(workload.architecture) else {
        return Vec::new();
    };
    let setting = setting(workload, Form::Sums, options);
    let mut evaluator = Evaluator::new(setting, &workload.frame, Rows::All(0));
    let mut points = Vec::new();
    for kernel in kernels.iter().take(options.most) {
        let rows = chosen
            .iter()
            .filter(|row| workload.frame.kernel[*row] == kernel.kernel);
        evaluator.choose(Rows::Some(
            rows.filter_map(|row| u32::try_from(row).ok()).collect(),
        ));
        let intensity = evaluator.value(intensity, Row::default()).number();
        let performance = evaluator.value(performance, Row::default()).number();
        if let (Some(intensity), Some(performance)) = (intensity, performance)
            && intensity > 0.0
            && performance > 0.0
        {
            points.push(Point {
                name: workload.frame.names.text(kernel.kernel).to_owned(),
                intensity,
                performance,
                percent: kernel.percent,
            });
        }
    }
    points
}

impl Peaks {
    /// Returns where the peaks come from.
    pub fn origin(&self) -> &'static str {
        match self.measured {
            true => "as measured",
            false => "by the specification, not measured",
        }
    }

    /// Returns the most that a kernel with this intensity can reach, in 10⁹ operations a second,
    /// and whether the memory is what limits it.
    pub fn limit(&self, intensity: f64) -> (f64, bool) {
        let compute = self.compute.iter().map(|(_, peak)| *peak);
        let compute = compute.fold(0.0, f64::max);
        let memory = intensity * self.bandwidth;
        match memory < compute {
            true => (memory, true),
            false => (compute, false),
        }
    }
}

/// Returns peaks and kernels as tables.
pub fn tables(peaks: &Peaks, points: &[Point], decimals: usize) -> String {
    let number = |value: f64| format!("{value:.decimals$}");
    let mut rows = vec![vec![
        "Memory".to_owned(),
        number(peaks.bandwidth),
        "GB/s".to_owned(),
    ]];
    for (name, peak) in &peaks.compute {
        rows.push(vec![
            (*name).to_owned(),
            number(*peak),
            "GFLOP/s".to_owned(),
        ]);
    }
    let heading = format!("Peak, {}", peaks.origin());
    let headings = [heading.as_str(), "Value", "Unit"].map(str::to_owned);
    let mut out = String::from("Roofline\n");
    out.push_str(&draw_grid(&headings, &rows, &[Left, Right, Left]));
    if points.is_empty() {
        out.push_str("No kernel has its place: operations or bytes were not counted.\n");
        return out;
    }
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            let (limit, by_memory) = peaks.limit(point.intensity);
            vec![
                point.name.clone(),
                number(point.intensity),
                number(point.performance),
                number(100.0 * point.performance / limit),
                if by_memory { "memory" } else { "operations" }.to_owned(),
            ]
        })
        .collect();
    let headings = [
        "Kernel",
        "Operations per byte",
        "GFLOP/s",
        "Percent of the roof",
        "Limited by",
    ];
    let sides = [Left, Right, Right, Right, Left];
    out.push_str(&draw_grid(&headings.map(str::to_owned), &rows, &sides));
    out
}

/// Draws the roofline; both axes are logarithmic.
pub fn draw(peaks: &Peaks, points: &[Point], safe: impl Fn(&str) -> String) -> String {
    let (width, height) = (640.0, 360.0);
    let greatest = peaks
        .compute
        .iter()
        .map(|(_, peak)| *peak)
        .fold(1.0, f64::max);
    let lowest = points
        .iter()
        .map(|point| point.performance)
        .fold(greatest / 1e4, f64::min);
    let (left, right) = points
        .iter()
        .map(|point| point.intensity)
        .fold((0.01, 1000.0), |(low, high), at: f64| {
            (f64::min(low, at), f64::max(high, at))
        });
    let scale = |value: f64, low: f64, high: f64| (value / low).log10() / (high / low).log10();
    let x = |intensity: f64| scale(intensity, left, right) * width;
    let top = greatest * 2.0;
    let y = |performance: f64| {
        height - scale(performance.max(lowest / 2.0), lowest / 2.0, top) * height
    };
    let mut out = format!(
        "<svg class=\"roofline\" viewBox=\"-10 -10 {} {}\" role=\"img\" aria-label=\"Roofline\">\n",
        width + 180.0,
        height + 50.0
    );
    for (name, peak) in &peaks.compute {
        let ridge = (peak / peaks.bandwidth).clamp(left, right);
        let _ = writeln!(
            out,
            "<path class=\"roof\" d=\"M{:.1} {:.1} L{:.1} {:.1} H{width}\"/><text x=\"{}\" y=\"{:.1}\">{} {peak:.0}</text>",
            x(left),
            y(left * peaks.bandwidth),
            x(ridge),
            y(*peak),
            width + 6.0,
            y(*peak) + 4.0,
            safe(name)
        );
    }
    for point in points {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\"><title>{}: {:.3} operations a byte, {:.3} GFLOP/s, {:.1} % of the time</title></circle>",
            x(point.intensity),
            y(point.performance),
            4.0 + point.percent / 12.0,
            safe(&point.name),
            point.intensity,
            point.performance,
            point.percent
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"{}\">{left} to {right} operations per byte of memory; up to {top:.0} GFLOP/s; memory {:.0} GB/s; peaks {}</text>\n</svg>",
        height + 30.0,
        peaks.bandwidth,
        peaks.origin()
    );
    out
}
