//! Reads the machine code of an exported runtime function and finds the table that it jumps
//! through.
//!
//! The decoder of each processor follows the straight path, tracks the values that matter (is it the
//! table's address?), and gives up on anything else.

#[cfg(any(target_arch = "aarch64", test))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::stub;
#[cfg(target_arch = "x86_64")]
pub use x86_64::stub;

use super::maps::Maps;

/// What a stub does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stub {
    /// Address of the table; `None` when the runtime has not made it yet.
    pub table: Option<u64>,
    /// Offset of the entry that it jumps through.
    pub offset: u32,
    /// The runtime's own function that returns the table, and creates it if necessary: each stub
    /// calls it first.
    pub getter: Option<usize>,
}

/// Why a function is not a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAStub {
    /// Its code could not be read.
    Unreadable,
    /// It does something else.
    OtherCode,
}

/// The most reads that lead to a table's address: one of a reference, and one of what that refers
/// to.
const MOST_READS: u8 = 2;

/// Where a table's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// It is this address,
    address: u64,
    /// or what is found there by reading so often,
    reads: u8,
    /// once the byte here is set (a function-local static's guard).
    guard: Option<u64>,
}

impl Place {
    fn at(address: u64, guard: Option<u64>) -> Place {
        Place {
            address,
            reads: 0,
            guard,
        }
    }

    /// Returns the place that is found by reading this one.
    fn read(self) -> Place {
        Place {
            reads: self.reads + 1,
            ..self
        }
    }

    fn resolve(self, maps: &Maps) -> Option<u64> {
        if let Some(guard) = self.guard {
            let mut byte = [0];
            if !maps.read(guard as usize, &mut byte) || byte == [0] {
                return None;
            }
        }
        (0..self.reads).try_fold(self.address, |at, _| {
            maps.read_u64(at as usize).filter(|table| *table != 0)
        })
    }
}

fn code_at(maps: &Maps, address: usize, len: usize) -> Result<Vec<u8>, NotAStub> {
    if !maps.is_text(address) {
        return Err(NotAStub::Unreadable);
    }
    // The function may be the last one of its mapping.
    let mut len = len;
    while len >= 16 {
        let mut code = vec![0; len];
        if maps.read(address, &mut code) {
            return Ok(code);
        }
        len /= 2;
    }
    Err(NotAStub::Unreadable)
}
