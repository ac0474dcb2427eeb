//! Sets of record kinds.

use core::sync::atomic::{AtomicU64, Ordering};

/// A set of the kinds that domains have ([`crate::kind`]), in one word.
///
/// Kinds that only describe (agents, kernels, queues) are never in a set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(transparent)]
pub struct KindSet(u64);

impl KindSet {
    /// Kinds that a set has bits for: 1 to this, exclusive. Bit 0 is never set, since 0 is no kind.
    pub const LIMIT: u8 = 64;
    /// No kind.
    pub const EMPTY: KindSet = KindSet(0);

    /// Exactly these kinds.
    pub const fn of(kinds: &[u8]) -> KindSet {
        let mut set = KindSet::EMPTY;
        let mut at = 0;
        while at < kinds.len() {
            set = set.with(kinds[at]);
            at += 1;
        }
        set
    }

    /// This set and one kind more. A kind that is no domain's changes nothing.
    #[inline]
    #[must_use]
    pub const fn with(self, kind: u8) -> KindSet {
        if kind == 0 || kind >= KindSet::LIMIT {
            return self;
        }
        KindSet(self.0 | 1 << kind)
    }

    /// This set and, where `wanted`, one kind more.
    #[inline]
    #[must_use]
    pub const fn with_if(self, kind: u8, wanted: bool) -> KindSet {
        if wanted { self.with(kind) } else { self }
    }

    /// What is in either.
    #[inline]
    #[must_use]
    pub const fn union(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    /// What is in both.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: KindSet) -> KindSet {
        KindSet(self.0 & other.0)
    }

    /// What is in this set and not in the other.
    #[inline]
    #[must_use]
    pub const fn without(self, other: KindSet) -> KindSet {
        KindSet(self.0 & !other.0)
    }

    /// Whether a kind is in it: one shift and one mask where `kind` is a constant.
    #[inline(always)]
    pub const fn contains(self, kind: u8) -> bool {
        kind < KindSet::LIMIT && self.0 >> (kind & (KindSet::LIMIT - 1)) & 1 != 0
    }

    /// Whether the two have a kind in common.
    #[inline]
    pub const fn intersects(self, other: KindSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no kind is in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many kinds are in it.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The kinds, from the lowest.
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

/// The kinds of a set, from the lowest.
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
    /// With these kinds.
    pub const fn new(set: KindSet) -> AtomicKindSet {
        AtomicKindSet(AtomicU64::new(set.0))
    }
    /// The set.
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
