//! The settings that the environment gives to the model.

use crate::pmu::rules::CLOCK_MHZ;
use crate::pmu::{Gpu, Rate, Rules};
use crate::sampling::Rule;

/// The settings, each from the variable that its comment names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `MODEL_LOG`: the path of the log, to which records are appended. `None` means no log.
    pub log: Option<String>,
    /// `MODEL_DEBUG=1`: writes the same records to stderr as well.
    pub debug: bool,
    /// `MODEL_KERNEL_NS`: how long a kernel takes, in ns (default 50,000).
    pub kernel_ns: u64,
    /// `MODEL_LONG_KERNEL=GRID_X:NS[,GRID_X:NS...]`: a dispatch whose grid.x is GRID_X takes NS.
    pub long_kernels: Vec<(u32, u64)>,
    /// `MODEL_JITTER=PERCENT`: kernels take a random time around their own, with this spread
    /// (default 0: exactly their own).
    pub jitter: u32,
    /// `MODEL_EAGER=1`: valid packets up to the write index are taken at random moments, without
    /// waiting for the doorbell.
    pub eager: bool,
    /// `MODEL_SEED`: seed of those moments (default 1). The same seed gives the same decisions, but
    /// not the same interleaving with the application's threads.
    pub seed: u64,
    /// `MODEL_FIRMWARE_LOG=DIR`: each device writes the log of starts and ends that newer firmware
    /// writes, into a file in this directory (see `plugin/firmware_log.rs`). `None` means no such
    /// log.
    pub firmware_log: Option<String>,
    /// `MODEL_FIRMWARE_SLOTS`: the number of records in one ring of this log (default 262,144), a
    /// power of two.
    pub firmware_slots: u64,
    /// `MODEL_FIRMWARE_COUNTS=1`: the indices of this log count records; otherwise they start again
    /// with the ring.
    pub firmware_counts: bool,
    /// `MODEL_ALWAYS_TIME=1`: every completion signal gets times, even if the queue's profiling is
    /// off.
    pub always_time: bool,
    /// `MODEL_LATCH=0`: the packet processor reads a queue's profiling bit again for each packet.
    /// Default 1, as on devices: it keeps the value that it found at the first dispatch after the
    /// queue was mapped.
    pub latch: bool,
    /// `MODEL_REMAP=0`: creating or destroying a queue leaves the other queues mapped, as where the
    /// device schedules queues itself (MES). Default 1: all queues are remapped, as KFD does
    /// elsewhere.
    pub remap: bool,
    /// `MODEL_RING=device`: the rings of AQL queues are in device memory. Each access of the
    /// program is trapped, and reads are counted (see the log's `reads`). This works only with
    /// AMD's runtime.
    pub device_rings: bool,
    /// `MODEL_GPU=XCCS,ENGINES,UNITS,ARRAYS[,gfx11|gfx12]`: the numbers of the device's units, for its counters
    /// (see [`Gpu`]).
    pub gpu: Gpu,
    /// `MODEL_CLOCK_MHZ`: the clock that counters of cycles count (default 2100).
    pub clock_mhz: u64,
    /// `MODEL_RATES=GRID_X:BLOCK:EVENT:FACTOR[,...]`: kernels of this grid raise the event FACTOR
    /// times where the rules have *f* (see [`crate::pmu::rules`]).
    pub rates: Vec<Rate>,
    /// `MODEL_SAMPLING=1`: the emulated driver samples program counters (see `plugin/kfd.rs`). AMD's
    /// runtime must see a GPU with the debugger's capability.
    pub sampling: bool,
    /// `MODEL_DEBUGGED=1`: a debugger is on the process, and the driver refuses to sample.
    pub debugged: bool,
    /// `MODEL_SAMPLES=GRID_X:OFFSET*WEIGHT[+OFFSET*WEIGHT...][,GRID_X:...]`, `MODEL_SAMPLED_WAVES`
    /// (default 4) and `MODEL_INVALID_SAMPLES=N` (one of N, default none): see [`Rule`].
    pub samples: Rule,
    /// `MODEL_TRACE_DETAIL`: how many blocks of a thread trace tell of the steps of a wave (default 3,
    /// see [`crate::pmu::trace`]).
    pub trace_detail: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            log: None,
            debug: false,
            kernel_ns: 50_000,
            long_kernels: Vec::new(),
            jitter: 0,
            eager: false,
            seed: 1,
            firmware_log: None,
            firmware_slots: 262_144,
            firmware_counts: false,
            always_time: false,
            latch: true,
            remap: true,
            device_rings: false,
            gpu: Gpu::default(),
            clock_mhz: CLOCK_MHZ,
            rates: Vec::new(),
            sampling: false,
            debugged: false,
            samples: Rule::default(),
            trace_detail: 3,
        }
    }
}

