//! A state machine in one atomic word.

use crate::sync::{AtomicU32, Ordering, const_unless_loom};
use core::fmt::{Debug, Formatter};
use core::marker::PhantomData;

/// An enum whose values are `u32` words. Made by [`word_enum!`](crate::word_enum).
pub trait WordEnum: Copy + Eq + Debug + Send + Sync + 'static {
    /// Returns the value of a word. A word that belongs to no variant gives the variant that the
    /// definition names after `else`.
    fn from_word(word: u32) -> Self;
    /// Returns the value's word.
    fn word(self) -> u32;
}

/// Defines a fieldless enum that an [`AtomicEnum`] can contain.
///
/// The variant after `else` stands for words that no variant has. Such words are never stored by an
/// `AtomicEnum`; they can only come from memory that other code has written to.
///
/// ```
/// midair_lockfree::word_enum! {
///     /// States of a door.
///     pub enum Door else Shut {
///         /// No one passes.
///         Shut = 0,
///         /// Everybody passes.
///         Open = 1,
///     }
/// }
/// static DOOR: midair_lockfree::AtomicEnum<Door> = midair_lockfree::AtomicEnum::new();
/// assert_eq!(DOOR.load(std::sync::atomic::Ordering::Acquire), Door::Shut);
/// ```
#[macro_export]
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident else $unknown:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $word:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        $visibility enum $name {
            $( $(#[$variant_meta])* $variant = $word ),+
        }

        impl $crate::WordEnum for $name {
            #[inline]
            fn from_word(word: u32) -> Self {
                match word {
                    $( $word => Self::$variant, )+
                    _ => Self::$unknown,
                }
            }

            #[inline]
            fn word(self) -> u32 {
                self as u32
            }
        }
    };
}

/// A `u32` word that contains a [`WordEnum`]. It has the word's size and alignment.
///
/// It has the operations of [`AtomicU32`]. Memory orders mean the same, and the cost is the
/// same.
#[repr(transparent)]
pub struct AtomicEnum<E> {
    word: AtomicU32,
    value: PhantomData<E>,
}

impl<E: WordEnum> AtomicEnum<E> {
    const_unless_loom! {
        /// Makes a word that contains the variant of word 0.
        pub fn new() -> AtomicEnum<E> {
            AtomicEnum { word: AtomicU32::new(0), value: PhantomData }
        }
    }

    /// Returns the value.
    #[inline]
    pub fn load(&self, order: Ordering) -> E {
        E::from_word(self.word.load(order))
    }

    /// Replaces the value.
    #[inline]
    pub fn store(&self, value: E, order: Ordering) {
        self.word.store(value.word(), order);
    }

    /// Replaces the value and returns the previous one.
    #[inline]
    pub fn swap(&self, value: E, order: Ordering) -> E {
        E::from_word(self.word.swap(value.word(), order))
    }

    /// Replaces the value if it is `current`.
    ///
    /// # Errors
    /// The value that is there instead.
    #[inline]
    pub fn compare_exchange(
        &self,
        current: E,
        new: E,
        success: Ordering,
        failure: Ordering,
    ) -> Result<E, E> {
        self.word
            .compare_exchange(current.word(), new.word(), success, failure)
            .map(E::from_word)
            .map_err(E::from_word)
    }

    /// Returns the word itself, for a futex. Store nothing to it but the word of a variant.
    #[inline]
    pub fn as_word(&self) -> &AtomicU32 {
        &self.word
    }
}

impl<E: WordEnum> Default for AtomicEnum<E> {
    fn default() -> AtomicEnum<E> {
        AtomicEnum::new()
    }
}

impl<E: WordEnum> Debug for AtomicEnum<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> core::fmt::Result {
        self.load(Ordering::Relaxed).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Ordering::SeqCst;

    word_enum! {
        enum Light else Broken {
            Red = 0,
            Green = 3,
            Broken = 9,
        }
    }

    #[test]
    fn words_are_variants_and_others_the_stated_one() {
        static LIGHT: AtomicEnum<Light> = AtomicEnum::new();
        assert_eq!(LIGHT.load(SeqCst), Light::Red);
        assert_eq!(
            LIGHT.compare_exchange(Light::Green, Light::Red, SeqCst, SeqCst),
            Err(Light::Red)
        );
        assert_eq!(LIGHT.swap(Light::Green, SeqCst), Light::Red);
        assert_eq!(LIGHT.as_word().load(SeqCst), 3);
        LIGHT.as_word().store(4, SeqCst);
        assert_eq!(LIGHT.load(SeqCst), Light::Broken);
        assert_eq!(size_of::<AtomicEnum<Light>>(), size_of::<u32>());
    }
}
