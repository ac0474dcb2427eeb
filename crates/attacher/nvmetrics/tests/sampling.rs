//! Tests of the helper as a process, on the stand-in for CUPTI: values, losses, turns, refusals,
//! and a CUPTI that ends or never answers. The expected values are computed here from the samples'
//! times.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use midair_failure::Kind;
use midair_nvmetrics::{Error, Event, Request, Sampler, Samples, Series, failure, sets};
use midair_sim_cuda::StandIn;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long samples may take to come. Later than this they will not come at all.
const PATIENCE: Duration = Duration::from_secs(20);

struct Kit {
    stand_in: StandIn,
    scratch: tempfile::TempDir,
}

fn kit() -> Kit {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda");
    Kit {
        stand_in: StandIn::lay_out(&dir).unwrap(),
        scratch: tempfile::tempdir().unwrap(),
    }
}

impl Kit {
    /// Returns the helper as a program that finds this model in its environment.
    fn program(&self, model: &str) -> PathBuf {
        let path = self.scratch.path().join("helper");
        let driver = self.stand_in.driver();
        let text = format!(
            "#!/bin/sh\nexport LD_LIBRARY_PATH='{}' CUPTI_MODEL='{model}'\nexec '{}' \"$@\"\n",
            driver.display(),
            env!("CARGO_BIN_EXE_midair-nvmetrics")
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn request(&self, model: &str, cupti: &Path, list: &str) -> Request {
        Request {
            program: self.program(model),
            libraries: vec![cupti.to_string_lossy().into_owned()],
            gpu: 0,
            rate: 5_000,
            metrics: sets::parse(list).unwrap(),
            list: false,
        }
    }
}

/// Takes samples until there are `wanted`, and returns them with what the helper reported at its
/// end.
fn take(request: &Request, wanted: u64) -> (Series, Vec<Samples>, u64, Vec<(String, String)>) {
    let mut sampler = Sampler::start(request).unwrap();
    let mut series = Series::new(sampler.metrics.clone(), 200_000);
    let (mut all, mut overflows) = (Vec::new(), 0);
    let mut on = |event, series: &mut Series| match event {
        Event::Samples(samples) => {
            series.add(&samples);
            all.push(samples);
        }
        Event::Overflow => overflows += 1,
        other => panic!("{other:?}"),
    };
    let until = Instant::now() + PATIENCE;
    while series.samples < wanted {
        assert!(Instant::now() < until, "{} samples", series.samples);
        if let Some(event) = sampler.next(Duration::from_millis(100)).unwrap() {
            on(event, &mut series);
        }
    }
    let facts = sampler.finish(|event| on(event, &mut series)).unwrap();
    (series, all, overflows, facts)
}

fn fact<'a>(facts: &'a [(String, String)], key: &str) -> &'a str {
    facts
        .iter()
        .find(|(it, _)| it == key)
        .map_or("", |(_, value)| value)
}

/// The nanoseconds of [0, time) in which the model's tensor pipes are busy, as defined in
/// `sim/cuda/c/pm.h`.
fn busy_until(time: u64) -> u64 {
    time / 2_000_000 * 1_000_000 + (time % 2_000_000).min(1_000_000)
}

