//! A user of a midair with raised rights, and programs that raise their own between two looks.
