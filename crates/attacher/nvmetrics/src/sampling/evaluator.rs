//! Turns counters into values without looking names up. NVIDIA's evaluator is asked once what a
//! name stands for, and then computes all values of a group's sample in one call. CUPTI's own
//! function does both for each sample, which costs half a processor at 5,000 samples a second.
//!
//! The function that makes an evaluator for a whole device is in none of CUPTI's headers. Its
//! struct was derived from CUPTI's own calls of it (`docs/sources.md#pmsampling`). So the
//! evaluator's values of the first samples are compared with CUPTI's. Where the function is missing
//! or the values differ, CUPTI's own function is used.

use super::host::Group;
use super::library::{Cupti, Library, params};
use std::ffi::{CStr, CString, c_char, c_void};

params!(
    /// The parameters of `NVPW_InitializeHost`.
    InitializeHost, c"NVPW_InitializeHost", {}, unused: [u8; 0]
);
params!(
    /// The parameters of `NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize`.
    ScratchSize, c"NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize", { chip: *const c_char, }, bytes: usize
);
params!(
    /// The parameters of `NVPW_Device_MetricsEvaluator_Initialize`.
    Initialize, c"NVPW_Device_MetricsEvaluator_Initialize",
    { scratch: *mut u8, scratch_bytes: usize, chip: *const c_char, image: *const u8, image_bytes: usize, },
    evaluator: *mut c_void
);
params!(
    /// The parameters of `NVPW_MetricsEvaluator_Destroy`.
    Destroy, c"NVPW_MetricsEvaluator_Destroy", {}, evaluator: *mut c_void
);
params!(
    /// The parameters of `NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest`.
    Convert, c"NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
    { evaluator: *mut c_void, name: *const c_char, request: *mut Wanted, }, bytes: usize
);
params!(
    /// The parameters of `NVPW_MetricsEvaluator_SetDeviceAttributes`.
    SetDeviceAttributes, c"NVPW_MetricsEvaluator_SetDeviceAttributes",
    { evaluator: *mut c_void, image: *const u8, }, bytes: usize
);
params!(
    /// The parameters of `NVPW_MetricsEvaluator_EvaluateToGpuValues`.
    Evaluate, c"NVPW_MetricsEvaluator_EvaluateToGpuValues",
    {
        evaluator: *mut c_void, wanted: *const Wanted, count: usize, wanted_bytes: usize, stride: usize, image: *const u8,
        image_bytes: usize, index: usize, isolated: u8,
    },
    values: *mut f64
);

/// `NVPW_MetricEvalRequest`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    metric: usize,
    kind: u8,
    rollup: u8,
    submetric: u16,
}
/// The size of the struct without padding.
const WANTED: usize = 12;

/// An evaluator, and the requests for a group's metrics.
#[derive(Debug)]
pub struct Fast {
    library: Library,
    evaluator: *mut c_void,
    // The evaluator's working memory. It is never moved.
    _scratch: Vec<u64>,
    wanted: Vec<Wanted>,
    evaluate: super::library::Function,
}

impl Drop for Fast {
    fn drop(&mut self) {
        let mut params = Destroy {
            evaluator: self.evaluator,
            ..Destroy::default()
        };
        // SAFETY: the evaluator came from the library. It is destroyed once, before its memory is
        // freed.
        let _ = unsafe { self.library.call(&mut params) };
    }
}

impl Fast {
    /// Makes an evaluator for a group's metrics on a chip, or returns `None` where the library
    /// lacks the functions.
    pub fn new(cupti: &Cupti, chip: &CStr, group: &Group) -> Option<Fast> {
        let library = cupti.perf?;
        // SAFETY: the function takes no arguments, and may be called more than once.
        unsafe { library.call(&mut InitializeHost::default()) }.ok()?;
        let mut size = ScratchSize {
            chip: chip.as_ptr(),
            ..ScratchSize::default()
        };
        // SAFETY: the text lives during the call.
        unsafe { library.call(&mut size) }.ok()?;
        let mut scratch = vec![0_u64; size.bytes.div_ceil(8)];
        let mut params = Initialize {
            scratch: scratch.as_mut_ptr().cast(),
            scratch_bytes: size.bytes,
            chip: chip.as_ptr(),
            ..Initialize::default()
        };
        // SAFETY: the memory has as many bytes as the struct says, and lives as long as the
        // evaluator.
        unsafe { library.call(&mut params) }.ok()?;
        let mut fast = Fast {
            evaluate: library.function::<Evaluate>()?,
            library,
            evaluator: params.evaluator,
            _scratch: scratch,
            wanted: Vec::with_capacity(group.metrics.len()),
        };
        if fast.evaluator.is_null() {
            std::mem::forget(fast);
            return None;
        }
        for metric in &group.metrics {
            let name = CString::new(metric.expression.as_str()).ok()?;
            let mut wanted = Wanted::default();
            let mut convert = Convert {
                evaluator: fast.evaluator,
                name: name.as_ptr(),
                request: &raw mut wanted,
                bytes: WANTED,
                ..Convert::default()
            };
            // SAFETY: name and request live during the call.
            unsafe { fast.library.call(&mut convert) }.ok()?;
            fast.wanted.push(wanted);
        }
        Some(fast)
    }

    /// Reads the device's properties from an image. Call it once for each image that was
    /// initialised.
    ///
    /// # Errors
    /// The library's status.
    ///
    /// # Safety
    /// The image is one that was initialised for the group, of so many bytes.
    pub unsafe fn attributes(&self, image: *const u8, bytes: usize) -> Result<(), i32> {
        let mut params = SetDeviceAttributes {
            evaluator: self.evaluator,
            image,
            bytes,
            ..SetDeviceAttributes::default()
        };
        // SAFETY: the evaluator is alive, and the caller answers for the image.
        unsafe { self.library.call(&mut params) }
    }

    /// Computes the values of a sample.
    ///
    /// # Errors
    /// The library's status.
    ///
    /// # Safety
    /// As [`Fast::attributes`].
    pub unsafe fn evaluate(
        &self,
        image: *const u8,
        bytes: usize,
        index: usize,
        values: &mut [f64],
    ) -> Result<(), i32> {
        if values.len() < self.wanted.len() {
            return Err(-1);
        }
        let mut params = Evaluate {
            evaluator: self.evaluator,
            wanted: self.wanted.as_ptr(),
            count: self.wanted.len(),
            wanted_bytes: WANTED,
            stride: size_of::<Wanted>(),
            image,
            image_bytes: bytes,
            index,
            isolated: 1,
            values: values.as_mut_ptr(),
            ..Evaluate::default()
        };
        // SAFETY: there is room for the value of each request, and the caller vouches for the
        // image.
        super::library::status(unsafe { (self.evaluate)((&raw mut params).cast()) })
    }
}
