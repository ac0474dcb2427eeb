//! What the listener does for whoever knocks. One after the other, none for long.

use crate::admit;
use crate::agent::{self, Taken};
use crate::client::HSA;
use crate::door::{self, Door};
use crate::store;
use midair_guest::number::Own;
use midair_record::VERSION;
use midair_record::knock::{Answer, KNOCK_LEN, Knock, outcome, purpose};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsFd;

/// How long one peer may take to say what it wants, in ms. It knows that before it connects.
const PATIENCE: c_int = 2000;

/// Serves attachers for as long as there is a socket to do so.
pub(crate) fn until_closed(door: &Door) {
    while let Some(connection) = door.next() {
        serve(connection);
    }
}

fn serve(connection: Own) {
    let reply = |connection: &Own, answer: &Answer| {
        // Whoever has closed and replaced it meanwhile is not spoken to.
        if connection.is_ours() {
            door::answer(connection.as_fd(), answer);
        }
    };
    if let Err(why) = admit::admit(connection.as_fd()) {
        let mut answer = Answer::new(outcome::NOT_ALLOWED);
        answer.error = why;
        return reply(&connection, &answer);
    }
    // One byte more than a knock has: what is longer is none.
    let mut bytes = [0; KNOCK_LEN + 1];
    let said = door::receive(connection.as_fd(), &mut bytes, PATIENCE);
    let Some(knock) = said.and_then(Knock::read) else {
        return;
    };
    if knock.version != VERSION {
        return reply(&connection, &Answer::new(outcome::OTHER_VERSION));
    }
    match knock.purpose {
        purpose::ASK => {
            let mut answer = Answer::new(outcome::HERE);
            answer.gpu = has_gpu_runtime().into();
            reply(&connection, &answer);
        }
        // Who has gone meanwhile (this process may have been stopped) gets nothing begun.
        purpose::ENTER if !door::is_hung_up(connection.as_fd()) => match agent::take(connection) {
            Taken::Made => {}
            Taken::Woken { waking, connection } => {
                let mut answer = Answer::new(outcome::WOKEN);
                answer.tid = waking.tid;
                answer.gpu = has_gpu_runtime().into();
                reply(&connection, &answer);
                // Before the session can begin there is no descriptor of this thread's left: what it leaves is then as it was.
                drop(connection);
                waking.now();
            }
            Taken::No(answer, connection) => reply(&connection, &answer),
        },
        _ => {}
    }
}

/// Whether a HIP or HSA runtime is in the process: it registered, or is loaded under its usual name. Attachers that may read the
/// process's mappings look for themselves.
pub(crate) fn has_gpu_runtime() -> bool {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid struct with a NUL-terminated name or none.
        let name = unsafe {
            if (*info).dlpi_name.is_null() {
                return 0;
            }
            CStr::from_ptr((*info).dlpi_name).to_bytes()
        };
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let usual: [&[u8]; 2] = [b"libhsa-runtime64", b"libamdhip64"];
        c_int::from(usual.iter().any(|usual| file.starts_with(usual)))
    }
    // SAFETY: the callback fits and takes nothing along.
    store::has(HSA) || unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) } != 0
}
