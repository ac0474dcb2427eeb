//! From a private spool to tools' buffers, and on to the attacher's spool.

use crate::collection::Route;
use midair_record::event;
use midair_record::spool::Area;
use midair_sdk_api::buffer;

/// Moves what the private spool holds on: to the tools' buffers, and to the attacher's spool what
/// is meant for it. Returns whether there was anything.
pub(super) fn relay(route: &mut Route, spool: Option<Area>, tid: u32) -> bool {
    let Route::Relay { reader, onward } = route else {
        return false;
    };
    let moved = reader.drain(|bytes| {
        let _ = buffer::deliver(bytes);
        let mut rest = bytes;
        while let (Some(spool), Ok((_, size))) = (spool, event::decode(rest)) {
            let (record, after) = rest.split_at(size);
            let record_kind = record.get(2).copied().unwrap_or(0);
            // SAFETY: the attacher's spool is mapped while the session lasts, and `onward` is only used with it.
            unsafe { onward.store(spool, tid, record_kind, [record, &[]]) };
            rest = after;
        }
        Ok::<(), ()>(())
    });
    moved.is_ok_and(|bytes| bytes > 0)
}
