//! Pages of metrics: made in a thread of their own, one at a time for each format.
//!
//! Making a page takes locks that sessions hold, so it may take long on a busy machine. A scraper does not wait for
//! that: it gets the last finished page, with its age, and the page that is being made is the next one's.

use crate::form::Form;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;

/// How long a request waits for its own page where there is an earlier one, and where there is none.
const LONG: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(10);
/// The oldest page that is an answer.
const OLDEST: Duration = Duration::from_secs(300);
/// The threads that make pages, at most.
pub(crate) const MAKING: usize = Form::ALL;

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

/// The pages of one format.
#[derive(Debug)]
struct Kept {
    making: Arc<Semaphore>,
    last: watch::Sender<Option<Made>>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            making: Arc::new(Semaphore::new(1)),
            last: watch::Sender::new(None),
        }
    }
}

/// The pages of all formats.
#[derive(Debug, Default)]
pub(crate) struct Pages([Kept; MAKING]);

impl Pages {
    /// Returns a page: a new one by `make` if that does not take long, or else the last one. None where there is
    /// none for too long.
    pub(crate) async fn get(
        &self,
        form: Form,
        make: impl FnOnce() -> Bytes + Send + 'static,
    ) -> Option<Made> {
        let kept = self.0.get(form.number())?;
        let mut finished = kept.last.subscribe();
        if let Ok(permit) = Arc::clone(&kept.making).try_acquire_owned() {
            let last = kept.last.clone();
            spawn_blocking(move || {
                let wakes = Wakes(last);
                let _permit = permit;
                // The page is as old as its oldest number.
                let at = Instant::now();
                let page = make();
                wakes.0.send_if_modified(|it| {
                    *it = Some(Made { page, at });
                    false
                });
            });
        }
        let quick = tokio::time::timeout(LONG, finished.changed()).await;
        let last = kept.last.borrow().clone();
        match (quick, last) {
            (Err(_), Some(last)) if last.age() < OLDEST => Some(last),
            (Ok(_), last) => last.filter(|last| last.age() < OLDEST),
            (Err(_), _) => {
                let _ = tokio::time::timeout(LONGEST, finished.changed()).await;
                let last = kept.last.borrow().clone();
                last.filter(|last| last.age() < OLDEST)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;
    use std::sync::mpsc::channel;

    const OPEN: Form = Form::Text(Text::Open);

    #[test]
    fn a_page_that_takes_long_is_the_next_one() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pages = Pages::default();
            let open = |text: &'static str| pages.get(OPEN, move || text.into());
            // There is none to fall back to, so a request waits.
            let (release, held) = channel::<()>();
            let slow = pages.get(OPEN, move || {
                let _ = held.recv();
                "1".into()
            });
            let releases = std::thread::spawn(move || {
                std::thread::sleep(2 * LONG);
                release.send(()).unwrap();
            });
            assert_eq!(slow.await.unwrap().page, "1");
            releases.join().unwrap();
            let (release, held) = channel::<()>();
            let began = Instant::now();
            let second = pages.get(OPEN, move || {
                let _ = held.recv();
                "2".into()
            });
            let second = second.await.unwrap();
            assert!(second.page == "1" && second.age() >= LONG && began.elapsed() >= LONG);
            // No other is made meanwhile.
            assert_eq!(open("3").await.unwrap().page, "1");
            let other = pages.get(Form::Protobuf, || "other".into());
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
            assert!(pages.get(OPEN, || panic!("no page")).await.is_none());
            let next = pages.get(OPEN, || "1".into()).await;
            assert_eq!(next.unwrap().page, "1");
            assert!(began.elapsed() < LONGEST);
        });
    }
}
