//! The settings of a session, and the values that were given out.

use midair_settings::Settings;
use std::collections::HashMap;
use std::ffi::CString;

/// The settings and the values.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The settings.
    pub settings: Settings,
    /// Values that were given out as C strings.
    pub given: HashMap<CString, CString>,
}
