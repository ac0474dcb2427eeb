//! Which hardware and drivers for thread trace, streamed counters and PC sampling the machine has,
//! expressed as the statuses that AMD documents.

use crate::agents;
use crate::sampling::setting::Configuration;
use crate::state;
use crate::status::Status;
use midair_abi::constants as c;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The kernel driver's device.
const DRIVER: &CStr = c"/dev/kfd";
/// `AMDKFD_IOC_GET_VERSION`: it returns two 32-bit numbers, major and minor.
const GET_VERSION: libc::c_ulong = 0x8008_4b01;
/// The driver's first version with which AMD's SDK tries PC sampling.
const SAMPLING_SINCE: (u32, u32) = (1, 16);
/// AMD's decoder of thread traces.
const DECODER: &str = "librocprof-trace-decoder.so";
/// AMD's library of packets for counters.
const PACKETS: &CStr = c"libhsa-amd-aqlprofile64.so.1";

/// A GPU of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agent(());

impl Agent {
    /// Returns the agent with this id.
    ///
    /// # Errors
    /// [`Status::AGENT_NOT_FOUND`]; [`Status::AGENT_ARCH_NOT_SUPPORTED`] for a CPU.
    pub fn of(id: u64) -> Result<Agent, Status> {
        match agents::is_gpu(id) {
            Some(true) => Ok(Agent(())),
            Some(false) => Err(Status::AGENT_ARCH_NOT_SUPPORTED),
            None => Err(Status::AGENT_NOT_FOUND),
        }
    }

    /// Returns any GPU.
    ///
    /// # Errors
    /// [`Status::AGENT_NOT_FOUND`] on a machine without GPUs.
    pub fn any() -> Result<Agent, Status> {
        agents::ids()
            .any(|(_, id)| agents::is_gpu(id) == Some(true))
            .then_some(Agent(()))
            .ok_or(Status::AGENT_NOT_FOUND)
    }
}

/// Whether a service may be configured for a context now.
pub(crate) fn may_configure(context: u64) -> Result<(), Status> {
    let mut state = state::lock();
    state.configuring()?;
    state.context(context).map(|_| ())
}

/// Whether there is such a buffer.
pub(crate) fn has_buffer(buffer: u64) -> Result<(), Status> {
    state::lock().buffer(buffer).map(|_| ())
}

fn is_on(variable: &str) -> bool {
    midair_secure::variable(variable)
        .is_some_and(|value| ["1", "true", "on", "yes"].iter().any(|yes| value == *yes))
}

/// The driver's device.
struct Device(libc::c_int);

impl Device {
    /// Opens it.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open() -> Result<Device, Status> {
        // SAFETY: the path is a C string. The descriptor is closed when this is dropped.
        let device = unsafe { libc::open(DRIVER.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if device >= 0 {
            return Ok(Device(device));
        }
        // SAFETY: errno is the calling thread's own word.
        let denied = [libc::EACCES, libc::EPERM].contains(&unsafe { *libc::__errno_location() });
        Err(if denied {
            Status::PERMISSION_DENIED
        } else {
            Status::NOT_AVAILABLE
        })
    }

    /// Returns the driver's version.
    fn version(&self) -> Result<(u32, u32), Status> {
        let mut version = [0_u32; 2];
        // SAFETY: the descriptor is open, and the request writes two numbers, for which there is room.
        let answer = unsafe { libc::ioctl(self.0, GET_VERSION, version.as_mut_ptr()) };
        let [major, minor] = version;
        if answer == 0 {
            Ok((major, minor))
        } else {
            Err(Status::NOT_AVAILABLE)
        }
    }

    /// Returns the settings that a GPU offers.
    fn samples(&self, gpu: u32) -> Vec<Info> {
        let mut infos = vec![Info::default(); MOST as usize];
        let mut arguments = SampleArguments {
            infos: infos.as_mut_ptr().expose_provenance() as u64,
            count: MOST,
            gpu,
            flags: ALL,
            ..SampleArguments::default()
        };
        // SAFETY: the descriptor is open; the request reads and writes its arguments, and writes as many
        // settings as they say there is room for.
        let answer = unsafe { libc::ioctl(self.0, PC_SAMPLE, &raw mut arguments) };
        infos.truncate(match answer {
            0 => arguments.count.min(MOST) as usize,
            _ => 0,
        });
        infos
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(self.0) };
    }
}

/// Returns the driver's version, or why it cannot be asked.
fn driver_version() -> Result<(u32, u32), Status> {
    Device::open()?.version()
}

