//! Sends metrics and profiles to an OpenTelemetry collector: OTLP over HTTP, as protocol buffers.
//!
//! At each interval a thread makes a request for each signal, and an [`outbox`] of bounded size keeps it until it is
//! sent. A collector that is away or busy is tried again with pauses; what becomes too old, does not fit or is
//! refused is dropped and counted, in the page of metrics as well.

pub(crate) mod client;
mod messages;
mod metrics;
pub(crate) mod outbox;
mod profiles;
mod signal;

use crate::remote::jitter;
use crate::route::Server;
use crate::say;
use client::Sent;
use outbox::{Outbox, Outcome};
use profiles::Profiles;
use signal::Signal;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

/// The threads for this: one makes requests, another looks a name up.
pub(crate) const THREADS: usize = 2;
/// The pause behind a first failure, and the longest.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// How long a request is tried to be sent.
const OLDEST: Duration = Duration::from_secs(300);

/// Starts what makes requests, and what sends them.
pub(crate) fn start(server: &Arc<Server>, tasks: &mut JoinSet<()>) {
    if let (Some((_, every)), Some(exported)) = (&server.options.otlp, &server.exported) {
        let outbox = Arc::new(Outbox::new(Arc::clone(exported)));
        tasks.spawn(make(Arc::clone(server), Arc::clone(&outbox), *every));
        tasks.spawn(send(Arc::clone(server), outbox));
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

async fn make(server: Arc<Server>, outbox: Arc<Outbox>, every: Duration) {
    let start = now();
    let mut profiles = Profiles::new(start);
    loop {
        sleep(every).await;
        let server = Arc::clone(&server);
        let made = spawn_blocking(move || {
            let now = now();
            let metrics = metrics::request(&server.page(), start, now);
            let profile = profiles.request(&server.ran(), now);
            (profiles, metrics, profile)
        });
        match made.await {
            Ok((kept, metrics, profile)) => {
                profiles = kept;
                outbox.push(Signal::Metrics, metrics);
                if let Some(profile) = profile {
                    outbox.push(Signal::Profiles, profile);
                }
            }
            // The panic has been reported; what the next profile is counted from is gone.
            Err(_) => profiles = Profiles::new(now()),
        }
    }
}

async fn send(server: Arc<Server>, outbox: Arc<Outbox>) {
    let Some((collector, _)) = &server.options.otlp else {
        return;
    };
    let mut fails = false;
    loop {
        let item = outbox.next().await;
        let mut pause = FIRST;
        let (outcome, why) = loop {
            match collector.post(item.signal, item.bytes.clone()).await {
                Sent::Taken { rejected } => {
                    outbox.exported.rejected(item.signal, rejected);
                    break (Outcome::Sent, None);
                }
                Sent::Refused(why) => break (Outcome::Refused, Some(why)),
                Sent::Again(_, why) if item.at.elapsed() > OLDEST => {
                    break (Outcome::Late, Some(why));
                }
                Sent::Again(after, why) => {
                    if !std::mem::replace(&mut fails, true) {
                        say(&format!("cannot send to {collector}: {why}; trying again"));
                    }
                    outbox.exported.count(item.signal, Outcome::Again);
                    sleep(after.unwrap_or(pause).min(LONGEST).mul_f64(jitter())).await;
                    pause = (2 * pause).min(LONGEST);
                }
            }
        };
        outbox.exported.count(item.signal, outcome);
        let failed_before = std::mem::replace(&mut fails, why.is_some());
        match why {
            None if failed_before => say(&format!("sends to {collector} again")),
            Some(why) if !failed_before => {
                let signal = item.signal.name();
                say(&format!(
                    "cannot send {signal} to {collector}: {why}; dropped"
                ));
            }
            _ => {}
        }
    }
}
