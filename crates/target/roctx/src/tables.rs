//! The live tables. A profiler finds them through a registration library, or by decoding the jumps
//! of [`crate::capi`]. It may replace slots at any time, each by a single aligned store.

use crate::body;
use std::sync::atomic::AtomicPtr;

/// `roctxCoreApiTable_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Core {
    /// Bytes of this struct.
    pub size: usize,
    /// `roctxMarkA`.
    pub mark: AtomicPtr<()>,
    /// `roctxRangePushA`.
    pub push: AtomicPtr<()>,
    /// `roctxRangePop`.
    pub pop: AtomicPtr<()>,
    /// `roctxRangeStartA`.
    pub start: AtomicPtr<()>,
    /// `roctxRangeStop`.
    pub stop: AtomicPtr<()>,
    /// `roctxGetThreadId`.
    pub get_thread_id: AtomicPtr<()>,
}

/// `roctxControlApiTable_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// Bytes of this struct.
    pub size: usize,
    /// `roctxProfilerPause`.
    pub pause: AtomicPtr<()>,
    /// `roctxProfilerResume`.
    pub resume: AtomicPtr<()>,
}

/// `roctxNameApiTable_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Names {
    /// Bytes of this struct.
    pub size: usize,
    /// `roctxNameOsThread`.
    pub os_thread: AtomicPtr<()>,
    /// `roctxNameHsaAgent`.
    pub hsa_agent: AtomicPtr<()>,
    /// `roctxNameHipDevice`.
    pub hip_device: AtomicPtr<()>,
    /// `roctxNameHipStream`.
    pub hip_stream: AtomicPtr<()>,
}

const _: () =
    assert!(size_of::<Core>() == 56 && size_of::<Control>() == 24 && size_of::<Names>() == 40);

const fn slot(function: *const ()) -> AtomicPtr<()> {
    AtomicPtr::new(function.cast_mut())
}

/// The core table.
pub static CORE: Core = Core {
    size: size_of::<Core>(),
    mark: slot(body::mark as *const ()),
    push: slot(body::push as *const ()),
    pop: slot(body::pop as *const ()),
    start: slot(body::start as *const ()),
    stop: slot(body::stop as *const ()),
    get_thread_id: slot(body::get_thread_id as *const ()),
};

/// The control table.
pub static CONTROL: Control = Control {
    size: size_of::<Control>(),
    pause: slot(body::pause as *const ()),
    resume: slot(body::resume as *const ()),
};

/// The name table.
pub static NAMES: Names = Names {
    size: size_of::<Names>(),
    os_thread: slot(body::name_os_thread as *const ()),
    hsa_agent: slot(body::name_hsa_agent as *const ()),
    hip_device: slot(body::name_hip_device as *const ()),
    hip_stream: slot(body::name_hip_stream as *const ()),
};
