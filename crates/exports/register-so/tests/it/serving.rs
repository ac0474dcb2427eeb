//! What the listener does for an attacher that speaks its protocol, with a library of the tests in
//! place of the profiler.

use crate::common::Home;
use crate::common::attacher::{Connection, Program, until};
use midair_record::boot::{BootBlock, MAILBOX_OFFSET, THREAD_NAME, mailbox, step};
use midair_record::connect::{ConnectProof, ConnectRequest, outcome, purpose, refusal};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The host's first number for a library: the highest for which no table of descriptors is enlarged.
const FIRST: i32 = 63;

fn home() -> Home {
    let defines = [
        ("FD_NEAR", offset_of!(BootBlock, fd_near)),
        ("FD_FAR", offset_of!(BootBlock, fd_far)),
        ("MAILBOX", MAILBOX_OFFSET),
        ("ERROR_STEP", offset_of!(BootBlock, error_step)),
        ("ERROR", offset_of!(BootBlock, error)),
        ("PATIENCE_MS", offset_of!(BootBlock, patience_ms)),
        ("HANDED_FD", offset_of!(BootBlock, handed)),
        ("PARKED", mailbox::PARKED as usize),
        ("HANDED", mailbox::HANDED as usize),
        ("TALKING", mailbox::TALKING as usize),
    ];
    let defines = defines.map(|(name, value)| format!("-D{name}={value}"));
    let defines: Vec<&str> = defines.iter().map(String::as_str).collect();
    Home::new().with("libsent.so", "sent.c", &defines)
}

/// Waits until the program has no worker thread.
fn until_the_worker_has_ended(program: &Program) {
    until("the worker thread does not end", || {
        program.threads(THREAD_NAME).is_empty()
    });
}

#[test]
fn a_query_is_answered_and_begins_nothing() {
    let mut program = Program::start(&Home::new(), &["add:hip", "pause", "add:hsa", "pause"]);
    for gpu in [0, 1] {
        let connection = Connection::new(&program);
        let reply = connection.ask(purpose::QUERY);
        assert_eq!((reply.outcome, reply.gpu), (outcome::AVAILABLE, gpu));
        assert_eq!((reply.tid, reply.error, reply.token_at), (0, 0, 0));
        assert!(connection.reply().is_none(), "and that was all");
        if gpu == 0 {
            program.go_on();
        }
    }
    assert!(program.threads(THREAD_NAME).is_empty());
    program.end();
}

/// A runtime that has not registered is known by the name of its file.
#[test]
fn a_gpu_runtime_is_known_by_its_name() {
    for (file, gpu) in [
        ("libamdhip64.so.7", 1),
        ("libhsa-runtime64.so.1", 1),
        ("libother.so", 0),
        ("libamdhip64.so/libother.so", 0),
        ("not-libamdhip64.so", 0),
    ] {
        let load = format!("load:./{file}");
        let home = Home::new();
        let sub = Path::new(file).parent().unwrap();
        std::fs::create_dir_all(home.path("").join(sub)).unwrap();
        let home = home.with(file, "tool.c", &[]);
        let program = Program::start(&home, &["add:hip", &load, "pause"]);
        let reply = Connection::new(&program).ask(purpose::QUERY);
        assert_eq!(
            (reply.outcome, reply.gpu),
            (outcome::AVAILABLE, gpu),
            "{file}"
        );
        program.end();
    }
}

/// Each of these gets its answer, if any, and then the connection ends.
#[test]
fn other_messages_are_no_requests() {
    let program = Program::start(&Home::new(), &["add:hip", "pause"]);
    let request = ConnectRequest::new(purpose::QUERY);
    let mut other_version = request;
    other_version.version += 1;
    let long = [&request.bytes()[..], &[0]].concat();
    for (message, answer) in [
        (&other_version.bytes()[..], Some(outcome::OTHER_VERSION)),
        (&ConnectRequest::new(0).bytes(), None),
        (&ConnectRequest::new(3).bytes(), None),
        (&request.bytes()[1..], None),
        (&long, None),
        (b"x", None),
    ] {
        let connection = Connection::new(&program);
        connection.send(message);
        if let Some(answer) = answer {
            assert_eq!(connection.reply().unwrap().outcome, answer);
        }
        assert!(connection.reply().is_none(), "{message:?}");
    }
    assert_eq!(
        Connection::new(&program).ask(purpose::QUERY).outcome,
        outcome::AVAILABLE
    );
    program.end();
}

