//! A connection that ends where its client does not read for too long.

use hyper::rt::{Read, ReadBufCursor, Write};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A connection.
#[derive(Debug)]
pub(crate) struct Stall<C> {
    connection: C,
    /// How long a write may wait.
    patience: Duration,
    /// Since when one waits.
    waits: bool,
    timer: Pin<Box<Sleep>>,
}

impl<C> Stall<C> {
    pub(crate) fn new(connection: C, patience: Duration) -> Stall<C> {
        Stall {
            connection,
            patience,
            waits: false,
            timer: Box::pin(sleep(patience)),
        }
    }

    /// Lets a write that makes no progress fail when the time is over.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.timer.as_mut().reset(Instant::now() + self.patience);
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
        it.bounded(context, written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        let flushed = Pin::new(&mut it.connection).poll_flush(context);
        it.bounded(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        let closed = Pin::new(&mut it.connection).poll_shutdown(context);
        it.bounded(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use std::future::poll_fn;
    use tokio::net::UnixStream;

    #[test]
    fn a_write_that_nobody_reads_fails_and_others_do_not() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
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
