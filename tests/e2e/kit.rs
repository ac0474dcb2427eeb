//! The kit on plain processes: a kit that overlooks things would make every other test worthless.
