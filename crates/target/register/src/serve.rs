//! How the listener serves attachers. No attacher blocks the others: a peer that has not sent all
//! its messages waits in a table (`waiting`), and is skipped until it sends something or its time
//! is over.

use crate::admit::{self, Look};
use crate::client::HSA;
use crate::endpoint::{self, Endpoint};
use crate::pace::Pace;
use crate::store;
use crate::token::Tokens;
use crate::waiting::{Table, Waiting};
use crate::worker::{self, Assignment};
use midair_guest::verified_fd::VerifiedFd;
use midair_record::VERSION;
use midair_record::connect::{
    ConnectProof, ConnectReply, ConnectRequest, PROOF_LEN, REQUEST_LEN, outcome, purpose, refusal,
};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsFd;
use std::time::Instant;

/// Serves attachers as long as there is a socket.
pub(crate) fn until_closed(endpoint: &Endpoint) {
    let tokens = &endpoint.tokens;
    let (mut table, mut pace) = (Table::default(), Pace::default());
    loop {
        let now = Instant::now();
        for slot in table.overdue(now) {
            end(&mut table, slot, tokens);
        }
        // Until then no other peer is accepted.
        let later = pace.wait(now).max(table.wait(now));
        let limit = [
            Some(later).filter(|later| !later.is_zero()),
            table.next_end(now),
        ];
        let limit = limit.into_iter().flatten().min();
        let Some(ready) = endpoint.wait(later.is_zero(), table.connections(), limit) else {
            return;
        };
        for (slot, _) in ready.connections.iter().enumerate().filter(|(_, it)| **it) {
            hear(&mut table, slot, tokens);
        }
        if ready.incoming {
            let now = Instant::now();
            pace.count(now);
            accept(&mut table, endpoint, now);
        }
    }
}

/// Forgets a connection.
fn end(table: &mut Table, slot: usize, tokens: &Tokens) {
    tokens.wipe(slot);
    drop(table.take(slot));
}

fn send(connection: &VerifiedFd, reply: &ConnectReply) {
    // The number may refer to another file meanwhile. Then nothing is sent.
    if connection.is_ours() {
        endpoint::send_reply(connection.as_fd(), reply);
    }
}

fn refuse(connection: &VerifiedFd, why: i32) {
    let mut reply = ConnectReply::new(outcome::REFUSED);
    reply.error = why;
    send(connection, &reply);
}

/// Accepts the next connection. A stranger can cause no more work than this function does for it.
fn accept(table: &mut Table, endpoint: &Endpoint, now: Instant) {
    let Some(connection) = endpoint.accept() else {
        return;
    };
    let Some(credentials) = admit::credentials(connection.as_fd()) else {
        return;
    };
    if let Err(why) = admit::may_ask(&credentials) {
        return refuse(&connection, why);
    }
    let slot = table.place_for(&credentials);
    end(table, slot, &endpoint.tokens);
    table.put(slot, connection, credentials, now);
}

/// Reads the next message of a peer.
fn hear(table: &mut Table, slot: usize, tokens: &Tokens) {
    let Some(mut waiting) = table.take(slot) else {
        return;
    };
    if !waiting.connection.is_ours() {
        return tokens.wipe(slot);
    }
    match waiting.asked {
        None => {
            if let Some(asked) = challenge(&waiting, slot, tokens) {
                waiting.asked = Some(asked);
                table.put_back(slot, waiting);
            }
        }
        Some((purpose, look)) => {
            let judged = judge(&waiting, &look, slot, tokens);
            tokens.wipe(slot);
            match judged {
                Ok(()) => serve(waiting.connection, purpose),
                Err(why) => refuse(&waiting.connection, why),
            }
        }
    }
}

/// Reads a peer's request and answers with a challenge. Returns what was asked for, and how the
/// peer looks. `None` when the connection is over.
fn challenge(waiting: &Waiting, slot: usize, tokens: &Tokens) -> Option<(u32, Look)> {
    let connection = &waiting.connection;
    // The buffer has one byte more than a request, so that a longer message is recognised as
    // invalid.
    let mut bytes = [0; REQUEST_LEN + 1];
    let message = endpoint::receive(connection.as_fd(), &mut bytes)?;
    let request = ConnectRequest::read(message)?;
    if request.version != VERSION {
        send(connection, &ConnectReply::new(outcome::OTHER_VERSION));
        return None;
    }
    if ![purpose::QUERY, purpose::ATTACH].contains(&request.purpose) {
        return None;
    }
    let look = match Look::at(&waiting.credentials) {
        Ok(look) => look,
        Err(why) => {
            refuse(connection, why);
            return None;
        }
    };
    let told = connection.is_ours() && endpoint::tell_senders(connection.as_fd(), true);
    let Some(token_at) = told.then(|| tokens.fresh(slot)).flatten() else {
        refuse(connection, refusal::UNKNOWN);
        return None;
    };
    let mut reply = ConnectReply::new(outcome::CHALLENGE);
    reply.token_at = token_at;
    send(connection, &reply);
    Some((request.purpose, look))
}

