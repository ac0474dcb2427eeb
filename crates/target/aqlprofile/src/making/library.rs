//! The C interface of AMD's library (source: `docs/sources.md#counters`): the functions that make
//! packets, and their types.

use midair_counters::wire::Gpu;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;

/// `aqlprofile_agent_handle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agent(pub u64);

/// `aqlprofile_agent_info_v1_t`.
#[repr(C)]
struct Description {
    name: *const c_char,
    xccs: u32,
    engines: u32,
    units: u32,
    arrays: u32,
    domain: u32,
    location: u32,
}
/// The version of [`Description`].
const DESCRIPTION: c_int = 2;

/// `aqlprofile_pmc_event_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The instance of the block.
    pub instance: u32,
    /// The event's number in the block.
    pub event: u32,
    /// How the event is summed up.
    pub flags: u32,
    /// The block's number.
    pub block: u32,
}

/// `aqlprofile_pmc_profile_t`.
#[repr(C)]
struct Profile {
    agent: Agent,
    events: *const Event,
    count: u32,
}

/// The question to `aqlprofile_get_pmc_info` for a block by its name.
const BLOCK_BY_NAME: c_int = 5;

/// `aqlprofile_pmc_info_data_t` for a block.
#[repr(C)]
struct BlockInfo {
    name: *const c_char,
    id: u32,
    instances: u32,
}

/// A vendor packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Packet([u32; 16]);

impl Packet {
    /// Returns the address of the commands that the packet points to, and their number of words.
    pub fn commands(&self) -> (u64, usize) {
        let address = u64::from(self.0[2] & !3) | u64::from(self.0[3] & 0xffff) << 32;
        (address, (self.0[4] & 0xf_ffff) as usize)
    }
}

/// `aqlprofile_pmc_aql_packets_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Packets {
    /// Resets, selects and starts the counters.
    pub start: Packet,
    /// Stops the counters.
    pub stop: Packet,
    /// Samples and reads the counters.
    pub read: Packet,
}

/// Allocates memory. Arguments: where to store its address, bytes, flags, the data given to
/// [`Library::create`].
pub type Allocate = unsafe extern "C" fn(*mut *mut c_void, usize, u32, *mut c_void) -> c_int;
/// Frees such memory.
pub type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);
/// Copies to such memory.
pub type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void) -> c_int;

type OnValue = unsafe extern "C" fn(Event, u64, u64, *mut c_void) -> c_int;
type OnCoordinate =
    unsafe extern "C" fn(c_int, c_int, c_int, c_int, *const c_char, *mut c_void) -> c_int;

type Register = unsafe extern "C" fn(*mut Agent, *const Description, c_int) -> c_int;
type GetInfo = unsafe extern "C" fn(*const Profile, c_int, *mut c_void) -> c_int;
type Create = unsafe extern "C" fn(
    *mut u64,
    *mut Packets,
    Profile,
    Allocate,
    Free,
    Copy,
    *mut c_void,
) -> c_int;
type Delete = unsafe extern "C" fn(u64);
type Iterate = unsafe extern "C" fn(u64, OnValue, *mut c_void) -> c_int;
type Coordinates = unsafe extern "C" fn(Agent, Event, u64, OnCoordinate, *mut c_void) -> c_int;

/// `aqlprofile_att_profile_t`.
#[repr(C)]
struct TraceProfile {
    agent: u64,
    parameters: *const [u32; 2],
    count: u32,
}

/// `aqlprofile_att_codeobj_data_t`.
#[repr(C)]
struct CodeObject {
    number: u64,
    address: u64,
    size: u64,
    agent: u64,
    /// Bit 0: it was unloaded; bit 1: it was loaded before the trace.
    flags: u32,
}

/// The bit of [`CodeObject::flags`] for an object that is loaded already.
const FROM_START: u32 = 2;

type OnData = unsafe extern "C" fn(u32, *const c_void, u64, *mut c_void) -> c_int;
type CreateTrace = unsafe extern "C" fn(
    *mut u64,
    *mut [Packet; 2],
    TraceProfile,
    Allocate,
    Free,
    Copy,
    *mut c_void,
) -> c_int;
type IterateTrace = unsafe extern "C" fn(u64, OnData, *mut c_void) -> c_int;
type Mark =
    unsafe extern "C" fn(*mut Packet, *mut u64, CodeObject, Allocate, Free, *mut c_void) -> c_int;

/// The functions for thread traces, which an older library may lack.
pub struct TraceFunctions {
    create: CreateTrace,
    delete: Delete,
    iterate: IterateTrace,
    mark: Mark,
}

/// Packets of a trace, or of a code object (the first only).
pub struct MadeTrace<'a> {
    functions: &'a TraceFunctions,
    handle: u64,
    /// They start and stop the trace.
    pub packets: [Packet; 2],
}

impl Drop for MadeTrace<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is the library's, and is deleted only here.
        unsafe { (self.functions.delete)(self.handle) };
    }
}

