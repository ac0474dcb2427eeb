//! Sets of record kinds.

use core::sync::atomic::{AtomicU64, Ordering};

/// A set of the kinds that domains have ([`crate::kind`]), in one word.
///
/// Kinds of descriptions (agents, kernels, queues) are never in a set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(transparent)]
pub struct KindSet(u64);

impl KindSet {
    /// The limit of the kinds that a set has bits for: from 1 to below this. Bit 0 is never set,
    /// since 0 is no kind.
    pub const LIMIT: u8 = 64;
    /// The empty set.
    pub const EMPTY: KindSet = KindSet(0);

    /// Returns the set of exactly these kinds.
    pub const fn of(kinds: &[u8]) -> KindSet {
        let mut set = KindSet::EMPTY;
        let mut at = 0;
        while at < kinds.len() {
            set = set.with(kinds[at]);
            at += 1;
        }
        set
    }

    /// Returns this set with one more kind. A kind that no domain has changes nothing.
    #[inline]
    #[must_use]
    pub const fn with(self, kind: u8) -> KindSet {
        if kind == 0 || kind >= KindSet::LIMIT {
            return self;
        }
        KindSet(self.0 | 1 << kind)
    }

    /// Returns this set, with one more kind if `wanted`.
    #[inline]
    #[must_use]
    pub const fn with_if(self, kind: u8, wanted: bool) -> KindSet {
        if wanted { self.with(kind) } else { self }
    }

    /// Returns the kinds that are in either set.
    #[inline]
    #[must_use]
    pub const fn union(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    /// Returns the kinds that are in both sets.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: KindSet) -> KindSet {
        KindSet(self.0 & other.0)
    }

    /// Returns the kinds that are in this set and not in the other.
    #[inline]
    #[must_use]
    pub const fn without(self, other: KindSet) -> KindSet {
        KindSet(self.0 & !other.0)
    }

    /// Whether a kind is in the set. Costs one shift and one mask where `kind` is a constant.
    #[inline(always)]
    pub const fn contains(self, kind: u8) -> bool {
        kind < KindSet::LIMIT && self.0 >> (kind & (KindSet::LIMIT - 1)) & 1 != 0
    }

    /// Whether the two sets have a kind in common.
    #[inline]
    pub const fn intersects(self, other: KindSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns how many kinds are in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the kinds in ascending order.
    pub const fn iter(self) -> Kinds {
        Kinds(self.0)
    }
}

impl core::fmt::Debug for KindSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = |kind| crate::domain(kind).map_or("?", |domain| domain.name);
        f.debug_set().entries(self.iter().map(name)).finish()
    }
}

impl core::ops::BitOr for KindSet {
    type Output = KindSet;
    #[inline]
    fn bitor(self, other: KindSet) -> KindSet {
        self.union(other)
    }
}

impl core::ops::BitOrAssign for KindSet {
    #[inline]
    fn bitor_assign(&mut self, other: KindSet) {
        *self = self.union(other);
    }
}

impl core::ops::BitAnd for KindSet {
    type Output = KindSet;
    #[inline]
    fn bitand(self, other: KindSet) -> KindSet {
        self.intersection(other)
    }
}

impl core::ops::Sub for KindSet {
    type Output = KindSet;
    #[inline]
    fn sub(self, other: KindSet) -> KindSet {
        self.without(other)
    }
}

impl FromIterator<u8> for KindSet {
    fn from_iter<I: IntoIterator<Item = u8>>(kinds: I) -> KindSet {
        kinds.into_iter().fold(KindSet::EMPTY, KindSet::with)
    }
}

impl IntoIterator for KindSet {
    type Item = u8;
    type IntoIter = Kinds;
    fn into_iter(self) -> Kinds {
        self.iter()
    }
}

/// The kinds of a set, in ascending order.
#[derive(Debug, Clone)]
pub struct Kinds(u64);

impl Iterator for Kinds {
    type Item = u8;
    fn next(&mut self) -> Option<u8> {
        let kind = u8::try_from(self.0.trailing_zeros()).ok()?;
        if kind >= KindSet::LIMIT {
            return None;
        }
        self.0 &= self.0 - 1;
        Some(kind)
    }
}

/// A [`KindSet`] that several threads share.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicKindSet(AtomicU64);

impl AtomicKindSet {
    /// Creates it with these kinds.
    pub const fn new(set: KindSet) -> AtomicKindSet {
        AtomicKindSet(AtomicU64::new(set.0))
    }
    /// Returns the set.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> KindSet {
        KindSet(self.0.load(order))
    }
    /// Replaces the set.
    #[inline]
    pub fn store(&self, set: KindSet, order: Ordering) {
        self.0.store(set.0, order);
    }
}
