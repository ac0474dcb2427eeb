//! Ids of records: a counter and a place in one word.

use crate::status::Status;
use midair_counters::{Dimension, Position};

/// How many bits of a record's id are below the counter.
const PLACE_BITS: u32 = 48;

/// Returns the counter of a record.
pub(crate) fn counter_of(instance: u64) -> u64 {
    instance >> PLACE_BITS
}

/// Returns the id for records of a counter's values at a place.
pub(crate) fn instance(counter: u64, place: Position) -> u64 {
    counter << PLACE_BITS | place.0
}

/// Returns a record's number in a dimension; for dimension 0, all numbers as one.
///
/// # Errors
/// [`Status::DIM_NOT_FOUND`].
pub(crate) fn position(instance: u64, dimension: u64) -> Result<usize, Status> {
    let place = Position(instance & ((1 << PLACE_BITS) - 1));
    if dimension == 0 {
        return Ok(place.0 as usize);
    }
    let dimension = Dimension::ALL
        .into_iter()
        .find(|known| *known as u64 == dimension)
        .ok_or(Status::DIM_NOT_FOUND)?;
    Ok(place.get(dimension) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_its_counter_and_its_place() {
        let place = Position::default()
            .with(Dimension::ShaderEngine, 5)
            .with(Dimension::Instance, 63);
        let id = instance(0xfffe, place);
        assert_eq!(counter_of(id), 0xfffe);
        assert_eq!(position(id, Dimension::ShaderEngine as u64), Ok(5));
        assert_eq!(position(id, Dimension::Instance as u64), Ok(63));
        assert_eq!(position(id, Dimension::Xcc as u64), Ok(0));
        assert_eq!(position(id, 0), Ok(place.0 as usize));
        assert_eq!(position(id, 8), Err(Status::DIM_NOT_FOUND));
        assert_eq!(position(id, u64::MAX), Err(Status::DIM_NOT_FOUND));
    }
}
