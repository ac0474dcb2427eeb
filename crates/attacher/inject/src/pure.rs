//! Threads in a function of the C library that works on the bytes that it is given, such as
//! `memset`.
//!
//! A program may be in such a function for seconds: it fills memory that it has just mapped, or
//! copies large pieces again and again. The function itself holds nothing, so its caller decides.
//!
//! The functions' code has no names in a stripped C library, and there are several variants of each
//! for different processors. So the function is known by its call: a module calls it through a word
//! that the loader has filled in, and the module's relocations say for which function. Between that
//! call and the thread's place no other frame of the C library may be. What runs then is the
//! function, or a helper to which it jumped.

use std::collections::HashMap;

use midair_procinfo::stack::Frame;

use crate::names::PURE;
use crate::parked::Judge;

impl Judge<'_> {
    /// Reads through which words a module calls these functions.
    pub(crate) fn learn_pure(&mut self, module: usize) {
        let slots = self.modules.load(module).and_then(|loaded| {
            let found = loaded.elf.imported(PURE)?;
            let name = |(linked, name): (u64, usize)| {
                let slot = linked.wrapping_add(loaded.bias);
                Some((slot, *PURE.get(name)?))
            };
            Ok(found.into_iter().filter_map(name).collect())
        });
        // A module whose tables cannot be read calls none of them, as far as is known.
        self.pure.insert(module, slots.unwrap_or_default());
    }

    /// Returns the name of such a function if a thread with this stack is in one that another
    /// module called.
    ///
    /// # Errors
    /// The index of a module that has to be read for that, see [`Judge::learn_pure`].
    pub(crate) fn pure_function(&self, frames: &[Frame]) -> Result<Option<&'static str>, usize> {
        let libc = Some(self.look.code.module);
        let [within, caller, ..] = frames else {
            return Ok(None);
        };
        let outside = caller.module.filter(|_| caller.module != libc);
        let (Some(module), true) = (outside, within.module == libc) else {
            return Ok(None);
        };
        let slots = self.pure.get(&module).ok_or(module)?;
        let slot = self.walker.call_slot(caller.address);
        let name = slot.and_then(|slot| slots.get(&slot));
        // A program may have put another function of its own there.
        let leads_there = || {
            let target = self.walker.called(caller.address);
            target.is_some_and(|target| self.modules.at(target) == libc)
        };
        Ok(name.copied().filter(|_| leads_there()))
    }
}

/// The words of each module, by their addresses.
pub(crate) type Slots = HashMap<usize, HashMap<u64, &'static str>>;
