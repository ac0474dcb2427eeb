//! A short table of connections that the listener has accepted and not served yet. A silent peer in
//! it does not block the others, and many such peers block no peer for long.

use crate::admit::{Credentials, Look};
use crate::endpoint;
use crate::token::SLOTS;
use midair_guest::verified_fd::VerifiedFd;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a peer may take for its messages. It knows its request before it connects.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a peer is given at least, before it has to make way for the next one.
const LEAST: Duration = Duration::from_millis(50);
/// How many connections of one process may be in the table.
const OF_ONE: usize = 2;

/// One connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The connection.
    pub(crate) connection: VerifiedFd,
    /// Who connected.
    pub(crate) credentials: Credentials,
    /// What the peer asked for, and how it looked then. `None` until it has asked.
    pub(crate) asked: Option<(u32, Look)>,
    since: Instant,
}

/// The table. A connection has the same position as its token.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: [Option<Waiting>; SLOTS],
}

impl Table {
    /// Returns how long no further connection can be taken, or zero when one can be taken now.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        if self.entries.iter().any(Option::is_none) {
            return Duration::ZERO;
        }
        let oldest = self.entries.iter().flatten().map(|it| it.since).min();
        oldest.map_or(Duration::ZERO, |since| {
            LEAST.saturating_sub(now.saturating_duration_since(since))
        })
    }

    /// Returns how long it takes until the first of them has used up its time, or `None` when there
    /// are none.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Duration> {
        let oldest = self.entries.iter().flatten().map(|it| it.since).min()?;
        Some(PATIENCE.saturating_sub(now.saturating_duration_since(oldest)))
    }

    /// Returns the positions of the connections whose time is over.
    pub(crate) fn overdue(&self, now: Instant) -> impl Iterator<Item = usize> + use<> {
        let over = self.entries.each_ref().map(|entry| {
            entry
                .as_ref()
                .is_some_and(|it| now.saturating_duration_since(it.since) >= PATIENCE)
        });
        (0..SLOTS).filter(move |slot| over.get(*slot) == Some(&true))
    }

    /// Returns the position for a new connection of this peer: if the peer has enough of them, the
    /// position of its oldest one, else a free position, or else the position of the oldest of all.
    pub(crate) fn place_for(&self, credentials: &Credentials) -> usize {
        let oldest = |among: &dyn Fn(&Waiting) -> bool| {
            self.entries
                .iter()
                .enumerate()
                .filter_map(|(slot, entry)| Some((entry.as_ref()?, slot)))
                .filter(|(entry, _)| among(entry))
                .min_by_key(|(entry, _)| entry.since)
                .map(|(_, slot)| slot)
        };
        let its = |entry: &Waiting| entry.credentials.pid == credentials.pid;
        let count = self.entries.iter().flatten().filter(|it| its(it)).count();
        let free = || self.entries.iter().position(Option::is_none);
        match count >= OF_ONE {
            true => oldest(&its),
            false => free().or_else(|| oldest(&|_| true)),
        }
        .unwrap_or(0)
    }

    /// Puts a new connection at this position and closes what was there.
    pub(crate) fn put(
        &mut self,
        slot: usize,
        connection: VerifiedFd,
        credentials: Credentials,
        now: Instant,
    ) {
        self.put_back(
            slot,
            Waiting {
                connection,
                credentials,
                asked: None,
                since: now,
            },
        );
    }

    /// Takes a connection out. From then on a forked child does not close it any more.
    pub(crate) fn take(&mut self, slot: usize) -> Option<Waiting> {
        endpoint::forget(slot);
        self.entries.get_mut(slot)?.take()
    }

    /// Puts back a connection whose peer will send another message.
    pub(crate) fn put_back(&mut self, slot: usize, entry: Waiting) {
        drop(self.take(slot));
        if let Some(place) = self.entries.get_mut(slot) {
            endpoint::remember(slot, entry.connection.number());
            *place = Some(entry);
        }
    }

    /// Returns the connections with their positions.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(slot, entry)| Some((slot, entry.as_ref()?.connection.as_fd())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    fn of(pid: i32) -> Credentials {
        Credentials {
            pid,
            uid: 1000,
            gid: 1000,
        }
    }

    fn connection() -> VerifiedFd {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        VerifiedFd::new(near.into_raw_fd()).unwrap()
    }

    #[test]
    fn silent_peers_make_way_and_one_process_has_not_all() {
        let _alone = endpoint::tests::alone();
        let (start, mut table) = (Instant::now(), Table::default());
        let ms = Duration::from_millis;
        let add = |table: &mut Table, pid: i32, now: Instant| {
            let slot = table.place_for(&of(pid));
            table.put(slot, connection(), of(pid), now);
            slot
        };
        assert_eq!(table.next_end(start), None);
        // One process takes no more than its share, no matter how often it connects.
        for at in 0..20 {
            add(&mut table, 7, start + ms(at));
        }
        assert_eq!(table.connections().count(), OF_ONE);
        // Many processes take all positions, and each gets its time before the next one comes.
        let now = start + ms(20);
        for pid in 100..100 + (SLOTS - OF_ONE) as i32 {
            assert_eq!(table.wait(now), Duration::ZERO);
            add(&mut table, pid, now);
        }
        assert_eq!(table.wait(now), LEAST - ms(2), "the oldest came at 18 ms");
        assert_eq!(table.wait(start + ms(18) + LEAST), Duration::ZERO);
        let slot = add(&mut table, 9, start + ms(70));
        assert_eq!(table.connections().count(), SLOTS);
        let left = table.entries.iter().flatten();
        assert_eq!(left.filter(|it| it.credentials.pid == 7).count(), 1);
        // No connection stays for ever.
        assert_eq!(table.overdue(now).count(), 0);
        let late = start + ms(20) + PATIENCE;
        assert_eq!(table.overdue(late).count(), SLOTS - 1, "all but the last");
        assert!(table.overdue(late).all(|over| over != slot));
        assert_eq!(table.next_end(start + ms(19)), Some(PATIENCE));
        assert!(table.take(slot).is_some() && table.take(slot).is_none());
        for slot in 0..SLOTS {
            table.take(slot);
        }
    }
}
