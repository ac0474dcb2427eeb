//! Options that say when the recording is on, or whom windows are for: which of them go together.

use super::*;

/// The line is settled with what is inherited, and this is what is said against it.
fn said_against(line: &[(&str, &[&str])], inherited: &[(&str, &str)]) -> Option<String> {
    let inherited = Settings::from_iter(inherited.iter().copied());
    match resolve(
        &give(line).unwrap(),
        &inherited,
        Some(Path::new("/work/here")),
    ) {
        Ok(_) => None,
        Err(Refusal::Usage(said)) => Some(said),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn exclusive_windows_need_counters_per_kernel() {
    let exclusive: (&str, &[&str]) = ("exclusive", &[]);
    let kernels: (&str, &[&str]) = ("pmc", &["A"]);
    let devices: (&str, &[&str]) = ("pmc-device", &["A"]);
    let wanted = Some("--exclusive requires --pmc".to_owned());
    assert_eq!(said_against(&[exclusive], &[]), wanted);
    assert_eq!(said_against(&[exclusive, devices], &[]), wanted);
    assert_eq!(said_against(&[exclusive, kernels], &[]), None);
    for counters in [kernels, devices] {
        assert_eq!(said_against(&[counters], &[]), None);
        assert_eq!(said_against(&[counters, ("exclusive", &["no"])], &[]), None);
    }
}

#[test]
fn periods_are_settled_in_the_unit_that_is_given() {
    let period: (&str, &[&str]) = ("collection-period", &["1:2:3", "4:5:6"]);
    let set = |line: &[(&str, &[&str])], inherited: &[(&str, &str)]| {
        let settings = settle(line, inherited).settings;
        settings.text(COLLECTION_PERIOD).map(str::to_owned)
    };
    assert_eq!(set(&[], &[]), None);
    assert_eq!(
        set(&[period], &[(COLLECTION_PERIOD, "7:8:9")]).as_deref(),
        Some("1000000000:2000000000:3;4000000000:5000000000:6")
    );
    assert_eq!(
        set(&[period, ("collection-period-unit", &["usec"])], &[]).as_deref(),
        Some("1000:2000:3;4000:5000:6")
    );
    // The unit is for the command line: the variable counts nanoseconds.
    let inherited = [(COLLECTION_PERIOD, "7:8:9")];
    let unit: (&str, &[&str]) = ("collection-period-unit", &["usec"]);
    assert_eq!(set(&[unit], &inherited).as_deref(), Some("7:8:9"));
    let refused = said_against(&[("collection-period", &["1:0:1"])], &[]).unwrap();
    assert!(
        refused.starts_with("--collection-period takes"),
        "{refused}"
    );
    let refused = said_against(&[], &[(COLLECTION_PERIOD, "1:2")]).unwrap();
    assert!(
        refused.starts_with("ROCPROF_COLLECTION_PERIOD=1:2:"),
        "{refused}"
    );
}

/// Each of the three says when the recording is on.
#[test]
fn periods_go_neither_with_regions_nor_with_bursts() {
    let period: (&str, &[&str]) = ("collection-period", &["1:2:3"]);
    let regions: (&str, &[&str]) = ("selected-regions", &[]);
    let bursts: (&str, &[&str]) = ("max-overhead", &["5"]);
    assert_eq!(
        said_against(&[period, regions], &[]).as_deref(),
        Some("--collection-period and --selected-regions cannot be combined")
    );
    assert_eq!(
        said_against(&[period, bursts], &[]).as_deref(),
        Some("--collection-period and --max-overhead cannot be combined without counters")
    );
    let inherited = [(COLLECTION_PERIOD, "1:2:3")];
    assert!(said_against(&[regions], &inherited).is_some());
    for allowed in [
        &[period] as &[(&str, &[&str])],
        &[regions],
        &[bursts],
        &[regions, bursts],
        &[period, ("selected-regions", &["no"])],
        &[period, ("max-overhead", &["100"])],
        // With counters the limit is for their windows.
        &[period, bursts, ("pmc", &["A"])],
    ] {
        assert_eq!(said_against(allowed, &[]), None, "{allowed:?}");
    }
}
