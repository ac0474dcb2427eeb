//! The open regions of a thread.

/// How many regions can be open in one thread at one time: nested parallel regions, their work, and
/// waits in these.
pub const MAX_REGIONS: usize = 32;

/// A region of OpenMP that has started.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// When it started, ns.
    pub start: u64,
    /// Its correlation id.
    pub correlation: u64,
    /// The correlation id of the region or call around it.
    pub ancestor: u64,
    /// Operation.
    pub operation: u32,
    /// Bits of [`midair_record::event::flag`], as they were when it started.
    pub flags: u8,
    /// Whether it becomes a record.
    pub recorded: bool,
}

/// The stack of open regions. Zeroed memory is an empty one.
#[derive(Debug)]
pub struct Regions {
    /// How many are open.
    pub depth: usize,
    /// How many of those that started in these exceeded the capacity.
    pub over: usize,
    /// The regions; the first `depth` are valid.
    pub open: [Region; MAX_REGIONS],
}

impl Regions {
    /// Adds a region; the caller has seen that there is room.
    pub fn push(&mut self, region: Region) {
        if let Some(place) = self.open.get_mut(self.depth) {
            *place = region;
            self.depth += 1;
        }
    }

    /// Takes the innermost region of this operation, and gives up those in it, which were
    /// abandoned (a cancelled construct has no ends). Returns its place as well.
    pub fn pop(&mut self, operation: u32) -> Option<(usize, Region)> {
        let open = self.open.get(..self.depth)?;
        let at = open
            .iter()
            .rposition(|region| region.operation == operation)?;
        self.depth = at;
        self.open.get(at).map(|region| (at, *region))
    }

    /// Returns the correlation id of the innermost open region that has one; 0 for none.
    pub fn innermost(&self) -> u64 {
        let open = self.open.get(..self.depth).unwrap_or_default();
        let mut ids = open.iter().rev().map(|region| region.correlation);
        ids.find(|id| *id != 0).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(operation: u32, correlation: u64) -> Region {
        Region {
            start: 1,
            correlation,
            ancestor: 0,
            operation,
            flags: 0,
            recorded: true,
        }
    }

    #[test]
    fn an_end_takes_the_innermost_region_of_its_operation() {
        let mut regions = Regions {
            depth: 0,
            over: 0,
            open: [region(0, 0); MAX_REGIONS],
        };
        let taken = |regions: &mut Regions, operation| {
            let popped = regions.pop(operation);
            popped.map(|(at, region)| (at, region.correlation))
        };
        assert_eq!((regions.innermost(), taken(&mut regions, 0)), (0, None));
        regions.push(region(6, 1));
        regions.push(region(16, 2));
        regions.push(region(10, 0));
        assert_eq!(regions.innermost(), 2);
        assert_eq!(taken(&mut regions, 14), None);
        assert_eq!(regions.depth, 3);
        // The wait in it has no end.
        assert_eq!(taken(&mut regions, 16), Some((1, 2)));
        assert_eq!((regions.depth, regions.innermost()), (1, 1));
        regions.push(region(6, 5));
        assert_eq!(taken(&mut regions, 6), Some((1, 5)));
        assert_eq!(taken(&mut regions, 6), Some((0, 1)));
        assert_eq!(taken(&mut regions, 6), None);
        for _ in 0..2 * MAX_REGIONS {
            regions.push(region(1, 1));
        }
        assert_eq!(regions.depth, MAX_REGIONS);
    }
}