impl TraceFunctions {
    /// Makes the packets of a trace; the parameters are numbers and values. The functions are called
    /// with `data`.
    ///
    /// # Safety
    /// The functions must be sound with `data`, which must live until [`MadeTrace`] has been dropped.
    pub unsafe fn create(
        &self,
        agent: u64,
        parameters: &[[u32; 2]],
        (allocate, free, copy): (Allocate, Free, Copy),
        data: *mut c_void,
    ) -> Result<MadeTrace<'_>, Status> {
        let profile = TraceProfile {
            agent,
            parameters: parameters.as_ptr(),
            count: parameters.len() as u32,
        };
        let (mut handle, mut packets) = (0, [Packet::default(); 2]);
        let (to, made) = (&raw mut handle, &raw mut packets);
        // SAFETY: all pointers are valid during the call. The caller promises that the functions are
        // sound.
        checked(unsafe { (self.create)(to, made, profile, allocate, free, copy, data) })?;
        Ok(MadeTrace {
            functions: self,
            handle,
            packets,
        })
    }

    /// Makes the packet that tells a trace of a code object: its number, address and size.
    ///
    /// # Safety
    /// As for [`TraceFunctions::create`].
    pub unsafe fn marker(
        &self,
        (number, address, size): (u64, u64, u64),
        agent: u64,
        (allocate, free): (Allocate, Free),
        data: *mut c_void,
    ) -> Result<MadeTrace<'_>, Status> {
        let object = CodeObject {
            number,
            address,
            size,
            agent,
            flags: FROM_START,
        };
        let (mut handle, mut packets) = (0, [Packet::default(); 2]);
        let (to, made) = ((&raw mut packets).cast(), &raw mut handle);
        // SAFETY: as above.
        checked(unsafe { (self.mark)(to, made, object, allocate, free, data) })?;
        Ok(MadeTrace {
            functions: self,
            handle,
            packets,
        })
    }
}

impl MadeTrace<'_> {
    /// Calls `take` with each engine's number, the first eight bytes of its data, and the data's
    /// length.
    pub fn data(&self, mut take: impl FnMut(u32, u64, u64)) -> Result<(), Status> {
        unsafe extern "C" fn on_data(
            engine: u32,
            data: *const c_void,
            bytes: u64,
            to: *mut c_void,
        ) -> c_int {
            let first = match bytes < 8 || data.is_null() {
                true => 0,
                // SAFETY: the library passes this many bytes.
                false => unsafe { data.cast::<u64>().read_unaligned() },
            };
            // SAFETY: `to` is the reference that is passed below, which nothing else uses during the
            // call.
            unsafe { (*to.cast::<&mut dyn FnMut(u32, u64, u64)>())(engine, first, bytes) };
            0
        }
        let mut take: &mut dyn FnMut(u32, u64, u64) = &mut take;
        let to = (&raw mut take).cast();
        // SAFETY: the handle is valid. The function is called with `to` only during this call.
        checked(unsafe { (self.functions.iterate)(self.handle, on_data, to) })
    }
}

/// The loaded library. It is never unloaded.
pub struct Library {
    register: Register,
    get_info: GetInfo,
    create: Create,
    delete: Delete,
    iterate: Iterate,
    coordinates: Coordinates,
    traces: Option<TraceFunctions>,
}

/// The status that the library returned in place of 0.
#[derive(Debug)]
pub struct Status(pub u32);

fn checked(status: c_int) -> Result<(), Status> {
    if status == 0 {
        Ok(())
    } else {
        Err(Status(status as u32))
    }
}

