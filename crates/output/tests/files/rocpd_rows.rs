//! Rows of every domain, against csv and json of the same trace; what a target can invent; disks without room.
