//! The levels of memory that limit kernels: what they are called, how fast they are, and what
//! kernels move at each.

use super::{INTENSITY, PERFORMANCE, formula};
use crate::architecture::Architecture;
use midair_failure::{Failure, Kind};

/// A level of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The GPU's memory.
    Hbm,
    /// The cache that all compute units share.
    L2,
    /// The vector cache of a compute unit.
    Vl1d,
    /// What a workgroup shares.
    Lds,
}

impl Level {
    /// All levels, from the slowest to the fastest.
    pub const ALL: [Level; 4] = [Level::Hbm, Level::L2, Level::Vl1d, Level::Lds];

    /// Returns the word of `--roofline-mem-level`.
    pub fn word(self) -> &'static str {
        match self {
            Level::Hbm => "HBM",
            Level::L2 => "L2",
            Level::Vl1d => "vL1D",
            Level::Lds => "LDS",
        }
    }

    /// Returns the levels that these words name; without words, or for ALL, each.
    ///
    /// # Errors
    /// When a word names none.
    pub fn read(words: &[String]) -> Result<Vec<Level>, Failure> {
        let mut chosen = Vec::new();
        for word in words.iter().flat_map(|word| word.split([',', ' '])) {
            let word = word.trim();
            let is = |name: &str| name.eq_ignore_ascii_case(word);
            match Level::ALL.into_iter().find(|level| is(level.word())) {
                Some(level) => chosen.push(level),
                None if is("ALL") => chosen.extend(Level::ALL),
                None if word.is_empty() => {}
                None => {
                    let known = Level::ALL.map(Level::word).join(", ");
                    return Err(Failure::new(
                        Kind::Usage,
                        format!("no level of memory is called {word}"),
                    )
                    .hint(format!("known are {known}")));
                }
            }
        }
        Ok(match chosen.is_empty() {
            true => Level::ALL.to_vec(),
            false => Level::ALL
                .into_iter()
                .filter(|level| chosen.contains(level))
                .collect(),
        })
    }

    /// Returns the name of the measured bandwidth in `roofline.csv`.
    pub(super) fn peak(self) -> &'static str {
        match self {
            Level::Hbm => "HBMBw",
            Level::L2 => "L2Bw",
            Level::Vl1d => "L1Bw",
            Level::Lds => "LDSBw",
        }
    }

    /// Returns the bandwidth of the specification, in GB/s, as in the shorthands and peaks of the
    /// tables. `get` returns a property of the machine.
    pub(super) fn specified(
        self,
        architecture: &str,
        get: impl Fn(&str) -> Option<f64>,
    ) -> Option<f64> {
        // The bytes that a cache delivers in a clock.
        let line = match architecture {
            "gfx908" | "gfx90a" => 64.0,
            _ => 128.0,
        };
        let clock = || Some(get("max_sclk")? / 1000.0);
        Some(match self {
            Level::Hbm => {
                let channels = get("num_hbm_channels").or_else(|| get("num_memory_channels"))?;
                get("max_mclk")? / 1000.0 * 32.0 * channels
            }
            Level::L2 => clock()? * line * get("total_l2_chan")?,
            Level::Vl1d => clock()? * line * get("cu_per_gpu")?,
            Level::Lds => clock()? * 128.0 * get("cu_per_gpu")?,
        })
    }
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
    (F8) => {
        concat!(operations!(), " + 512 * SQ_INSTS_VALU_MFMA_MOPS_F8")
    };
}

/// Operations over these bytes.
macro_rules! per {
    ($bytes:literal $($kind:tt)?) => {
        concat!("SUM(", operations!($($kind)?), ") / SUM(", $bytes, ")")
    };
}

/// Returns the expression of the operations per byte of a level: the tables' expression where they
/// have one, otherwise made of the operations and bytes that the tables count. The counters of
/// gfx908 do not tell kinds of operations apart.
pub(crate) fn intensity(architecture: &'static Architecture, level: Level) -> Option<&'static str> {
    Some(match (architecture.name, level) {
        ("gfx90a", Level::Hbm) => per!(
            "TCC_EA_RDREQ_32B_sum * 32 + (TCC_EA_RDREQ_sum - TCC_EA_RDREQ_32B_sum) * 64 \
             + TCC_EA_WRREQ_64B_sum * 64 + (TCC_EA_WRREQ_sum - TCC_EA_WRREQ_64B_sum) * 32"
        ),
        ("gfx950", Level::Hbm) => per!(
            "TCC_EA0_RDREQ_32B_sum * 32 + TCC_EA0_RDREQ_64B_sum * 64 + TCC_EA0_RDREQ_128B_sum * 128 \
             + TCC_EA0_WRREQ_64B_sum * 64 + (TCC_EA0_WRREQ_sum - TCC_EA0_WRREQ_64B_sum) * 32"
        ),
        (_, Level::Hbm) => formula(architecture, INTENSITY)?,
        ("gfx90a", Level::L2) => per!(
            "64 * (TCP_TCC_READ_REQ_sum + TCP_TCC_WRITE_REQ_sum + TCP_TCC_ATOMIC_WITH_RET_REQ_sum \
             + TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum)"
        ),
        // As in table 4.2 of 2026.
        ("gfx942", Level::L2) => per!(
            "64 * (TCP_TCC_READ_REQ_sum + TCP_TCC_WRITE_REQ_sum + TCP_TCC_ATOMIC_WITH_RET_REQ_sum \
             + TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum)" F8
        ),
        ("gfx950", Level::L2) => per!(
            "128 * TCP_TCC_READ_REQ_sum + 64 * (TCP_TCC_WRITE_REQ_sum + TCP_TCC_ATOMIC_WITH_RET_REQ_sum \
             + TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum)"
        ),
        ("gfx90a", Level::Vl1d) => per!("64 * TCP_TOTAL_CACHE_ACCESSES_sum"),
        ("gfx942", Level::Vl1d) => per!("64 * TCP_TOTAL_CACHE_ACCESSES_sum" F8),
        ("gfx950", Level::Vl1d) => per!("128 * TCP_TOTAL_CACHE_ACCESSES_sum"),
        ("gfx90a" | "gfx950", Level::Lds) => {
            per!("(SQ_LDS_IDX_ACTIVE - SQ_LDS_BANK_CONFLICT) * 4 * $lds_banks_per_cu")
        }
        ("gfx942", Level::Lds) => {
            per!("(SQ_LDS_IDX_ACTIVE - SQ_LDS_BANK_CONFLICT) * 4 * $lds_banks_per_cu" F8)
        }
        _ => return None,
    })
}

/// Returns the expression of 10⁹ operations a second.
pub(crate) fn performance(architecture: &'static Architecture) -> Option<&'static str> {
    match architecture.name {
        "gfx90a" | "gfx950" => Some(concat!(
            "SUM(",
            operations!(),
            ") / SUM(End_Timestamp - Start_Timestamp)"
        )),
        _ => formula(architecture, PERFORMANCE),
    }
}
