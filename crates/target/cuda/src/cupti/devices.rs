//! What CUDA's driver says about the GPUs. Nothing here initialises CUDA or creates a context: a
//! driver that is not initialised returns nothing.

use midair_record::event::CudaDevice;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Version = unsafe extern "C" fn(*mut c_int) -> c_uint;
type Count = unsafe extern "C" fn(*mut c_int) -> c_uint;
type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_uint;
type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint;
type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_uint;
type Memory = unsafe extern "C" fn(*mut usize, c_int) -> c_uint;
type State = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_uint;
type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_uint;

/// Maximum number of devices that are queried.
const MOST: c_int = 256;
/// Maximum length of a name, in bytes, with its terminator.
const NAME: usize = 256;

/// Values of `CUdevice_attribute` (source: CUDA's public cuda.h, the same in 12 and 13).
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub const MAX_BLOCK_DIM: [i32; 3] = [2, 3, 4];
    pub const MAX_GRID_DIM: [i32; 3] = [5, 6, 7];
    pub const WARP_SIZE: i32 = 10;
    pub const CLOCK_RATE: i32 = 13;
    pub const MULTIPROCESSOR_COUNT: i32 = 16;
    pub const PCI_BUS_ID: i32 = 33;
    pub const PCI_DEVICE_ID: i32 = 34;
    pub const MEMORY_CLOCK_RATE: i32 = 36;
    pub const GLOBAL_MEMORY_BUS_WIDTH: i32 = 37;
    pub const L2_CACHE_SIZE: i32 = 38;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: i32 = 39;
    pub const PCI_DOMAIN_ID: i32 = 50;
    pub const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: i32 = 81;
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: i32 = 82;
}

/// The driver library of the target, with its functions that need no context.
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    version: Version,
    count: Option<Count>,
    get: Option<Get>,
    name: Option<Name>,
    uuid: Option<Uuid>,
    memory: Option<Memory>,
    attribute: Option<Attribute>,
    state: Option<State>,
}

impl Driver {
    /// The driver library that the process has loaded; `None` where it has none. Nothing is loaded.
    pub fn open() -> Option<Driver> {
        // SAFETY: a terminated name; only a library that is loaded already is returned. The handle
        // is kept, so the functions stay.
        let handle =
            unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: a handle of the loader that is never closed, and terminated names. Driver
        // libraries have exported functions of these names and types since CUDA 4
        // (cuDeviceGetUuid_v2 since 11.4, under the older name before).
        unsafe { Driver::find(|name| libc::dlsym(handle, name.as_ptr())) }
    }

    /// Resolves the functions by a symbol look-up, which tests can replace.
    ///
    /// # Safety
    /// What `look_up` finds are the driver's functions of these names, and they stay where they
    /// are.
    pub unsafe fn find(look_up: impl Fn(&CStr) -> *mut c_void) -> Option<Driver> {
        let at = |names: &[&CStr]| {
            let mut found = names.iter().map(|name| look_up(name));
            found.find(|at| !at.is_null())
        };
        let version = at(&[c"cuDriverGetVersion"])?;
        // SAFETY: functions of these names have these types (CUDA's public cuda.h); the caller
        // vouches that they are those.
        unsafe {
            Some(Driver {
                version: std::mem::transmute::<*mut c_void, Version>(version),
                count: at(&[c"cuDeviceGetCount"])
                    .map(|it| std::mem::transmute::<*mut c_void, Count>(it)),
                get: at(&[c"cuDeviceGet"]).map(|it| std::mem::transmute::<*mut c_void, Get>(it)),
                name: at(&[c"cuDeviceGetName"])
                    .map(|it| std::mem::transmute::<*mut c_void, Name>(it)),
                uuid: at(&[c"cuDeviceGetUuid_v2", c"cuDeviceGetUuid"])
                    .map(|it| std::mem::transmute::<*mut c_void, Uuid>(it)),
                memory: at(&[c"cuDeviceTotalMem_v2"])
                    .map(|it| std::mem::transmute::<*mut c_void, Memory>(it)),
                attribute: at(&[c"cuDeviceGetAttribute"])
                    .map(|it| std::mem::transmute::<*mut c_void, Attribute>(it)),
                state: at(&[c"cuDevicePrimaryCtxGetState"])
                    .map(|it| std::mem::transmute::<*mut c_void, State>(it)),
            })
        }
    }

    /// The address of one of its functions.
    pub fn function(&self) -> usize {
        self.version as usize
    }

