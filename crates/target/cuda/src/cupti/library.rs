//! One opened CUPTI, with its functions as methods, and each reason why a file is not usable.

use super::functions::{
    BufferCompleted, BufferRequested, Callback, Clock, Functions, NodeId, Status,
    UnifiedMemoryConfig,
};
use midair_abi::cupti::{Layouts, cuda_version, layouts_for, result};
use midair_cupti_file::{Candidate, Disk, OLDEST, Origin, Process, elf, major_of, search};
use std::ffi::{CStr, CString, c_void};
use std::fmt::Write;

/// A CUPTI of this process. It stays loaded as long as the process lives, so copies of its
/// functions stay valid.
#[derive(Debug, Clone)]
pub struct Cupti {
    functions: Functions,
    /// Handle of the loader; 0 where there is none (tests).
    handle: usize,
    path: String,
    origin: Origin,
    api: u32,
    layouts: &'static Layouts,
}

/// Maximum length of the text of a refusal, in bytes.
const MOST_TEXT: usize = 900;

/// Finds the CUPTI that fits this process, and loads it; [`midair_cupti_file`] has the order of the
/// search in `process`, the calling one. `wanted` is the path that the user named, and then the only one that is tried.
/// `driver` is the result of `cuDriverGetVersion` (1000 * major + 10 * minor).
///
/// # Errors
/// What was tried, and why each candidate was not usable, in one sentence.
///
/// Without a working driver no CUPTI is loaded at all: the one of 13.2 then recurses in its first
/// call until the stack overflows (seen with 13.2.23, 13.2.75 and 13.2.86; docs/sources.md#cupti).
pub fn load(process: &Process, wanted: Option<&str>, driver: u32) -> Result<Cupti, String> {
    match driver / 1000 {
        0 => return Err(String::from("the CUDA driver does not report its version")),
        old @ ..OLDEST => {
            return Err(format!(
                "the driver has CUDA {old}.{}, and midair needs 12.0 or newer",
                driver % 1000 / 10
            ));
        }
        _ => {}
    }
    let search = search(wanted, process, driver / 1000, &Disk);
    let mut reasons: Vec<String> = Vec::new();
    for candidate in &search.candidates {
        match Cupti::open(candidate, driver) {
            Ok(cupti) => return Ok(cupti),
            Err(why) => reasons.push(why),
        }
    }
    let mut text = match wanted {
        Some(_) => String::from("the given CUPTI does not fit: "),
        None => String::from("no CUPTI fits this process: "),
    };
    if wanted.is_none() {
        let mut directories = search.directories.join(", ");
        shorten(&mut directories, MOST_TEXT / 3);
        let _ = write!(
            text,
            "{}looked in {directories}",
            mapped(&search.candidates)
        );
        if !reasons.is_empty() {
            text.push_str("; ");
        }
    }
    text.push_str(&reasons.join("; "));
    shorten(&mut text, MOST_TEXT);
    Err(text)
}

/// Whether one is mapped is said first.
fn mapped(candidates: &[Candidate]) -> &'static str {
    if candidates.iter().any(|it| it.origin == Origin::Mapped) {
        ""
    } else {
        "none is loaded in it, "
    }
}

/// Truncates at a character boundary, and marks it.
fn shorten(text: &mut String, most: usize) {
    if text.len() > most {
        let at = (0..=most).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(at.unwrap_or(0));
        text.push('…');
    }
}

