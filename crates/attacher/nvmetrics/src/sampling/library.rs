//! Loading of CUPTI, of the library with which it computes metrics, and of the driver.
//!
//! Every function used here takes one struct, whose first two members are its size and a null
//! pointer (source: CUPTI's headers `cupti_pmsampling.h`, `cupti_profiler_host.h`,
//! `cupti_profiler_target.h`, `cupti_target.h`, `nvperf_host.h` of 13.0 and 13.5). The size reaches
//! to the end of the last member, without padding.

#![expect(
    clippy::disallowed_methods,
    reason = "only whether a file is there that the loader is then given"
)]

use super::Refusal;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A function that takes one struct.
pub type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The struct of one function.
///
/// # Safety
/// The type is `repr(C)`, is laid out as the function of that name expects, and `SIZE` is the size
/// that the function takes.
pub unsafe trait Params {
    /// The function's name.
    const NAME: &'static CStr;
    /// The value of the struct's first member.
    const SIZE: usize;
}

/// Declares a function's struct: the function's name, the members after the first two, and the last
/// member.
macro_rules! params {
    ($(#[$meta:meta])* $kind:ident, $name:literal, { $($member:ident: $type:ty,)* }, $last:ident: $last_type:ty) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $kind {
            size: usize,
            private: *mut std::ffi::c_void,
            $(#[doc = "As in the header."] pub $member: $type,)*
            #[doc = "As in the header."]
            pub $last: $last_type,
        }
        // SAFETY: the struct is laid out by C's rules, with the header's members in their order.
        // The size equals the header's macro `..._STRUCT_SIZE`.
        unsafe impl $crate::sampling::library::Params for $kind {
            const NAME: &'static std::ffi::CStr = $name;
            const SIZE: usize = std::mem::offset_of!($kind, $last) + size_of::<$last_type>();
        }
        impl Default for $kind {
            fn default() -> $kind {
                // SAFETY: all members are integers and pointers, for which zero bytes are a valid
                // value.
                let mut all: $kind = unsafe { std::mem::zeroed() };
                all.size = <$kind as $crate::sampling::library::Params>::SIZE;
                all
            }
        }
    };
}
pub(super) use params;

/// A library that stays loaded.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    handle: *mut c_void,
}

fn loader_says() -> String {
    // SAFETY: `dlerror` takes nothing. Its text belongs to this thread and is copied before the
    // next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: the pointer is not null, so it leads to a string that ends with a zero byte.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

impl Library {
    /// Loads a library.
    ///
    /// # Errors
    /// What the loader said.
    pub fn open(name: &OsStr) -> Result<Library, String> {
        let name = CString::new(name.as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the name ends with a zero byte. The library's initialisers run, which is
        // acceptable: the caller chose the library, and this process exists for that.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(loader_says());
        }
        Ok(Library { handle })
    }

    /// Returns the address of a function, or none where there is no such function.
    pub fn address(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle belongs to a loaded library, and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// Returns the function that a struct belongs to.
    pub fn function<P: Params>(&self) -> Option<Function> {
        let address = self.address(P::NAME)?;
        // SAFETY: the function of this name takes one pointer and returns a status, as `Params`
        // promises.
        Some(unsafe { std::mem::transmute::<*mut c_void, Function>(address) })
    }

    /// Calls the function that a struct belongs to.
    ///
    /// # Errors
    /// The function is missing (-2), or the function's status.
    ///
    /// # Safety
    /// The pointers in the struct are what the function's header says, and live during the call.
    pub unsafe fn call<P: Params>(&self, params: &mut P) -> Result<(), i32> {
        let function = self.function::<P>().ok_or(MISSING)?;
        // SAFETY: the struct is the one that the function takes, and the caller vouches for its
        // pointers.
        status(unsafe { function((&raw mut *params).cast()) })
    }
}

/// The status for a function that is missing.
pub const MISSING: i32 = -2;

/// Returns a status as a result.
///
/// # Errors
/// Every status but 0.
pub fn status(status: c_int) -> Result<(), i32> {
    if status == 0 { Ok(()) } else { Err(status) }
}

/// Returns a refusal by the function that a struct belongs to.
pub fn refused<P: Params>(status: i32) -> Refusal {
    let words = match status {
        MISSING => "the function is missing",
        _ => "",
    };
    Refusal {
        what: P::NAME.to_string_lossy().into_owned(),
        status,
        words: words.into(),
    }
}

params!(
    /// The parameters of `cuptiProfilerInitialize`.
    ProfilerInitialize, c"cuptiProfilerInitialize", {}, unused: [u8; 0]
);

/// CUPTI, and the library with which it computes metrics.
#[derive(Debug, Clone, Copy)]
pub struct Cupti {
    /// CUPTI.
    pub library: Library,
    /// `libnvperf_host.so`, where it lies next to CUPTI.
    pub perf: Option<Library>,
    /// The version that `cuptiGetVersion` reports.
    pub version: u32,
}

impl Cupti {
    /// Loads CUPTI. Its companion library is loaded first, from the same directory: CUPTI looks for
    /// it by its bare name, which the loader can then resolve.
    ///
    /// # Errors
    /// CUPTI cannot be loaded, or has no PM sampling.
    /// It cannot be loaded, or has no PM sampling.
    pub fn open(name: &OsStr) -> Result<Cupti, Refusal> {
        let beside = |file: &str| Path::new(name).parent().map(|folder| folder.join(file));
        let companion = |file: &str| {
            let path = beside(file).filter(|path| path.is_absolute() && path.is_file())?;
            Library::open(path.as_os_str()).ok()
        };
        let perf = companion("libnvperf_host.so")
            .or_else(|| Library::open(OsStr::new("libnvperf_host.so")).ok());
        companion("libnvperf_target.so");
        let library = Library::open(name).map_err(|why| Refusal::new("dlopen", why))?;
        let mut version = 0;
        if let Some(address) = library.address(c"cuptiGetVersion") {
            // SAFETY: the function has had this signature in every version.
            let get = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u32) -> c_int>(address)
            };
            // SAFETY: the function writes one number, for which the pointer is valid.
            unsafe { get(&raw mut version) };
        }
        if library.address(c"cuptiPmSamplingEnable").is_none() {
            return Err(Refusal {
                what: "cuptiPmSamplingEnable".into(),
                status: MISSING,
                words: version.to_string(),
            });
        }
        Ok(Cupti {
            library,
            perf,
            version,
        })
    }
}

