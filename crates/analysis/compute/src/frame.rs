//! Dispatches as columns: the counted values, and the fields of each dispatch.
//!
//! A column stores its values as narrowly as they permit, since there may be millions of
//! dispatches.

use std::collections::HashMap;

/// Names of the fields that every dispatch has, as AMD's files spell them.
pub mod field {
    /// Number of the dispatch.
    pub const DISPATCH: &str = "Dispatch_ID";
    /// Number of the GPU.
    pub const GPU: &str = "GPU_ID";
    /// Work-items.
    pub const GRID: &str = "Grid_Size";
    /// Work-items of a workgroup.
    pub const WORKGROUP: &str = "Workgroup_Size";
    /// Bytes of LDS of a workgroup.
    pub const LDS: &str = "LDS_Per_Workgroup";
    /// The sizes of a dispatch and of its kernel.
    pub const SIZES: [&str; 7] = [
        GRID,
        WORKGROUP,
        LDS,
        "Scratch_Per_Workitem",
        "Arch_VGPR",
        "Accum_VGPR",
        "SGPR",
    ];
    /// Number of the kernel.
    pub const KERNEL_ID: &str = "Kernel_ID";
    /// Name of the kernel.
    pub const KERNEL: &str = "Kernel_Name";
    /// Start in nanoseconds.
    pub const START: &str = "Start_Timestamp";
    /// End in nanoseconds.
    pub const END: &str = "End_Timestamp";
    /// Work-items of a wave.
    pub const WAVE: &str = "Wave_Size";
    /// Number of the call that launched it.
    pub const CORRELATION: &str = "Correlation_ID";
    /// The groups of counters that have values of the dispatch.
    pub const GROUP: &str = "Group";
    /// 1: something else ran alongside the dispatch while it was counted, so its values were left out.
    pub const SHARED: &str = "Shared";
    /// What every dispatch has, without counters.
    pub const OF_DISPATCH: [&str; 10] = around_sizes(&[DISPATCH, GPU], &[WAVE]);

