//! The crate's types under every interleaving of two or three threads. Only with `--cfg loom`; see
//! `cargo xtask test`.

#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use midair_lockfree::sync::AtomicU64;
use midair_lockfree::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use midair_lockfree::{
    AtomicEnum, AtomicKey, Cell, Slot, SlotState, SlotTable, WordQueue, word_enum,
};

word_enum! {
    enum Stage else Free {
        Free = 0,
        Held = 1,
        Ready = 2,
        Done = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Held;
}

type Stages<const N: usize> = SlotTable<AtomicEnum<Stage>, N, (), [u32; 2]>;

fn stages<const N: usize>() -> Arc<Stages<N>> {
    Arc::new(SlotTable::new(std::array::from_fn(|_| {
        Slot::new(AtomicEnum::new(), (), [0; 2])
    })))
}

type Keys<const N: usize> = SlotTable<AtomicKey, N, AtomicU64>;

/// Returns different keys with the same home.
fn rivals<const N: usize, const COUNT: usize>() -> [u64; COUNT] {
    let home = Keys::<N>::home(5);
    let mut all = (5..).filter(|key| Keys::<N>::home(*key) == home);
    std::array::from_fn(|_| all.next().unwrap())
}

fn keys<const N: usize>() -> Arc<Keys<N>> {
    Arc::new(SlotTable::new(std::array::from_fn(|_| {
        Slot::new(AtomicKey::new(), AtomicU64::new(0), ())
    })))
}

#[test]
fn one_of_two_makes_a_transition() {
    loom::model(|| {
        let state: Arc<AtomicEnum<Stage>> = Arc::new(AtomicEnum::new());
        let other = {
            let state = state.clone();
            thread::spawn(move || {
                state
                    .compare_exchange(Stage::Free, Stage::Ready, AcqRel, Acquire)
                    .is_ok()
            })
        };
        let mine = state
            .compare_exchange(Stage::Free, Stage::Done, AcqRel, Acquire)
            .is_ok();
        assert_ne!(mine, other.join().unwrap());
        let end = if mine { Stage::Done } else { Stage::Ready };
        assert_eq!(state.load(Acquire), end);
    });
}

#[test]
fn a_slot_is_claimed_by_one_and_freed_when_the_claim_is_dropped() {
    loom::model(|| {
        let table = stages::<2>();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let (index, mut held) = table.claim().unwrap();
                // loom reports two accesses at the same time.
                held.with(|data| data[0] += 1);
                index
            })
        };
        let (index, mut held) = table.claim().unwrap();
        held.with(|data| data[0] += 1);
        let others = other.join().unwrap();
        // While this claim was held, the other thread had the other slot, unless it had this one
        // before.
        drop(held);
        assert!(index < 2 && others < 2);
        assert!(table.slots().iter().all(|slot| slot.state() == Stage::Free));
    });
}

#[test]
fn what_was_published_is_consumed_once_and_whole() {
    loom::model(|| {
        let table = stages::<2>();
        let writers: Vec<_> = (1..=2)
            .map(|number| {
                let table = table.clone();
                thread::spawn(move || {
                    let (_, mut held) = table.claim().unwrap();
                    held.with(|data| *data = [number, number * 10]);
                    held.publish(Stage::Ready);
                })
            })
            .collect();
        let consume = || {
            let mut sum = 0;
            for (_, slot) in table.used() {
                if let Some(mut held) = slot.hold(Stage::Ready) {
                    let [first, second] = held.with(|data| *data);
                    assert_eq!(second, first * 10);
                    sum += first;
                    held.free();
                }
            }
            sum
        };
        let mut sum = consume();
        for writer in writers {
            writer.join().unwrap();
        }
        sum += consume();
        assert_eq!(sum, 3);
    });
}

#[test]
fn an_entry_that_is_cancelled_while_a_reader_scans_has_one_end() {
    loom::model(|| {
        let table = stages::<1>();
        let (index, mut held) = table.claim().unwrap();
        held.with(|data| *data = [7, 70]);
        held.publish(Stage::Ready);
        let writer = {
            let table = table.clone();
            thread::spawn(move || {
                // Cancels the entry if it is still there, then uses the slot again.
                let cancelled = table
                    .get(index)
                    .unwrap()
                    .hold(Stage::Ready)
                    .map(|held| held.free());
                if let Some((_, mut held)) = table.claim() {
                    held.with(|data| *data = [8, 80]);
                    held.publish(Stage::Done);
                }
                cancelled.is_some()
            })
        };
        let mut seen = false;
        for (_, slot) in table.used() {
            if let Some(mut held) = slot.hold(Stage::Ready) {
                assert_eq!(held.with(|data| *data), [7, 70]);
                held.free();
                seen = true;
            }
        }
        assert_ne!(writer.join().unwrap(), seen);
    });
}

