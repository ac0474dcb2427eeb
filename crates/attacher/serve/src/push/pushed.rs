//! What became of files, and the thread that writes one.

use crate::page::{Kind, Page};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// What became of the files, and the thread that writes one.
#[derive(Debug, Default)]
pub(crate) struct Pushed {
    counts: Mutex<[u64; 2]>,
    /// Uploads, by what became of them.
    uploads: Mutex<BTreeMap<&'static str, u64>>,
    /// A file waits to be uploaded.
    pub(super) came: Notify,
    /// It may hang for as long as the file system of the directory does, and no second one starts meanwhile.
    writer: tokio::sync::Mutex<Option<JoinHandle<Result<(), String>>>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pushed {
    fn count(&self, is_written: bool) {
        held(&self.counts)[usize::from(is_written)] += 1;
    }

    pub(super) fn uploads(&self, outcome: &'static str, count: u64) {
        *held(&self.uploads).entry(outcome).or_default() += count;
    }

    /// Adds the counts to a page.
    pub(crate) fn write(&self, page: &mut Page) {
        let counts = *held(&self.counts);
        let help = "Parquet files, by what became of them";
        let family = page.family("midair_push_files", Kind::Counter, "", help);
        for (outcome, count) in ["failed", "written"].iter().zip(counts) {
            family.add(&[("outcome", outcome)], count as f64);
        }
        let help = "Uploads of such files to the bucket, by what became of them";
        let family = page.family("midair_push_uploads", Kind::Counter, "", help);
        for (outcome, count) in held(&self.uploads).iter() {
            family.add(&[("outcome", outcome)], *count as f64);
        }
    }

    /// Writes a file in a thread, and waits so long for it, and for an earlier one that is not finished yet.
    pub(super) async fn file(
        &self,
        patience: Duration,
        write: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let mut writer = self.writer.lock().await;
        let in_turn = async {
            if let Some(earlier) = writer.as_mut() {
                // It has been counted.
                let _ = earlier.await;
            }
            let written = writer.insert(spawn_blocking(write)).await;
            *writer = None;
            written.unwrap_or_else(|_| Err("the thread that writes ended".to_owned()))
        };
        let late = |_| {
            let seconds = patience.as_secs();
            Err(format!("the directory does not answer within {seconds} s"))
        };
        let written = timeout(patience, in_turn).await.unwrap_or_else(late);
        self.count(written.is_ok());
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A file system that hangs costs one thread, and one file an interval; when it is back, so are the files.
    #[test]
    fn a_directory_that_hangs_keeps_one_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (pushed, (to, hangs)) = (Pushed::default(), std::sync::mpsc::channel::<()>());
        let short = Duration::from_millis(100);
        runtime.block_on(async {
            let hung = pushed.file(short, move || hangs.recv().map_err(|it| it.to_string()));
            assert!(hung.await.unwrap_err().contains("does not answer"));
            let second = pushed.file(short, || panic!("a second writer")).await;
            assert!(second.unwrap_err().contains("does not answer"));
            to.send(()).unwrap();
            pushed.file(10 * PATIENCE, || Ok(())).await.unwrap();
            let ended = pushed.file(PATIENCE, || panic!("the writer's end")).await;
            assert!(ended.unwrap_err().contains("thread that writes ended"));
        });
        assert_eq!(*pushed.counts.lock().unwrap(), [3, 1]);
    }
}
