//! Which dispatches tell about a metric, and how many dispatches each of them stands for.
//!
//! If counters are multiplexed, a metric has values only in dispatches that had all of its counters
//! in one window. In each class of dispatches (`Frame::class`) these are a random sample. So each
//! of them stands for as many dispatches as the class has per window. A class without a window is
//! left out, which the coverage shows. Errors come from the sample itself: it is cut into groups,
//! each group is left out once, and the spread of these results is the estimate's spread
//! (jackknife). The counted part of a class has no error: deviations shrink by √(1 − n/N).

use crate::frame::{Column, Frame};

/// How many groups are left out in turn.
pub(crate) const GROUPS: usize = 20;
/// With fewer windows than this there is no interval.
pub(crate) const ENOUGH: usize = 3;

/// The dispatches that `-k`, `-d` and `--gpu-id` chose.
#[derive(Debug, Clone)]
pub enum Rows {
    /// All rows, of which there are this many.
    All(usize),
    /// These rows, in ascending order.
    Some(Vec<u32>),
}

impl Rows {
    /// Returns how many rows there are.
    pub fn len(&self) -> usize {
        match self {
            Rows::All(count) => *count,
            Rows::Some(rows) => rows.len(),
        }
    }

    /// Whether none was chosen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many dispatches the rows stand for.
    pub fn dispatches(&self, frame: &Frame) -> usize {
        match frame.is_weighed() {
            true => self.iter().map(|row| frame.weight(row)).sum::<f64>() as usize,
            false => self.len(),
        }
    }

    /// Returns the number of the row at a place.
    pub(crate) fn at(&self, place: usize) -> usize {
        match self {
            Rows::All(_) => place,
            Rows::Some(rows) => rows.get(place).map_or(0, |row| *row as usize),
        }
    }

    /// Returns the numbers of the rows.
    pub fn iter(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Rows::All(count) => Box::new(0..*count),
            Rows::Some(rows) => Box::new(rows.iter().map(|row| *row as usize)),
        }
    }
}

/// The dispatches that tell about certain columns.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The rows that have a value in each of the columns.
    pub(crate) rows: Rows,
    /// The share of the chosen dispatches' time that these took.
    pub(crate) coverage: f64,
    /// How each row stands for others; None: every chosen dispatch is a row.
    pub(crate) strata: Option<Strata>,
}

/// Classes and groups of a sample.
#[derive(Debug)]
pub(crate) struct Strata {
    /// Index of each row's class in the tables below.
    pub(crate) class: Vec<u32>,
    /// Group of each row.
    pub(crate) group: Vec<u8>,
    /// How many groups there are; 0: too few rows for an interval.
    pub(crate) groups: usize,
    /// The number of chosen dispatches of each class.
    all: Vec<f64>,
    /// The number of dispatches in the sample, by class and group.
    sampled: Vec<f64>,
}

impl Sample {
    pub(crate) fn of(frame: &Frame, chosen: &Rows, columns: &[&Column]) -> Sample {
        let total = chosen.len();
        let complete = |row: usize| columns.iter().all(|column| !column.get(row).is_nan());
        let rows: Vec<u32> = match columns.is_empty() {
            true => Vec::new(),
            false => {
                let rows = chosen.iter().filter(|row| complete(*row));
                rows.filter_map(|row| u32::try_from(row).ok()).collect()
            }
        };
        if columns.is_empty() || rows.len() == total {
            return Sample {
                rows: chosen.clone(),
                coverage: 1.0,
                strata: None,
            };
        }
        let time = |row: usize| {
            let duration = frame.duration(row);
            if duration.is_finite() {
                duration.max(0.0) * frame.weight(row)
            } else {
                0.0
            }
        };
        let whole: f64 = chosen.iter().map(time).sum();
        let counted: f64 = rows.iter().map(|row| time(*row as usize)).sum();
        Sample {
            coverage: match whole > 0.0 {
                true => counted / whole,
                false => rows.len() as f64 / chosen.dispatches(frame).max(1) as f64,
            },
            strata: Some(Strata::of(frame, chosen, &rows)),
            rows: Rows::Some(rows),
        }
    }
}