/// The driver.
#[derive(Debug)]
pub struct Driver {
    library: Library,
}

type Init = unsafe extern "C" fn(u32) -> c_int;
type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;
type GetText = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

impl Driver {
    /// Loads and initialises the driver. This makes no context.
    ///
    /// # Errors
    /// The driver is missing, or its status.
    pub fn open() -> Result<Driver, Refusal> {
        let library = Library::open(OsStr::new("libcuda.so.1"));
        let library = library.map_err(|why| Refusal::new("dlopen libcuda.so.1", why))?;
        let driver = Driver { library };
        let init = driver.library.address(c"cuInit");
        let init = init.ok_or_else(|| Refusal::new("cuInit", "the function is missing"))?;
        // SAFETY: the driver's function of this name has this signature.
        let init = unsafe { std::mem::transmute::<*mut c_void, Init>(init) };
        // SAFETY: the function takes only flags, and none are set.
        status(unsafe { init(0) }).map_err(|status| Refusal {
            what: "cuInit".into(),
            status,
            words: String::new(),
        })?;
        Ok(driver)
    }

    /// How many GPUs there are.
    pub fn count(&self) -> Option<u32> {
        let get = self.library.address(c"cuDeviceGetCount")?;
        // SAFETY: the driver's function of this name has this signature.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetCount>(get) };
        let mut count = 0;
        // SAFETY: the function writes one number, for which the pointer is valid.
        status(unsafe { get(&raw mut count) }).ok()?;
        u32::try_from(count).ok()
    }

    /// Returns a text that a function of the driver gives for a GPU: `cuDeviceGetName` or
    /// `cuDeviceGetPCIBusId` (whose arguments have the same order).
    pub fn text(&self, function: &CStr, gpu: u32) -> Option<String> {
        let get = self.library.address(function)?;
        // SAFETY: both functions have this signature.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetText>(get) };
        let mut text = [0_u8; 128];
        let (at, length) = (text.as_mut_ptr().cast::<c_char>(), text.len() as c_int - 1);
        // SAFETY: at most `length` bytes are written, and the last byte stays zero. The driver's
        // device handle is the GPU's number.
        status(unsafe { get(at, length, gpu.cast_signed()) }).ok()?;
        let text = CStr::from_bytes_until_nul(&text).ok()?;
        Some(text.to_string_lossy().into_owned())
    }
}
