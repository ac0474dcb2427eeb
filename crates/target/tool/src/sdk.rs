//! The SDK as the tool sees it: safe calls of the functions in the table that it was bound to.

use midair_abi::private::{ChoosesKernel, SDK_TABLE_VERSION, SdkTable};
use std::ffi::{CStr, CString, c_int};
use std::sync::OnceLock;

/// A status of the SDK other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SdkError(pub c_int);

/// What started the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// A midair attacher, which reads the spool.
    Engine,
    /// Another injector, which attached.
    Attached,
    /// Anyone who started the process with the tool.
    Launched,
    /// The same, and the process is about to execute another program.
    Becoming,
}

/// A bound SDK. The table was checked, and its functions stay valid as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Sdk {
    table: &'static SdkTable,
}

static BOUND: OnceLock<Sdk> = OnceLock::new();

/// Binds the tool to an SDK. Returns false when the table belongs to another build, or when the
/// tool is bound to another table.
///
/// # Safety
/// `table` must be null, or point to a table that lives forever and starts with the first two
/// fields of [`SdkTable`]. If it has our version number, it must be an [`SdkTable`].
pub unsafe fn bind(table: *const SdkTable) -> bool {
    if table.is_null() || !table.is_aligned() {
        return false;
    }
    // SAFETY: the caller promises the first two fields.
    let (size, version) = unsafe { ((*table).size, (*table).version) };
    if version != SDK_TABLE_VERSION || size != size_of::<SdkTable>() {
        return false;
    }
    // SAFETY: the caller promises that a table of our version is an SdkTable.
    let table = unsafe { &*table };
    let sdk = Sdk { table };
    std::ptr::eq(BOUND.get_or_init(|| sdk).table, table)
}

/// Returns the SDK, if the tool was bound to one.
pub fn bound() -> Option<Sdk> {
    BOUND.get().copied()
}

fn checked(status: c_int) -> Result<(), SdkError> {
    if status == 0 {
        Ok(())
    } else {
        Err(SdkError(status))
    }
}

impl Sdk {
    /// Creates a context whose records go to the spool.
    pub fn create_spool_context(&self) -> Result<u64, SdkError> {
        let mut context = 0;
        // SAFETY: here and in all methods below, these are the SDK's functions, called with valid
        // arguments.
        unsafe {
            checked((self.table.create_context)(&raw mut context))?;
            checked((self.table.use_spool)(context))?;
        }
        Ok(context)
    }
    /// Records every operation of a buffer-tracing kind while the context runs.
    pub fn trace(&self, context: u64, kind: c_int) -> Result<(), SdkError> {
        // SAFETY: see above; there is no list of operations and no buffer.
        checked(unsafe {
            (self.table.configure_buffer_tracing_service)(context, kind, std::ptr::null(), 0, 0)
        })
    }
    /// Records these operations of a buffer-tracing kind while the context runs; none means every
    /// one.
    pub fn trace_operations(
        &self,
        context: u64,
        kind: c_int,
        operations: &[c_int],
    ) -> Result<(), SdkError> {
        // SAFETY: see above; the list is only read during the call, and there is no buffer.
        checked(unsafe {
            (self.table.configure_buffer_tracing_service)(
                context,
                kind,
                operations.as_ptr(),
                operations.len(),
                0,
            )
        })
    }
    /// Starts a context.
    pub fn start(&self, context: u64) -> Result<(), SdkError> {
        // SAFETY: see above.
        checked(unsafe { (self.table.start_context)(context) })
    }
    /// Stops a context.
    pub fn stop(&self, context: u64) -> Result<(), SdkError> {
        // SAFETY: see above.
        checked(unsafe { (self.table.stop_context)(context) })
    }
    /// Whether a context runs.
    pub fn is_active(&self, context: u64) -> bool {
        let mut active = 0;
        // SAFETY: see above.
        unsafe { (self.table.context_is_active)(context, &raw mut active) == 0 && active != 0 }
    }
    /// Returns a setting of the session, under its own name or an older one.
    pub fn setting(&self, name: &CStr) -> Option<String> {
        // SAFETY: see above. The value is valid until the next session brings new ones, and is
        // copied at once.
        unsafe {
            let value = (self.table.get_setting)(name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    }
    /// Returns the kind of session that the tool is in.
    pub fn session_kind(&self) -> SessionKind {
        // SAFETY: see above.
        match unsafe { (self.table.session_kind)() } {
            1 => SessionKind::Attached,
            2 => SessionKind::Launched,
            3 => SessionKind::Becoming,
            _ => SessionKind::Engine,
        }
    }
    /// Passes the spool that we made to the SDK: its address and its size in bytes.
    ///
    /// # Safety
    /// The spool must stay mapped until the session is over.
    pub unsafe fn give_spool(&self, base: *mut u8, len: usize) -> Result<(), SdkError> {
        // SAFETY: see above; the caller promises that the spool stays mapped.
        checked(unsafe { (self.table.give_spool)(base, len) })
    }
    /// Counts every dispatch by this plan (`midair_record::counter_plan`). Each group is used for
    /// `interval` successive dispatches.
    pub fn count_every(&self, plan: &[u8], interval: u64) -> Result<(), SdkError> {
        // SAFETY: see above; the plan is only read during the call.
        checked(unsafe { (self.table.count_every)(plan.as_ptr(), plan.len(), interval) })
    }
    /// Counts only dispatches of kernels for whose symbols `takes` returns true (none: all
    /// kernels). Of each kernel, only those dispatches are counted whose numbers are in one of
    /// these ranges of first and last number (none: all dispatches).
    pub fn choose_kernels(&self, takes: Option<ChoosesKernel>, ranges: &[[u64; 2]]) {
        let words = ranges.as_flattened();
        // SAFETY: see above. The words are only read during the call, and the function lives
        // forever.
        unsafe { (self.table.choose_kernels)(takes, words.as_ptr(), words.len()) };
    }
    /// Sets how our records react to the program's pauses, and whether only what starts in a
    /// collection period ([`Sdk::set_period`]) or in a burst is recorded: bits of
    /// [`midair_abi::private::pauses`].
    pub fn set_pauses(&self, bits: u32) {
        // SAFETY: see above.
        unsafe { (self.table.set_pauses)(bits) };
    }
    /// Starts or ends a collection period. Any thread may call this.
    pub fn set_period(&self, open: bool) {
        // SAFETY: see above.
        unsafe { (self.table.set_period)(u32::from(open)) };
    }
    /// Reports a note to the user.
    pub fn note(&self, text: &str) {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: see above.
        unsafe { (self.table.note)(text.as_ptr()) };
    }
}
