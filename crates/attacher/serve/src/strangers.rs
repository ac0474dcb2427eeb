//! Places of clients over TCP whose right to ask is not known yet: who shakes hands, or sends nothing, takes no
//! place of others.
//!
//! An address has few places and few connections a second, and so have all addresses together. From an
//! address whose client was answered lately, only the first limit counts, so a flood from elsewhere does not keep a
//! scraper out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections of one address at the same time, and of all that are not known.
const OF_ONE: usize = 8;
const OF_ALL: usize = 64;
/// The most connections a second of one address, and of all that are not known. As many may come at once.
const RATE_OF_ONE: f64 = 50.0;
const RATE_OF_ALL: f64 = 200.0;
/// How long an address is known, and the most addresses that are kept.
const KNOWN: Duration = Duration::from_secs(600);
const MOST: usize = 1024;

/// How many connections may come now. It fills up at a rate.
#[derive(Debug, Clone, Copy)]
struct Rate {
    left: f64,
    at: Instant,
    a_second: f64,
}

impl Rate {
    fn new(a_second: f64, now: Instant) -> Rate {
        Rate {
            left: a_second,
            at: now,
            a_second,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.a_second).min(self.a_second);
        self.at = now;
    }
}

#[derive(Debug)]
struct Address {
    open: usize,
    rate: Rate,
    known_until: Option<Instant>,
}

impl Address {
    fn is_known(&self, now: Instant) -> bool {
        self.known_until.is_some_and(|until| now < until)
    }

    /// Whether it says no more than a new one would.
    fn is_idle(&mut self, now: Instant) -> bool {
        self.rate.fill(now);
        self.open == 0 && !self.is_known(now) && self.rate.left >= self.rate.a_second
    }
}

#[derive(Debug)]
struct State {
    addresses: HashMap<IpAddr, Address>,
    /// Places of addresses that are not known.
    open: usize,
    rate: Rate,
}

/// All such places.
#[derive(Debug)]
pub(crate) struct Strangers {
    state: Mutex<State>,
    refused: AtomicU64,
}

/// A place, until it is dropped or its client is answered.
#[derive(Debug)]
pub(crate) struct Place {
    of: Arc<Strangers>,
    address: IpAddr,
    /// Whether it counts for all addresses together.
    counts: bool,
    is_free: bool,
}

/// Returns what counts as one address: whoever has one of IPv6 usually has 64 bits of them.
fn one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let network = six.to_bits() >> 64 << 64;
            IpAddr::V6(network.into())
        }
        four => four,
    }
}

impl Strangers {
    pub(crate) fn new() -> Strangers {
        let state = State {
            addresses: HashMap::new(),
            open: 0,
            rate: Rate::new(RATE_OF_ALL, Instant::now()),
        };
        Strangers {
            state: Mutex::new(state),
            refused: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many connections found no place.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns a place for a connection, if there is one.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Place> {
        let address = one(address);
        let entered = self.state().enter(address, now);
        let Some(counts) = entered else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        Some(Place {
            of: Arc::clone(self),
            address,
            counts,
            is_free: false,
        })
    }
}

impl State {
    /// Takes a place. Returns whether it counts for all addresses together.
    fn enter(&mut self, address: IpAddr, now: Instant) -> Option<bool> {
        self.rate.fill(now);
        if self.addresses.len() >= MOST && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, it| !it.is_idle(now));
            if self.addresses.len() >= MOST {
                return None;
            }
        }
        let one = self.addresses.entry(address).or_insert_with(|| Address {
            open: 0,
            rate: Rate::new(RATE_OF_ONE, now),
            known_until: None,
        });
        one.rate.fill(now);
        let counts = !one.is_known(now);
        let has_room = !counts || (self.open < OF_ALL && self.rate.left >= 1.0);
        if one.open >= OF_ONE || one.rate.left < 1.0 || !has_room {
            return None;
        }
        one.open += 1;
        one.rate.left -= 1.0;
        if counts {
            self.open += 1;
            self.rate.left -= 1.0;
        }
        Some(counts)
    }

    fn leave(&mut self, address: IpAddr, counts: bool) {
        if let Some(one) = self.addresses.get_mut(&address) {
            one.open = one.open.saturating_sub(1);
        }
        if counts {
            self.open = self.open.saturating_sub(1);
        }
    }
}

impl Place {
    /// Its client was answered: the connection is no stranger's any more, and its address is known.
    pub(crate) fn admit(&mut self, now: Instant) {
        let of = Arc::clone(&self.of);
        let mut state = of.state();
        if let Some(one) = state.addresses.get_mut(&self.address) {
            one.known_until = Some(now + KNOWN);
        }
        self.free(&mut state);
    }

    fn free(&mut self, state: &mut State) {
        if !std::mem::replace(&mut self.is_free, true) {
            state.leave(self.address, self.counts);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let of = Arc::clone(&self.of);
        self.free(&mut of.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn an_address_has_few_places_and_gives_them_back() {
        let (all, now) = (Arc::new(Strangers::new()), Instant::now());
        let of = |address: &str| all.enter(address.parse().unwrap(), now);
        // Addresses of one network of IPv6 are one, and so are both ways to write one of IPv4.
        for same in [
            ["2001:db8::1", "2001:db8::2"],
            ["10.0.0.1", "::ffff:10.0.0.1"],
        ] {
            let held: Vec<Place> = (0..OF_ONE).map(|at| of(same[at % 2]).unwrap()).collect();
            assert!(of(same[0]).is_none() && of(same[1]).is_none());
            assert!(of("10.0.0.2").is_some());
            drop(held);
            let mut place = of(same[0]).unwrap();
            place.admit(now);
            drop(place);
            assert_eq!(
                all.state().addresses[&one(same[0].parse().unwrap())].open,
                0
            );
        }
        assert_eq!((all.refused(), all.state().open), (4, 0));
    }

    #[test]
    fn a_flood_from_elsewhere_keeps_no_known_address_out() {
        let (all, now) = (Arc::new(Strangers::new()), Instant::now());
        let scraper = four(7);
        all.enter(scraper, now).unwrap().admit(now);
        let flood = (100..10_000).map(|number| all.enter(four(number), now));
        let held: Vec<Place> = flood.flatten().collect();
        assert_eq!(held.len(), OF_ALL);
        assert!(all.state().addresses.len() <= MOST);
        assert!(all.enter(four(8), now).is_none());
        assert!(all.enter(scraper, now).is_some());
        // It is forgotten at last.
        assert!(all.enter(scraper, now + KNOWN).is_none());
        drop(held);
        assert!(all.enter(four(8), now + Duration::from_secs(2)).is_some());
    }

    #[test]
    fn an_address_has_few_connections_a_second() {
        let (all, now) = (Arc::new(Strangers::new()), Instant::now());
        let came = |now| {
            (0..1000)
                .filter(|_| all.enter(four(7), now).is_some())
                .count()
        };
        assert_eq!(came(now), RATE_OF_ONE as usize);
        assert_eq!(came(now + Duration::from_millis(100)), 5);
        assert!(all.enter(four(8), now).is_some());
    }
}
