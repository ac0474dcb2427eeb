//! Contexts: one for each domain, made when the tool is initialised, since none can be made later. Each
//! attach starts those that its settings ask for.

use crate::domain::{DOMAINS, Domain, NOT_BUILT, WITH_ALL};
use crate::files;
use crate::sdk::{Sdk, SdkError};
use midair_settings::tool_boolean;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// Domains and their contexts.
static CONTEXTS: Mutex<Vec<(Domain, u64)>> = Mutex::new(Vec::new());

fn contexts() -> Vec<(Domain, u64)> {
    CONTEXTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Makes the contexts.
///
/// # Errors
/// The SDK's status when it refuses one.
pub fn initialize(sdk: Sdk) -> Result<(), SdkError> {
    let mut made = Vec::with_capacity(DOMAINS.len());
    for domain in DOMAINS {
        let context = sdk.create_spool_context()?;
        sdk.trace(context, domain.kind)?;
        sdk.trace(context, WITH_ALL)?;
        made.push((domain, context));
    }
    *CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner) = made;
    Ok(())
}

/// Whether a setting is on. A meaningless value is reported and counts as off.
fn is_on(sdk: Sdk, setting: &CStr) -> bool {
    let Some(value) = sdk.setting(setting) else {
        return false;
    };
    tool_boolean(&value).unwrap_or_else(|| {
        sdk.note(&format!(
            "{} is empty where a boolean is needed: taken as off",
            setting.to_string_lossy()
        ));
        false
    })
}

/// Starts what this session's settings ask for, and stops the rest.
///
/// # Errors
/// The SDK's status when it refuses to start a context; none is left running then.
pub fn attach(sdk: Sdk) -> Result<(), SdkError> {
    let contexts = contexts();
    if contexts
        .iter()
        .any(|(domain, _)| is_on(sdk, domain.setting))
    {
        files::begin(sdk)?;
    }
    let mut any = false;
    for (domain, context) in &contexts {
        if is_on(sdk, domain.setting) {
            any = true;
            if let Err(error) = sdk.start(*context) {
                sdk.note(&format!(
                    "{} cannot be collected (status {})",
                    domain.setting.to_string_lossy(),
                    error.0
                ));
                detach(sdk);
                return Err(error);
            }
        } else if sdk.is_active(*context) {
            let _ = sdk.stop(*context);
        }
    }
    for setting in NOT_BUILT {
        if is_on(sdk, setting) {
            sdk.note(&format!(
                "{} is set, but this is not collected yet",
                setting.to_string_lossy()
            ));
        }
    }
    if !any {
        sdk.note("no setting asks for anything that can be collected");
    }
    Ok(())
}

/// Stops all contexts, and writes the files if that is our task.
pub fn detach(sdk: Sdk) {
    for (_, context) in contexts() {
        if sdk.is_active(context) {
            let _ = sdk.stop(context);
        }
    }
    files::finish();
}
