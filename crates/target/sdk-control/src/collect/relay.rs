//! Moves records from a private spool to tools' buffers, and on to the attacher's spool.

use crate::collection::Route;
use midair_record::event::{self, Header, Plain, flag};
use midair_record::spool::Area;
use midair_sdk_api::buffer;
use midair_sdk_hot::pause;

/// Moves the contents of the private spool to the tools' buffers, and to the attacher's spool
/// whatever is meant for it; that excludes what started during a pause of the recording. Returns
/// whether there was anything.
pub(super) fn relay(route: &mut Route, spool: Option<Area>, tid: u32) -> bool {
    let Route::Relay { reader, onward } = route else {
        return false;
    };
    let moved = reader.drain(|bytes| {
        let _ = buffer::deliver(bytes);
        let mut rest = bytes;
        while let (Some(spool), Ok((_, size))) = (spool, event::decode(rest)) {
            let (record, after) = rest.split_at(size);
            let header = Header::read(record).unwrap_or_default();
            rest = after;
            if header.flags & flag::PAUSED != 0 {
                pause::left_out(header.kind);
                continue;
            }
            // SAFETY: the attacher's spool is mapped during the session, and `onward` is only used
            // with it.
            unsafe { onward.store(spool, tid, header.kind, [record, &[]]) };
        }
        Ok::<(), ()>(())
    });
    moved.is_ok_and(|bytes| bytes > 0)
}
