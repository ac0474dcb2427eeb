//! The dispatch log of AMD's kernel driver: when the kernels of a process started and ended. The
//! GPU's firmware writes it into memory that a reader maps; the profiled process has no part in it.
//!
//! Numbers and layouts: `docs/sources.md#kfd`. They were read in public sources; we never saw a
//! Linux kernel that has them.

mod samples;

pub use samples::{Offer, SAMPLES_SINCE};

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

/// The version of the driver's profiler interface that is spoken here
/// (`KFD_IOC_PROFILER_VERSION_NUM`).
pub const PROFILER_VERSION: u32 = 6;
/// The layout versions of a stream that are known here (`KFD_DLOG_STREAM_ABI_VERSION`).
pub const STREAM_VERSIONS: [u32; 2] = [3, 4];

/// `_IOWR('K', number, bytes)`.
const fn request(number: u32, bytes: usize) -> u32 {
    3 << 30 | (bytes as u32) << 16 | (b'K' as u32) << 8 | number
}

/// `AMDKFD_IOC_GET_CLOCK_COUNTERS`.
const CLOCK_COUNTERS: u32 = request(0x05, size_of::<ClockArguments>());
/// `AMDKFD_IOC_PROFILER`.
const PROFILER: u32 = request(0x28, size_of::<ProfilerArguments>());
/// The number of `KFD_DLOG_STREAM_IOC`. The length of its argument differs between versions.
const STREAM: u32 = 0x88;
/// `kfd_profiler_ops`.
const OP_VERSION: u32 = 2;
/// `kfd_profiler_ops`.
const OP_DISPATCH_LOG: u32 = 4;
/// `KFD_IOC_PROFILER_DLOG_OPEN_STREAM`.
const OPEN_STREAM: u32 = 0;
/// `KFD_DLOG_OPEN_F_RAW_MMAP`.
const RAW_MMAP: u32 = 1;

/// `struct kfd_ioctl_profiler_args`.
#[repr(C, align(8))]
#[derive(Debug, Default)]
struct ProfilerArguments {
    op: u32,
    pad: u32,
    body: [u32; 8],
}

/// `struct kfd_ioctl_get_clock_counters_args`.
#[repr(C)]
#[derive(Debug, Default)]
struct ClockArguments {
    gpu: u64,
    cpu: u64,
    system: u64,
    frequency: u64,
    gpu_id: u32,
    pad: u32,
}

const _: () = assert!(size_of::<ProfilerArguments>() == 40 && size_of::<ClockArguments>() == 40);

/// `AMDKFD_IOC_GET_VERSION`: `_IOR('K', 1, 8)`.
const GET_VERSION: u32 = 2 << 30 | 8 << 16 | (b'K' as u32) << 8 | 1;
/// From this version of the driver's interface on, the profiler's request has today's number.
const PROFILER_IN_LINUX: (u32, u32) = (1, 23);
/// The number of that request in AMD's own builds of older drivers.
const PROFILER_BEFORE: u32 = request(0x86, size_of::<ProfilerArguments>());
/// `kfd_profiler_ops`: the operation on the counters of a GPU.
const OP_COUNTERS: u32 = 0;

/// How the driver's profiler is asked for locks, which differs between versions of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfilerInterface {
    /// The whole number of the request.
    request: u32,
    /// Which word of the argument is the first behind the operation: 1, or 2 where the driver
    /// aligns it.
    first: usize,
    /// The version of the profiler's interface.
    pub version: u32,
}

