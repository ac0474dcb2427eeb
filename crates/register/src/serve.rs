//! How the listener serves attachers: one after the other, each for a short time only.

use crate::admit;
use crate::client::HSA;
use crate::endpoint::{self, Endpoint};
use crate::store;
use crate::worker::{self, Assignment};
use midair_guest::verified_fd::VerifiedFd;
use midair_record::VERSION;
use midair_record::connect::{ConnectReply, ConnectRequest, REQUEST_LEN, outcome, purpose};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsFd;

/// How long a peer may take to send its request, in ms. It knows the request before it connects.
const PATIENCE: c_int = 2000;

/// Serves attachers as long as there is a socket.
pub(crate) fn until_closed(endpoint: &Endpoint) {
    while let Some(connection) = endpoint.next() {
        serve(connection);
    }
}

fn serve(connection: VerifiedFd) {
    let send = |connection: &VerifiedFd, reply: &ConnectReply| {
        // The number may refer to another file meanwhile: then nothing is sent.
        if connection.is_ours() {
            endpoint::send_reply(connection.as_fd(), reply);
        }
    };
    if let Err(why) = admit::admit(connection.as_fd()) {
        let mut reply = ConnectReply::new(outcome::REFUSED);
        reply.error = why;
        return send(&connection, &reply);
    }
    // One byte more than a request has: a longer message is none.
    let mut bytes = [0; REQUEST_LEN + 1];
    let received = endpoint::receive(connection.as_fd(), &mut bytes, PATIENCE);
    let Some(request) = received.and_then(ConnectRequest::read) else {
        return;
    };
    if request.version != VERSION {
        return send(&connection, &ConnectReply::new(outcome::OTHER_VERSION));
    }
    match request.purpose {
        purpose::QUERY => {
            let mut reply = ConnectReply::new(outcome::AVAILABLE);
            reply.gpu = has_gpu_runtime().into();
            send(&connection, &reply);
        }
        // For an attacher that is gone meanwhile (this process may have been stopped) nothing is
        // begun.
        purpose::ATTACH if !endpoint::is_hung_up(connection.as_fd()) => {
            match worker::assign(connection) {
                Assignment::Made => {}
                Assignment::Woken { wakeup, connection } => {
                    let mut reply = ConnectReply::new(outcome::WOKEN);
                    reply.tid = wakeup.tid;
                    reply.gpu = has_gpu_runtime().into();
                    send(&connection, &reply);
                    // The listener's descriptor is closed before the session can begin: the session
                    // then leaves the process as it was.
                    drop(connection);
                    wakeup.wake();
                }
                Assignment::Refused(reply, connection) => send(&connection, &reply),
            }
        }
        _ => {}
    }
}

/// Whether a HIP or HSA runtime is in the process: it registered, or is loaded under its usual
/// name. Attachers that may read the process's mappings check that themselves.
pub(crate) fn has_gpu_runtime() -> bool {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        _: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid struct with a NUL-terminated name or null.
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
    // SAFETY: the callback has the right type and uses no data.
    store::has(HSA) || unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) } != 0
}
