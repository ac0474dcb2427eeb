//! PM sampling of a device: configured, started, decoded, stopped.

use super::Refusal;
use super::host::{Group, Names};
use super::library::{Cupti, Function, Params, params, refused};
use std::ffi::{CStr, CString, c_char, c_void};

params!(
    /// The parameters of `cuptiDeviceGetChipName`.
    GetChipName, c"cuptiDeviceGetChipName", { gpu: usize, }, chip: *const c_char
);
params!(
    /// The parameters of `cuptiPmSamplingGetCounterAvailability`.
    GetCounterAvailability, c"cuptiPmSamplingGetCounterAvailability", { gpu: usize, bytes: usize, }, image: *mut u8
);
params!(
    /// The parameters of `cuptiPmSamplingEnable`.
    Enable, c"cuptiPmSamplingEnable", { gpu: usize, }, object: *mut c_void
);
params!(
    /// The parameters of `cuptiPmSamplingDisable`.
    Disable, c"cuptiPmSamplingDisable", {}, object: *mut c_void
);
params!(
    /// The parameters of `cuptiPmSamplingSetConfig`.
    SetConfig, c"cuptiPmSamplingSetConfig",
    { object: *mut c_void, bytes: usize, config: *const u8, buffer: usize, interval: u64, trigger: i32, }, append: i32
);
params!(
    /// The parameters of `cuptiPmSamplingStart`.
    Start, c"cuptiPmSamplingStart", {}, object: *mut c_void
);
params!(
    /// The parameters of `cuptiPmSamplingStop`.
    Stop, c"cuptiPmSamplingStop", {}, object: *mut c_void
);
params!(
    /// The parameters of `cuptiPmSamplingGetCounterDataSize`.
    GetCounterDataSize, c"cuptiPmSamplingGetCounterDataSize",
    { object: *mut c_void, names: *const *const c_char, count: usize, samples: u32, }, bytes: usize
);
params!(
    /// The parameters of `cuptiPmSamplingCounterDataImageInitialize`.
    ImageInitialize, c"cuptiPmSamplingCounterDataImageInitialize", { object: *mut c_void, bytes: usize, }, image: *mut u8
);
params!(
    /// The parameters of `cuptiPmSamplingDecodeData`.
    DecodeData, c"cuptiPmSamplingDecodeData",
    { object: *mut c_void, image: *mut u8, bytes: usize, reason: i32, }, overflow: u8
);
params!(
    /// The parameters of `cuptiPmSamplingGetCounterDataInfo`.
    GetCounterDataInfo, c"cuptiPmSamplingGetCounterDataInfo",
    { image: *const u8, bytes: usize, total: usize, populated: usize, }, completed: usize
);
params!(
    /// The parameters of `cuptiPmSamplingCounterDataGetSampleInfo`.
    GetSampleInfo, c"cuptiPmSamplingCounterDataGetSampleInfo",
    { object: *mut c_void, image: *const u8, bytes: usize, index: usize, start: u64, }, end: u64
);

