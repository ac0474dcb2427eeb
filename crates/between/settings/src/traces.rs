//! Settings for thread traces, with AMD's names.

/// Whether chosen dispatches are traced.
pub const THREAD_TRACE: &str = "ROCPROF_ADVANCED_THREAD_TRACE";
/// Directories with AMD's decoder, separated by colons.
pub const TRACE_LIBRARY_PATH: &str = "ROCPROF_ATT_LIBRARY_PATH";

const UNIT: &str = "ROCPROF_ATT_PARAM_TARGET_CU";
const ENGINES: &str = "ROCPROF_ATT_PARAM_SHADER_ENGINE_MASK";
const SIMDS: &str = "ROCPROF_ATT_PARAM_SIMD_SELECT";
const BYTES: &str = "ROCPROF_ATT_PARAM_BUFFER_SIZE";
const GPUS: &str = "ROCPROF_ATT_PARAM_GPU_INDEX";
const COUNTERS: &str = "ROCPROF_ATT_PARAM_PERFCOUNTERS";
const INTERVAL: &str = "ROCPROF_ATT_PARAM_PERFCOUNTER_CTRL";
const TARGET_ONLY: &str = "ROCPROF_ATT_PARAM_PERFCOUNTER_TARGET_ONLY";
const NO_DETAIL: &str = "ROCPROF_ATT_PARAM_NO_DETAIL";

/// The counters of `--att-activity`, as AMD's command sets them.
pub(crate) const ACTIVITY: &str = "SQ_BUSY_CU_CYCLES SQ_VALU_MFMA_BUSY_CYCLES SQ_ACTIVE_INST_VALU SQ_ACTIVE_INST_LDS SQ_ACTIVE_INST_VMEM SQ_ACTIVE_INST_FLAT SQ_ACTIVE_INST_SCA SQ_ACTIVE_INST_MISC";
/// The settings that [`ACTIVITY`] and its interval go to.
pub(crate) const ACTIVITY_SETS: [&str; 2] = [COUNTERS, INTERVAL];

/// The fewest bytes of the buffers.
const LEAST_BYTES: u64 = 1 << 20;
/// The most counters of a trace.
const MOST_COUNTERS: usize = 8;

/// What a thread trace has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadTrace {
    /// The compute unit whose waves are traced instruction by instruction.
    pub unit: u32,
    /// The shader engines, one bit each.
    pub engines: u64,
    /// The SIMDs, one bit each.
    pub simds: u32,
    /// Bytes of the buffers of all engines.
    pub bytes: u64,
    /// Whether only waves are traced, without their instructions.
    pub waves_only: bool,
    /// The GPUs, by their numbers from 0; none means all.
    pub gpus: Vec<u32>,
    /// Counters of SQ: name, and the SIMDs on which it is read.
    pub counters: Vec<(String, u32)>,
    /// The interval at which they are read, in AMD's units.
    pub interval: Option<u32>,
    /// Whether they are read on the traced unit only.
    pub target_only: bool,
}

