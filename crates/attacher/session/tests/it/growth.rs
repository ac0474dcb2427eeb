//! Repeated sessions with one program leave no memory behind on either side.

use crate::common::{Worker, pipe, serve};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target};

/// The sessions before the first measurement. By then the tables, caches and buffers of both sides
/// have reached their final sizes.
const WARM: u64 = 40;
/// Sessions between the two measurements. `MIDAIR_GROWTH` may name fewer where one takes seconds.
const MORE: u64 = 120;
/// The bytes that either side may keep in them, however many they are: other differences between two
/// measurements were at most 2500 bytes. Of 120 sessions each may keep 28, and the smallest object
/// that could be leaked once per session is larger in this allocator. Of 12 each may keep 280.
const KEPT: u64 = 28 * MORE;

/// Returns how many sessions there are between the two measurements.
fn more() -> u64 {
    let given = std::env::var("MIDAIR_GROWTH").ok();
    let number = given.map_or(MORE, |text| text.parse().unwrap());
    // Of fewer, a leaked page could go unnoticed.
    assert!((5..=MORE).contains(&number), "MIDAIR_GROWTH={number}");
    number
}

/// Makes the allocator return the memory that a thread of the program frees. Otherwise it would be
/// cached for that thread and count as allocated.
const EXACT: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");

/// Runs whole sessions: attach, record, detach, write files. Returns the bytes that are then
/// allocated in the attaching process.
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

/// Returns the bytes allocated in the program while none of its threads works.
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
    // The step number is never reached, so nothing is injected and the program stays alive.
    let line = format!(
        "{} kill {} {} {}",
        u64::MAX,
        worker.pid(),
        control.display(),
        kit.scratch().join("out").display()
    );
    let mut look = |count| {
        // A thread of the attacher that is still ending has some kilobytes, so the least of three counts.
        let mut here = sessions(&mut attacher, count, &line);
        for _ in 0..2 {
            here = here.min(sessions(&mut attacher, 1, &line));
        }
        [here, allocated_there(&mut worker)]
    };
    let more = more();
    let (before, after) = (look(WARM), look(more));
    eprintln!("attacher and target: {before:?} bytes, {more} sessions later {after:?}");
    for (side, (before, after)) in ["attacher", "target"]
        .into_iter()
        .zip(before.into_iter().zip(after))
    {
        assert!(
            after <= before + KEPT,
            "{side}: {before} bytes, {more} sessions later {after}"
        );
    }
    worker.quit();
    attacher.wait(PATIENCE).unwrap().success().unwrap();
}