/// Returns what the driver offers for an agent's program counters.
///
/// # Errors
/// [`Status::NOT_IMPLEMENTED`] without AMD's switch; the agent does not exist or is not a GPU; the driver
/// is missing or too old ([`Status::INCOMPATIBLE_KERNEL`]), or offers nothing
/// ([`Status::NOT_AVAILABLE`]), as with a debugger.
pub(crate) fn configurations(agent: u64) -> Result<Vec<Configuration>, Status> {
    if !is_on("ROCPROFILER_PC_SAMPLING_BETA_ENABLED") {
        return Err(Status::NOT_IMPLEMENTED);
    }
    Agent::of(agent)?;
    let gpu = agents::by_id(agent).map_or(0, |agent| agent.gpu_id as u32);
    let device = Device::open()?;
    if device.version()? < SAMPLING_SINCE {
        return Err(Status::INCOMPATIBLE_KERNEL);
    }
    let all: Vec<Configuration> = device
        .samples(gpu)
        .into_iter()
        .filter_map(|info| info.configuration())
        .collect();
    if all.is_empty() {
        return Err(Status::NOT_AVAILABLE);
    }
    Ok(all)
}

/// A setting in the driver's words (source: `docs/sources.md#samples`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Info {
    interval: u64,
    least: u64,
    most: u64,
    flags: u64,
    method: u32,
    unit: u32,
}

impl Info {
    /// Returns it in AMD's words for tools; `None` for a method or a unit without a word.
    fn configuration(&self) -> Option<Configuration> {
        let method = match self.method {
            1 => c::ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP,
            2 => c::ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC,
            _ => return None,
        };
        let unit = match self.unit {
            0 => c::ROCPROFILER_PC_SAMPLING_UNIT_TIME,
            1 => c::ROCPROFILER_PC_SAMPLING_UNIT_CYCLES,
            2 => c::ROCPROFILER_PC_SAMPLING_UNIT_INSTRUCTIONS,
            _ => return None,
        };
        Some(Configuration {
            size: size_of::<Configuration>() as u64,
            method,
            unit,
            least: self.least as usize,
            most: self.most as usize,
            flags: self.flags & 1,
        })
    }
}

/// The arguments of [`PC_SAMPLE`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SampleArguments {
    infos: u64,
    count: u32,
    operation: u32,
    gpu: u32,
    id: u32,
    flags: u32,
    version: u32,
}

/// `AMDKFD_IOC_PC_SAMPLE`. Its operation 0 asks what is offered.
const PC_SAMPLE: libc::c_ulong = 0xc020_4b85;
/// The flag that asks for all that is offered, whatever is in use.
const ALL: u32 = 1;
/// The most settings that are read.
const MOST: u32 = 64;

/// Returns why there is no thread trace of an agent.
pub(crate) fn thread_trace(agent: u64) -> Status {
    match Agent::of(agent).and_then(|_| driver_version()) {
        Err(why) => why,
        Ok(_) => Status::NOT_AVAILABLE,
    }
}

/// Returns why there is no decoder: the library is not in the directory, or is one whose interface
/// we do not know.
pub(crate) fn decoder(directory: &CStr) -> Status {
    let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
    if directory.join(DECODER).exists() {
        Status::INCOMPATIBLE_ABI
    } else {
        Status::NOT_AVAILABLE
    }
}

/// Checks that streamed counters are enabled, by AMD's switch.
pub(crate) fn spm_is_asked_for() -> Result<(), Status> {
    if is_on("ROCPROFILER_SPM_BETA_ENABLED") {
        Ok(())
    } else {
        Err(Status::NOT_IMPLEMENTED)
    }
}

/// Returns why there are no streamed counters on a GPU: AMD's packet library is not loaded, which
/// AMD's SDK needs as well, or the driver is missing.
pub(crate) fn spm(_agent: Agent) -> Status {
    // SAFETY: the name is a C string. RTLD_NOLOAD loads nothing, and the handle is closed again.
    let loaded = unsafe {
        let handle = libc::dlopen(PACKETS.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        !handle.is_null() && libc::dlclose(handle) == 0
    };
    if !loaded {
        return Status::INCOMPATIBLE_ABI;
    }
    driver_version().map_or_else(|why| why, |_| Status::NOT_AVAILABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_so() {
        assert_eq!(decoder(c"/nonexistent"), Status::NOT_AVAILABLE);
        assert_eq!(Agent::of(1).unwrap_err(), Status::AGENT_NOT_FOUND);
        // It was not enabled.
        assert_eq!(configurations(1), Err(Status::NOT_IMPLEMENTED));
        assert_eq!(spm_is_asked_for(), Err(Status::NOT_IMPLEMENTED));
        assert_eq!(thread_trace(1), Status::AGENT_NOT_FOUND);
        assert_eq!(may_configure(1), Err(Status::CONFIGURATION_LOCKED));
    }
}