/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL`: the interval is in nanoseconds.
const BY_TIME: i32 = 1;
/// `CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL`: in cycles of a clock that varies. What Turing
/// and GA100 have.
const BY_CLOCK: i32 = 0;
/// `CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL`.
const IMAGE_FULL: i32 = 1;
/// Bytes of the hardware's buffer. The first size that CUPTI accepts is used; each holds at least
/// some hundred milliseconds.
const BUFFERS: [usize; 4] = [64 << 20, 256 << 20, 512 << 20, 16 << 20];

/// Images of a group: one takes samples while the values of those in the other are computed.
pub const IMAGES: usize = 2;

/// What the chip calls itself to CUPTI, such as `GH100`.
///
/// # Errors
/// CUPTI's status.
pub fn chip(cupti: &Cupti, gpu: u32) -> Result<CString, Refusal> {
    let mut params = GetChipName {
        gpu: gpu as usize,
        ..GetChipName::default()
    };
    // SAFETY: the struct is the function's own. CUPTI writes a pointer to its own text into it.
    unsafe { cupti.library.call(&mut params) }.map_err(refused::<GetChipName>)?;
    if params.chip.is_null() {
        return Err(refused::<GetChipName>(-1));
    }
    // SAFETY: the pointer is not null, so it leads to a string that CUPTI owns.
    Ok(unsafe { CStr::from_ptr(params.chip) }.to_owned())
}

/// Returns the image that tells what can be counted on this very device.
///
/// # Errors
/// CUPTI's status. This is the first call that needs rights.
pub fn availability(cupti: &Cupti, gpu: u32) -> Result<Vec<u64>, Refusal> {
    let mut params = GetCounterAvailability {
        gpu: gpu as usize,
        ..GetCounterAvailability::default()
    };
    // SAFETY: the image pointer is null, so CUPTI writes only the size.
    unsafe { cupti.library.call(&mut params) }.map_err(refused::<GetCounterAvailability>)?;
    let mut image = vec![0_u64; params.bytes.div_ceil(8)];
    params.image = image.as_mut_ptr().cast();
    // SAFETY: the buffer has as many bytes as the struct says.
    unsafe { cupti.library.call(&mut params) }.map_err(refused::<GetCounterAvailability>)?;
    Ok(image)
}

/// A device that is being sampled. Dropping the value releases the device.
#[derive(Debug)]
pub struct Device<'a> {
    cupti: &'a Cupti,
    object: *mut c_void,
    on: bool,
    decode: Function,
    sample_info: Function,
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        let _ = self.stop();
        let mut params = Disable {
            object: self.object,
            ..Disable::default()
        };
        // SAFETY: the object came from CUPTI and is released once, here.
        let _ = unsafe { self.cupti.library.call(&mut params) };
    }
}

/// Decoded counters of samples.
#[derive(Debug)]
pub struct Image {
    words: Vec<u64>,
    bytes: usize,
    /// Samples that it holds.
    pub room: usize,
    /// Samples in it that were already taken out.
    pub taken: usize,
    /// It has to be emptied before samples are decoded into it.
    pub full: bool,
}

impl Image {
    /// Where it is.
    pub fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The result of a decoding.
#[derive(Debug, Clone, Copy)]
pub struct Decoded {
    /// Samples in the image that are complete.
    pub samples: usize,
    /// The image was full, so there may be more.
    pub more: bool,
    /// The hardware's buffer was full.
    pub overflow: bool,
}

impl<'a> Device<'a> {
    /// Enables sampling of a device.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn enable(cupti: &'a Cupti, gpu: u32) -> Result<Device<'a>, Refusal> {
        let missing = |name: &CStr| Refusal::new(name.to_string_lossy(), "the function is missing");
        let decode = cupti
            .library
            .function::<DecodeData>()
            .ok_or_else(|| missing(DecodeData::NAME))?;
        let sample_info = cupti
            .library
            .function::<GetSampleInfo>()
            .ok_or_else(|| missing(GetSampleInfo::NAME))?;
        let mut params = Enable {
            gpu: gpu as usize,
            ..Enable::default()
        };
        // SAFETY: the struct is the function's own, and CUPTI writes the object into it.
        unsafe { cupti.library.call(&mut params) }.map_err(refused::<Enable>)?;
        Ok(Device {
            cupti,
            object: params.object,
            on: false,
            decode,
            sample_info,
        })
    }

    /// Configures a group. Also makes the images for its decoded samples, unless an earlier turn
    /// made them.
    ///
    /// # Errors
    /// CUPTI's status.
    fn configure(
        &mut self,
        group: &Group,
        interval: u64,
        buffer: usize,
        room: u32,
        mut known: Vec<Image>,
    ) -> Result<Vec<Image>, Refusal> {
        let mut params = SetConfig {
            object: self.object,
            bytes: group.bytes,
            config: group.config.as_ptr().cast(),
            buffer,
            interval,
            trigger: BY_TIME,
            ..SetConfig::default()
        };
        // SAFETY: the object is alive, and the configuration has as many bytes as the struct says.
        let mut set = unsafe { self.cupti.library.call(&mut params) };
        if set.is_err() {
            params.trigger = BY_CLOCK;
            // SAFETY: the same struct as above.
            set = unsafe { self.cupti.library.call(&mut params) }.or(set);
        }
        set.map_err(refused::<SetConfig>)?;
        let names = Names::of(
            group
                .metrics
                .iter()
                .map(|metric| metric.expression.as_str()),
        );
        let mut size = GetCounterDataSize {
            object: self.object,
            names: names.as_ptr(),
            count: names.len(),
            samples: room,
            ..GetCounterDataSize::default()
        };
        // SAFETY: the object is alive, and the names and their pointers live during the call.
        unsafe { self.cupti.library.call(&mut size) }.map_err(refused::<GetCounterDataSize>)?;
        known.retain(|image| image.bytes == size.bytes);
        known.resize_with(IMAGES, || Image {
            words: vec![0; size.bytes.div_ceil(8)],
            bytes: size.bytes,
            room: room as usize,
            taken: 0,
            full: false,
        });
        for image in &mut known {
            self.clear(image)?;
        }
        Ok(known)
    }

    /// Makes an image empty.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn clear(&self, image: &mut Image) -> Result<(), Refusal> {
        (image.taken, image.full) = (0, false);
        let mut params = ImageInitialize {
            object: self.object,
            bytes: image.bytes,
            image: image.words.as_mut_ptr().cast(),
            ..ImageInitialize::default()
        };
        // SAFETY: the object is alive, and the image has as many bytes as the struct says.
        unsafe { self.cupti.library.call(&mut params) }.map_err(refused::<ImageInitialize>)
    }

    /// Configures a group and starts sampling, with the first buffer size that CUPTI accepts.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn start_with(
        &mut self,
        group: &Group,
        interval: u64,
        room: u32,
        mut known: Vec<Image>,
    ) -> Result<(Vec<Image>, usize), Refusal> {
        let mut last = None;
        for buffer in BUFFERS {
            let images = self.configure(group, interval, buffer, room, known)?;
            match self.start() {
                Ok(()) => return Ok((images, buffer)),
                Err(refusal) => last = last.or(Some(refusal)),
            }
            known = images;
        }
        Err(last.unwrap_or_else(|| refused::<Start>(-1)))
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// CUPTI's status.
    fn start(&mut self) -> Result<(), Refusal> {
        let mut params = Start {
            object: self.object,
            ..Start::default()
        };
        // SAFETY: the object is alive.
        unsafe { self.cupti.library.call(&mut params) }.map_err(refused::<Start>)?;
        self.on = true;
        Ok(())
    }

    /// Stops sampling. What was sampled can still be decoded.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn stop(&mut self) -> Result<(), Refusal> {
        if !std::mem::take(&mut self.on) {
            return Ok(());
        }
        let mut params = Stop {
            object: self.object,
            ..Stop::default()
        };
        // SAFETY: the object is alive.
        unsafe { self.cupti.library.call(&mut params) }.map_err(refused::<Stop>)
    }

    /// Decodes what the hardware has written, and appends it to the samples in the image.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn decode(&self, image: &mut Image) -> Result<Decoded, Refusal> {
        let at: *mut u8 = image.words.as_mut_ptr().cast();
        let mut params = DecodeData {
            object: self.object,
            image: at,
            bytes: image.bytes,
            ..DecodeData::default()
        };
        // SAFETY: the object is alive, and the image was made for this object.
        let status = unsafe { (self.decode)((&raw mut params).cast()) };
        // Source: CUPTI's header: CUPTI_ERROR_OUT_OF_MEMORY means that the hardware's buffer was
        // full.
        const FULL: i32 = 8;
        if status != 0 && status != FULL {
            return Err(refused::<DecodeData>(status));
        }
        let mut info = GetCounterDataInfo {
            image: at,
            bytes: image.bytes,
            ..GetCounterDataInfo::default()
        };
        // SAFETY: the image has as many bytes as the struct says.
        unsafe { self.cupti.library.call(&mut info) }.map_err(refused::<GetCounterDataInfo>)?;
        Ok(Decoded {
            samples: info.completed,
            more: params.reason == IMAGE_FULL,
            overflow: params.overflow != 0 || status == FULL,
        })
    }

    /// Returns the start and the end of a sample, in the device's own nanoseconds.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn times(&self, image: &Image, index: usize) -> Result<(u64, u64), Refusal> {
        let mut params = GetSampleInfo {
            object: self.object,
            image: image.as_ptr(),
            bytes: image.bytes,
            index,
            ..GetSampleInfo::default()
        };
        // SAFETY: the object is alive, and the image was made for this object.
        let status = unsafe { (self.sample_info)((&raw mut params).cast()) };
        super::library::status(status).map_err(refused::<GetSampleInfo>)?;
        Ok((params.start, params.end))
    }
}
