//! What a counter cannot exceed.
//!
//! A percentage is at most 100, and a part of some events is at most as many as these. A value that
//! is certainly above its bound says that the counter does not count what its name says, on this
//! GPU or with this driver. It is shown as it is, with a remark; nothing is cut off.

use crate::expression::{Expression, Operator};
use crate::plan::Wanted;

/// What the values of a counter cannot exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// 100, since it is a percentage.
    Hundred,
    /// This counter, of which it is a part. Its sum over a block has the same name with `_sum`.
    Whole(&'static str),
}

/// Counters that count a part of what another one counts (source: `docs/sources.md#counters`).
const PARTS: [(&str, &str); 7] = [
    ("GRBM_GUI_ACTIVE", "GRBM_COUNT"),
    ("SQC_DCACHE_HITS", "SQC_DCACHE_REQ"),
    ("SQC_ICACHE_HITS", "SQC_ICACHE_REQ"),
    ("TCC_ATOMIC", "TCC_REQ"),
    ("TCC_HIT", "TCC_REQ"),
    ("TCC_MISS", "TCC_REQ"),
    ("TCP_UTCL1_TRANSLATION_HIT", "TCP_UTCL1_REQUEST"),
];

const SUM: &str = "_sum";

impl Bound {
    /// Returns the bound of a counter, where one is known.
    pub fn of(wanted: &Wanted) -> Option<Bound> {
        if wanted.expression.as_ref().is_some_and(is_percentage) {
            return Some(Bound::Hundred);
        }
        let name = base(wanted.name);
        let part = PARTS.iter().find(|(part, _)| *part == name);
        part.map(|(_, whole)| Bound::Whole(whole))
    }
}

/// Returns the name of the counter whose sum over a block this name means, or the name itself.
pub fn base(name: &str) -> &str {
    name.strip_suffix(SUM).unwrap_or(name)
}

/// Whether a definition is a quotient times 100.
fn is_percentage(expression: &Expression) -> bool {
    let (mut hundred, mut quotient) = (false, false);
    let mut rest = vec![expression];
    while let Some(factor) = rest.pop() {
        match factor {
            Expression::Number(number) => hundred |= *number == 100.0,
            Expression::Both(left, Operator::Multiply, right) => rest.extend([&**left, &**right]),
            Expression::Both(left, Operator::Divide, _) => {
                quotient = true;
                rest.push(left);
            }
            _ => {}
        }
    }
    hundred && quotient
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;

    fn bound(gpu: &str, name: &str) -> Option<Bound> {
        Bound::of(&Architecture::find(gpu).unwrap().wanted(name).unwrap())
    }

    #[test]
    fn percentages_and_parts_are_known_by_their_definitions_and_names() {
        for name in ["GPU_UTIL", "LDSBankConflict", "VALUUtilization", "MfmaUtil"] {
            assert_eq!(bound("gfx942", name), Some(Bound::Hundred), "{name}");
        }
        for name in ["TCC_HIT", "TCC_HIT_sum", "TCC_MISS_sum"] {
            assert_eq!(bound("gfx942", name), Some(Bound::Whole("TCC_REQ")));
        }
        for name in [
            "TCC_REQ_sum",
            "SQ_WAVES",
            "MeanOccupancyPerCU",
            "FETCH_SIZE",
        ] {
            assert_eq!(bound("gfx942", name), None, "{name}");
        }
        assert_eq!(bound("gfx90a", "L2CacheHit"), Some(Bound::Hundred));
        let is = |text| is_percentage(&Expression::parse(text).unwrap());
        assert!(is("A/B*100") && is("100*A/(B+C)/D"));
        assert!(!is("100*A") && !is("A/(100*B)") && !is("A/B") && !is("100-A/B"));
    }

    #[test]
    fn every_part_has_its_whole_on_the_same_gpu() {
        for (part, whole) in PARTS {
            let all = Architecture::all().iter();
            let with: Vec<_> = all.filter(|gpu| gpu.counter(part).is_some()).collect();
            assert!(!with.is_empty(), "{part}");
            for gpu in with {
                assert!(gpu.counter(whole).is_some(), "{}: {whole}", gpu.name);
            }
        }
    }
}