fn boot_less_wall() -> i64 {
    let now = |clock| {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes one struct.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    now(libc::CLOCK_BOOTTIME) - now(libc::CLOCK_REALTIME)
}

#[test]
fn samples_are_what_the_device_did_and_without_gaps() {
    let kit = kit();
    for (cupti, evaluation) in [
        (kit.stand_in.cupti(13), "by name"),
        (
            kit.stand_in.cupti_with_companion(13, false).unwrap(),
            "prepared",
        ),
        // The fast evaluator's values differ from CUPTI's, so CUPTI's are used.
        (
            kit.stand_in.cupti_with_companion(13, true).unwrap(),
            "by name",
        ),
    ] {
        let offset = boot_less_wall();
        let (series, all, overflows, facts) = take(
            &kit.request("", &cupti, "tensor,dram_read,l2_hit,sm_active"),
            1_000,
        );
        assert_eq!(
            (series.lost, overflows, series.groups()),
            (0, 0, 1),
            "{evaluation}"
        );
        assert_eq!(fact(&facts, "evaluation"), evaluation);
        let lines: Vec<_> = series
            .metrics
            .iter()
            .zip(&series.lines)
            .map(|(it, line)| (it.name.as_str(), it.unit.as_str(), line.least, line.most))
            .collect();
        assert_eq!(lines[0], ("tensor", "%", 0.0, 100.0));
        assert_eq!(lines[1], ("dram_read", "GB/s", 2000.0, 2000.0));
        assert_eq!(lines[2], ("l2_hit", "%", 90.0, 90.0));
        assert_eq!(lines[3], ("sm_active", "%", 50.0, 50.0));
        let mut near = 0;
        for samples in &all {
            for ((start, end), values) in samples.times.iter().zip(samples.values.chunks(4)) {
                // The very first sample starts earlier, and is left out.
                assert_eq!(end - start, 200_000);
                let wall = |time: &u64| time.wrapping_add_signed(-offset);
                let share =
                    100.0 * (busy_until(wall(end)) - busy_until(wall(start))) as f64 / 200_000.0;
                // The wall clock may be adjusted between this reading of both clocks and the
                // helper's.
                near += u64::from((share - values[0]).abs() < 10.0);
            }
        }
        assert!(
            near * 100 >= series.samples * 95,
            "{near} of {}",
            series.samples
        );
        // The rate of hits has no value where nothing was looked up.
        assert!(series.lines[2].samples < series.samples);
    }
}

#[test]
fn what_does_not_fit_into_one_pass_takes_turns() {
    let kit = kit();
    let (series, all, ..) = take(
        &kit.request(
            "pm_passes",
            &kit.stand_in.cupti(13),
            "sm_active,l1_hit,l2_hit,tensor",
        ),
        6_500,
    );
    let groups: Vec<u32> = series.metrics.iter().map(|metric| metric.group).collect();
    let names: Vec<&str> = series
        .metrics
        .iter()
        .map(|metric| metric.name.as_str())
        .collect();
    assert_eq!(
        (names, groups),
        (
            vec!["sm_active", "tensor", "l1_hit", "l2_hit"],
            vec![0, 0, 1, 2]
        )
    );
    for group in 0..3 {
        assert!(all.iter().any(|samples| samples.group == group), "{group}");
    }
    assert_eq!(series.lost, 0);
}

#[test]
fn what_is_missing_is_counted_and_a_full_buffer_is_told() {
    let kit = kit();
    let (series, _, overflows, _) = take(
        &kit.request("pm_gap=7,pm_overflow", &kit.stand_in.cupti(13), "sm_active"),
        500,
    );
    assert_eq!(overflows, 1);
    assert!(series.lost >= 7, "{}", series.lost);
}

#[test]
fn samples_are_decoded_while_the_values_of_others_are_computed() {
    let kit = kit();
    let request = kit.request("pm_beside", &kit.stand_in.cupti(13), "sm_active");
    let (series, _, overflows, _) = take(&request, 1_000);
    assert_eq!((series.lost, overflows), (0, 0));
}

#[test]
fn metrics_that_the_gpu_lacks_are_named_and_cupti_s_own_have_units() {
    let kit = kit();
    let sampler = Sampler::start(&kit.request(
        "",
        &kit.stand_in.cupti(13),
        "sm_active,sm__unknown.avg,lts__bytes.sum.per_second,sm__x.avg.pct_of_peak_sustained_elapsed",
    ))
    .unwrap();
    let units: Vec<&str> = sampler
        .metrics
        .iter()
        .map(|metric| metric.unit.as_str())
        .collect();
    assert_eq!(units, ["%", "byte/s", "%"]);
    assert_eq!(
        sampler.without,
        [("sm__unknown.avg".to_owned(), "the GPU lacks it".to_owned())]
    );
}

#[test]
fn names_are_listed() {
    let kit = kit();
    let mut request = kit.request("", &kit.stand_in.cupti(13), "");
    request.list = true;
    let sampler = Sampler::start(&request).unwrap();
    assert_eq!(
        sampler.names,
        [
            "dram__bytes_read",
            "dram__throughput",
            "l1tex__t_sector_hit_rate",
            "sm__cycles_active"
        ]
    );
    assert_eq!(sampler.fact("chip"), "GH100");
}

#[test]
fn each_reason_of_cupti_s_is_a_sentence() {
    let kit = kit();
    let good = kit.stand_in.cupti(13);
    let old = kit.stand_in.cupti_without_sampling(12).unwrap();
    for (model, cupti, kind, words) in [
        ("pm_availability=35", &good, Kind::NotPermitted, "driver"),
        (
            "pm_availability=999",
            &good,
            Kind::NoCounters,
            "cannot be had (cuptiPmSamplingGetCounterAvailability: 999)",
        ),
        (
            "pm_enable=26",
            &good,
            Kind::NoCounters,
            "in use by another profiler",
        ),
        (
            "pm_enable=7",
            &good,
            Kind::NoCounters,
            "cannot be had (cuptiPmSamplingEnable: 7), as when another profiler",
        ),
        ("pm_enable=27", &good, Kind::NoCounters, "cannot sample"),
        ("pm_enable=43", &good, Kind::NoCounters, "MIG"),
        ("pm_host=15", &good, Kind::NoCupti, "libnvperf_host.so"),
        (
            "pm_host=46",
            &good,
            Kind::NoCounters,
            "does not know this GPU",
        ),
        (
            "pm_initialize=999",
            &good,
            Kind::NoCupti,
            "does not work with this driver",
        ),
        ("", &old, Kind::NoCupti, "too old"),
        (
            "",
            &PathBuf::from("/nowhere/libcupti.so.13"),
            Kind::NoCupti,
            "cannot load a CUPTI",
        ),
    ] {
        let error = Sampler::start(&kit.request(model, cupti, "")).unwrap_err();
        let failure = failure(&error);
        assert_eq!(failure.kind, kind, "{model}: {failure}");
        assert!(failure.what.contains(words), "{model}: {failure}");
    }
    let mut request = kit.request("", &good, "");
    request.gpu = 9;
    assert_eq!(
        failure(&Sampler::start(&request).unwrap_err()).kind,
        Kind::Usage
    );
}

#[test]
fn the_next_cupti_is_tried_where_one_cannot_do_it() {
    let kit = kit();
    let mut request = kit.request("", &kit.stand_in.cupti(13), "sm_active");
    let old = kit.stand_in.cupti_without_sampling(12).unwrap();
    request
        .libraries
        .insert(0, old.to_string_lossy().into_owned());
    request
        .libraries
        .insert(0, "/nowhere/libcupti.so.12".to_owned());
    let sampler = Sampler::start(&request).unwrap();
    assert_eq!(
        Path::new(sampler.fact("library")).file_name(),
        Some(OsStr::new("libcupti.so.13"))
    );
}

#[test]
fn a_cupti_that_ends_or_hangs_harms_the_helper_only() {
    let kit = kit();
    let mut sampler =
        Sampler::start(&kit.request("pm_crash", &kit.stand_in.cupti(13), "sm_active")).unwrap();
    let until = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < until);
        if let Err(error) = sampler.next(Duration::from_millis(100)) {
            break error;
        }
    };
    assert!(
        matches!(&error, Error::Died(how) if how == "signal 6"),
        "{error:?}"
    );
    let sampler =
        Sampler::start(&kit.request("pm_hang", &kit.stand_in.cupti(13), "sm_active")).unwrap();
    let began = Instant::now();
    let error = sampler.finish(|_| {}).unwrap_err();
    assert!(
        matches!(error, Error::Silent(_)) && began.elapsed() < PATIENCE,
        "{error:?}"
    );
}
