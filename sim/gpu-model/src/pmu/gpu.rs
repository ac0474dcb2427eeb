//! The numbers of a device's units.

/// Kinds of devices whose registers and units differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Up to gfx950: an engine counts for all its compute units.
    Gfx9,
    /// gfx11: two compute units of an array are a WGP.
    Gfx11,
    /// gfx12: the same, and units are named by WGP and place in it.
    Gfx12,
}

/// A device's units. The totals cover all its XCCs, as in AMD's descriptions of agents.
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
    /// What they are.
    pub family: Family,
}

impl Default for Gpu {
    /// Returns the lab's gfx942: one XCC, and the compute units that its topology files have.
    fn default() -> Gpu {
        Gpu {
            xccs: 1,
            engines: 8,
            units: 104,
            arrays: 1,
            family: Family::Gfx9,
        }
    }
}

impl Gpu {
    /// Reads `XCCS,ENGINES,UNITS,ARRAYS`, and `gfx11` or `gfx12` behind it.
    pub fn parse(text: &str) -> Option<Gpu> {
        let mut words = text.split(',');
        let mut number = || words.next()?.parse().ok();
        let gpu = Gpu {
            xccs: number()?,
            engines: number()?,
            units: number()?,
            arrays: number()?,
            family: match words.next() {
                None => Family::Gfx9,
                Some("gfx11") => Family::Gfx11,
                Some("gfx12") => Family::Gfx12,
                Some(_) => return None,
            },
        };
        let sane = (1..=8).contains(&gpu.xccs)
            && gpu.engines >= gpu.xccs
            && gpu.engines.is_multiple_of(gpu.xccs)
            && gpu.units >= gpu.engines
            && gpu.arrays >= 1;
        (sane && words.next().is_none()).then_some(gpu)
    }

    /// Returns which units of an array a WGP has.
    pub fn units_of_wgp(wgp: u32) -> [u32; 2] {
        [2 * wgp, 2 * wgp + 1]
    }

    /// Returns the place in its array of the unit that an instance of `GRBM_GFX_INDEX` names.
    pub fn unit_named(&self, instance: u32) -> u32 {
        match self.family {
            Family::Gfx9 | Family::Gfx11 => instance,
            Family::Gfx12 => 2 * (instance >> 2) + (instance & 1),
        }
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
        assert_eq!(mi300x.family, Family::Gfx9);
        let with_wgps = Gpu::parse("1,6,96,2,gfx11").unwrap();
        assert_eq!((with_wgps.arrays, with_wgps.family), (2, Family::Gfx11));
        for bad in [
            "",
            "8,32,304",
            "8,32,304,1,1",
            "1,6,96,2,gfx11,",
            "1,6,96,gfx11",
            "3,32,304,1",
            "0,0,0,0",
            "1,8,4,1",
            "x,1,1,1",
        ] {
            assert_eq!(Gpu::parse(bad), None, "{bad}");
        }
    }
}