/// The token that the attacher itself has read is the proof, and nothing else is.
#[test]
fn without_proof_nobody_is_served() {
    let program = Program::start(&Home::new(), &["add:hip", "pause"]);
    let is_refused = |connection: &Connection| {
        let reply = connection.reply().unwrap();
        let refused = (outcome::REFUSED, refusal::PROOF);
        assert_eq!((reply.outcome, reply.error), refused);
        assert!(connection.reply().is_none());
    };
    let other = Connection::new(&program);
    let others = other.challenge(purpose::QUERY);
    for purpose in [purpose::QUERY, purpose::ATTACH] {
        let connection = Connection::new(&program);
        connection.challenge(purpose);
        connection.send(&ConnectProof { token: others }.bytes());
        is_refused(&connection);

        let connection = Connection::new(&program);
        let token = connection.challenge(purpose);
        connection.send(&[&ConnectProof { token }.bytes()[..], &[0]].concat());
        is_refused(&connection);

        let connection = Connection::new(&program);
        let token = connection.challenge(purpose);
        connection.send_from_another_process(&ConnectProof { token }.bytes());
        is_refused(&connection);
    }
    other.send(&ConnectProof { token: others }.bytes());
    assert_eq!(other.reply().unwrap().outcome, outcome::AVAILABLE);
    assert!(program.threads(THREAD_NAME).is_empty());
    program.end();
}

/// Many who connect and go are accepted one after the other, and then the listener is there again.
#[test]
fn many_who_go_hold_nobody_up() {
    let program = Program::start(&Home::new(), &["add:hip", "pause"]);
    for _ in 0..3 {
        let all: Vec<Connection> = (0..50).map(|_| Connection::new(&program)).collect();
        drop(all);
        let reply = Connection::new(&program).ask(purpose::QUERY);
        assert_eq!(reply.outcome, outcome::AVAILABLE);
    }
    program.end();
}

/// The worker thread is one of the process's own: it has the policy and the processors of its main
/// thread, whatever the registering thread has.
#[test]
fn the_worker_thread_loads_what_is_sent_and_reports() {
    let home = home();
    let program = Program::start(&home, &["apart:hip", "pause"]);

    // A library that cannot be loaded is reported, and its number is not used again.
    let text = home.path("text");
    std::fs::write(&text, "no library").unwrap();
    let connection = Connection::new(&program);
    let reply = connection.ask(purpose::ATTACH);
    let wanted = (outcome::SEND, FIRST, 0);
    assert_eq!((reply.outcome, reply.library_fd, reply.gpu), wanted);
    connection.send_descriptor(File::open(&text).unwrap().as_raw_fd());
    let reply = connection.reply().unwrap();
    assert_eq!((reply.outcome, reply.step), (outcome::FAILED, step::LOAD));
    let path = format!("/proc/thread-self/fd/{FIRST}: ");
    assert!(reply.message().starts_with(path.as_bytes()), "{reply:?}");
    assert!(connection.reply().is_none());
    until_the_worker_has_ended(&program);

    let connection = Connection::new(&program);
    let reply = connection.ask(purpose::ATTACH);
    assert_eq!(
        (reply.outcome, reply.library_fd),
        (outcome::SEND, FIRST - 1)
    );
    let thread = |file: &str| program.file(&format!("task/{}/{file}", reply.tid));
    assert_eq!(thread("comm").trim(), THREAD_NAME);
    let processors = |status: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed:"));
        line.unwrap().to_owned()
    };
    let main = program.file(&format!("task/{}/status", program.pid()));
    assert_eq!(processors(&thread("status")), processors(&main));
    let stat = thread("stat");
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let policy = fields.split(' ').nth(41 - 3).unwrap();
    assert_eq!(policy, libc::SCHED_OTHER.to_string());

    let library = File::open(home.path("libsent.so")).unwrap();
    connection.send_descriptor(library.as_raw_fd());
    let said = connection.text();
    let talking = format!("far -1 patience 5000 mailbox {}", mailbox::TALKING);
    assert!(said.ends_with(&talking), "{said}");
    assert!(program.descriptor(FIRST - 1).is_none(), "none stays");

    // While it talks, no other attacher is served.
    let busy = Connection::new(&program).ask(purpose::ATTACH);
    assert_eq!((busy.outcome, busy.tid), (outcome::BUSY, reply.tid));

    connection.send(b"f");
    let failed = connection.reply().unwrap();
    let wanted = (outcome::FAILED, step::ENTRY, libc::EBUSY);
    assert_eq!((failed.outcome, failed.step, failed.error), wanted);
    assert!(connection.reply().is_none());
    program.end();
}

