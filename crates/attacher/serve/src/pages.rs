//! Pages of metrics: made in a thread of their own, one at a time for each text.
//!
//! Making a page takes locks that sessions hold, so it may take long on a busy machine. A scraper does not wait for
//! that: it gets the last finished page, with its age, and the page that is being made is the next one's.

use crate::metrics::Text;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;

/// How long a request waits for its own page where there is an earlier one, and where there is none.
const LONG: Duration = Duration::from_millis(40);
const LONGEST: Duration = Duration::from_secs(10);
/// The oldest page that is an answer.
const OLDEST: Duration = Duration::from_secs(300);
/// The threads that make pages, at most.
pub(crate) const MAKING: usize = 2;

/// A finished page.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) page: Bytes,
    at: Instant,
}

impl Made {
    pub(crate) fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// Wakes those who wait for a page, also where making it panicked.
struct Wakes(watch::Sender<Option<Made>>);

impl Drop for Wakes {
    fn drop(&mut self) {
        self.0.send_modify(|_| {});
    }
}

/// The pages of one text.
#[derive(Debug)]
struct Form {
    making: Arc<Semaphore>,
    last: watch::Sender<Option<Made>>,
}

impl Default for Form {
    fn default() -> Form {
        Form {
            making: Arc::new(Semaphore::new(1)),
            last: watch::Sender::new(None),
        }
    }
}

/// The pages of all texts.
#[derive(Debug, Default)]
pub(crate) struct Pages([Form; MAKING]);

impl Pages {
    /// Returns a page: a new one by `make` if that does not take long, or else the last one. None where there is
    /// none for too long.
    pub(crate) async fn get(
        &self,
        text: Text,
        make: impl FnOnce() -> String + Send + 'static,
    ) -> Option<Made> {
        let form = match text {
            Text::Open => &self.0[0],
            Text::Prometheus => &self.0[1],
        };
        let mut finished = form.last.subscribe();
        if let Ok(permit) = Arc::clone(&form.making).try_acquire_owned() {
            let last = form.last.clone();
            spawn_blocking(move || {
                let wakes = Wakes(last);
                let _permit = permit;
                // The page is as old as its oldest number.
                let at = Instant::now();
                let page = make().into();
                wakes.0.send_if_modified(|it| {
                    *it = Some(Made { page, at });
                    false
                });
            });
        }
        let quick = tokio::time::timeout(LONG, finished.changed()).await;
        let last = form.last.borrow().clone();
        match (quick, last) {
            (Err(_), Some(last)) if last.age() < OLDEST => Some(last),
            (Ok(_), last) => last.filter(|last| last.age() < OLDEST),
            (Err(_), _) => {
                let _ = tokio::time::timeout(LONGEST, finished.changed()).await;
                let last = form.last.borrow().clone();
                last.filter(|last| last.age() < OLDEST)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_page_that_takes_long_is_the_next_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pages = Pages::default();
            let open = |text: &'static str| pages.get(Text::Open, move || text.to_owned());
            // There is none to fall back to, so a request waits.
            let (release, held) = channel::<()>();
            let slow = pages.get(Text::Open, move || {
                let _ = held.recv();
                "1".to_owned()
            });
            let releases = std::thread::spawn(move || {
                std::thread::sleep(2 * LONG);
                release.send(()).unwrap();
            });
            assert_eq!(slow.await.unwrap().page, "1");
            releases.join().unwrap();
            let (release, held) = channel::<()>();
            let began = Instant::now();
            let second = pages.get(Text::Open, move || {
                let _ = held.recv();
                "2".to_owned()
            });
            let second = second.await.unwrap();
            assert!(second.page == "1" && second.age() >= LONG && began.elapsed() >= LONG);
            // No other is made meanwhile.
            assert_eq!(open("3").await.unwrap().page, "1");
            let other = pages.get(Text::Prometheus, || "other".to_owned());
            assert_eq!(other.await.unwrap().page, "other");
            release.send(()).unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            while open("4").await.unwrap().page != "4" {
                assert!(Instant::now() < until);
            }
        });
    }

    #[test]
    fn a_page_whose_thread_panics_is_none_and_the_next_is_made() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pages = Pages::default();
            let began = Instant::now();
            assert!(pages.get(Text::Open, || panic!("no page")).await.is_none());
            let next = pages.get(Text::Open, || "1".to_owned()).await;
            assert_eq!(next.unwrap().page, "1");
            assert!(began.elapsed() < LONGEST);
        });
    }
}
