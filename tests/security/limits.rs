//! A target that makes its attacher store without end: names, symbols, ELF files, records, results.