impl Settings {
    /// Reads the settings, with a function that looks up environment variables.
    ///
    /// # Errors
    /// Fails when a value cannot be parsed, and names the variable and the value. A test must not
    /// run with another model than it asked for.
    pub fn from_lookup(look: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let look = |name: &str| look(name).filter(|value| !value.is_empty());
        let number = |name: &str, default: u64| match look(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{name}={text}: not a number")),
        };
        let either = |name: &str, default: bool| match look(name).as_deref() {
            None => Ok(default),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(text) => Err(format!("{name}={text}: neither 0 nor 1")),
        };
        let switch = |name: &str| either(name, false);
        let default = Settings::default();
        let mut long_kernels = Vec::new();
        for pair in look("MODEL_LONG_KERNEL")
            .iter()
            .flat_map(|text| text.split(','))
        {
            let parsed = pair
                .split_once(':')
                .and_then(|(grid, ns)| Some((grid.parse().ok()?, ns.parse().ok()?)));
            long_kernels
                .push(parsed.ok_or_else(|| format!("MODEL_LONG_KERNEL: {pair} is not GRID_X:NS"))?);
        }
        let gpu = match look("MODEL_GPU") {
            None => default.gpu,
            Some(text) => Gpu::parse(&text).ok_or_else(|| {
                format!("MODEL_GPU={text}: not XCCS,ENGINES,UNITS,ARRAYS[,gfx11|gfx12]")
            })?,
        };
        let rate = |text: &str| {
            Rate::parse(text)
                .ok_or_else(|| format!("MODEL_RATES: {text} is not GRID_X:BLOCK:EVENT:FACTOR"))
        };
        let rates = look("MODEL_RATES").map_or(Ok(Vec::new()), |text| {
            text.split(',').map(rate).collect::<Result<_, _>>()
        })?;
        let kernel = |text: &str| {
            Rule::parse_kernel(text).ok_or_else(|| {
                format!("MODEL_SAMPLES: {text} is not GRID_X:OFFSET*WEIGHT[+OFFSET*WEIGHT...]")
            })
        };
        let samples = Rule {
            kernels: look("MODEL_SAMPLES").map_or(Ok(Vec::new()), |text| {
                text.split(',').map(kernel).collect::<Result<_, _>>()
            })?,
            waves: number("MODEL_SAMPLED_WAVES", default.samples.waves)?,
            invalid_one_in: number("MODEL_INVALID_SAMPLES", 0)?,
        };
        Ok(Settings {
            gpu,
            sampling: switch("MODEL_SAMPLING")?,
            debugged: switch("MODEL_DEBUGGED")?,
            samples,
            trace_detail: u32::try_from(number("MODEL_TRACE_DETAIL", 3)?)
                .map_err(|_| "MODEL_TRACE_DETAIL: too much")?,
            clock_mhz: number("MODEL_CLOCK_MHZ", default.clock_mhz)?,
            rates,
            log: look("MODEL_LOG"),
            debug: switch("MODEL_DEBUG")?,
            kernel_ns: number("MODEL_KERNEL_NS", default.kernel_ns)?,
            long_kernels,
            jitter: u32::try_from(number("MODEL_JITTER", 0)?)
                .map_err(|_| "MODEL_JITTER: too much")?,
            eager: switch("MODEL_EAGER")?,
            seed: number("MODEL_SEED", default.seed)?,
            firmware_log: look("MODEL_FIRMWARE_LOG"),
            firmware_slots: number("MODEL_FIRMWARE_SLOTS", default.firmware_slots)?,
            firmware_counts: switch("MODEL_FIRMWARE_COUNTS")?,
            always_time: switch("MODEL_ALWAYS_TIME")?,
            latch: either("MODEL_LATCH", default.latch)?,
            remap: either("MODEL_REMAP", default.remap)?,
            device_rings: match look("MODEL_RING").as_deref() {
                None | Some("host") => false,
                Some("device") => true,
                Some(text) => return Err(format!("MODEL_RING={text}: neither host nor device")),
            },
        })
    }

