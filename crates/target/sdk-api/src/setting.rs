//! The settings of the session (`ROCPROF_…`), for tools. They come from the attacher's environment
//! buffer; the application's environment is not changed.

pub(crate) mod store;

use crate::state::STATE;
use midair_settings::Settings;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::PoisonError;
use store::Store;

/// Sets the settings of a new session. Values that [`get`] returned before are freed.
pub fn publish(settings: Settings) {
    *STATE
        .settings
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(Store {
        settings,
        given: HashMap::new(),
    });
}

/// Whether a session has brought settings.
pub fn is_published() -> bool {
    STATE
        .settings
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_some()
}

/// Calls `read` with the settings of the session; they are empty where no session has brought any.
pub fn with<T>(read: impl FnOnce(&Settings) -> T) -> T {
    let store = STATE
        .settings
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    match store.as_ref() {
        Some(store) => read(&store.settings),
        None => read(&Settings::default()),
    }
}

/// Returns the value of a setting under its name or an older one; null when it is not set. The
/// value is valid until the next [`publish`].
pub fn get(name: &CStr) -> *const c_char {
    let mut store = STATE
        .settings
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(store) = store.as_mut() else {
        return std::ptr::null();
    };
    if let Some(value) = store.given.get(name) {
        return value.as_ptr();
    }
    let value = name.to_str().ok().and_then(|name| store.settings.get(name));
    let Some(value) = value.and_then(|value| CString::new(value).ok()) else {
        return std::ptr::null();
    };
    store.given.entry(name.to_owned()).or_insert(value).as_ptr()
}
