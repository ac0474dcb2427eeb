//! CUPTI's host interface: which metrics a chip has, what they are, and the configuration that counts
//! them.

use super::Refusal;
use super::library::{Cupti, Params, params, refused};
use crate::sets::MetricRequest;
use crate::wire::Metric;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

/// `CUPTI_PROFILER_TYPE_PM_SAMPLING`.
const PM_SAMPLING: i32 = 1;
/// `CUpti_MetricType`: counters, ratios, throughputs.
const TYPES: std::ops::Range<i32> = 0..3;

params!(
    /// The parameters of `cuptiProfilerHostInitialize`.
    Initialize, c"cuptiProfilerHostInitialize",
    { kind: i32, chip: *const c_char, availability: *const u8, }, object: *mut c_void
);
params!(
    /// The parameters of `cuptiProfilerHostDeinitialize`.
    Deinitialize, c"cuptiProfilerHostDeinitialize", {}, object: *mut c_void
);
params!(
    /// The parameters of `cuptiProfilerHostGetBaseMetrics`.
    GetBaseMetrics, c"cuptiProfilerHostGetBaseMetrics",
    { object: *mut c_void, kind: i32, names: *const *const c_char, }, count: usize
);
params!(
    /// The parameters of `cuptiProfilerHostGetMetricProperties`.
    GetMetricProperties, c"cuptiProfilerHostGetMetricProperties",
    { object: *mut c_void, name: *const c_char, description: *const c_char, hardware: *const c_char, dimension: *const c_char, },
    kind: i32
);
params!(
    /// The parameters of `cuptiProfilerHostConfigAddMetrics`.
    ConfigAddMetrics, c"cuptiProfilerHostConfigAddMetrics",
    { object: *mut c_void, names: *const *const c_char, }, count: usize
);
params!(
    /// The parameters of `cuptiProfilerHostGetConfigImageSize`.
    GetConfigImageSize, c"cuptiProfilerHostGetConfigImageSize", { object: *mut c_void, }, bytes: usize
);
params!(
    /// The parameters of `cuptiProfilerHostGetConfigImage`.
    GetConfigImage, c"cuptiProfilerHostGetConfigImage", { object: *mut c_void, bytes: usize, }, image: *mut u8
);
params!(
    /// The parameters of `cuptiProfilerHostGetNumOfPasses`.
    GetNumOfPasses, c"cuptiProfilerHostGetNumOfPasses", { bytes: usize, image: *mut u8, }, passes: usize
);
params!(
    /// The parameters of `cuptiProfilerHostEvaluateToGpuValues`.
    EvaluateToGpuValues, c"cuptiProfilerHostEvaluateToGpuValues",
    { object: *mut c_void, image: *const u8, bytes: usize, index: usize, names: *const *const c_char, count: usize, },
    values: *mut f64
);

/// Names of metrics as C strings.
#[derive(Debug)]
pub struct Names {
    // Owns the strings that the pointers lead to.
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Names {
    /// Makes the C strings for these names.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Names {
        let owned: Vec<CString> = names.filter_map(|name| CString::new(name).ok()).collect();
        let pointers = owned.iter().map(|name| name.as_ptr()).collect();
        Names {
            _owned: owned,
            pointers,
        }
    }

    /// Returns the address of the array of pointers.
    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.pointers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }
}

/// CUPTI's object for a chip. It is a configuration as well: metrics that are added to it stay.
#[derive(Debug)]
pub struct Host<'a> {
    cupti: &'a Cupti,
    object: *mut c_void,
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let mut params = Deinitialize {
            object: self.object,
            ..Deinitialize::default()
        };
        // SAFETY: the object came from CUPTI and is released once, here.
        let _ = unsafe { self.cupti.library.call(&mut params) };
    }
}

/// A configuration that counts metrics in one pass.
#[derive(Debug, Clone)]
pub struct Group {
    /// The metrics that it counts, in its order.
    pub metrics: Vec<Metric>,
    /// What each metric's value is divided by.
    pub divisors: Vec<f64>,
    /// CUPTI's image of it; aligned to 8 bytes.
    pub config: Vec<u64>,
    /// Bytes of the image.
    pub bytes: usize,
}

/// A configuration's image, and how many passes it needs.
struct Config {
    image: Vec<u64>,
    bytes: usize,
    passes: usize,
}

