//! Where on the device a value was counted.

use std::fmt;

/// A way in which the units of a device are numbered. The discriminants are the positions of
/// `rocprofiler_counter_dimension_id_t` in AMD's record ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dimension {
    /// Accelerator complex die.
    Xcc = 1,
    /// Active interposer die.
    Aid = 2,
    /// Shader engine.
    ShaderEngine = 3,
    /// Agent.
    Agent = 4,
    /// Shader array.
    ShaderArray = 5,
    /// Workgroup processor.
    Wgp = 6,
    /// Instance of the block.
    Instance = 7,
}

impl Dimension {
    /// All dimensions, in the order of the discriminants.
    pub const ALL: [Dimension; 7] = [
        Dimension::Xcc,
        Dimension::Aid,
        Dimension::ShaderEngine,
        Dimension::Agent,
        Dimension::ShaderArray,
        Dimension::Wgp,
        Dimension::Instance,
    ];

    /// Returns AMD's name, as it appears in results and in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Xcc => "DIMENSION_XCC",
            Dimension::Aid => "DIMENSION_AID",
            Dimension::ShaderEngine => "DIMENSION_SHADER_ENGINE",
            Dimension::Agent => "DIMENSION_AGENT",
            Dimension::ShaderArray => "DIMENSION_SHADER_ARRAY",
            Dimension::Wgp => "DIMENSION_WGP",
            Dimension::Instance => "DIMENSION_INSTANCE",
        }
    }

    /// Returns the dimension with this name of AMD's.
    pub fn named(name: &str) -> Option<Dimension> {
        Dimension::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Returns the dimension with this number in AMD's packet library.
    pub fn of_library(number: i32) -> Option<Dimension> {
        Some(match number {
            0 => Dimension::Xcc,
            1 => Dimension::Aid,
            2 => Dimension::ShaderEngine,
            3 => Dimension::ShaderArray,
            4 => Dimension::Wgp,
            5 => Dimension::Instance,
            _ => return None,
        })
    }

    fn shift(self) -> u32 {
        (self as u32 - 1) * Position::BITS
    }
}

/// A place: a number in each dimension, and 0 in those that the block does not have. The value is
/// the lower part of AMD's `rocprofiler_counter_instance_id_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The number of bits of each dimension.
    const BITS: u32 = 6;
    /// The greatest number in a dimension.
    pub const MAX: u32 = (1 << Self::BITS) - 1;

    /// Returns the number in a dimension.
    pub fn get(self, dimension: Dimension) -> u32 {
        (self.0 >> dimension.shift()) as u32 & Self::MAX
    }

    /// Returns the position with another number in a dimension. A number above [`Position::MAX`] is
    /// truncated.
    #[must_use]
    pub fn with(self, dimension: Dimension, number: u32) -> Position {
        let cleared = self.0 & !(u64::from(Self::MAX) << dimension.shift());
        Position(cleared | u64::from(number & Self::MAX) << dimension.shift())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_keeps_its_numbers_apart() {
        let mut position = Position::default();
        for (n, dimension) in Dimension::ALL.into_iter().enumerate() {
            position = position.with(dimension, n as u32 + 57);
            assert_eq!(Dimension::named(dimension.name()), Some(dimension));
        }
        for (n, dimension) in Dimension::ALL.into_iter().enumerate() {
            assert_eq!(position.get(dimension), n as u32 + 57);
        }
        assert_eq!(position.with(Dimension::Aid, 0).get(Dimension::Aid), 0);
        // As in AMD's ids: shader engine 5 is in bits 12-17.
        assert_eq!(
            Position::default().with(Dimension::ShaderEngine, 5),
            Position(5 << 12)
        );
    }
}