fn loader_says() -> String {
    // SAFETY: dlerror's text belongs to this thread, and is copied before the next call to it.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: the pointer is not null, so it points to a string that ends with a zero byte.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

impl Library {
    /// Loads the first library that can be loaded and has all functions.
    ///
    /// # Errors
    /// When none can: what the loader said to each.
    pub fn open(names: &[OsString]) -> Result<Library, String> {
        let mut said = Vec::new();
        for name in names {
            let Ok(text) = CString::new(name.as_bytes()) else {
                continue;
            };
            // SAFETY: dlopen runs the initialisers of a library that the caller chose. This process
            // exists for that.
            let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if handle.is_null() {
                said.push(loader_says());
                continue;
            }
            match Library::of(handle) {
                Some(library) => return Ok(library),
                None => said.push(format!("{}: {}", name.display(), loader_says())),
            }
        }
        Err(said.join("; "))
    }

    fn of(handle: *mut c_void) -> Option<Library> {
        let find = |name: &CStr| {
            // SAFETY: the handle is a loaded library's, and the string ends with a zero byte.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        macro_rules! function {
            ($name:literal, $kind:ty) => {{
                let found = find($name)?;
                // SAFETY: the library's function of this name has had this signature since the
                // interface exists.
                unsafe { std::mem::transmute::<*mut c_void, $kind>(found) }
            }};
        }
        let traces = || {
            Some(TraceFunctions {
                create: function!(c"aqlprofile_att_create_packets", CreateTrace),
                delete: function!(c"aqlprofile_att_delete_packets", Delete),
                iterate: function!(c"aqlprofile_att_iterate_data", IterateTrace),
                mark: function!(c"aqlprofile_att_codeobj_marker", Mark),
            })
        };
        Some(Library {
            traces: traces(),
            register: function!(c"aqlprofile_register_agent_info", Register),
            get_info: function!(c"aqlprofile_get_pmc_info", GetInfo),
            create: function!(c"aqlprofile_pmc_create_packets", Create),
            delete: function!(c"aqlprofile_pmc_delete_packets", Delete),
            iterate: function!(c"aqlprofile_pmc_iterate_data", Iterate),
            coordinates: function!(c"aqlprofile_iterate_event_coord", Coordinates),
        })
    }

    /// Returns the functions for thread traces.
    pub fn traces(&self) -> Option<&TraceFunctions> {
        self.traces.as_ref()
    }

    /// Describes a GPU to the library.
    pub fn describe(&self, gpu: &Gpu) -> Result<Agent, Status> {
        let name = CString::new(gpu.name.as_str()).map_err(|_| Status(0))?;
        let description = Description {
            name: name.as_ptr(),
            xccs: gpu.xccs,
            engines: gpu.engines,
            units: gpu.units,
            arrays: gpu.arrays,
            domain: gpu.domain,
            location: gpu.location,
        };
        let mut agent = Agent(0);
        // SAFETY: both pointers are valid during the call. The library copies the name.
        checked(unsafe { (self.register)(&raw mut agent, &raw const description, DESCRIPTION) })?;
        Ok(agent)
    }

    /// Returns a block's number, and how many instances it has.
    pub fn block(&self, agent: Agent, name: &str) -> Result<(u32, u32), Status> {
        let name = CString::new(name).map_err(|_| Status(0))?;
        let profile = Profile {
            agent,
            events: std::ptr::null(),
            count: 0,
        };
        let mut info = BlockInfo {
            name: name.as_ptr(),
            id: 0,
            instances: 0,
        };
        let to = (&raw mut info).cast();
        // SAFETY: this question is answered into the struct that is passed. All pointers are valid
        // during the call.
        checked(unsafe { (self.get_info)(&raw const profile, BLOCK_BY_NAME, to) })?;
        Ok((info.id, info.instances))
    }

    /// Makes the packets for some events. The functions are called with `data`.
    ///
    /// # Safety
    /// The functions must be sound with `data`, which must live until [`Made`] has been dropped.
    pub unsafe fn create(
        &self,
        agent: Agent,
        events: &[Event],
        memory: (Allocate, Free, Copy),
        data: *mut c_void,
    ) -> Result<Made<'_>, Status> {
        let profile = Profile {
            agent,
            events: events.as_ptr(),
            count: events.len() as u32,
        };
        let (mut handle, mut packets) = (0, Packets::default());
        let (allocate, free, copy) = memory;
        // SAFETY: all pointers are valid during the call. The caller promises that the functions
        // are sound.
        let status = unsafe {
            (self.create)(
                &raw mut handle,
                &raw mut packets,
                profile,
                allocate,
                free,
                copy,
                data,
            )
        };
        checked(status)?;
        Ok(Made {
            library: self,
            agent,
            handle,
            packets,
        })
    }
}

/// Packets that the library has made.
pub struct Made<'a> {
    library: &'a Library,
    agent: Agent,
    handle: u64,
    /// The packets.
    pub packets: Packets,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is the library's, and is deleted only here.
        unsafe { (self.library.delete)(self.handle) };
    }
}

/// A value that the library read from the output: event, number of the sample, value.
pub type Value = (Event, u64, u64);

impl Made<'_> {
    /// Returns all values in the output, as the library reads it.
    pub fn values(&self) -> Result<Vec<Value>, Status> {
        unsafe extern "C" fn on_value(
            event: Event,
            sample: u64,
            value: u64,
            data: *mut c_void,
        ) -> c_int {
            // SAFETY: `data` is the vector that is passed below, which nothing else uses during the
            // call.
            unsafe { &mut *data.cast::<Vec<Value>>() }.push((event, sample, value));
            0
        }
        let mut values: Vec<Value> = Vec::new();
        let data = (&raw mut values).cast();
        // SAFETY: the handle is valid. The function is called with `data` only during this call.
        checked(unsafe { (self.library.iterate)(self.handle, on_value, data) })?;
        Ok(values)
    }

    /// Returns where a sample of an event was counted: the number of each dimension, and the number
    /// in it.
    pub fn place(&self, event: Event, sample: u64) -> Result<Vec<(i32, i32)>, Status> {
        unsafe extern "C" fn on_coordinate(
            _: c_int,
            dimension: c_int,
            _: c_int,
            at: c_int,
            _: *const c_char,
            data: *mut c_void,
        ) -> c_int {
            // SAFETY: `data` is the vector that is passed below, which nothing else uses during the
            // call.
            unsafe { &mut *data.cast::<Vec<(i32, i32)>>() }.push((dimension, at));
            0
        }
        let mut place: Vec<(i32, i32)> = Vec::new();
        let data = (&raw mut place).cast();
        let ask = self.library.coordinates;
        // SAFETY: the agent was registered. The function is called with `data` only during this
        // call.
        checked(unsafe { ask(self.agent, event, sample, on_coordinate, data) })?;
        Ok(place)
    }
}
