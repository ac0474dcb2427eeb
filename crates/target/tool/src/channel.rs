//! Our end of the socket between the tool and its collector.
//!
//! The number of the descriptor belongs to the application, which may close it and open a file of
//! its own there. So it is verified before each use ([`VerifiedFd`]).

use midair_guest::VerifiedFd;
use midair_record::collector::{END, HEAD, Head};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The lowest number of our descriptors. 0 to 2 are the application's own, even where it has closed
/// them, and standard input, output and error in the collector.
const LEAST: c_int = 3;

/// How often it is asked whether to wait on, ms.
const LOOK: c_int = 1000;

/// Our end.
#[derive(Debug)]
pub(crate) struct Channel(VerifiedFd);

/// Why no message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The other side has ended, or says what no collector says.
    Ended,
    /// It was not waited for any longer.
    Late,
}

impl Channel {
    /// Makes a channel. Returns the collector's end, too.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let mut ends = [-1; 2];
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: the array has room for the two numbers that the kernel writes.
        if unsafe { libc::socketpair(libc::AF_UNIX, flags, 0, ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [near, far] = ends.map(|end| {
            // SAFETY: socketpair has just made the descriptor, and nothing else owns it.
            let end = unsafe { OwnedFd::from_raw_fd(end) };
            // SAFETY: fcntl only duplicates an open descriptor.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LEAST) }
        });
        let (near, far) = (VerifiedFd::new(near), VerifiedFd::new(far));
        let (Some(near), Some(far)) = (near, far) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the descriptor is ours, and given up just here.
        let far = unsafe { OwnedFd::from_raw_fd(far.into_parts().0) };
        Ok((Channel(near), far))
    }

    /// Says that no more records come. Returns false where the collector cannot hear it.
    pub(crate) fn end(&self) -> bool {
        let word = [END];
        // SAFETY: the kernel reads as many bytes as the array has. The signal that a closed socket
        // would cause is switched off.
        self.0.is_ours()
            && unsafe {
                libc::send(
                    self.0.number(),
                    word.as_ptr().cast(),
                    word.len(),
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            } == 1
    }

    /// Waits for a message as long as `waits` says, which is asked each second. Returns the
    /// message's kind and its bytes.
    pub(crate) fn hear(&self, mut waits: impl FnMut() -> bool) -> Result<(u8, Vec<u8>), Lost> {
        let mut head = [0; HEAD];
        self.fill(&mut head, &mut waits)?;
        let head = Head::read(head).ok_or(Lost::Ended)?;
        let mut bytes = vec![0; head.len];
        self.fill(&mut bytes, &mut waits)?;
        Ok((head.kind, bytes))
    }

    fn fill(&self, mut rest: &mut [u8], waits: &mut impl FnMut() -> bool) -> Result<(), Lost> {
        while !rest.is_empty() {
            if !waits() {
                return Err(Lost::Late);
            }
            let mut poll = libc::pollfd {
                fd: self.0.number(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the pointer is to one valid entry.
            if unsafe { libc::poll(&mut poll, 1, LOOK) } <= 0 {
                continue;
            }
            if !self.0.is_ours() {
                return Err(Lost::Ended);
            }
            // SAFETY: the kernel writes at most as many bytes as the exclusive slice has.
            let got = unsafe {
                libc::recv(
                    self.0.number(),
                    rest.as_mut_ptr().cast(),
                    rest.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(got) {
                Ok(0) => return Err(Lost::Ended),
                Ok(got) => rest = rest.get_mut(got..).unwrap_or_default(),
                Err(_) => match io::Error::last_os_error().kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(Lost::Ended),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::collector::say;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Waits, as often as it is asked in 20 seconds.
    fn patient() -> impl FnMut() -> bool {
        let mut left = 20;
        move || {
            left -= 1;
            left > 0
        }
    }

    #[test]
    fn both_sides_hear_each_other_until_one_has_ended() {
        let (channel, far) = Channel::pair().unwrap();
        let mut far = UnixStream::from(far);
        say(&mut far, 4, b"one").unwrap();
        say(&mut far, 7, b"").unwrap();
        assert_eq!(channel.hear(patient()), Ok((4, b"one".to_vec())));
        assert_eq!(channel.hear(patient()), Ok((7, Vec::new())));
        assert_eq!(channel.hear(|| false), Err(Lost::Late));
        assert!(channel.end());
        let mut word = [0];
        far.read_exact(&mut word).unwrap();
        assert_eq!(word, [END]);
        // A length that no collector announces, and half a message.
        far.write_all(&[1, 255, 255, 255, 255]).unwrap();
        assert_eq!(channel.hear(patient()), Err(Lost::Ended));
        far.write_all(&[1, 9, 0, 0, 0, 1]).unwrap();
        drop(far);
        assert_eq!(channel.hear(patient()), Err(Lost::Ended));
        assert!(!channel.end());
    }

    #[test]
    fn what_the_application_opened_at_our_number_is_not_written_to() {
        let (channel, _far) = Channel::pair().unwrap();
        let (theirs, mut reads) = UnixStream::pair().unwrap();
        // SAFETY: the call takes integers. The second descriptor is ours, and it is replaced.
        unsafe { libc::dup2(theirs.as_raw_fd(), channel.0.number()) };
        assert!(!channel.end());
        reads.set_nonblocking(true).unwrap();
        assert!(reads.read(&mut [0]).is_err(), "nothing was written");
        drop(channel);
        reads.write_all(b"x").unwrap();
    }
}
