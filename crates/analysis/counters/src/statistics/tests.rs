use super::*;
use midair_rotation::{ClassKey, Rotation, Scheduler, mix};

mod coverage;

fn counter(group: u32, value: usize) -> Counter {
    Counter { group, value }
}

fn window(ordinal: u64, values: &[f64]) -> Window {
    Window {
        ordinal,
        duration: 10,
        values: values.to_vec(),
    }
}

/// Returns a class of `dispatches` dispatches whose group 0 has these windows, evenly spread.
fn class(dispatches: u64, values: &[&[f64]]) -> Windows {
    let mut class = Windows::default();
    (0..dispatches).for_each(|_| {
        class.dispatched(10);
    });
    let step = dispatches / values.len().max(1) as u64;
    for (n, values) in values.iter().enumerate() {
        class.counted(0, window(n as u64 * step, values));
    }
    class
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs().max(1.0)
}

#[test]
fn a_mean_has_the_textbook_s_interval() {
    // The mean is 4 and the variance 10/4; four fifths of the dispatches had no window.
    let class = class(25, &[&[2.0], &[3.0], &[4.0], &[5.0], &[6.0]]);
    let mean = class.mean(counter(0, 0)).unwrap();
    assert_eq!((mean.value, mean.n), (4.0, 5));
    let error = (0.8_f64 * 2.5 / 5.0).sqrt();
    let t = super::student::quantile(4.0);
    assert!(near(mean.half.unwrap(), error * t));
    let (low, high) = mean.interval().unwrap();
    assert!(near(low, 4.0 - error * t) && near(high, 4.0 + error * t));
    assert!(near(mean.relative().unwrap(), error * t / 4.0));
    assert!(mean.exceeds(2.0) && !mean.exceeds(3.0) && !mean.exceeds(5.0));
    assert_eq!(class.range(counter(0, 0)), Some((2.0, 6.0)));
}

#[test]
fn what_was_counted_whole_has_no_error() {
    let class = class(4, &[&[1.0], &[2.0], &[3.0], &[10.0]]);
    let mean = class.mean(counter(0, 0)).unwrap();
    assert_eq!((mean.value, mean.half), (4.0, Some(0.0)));
    assert_eq!(class.coverage(), 1.0);
}

#[test]
fn few_windows_have_no_interval_and_none_have_no_value() {
    let two = class(10, &[&[1.0], &[3.0]]);
    let mean = two.mean(counter(0, 0)).unwrap();
    assert_eq!((mean.value, mean.n, mean.half), (2.0, 2, None));
    assert_eq!((mean.interval(), mean.relative()), (None, None));
    assert!(!mean.exceeds(0.0));
    // All values are at the limit, and only rounding makes their mean another number.
    let mut at_it = Windows::default();
    for ordinal in 0..1000 {
        at_it.dispatched(1);
        if mix(ordinal).is_multiple_of(3) {
            at_it.counted(0, window(ordinal, &[100.0]));
        }
    }
    let mean = at_it.mean(counter(0, 0)).unwrap();
    assert!(!mean.exceeds(100.0) && mean.exceeds(99.0), "{mean:?}");
    let three = class(10, &[&[1.0], &[3.0], &[2.0]]);
    assert!(three.mean(counter(0, 0)).unwrap().half.is_some());
    // No value is made up for another group, another value, or a value that does not exist.
    assert_eq!(three.mean(counter(1, 0)), None);
    assert_eq!(three.mean(counter(0, 1)), None);
    assert_eq!(three.range(counter(0, 1)), None);
    let holes = class(9, &[&[1.0, f64::NAN], &[3.0, 7.0], &[2.0, f64::INFINITY]]);
    assert_eq!(holes.mean(counter(0, 0)).unwrap().n, 3);
    let one = holes.mean(counter(0, 1)).unwrap();
    assert_eq!((one.value, one.n), (7.0, 1));
}

#[test]
fn a_ratio_is_that_of_sums_and_knows_the_covariance() {
    let class = class(40, &[&[2.0, 4.0], &[6.0, 10.0], &[4.0, 10.0], &[8.0, 16.0]]);
    let ratio = class.ratio(counter(0, 0), counter(0, 1)).unwrap();
    assert!(near(ratio.value, 0.5));
    // The plan's formula.
    let (a, b) = ([2.0, 6.0, 4.0, 8.0], [4.0, 10.0, 10.0, 16.0]);
    let spread = |x: [f64; 4], y: [f64; 4]| -> f64 {
        let (p, q) = (x.iter().sum::<f64>() / 4.0, y.iter().sum::<f64>() / 4.0);
        let all = x.iter().zip(y).map(|(x, y)| (x - p) * (y - q));
        all.sum::<f64>() / 3.0
    };
    let squares = spread(a, a) + 0.25 * spread(b, b) - spread(a, b);
    let error = (0.9 * squares / (4.0 * 100.0)).sqrt();
    assert!(near(
        ratio.half.unwrap(),
        error * super::student::quantile(3.0)
    ));
    // A ratio of proportional counters has no error, however much they vary.
    let same = class.ratio(counter(0, 1), counter(0, 1)).unwrap();
    assert!(near(same.value, 1.0) && same.half.unwrap() < 1e-12);
    assert_eq!(class.ratio(counter(0, 0), counter(1, 0)), None);
}

#[test]
fn a_ratio_to_nothing_is_none() {
    let class = class(4, &[&[1.0, 0.0], &[2.0, 0.0], &[3.0, 0.0]]);
    assert_eq!(class.ratio(counter(0, 0), counter(0, 1)), None);
    let zero = class.ratio(counter(0, 1), counter(0, 0)).unwrap();
    assert_eq!((zero.value, zero.relative()), (0.0, None));
}

