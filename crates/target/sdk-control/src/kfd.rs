//! Events of the kernel driver: page faults, migrations, unmaps, evictions of queues, and the
//! number of events that the driver dropped.
//!
//! The driver reports a process's own events without any privilege, through a descriptor for each
//! GPU that `/dev/kfd` returns. It reports the events of another process only with CAP_SYS_ADMIN.
//! So the worker reads them in the process itself, while they are wanted, and closes the
//! descriptors at the end of the collection (AMD-119). The driver writes lines of text, which
//! [`mod@line`] parses.
//!
//! Each event becomes a record. A start and its end become one more record for both.

pub(crate) mod line;

use line::Event;
use midair_domain::{KindSet, sets};
use midair_guest::VerifiedFd;
use midair_record::event::{self, Header, KfdEvent, Plain, kind};
use midair_sdk_api::gpus;
use midair_sdk_device::domain::{Device, Domain};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::PathBuf;

/// The driver's device.
const DRIVER: &CStr = c"/dev/kfd";
/// `AMDKFD_IOC_SMI_EVENTS`: takes a GPU's id and returns a descriptor (source:
/// `docs/sources.md#kfd`).
const SMI_EVENTS: libc::c_ulong = 0xc008_4b1f;
/// The most events that have started and not ended. Further ones get no record of both.
const MOST_OPEN: usize = 4096;
/// How many bytes are read at once. The driver buffers 8192.
const READ: usize = 8192;

/// The argument and result of the request.
#[repr(C)]
#[derive(Debug, Default)]
struct SmiArguments {
    gpu: u32,
    descriptor: u32,
}

/// The most reads in one round, so that a driver which reports without end does not occupy the
/// worker.
const READS: usize = 64;

/// The events of a GPU.
#[derive(Debug)]
struct Stream {
    /// The descriptor. `None`: its number belongs to the program by now.
    events: Option<VerifiedFd>,
    /// What its number refers to, according to `/proc`. All files of this sort share one inode, so
    /// the inode cannot tell ours from the program's own.
    link: PathBuf,
    /// A line whose end has not been read yet.
    rest: Vec<u8>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.give_up_what_is_not_ours();
    }
}

impl Stream {
    /// Gives the descriptor up if the program has closed its number and has opened something of its
    /// own there.
    fn give_up_what_is_not_ours(&mut self) {
        let is_ours =
            |fd: &VerifiedFd| fd.is_ours() && link(fd.number()).as_deref() == Some(&*self.link);
        if self.events.as_ref().is_some_and(|fd| !is_ours(fd))
            && let Some(theirs) = self.events.take()
        {
            let _ = theirs.into_parts();
        }
    }

    /// Opens the events of a GPU.
    fn open(device: &File, gpu: u32) -> io::Result<Stream> {
        let mut arguments = SmiArguments {
            gpu,
            descriptor: u32::MAX,
        };
        // SAFETY: the argument is the request's own struct, which lives during the call.
        if unsafe { libc::ioctl(device.as_raw_fd(), SMI_EVENTS, &raw mut arguments) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let number = arguments.descriptor.cast_signed();
        let (Some(events), Some(link)) = (VerifiedFd::new(number), link(number)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mask = line::MASK.to_ne_bytes();
        // Make the descriptor non-blocking: the worker reads it repeatedly, and must not wait.
        // SAFETY: the driver has just made the descriptor for us. The write reads this many bytes
        // of a live array.
        let written = unsafe {
            let flags = libc::fcntl(number, libc::F_GETFL);
            libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK);
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::write(number, mask.as_ptr().cast(), mask.len())
        };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Stream {
            events: Some(events),
            link,
            rest: Vec::new(),
        })
    }

    /// Returns the whole lines that have arrived since the last call.
    fn lines(&mut self) -> Vec<String> {
        let mut bytes = [0; READ];
        for _ in 0..READS {
            self.give_up_what_is_not_ours();
            let Some(events) = &self.events else { break };
            // SAFETY: the descriptor was just verified to be ours. The call writes at most this
            // many bytes into the array.
            let got =
                unsafe { libc::read(events.number(), bytes.as_mut_ptr().cast(), bytes.len()) };
            match usize::try_from(got) {
                Ok(count @ 1..) => self
                    .rest
                    .extend_from_slice(bytes.get(..count).unwrap_or_default()),
                _ => break,
            }
        }
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }
}

/// Returns what a descriptor number refers to, according to `/proc`.
fn link(number: RawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{number}")).ok()
}

/// Opens the driver's device. The program's own descriptor is not used, since it may be anything.
fn open_device() -> io::Result<File> {
    // SAFETY: the path is a C string, and nothing else owns the new descriptor.
    unsafe {
        let descriptor = libc::open(DRIVER.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor))
    }
}

