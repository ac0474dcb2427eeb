//! Named points on the way of a packet through the hooks. Tests let something happen there: a detach,
//! the end of the attacher, which is the same to this process, or another thread's part.

/// Where a thread of the application stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::queue) enum Point {
    /// It is about to choose a group.
    Choosing,
    /// It has taken a window, and no packets yet.
    Taken,
    /// Three packets are reserved; nobody knows whose they are.
    Reserved,
    /// It is noted whose they are.
    Noted,
    /// Ours are written, and not valid.
    Written,
    /// Ours are valid.
    Valid,
    /// A dispatch was looked at, and is about to get a completion signal of ours.
    Timing,
}

/// The calling thread has come to a point.
#[cfg(not(test))]
#[inline(always)]
pub(in crate::queue) fn reached(_: Point) {}

#[cfg(test)]
pub(in crate::queue) use under_test::{at, reached};

#[cfg(test)]
mod under_test {
    use super::Point;
    use std::cell::RefCell;

    type What = Box<dyn FnOnce()>;

    thread_local! {
        static NEXT: RefCell<Option<(Point, What)>> = const { RefCell::new(None) };
    }

    /// When the calling thread comes to this point next, it does this.
    pub(in crate::queue) fn at(point: Point, what: impl FnOnce() + 'static) {
        NEXT.with(|next| *next.borrow_mut() = Some((point, Box::new(what))));
    }

    /// See above.
    pub(in crate::queue) fn reached(point: Point) {
        let what = NEXT.with(|next| {
            let mut next = next.borrow_mut();
            let is_here = next.as_ref().is_some_and(|(wanted, _)| *wanted == point);
            if is_here { next.take() } else { None }
        });
        if let Some((_, what)) = what {
            what();
        }
    }
}
