//! Bytes and descriptors over the socket that is a helper's standard input.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The most descriptors of a message.
const MOST: usize = 3;
/// Space for a control header, 16 bytes, and that many descriptors, in the alignment of the header.
type Control = [u64; 4];

/// Sends all bytes. If the other end is closed, that is an error, and never a signal.
///
/// # Errors
/// The kernel's; the socket's own timeout.
pub fn send_all(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length belong to a live slice.
        let sent = unsafe {
            libc::send(
                socket.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Sends copies of descriptors, with one byte.
///
/// # Errors
/// The kernel's.
pub fn send(socket: &UnixStream, descriptors: [BorrowedFd<'_>; MOST]) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control: Control = [0; 4];
    let numbers = descriptors.map(|descriptor| descriptor.as_raw_fd());
    // SAFETY: all zero bytes are a valid msghdr, and what its pointers lead to outlives the call. The
    // control buffer has room for one header and the descriptors, so the first header is inside it.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = std::mem::size_of_val(&control) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(std::mem::size_of_val(&numbers) as u32) as _;
        std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), numbers);
        // CMSG_SPACE is a multiple of 8, and the message is as long as its one header says.
        message.msg_controllen = libc::CMSG_SPACE(std::mem::size_of_val(&numbers) as u32) as _;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match sent {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives the descriptors that [`send`] has sent.
///
/// # Errors
/// The kernel's; invalid data for another message.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<[OwnedFd; MOST]> {
    let mut byte = 0_u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control: Control = [0; 4];
    // SAFETY: as in `send`. The header and the descriptors are read only where the kernel has written
    // a header of exactly that many. These descriptors are new, so nothing else owns them.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = std::mem::size_of_val(&control) as _;
        match libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
            1 => {}
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => return Err(io::Error::last_os_error()),
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let length = libc::CMSG_LEN(size_of::<[RawFd; MOST]>() as u32) as usize;
        if header.is_null()
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || (*header).cmsg_len as usize != length
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let numbers: [RawFd; MOST] = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        Ok(numbers.map(|number| OwnedFd::from_raw_fd(number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_arrive_ahead_of_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(&one, [null.as_fd(), write.as_fd(), null.as_fd()]).unwrap();
        send_all(&one, b"gpu").unwrap();
        let [_, end, _] = receive(other.as_fd()).unwrap();
        std::fs::File::from(end).write_all(b"x").unwrap();
        drop(write);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        let mut rest = [0; 3];
        (&other).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"gpu");
        // Bytes alone bring no descriptors, and a closed end is an error.
        send_all(&one, b"m").unwrap();
        assert!(receive(other.as_fd()).is_err());
        drop(other);
        assert!(send_all(&one, b"gpu").is_err());
    }
}
