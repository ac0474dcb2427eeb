//! Events of the kernel driver: page faults, migrations, unmaps, evictions of queues, and how many
//! the driver dropped.
//!
//! The driver tells a process of its own events without any right: through a descriptor for each GPU
//! that `/dev/kfd` gives. Those of another process it tells only to who has CAP_SYS_ADMIN. So the
//! worker reads them in the process itself, while they are wanted, and closes the descriptors at the
//! end of the collecting (AMD-119). What is told are lines of text; [`mod@line`] reads them.
//!
//! Each event is a record; of a begin and its end there is one more record, for both.

pub(crate) mod line;

use line::Event;
use midair_domain::{KindSet, sets};
use midair_record::event::{self, Header, KfdEvent, Plain, kind};
use midair_sdk_api::gpus;
use midair_sdk_device::domain::{Device, Domain};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// The driver's device.
const DRIVER: &CStr = c"/dev/kfd";
/// `AMDKFD_IOC_SMI_EVENTS`: a GPU's id in, a descriptor out (source: `docs/sources.md#kfd`).
const SMI_EVENTS: libc::c_ulong = 0xc008_4b1f;
/// Events that have begun and not ended, at most: what is beyond has no record of both.
const MOST_OPEN: usize = 4096;
/// Bytes that are read at once. The driver keeps 8192.
const READ: usize = 8192;

/// What the request takes and gives.
#[repr(C)]
#[derive(Debug, Default)]
struct SmiArguments {
    gpu: u32,
    descriptor: u32,
}

/// A GPU's events.
#[derive(Debug)]
struct Stream {
    events: File,
    /// A line whose end was not read yet.
    rest: Vec<u8>,
}

impl Stream {
    /// Opens the events of a GPU.
    fn open(device: &File, gpu: u32) -> io::Result<Stream> {
        let mut arguments = SmiArguments {
            gpu,
            descriptor: u32::MAX,
        };
        // SAFETY: the request's own struct, which lives during the call.
        if unsafe { libc::ioctl(device.as_raw_fd(), SMI_EVENTS, &raw mut arguments) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the driver made it for us, and nobody else has it.
        let mut events = unsafe { File::from_raw_fd(arguments.descriptor.cast_signed()) };
        events.write_all(&line::MASK.to_ne_bytes())?;
        // The worker asks again and again, and waits for nothing.
        // SAFETY: our own descriptor.
        unsafe {
            let flags = libc::fcntl(events.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(events.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            libc::fcntl(events.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
        }
        Ok(Stream {
            events,
            rest: Vec::new(),
        })
    }

    /// What has come since the last call: whole lines.
    fn lines(&mut self) -> Vec<String> {
        let mut bytes = [0; READ];
        while let Ok(count @ 1..) = self.events.read(&mut bytes) {
            self.rest
                .extend_from_slice(bytes.get(..count).unwrap_or_default());
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

/// Opens the driver's device; not through the program's own descriptor, which may be anything.
fn open_device() -> io::Result<File> {
    // SAFETY: a C string; the descriptor is nobody else's.
    unsafe {
        let descriptor = libc::open(DRIVER.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(descriptor))
    }
}

/// Events of the kernel driver as a domain.
#[derive(Debug, Default)]
pub struct DriverEvents {
    streams: Vec<Stream>,
    /// They were asked for in this collecting, with or without success.
    asked: bool,
    open: Vec<Event>,
    wanted: KindSet,
    /// What is to be told the user, once there are records.
    complaints: Vec<String>,
}

impl DriverEvents {
    /// Opens the events of all GPUs; what cannot be had is told.
    fn start(&mut self) {
        let device = match open_device() {
            Ok(device) => device,
            Err(error) => {
                self.complaints.push(format!(
                    "no events of the kernel driver are recorded: /dev/kfd: {error}"
                ));
                return;
            }
        };
        for gpu in gpus::ids() {
            match Stream::open(&device, gpu) {
                Ok(stream) => self.streams.push(stream),
                Err(error) => self.complaints.push(format!(
                    "no events of the kernel driver are recorded for the GPU {gpu:#x}: {error}"
                )),
            }
        }
        if self.streams.is_empty() && gpus::ids().next().is_none() {
            self.complaints
                .push("no events of the kernel driver are recorded: there is no GPU".to_owned());
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