impl Strata {
    fn of(frame: &Frame, chosen: &Rows, rows: &[u32]) -> Strata {
        let class_of = |row: usize| frame.class.get(row).copied().unwrap_or(0);
        // Number the classes of the sample without gaps.
        let greatest = frame.class.iter().max().map_or(0, |class| *class as usize);
        let mut number = vec![u32::MAX; greatest + 1];
        let mut count = 0;
        let mut class = Vec::with_capacity(rows.len());
        for row in rows {
            let slot = &mut number[class_of(*row as usize) as usize];
            if *slot == u32::MAX {
                *slot = count;
                count += 1;
            }
            class.push(*slot);
        }
        let count = count as usize;
        let mut all = vec![0.0; count];
        for row in chosen.iter() {
            if let Some(all) = all.get_mut(number[class_of(row) as usize] as usize) {
                *all += frame.weight(row);
            }
        }
        let groups = match rows.len() {
            few if few < ENOUGH => 0,
            rows => rows.min(GROUPS),
        };
        let mut sampled = vec![0.0; count * groups.max(1)];
        // Each class deals its rows to the groups in turn, after shuffling them. What repeats or
        // drifts in the program is then spread over the groups at random, as it is in the sample.
        let width = groups.max(1);
        let mut of_class: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (place, class) in class.iter().enumerate() {
            of_class[*class as usize].push(place);
        }
        let mut group = vec![0_u8; rows.len()];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        // Classes with few rows should not all start with the same group.
        let mut next = 0;
        for (class, places) in of_class.iter_mut().enumerate() {
            for last in (1..places.len()).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                places.swap(last, (random % (last as u64 + 1)) as usize);
            }
            for place in places {
                group[*place] = next as u8;
                sampled[class * width + next] += 1.0;
                next = (next + 1) % width;
            }
        }
        Strata {
            class,
            group,
            groups,
            all,
            sampled,
        }
    }

    /// Returns the width of the tables by class and group.
    pub(crate) fn width(&self) -> usize {
        self.groups.max(1)
    }

    /// Returns the number of chosen dispatches in all classes that have a row here.
    pub(crate) fn all(&self) -> usize {
        self.all.iter().sum::<f64>() as usize
    }

    /// Returns the number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.all.len()
    }

    /// Extrapolates sums by class and group to totals over all dispatches: first the estimate, then
    /// the totals with each group left out.
    pub(crate) fn totals(&self, sums: &[f64]) -> Vec<f64> {
        let width = self.width();
        let mut totals = vec![0.0; self.groups + 1];
        for (class, all) in self.all.iter().enumerate() {
            let range = class * width..(class + 1) * width;
            let (sums, sampled) = (&sums[range.clone()], &self.sampled[range]);
            let (sum, count): (f64, f64) = (sums.iter().sum(), sampled.iter().sum());
            if count == 0.0 {
                continue;
            }
            let total = all / count * sum;
            let free = (1.0 - count / all).max(0.0).sqrt();
            totals[0] += total;
            for group in 0..self.groups {
                let rest = count - sampled[group];
                let without = match rest > 0.0 {
                    true => all / rest * (sum - sums[group]),
                    false => total,
                };
                totals[group + 1] += total + free * (without - total);
            }
        }
        totals
    }
}

/// Returns the half width of the interval that contains the value with 95 % confidence. The first
/// of `replicates` is the estimate; the others are the estimates with each group left out.
pub(crate) fn half_width(replicates: &[f64]) -> Option<f64> {
    let (_, without) = replicates.split_first()?;
    let groups = without.len();
    if groups < ENOUGH || without.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let count = groups as f64;
    let mean = without.iter().sum::<f64>() / count;
    let squares: f64 = without.iter().map(|value| (value - mean).powi(2)).sum();
    let error = ((count - 1.0) / count * squares).sqrt();
    STUDENT.get(groups - 2).map(|quantile| quantile * error)
}

/// The 0.975 quantiles of Student's distribution by degrees of freedom, from 1.
const STUDENT: [f64; 19] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
];