impl Cupti {
    /// Opens a candidate and checks whether it fits.
    ///
    /// # Errors
    /// Its name, and why it is not usable.
    pub fn open(candidate: &Candidate, driver: u32) -> Result<Cupti, String> {
        let name = &candidate.path;
        let because = |why: &str| format!("{name}: {why}");
        // The name is checked first: a library that cannot fit is not loaded into the process.
        if let Some(major) = major_of(name) {
            fits(major, None, driver).map_err(|why| because(&why))?;
        }
        if candidate.origin != Origin::Loader {
            elf::check(name).map_err(|why| because(&why))?;
        }
        let path = CString::new(name.as_str()).map_err(|_| because("is no path"))?;
        // SAFETY: a terminated path. Constructors run, as for any library that a process loads;
        // CUPTI's own start no thread.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(because(&format!("cannot be loaded ({})", loader_error())));
        }
        // SAFETY: a handle of the loader and a terminated name. The handle is never closed: nothing
        // in a target is unloaded.
        let look_up = |symbol: &CStr| unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        // SAFETY: the library calls itself CUPTI, and its symbols are CUPTI's; its version is
        // checked before anything else is called.
        let functions = unsafe { Functions::find(look_up) }
            .map_err(|missing| because(&format!("has no function {missing}")))?;
        // SAFETY: a handle of the loader, and CUPTI's own functions, as above.
        let mut cupti = unsafe { Cupti::with_functions(functions) }.map_err(|why| because(&why))?;
        if let Some(version) = cuda_version(cupti.api) {
            fits(version.0, Some(version.1), driver).map_err(|why| because(&why))?;
        }
        cupti.handle = handle.expose_provenance();
        cupti.path.clone_from(name);
        cupti.origin = candidate.origin;
        Ok(cupti)
    }

    /// Makes one from its functions alone, as tests do. Its version is queried, and its layouts are
    /// selected.
    ///
    /// # Errors
    /// Why it is not usable.
    ///
    /// # Safety
    /// The functions belong to one CUPTI that stays loaded, or behave like such functions.
    pub unsafe fn with_functions(functions: Functions) -> Result<Cupti, String> {
        let mut api = 0;
        // SAFETY: CUPTI's function, with a valid out pointer.
        Status::check(unsafe { (functions.get_version)(&raw mut api) })
            .map_err(|status| format!("does not tell its version ({status})"))?;
        let layouts = layouts_for(api).ok_or_else(|| match cuda_version(api) {
            Some((major, minor)) => {
                format!(
                    "is CUPTI {major}.{minor} (interface version {api}), newer than what midair knows"
                )
            }
            None => format!("is older than CUDA 12.0's CUPTI (interface version {api})"),
        })?;
        Ok(Cupti {
            functions,
            handle: 0,
            path: String::new(),
            origin: Origin::Loader,
            api,
            layouts,
        })
    }

    /// Interface version, as `cuptiGetVersion` returns it.
    pub fn api(&self) -> u32 {
        self.api
    }
    /// The CUDA version that it belongs to.
    pub fn cuda(&self) -> (u32, u32) {
        cuda_version(self.api).unwrap_or(self.layouts.cuda)
    }
    /// Its path in this process's file system, or a name for the loader.
    pub fn path(&self) -> &str {
        &self.path
    }
    /// How it was found; [`Origin::Mapped`] where the process had loaded it.
    pub fn origin(&self) -> Origin {
        self.origin
    }
    /// Layouts of its records.
    pub fn layouts(&self) -> &'static Layouts {
        self.layouts
    }
    /// The address of one of its exported functions.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        if self.handle == 0 {
            return None;
        }
        // SAFETY: a handle of the loader that is never closed, and a terminated name.
        let at = unsafe {
            libc::dlsym(
                std::ptr::with_exposed_provenance_mut(self.handle),
                name.as_ptr(),
            )
        };
        (!at.is_null()).then_some(at)
    }
    /// All of its functions.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Starts the recording of a kind (`midair_abi::cupti::activity_kind`).
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn enable(&self, kind: u32) -> Result<(), Status> {
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { (self.functions.enable)(kind) })
    }
    /// Stops the recording of a kind.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn disable(&self, kind: u32) -> Result<(), Status> {
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { (self.functions.disable)(kind) })
    }
    /// Registers the callbacks that provide and take back buffers. They are called on any thread.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn register_callbacks(
        &self,
        requested: BufferRequested,
        completed: BufferCompleted,
    ) -> Result<(), Status> {
        // SAFETY: CUPTI's function, and functions of the types that it calls, in a library that is
        // never unloaded.
        Status::check(unsafe {
            (self.functions.register_callbacks)(Some(requested), Some(completed))
        })
    }
    /// Makes CUPTI return buffers; with `forced`, those with incomplete records, too.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn flush_all(&self, forced: bool) -> Result<(), Status> {
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { (self.functions.flush_all)(forced.into()) })
    }
    /// Removes CUPTI from this process.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn finalize(&self) -> Result<(), Status> {
        // SAFETY: CUPTI's function.
        Status::check(unsafe { (self.functions.finalize)() })
    }
    /// The record behind `record` in a buffer, or the first one for null; `None` behind the last.
    ///
    /// # Errors
    /// CUPTI's result, for memory that is no buffer of its.
    ///
    /// # Safety
    /// `buffer` was returned by CUPTI with so many valid bytes and has not been given to it again;
    /// `record` is null or in this buffer.
    pub unsafe fn next_record(
        &self,
        buffer: *mut u8,
        valid: usize,
        record: *mut u8,
    ) -> Result<Option<*mut u8>, Status> {
        let mut next = record;
        // SAFETY: the caller's promise.
        match unsafe { (self.functions.next_record)(buffer, valid, &raw mut next) } {
            result::SUCCESS => Ok(Some(next)),
            result::ERROR_MAX_LIMIT_REACHED => Ok(None),
            other => Err(Status(other)),
        }
    }
    /// Number of records that were dropped for lack of a buffer since the last call, for all
    /// contexts and streams.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn dropped(&self) -> Result<usize, Status> {
        let mut dropped = 0;
        // SAFETY: CUPTI's function, with a valid out pointer. Buffers are not bound to contexts:
        // null stands for all.
        Status::check(unsafe {
            (self.functions.dropped)(std::ptr::null_mut(), 0, &raw mut dropped)
        })?;
        Ok(dropped)
    }
    /// CUPTI's clock, in ns, as records have it.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn timestamp(&self) -> Result<u64, Status> {
        let mut now = 0;
        // SAFETY: CUPTI's function, with a valid out pointer.
        Status::check(unsafe { (self.functions.timestamp)(&raw mut now) })?;
        Ok(now)
    }
    /// Replaces CUPTI's clock by a function, which it calls on any thread.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] where it has no such function.
    pub fn register_timestamp_callback(&self, clock: Option<Clock>) -> Result<(), Status> {
        let register = self
            .functions
            .register_timestamp_callback
            .ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: CUPTI's function, and a function of the type that it calls, in a library that is
        // never unloaded.
        Status::check(unsafe { register(clock) })
    }
    /// Reads an attribute (`midair_abi::cupti::attribute`) of the size of `T`, an integer.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn get_attribute<T: Attribute>(&self, attribute: u32) -> Result<T, Status> {
        let (mut size, mut value) = (size_of::<T>(), T::default());
        // SAFETY: CUPTI's function; it writes at most `size` bytes, and every bit pattern is a
        // valid integer.
        Status::check(unsafe {
            (self.functions.get_attribute)(attribute, &raw mut size, (&raw mut value).cast())
        })?;
        Ok(value)
    }
    /// Sets an attribute.
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn set_attribute<T: Attribute>(&self, attribute: u32, value: T) -> Result<(), Status> {
        let (mut size, mut value) = (size_of::<T>(), value);
        // SAFETY: CUPTI's function; it reads at most `size` bytes.
        Status::check(unsafe {
            (self.functions.set_attribute)(attribute, &raw mut size, (&raw mut value).cast())
        })
    }
    /// Selects the kind of thread id in records (`midair_abi::cupti::thread_id_type`).
    ///
    /// # Errors
    /// CUPTI's result.
    pub fn set_thread_id_type(&self, kind: u32) -> Result<(), Status> {
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { (self.functions.set_thread_id_type)(kind) })
    }
    /// Starts or stops the recording of one call of the runtime, independent of the whole kind.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] before 12.6.
    pub fn enable_runtime_api(&self, cbid: u32, on: bool) -> Result<(), Status> {
        let enable = self
            .functions
            .enable_runtime_api
            .ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: CUPTI's function, called with integers.
        Status::check(unsafe { enable(cbid, on.into()) })
    }
    /// Starts or stops the recording of one call of the driver.
    ///
    /// # Errors
    /// As [`Cupti::enable_runtime_api`].
    pub fn enable_driver_api(&self, cbid: u32, on: bool) -> Result<(), Status> {
        let enable = self
            .functions
            .enable_driver_api
            .ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: CUPTI's function, called with integers.
        Status::check(unsafe { enable(cbid, on.into()) })
    }
    /// Subscribes: CUPTI calls `callback` at the calls that [`Cupti::enable_callback`] chooses, with its
    /// [`NodeId`] or null. Returns the subscriber.
    ///
    /// # Errors
    /// CUPTI's result: [`Status::OTHER_SUBSCRIBER`] if there is one.
    pub fn subscribe(&self, callback: Callback) -> Result<*mut c_void, Status> {
        let mut subscriber = std::ptr::null_mut();
        let node_id = self.functions.graph_node_id;
        let user = node_id.map_or(std::ptr::null_mut(), |function: NodeId| {
            function as *mut c_void
        });
        // SAFETY: CUPTI's function, with an out pointer that is live.
        Status::check(unsafe {
            (self.functions.subscribe)(&raw mut subscriber, Some(callback), user)
        })?;
        Ok(subscriber)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// CUPTI's result.
    ///
    /// # Safety
    /// CUPTI gave the subscriber, and it has not ended.
    pub unsafe fn unsubscribe(&self, subscriber: *mut c_void) -> Result<(), Status> {
        // SAFETY: the caller's promise.
        Status::check(unsafe { (self.functions.unsubscribe)(subscriber) })
    }

    /// Chooses whether the subscriber is notified of a call, by its domain and its number there.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] where it lacks the function.
    ///
    /// # Safety
    /// As for [`Cupti::unsubscribe`].
    pub unsafe fn enable_callback(
        &self,
        subscriber: *mut c_void,
        domain: u32,
        call: u32,
        on: bool,
    ) -> Result<(), Status> {
        let enable = self
            .functions
            .enable_callback
            .ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: the caller's promise.
        Status::check(unsafe { enable(on.into(), subscriber, domain, call) })
    }

    /// Registers CUPTI's callback with the driver where that has not been done yet, and does nothing else: asks for
    /// the kinds of callbacks.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] where it has no such function.
    pub fn start(&self) -> Result<(), Status> {
        let supported_domains = self
            .functions
            .supported_domains
            .ok_or(Status::NOT_IMPLEMENTED)?;
        let (mut count, mut list) = (0, std::ptr::null());
        // SAFETY: CUPTI's function, with two valid out pointers.
        Status::check(unsafe { supported_domains(&raw mut count, &raw mut list) })
    }

    /// Has kernels timed by the GPU's own hardware, until the process ends.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] before 12.8.
    pub fn enable_hw_trace(&self) -> Result<(), Status> {
        let enable = self
            .functions
            .enable_hw_trace
            .ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { enable(1) })
    }
    /// Makes a thread of CUPTI's flush at this interval, in milliseconds; 0 turns that off.
    ///
    /// # Errors
    /// CUPTI's result; [`Status::NOT_IMPLEMENTED`] where it has no such function.
    pub fn flush_period(&self, milliseconds: u32) -> Result<(), Status> {
        let period = self.functions.flush_period.ok_or(Status::NOT_IMPLEMENTED)?;
        // SAFETY: CUPTI's function, called with an integer.
        Status::check(unsafe { period(milliseconds) })
    }
    /// Selects the counters of unified memory that are recorded.
    ///
    /// # Errors
    /// CUPTI's result: some devices have none.
    pub fn configure_unified_memory(
        &self,
        counters: &mut [UnifiedMemoryConfig],
    ) -> Result<(), Status> {
        let count = u32::try_from(counters.len()).unwrap_or(u32::MAX);
        // SAFETY: CUPTI's function, with an array of so many of its structs.
        Status::check(unsafe {
            (self.functions.configure_unified_memory)(counters.as_mut_ptr(), count)
        })
    }
    /// CUPTI's name for a result, where it knows it and we do not.
    pub fn result_text(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: CUPTI's function, with a valid out pointer.
        let code = unsafe { (self.functions.get_result_string)(status.0, &raw mut text) };
        if code != result::SUCCESS || text.is_null() {
            return status.to_string();
        }
        // SAFETY: one of CUPTI's constant texts.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// Integer types of attributes.
pub trait Attribute: Copy + Default {}
impl Attribute for u8 {}
impl Attribute for u32 {}
impl Attribute for usize {}

/// Whether a CUPTI of this version can work with the driver.
fn fits(major: u32, minor: Option<u32>, driver: u32) -> Result<(), String> {
    let it = match minor {
        Some(minor) => format!("{major}.{minor}"),
        None => major.to_string(),
    };
    if major < 12 {
        return Err(format!("is CUPTI {it}, and midair needs 12.0 or newer"));
    }
    if driver >= 1000 && major > driver / 1000 {
        let (has, part) = (driver / 1000, driver % 1000 / 10);
        return Err(format!(
            "is CUPTI {it}, and the driver has CUDA {has}.{part}"
        ));
    }
    Ok(())
}

/// The loader's message about the last failure on this thread.
fn loader_error() -> String {
    // SAFETY: a function without arguments.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return String::from("no reason given");
    }
    // SAFETY: a terminated text of the loader's that lives until its next call on this thread.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