/// The events of the kernel driver as a domain.
#[derive(Debug, Default)]
pub struct DriverEvents {
    streams: Vec<Stream>,
    /// Whether they were requested in this collection, with or without success.
    asked: bool,
    open: Vec<Event>,
    wanted: KindSet,
    /// Notes for the user, which are written when there are records.
    complaints: Vec<String>,
}

impl DriverEvents {
    /// Opens the events of all GPUs; failures are noted for the user.
    fn start(&mut self) {
        let device = match open_device() {
            Ok(device) => device,
            // Without the driver there are no events of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.complaints.push(format!(
                    "cannot record events of the kernel driver: /dev/kfd: {error}"
                ));
                return;
            }
        };
        for gpu in gpus::ids() {
            match Stream::open(&device, gpu) {
                Ok(stream) => self.streams.push(stream),
                Err(error) => self.complaints.push(format!(
                    "cannot record events of the kernel driver for the GPU {gpu:#x}: {error}"
                )),
            }
        }
        if self.streams.is_empty() && gpus::ids().next().is_none() {
            self.complaints
                .push("cannot record events of the kernel driver: there is no GPU".to_owned());
        }
    }

    fn take(&mut self, event: Event, device: &mut Device<'_>) {
        self.put(&event, event.start, device);
        match event.part() {
            line::Part::Begin if self.open.len() < MOST_OPEN => self.open.push(event),
            line::Part::End => {
                let begun = self.open.iter().position(|begun| begun.is_ended_by(&event));
                if let Some(at) = begun {
                    let begun = self.open.swap_remove(at);
                    let end = event.start;
                    if let Some(both) = begun.with_end(&event) {
                        self.put(&both, end, device);
                    }
                }
            }
            _ => {}
        }
    }

    fn put(&self, event: &Event, end: u64, device: &mut Device<'_>) {
        let Some(kind) = event.kind().filter(|kind| self.wanted.contains(*kind)) else {
            return;
        };
        let record = KfdEvent {
            header: Header {
                size: size_of::<KfdEvent>() as u16,
                kind,
                flags: 0,
                operation: event.operation,
            },
            start: event.start,
            end,
            address: event.address,
            end_address: event.end_address,
            tracing_kind: event.tracing_kind as u32,
            pid: event.pid,
            from: event.from,
            to: event.to,
            prefetch: event.prefetch,
            preferred: event.preferred,
            error: event.error,
            count: event.count,
        };
        device.sink.put(kind, record.bytes());
    }
}

impl Domain for DriverEvents {
    fn kind(&self) -> u8 {
        kind::KFD_PAGE_FAULT
    }

    fn wanted(&mut self, kinds: KindSet) {
        self.wanted = kinds & sets::DRIVER;
        if !self.wanted.is_empty() && !std::mem::replace(&mut self.asked, true) {
            self.start();
        }
    }

    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        for text in self.complaints.drain(..) {
            device.sink.put(kind::NOTE, &event::note(&text));
        }
        let mut lines = Vec::new();
        for stream in &mut self.streams {
            lines.extend(stream.lines());
        }
        let some = !lines.is_empty();
        for event in lines.iter().filter_map(|line| line::read(line)) {
            self.take(event, device);
        }
        some
    }

    fn books(&mut self, device: &mut Device<'_>) {
        self.pass(device);
    }

    fn release(&mut self, _device: &mut Device<'_>) {
        *self = DriverEvents::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_counter() -> RawFd {
        // SAFETY: the call takes only numbers, and the caller owns the result.
        unsafe { libc::eventfd(1, libc::EFD_NONBLOCK) }
    }

    /// A program that closes all descriptor numbers that it does not know, and opens its own files
    /// there.
    #[test]
    fn what_the_program_has_opened_in_our_place_is_neither_read_nor_closed() {
        let number = event_counter();
        let mut stream = Stream {
            events: VerifiedFd::new(number),
            link: link(number).unwrap(),
            rest: Vec::new(),
        };
        assert!(stream.lines().is_empty() && stream.events.is_some());
        // SAFETY: as above. Files of this sort share one inode, too.
        let theirs = unsafe { libc::epoll_create1(0) };
        // SAFETY: the call takes only numbers; the second one is ours and is replaced.
        assert_eq!(unsafe { libc::dup2(theirs, number) }, number);
        assert!(stream.lines().is_empty());
        assert!(stream.events.is_none(), "it is the program's");
        drop(stream);
        assert_eq!(link(number), link(theirs), "and is open");
        // SAFETY: both descriptors are ours.
        unsafe { (libc::close(number), libc::close(theirs)) };
    }
}