/// Whether the peer has read this process's memory, and may attach.
fn judge(waiting: &Waiting, look: &Look, slot: usize, tokens: &Tokens) -> Result<(), i32> {
    let connection = waiting.connection.as_fd();
    let mut bytes = [0; PROOF_LEN + 1];
    let (message, sender) = endpoint::receive_from(connection, &mut bytes).ok_or(refusal::PROOF)?;
    let proof = ConnectProof::read(message).ok_or(refusal::PROOF)?;
    // The process that connected is judged below, so another process's message does not count. The
    // connection may have been passed on.
    if sender != Some(waiting.credentials.pid) || !tokens.take(slot, &proof.token) {
        return Err(refusal::PROOF);
    }
    admit::admit(connection, &waiting.credentials, look)?;
    // Later messages on this connection are read with other room for what the kernel adds.
    match waiting.connection.is_ours() && endpoint::tell_senders(connection, false) {
        true => Ok(()),
        false => Err(refusal::UNKNOWN),
    }
}

/// Does what an admitted attacher wants.
fn serve(connection: VerifiedFd, wanted: u32) {
    match wanted {
        purpose::QUERY => {
            let mut reply = ConnectReply::new(outcome::AVAILABLE);
            reply.gpu = has_gpu_runtime().into();
            send(&connection, &reply);
        }
        // Nothing is started for an attacher that has gone meanwhile (this process may have been
        // stopped).
        purpose::ATTACH if !endpoint::is_hung_up(connection.as_fd()) => {
            match worker::assign(connection) {
                Assignment::Made => {}
                Assignment::Woken { wakeup, connection } => {
                    let mut reply = ConnectReply::new(outcome::WOKEN);
                    reply.tid = wakeup.tid;
                    reply.gpu = has_gpu_runtime().into();
                    send(&connection, &reply);
                    // The listener's descriptor is closed before the session can start. So the
                    // session leaves the process as it was.
                    drop(connection);
                    wakeup.wake();
                }
                Assignment::Refused(reply, connection) => send(&connection, &reply),
            }
        }
        _ => {}
    }
}

/// Whether a HIP or HSA runtime is in the process: it has registered, or is loaded under its usual
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tests::token_in;
    use crate::worker::tests::{Pretender, alone, connection};
    use std::io::Read;

    /// Nothing is started for an attacher that has gone, and another one learns who serves it.
    #[test]
    fn an_attacher_that_is_there_gets_the_parked_thread() {
        let _alone = alone();
        let pretender = Pretender::parked();
        let (ours, theirs) = connection();
        drop(theirs);
        serve(ours, purpose::ATTACH);
        assert!(pretender.take().is_none());

        let (ours, mut theirs) = connection();
        serve(ours, purpose::ATTACH);
        assert!(pretender.take().is_some());
        let mut bytes = Vec::new();
        // All copies of the other end are closed, so this ends.
        theirs.read_to_end(&mut bytes).unwrap();
        let reply = ConnectReply::read(&bytes).unwrap();
        assert_eq!(reply.outcome, outcome::WOKEN);
    }

    /// A peer whose time is over gets no answer, and what it knows is good for nothing any more.
    #[test]
    fn a_connection_that_ends_takes_its_token_along() {
        let _alone = endpoint::tests::alone();
        let (mut table, tokens) = (Table::default(), Tokens::map().unwrap());
        let (ours, mut theirs) = connection();
        let credentials = admit::credentials(ours.as_fd()).unwrap();
        table.put(3, ours, credentials, Instant::now());
        let token = token_in(&tokens, 3);
        end(&mut table, 3, &tokens);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        assert!(!tokens.take(3, &token));
        assert!(table.take(3).is_none());
    }

    /// Who only asks gets an answer and nothing else.
    #[test]
    fn a_query_begins_nothing() {
        let _alone = alone();
        let pretender = Pretender::parked();
        for (wanted, answers) in [(purpose::QUERY, true), (u32::MAX, false)] {
            let (ours, mut theirs) = connection();
            serve(ours, wanted);
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).unwrap();
            let reply = ConnectReply::read(&bytes);
            let outcome = reply.map(|reply| reply.outcome);
            assert_eq!(outcome, answers.then_some(outcome::AVAILABLE));
            assert!(pretender.take().is_none());
        }
    }
}