#[test]
fn counters_of_two_groups_are_compared_by_their_reference() {
    // Group 1 met dispatches that were twice as long, which its reference counter shows.
    let mut class = class(100, &[&[10.0, 100.0], &[11.0, 110.0], &[9.0, 90.0]]);
    for (n, long) in [200.0, 220.0, 180.0].into_iter().enumerate() {
        class.counted(1, window(n as u64, &[0.05 * long, long]));
    }
    let reference = [counter(0, 1), counter(1, 1)];
    let ratio = class
        .ratio_across(counter(0, 0), counter(1, 0), reference)
        .unwrap();
    assert!(near(ratio.value, 2.0) && ratio.half.unwrap() < 1e-9);
    assert_eq!(ratio.n, 3);
    // With an error in only one of them, its relative error is the ratio's.
    class.counted(0, window(50, &[12.0, 100.0]));
    let ratio = class
        .ratio_across(counter(0, 0), counter(1, 0), reference)
        .unwrap();
    let one = class.ratio(counter(0, 0), counter(0, 1)).unwrap();
    assert!(near(ratio.relative().unwrap(), one.relative().unwrap()));
    let other = [counter(0, 1), counter(2, 1)];
    assert_eq!(
        class.ratio_across(counter(0, 0), counter(2, 0), other),
        None
    );
}

#[test]
fn coverage_is_of_gpu_time() {
    let mut class = Windows::default();
    assert_eq!(class.coverage(), 0.0);
    for duration in [10, 20, 30, 40] {
        class.dispatched(duration);
    }
    let counted = |ordinal, duration| Window {
        ordinal,
        duration,
        values: vec![1.0],
    };
    class.counted(3, counted(3, 40));
    class.counted(1, counted(0, 10));
    class.shared();
    assert_eq!(class.coverage(), 0.5);
    assert_eq!((class.coverage_of(3), class.coverage_of(1)), (0.4, 0.1));
    assert_eq!(class.coverage_of(2), 0.0);
    assert_eq!((class.dispatches(), class.windows()), (4, 2));
    assert_eq!(class.shared_windows(), 1);
    assert!(class.groups().eq([1, 3]));
}

#[test]
fn more_windows_at_one_time_than_at_another_do_not_bend_the_mean() {
    // The value is 1 in the first half and 3 in the second; nine of ten windows are in the first.
    let mut class = Windows::default();
    for ordinal in 0..2000 {
        class.dispatched(1);
        let (value, step) = if ordinal < 1000 { (1.0, 10) } else { (3.0, 90) };
        if ordinal % step == 0 {
            class.counted(0, window(ordinal, &[value]));
        }
    }
    let mean = class.mean(counter(0, 0)).unwrap();
    // The plain mean of the windows is 1.2.
    assert!((mean.value - 2.0).abs() < 0.2, "{mean:?}");
}

#[test]
fn windows_come_in_any_order() {
    let (mut one, mut other) = (Windows::default(), Windows::default());
    for n in 0..50 {
        one.dispatched(1);
        other.dispatched(1);
        one.counted(0, window(n, &[(n * n) as f64]));
        other.counted(0, window(49 - n, &[((49 - n) * (49 - n)) as f64]));
    }
    assert_eq!(one.of_group(0), other.of_group(0));
}

#[test]
fn drift_is_told_from_noise() {
    let drifting = |slope: f64| {
        let mut class = Windows::default();
        for ordinal in 0..2700 {
            class.dispatched(1);
            if ordinal % 3 != 0 {
                continue;
            }
            let noise = (mix(ordinal) % 100) as f64 / 100.0;
            let value = 10.0 + noise + slope * ordinal as f64 / 2700.0;
            // Two groups, both with the reference counter.
            class.counted((ordinal % 2) as u32, window(ordinal, &[5.0, value]));
        }
        class.drift([counter(0, 1), counter(1, 1)]).unwrap()
    };
    let none = drifting(0.0);
    assert!(!none.is_certain, "{none:?}");
    let some = drifting(1.5);
    assert!(some.is_certain);
    assert!(
        (some.relative().unwrap() - 1.0 / 10.75).abs() < 0.02,
        "{some:?}"
    );
    assert!(drifting(-1.5).is_certain);
    assert_eq!(class(9, &[&[1.0]]).drift([counter(0, 0)]), None);
}

/// If each dispatch has a window, the means of both thirds are known exactly, and always differ. That
/// they do is no change of the program.
#[test]
fn noise_is_no_drift_even_where_nothing_is_missing() {
    let drifting = |slope: f64, seed: u64| {
        let mut class = Windows::default();
        for ordinal in 0..300 {
            class.dispatched(1);
            let noise = (mix(seed + ordinal) % 100) as f64 / 100.0;
            let value = 10.0 + noise + slope * ordinal as f64 / 300.0;
            class.counted(0, window(ordinal, &[value]));
        }
        class.drift([counter(0, 0)]).unwrap()
    };
    let certain = (0..200).filter(|seed| drifting(0.0, 1000 * seed).is_certain);
    let certain = certain.count();
    assert!((1..=20).contains(&certain), "{certain} of 200, not 5 %");
    assert!(drifting(1.5, 0).is_certain);
    assert_eq!(drifting(1.5, 0).first.half, Some(0.0));
}

#[test]
fn fewer_dispatches_than_windows_are_no_trouble() {
    // Some dispatches have lost their records.
    let mut class = class(2, &[&[1.0], &[2.0]]);
    class.counted(0, window(7, &[3.0]));
    class.counted(0, window(8, &[6.0]));
    let mean = class.mean(counter(0, 0)).unwrap();
    assert_eq!((mean.value, mean.half), (3.0, Some(0.0)));
}
