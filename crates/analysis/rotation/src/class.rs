//! Dispatches whose counts may be compared.

use crate::random::mix;

/// What makes dispatches of one agent comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Class {
    /// Handle of the kernel's code.
    pub kernel_object: u64,
    /// Work-items in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a workgroup in each dimension.
    pub workgroup: [u16; 3],
    /// Bytes of LDS that a workgroup has.
    pub lds: u32,
}

/// A class as a number, which is never 0. Two classes have the same number with a probability of
/// 2^-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassKey(u64);

impl Class {
    /// Returns its number.
    #[inline]
    pub fn key(&self) -> ClassKey {
        let [x, y, z] = self.grid.map(u64::from);
        let [a, b, c] = self.workgroup.map(u64::from);
        let mut key = mix(self.kernel_object);
        key = mix(key ^ (x | y << 32));
        key = mix(key ^ (z | u64::from(self.lds) << 32));
        key = mix(key ^ (a | b << 16 | c << 32));
        ClassKey(key.max(1))
    }
}

impl ClassKey {
    /// Returns the number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the class of a number that [`ClassKey::number`] returned; None for 0.
    #[inline]
    pub fn of(number: u64) -> Option<ClassKey> {
        (number != 0).then_some(ClassKey(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_part_makes_another_class() {
        let class = Class {
            kernel_object: 0x7f00_1000,
            grid: [1, 2, 3],
            workgroup: [4, 5, 6],
            lds: 7,
        };
        let mut all = vec![class; 9];
        all[1].kernel_object += 64;
        for n in 0..3 {
            all[2 + n].grid[n] += 1;
            all[5 + n].workgroup[n] += 1;
        }
        all[8].lds += 1;
        let keys: HashSet<ClassKey> = all.iter().map(Class::key).collect();
        assert_eq!(keys.len(), all.len());
        // Swapped sizes make another class, too.
        let swapped = Class {
            grid: [2, 1, 3],
            ..class
        };
        assert_ne!(swapped.key(), class.key());
        assert_eq!(ClassKey::of(class.key().number()), Some(class.key()));
        assert_eq!(ClassKey::of(0), None);
    }
}