impl<'a> Host<'a> {
    /// Makes the object for a chip. `availability` says what can be counted; if it is empty,
    /// everything can.
    ///
    /// # Errors
    /// The chip is not known, or CUPTI lacks its companion library.
    pub fn new(cupti: &'a Cupti, chip: &CStr, availability: &[u64]) -> Result<Host<'a>, Refusal> {
        let mut params = Initialize {
            kind: PM_SAMPLING,
            chip: chip.as_ptr(),
            availability: if availability.is_empty() {
                ptr::null()
            } else {
                availability.as_ptr().cast()
            },
            ..Initialize::default()
        };
        // SAFETY: the text and the image live during the call, and CUPTI copies what it needs.
        unsafe { cupti.library.call(&mut params) }.map_err(refused::<Initialize>)?;
        Ok(Host {
            cupti,
            object: params.object,
        })
    }

    /// CUPTI's own handle.
    pub fn object(&self) -> *mut c_void {
        self.object
    }

    /// Returns the names of all of CUPTI's metrics for the chip, without their suffixes.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn base_metrics(&self) -> Result<Vec<String>, Refusal> {
        let mut names = Vec::new();
        for kind in TYPES {
            let mut params = GetBaseMetrics {
                object: self.object,
                kind,
                ..GetBaseMetrics::default()
            };
            // SAFETY: the object is alive, and CUPTI owns the names that it returns.
            unsafe { self.cupti.library.call(&mut params) }.map_err(refused::<GetBaseMetrics>)?;
            for number in 0..params.count {
                // SAFETY: the number is below the count of strings that CUPTI returned.
                let name = unsafe { CStr::from_ptr(*params.names.add(number)) };
                names.push(name.to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the unit of a metric, from CUPTI's dimension and the suffix of the name.
    pub fn unit(&self, expression: &str) -> String {
        if expression.contains(".pct") {
            return "%".into();
        }
        let Ok(name) = CString::new(expression) else {
            return String::new();
        };
        let mut params = GetMetricProperties {
            object: self.object,
            name: name.as_ptr(),
            ..GetMetricProperties::default()
        };
        // SAFETY: the object is alive, and the name lives during the call.
        let known =
            unsafe { self.cupti.library.call(&mut params) }.is_ok() && !params.dimension.is_null();
        if !known {
            return String::new();
        }
        // SAFETY: the pointer is not null, so it leads to a string that CUPTI owns.
        let dimension = unsafe { CStr::from_ptr(params.dimension) }
            .to_string_lossy()
            .into_owned();
        let suffix = [
            (".per_second", "/s"),
            (".per_cycle_active", "/cycle"),
            (".per_cycle_elapsed", "/cycle"),
            (".ratio", ""),
        ];
        let suffix = suffix.iter().find(|(end, _)| expression.ends_with(end));
        suffix.map_or(dimension.clone(), |(_, unit)| format!("{dimension}{unit}"))
    }

    /// Makes the configuration for these metrics, in an object of its own.
    fn config(
        cupti: &Cupti,
        chip: &CStr,
        availability: &[u64],
        expressions: &[&str],
    ) -> Result<Config, Refusal> {
        let host = Host::new(cupti, chip, availability)?;
        let names = Names::of(expressions.iter().copied());
        let library = &cupti.library;
        let mut add = ConfigAddMetrics {
            object: host.object,
            names: names.as_ptr(),
            count: names.len(),
            ..ConfigAddMetrics::default()
        };
        // SAFETY: the object is alive, and the names and their pointers live during the call.
        unsafe { library.call(&mut add) }.map_err(refused::<ConfigAddMetrics>)?;
        let mut size = GetConfigImageSize {
            object: host.object,
            ..GetConfigImageSize::default()
        };
        // SAFETY: as above.
        unsafe { library.call(&mut size) }.map_err(refused::<GetConfigImageSize>)?;
        let mut image = vec![0_u64; size.bytes.div_ceil(8)];
        let at: *mut u8 = image.as_mut_ptr().cast();
        let mut get = GetConfigImage {
            object: host.object,
            bytes: size.bytes,
            image: at,
            ..GetConfigImage::default()
        };
        // SAFETY: the buffer has as many bytes as the struct says.
        unsafe { library.call(&mut get) }.map_err(refused::<GetConfigImage>)?;
        let mut passes = GetNumOfPasses {
            bytes: size.bytes,
            image: at,
            ..GetNumOfPasses::default()
        };
        // SAFETY: as above.
        unsafe { library.call(&mut passes) }.map_err(refused::<GetNumOfPasses>)?;
        Ok(Config {
            image,
            bytes: size.bytes,
            passes: passes.passes,
        })
    }

    /// Sorts metrics into groups that each need one pass. Metrics are taken in their order, and
    /// each goes into the first group where one of its expressions fits. Also returns the metrics
    /// that cannot be counted, and why.
    pub fn groups(
        cupti: &Cupti,
        chip: &CStr,
        availability: &[u64],
        asked: &[MetricRequest],
    ) -> (Vec<Group>, Vec<(String, String)>) {
        let config = |expressions: &[&str]| Self::config(cupti, chip, availability, expressions);
        // All the preferred expressions are tried together first. If they fit, one configuration is
        // enough instead of one for each metric.
        let first: Vec<&str> = asked
            .iter()
            .filter_map(|it| Some(it.expressions.first()?.as_str()))
            .collect();
        let mut groups: Vec<Vec<(&MetricRequest, &str)>> = Vec::new();
        let mut without = Vec::new();
        if first.len() == asked.len() && config(&first).is_ok_and(|config| config.passes == 1) {
            groups.push(asked.iter().zip(first).collect());
        } else {
            for it in asked {
                if let Err(why) = place(it, &mut groups, config) {
                    without.push((it.name.clone(), why));
                }
            }
        }
        let host = Host::new(cupti, chip, availability).ok();
        let mut made = Vec::new();
        for group in groups {
            let expressions: Vec<&str> = group.iter().map(|(_, expression)| *expression).collect();
            let config = match config(&expressions) {
                Ok(config) => config,
                Err(refusal) => {
                    let why = format!("{} {}", refusal.what, refusal.status);
                    without.extend(group.iter().map(|(it, _)| (it.name.clone(), why.clone())));
                    continue;
                }
            };
            let number = made.len() as u32;
            let metric = |(it, expression): &(&MetricRequest, &str)| Metric {
                name: it.name.clone(),
                unit: match it.unit {
                    Some(unit) => unit.to_owned(),
                    None => host
                        .as_ref()
                        .map_or(String::new(), |host| host.unit(expression)),
                },
                expression: (*expression).to_owned(),
                group: number,
            };
            made.push(Group {
                metrics: group.iter().map(metric).collect(),
                divisors: group.iter().map(|(it, _)| it.divisor).collect(),
                config: config.image,
                bytes: config.bytes,
            });
        }
        (made, without)
    }
}

/// Finds a group for a metric, or returns why there is none.
fn place<'m>(
    it: &'m MetricRequest,
    groups: &mut Vec<Vec<(&'m MetricRequest, &'m str)>>,
    config: impl Fn(&[&str]) -> Result<Config, Refusal>,
) -> Result<(), String> {
    let fits = |group: &[(&MetricRequest, &str)], expression: &str| {
        let all: Vec<&str> = group
            .iter()
            .map(|(_, known)| *known)
            .chain([expression])
            .collect();
        config(&all).is_ok_and(|config| config.passes == 1)
    };
    for group in groups.iter_mut() {
        for expression in &it.expressions {
            if fits(group, expression) {
                group.push((it, expression));
                return Ok(());
            }
        }
    }
    let mut why = String::from("the GPU lacks it");
    for expression in &it.expressions {
        match config(&[expression]) {
            Ok(one) if one.passes == 1 => {
                groups.push(vec![(it, expression)]);
                return Ok(());
            }
            Ok(more) => why = format!("it needs {} passes, and sampling has one", more.passes),
            Err(_) => {}
        }
    }
    Err(why)
}

/// Evaluates samples with CUPTI's own function, which looks the names up each time.
#[derive(Debug)]
pub struct Slow<'a> {
    host: Host<'a>,
    names: Names,
}

impl<'a> Slow<'a> {
    /// Makes it for a group's metrics.
    pub fn new(host: Host<'a>, group: &Group) -> Slow<'a> {
        Slow {
            host,
            names: Names::of(
                group
                    .metrics
                    .iter()
                    .map(|metric| metric.expression.as_str()),
            ),
        }
    }

    /// Computes the values of a sample.
    ///
    /// # Errors
    /// CUPTI's status.
    ///
    /// # Safety
    /// The image is one that was initialised for the group, of so many bytes.
    pub unsafe fn evaluate(
        &self,
        image: *const u8,
        bytes: usize,
        index: usize,
        values: &mut [f64],
    ) -> Result<(), Refusal> {
        if values.len() < self.names.len() {
            return Err(Refusal::new(
                EvaluateToGpuValues::NAME.to_string_lossy(),
                "too little room",
            ));
        }
        let mut params = EvaluateToGpuValues {
            object: self.host.object,
            image,
            bytes,
            index,
            names: self.names.as_ptr(),
            count: self.names.len(),
            values: values.as_mut_ptr(),
            ..EvaluateToGpuValues::default()
        };
        // SAFETY: the object is alive, there is room for the value of each name, and the caller
        // vouches for the image.
        unsafe { self.host.cupti.library.call(&mut params) }.map_err(refused::<EvaluateToGpuValues>)
    }
}
