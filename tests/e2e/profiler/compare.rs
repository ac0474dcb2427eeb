//! Comparison of a trace with the log of the modelled GPU.

use super::{Kernel, Trace, Work};
use midair_tests::Result;
use midair_tests::modellog::{Event, ModelLog};
use std::collections::{BTreeMap, BTreeSet};

/// A dispatch's place in the log: its ring, and the index of its packet.
pub type Place = (u64, u64);

/// Returns the place of each dispatch of the log. Times in nanoseconds tell the dispatches apart.
pub fn places(log: &ModelLog) -> Result<BTreeMap<Work, Place>> {
    let mut places = BTreeMap::new();
    for dispatch in log.dispatches() {
        let place = (dispatch.packet.ring, dispatch.packet.index);
        if let Some(other) = places.insert(Work::logged(dispatch), place) {
            return Err(format!("{other:x?} and {place:x?} cannot be told apart").into());
        }
    }
    Ok(places)
}

/// Returns the first few of what is in `these` and not in `those`, as text.
pub fn only_in(these: &BTreeSet<Work>, those: &BTreeSet<Work>) -> String {
    let only: Vec<_> = these.difference(those).collect();
    format!(
        "{}, first {:?}",
        only.len(),
        only.iter().take(3).collect::<Vec<_>>()
    )
}

/// Checks that the trace holds each dispatch of `log` once, with its grid, workgroup, segments,
/// kernel and times, and nothing else. Each queue of the trace is one ring of the log, in order.
pub fn same(trace: &Trace, log: &ModelLog) -> Result<()> {
    let places = places(log)?;
    let logged: BTreeSet<Work> = places.keys().copied().collect();
    let traced: BTreeSet<Work> = trace.kernels.iter().map(|kernel| kernel.work).collect();
    assert_eq!(
        traced.len(),
        trace.kernels.len(),
        "a dispatch is there twice"
    );
    assert!(
        traced == logged,
        "{} in the log, {} in the trace; only in the log: {}; only in the trace: {}\n{}",
        logged.len(),
        traced.len(),
        only_in(&logged, &traced),
        only_in(&traced, &logged),
        trace.exit
    );
    in_order(&trace.kernels, &places);
    Ok(())
}

/// Checks that each queue of the trace is one ring of the log, and that dispatch ids follow the
/// indices of packets. Returns the indices by ring.
fn in_order(kernels: &[Kernel], places: &BTreeMap<Work, Place>) -> BTreeMap<u64, Vec<u64>> {
    let mut queue_of: BTreeMap<u64, u64> = BTreeMap::new();
    let mut by_ring: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for kernel in kernels {
        let (ring, index) = places[&kernel.work];
        let queue = *queue_of.entry(ring).or_insert(kernel.queue);
        assert_eq!(
            queue, kernel.queue,
            "ring {ring:#x} is two queues: {kernel:?}"
        );
        by_ring.entry(ring).or_default().insert(kernel.id, index);
    }
    let queues: BTreeSet<u64> = queue_of.values().copied().collect();
    assert_eq!(
        queues.len(),
        queue_of.len(),
        "two rings are one queue: {queue_of:x?}"
    );
    let in_id_order = |ids: BTreeMap<u64, u64>| ids.into_values().collect::<Vec<_>>();
    let by_ring: BTreeMap<_, _> = by_ring
        .into_iter()
        .map(|(ring, ids)| (ring, in_id_order(ids)))
        .collect();
    for (ring, indices) in &by_ring {
        assert!(
            indices.is_sorted(),
            "dispatch ids of ring {ring:#x} do not follow the packets"
        );
    }
    by_ring
}

/// Checks the trace of a program that runs on. All timed dispatches of the trace are in the log. On
/// each ring they are all that lie between the first and the last, except for those that are
/// untimed in the trace. Returns how many rings there were.
pub fn contiguous(trace: &Trace, log: &ModelLog) -> Result<usize> {
    let places = places(log)?;
    let (timed, untimed): (Vec<Kernel>, Vec<Kernel>) =
        (trace.kernels.iter().cloned()).partition(|kernel| kernel.work.start != 0);
    let strange = timed
        .iter()
        .find(|kernel| !places.contains_key(&kernel.work));
    assert!(strange.is_none(), "not in the log: {strange:?}");
    let by_ring = in_order(&timed, &places);
    let mut holes = 0;
    for (ring, indices) in &by_ring {
        let range = indices[0]..=indices[indices.len() - 1];
        let inside = |(of, index): &&Place| of == ring && range.contains(index);
        let logged: BTreeSet<u64> = places
            .values()
            .filter(inside)
            .map(|(_, index)| *index)
            .collect();
        let traced: BTreeSet<u64> = indices.iter().copied().collect();
        assert_eq!(
            traced.len(),
            indices.len(),
            "ring {ring:#x} has a dispatch twice"
        );
        holes += logged.difference(&traced).count();
    }
    assert!(
        holes <= untimed.len(),
        "{holes} dispatches are missing, {} are without times",
        untimed.len()
    );
    Ok(by_ring.len())
}

/// Checks as [`same`] does, for a device that may take a packet before our signal is in it. The
/// timed dispatches match the log's. For each grid there are as many untimed ones as are
/// missing, and each reason is counted.
pub fn mostly(trace: &Trace, log: &ModelLog) -> Result<()> {
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert!(!trace.notes().contains("balance"), "{}", trace.notes());
    assert_eq!(
        trace.midair["lost"],
        serde_json::json!({}),
        "{}",
        trace.midair
    );
    let places = places(log)?;
    let mut missing: BTreeMap<[u64; 3], i64> = BTreeMap::new();
    for work in places.keys() {
        *missing.entry(work.grid).or_default() += 1;
    }
    let (timed, untimed): (Vec<_>, Vec<_>) = trace
        .kernels
        .iter()
        .partition(|kernel| kernel.work.start != 0);
    for kernel in &timed {
        assert!(
            places.contains_key(&kernel.work),
            "not in the log: {kernel:?}"
        );
        *missing.entry(kernel.work.grid).or_default() -= 1;
    }
    for kernel in &untimed {
        assert_eq!(kernel.work.end, 0, "{kernel:?}");
        *missing.entry(kernel.work.grid).or_default() -= 1;
    }
    missing.retain(|_, count| *count != 0);
    assert!(
        missing.is_empty(),
        "in the log less in the trace, by grid: {missing:?}\n{}",
        trace.exit
    );
    let works: BTreeSet<Work> = timed.iter().map(|kernel| kernel.work).collect();
    assert_eq!(works.len(), timed.len(), "a dispatch is there twice");
    let reasons: u64 = trace.midair["untimed"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_u64())
        .sum();
    assert_eq!(reasons, untimed.len() as u64, "{}", trace.midair);
    assert!(
        timed.len() > untimed.len(),
        "{} timed, {} not",
        timed.len(),
        untimed.len()
    );
    Ok(())
}

/// Returns the bytes of copies, with the times that the engine wrote before and after each.
pub fn logged_copies(log: &ModelLog) -> Vec<(u64, u64, u64)> {
    let mut stamps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut copies = Vec::new();
    for record in &log.records {
        match &record.event {
            Event::Sdma {
                ring,
                op: "timestamp",
                value,
                ..
            } => match open.remove(ring) {
                Some((bytes, start)) => copies.push((bytes, start, *value)),
                None => {
                    stamps.insert(*ring, *value);
                }
            },
            Event::Copy(copy) => {
                open.insert(copy.ring, (copy.bytes, stamps[&copy.ring]));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "a copy without a time after it");
    copies.sort_unstable();
    copies
}