/// Makes an ioctl whose argument is a value of `T`.
///
/// # Safety `number` is a request whose argument has the layout of `T`, or a request that the file
/// does not know.
unsafe fn ioctl<T>(file: &File, number: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is live. The kernel reads and writes no more than the value's size,
    // which is part of the number; that the layout is right is the caller's promise.
    match unsafe { libc::ioctl(file.as_raw_fd(), number as _, std::ptr::from_mut(argument)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The driver's device file.
#[derive(Debug)]
pub struct Kfd(File);

/// The times of a GPU's clock and of the system's, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The GPU's clock, in ticks.
    pub gpu: u64,
    /// The system's clock, CLOCK_BOOTTIME in ns.
    pub system: u64,
}

impl Kfd {
    /// Opens `/dev/kfd`.
    ///
    /// # Errors
    /// The kernel's.
    #[expect(clippy::disallowed_methods, reason = "a device of this machine's")]
    pub fn open() -> io::Result<Kfd> {
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open("/dev/kfd")?;
        Ok(Kfd(options))
    }

    fn profiler(&self, op: u32, body: [u32; 8]) -> io::Result<[u32; 8]> {
        let mut arguments = ProfilerArguments { op, pad: 0, body };
        // SAFETY: the argument is the struct of this request.
        unsafe { ioctl(&self.0, PROFILER, &mut arguments)? };
        Ok(arguments.body)
    }

    /// Returns the version of the driver's interface: major and minor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn version(&self) -> io::Result<(u32, u32)> {
        let mut version = [0_u32; 2];
        // SAFETY: the argument of this request is a struct of two words.
        unsafe { ioctl(&self.0, GET_VERSION, &mut version)? };
        Ok((version[0], version[1]))
    }

    /// Finds out how this driver is asked for profiler locks.
    ///
    /// # Errors
    /// The kernel's; ENOTTY or EINVAL where the driver has none.
    pub fn profiler_interface(&self) -> io::Result<ProfilerInterface> {
        let request = match self.version() {
            Ok(version) if version >= PROFILER_IN_LINUX => PROFILER,
            _ => PROFILER_BEFORE,
        };
        let mut words = [0_u32; 10];
        words[0] = OP_VERSION;
        // SAFETY: the request's number has the size of `words`; the driver copies the part
        // it knows.
        unsafe { ioctl(&self.0, request, &mut words)? };
        // The driver looks for arguments at the place where it has put the version.
        match words {
            [_, 0, 0, ..] => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            [_, 0, version, ..] => Ok(ProfilerInterface {
                request,
                first: 2,
                version,
            }),
            [_, version, ..] => Ok(ProfilerInterface {
                request,
                first: 1,
                version,
            }),
        }
    }

    /// Takes the profiler lock of a GPU, or gives it back. `gpu_id` is the GPU's id in the
    /// topology. With `enable`, the counters of the shader engines count the kernels of all queues
    /// of all processes. The driver releases the lock when this process ends.
    ///
    /// # Errors
    /// The kernel's: EPERM without `CAP_PERFMON`, EBUSY where another process has the lock,
    /// EALREADY where this process has it, EINVAL for a GPU that does not exist.
    pub fn set_profiler_lock(
        &self,
        of: ProfilerInterface,
        gpu_id: u32,
        lock: bool,
        enable: bool,
    ) -> io::Result<()> {
        let mut words = [0_u32; 10];
        words[0] = OP_COUNTERS;
        let arguments = [gpu_id, u32::from(lock), u32::from(enable)];
        for (word, argument) in words.iter_mut().skip(of.first).zip(arguments) {
            *word = argument;
        }
        // SAFETY: as in `profiler_interface`.
        unsafe { ioctl(&self.0, of.request, &mut words) }
    }

    /// Returns the version of the driver's profiler interface.
    ///
    /// # Errors
    /// The kernel's; ENOTTY or EINVAL where there is none.
    pub fn profiler_version(&self) -> io::Result<u32> {
        let [version, ..] = self.profiler(OP_VERSION, [0; 8])?;
        Ok(version)
    }

    /// Opens the log of what a process dispatches to a GPU (`gpu_id` is its id in the topology),
    /// with room for `bytes` of records.
    ///
    /// # Errors
    /// The kernel's: EOPNOTSUPP for a GPU without such a log, EPERM for a process that is not the
    /// caller's, ESRCH for one that does not use the driver.
    pub fn open_stream(&self, gpu_id: u32, process: u32, bytes: u32) -> io::Result<Stream> {
        let ask = [
            OPEN_STREAM,
            gpu_id,
            process,
            RAW_MMAP,
            bytes,
            u32::MAX,
            0,
            0,
        ];
        let [.., fd, _, _] = self.profiler(OP_DISPATCH_LOG, ask)?;
        if fd.cast_signed() < 0 {
            return Err(io::Error::other("the driver named no descriptor"));
        }
        // SAFETY: the call has just made this descriptor for its caller, and no other code knows
        // it.
        let file = unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) };
        Ok(Stream {
            file: File::from(file),
        })
    }

    /// Reads both clocks.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clocks(&self, gpu_id: u32) -> io::Result<Clocks> {
        let mut arguments = ClockArguments {
            gpu_id,
            ..ClockArguments::default()
        };
        // SAFETY: the argument is the struct of this request.
        unsafe { ioctl(&self.0, CLOCK_COUNTERS, &mut arguments)? };
        // The system clock is in ticks of the frequency that the driver reports, which is 1 GHz.
        let wide = u128::from(arguments.system) * 1_000_000_000;
        let nanoseconds = wide / u128::from(arguments.frequency.max(1));
        Ok(Clocks {
            gpu: arguments.gpu,
            system: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
        })
    }
}

/// An open log.
#[derive(Debug)]
pub struct Stream {
    file: File,
}

/// What the kernel says about a stream (`struct kfd_dlog_stream_info`). None of it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// The version of the layout.
    pub version: u32,
    /// The size of a record in bytes.
    pub record_bytes: u32,
    /// The number of rings side by side.
    pub regions: u32,
    /// The number of records in a ring.
    pub region_records: u32,
    /// The size of all rings in bytes.
    pub buffer_bytes: u64,
    /// The number of bytes to map.
    pub map_bytes: u64,
    /// Where the first ring starts.
    pub records_at: u64,
    /// Where the write indices of the rings are, 8 bytes each.
    pub writes_at: u64,
    /// Where the read indices are, which the reader maintains. In version 3 only.
    pub reads_at: Option<u64>,
    /// The GPU that the log is of.
    pub gpu_id: u32,
    /// The process that the log is of, as the caller's pid namespace numbers it.
    pub process: u32,
}

