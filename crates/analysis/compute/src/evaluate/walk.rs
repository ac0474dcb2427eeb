//! Values of dispatches, block by block.

use crate::expression::Operator;
use crate::frame::Column;
use crate::program::{self, Id, Node, Program};
use crate::sample::Rows;
use std::collections::HashMap;

/// The number of dispatches in a block.
const BLOCK: usize = 2048;

/// Computes the values of dispatches, block by block.
pub(super) struct Walk<'w, 'a> {
    program: &'w Program<'a>,
    scalars: &'w HashMap<Id, f64>,
}

/// The dispatches of a block.
#[derive(Clone, Copy)]
enum Block<'r> {
    From(usize),
    These(&'r [u32]),
}

impl<'w, 'a> Walk<'w, 'a> {
    pub(super) fn new(program: &'w Program<'a>, scalars: &'w HashMap<Id, f64>) -> Walk<'w, 'a> {
        Walk { program, scalars }
    }

    /// Passes on each block's values, with the place of the block's first row among the rows.
    pub(super) fn blocks(&self, of: Id, rows: &Rows, mut take: impl FnMut(usize, &[f64])) {
        let mut values = vec![0.0; BLOCK];
        let mut spare = Vec::new();
        let total = rows.len();
        let mut first = 0;
        while first < total {
            let count = BLOCK.min(total - first);
            let block = match rows {
                Rows::All(_) => Block::From(first),
                Rows::Some(rows) => Block::These(&rows[first..first + count]),
            };
            self.fill(of, block, &mut values[..count], &mut spare);
            take(first, &values[..count]);
            first += count;
        }
    }

    fn fill(&self, id: Id, block: Block<'_>, out: &mut [f64], spare: &mut Vec<Vec<f64>>) {
        if let Some(value) = self.scalars.get(&id) {
            out.fill(*value);
            return;
        }
        match self.program.node(id) {
            Node::Number(bits) => out.fill(f64::from_bits(bits)),
            Node::Ones => out.fill(1.0),
            // It has one value, which is among the scalars.
            Node::Aggregate(..) => out.fill(f64::NAN),
            Node::Column(column) => {
                gather(self.program.frame().column(column as usize), block, out)
            }
            Node::Negative(a) => self.change(a, block, out, spare, |a| -a),
            Node::Whole(a) => self.change(a, block, out, spare, f64::trunc),
            Node::Round(a, digits) => {
                self.change(a, block, out, spare, |a| program::round(a, digits));
            }
            Node::Clamp(a) => {
                self.change(a, block, out, spare, |a| if a < 0.0 { 0.0 } else { a });
            }
            Node::Both(how, a, b) => match how {
                Operator::Add => self.merge(a, b, block, out, spare, |a, b| a + b),
                Operator::Subtract => self.merge(a, b, block, out, spare, |a, b| a - b),
                Operator::Multiply => self.merge(a, b, block, out, spare, |a, b| a * b),
                Operator::Divide => self.merge(a, b, block, out, spare, |a, b| a / b),
            },
            Node::Compare(how, a, b) => self.merge(a, b, block, out, spare, |a, b| {
                f64::from(u8::from(program::holds(how, a, b)))
            }),
            Node::Lesser(a, b) => self.merge(a, b, block, out, spare, program::lesser),
            Node::Greater(a, b) => self.merge(a, b, block, out, spare, program::greater),
            Node::Rest(a, b) => self.merge(a, b, block, out, spare, program::rest),
            Node::If(condition, then, otherwise) => {
                self.fill(condition, block, out, spare);
                let mut other = spare.pop().unwrap_or_else(|| vec![0.0; BLOCK]);
                let mut chosen = spare.pop().unwrap_or_else(|| vec![0.0; BLOCK]);
                self.fill(then, block, &mut chosen[..out.len()], spare);
                self.fill(otherwise, block, &mut other[..out.len()], spare);
                for ((out, chosen), other) in out.iter_mut().zip(&chosen).zip(&other) {
                    *out = if *out != 0.0 { *chosen } else { *other };
                }
                spare.push(other);
                spare.push(chosen);
            }
        }
    }

    fn change(
        &self,
        a: Id,
        block: Block<'_>,
        out: &mut [f64],
        spare: &mut Vec<Vec<f64>>,
        how: impl Fn(f64) -> f64,
    ) {
        self.fill(a, block, out, spare);
        out.iter_mut().for_each(|value| *value = how(*value));
    }

    fn merge(
        &self,
        a: Id,
        b: Id,
        block: Block<'_>,
        out: &mut [f64],
        spare: &mut Vec<Vec<f64>>,
        how: impl Fn(f64, f64) -> f64,
    ) {
        self.fill(a, block, out, spare);
        if let Some(b) = self.scalars.get(&b) {
            out.iter_mut().for_each(|value| *value = how(*value, *b));
            return;
        }
        let mut other = spare.pop().unwrap_or_else(|| vec![0.0; BLOCK]);
        self.fill(b, block, &mut other[..out.len()], spare);
        for (a, b) in out.iter_mut().zip(&other) {
            *a = how(*a, *b);
        }
        spare.push(other);
    }
}

fn gather(column: &Column, block: Block<'_>, out: &mut [f64]) {
    let narrow = |value: u32| match value {
        u32::MAX => f64::NAN,
        value => f64::from(value),
    };
    match (column, block) {
        (Column::Same(value), _) => out.fill(*value),
        (Column::Narrow(values), Block::From(first)) => {
            let values = &values[first..first + out.len()];
            out.iter_mut()
                .zip(values)
                .for_each(|(out, value)| *out = narrow(*value));
        }
        (Column::Wide(values), Block::From(first)) => {
            out.copy_from_slice(&values[first..first + out.len()]);
        }
        (column, Block::These(rows)) => {
            for (out, row) in out.iter_mut().zip(rows) {
                *out = column.get(*row as usize);
            }
        }
    }
}
