//! What counters count, in a sentence each: the best known ones by name, the others by what the
//! table says about them. The words are ours. A name that tells nothing is not explained further.

use crate::architecture::Definition;

/// What blocks are.
const BLOCKS: [(&str, &str); 11] = [
    ("CPC", "the command processor's part for compute"),
    ("CPF", "the command processor's part that fetches packets"),
    ("GL2C", "the L2 cache"),
    ("GRBM", "the register bus, which sees what is busy"),
    ("SPI", "the launcher of workgroups and waves"),
    ("SQ", "the sequencers of waves and instructions"),
    ("TA", "the addressing of vector memory"),
    ("TCA", "the way from the L1 caches to the L2 cache"),
    ("TCC", "the L2 cache"),
    ("TCP", "the vector L1 caches"),
    ("TD", "the data that comes back from vector memory"),
];

/// The best known counters.
const KNOWN: [(&str, &str); 45] = [
    (
        "BANDWIDTH_EA",
        "Bytes between the L2 cache and memory in a cycle",
    ),
    ("FETCH_SIZE", "KiB that were read from memory"),
    ("GPU_UTIL", "Percent of the time in which the GPU had work"),
    ("GRBM_COUNT", "Cycles"),
    ("GRBM_GUI_ACTIVE", "Cycles in which the GPU had work"),
    (
        "LDSBankConflict",
        "Percent of the time in which LDS waited for a bank",
    ),
    ("MAX_WAVE_SIZE", "Work-items of a wave"),
    (
        "MeanOccupancyPerActiveCU",
        "Waves on a compute unit that has any, on average",
    ),
    ("MeanOccupancyPerCU", "Waves on a compute unit, on average"),
    (
        "MemUnitStalled",
        "Percent of the time in which vector memory was stalled",
    ),
    (
        "OccupancyPercent",
        "Waves on the GPU, in percent of those that fit",
    ),
    (
        "SALUBusy",
        "Percent of the time in which scalar instructions were carried out",
    ),
    (
        "SPI_CSN_BUSY",
        "Cycles in which the launcher had compute work",
    ),
    ("SPI_CSN_NUM_THREADGROUPS", "Workgroups that were launched"),
    ("SPI_CSN_WAVE", "Waves that were launched"),
    (
        "SQ_BUSY_CU_CYCLES",
        "Cycles in which compute units had a wave, in units of four, summed over them",
    ),
    (
        "SQ_BUSY_CYCLES",
        "Cycles in which a shader engine had a wave",
    ),
    ("SQ_CYCLES", "Cycles of the sequencers"),
    ("SQ_IFETCH", "Fetches of instructions"),
    ("SQ_INSTS", "Instructions"),
    ("SQ_INSTS_BRANCH", "Branches"),
    ("SQ_INSTS_FLAT", "Instructions of flat memory"),
    ("SQ_INSTS_GDS", "Instructions of GDS"),
    ("SQ_INSTS_LDS", "Instructions of LDS"),
    ("SQ_INSTS_SALU", "Scalar instructions"),
    ("SQ_INSTS_SENDMSG", "Messages that were sent"),
    ("SQ_INSTS_SMEM", "Instructions of scalar memory"),
    ("SQ_INSTS_VALU", "Vector instructions"),
    ("SQ_INSTS_VMEM", "Instructions of vector memory"),
    (
        "SQ_INSTS_VMEM_RD",
        "Reads of vector memory, in instructions",
    ),
    (
        "SQ_INSTS_VMEM_WR",
        "Writes of vector memory, in instructions",
    ),
    ("SQ_ITEMS", "Work-items"),
    (
        "SQ_LDS_BANK_CONFLICT",
        "Cycles in which LDS waited for a bank",
    ),
    ("SQ_LEVEL_WAVES", "Waves that are there, for sums over time"),
    (
        "SQ_WAIT_ANY",
        "Time that waves spent waiting for anything, summed over them",
    ),
    ("SQ_WAVES", "Waves that were launched"),
    (
        "SQ_WAVE_CYCLES",
        "Time of waves on compute units, summed over them",
    ),
    ("TCC_ATOMIC", "Atomic requests to the L2 cache"),
    ("TCC_HIT", "Requests that the L2 cache had the data for"),
    (
        "TCC_MISS",
        "Requests that the L2 cache did not have the data for",
    ),
    ("TCC_READ", "Reads from the L2 cache"),
    ("TCC_REQ", "Requests to the L2 cache"),
    ("TCC_WRITE", "Writes to the L2 cache"),
    (
        "VALUBusy",
        "Percent of the time in which vector instructions were carried out",
    ),
    ("WRITE_SIZE", "KiB that were written to memory"),
];

/// Returns a description of a counter.
pub(crate) fn describe(name: &str, definition: Definition) -> String {
    if let Ok(at) = KNOWN.binary_search_by(|(known, _)| (*known).cmp(name)) {
        return KNOWN.get(at).map_or("", |(_, text)| text).to_owned();
    }
    match definition {
        Definition::Basic { block, event } => {
            let known = BLOCKS.iter().find(|(known, _)| *known == block);
            match known {
                Some((_, text)) => format!("Event {event} of {block}, {text}"),
                None => format!("Event {event} of {block}"),
            }
        }
        Definition::Derived { expression } => {
            reduced(expression).unwrap_or_else(|| "Computed from other counters".to_owned())
        }
    }
}

/// Returns `reduce(NAME, HOW)` in words.
fn reduced(expression: &str) -> Option<String> {
    let inner = expression
        .trim()
        .strip_prefix("reduce(")?
        .strip_suffix(')')?;
    let (of, how) = inner.rsplit_once(',')?;
    let how = match how.trim() {
        "sum" => "Sum",
        "max" => "Highest",
        "min" => "Lowest",
        "avr" => "Mean",
        _ => return None,
    };
    let of = of.trim();
    let is_name = of.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| format!("{how} of {of} over its places"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;

    #[test]
    fn known_names_are_sorted_and_counters_of_some_gpu() {
        assert!(KNOWN.is_sorted_by(|(one, _), (other, _)| one < other));
        for (name, _) in KNOWN {
            let mut all = Architecture::all().iter();
            assert!(all.any(|gpu| gpu.counter(name).is_some()), "{name}");
        }
        for gpu in Architecture::all() {
            for block in gpu.blocks {
                assert!(
                    BLOCKS.iter().any(|(name, _)| *name == block.name)
                        || !gpu.counters.iter().any(|counter| matches!(counter.definition, Definition::Basic { block: of, .. } if of == block.name)),
                    "{}",
                    block.name
                );
            }
        }
    }

    #[test]
    fn others_are_described_by_what_is_known() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        let of = |name: &str| describe(name, gfx942.counter(name).unwrap().definition);
        assert_eq!(of("SQ_WAVES"), "Waves that were launched");
        assert_eq!(of("TCC_HIT_sum"), "Sum of TCC_HIT over its places");
        assert_eq!(
            of("CPC_CPC_STAT_BUSY"),
            "Event 25 of CPC, the command processor's part for compute"
        );
        assert_eq!(of("TOTAL_16_OPS"), "Computed from other counters");
    }
}
