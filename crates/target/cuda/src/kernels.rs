//! Numbers of kernels by name; each kernel is described once.
//!
//! A record points to the name of its kernel. The pointer is looked up first. Then the known name
//! is compared with the text at that address, since after a module was unloaded there may be
//! another name at the same address.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};

/// What distinguishes kernels of one name: several modules may contain kernels of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory, bytes.
    pub shared: u32,
}

#[derive(Debug)]
struct Known {
    text: CString,
    id: u64,
}

/// The kernels of a session.
#[derive(Debug, Default)]
pub struct Kernels {
    by_address: HashMap<(usize, Shape), Known>,
    by_text: HashMap<(CString, Shape), u64>,
}

impl Kernels {
    /// Returns the number of a kernel, from 1; 0 if it has no name. `describe` stores its
    /// description and returns whether that was stored; if not, it is called again at the next
    /// launch.
    ///
    /// # Safety
    /// `name` is null or points to a terminated text that stays during the call.
    #[inline]
    pub unsafe fn number(
        &mut self,
        name: *const c_char,
        shape: Shape,
        describe: impl FnOnce(u64, &CStr) -> bool,
    ) -> u64 {
        if name.is_null() {
            return 0;
        }
        if let Some(known) = self.by_address.get(&(name.addr(), shape)) {
            // SAFETY: the caller's promise; strcmp reads no further than the first difference, or
            // the terminator.
            if unsafe { libc::strcmp(name, known.text.as_ptr()) } == 0 {
                return known.id;
            }
        }
        // SAFETY: the caller's promise.
        self.find_or_add(
            name.addr(),
            unsafe { CStr::from_ptr(name) },
            shape,
            describe,
        )
    }

    fn find_or_add(
        &mut self,
        address: usize,
        name: &CStr,
        shape: Shape,
        describe: impl FnOnce(u64, &CStr) -> bool,
    ) -> u64 {
        let text = name.to_owned();
        let next = self.by_text.len() as u64 + 1;
        let key = (text.clone(), shape);
        let id = match self.by_text.get(&key) {
            Some(id) => *id,
            None if describe(next, name) => {
                self.by_text.insert(key, next);
                next
            }
            // The number would mean nothing without its description.
            None => return 0,
        };
        self.by_address.insert((address, shape), Known { text, id });
        id
    }

    /// Forgets where names were stored: CUPTI, whose they are, is finalized.
    pub fn forget_addresses(&mut self) {
        self.by_address.clear();
    }

    /// How many kernels are known.
    pub fn len(&self) -> usize {
        self.by_text.len()
    }

    /// Whether no kernel is known.
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape = Shape {
        registers: 8,
        shared: 0,
    };

    #[test]
    fn a_kernel_is_described_once_wherever_its_name_is_stored() {
        let mut kernels = Kernels::default();
        let mut told = Vec::new();
        let mut number = |name: *const c_char, shape| {
            // SAFETY: null, or one of the texts below.
            unsafe {
                kernels.number(name, shape, |id, name| {
                    told.push((id, name.to_owned()));
                    true
                })
            }
        };
        let (first, copy, other) = (
            c"_Z5emptyv".to_owned(),
            c"_Z5emptyv".to_owned(),
            c"_Z4addv".to_owned(),
        );
        assert_ne!(first.as_ptr(), copy.as_ptr());
        assert_eq!(number(first.as_ptr(), PLAIN), 1);
        assert_eq!(number(copy.as_ptr(), PLAIN), 1);
        assert_eq!(number(other.as_ptr(), PLAIN), 2);
        assert_eq!(
            number(
                first.as_ptr(),
                Shape {
                    registers: 9,
                    ..PLAIN
                }
            ),
            3
        );
        assert_eq!(number(first.as_ptr(), PLAIN), 1);
        assert_eq!(number(std::ptr::null(), PLAIN), 0);
        let ids: Vec<u64> = told.iter().map(|it| it.0).collect();
        assert_eq!((ids, kernels.len()), (vec![1, 2, 3], 3));
    }

    #[test]
    fn an_address_may_hold_another_name_later() {
        let mut kernels = Kernels::default();
        let mut text = *b"first\0";
        let place = text.as_mut_ptr().cast::<c_char>();
        // SAFETY: a terminated text, changed only between the calls.
        unsafe {
            assert_eq!(kernels.number(place, PLAIN, |_, _| true), 1);
            place.cast::<u8>().write(b'w');
            assert_eq!(kernels.number(place, PLAIN, |_, name| name == c"wirst"), 2);
            place.cast::<u8>().write(b'f');
            assert_eq!(kernels.number(place, PLAIN, |_, _| false), 1);
        }
    }

    #[test]
    fn a_description_that_was_not_stored_is_repeated() {
        let mut kernels = Kernels::default();
        // SAFETY: a literal.
        unsafe {
            assert_eq!(kernels.number(c"k".as_ptr(), PLAIN, |_, _| false), 0);
            assert!(kernels.is_empty());
            assert_eq!(kernels.number(c"k".as_ptr(), PLAIN, |_, _| true), 1);
        }
    }
}