#[test]
fn a_reader_that_lets_go_leaves_the_entry_to_the_next() {
    loom::model(|| {
        let table = stages::<1>();
        let (_, held) = table.claim().unwrap();
        held.publish(Stage::Ready);
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                // Looks at the entry and puts it back, as a pass does with work that has not ended.
                drop(table.get(0).unwrap().hold(Stage::Ready));
            })
        };
        drop(table.get(0).unwrap().hold(Stage::Ready));
        other.join().unwrap();
        assert_eq!(table.get(0).unwrap().state(), Stage::Ready);
    });
}

#[test]
fn a_key_that_two_insert_has_one_slot() {
    loom::model(|| {
        let table = keys::<2>();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let (slot, new) = table.find_or_insert(5, 2).unwrap();
                slot.shared().fetch_add(1, AcqRel);
                new
            })
        };
        let (slot, new) = table.find_or_insert(5, 2).unwrap();
        slot.shared().fetch_add(1, AcqRel);
        assert_ne!(other.join().unwrap(), new);
        assert_eq!(table.find(5, 2).unwrap().shared().load(Acquire), 2);
    });
}

#[test]
fn two_keys_with_one_home_have_a_slot_each() {
    loom::model(|| {
        let table = keys::<2>();
        let [first, second, third] = rivals::<2, 3>();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let (slot, _) = table.find_or_insert(first, 2).unwrap();
                slot.shared().store(first * 10, Release);
            })
        };
        let (slot, _) = table.find_or_insert(second, 2).unwrap();
        slot.shared().store(second * 10, Release);
        other.join().unwrap();
        for key in [first, second] {
            let slot = table.find(key, 2).unwrap();
            assert_eq!(slot.shared().load(Acquire), key * 10);
        }
        assert!(table.find_or_insert(third, 2).is_none());
    });
}

#[test]
fn a_look_up_finds_what_lies_behind_a_removed_key() {
    loom::model(|| {
        let table = keys::<4>();
        let [first, second, third] = rivals::<4, 3>();
        for key in [first, second] {
            let held = table.claim_key(key, 4).unwrap();
            held.shared().store(key * 10, Relaxed);
            held.publish(key);
        }
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                table.remove(first, 4);
                // A third key takes the slot of the removed entry.
                let held = table.claim_key(third, 4).unwrap();
                held.shared().store(third * 10, Relaxed);
                held.publish(third);
            })
        };
        let slot = table.find(second, 4).unwrap();
        assert_eq!(slot.shared().load(Relaxed), second * 10);
        if let Some(slot) = table.find(third, 4) {
            assert_eq!(slot.shared().load(Relaxed), third * 10);
        }
        other.join().unwrap();
        assert!(table.find(first, 4).is_none() && table.find(third, 4).is_some());
    });
}

#[test]
fn an_entry_with_a_key_is_ended_by_one() {
    loom::model(|| {
        let table = keys::<2>();
        table.claim_key(9, 2).unwrap().publish(9);
        let other = {
            let table = table.clone();
            thread::spawn(move || table.hold_key(9, 2).map(|held| held.free()).is_some())
        };
        let mine = table.hold_key(9, 2).map(|held| held.free()).is_some();
        assert_ne!(other.join().unwrap(), mine);
        assert!(table.slots().iter().all(|slot| slot.state() == 0));
    });
}

#[test]
fn every_word_of_a_queue_is_had_by_one() {
    loom::model(|| {
        let queue: Arc<WordQueue<2>> =
            Arc::new(WordQueue::new(std::array::from_fn(|_| Cell::new())));
        queue.put(7).unwrap();
        let other = {
            let queue = queue.clone();
            thread::spawn(move || {
                let word = queue.take();
                if let Some(word) = word {
                    // The other cell is free, or is about to be.
                    let _ = queue.put(word + 10);
                }
                word
            })
        };
        let mine = queue.take();
        let others = other.join().unwrap();
        let left = queue.take();
        let mut all: Vec<u64> = [mine, others, left].into_iter().flatten().collect();
        all.sort_unstable();
        // The word that the other thread took went back exactly once, to this thread or to the end.
        assert!(all == [7] && others.is_none() || all == [7, 17] && others == Some(7));
    });
}

#[test]
fn two_that_put_at_one_time_lose_nothing() {
    loom::model(|| {
        let queue: Arc<WordQueue<2>> =
            Arc::new(WordQueue::new(std::array::from_fn(|_| Cell::new())));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.put(1).unwrap())
        };
        queue.put(2).unwrap();
        other.join().unwrap();
        assert_eq!(queue.put(3), Err(3));
        let all = [queue.take().unwrap(), queue.take().unwrap()];
        assert!(all == [1, 2] || all == [2, 1]);
        assert_eq!(queue.take(), None);
    });
}