/// Sends the library, or finds it there, and waits for its first words. Returns what the listener
/// replied, and the number of the connection in the program.
fn begin(program: &Program, home: &Home, wanted: u32) -> (Connection, u32, i32) {
    until_the_worker_has_ended(program);
    let connection = Connection::new(program);
    let reply = connection.ask(purpose::ATTACH);
    assert_eq!(reply.outcome, wanted);
    if wanted == outcome::SEND {
        let library = File::open(home.path("libsent.so")).unwrap();
        connection.send_descriptor(library.as_raw_fd());
    }
    let said = connection.text();
    let number = said.split(' ').nth(1).unwrap().parse().unwrap();
    (connection, reply.tid, number)
}

/// The library is sent once. What it leaves is closed, and what the program has put there is not.
#[test]
fn a_worker_thread_ends_and_another_is_made() {
    let home = home();
    let program = Program::start(&home, &["add:hip", "pause"]);
    let (connection, _, number) = begin(&program, &home, outcome::SEND);
    assert!(program.descriptor(number).is_some());
    connection.send(b"e");
    assert!(connection.receive().is_none(), "nothing failed");
    until_the_worker_has_ended(&program);
    assert!(program.descriptor(number).is_none());

    let (connection, _, number) = begin(&program, &home, outcome::LOADED);
    connection.send(b"t");
    assert!(connection.receive().is_none());
    until_the_worker_has_ended(&program);
    assert_eq!(program.descriptor(number).unwrap(), Path::new("/dev/null"));

    // An attacher that wants nothing loaded ends it, and so does one that goes.
    let fresh = Program::start(&home, &["add:hip", "pause"]);
    let connection = Connection::new(&fresh);
    assert_eq!(connection.ask(purpose::ATTACH).outcome, outcome::SEND);
    connection.send(b"x");
    assert!(connection.reply().is_none());
    until_the_worker_has_ended(&fresh);
    let connection = Connection::new(&fresh);
    assert_eq!(connection.ask(purpose::ATTACH).outcome, outcome::SEND);
    drop(connection);
    until_the_worker_has_ended(&fresh);
    fresh.end();
    program.end();
}

#[test]
fn a_parked_worker_thread_is_woken() {
    let home = home();
    let program = Program::start(&home, &["add:hsa", "pause"]);
    let (mut connection, tid, _) = begin(&program, &home, outcome::SEND);
    for _ in 0..3 {
        connection.send(b"p");
        assert!(
            connection.receive().is_none(),
            "it hangs up when it has parked"
        );
        connection = Connection::new(&program);
        let reply = connection.ask(purpose::ATTACH);
        let wanted = (outcome::WOKEN, tid, 1);
        assert_eq!((reply.outcome, reply.tid, reply.gpu), wanted);
        assert_eq!(connection.text(), "woken");
        let busy = Connection::new(&program).ask(purpose::ATTACH);
        assert_eq!((busy.outcome, busy.tid), (outcome::BUSY, tid));
    }
    assert_eq!(program.threads(THREAD_NAME), [tid]);
    program.end();
}
