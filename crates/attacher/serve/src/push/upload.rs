//! Puts waiting files into the bucket, the oldest first, each until the bucket has it or there is no more room for it.

use super::kept::Kept;
use super::place::{number_of, own_partition};
use super::pushed::Pushed;
use crate::remote::jitter;
use crate::s3::{Bucket, NotPut};
use crate::say;
use hyper::body::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// The pause behind a first failure, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

type To = Arc<(Bucket, Kept)>;

/// Uploads one file. Returns whether there was one.
async fn one(to: &To, pushed: &Pushed) -> Result<bool, NotPut> {
    let failed = |why: String| NotPut { why, after: None };
    let of = Arc::clone(to);
    let oldest = spawn_blocking(move || of.1.oldest()).await;
    let oldest = oldest.map_err(|error| failed(error.to_string()))?;
    let Some((name, bytes)) = oldest.map_err(|error| failed(error.to_string()))? else {
        return Ok(false);
    };
    let made = Duration::from_millis(number_of(&name).unwrap_or_default());
    let at = format!("{}/{name}", own_partition(made));
    let put = to.0.put(&at, Bytes::from(bytes)).await;
    pushed.uploads(if put.is_ok() { "done" } else { "failed" }, 1);
    put?;
    let of = Arc::clone(to);
    let _ = spawn_blocking(move || of.1.remove(&name)).await;
    Ok(true)
}

/// Uploads files as they come.
pub(super) async fn upload(to: To, pushed: Arc<Pushed>) {
    let (mut pause, mut fails) = (FIRST, false);
    loop {
        match one(&to, &pushed).await {
            Ok(true) => {
                pause = FIRST;
                if std::mem::take(&mut fails) {
                    say(&format!("uploads to {} again", to.0));
                }
            }
            Ok(false) => pushed.came.notified().await,
            Err(NotPut { why, after }) => {
                if !std::mem::replace(&mut fails, true) {
                    say(&format!("cannot upload to {}: {why}; trying again", to.0));
                }
                sleep(after.unwrap_or(pause).min(LONGEST).mul_f64(jitter())).await;
                pause = (2 * pause).min(LONGEST);
            }
        }
    }
}

/// Uploads what waits when the server ends, as far as there is time.
pub(super) async fn last(to: &To, pushed: &Pushed, patience: Duration) {
    let all = async { while matches!(one(to, pushed).await, Ok(true)) {} };
    let _ = timeout(patience, all).await;
    let of = Arc::clone(to);
    let left = spawn_blocking(move || of.1.count())
        .await
        .unwrap_or_default();
    if left > 0 {
        let then = match to.1.stays() {
            true => "the next server with the same --push-keep uploads them",
            false => "they are lost; with --push-keep they would wait",
        };
        say(&format!("{left} files of --push are not uploaded: {then}"));
    }
}
