//! A connection that ends where its client reads too slowly.
//!
//! A write may wait so long in all. Each byte that a client takes gives time back, as many bytes a second
//! all of it, so a client that reads at that rate may read for ever, and one that reads a byte now and
//! then keeps its place for little longer than one that reads nothing.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The rate at which a client may read for ever, in bytes a second.
const RATE: f64 = 524_288.0;

/// A connection.
#[derive(Debug)]
pub(crate) struct Stall<C> {
    connection: C,
    /// How long writes may wait, at most, and from now on.
    patience: Duration,
    left: Duration,
    /// Since when one waits.
    waits: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<C> Stall<C> {
    pub(crate) fn new(connection: C, patience: Duration) -> Stall<C> {
        Stall {
            connection,
            patience,
            left: patience,
            waits: None,
            timer: Box::pin(sleep(patience)),
        }
    }

    /// Lets a write that waits fail when the time is over. `bytes` counts what was written.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &written {
            let waited = self.waits.take().map_or(Duration::ZERO, |it| it.elapsed());
            let count = done.as_ref().map_or(0, bytes);
            let earned = Duration::from_secs_f64(count as f64 / RATE);
            self.left = (self.left.saturating_sub(waited) + earned).min(self.patience);
            return written;
        }
        if self.waits.is_none() {
            let now = Instant::now();
            self.waits = Some(now);
            self.timer.as_mut().reset(now + self.left);
        }
        match self.timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<C: Read + Unpin> Read for Stall<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_read(context, buffer)
    }
}

impl<C: Write + Unpin> Write for Stall<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let it = self.get_mut();
        let written = Pin::new(&mut it.connection).poll_write(context, bytes);
        it.bounded(context, written, |count| *count)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        let flushed = Pin::new(&mut it.connection).poll_flush(context);
        it.bounded(context, flushed, |()| 0)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        let closed = Pin::new(&mut it.connection).poll_shutdown(context);
        it.bounded(context, closed, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use std::future::poll_fn;
    use tokio::net::UnixStream;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    }

    /// A client that takes a little at a time would keep its place, and a file of the server's, for hours.
    #[test]
    fn a_write_that_is_read_slowly_fails() {
        let patience = Duration::from_millis(300);
        let (kind, took) = runtime().block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = Stall::new(TokioIo::new(ours), patience);
            let reads = tokio::spawn(async move {
                loop {
                    let _ = theirs.try_read(&mut [0; 2048]);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
            let began = Instant::now();
            let kind = loop {
                let bytes = [0; 4096];
                let write =
                    poll_fn(|context| Pin::new(&mut ours).poll_write(context, &bytes)).await;
                match write {
                    Ok(_) if began.elapsed() > Duration::from_secs(20) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error.kind()),
                }
            };
            reads.abort();
            (kind, began.elapsed())
        });
        assert_eq!(kind, Some(io::ErrorKind::TimedOut));
        assert!(took >= patience, "{took:?}");
    }

    #[test]
    fn a_write_that_nobody_reads_fails_and_others_do_not() {
        let runtime = runtime();
        let patience = Duration::from_millis(300);
        let (mut written, why) = (0, std::cell::RefCell::new(None));
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = Stall::new(TokioIo::new(ours), patience);
            let began = Instant::now();
            loop {
                let bytes = [0; 4096];
                // The client reads for longer than the patience, and then no more.
                if began.elapsed() < 2 * patience {
                    let _ = theirs.try_read(&mut [0; 8192]);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                match poll_fn(|context| Pin::new(&mut ours).poll_write(context, &bytes)).await {
                    Ok(count) => written += count,
                    Err(error) => {
                        assert!(began.elapsed() > 2 * patience);
                        *why.borrow_mut() = Some(error.kind());
                        return;
                    }
                }
            }
        });
        assert!(written > 0);
        assert_eq!(why.take(), Some(io::ErrorKind::TimedOut));
    }
}
