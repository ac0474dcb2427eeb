//! Sessions one after the other, on one program, leave no memory behind on either side.

use crate::common::{Worker, pipe, serve};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target};

/// Sessions before the first look: tables, caches and buffers of both sides have then grown to what they need.
const WARM: u64 = 40;
/// Sessions between the two looks.
const MORE: u64 = 200;
/// Bytes a session that either side may keep. The smallest thing that is forgotten once a session is more in this allocator; what else
/// differs between two looks was at most 2500 bytes, whatever the number of sessions.
const KEPT: u64 = 28;

/// What a thread of the program frees is free then, and not kept for that thread, which counts as allocated.
const EXACT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Whole sessions: attach, record, detach, files written. Bytes that are allocated in the attaching process after them.
fn sessions(attacher: &mut Target, count: u64, line: &str) -> u64 {
    let mut allocated = 0;
    for _ in 0..count {
        attacher.send(line).unwrap();
        let said = attacher.expect("round").unwrap();
        assert!(said.ends_with(" ok"), "{said}");
        let after = said.split_once("heap=").unwrap().1;
        allocated = after.split_once(' ').unwrap().0.parse().unwrap();
    }
    allocated
}

/// Bytes that are allocated in the program while none of its threads works.
fn allocated_there(worker: &mut Worker) -> u64 {
    let target = &mut worker.target;
    for word in ["stop", "heap"] {
        target.send(word).unwrap();
        let said = target.expect(word).unwrap();
        if let Some(bytes) = said.strip_prefix("heap ") {
            target.send("start").unwrap();
            target.expect("start").unwrap();
            return bytes.parse().unwrap();
        }
    }
    panic!("the program does not tell");
}

#[test]
fn neither_side_keeps_memory_of_a_session() {
    let kit = Kit::new().unwrap();
    let control = pipe(kit.scratch());
    let mut worker = Worker::start_with(&kit, "model.log", None, &[EXACT]);
    let mut attacher = serve();
    // After a step that is never reached the program would be killed.
    let line = format!(
        "{} kill {} {} {}",
        u64::MAX,
        worker.pid(),
        control.display(),
        kit.scratch().join("out").display()
    );
    let mut look = |count| {
        let here = sessions(&mut attacher, count, &line);
        [here, allocated_there(&mut worker)]
    };
    let (before, after) = (look(WARM), look(MORE));
    eprintln!("attacher and target: {before:?} bytes, {MORE} sessions later {after:?}");
    for (side, (before, after)) in ["attacher", "target"]
        .into_iter()
        .zip(before.into_iter().zip(after))
    {
        assert!(
            after <= before + KEPT * MORE,
            "{side}: {before} bytes, {MORE} sessions later {after}"
        );
    }
    worker.quit();
    attacher.wait(PATIENCE).unwrap().success().unwrap();
}