    /// The newest CUDA version that the driver supports: 1000 * major + 10 * minor; 0 where it does
    /// not say. Works before CUDA is initialised.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the driver's function, with a valid out pointer.
        let code = unsafe { (self.version)(&raw mut version) };
        if code == 0 {
            u32::try_from(version).unwrap_or(0)
        } else {
            0
        }
    }

    /// The GPUs that the process sees, with their names; none before it has initialised CUDA. What
    /// the driver does not report is 0. The header and `name_len` are left to the writer.
    pub fn devices(&self) -> Vec<(CudaDevice, String)> {
        let (Some(count), Some(get)) = (self.count, self.get) else {
            return Vec::new();
        };
        let mut devices = 0;
        // SAFETY: the driver's function, with a valid out pointer. It fails before cuInit.
        if unsafe { count(&raw mut devices) } != 0 {
            return Vec::new();
        }
        let ordinals = 0..devices.clamp(0, MOST);
        ordinals
            .filter_map(|ordinal| {
                let mut device = 0;
                // SAFETY: the driver's function, with a valid out pointer for the handle.
                (unsafe { get(&raw mut device, ordinal) } == 0)
                    .then(|| self.device(device, ordinal.unsigned_abs()))
            })
            .collect()
    }

    /// Whether a GPU's primary context exists, which the runtime uses. The driver does not tell of
    /// contexts that a program made for itself.
    pub fn has_primary_context(&self) -> bool {
        let (Some(count), Some(get), Some(state)) = (self.count, self.get, self.state) else {
            return false;
        };
        let mut devices = 0;
        // SAFETY: the driver's function, with a valid out pointer.
        if unsafe { count(&raw mut devices) } != 0 {
            return false;
        }
        (0..devices.clamp(0, MOST)).any(|ordinal| {
            let (mut device, mut flags, mut active) = (0, 0, 0);
            // SAFETY: the driver's functions, with valid out pointers, and a device handle that it
            // returned. The question makes no context.
            unsafe {
                get(&raw mut device, ordinal) == 0
                    && state(device, &raw mut flags, &raw mut active) == 0
                    && active != 0
            }
        })
    }

    fn device(&self, device: c_int, ordinal: u32) -> (CudaDevice, String) {
        let number = |which: i32| -> u32 {
            let mut value = 0;
            let Some(attribute) = self.attribute else {
                return 0;
            };
            // SAFETY: the driver's function, a valid out pointer, and a device handle that it
            // returned.
            let code = unsafe { attribute(&raw mut value, which, device) };
            if code == 0 {
                u32::try_from(value).unwrap_or(0)
            } else {
                0
            }
        };
        let mut memory = 0;
        if let Some(ask) = self.memory {
            // SAFETY: the driver's function, a valid out pointer, and a device handle that it
            // returned.
            if unsafe { ask(&raw mut memory, device) } != 0 {
                memory = 0;
            }
        }
        let mut uuid = [0; 16];
        if let Some(ask) = self.uuid {
            // SAFETY: the driver's function, 16 bytes for it, and a device handle that it returned.
            if unsafe { ask(&raw mut uuid, device) } != 0 {
                uuid = [0; 16];
            }
        }
        let record = CudaDevice {
            memory: memory as u64,
            uuid,
            ordinal,
            pci_domain: number(attribute::PCI_DOMAIN_ID),
            pci_bus: number(attribute::PCI_BUS_ID),
            pci_device: number(attribute::PCI_DEVICE_ID),
            major: number(attribute::COMPUTE_CAPABILITY_MAJOR),
            minor: number(attribute::COMPUTE_CAPABILITY_MINOR),
            multiprocessors: number(attribute::MULTIPROCESSOR_COUNT),
            warp: number(attribute::WARP_SIZE),
            threads_per_multiprocessor: number(attribute::MAX_THREADS_PER_MULTIPROCESSOR),
            threads_per_block: number(attribute::MAX_THREADS_PER_BLOCK),
            shared_per_multiprocessor: number(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            registers_per_multiprocessor: number(attribute::MAX_REGISTERS_PER_MULTIPROCESSOR),
            clock_khz: number(attribute::CLOCK_RATE),
            memory_clock_khz: number(attribute::MEMORY_CLOCK_RATE),
            memory_bus_bits: number(attribute::GLOBAL_MEMORY_BUS_WIDTH),
            l2_bytes: number(attribute::L2_CACHE_SIZE),
            block_limits: attribute::MAX_BLOCK_DIM.map(number),
            grid_limits: attribute::MAX_GRID_DIM.map(number),
            ..CudaDevice::default()
        };
        (record, self.name(device))
    }

    fn name(&self, device: c_int) -> String {
        let mut text = [0_u8; NAME];
        let Some(ask) = self.name else {
            return String::new();
        };
        // SAFETY: the driver's function; it writes at most so many bytes, with the terminator.
        if unsafe { ask(text.as_mut_ptr().cast(), NAME as c_int, device) } != 0 {
            return String::new();
        }
        CStr::from_bytes_until_nul(&text)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}
