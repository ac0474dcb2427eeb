//! The numbers of a device's units.

/// A device's units. The totals are those of all its XCCs, as in AMD's descriptions of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu {
    /// Accelerator complex dies. Each runs every indirect buffer by itself.
    pub xccs: u32,
    /// Shader engines in all of them.
    pub engines: u32,
    /// Compute units in all of them.
    pub units: u32,
    /// Shader arrays of an engine.
    pub arrays: u32,
}

impl Default for Gpu {
    /// Returns the lab's gfx942: one XCC, and the compute units that its topology files have.
    fn default() -> Gpu {
        Gpu {
            xccs: 1,
            engines: 8,
            units: 104,
            arrays: 1,
        }
    }
}

impl Gpu {
    /// Reads `XCCS,ENGINES,UNITS,ARRAYS`.
    pub fn parse(text: &str) -> Option<Gpu> {
        let mut numbers = text.split(',').map(|n| n.parse().ok());
        let gpu = Gpu {
            xccs: numbers.next()??,
            engines: numbers.next()??,
            units: numbers.next()??,
            arrays: numbers.next()??,
        };
        let sane = (1..=8).contains(&gpu.xccs)
            && gpu.engines >= gpu.xccs
            && gpu.engines.is_multiple_of(gpu.xccs)
            && gpu.units >= gpu.engines
            && gpu.arrays >= 1;
        (sane && numbers.next().is_none()).then_some(gpu)
    }

    /// Returns the number of shader engines of one XCC.
    pub fn engines_of_xcc(&self) -> u32 {
        self.engines / self.xccs
    }

    /// Returns the number of compute units of an engine; engines are counted from 0 over all XCCs.
    /// Units are spread as evenly as possible, so the first engines have one more.
    pub fn units_of_engine(&self, engine: u32) -> u32 {
        self.units / self.engines + u32::from(engine < self.units % self.engines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_whole_or_refused() {
        let mi300x = Gpu::parse("8,32,304,1").unwrap();
        assert_eq!(mi300x.engines_of_xcc(), 4);
        let units: u32 = (0..32).map(|engine| mi300x.units_of_engine(engine)).sum();
        assert_eq!(units, 304);
        for bad in [
            "",
            "8,32,304",
            "8,32,304,1,1",
            "3,32,304,1",
            "0,0,0,0",
            "1,8,4,1",
            "x,1,1,1",
        ] {
            assert_eq!(Gpu::parse(bad), None, "{bad}");
        }
    }
}
