//! Access to the signals of gates after the session is over. The process may be in its exit
//! handlers, where a runtime frees its memory while dispatches still wait for their turns. The
//! operating system's kernel therefore copies the signals' words for us, and returns an error where
//! nothing is mapped any more.

use crate::layout::Signal;

/// Offset of a signal's value.
const VALUE: u64 = 8;

/// The error that the memory of the signal is no longer mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Returns a signal's value.
pub(super) fn value(signal: Signal) -> Result<i64, Gone> {
    let mut value = 0_i64;
    copy(libc::SYS_process_vm_readv, (&raw mut value).addr(), signal)?;
    Ok(value)
}

/// Sets a signal's value. Only the device waits on it, so no thread has to be woken.
pub(super) fn set_value(signal: Signal, value: i64) -> Result<(), Gone> {
    copy(
        libc::SYS_process_vm_writev,
        (&raw const value).addr(),
        signal,
    )
}

/// Copies between `own`, eight bytes of the caller's, and the signal's value.
fn copy(call: libc::c_long, own: usize, signal: Signal) -> Result<(), Gone> {
    let bytes = |at: usize| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(at),
        iov_len: size_of::<i64>(),
    };
    let (here, there) = (bytes(own), bytes((signal.0 + VALUE) as usize));
    // SAFETY: `own` is eight bytes of the caller's. Only the operating system's kernel touches the
    // other side, and it checks that this is mapped. What is mapped there is the runtime's memory
    // of a signal, or what was until moments ago, while the runtime goes away.
    let copied = unsafe {
        libc::syscall(
            call,
            libc::getpid(),
            &raw const here,
            1_usize,
            &raw const there,
            1_usize,
            0_usize,
        )
    };
    if copied == size_of::<i64>() as libc::c_long {
        Ok(())
    } else {
        Err(Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_mapped_is_read_and_set_and_one_that_is_not_is_gone() {
        let words = [0_i64, -3, 0];
        let at = words.as_ptr().expose_provenance() as u64;
        assert_eq!(value(Signal(at)), Ok(-3));
        assert_eq!(set_value(Signal(at), 5), Ok(()));
        assert_eq!(value(Signal(at)), Ok(5));
        assert_eq!(value(Signal(0x10)), Err(Gone));
        assert_eq!(set_value(Signal(0x10), 1), Err(Gone));
    }
}
