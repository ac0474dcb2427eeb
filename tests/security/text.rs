//! A target whose names and messages reach terminals and spreadsheets.
