//! Stacks of calls that launch work (`--stacks`).

use super::Busy;

impl Busy {
    /// Takes the calling thread's stack for its open call with this correlation id, once for each
    /// call. Does nothing in a session without stacks.
    #[inline]
    pub fn take_stack(&mut self, correlation: u64) {
        if midair_stacks::is_on() {
            self.take_stack_once(correlation);
        }
    }

    fn take_stack_once(&mut self, correlation: u64) {
        let owned = self.owned();
        let mut open = owned.open.iter_mut().take(owned.depth);
        let call = open.find(|call| call.correlation == correlation);
        if let Some(call) = call.filter(|call| !call.has_stack) {
            call.has_stack = true;
            midair_stacks::take(correlation, &mut |kind, parts| self.store(kind, parts));
        }
    }
}