    /// Returns [`SIZES`] with other fields around them. `N` is their number.
    pub const fn around_sizes<const N: usize>(
        before: &[&'static str],
        after: &[&'static str],
    ) -> [&'static str; N] {
        let mut all = [""; N];
        let parts: [&[&'static str]; 3] = [before, &SIZES, after];
        let (mut at, mut part) = (0, 0);
        while part < parts.len() {
            let mut index = 0;
            while index < parts[part].len() {
                all[at] = parts[part][index];
                (at, index) = (at + 1, index + 1);
            }
            part += 1;
        }
        assert!(at == N);
        all
    }
}

/// The values of one field or counter. NaN: the dispatch has no value.
#[derive(Debug, Clone)]
pub enum Column {
    /// Every dispatch has the same value.
    Same(f64),
    /// Whole numbers below 2³²−1, which itself stands for NaN.
    Narrow(Vec<u32>),
    /// All other values.
    Wide(Vec<f64>),
}

const NONE: u32 = u32::MAX;

impl Column {
    /// Returns the value of a row.
    pub fn get(&self, row: usize) -> f64 {
        match self {
            Column::Same(value) => *value,
            Column::Narrow(values) => match values.get(row) {
                Some(&NONE) | None => f64::NAN,
                Some(value) => f64::from(*value),
            },
            Column::Wide(values) => values.get(row).copied().unwrap_or(f64::NAN),
        }
    }

    /// Whether some dispatch has no value.
    pub fn has_gaps(&self) -> bool {
        match self {
            Column::Same(value) => value.is_nan(),
            Column::Narrow(values) => values.contains(&NONE),
            Column::Wide(values) => values.iter().any(|value| value.is_nan()),
        }
    }
}

/// A column that is still being read.
#[derive(Debug, Clone)]
pub struct Filling {
    column: Column,
    rows: usize,
    /// Always empty. `widen` would return it if its column were not wide, which cannot happen.
    nowhere: Vec<f64>,
}

impl Default for Filling {
    fn default() -> Filling {
        Filling {
            column: Column::Same(f64::NAN),
            rows: 0,
            nowhere: Vec::new(),
        }
    }
}

impl Filling {
    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: f64) {
        match &mut self.column {
            Column::Narrow(values) => {
                // A fraction, a negative number and a large number change in this conversion.
                let narrow = value as u32;
                if f64::from(narrow) == value && narrow != NONE {
                    values.push(narrow);
                } else if value.is_nan() {
                    values.push(NONE);
                } else {
                    self.widen().push(value);
                }
            }
            Column::Wide(values) => values.push(value),
            Column::Same(same) => {
                if self.rows == 0 {
                    *same = value;
                } else if same.to_bits() != value.to_bits() && !(same.is_nan() && value.is_nan()) {
                    self.spread();
                    self.push(value);
                    return;
                }
            }
        }
        self.rows += 1;
    }

    /// Sets the value of a row, for columns that are not filled in order.
    pub fn set(&mut self, row: usize, value: f64) {
        while self.rows <= row {
            self.push(f64::NAN);
        }
        if matches!(self.column, Column::Same(_)) {
            self.spread();
        }
        if let Column::Narrow(values) = &mut self.column {
            let narrow = value as u32;
            if f64::from(narrow) == value && narrow != NONE {
                values[row] = narrow;
                return;
            }
            self.widen();
        }
        if let Column::Wide(values) = &mut self.column {
            values[row] = value;
        }
    }

    /// Returns how many values there are so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Reserves room for this many rows at once. Without this, a growing column occupies up to
    /// twice the memory that it needs.
    pub fn reserve(&mut self, rows: usize) {
        let more = rows.saturating_sub(self.rows);
        match &mut self.column {
            Column::Same(value) if value.is_nan() => {
                let mut values = Vec::with_capacity(rows);
                values.resize(self.rows, NONE);
                self.column = Column::Narrow(values);
            }
            Column::Same(_) => {}
            Column::Narrow(values) => values.reserve_exact(more),
            Column::Wide(values) => values.reserve_exact(more),
        }
    }

    /// Leaves the rows before this one without a value.
    pub fn skip_to(&mut self, row: usize) {
        while self.rows < row {
            self.push(f64::NAN);
        }
    }

    /// Returns the value of a row.
    pub fn get(&self, row: usize) -> f64 {
        match row < self.rows {
            true => self.column.get(row),
            false => f64::NAN,
        }
    }

    /// Turns one value for all rows into one value for each row.
    fn spread(&mut self) {
        if let Column::Same(value) = self.column {
            let narrow = value as u32;
            self.column = if value.is_nan() {
                Column::Narrow(vec![NONE; self.rows])
            } else if f64::from(narrow) == value && narrow != NONE {
                Column::Narrow(vec![narrow; self.rows])
            } else {
                Column::Wide(vec![value; self.rows])
            };
        }
    }

    /// Makes room for any number, and returns the values.
    fn widen(&mut self) -> &mut Vec<f64> {
        let values = match &mut self.column {
            Column::Wide(values) => std::mem::take(values),
            other => (0..self.rows).map(|row| other.get(row)).collect(),
        };
        self.column = Column::Wide(values);
        match &mut self.column {
            Column::Wide(values) => values,
            Column::Same(_) | Column::Narrow(_) => &mut self.nowhere,
        }
    }

    /// Returns the finished column with this many rows.
    pub fn finish(mut self, rows: usize) -> Column {
        while self.rows < rows {
            self.push(f64::NAN);
        }
        match &mut self.column {
            Column::Narrow(values) => values.shrink_to_fit(),
            Column::Wide(values) => values.shrink_to_fit(),
            Column::Same(_) => {}
        }
        self.column
    }
}

/// Texts, each with a number.
#[derive(Debug, Clone, Default)]
pub struct Names {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Returns the number of a text; a new text gets the next one.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the text with this number.
    pub fn text(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", String::as_str)
    }

    /// Returns all texts, in the order of their numbers.
    pub fn all(&self) -> &[String] {
        &self.all
    }
}

/// Dispatches as columns.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// The number of rows.
    pub rows: usize,
    /// Names of kernels.
    pub names: Names,
    /// For each row, the number of its kernel in `names`.
    pub kernel: Vec<u32>,
    /// For each row, the number of its class. Dispatches of one class may be compared: they ran the
    /// same kernel on the same GPU with the same grid, workgroup and size of LDS.
    pub class: Vec<u32>,
    /// The earliest start in nanoseconds; times in `columns` count from it.
    pub origin: i64,
    /// How many dispatches each row stands for. Empty: each row stands for one.
    weights: Vec<f64>,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
}

impl Frame {
    /// Creates a frame with a row for each of these kernel numbers, and without columns.
    pub fn new(names: Names, kernel: Vec<u32>) -> Frame {
        Frame {
            rows: kernel.len(),
            names,
            kernel,
            ..Frame::default()
        }
    }

    /// Adds a column, or replaces it.
    pub fn put(&mut self, name: &str, column: Column) {
        match self.by_name.get(name) {
            Some(index) => self.columns[*index] = column,
            None => {
                self.by_name.insert(name.to_owned(), self.columns.len());
                self.columns.push(column);
            }
        }
    }

    /// Returns the index of a column.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns a column by its index.
    pub fn column(&self, index: usize) -> &Column {
        &self.columns[index]
    }

    /// Returns a column by its name.
    pub fn named(&self, name: &str) -> Option<&Column> {
        self.index(name).map(|index| &self.columns[index])
    }

    /// Returns the names of all columns.
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Returns how long a dispatch took, in nanoseconds.
    pub fn duration(&self, row: usize) -> f64 {
        let at = |name| self.named(name).map_or(f64::NAN, |column| column.get(row));
        at(field::END) - at(field::START)
    }

    /// Uses a column as weights: from now on a row stands for that many dispatches, all as long as
    /// the row's own. Quantiles and deviations still count each row once.
    pub fn weigh(&mut self, name: &str) {
        let Some(column) = self.named(name) else {
            return;
        };
        let weight = |row| {
            let count = column.get(row);
            if count >= 1.0 { count } else { 1.0 }
        };
        self.weights = (0..self.rows).map(weight).collect();
    }

    /// Whether some row stands for several dispatches.
    pub fn is_weighed(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Returns how many dispatches a row stands for.
    pub fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).copied().unwrap_or(1.0)
    }

    /// Computes `class`.
    pub fn classify(&mut self) {
        let fields = [field::GPU, field::GRID, field::WORKGROUP, field::LDS];
        let columns: Vec<Option<&Column>> = fields.iter().map(|name| self.named(name)).collect();
        let mut numbers: HashMap<(u32, [u64; 4]), u32> = HashMap::new();
        let mut class = Vec::with_capacity(self.rows);
        let mut last = None;
        for row in 0..self.rows {
            let mut key = (self.kernel.get(row).copied().unwrap_or(0), [0; 4]);
            for (part, column) in key.1.iter_mut().zip(&columns) {
                *part = column.map_or(0, |column| column.get(row).to_bits());
            }
            // Most dispatches are like the previous one.
            let number = match last {
                Some((same, number)) if same == key => number,
                _ => {
                    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                    *numbers.entry(key).or_insert(next)
                }
            };
            last = Some((key, number));
            class.push(number);
        }
        self.class = class;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_narrow_as_its_values_and_gives_them_back() {
        let fill = |values: &[f64]| {
            let mut filling = Filling::default();
            values.iter().for_each(|value| filling.push(*value));
            filling.finish(values.len())
        };
        let same = |column: &Column, values: &[f64]| {
            values.iter().enumerate().all(|(row, value)| {
                let got = column.get(row);
                got == *value || (got.is_nan() && value.is_nan())
            })
        };
        for values in [
            vec![7.0; 4],
            vec![1.0, 2.0, f64::NAN, 4.0],
            vec![1.0, 4294967295.0],
            vec![1.0, 4294967294.0, 1e18],
            vec![0.5, 0.5, 3.0],
            vec![-1.0, 3.0],
            vec![f64::NAN, f64::NAN, 3.0],
        ] {
            let column = fill(&values);
            assert!(same(&column, &values), "{values:?} became {column:?}");
            assert_eq!(column.has_gaps(), values.iter().any(|v| v.is_nan()));
        }
        assert!(matches!(fill(&[7.0, 7.0]), Column::Same(_)));
        assert!(matches!(fill(&[7.0, 8.0]), Column::Narrow(_)));
        let mut out_of_order = Filling::default();
        out_of_order.set(3, 9.0);
        out_of_order.set(1, 0.5);
        assert!(same(
            &out_of_order.finish(5),
            &[f64::NAN, 0.5, f64::NAN, 9.0, f64::NAN]
        ));
    }
}
