//! What is yet to be sent, and what became of the rest.

use super::signal::Signal;
use crate::page::{Kind, Page};
use hyper::body::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The most requests that wait, and their bytes.
const MOST: usize = 64;
const MOST_BYTES: usize = 16 << 20;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Sent,
    /// It is tried again.
    Again,
    /// It was dropped: too many wait, the collector refuses it, or it was tried for too long.
    Full,
    Refused,
    Late,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Sent => "sent",
            Outcome::Again => "again",
            Outcome::Full => "full",
            Outcome::Refused => "refused",
            Outcome::Late => "late",
        }
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Exported {
    requests: Mutex<BTreeMap<(Signal, Outcome), u64>>,
    /// What a collector did not take of requests that it took.
    rejected: Mutex<BTreeMap<Signal, u64>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exported {
    /// Counts a request.
    pub(crate) fn count(&self, signal: Signal, outcome: Outcome) {
        *held(&self.requests).entry((signal, outcome)).or_default() += 1;
    }

    /// Counts what a collector did not take. It is its own word.
    pub(crate) fn rejected(&self, signal: Signal, count: u64) {
        let mut all = held(&self.rejected);
        let sum = all.entry(signal).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds the counts to a page.
    pub(crate) fn write(&self, page: &mut Page) {
        let help = "Requests to the collector, by what became of them";
        let family = page.family("midair_otlp_requests", Kind::Counter, "", help);
        for ((signal, outcome), count) in held(&self.requests).iter() {
            let labels = [("signal", signal.name()), ("outcome", outcome.name())];
            family.add(&labels, *count as f64);
        }
        let help = "Data points and profiles that the collector did not take";
        let family = page.family("midair_otlp_rejected", Kind::Counter, "", help);
        for (signal, count) in held(&self.rejected).iter() {
            family.add(&[("signal", signal.name())], *count as f64);
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) signal: Signal,
    pub(crate) bytes: Bytes,
    /// When it was made.
    pub(crate) at: Instant,
}

/// The requests that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    items: Mutex<VecDeque<Item>>,
    came: Notify,
    pub(crate) exported: Arc<Exported>,
}

impl Outbox {
    pub(crate) fn new(exported: Arc<Exported>) -> Outbox {
        Outbox {
            items: Mutex::default(),
            came: Notify::new(),
            exported,
        }
    }

    /// Adds a request. The oldest are dropped where there are too many.
    pub(crate) fn push(&self, signal: Signal, bytes: Vec<u8>) {
        let mut items = held(&self.items);
        items.push_back(Item {
            signal,
            bytes: bytes.into(),
            at: Instant::now(),
        });
        let size = |items: &VecDeque<Item>| items.iter().map(|it| it.bytes.len()).sum::<usize>();
        while items.len() > MOST || size(&items) > MOST_BYTES {
            let Some(oldest) = items.pop_front() else {
                break;
            };
            self.exported.count(oldest.signal, Outcome::Full);
        }
        drop(items);
        self.came.notify_one();
    }

    /// Takes the oldest request, when there is one.
    pub(crate) async fn next(&self) -> Item {
        loop {
            let item = held(&self.items).pop_front();
            match item {
                Some(item) => return item,
                None => self.came.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_oldest_first_and_counted() {
        let outbox = Outbox::new(Arc::default());
        for number in 0..MOST + 3 {
            outbox.push(Signal::Metrics, vec![number as u8]);
        }
        outbox.push(Signal::Profiles, vec![0; MOST_BYTES]);
        let counted = held(&outbox.exported.requests).clone();
        assert_eq!(counted[&(Signal::Metrics, Outcome::Full)], MOST as u64 + 3);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let item = runtime.unwrap().block_on(outbox.next());
        assert_eq!(
            (item.signal, item.bytes.len()),
            (Signal::Profiles, MOST_BYTES)
        );
        outbox.push(Signal::Profiles, vec![0; MOST_BYTES + 1]);
        let counted = held(&outbox.exported.requests).clone();
        assert_eq!(counted[&(Signal::Profiles, Outcome::Full)], 1);
    }
}