fn parsed(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns what thread traces are asked for, by the texts of settings; `None` where none are.
///
/// # Errors
/// Values that cannot be read, or that make no trace, in words.
pub(crate) fn read<'s>(
    is_on: bool,
    text: impl Fn(&str) -> Option<&'s str>,
) -> Result<Option<ThreadTrace>, String> {
    if !is_on {
        return Ok(None);
    }
    let given = |name: &str| text(name).filter(|text| !text.is_empty());
    let number = |name: &'static str, default: u64, (least, most): (u64, u64), wanted: &str| {
        let Some(text) = given(name) else {
            return Ok(default);
        };
        parsed(text)
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| bad(name, text, wanted))
    };
    let all = given(COUNTERS).unwrap_or_default();
    let mut counters = Vec::new();
    for word in all.split([',', ' ']).filter(|word| !word.is_empty()) {
        let (name, simds) = word.split_once(':').unwrap_or((word, "0xf"));
        let simds = parsed(simds).filter(|simds| (1..=15).contains(simds) && !name.is_empty());
        let wanted = "is not a counter of SQ, with a mask of SIMDs behind a colon";
        let simds = simds.ok_or_else(|| bad(COUNTERS, word, wanted))?;
        counters.push((name.to_owned(), simds as u32));
    }
    if counters.len() > MOST_COUNTERS {
        return Err(bad(COUNTERS, all, "has more than 8 counters"));
    }
    let interval = match given(INTERVAL) {
        None => None,
        Some(_) => Some(number(INTERVAL, 0, (0, 32), "is not a number from 0 to 32")? as u32),
    };
    if !counters.is_empty() && interval.unwrap_or(0) == 0 {
        let wanted = "needs an interval from 1 to 32 (--att-perfcounter-ctrl)";
        return Err(bad(COUNTERS, all, wanted));
    }
    let gpus = given(GPUS).unwrap_or_default().split(',');
    let gpus = gpus.filter(|word| !word.is_empty()).map(|word| {
        let wanted = "is not the number of a GPU, from 0 on";
        word.parse().map_err(|_| bad(GPUS, word, wanted))
    });
    let masks = (1, u64::from(u32::MAX));
    Ok(Some(ThreadTrace {
        unit: number(UNIT, 1, (0, 15), "is not a compute unit from 0 to 15")? as u32,
        engines: number(ENGINES, 1, masks, "is not a mask of shader engines")?,
        simds: number(SIMDS, 15, (1, 15), "is not a mask of SIMDs, from 1 to 15")? as u32,
        bytes: number(
            BYTES,
            0x600_0000,
            (LEAST_BYTES, 1 << 38),
            "is not a size of at least 1 MiB, in bytes",
        )?,
        waves_only: text(NO_DETAIL).is_some_and(|text| parsed(text) == Some(1)),
        gpus: gpus.collect::<Result<_, _>>()?,
        counters,
        interval,
        target_only: text(TARGET_ONLY).is_some_and(|text| parsed(text) == Some(1)),
    }))
}

fn bad(name: &str, text: &str, wanted: &str) -> String {
    format!("{name} {wanted}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &'static str)]) -> Result<Option<ThreadTrace>, String> {
        let text = |name: &str| {
            let found = pairs.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| *value)
        };
        read(text(THREAD_TRACE) == Some("1"), text)
    }

    #[test]
    fn traces_have_amds_defaults() {
        assert_eq!(of(&[]), Ok(None));
        let on = (THREAD_TRACE, "1");
        let trace = of(&[on]).unwrap().unwrap();
        assert_eq!((trace.unit, trace.engines, trace.simds), (1, 1, 15));
        assert_eq!((trace.bytes, trace.counters.len()), (96 << 20, 0));
        let trace = of(&[
            on,
            (UNIT, "3"),
            (ENGINES, "0x11"),
            (SIMDS, "0x1"),
            (BYTES, "0x1000000"),
            (COUNTERS, "SQ_WAVES, SQ_INSTS:0x3"),
            (INTERVAL, "4"),
            (GPUS, "0,2"),
        ]);
        let trace = trace.unwrap().unwrap();
        assert_eq!((trace.unit, trace.engines, trace.simds), (3, 0x11, 1));
        assert_eq!((trace.bytes, &trace.gpus[..]), (1 << 24, &[0, 2][..]));
        let counters = [("SQ_WAVES".to_owned(), 15), ("SQ_INSTS".to_owned(), 3)];
        assert_eq!(
            (&trace.counters[..], trace.interval),
            (&counters[..], Some(4))
        );
    }

    #[test]
    fn what_makes_no_trace_is_refused_by_name() {
        for (name, value) in [
            (UNIT, "16"),
            (UNIT, "x"),
            (ENGINES, "0"),
            (SIMDS, "16"),
            (BYTES, "4096"),
            (COUNTERS, "SQ_WAVES:0"),
            (COUNTERS, "SQ_WAVES"),
            (COUNTERS, "a b c d e f g h i"),
            (INTERVAL, "33"),
            (GPUS, "a"),
        ] {
            let refused = of(&[(THREAD_TRACE, "1"), (name, value)]).unwrap_err();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