    /// Returns the rules by which the counters count.
    pub fn rules(&self) -> Rules {
        Rules {
            gpu: self.gpu,
            clock_mhz: self.clock_mhz,
            rates: self.rates.clone(),
            trace_detail: self.trace_detail,
        }
    }

    /// Returns how long a kernel with this grid takes, in ns, and whether a setting for this grid
    /// defines it.
    pub fn kernel_time(&self, grid_x: u32) -> (u64, bool) {
        match self.long_kernels.iter().find(|(grid, _)| *grid == grid_x) {
            Some((_, ns)) => (*ns, true),
            None => (self.kernel_ns, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::from_lookup(|name| {
            pairs
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.to_string())
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(read(&[]), Ok(Settings::default()));
        assert_eq!(
            read(&[("MODEL_SEED", ""), ("MODEL_EAGER", "0")]),
            Ok(Settings::default())
        );
    }

    #[test]
    fn every_variable_is_read() {
        let s = read(&[
            ("MODEL_LOG", "/x"),
            ("MODEL_DEBUG", "1"),
            ("MODEL_KERNEL_NS", "7"),
            ("MODEL_LONG_KERNEL", "64:1000,128:30000000000"),
            ("MODEL_JITTER", "15"),
            ("MODEL_EAGER", "1"),
            ("MODEL_SEED", "9"),
            ("MODEL_ALWAYS_TIME", "1"),
            ("MODEL_LATCH", "0"),
            ("MODEL_REMAP", "0"),
            ("MODEL_RING", "device"),
            ("MODEL_GPU", "8,32,304,1"),
            ("MODEL_CLOCK_MHZ", "1000"),
            ("MODEL_RATES", "64:SQ:26:10,128:TCC:3:0"),
            ("MODEL_SAMPLING", "1"),
            ("MODEL_SAMPLES", "64:0*1+8*3,128:4*2"),
        ])
        .unwrap();
        assert_eq!(s.log.as_deref(), Some("/x"));
        assert!(s.debug && s.eager && s.always_time);
        assert!(!s.latch && !s.remap && s.device_rings);
        assert_eq!(
            (s.kernel_time(64), s.kernel_time(128), s.kernel_time(1)),
            ((1000, true), (30_000_000_000, true), (7, false))
        );
        assert_eq!((s.seed, s.jitter), (9, 15));
        assert_eq!((s.gpu.xccs, s.clock_mhz, s.rates.len()), (8, 1000, 2));
        assert!(s.sampling);
        let kernels = vec![(64, vec![(0, 1), (8, 3)]), (128, vec![(4, 2)])];
        assert_eq!(s.samples.kernels, kernels);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert_eq!(
            read(&[("MODEL_EAGER", "yes")]),
            Err("MODEL_EAGER=yes: neither 0 nor 1".into())
        );
        assert_eq!(
            read(&[("MODEL_LONG_KERNEL", "64")]),
            Err("MODEL_LONG_KERNEL: 64 is not GRID_X:NS".into())
        );
        assert_eq!(
            read(&[("MODEL_RATES", "64:XX:1:1")]),
            Err("MODEL_RATES: 64:XX:1:1 is not GRID_X:BLOCK:EVENT:FACTOR".into())
        );
        for samples in ["64", "64:", "64:0", "64:0*0", "64:0*1+", "x:0*1"] {
            let why = "is not GRID_X:OFFSET*WEIGHT[+OFFSET*WEIGHT...]";
            assert_eq!(
                read(&[("MODEL_SAMPLES", samples)]),
                Err(format!("MODEL_SAMPLES: {samples} {why}"))
            );
        }
        assert_eq!(
            read(&[("MODEL_KERNEL_NS", "-1")]),
            Err("MODEL_KERNEL_NS=-1: not a number".into())
        );
    }
}
