use super::*;

/// A processor of 2.1 GHz that was switched on at 0.
fn ticks_at(boot: u64) -> u64 {
    boot / 10 * 21 + 1
}

const DAY: u64 = 86_400_000_000_000;

/// Starts a day after the computer's start.
fn reading(source: Source, at: u64) -> Reading {
    let boot = DAY + at;
    let wall = 20_000 * DAY + boot;
    let ticks = (ticks_at(boot), ticks_at(boot) + 60);
    let cupti = match source {
        Source::Wall => wall + 80,
        Source::Ticks => ticks.0 + 30,
        Source::Unknown => boot / 1_000 * 500,
    };
    Reading {
        cupti,
        boot,
        wall,
        ticks,
    }
}

fn near(got: Option<u64>, at: u64) {
    let got = got.unwrap();
    assert!(
        got.abs_diff(DAY + at) < 200,
        "{got} instead of {}",
        DAY + at
    );
}

#[test]
fn the_narrowest_bracket_counts() {
    let mut boot = [100, 200, 300, 310, 400, 500, 600, 700, 800, 900].into_iter();
    let mut cupti = 1_000_000_u64;
    let read = Reading::read(
        || {
            cupti += 1;
            Some(cupti)
        },
        || boot.next().unwrap(),
    );
    assert_eq!(
        read.map(|read| (read.cupti, read.boot)),
        Some((1_000_002, 305))
    );
    assert_eq!(Reading::read(|| None, || 0), None);
    // Each of the first seven is interrupted between its two readings of the clock.
    let (mut boot, mut calls) = (0, 0);
    let read = Reading::read(
        || Some(1),
        || {
            calls += 1;
            boot += if calls % 2 == 0 && calls < 16 {
                5_000_000
            } else {
                1_000
            };
            boot
        },
    );
    assert_eq!(read.map(|read| read.boot), Some(35_008_500));
    assert_eq!(calls, 16);
    let now = Reading::read(|| Some(wall_clock()), || 7).unwrap();
    assert_eq!(now.source(), Source::Wall);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_processors_counter_is_recognised() {
    let now = Reading::read(|| Some(ticks()), || 7).unwrap();
    assert_eq!(now.source(), Source::Ticks);
}

/// After a run of PyTorch's profiler CUPTI counts ticks. Such a session's times were wrong, and its
/// notes said that the wall clock had been set.
#[test]
fn a_counter_that_a_profiler_registered_is_no_step_of_the_wall_clock() {
    let mut clock = Clock::default();
    for at in [0, 20_000_000, 120_000_000, 1_120_000_000] {
        clock.add(reading(Source::Ticks, at));
    }
    for at in [21_000_000, 500_000_000, 1_130_000_000] {
        near(clock.convert(reading(Source::Ticks, at).cupti), at);
    }
    assert_eq!((clock.steps(), clock.foreign), (0, 0));
}

/// CUPTI returns to the wall clock when it is used again after its end, and its records may be
/// older than the newest reading.
#[test]
fn the_clock_is_exchanged_within_a_session() {
    let mut clock = Clock::default();
    clock.add(reading(Source::Ticks, 0));
    clock.add(reading(Source::Wall, 20_000_000));
    clock.add(reading(Source::Wall, 120_000_000));
    near(
        clock.convert(reading(Source::Wall, 60_000_000).cupti),
        60_000_000,
    );
    near(
        clock.convert(reading(Source::Ticks, 70_000_000).cupti),
        70_000_000,
    );
    assert_eq!(clock.steps(), 0);
}

#[test]
fn a_time_of_no_known_clock_has_no_moment() {
    let mut clock = Clock::default();
    clock.add(reading(Source::Wall, 0));
    clock.add(reading(Source::Wall, 100_000_000));
    assert_eq!(clock.convert(12_345), None);
    assert_eq!(clock.convert(0), Some(0));
    assert_eq!(clock.foreign, 1);
    // One that counts evenly is learned from what it returned.
    for at in [200_000_000, 300_000_000] {
        clock.add(reading(Source::Unknown, at));
    }
    near(
        clock.convert(reading(Source::Unknown, 250_000_000).cupti),
        250_000_000,
    );
}

#[test]
fn a_wall_clock_that_is_set_is_counted_and_its_times_are_right() {
    let mut clock = Clock::default();
    clock.add(reading(Source::Wall, 0));
    clock.add(reading(Source::Wall, 100_000_000));
    let mut set = reading(Source::Wall, 200_000_000);
    set.wall += DAY;
    set.cupti += DAY;
    clock.add(set);
    assert_eq!(clock.steps(), 1);
    near(
        clock.convert(reading(Source::Wall, 50_000_000).cupti),
        50_000_000,
    );
    near(clock.convert(set.cupti - 5_000_000), 195_000_000);
}

#[test]
fn a_new_clock_has_nothing_of_the_last_one() {
    let mut clock = Clock::default();
    assert!(!clock.is_set());
    clock.add(reading(Source::Wall, 0));
    clock.foreign = 3;
    assert!(clock.is_set());
    clock.restart();
    assert_eq!((clock.is_set(), clock.foreign), (false, 3));
}
