//! What is sampled: our short names, their units, and CUPTI's metrics for each.
//!
//! A metric has several expressions, since chips differ in which metrics they have and in what they
//! can count at once. Those with `Triage` in their names are made to be counted together. On an
//! H100 all of [`METRICS`] fit into one pass; on other chips two groups are multiplexed (source: CUPTI's
//! host interface, asked for each chip; `docs/sources.md#pmsampling`).

/// One thing that can be sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    /// Its name in options and files.
    pub name: &'static str,
    /// Its unit. A percentage is of the peak that the chip can sustain.
    pub unit: &'static str,
    /// What it means.
    pub about: &'static str,
    /// What CUPTI's value is divided by.
    pub divisor: f64,
    /// CUPTI's metrics for it, the best first.
    pub expressions: &'static [&'static str],
}

macro_rules! known {
    ($name:literal, $unit:literal / $divisor:literal, $about:literal, [$($expression:literal),+ $(,)?]) => {
        Known {
            name: $name,
            unit: $unit,
            about: $about,
            divisor: $divisor,
            expressions: &[$($expression),+],
        }
    };
}

/// All metrics, in the order of the tables.
pub const METRICS: &[Known] = &[
    known!(
        "sm_active",
        "%" / 1.0,
        "time with at least one warp on the multiprocessors",
        [
            "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "SM_A.TriageAC.sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
        ]
    ),
    known!(
        "warps",
        "%" / 1.0,
        "warps in flight, relative to the maximum",
        [
            "TPC.TriageCompute.tpc__warps_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__warps_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
        ]
    ),
    known!(
        "issue",
        "%" / 1.0,
        "instructions executed",
        [
            "TPC.TriageCompute.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
            "SM_A.TriageAC.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
        ]
    ),
    known!(
        "tensor",
        "%" / 1.0,
        "busy time of the tensor pipes",
        [
            "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        ]
    ),
    known!(
        "fp64",
        "%" / 1.0,
        "busy time of the double-precision pipes",
        [
            "TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_elapsed",
        ]
    ),
    known!(
        "l1_hit",
        "%" / 1.0,
        "hit rate of the L1 caches",
        [
            "SM_B.TriageCompute.l1tex__t_sector_hit_rate.pct",
            "SM_B.TriageAC.l1tex__t_sector_hit_rate.pct",
            "l1tex__t_sector_hit_rate.pct",
        ]
    ),
    known!(
        "l2_hit",
        "%" / 1.0,
        "hit rate of the L2 cache",
        [
            "LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct",
            "LTS.TriageAC.lts__average_t_sector_hit_rate_realtime.pct",
            "lts__t_sector_hit_rate.pct",
        ]
    ),
    known!(
        "dram_read",
        "GB/s" / 1e9,
        "read from the GPU's memory",
        [
            "dram__bytes_read.sum.per_second",
            "dram__read_bytes.sum.per_second",
            "fbpa__dram_read_bytes.sum.per_second",
        ]
    ),
    known!(
        "dram_write",
        "GB/s" / 1e9,
        "written to the GPU's memory",
        [
            "dram__bytes_write.sum.per_second",
            "dram__write_bytes.sum.per_second",
            "fbpa__dram_write_bytes.sum.per_second",
        ]
    ),
    known!(
        "pcie_read",
        "GB/s" / 1e9,
        "PCIe, reads",
        ["pcie__read_bytes.sum.per_second"]
    ),
    known!(
        "pcie_write",
        "GB/s" / 1e9,
        "PCIe, writes",
        ["pcie__write_bytes.sum.per_second"]
    ),
    known!(
        "nvlink_rx",
        "GB/s" / 1e9,
        "NVLink, received",
        ["nvlrx__bytes.sum.per_second"]
    ),
    known!(
        "nvlink_tx",
        "GB/s" / 1e9,
        "NVLink, sent",
        ["nvltx__bytes.sum.per_second"]
    ),
];

/// Lists of metrics that have a name of their own.
pub const SETS: &[(&str, &[&str])] = &[
    (
        "default",
        &[
            "sm_active",
            "warps",
            "issue",
            "tensor",
            "fp64",
            "l1_hit",
            "l2_hit",
            "dram_read",
            "dram_write",
            "pcie_read",
            "pcie_write",
            "nvlink_rx",
            "nvlink_tx",
        ],
    ),
    (
        "compute",
        &["sm_active", "warps", "issue", "tensor", "fp64"],
    ),
    (
        "memory",
        &["sm_active", "l1_hit", "l2_hit", "dram_read", "dram_write"],
    ),
    (
        "links",
        &["pcie_read", "pcie_write", "nvlink_rx", "nvlink_tx"],
    ),
];

/// A metric that is asked for: a name, CUPTI's expressions for it, and the divisor of their value.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRequest {
    /// Its name in the results.
    pub name: String,
    /// Its unit, or none where CUPTI is to say.
    pub unit: Option<&'static str>,
    /// What CUPTI's value is divided by.
    pub divisor: f64,
    /// CUPTI's expressions, the best first.
    pub expressions: Vec<String>,
}

