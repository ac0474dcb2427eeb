//! Named points on the way of a packet through the hooks. Tests let something happen there: a
//! detach, the end of the attacher (which looks the same to this process), or a step of another
//! thread.

/// The point that a thread of the application has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::queue) enum Point {
    /// The thread is about to choose a group.
    Choosing,
    /// The thread has taken a window, but has not reserved packets yet.
    Taken,
    /// Three packets are reserved, but it is not yet noted whose they are.
    Reserved,
    /// It is noted whose they are.
    Noted,
    /// Our packets are written, but not yet valid.
    Written,
    /// Our packets are valid.
    Valid,
    /// A trace has its memory, and is about to be opened.
    Opening,
    /// A dispatch was looked at, and is about to get a midair completion signal.
    Timing,
}

/// Marks that the calling thread has reached a point.
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

    /// Runs `what` when the calling thread next reaches this point.
    pub(in crate::queue) fn at(point: Point, what: impl FnOnce() + 'static) {
        NEXT.with(|next| *next.borrow_mut() = Some((point, Box::new(what))));
    }

    /// Runs what a test has set for this point.
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
