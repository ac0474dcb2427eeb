//! Which counters a GPU has.

/// Counters of one GPU architecture.
#[derive(Debug)]
pub struct Architecture {
    /// "gfx942".
    pub name: &'static str,
    /// Sorted by name.
    pub counters: &'static [Counter],
    /// Sorted by name.
    pub blocks: &'static [Block],
}

/// A counter, as AMD's definitions have it.
#[derive(Debug)]
pub struct Counter {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub definition: Definition,
}

/// What a counter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// An event that a block of the hardware counts.
    Basic {
        /// The block.
        block: &'static str,
        /// The number of the event there.
        event: u32,
    },
    /// Computed from others.
    Derived {
        /// See [`crate::expression`].
        expression: &'static str,
    },
}

/// A block of the hardware.
#[derive(Debug)]
pub struct Block {
    /// "SQ".
    pub name: &'static str,
    /// How many events each of its instances can count at once.
    pub counters: u32,
}

include!(concat!(env!("OUT_DIR"), "/counters.rs"));

impl Architecture {
    /// The architecture of a GPU by its target ("gfx942"; features behind a colon do not matter).
    pub fn find(target: &str) -> Option<&'static Architecture> {
        let name = target.split(':').next().unwrap_or(target);
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// All that are known.
    pub fn all() -> &'static [Architecture] {
        ARCHITECTURES
    }

    /// A counter by its name.
    pub fn counter(&self, name: &str) -> Option<&'static Counter> {
        let at = self.counters.binary_search_by(|c| c.name.cmp(name)).ok()?;
        self.counters.get(at)
    }

    /// How many events each instance of a block can count at once.
    pub fn limit(&self, block: &str) -> Option<u32> {
        let block = self.blocks.iter().find(|b| b.name == block)?;
        Some(block.counters)
    }

    /// At most three names that resemble one that there is not, the nearest first.
    pub fn nearest(&self, name: &str) -> Vec<&'static str> {
        let wanted = name.to_ascii_uppercase();
        let mut found: Vec<(usize, &'static str)> = self
            .counters
            .iter()
            .map(|c| (distance(&wanted, &c.name.to_ascii_uppercase()), c.name))
            .filter(|(distance, _)| *distance <= wanted.len() / 3)
            .collect();
        found.sort();
        found.into_iter().take(3).map(|(_, name)| name).collect()
    }
}

/// How many characters have to be put in, left out, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let gfx942 = Architecture::find("gfx942:sramecc+:xnack-").unwrap();
        assert_eq!(gfx942.name, "gfx942");
        assert_eq!(
            gfx942.counter("SQ_WAVES").unwrap().definition,
            Definition::Basic {
                block: "SQ",
                event: 4
            }
        );
        assert!(matches!(
            gfx942.counter("CU_NUM").unwrap().definition,
            Definition::Derived {
                expression: "simd_count/simd_per_cu"
            }
        ));
        assert_eq!(
            (gfx942.limit("SQ"), gfx942.limit("GRBM"), gfx942.limit("?")),
            (Some(8), Some(2), None)
        );
        assert_eq!(Architecture::all().len(), 6);
        assert!(Architecture::find("gfx900").is_none());
        for architecture in Architecture::all() {
            for counter in architecture.counters {
                if let Definition::Basic { block, .. } = counter.definition {
                    assert!(architecture.limit(block).is_some(), "{}", counter.name);
                }
            }
        }
    }

    #[test]
    fn the_name_that_was_meant_is_found() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        assert_eq!(gfx942.nearest("SQ_WAVE")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("sq_waves")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("SQ_WAEVS")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("GRBM_GUI_ACTVE")[0], "GRBM_GUI_ACTIVE");
        assert!(gfx942.nearest("nothing like it").is_empty());
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "acb"), 1);
    }
}