impl From<&Known> for MetricRequest {
    fn from(known: &Known) -> MetricRequest {
        MetricRequest {
            name: known.name.to_owned(),
            unit: Some(known.unit),
            divisor: known.divisor,
            expressions: known
                .expressions
                .iter()
                .map(|it| (*it).to_owned())
                .collect(),
        }
    }
}

/// A word that is neither a metric nor a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown(pub String);

/// Reads a list of sets, our metrics, and full names of CUPTI's metrics, separated by commas or
/// spaces. An empty list is the default set. Each metric is taken once.
///
/// # Errors
/// The first word that is none of these.
pub fn parse(list: &str) -> Result<Vec<MetricRequest>, Unknown> {
    let mut asked: Vec<MetricRequest> = Vec::new();
    let mut add = |one: MetricRequest| {
        if !asked.iter().any(|known| known.name == one.name) {
            asked.push(one);
        }
    };
    let find = |name: &str| METRICS.iter().find(|known| known.name == name);
    let mut words: Vec<&str> = list
        .split([',', ' '])
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        words.push("default");
    }
    for word in words {
        if let Some((_, names)) = SETS.iter().find(|(name, _)| *name == word) {
            names
                .iter()
                .filter_map(|name| find(name))
                .for_each(|known| add(known.into()));
        } else if let Some(known) = find(word) {
            add(known.into());
        } else if is_of_cupti(word) {
            add(MetricRequest {
                name: word.to_owned(),
                unit: None,
                divisor: 1.0,
                expressions: vec![word.to_owned()],
            });
        } else {
            return Err(Unknown(word.to_owned()));
        }
    }
    Ok(asked)
}

/// Whether a word has the form of CUPTI's metrics, `unit__what.rollup`, and nothing that the helper
/// would read as two words.
fn is_of_cupti(word: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    word.len() < 256 && word.contains("__") && word.contains('.') && word.chars().all(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_of_known_metrics_and_the_default_has_all() {
        for (name, names) in SETS {
            for wanted in *names {
                assert!(
                    METRICS.iter().any(|known| known.name == *wanted),
                    "{name}: {wanted}"
                );
            }
        }
        let all: Vec<String> = parse("")
            .unwrap()
            .into_iter()
            .map(|asked| asked.name)
            .collect();
        let known: Vec<&str> = METRICS.iter().map(|known| known.name).collect();
        assert_eq!(all, known);
    }

    #[test]
    fn lists_take_each_once_and_whole_names_of_cupti() {
        let asked =
            parse("tensor,compute dram_read,sm__warps_active.avg.per_cycle_active").unwrap();
        let names: Vec<&str> = asked.iter().map(|asked| asked.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "tensor",
                "sm_active",
                "warps",
                "issue",
                "fp64",
                "dram_read",
                "sm__warps_active.avg.per_cycle_active"
            ]
        );
        assert_eq!(asked[6].unit, None);
        for wrong in ["tensors", "sm__warps_active", "a__b.c\nd", "../x__.y"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