impl Stream {
    /// Asks the kernel for the layout. Each version has an argument of its own length, and a kernel
    /// knows one version.
    ///
    /// # Errors
    /// The kernel's; ENOTTY where it knows neither.
    pub fn info(&self) -> io::Result<StreamInfo> {
        // Operation 0. The first word holds the operation and padding.
        let mut newer = [0_u64; 9];
        // SAFETY: `struct kfd_dlog_stream_args` of version 4 has 72 bytes, of any values.
        let asked = unsafe { ioctl(&self.file, request(STREAM, size_of_val(&newer)), &mut newer) };
        let (common, reads_at, ids) = match asked {
            Ok(()) => {
                let [_, a, b, c, d, e, f, ids, _] = newer;
                ([a, b, c, d, e, f], None, ids)
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                let mut older = [0_u64; 10];
                // SAFETY: the struct of version 3 has 80 bytes, of any values.
                unsafe { ioctl(&self.file, request(STREAM, size_of_val(&older)), &mut older)? };
                let [_, a, b, c, d, e, f, reads, ids, _] = older;
                ([a, b, c, d, e, f], Some(reads), ids)
            }
            Err(error) => return Err(error),
        };
        let half = |word: u64| (word as u32, (word >> 32) as u32);
        let [
            first,
            second,
            buffer_bytes,
            map_bytes,
            records_at,
            writes_at,
        ] = common;
        let (version, record_bytes) = half(first);
        let (regions, region_records) = half(second);
        let (gpu_id, process) = half(ids);
        Ok(StreamInfo {
            version,
            record_bytes,
            regions,
            region_records,
            buffer_bytes,
            map_bytes,
            records_at,
            writes_at,
            reads_at,
            gpu_id,
            process,
        })
    }

    /// Maps the log. A kernel with version 3 wants a writable mapping, for the read indices; one
    /// with version 4 refuses that.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(&self, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let protection = match writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        // SAFETY: a new mapping of a live descriptor, at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Mapping {
                at,
                bytes,
                writable,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Resets the count of the firmware's notifications (version 4), for which no thread waits
    /// here.
    pub fn clear_notifications(&self) {
        // The read never blocks; an older kernel has nothing to read.
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

/// Mapped memory that the GPU's firmware writes.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<libc::c_void>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the value owns the mapping and unmaps it at its end; all access is by atomic loads and
// stores.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Loads the aligned 32-bit word at this offset with acquire order; `None` outside of the
    /// mapping.
    pub fn word(&self, offset: usize) -> Option<u32> {
        let inside = offset.is_multiple_of(4) && offset.checked_add(4)? <= self.bytes;
        // SAFETY: the word is inside the mapping (checked) and aligned (a mapping starts at a
        // page). It is only read by an atomic load, so it does not matter who writes it meanwhile.
        inside.then(|| unsafe {
            (*self.at.as_ptr().byte_add(offset).cast::<AtomicU32>()).load(Acquire)
        })
    }

    /// Stores the aligned 64-bit word at this offset as two halves, the lower one last. Nothing is
    /// stored outside of the mapping, or where the mapping is read-only.
    pub fn store(&self, offset: usize, value: u64) {
        let end = offset.checked_add(8);
        if !self.writable || !offset.is_multiple_of(8) || end.is_none_or(|end| end > self.bytes) {
            return;
        }
        for (at, half) in [(offset + 4, (value >> 32) as u32), (offset, value as u32)] {
            // SAFETY: the word is aligned, and inside a mapping that was made for writing (both
            // checked).
            unsafe {
                (*self.at.as_ptr().byte_add(at).cast::<AtomicU32>())
                    .store(half, std::sync::atomic::Ordering::Release);
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the value owns this mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.at.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn requests_have_the_numbers_of_the_headers() {
        assert_eq!(CLOCK_COUNTERS, 0xc028_4b05);
        assert_eq!(PROFILER, 0xc028_4b28);
        assert_eq!(
            [72, 80].map(|bytes| request(STREAM, bytes)),
            [0xc048_4b88, 0xc050_4b88]
        );
    }

    #[test]
    fn a_mapping_is_read_and_written_inside_only() {
        let file = tempfile();
        file.write_all_at(&7_u32.to_le_bytes(), 4092).unwrap();
        let stream = Stream { file };
        let read_only = stream.map(4096, false).unwrap();
        assert_eq!(read_only.word(4092), Some(7));
        assert_eq!(
            [4093, 4096, usize::MAX].map(|at| read_only.word(at)),
            [None; 3]
        );
        read_only.store(0, 5);
        assert_eq!(read_only.word(0), Some(0));
        let writable = stream.map(4096, true).unwrap();
        writable.store(8, 0x1_0000_0002);
        writable.store(4092, 1);
        assert_eq!(
            [8, 12, 4092].map(|at| read_only.word(at)),
            [Some(2), Some(1), Some(7)]
        );
    }

    #[test]
    fn a_file_that_is_no_stream_has_no_layout() {
        let stream = Stream { file: tempfile() };
        let error = stream.info().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }

    /// A file of one page, without a name.
    fn tempfile() -> File {
        let name = format!(
            "midair-kfd-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(4096).unwrap();
        file
    }
}
