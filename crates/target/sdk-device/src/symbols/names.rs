//! Names of kernels, as they are recorded.

use super::Range;
use crate::queries::Untold;
use midair_record::event::kernel_name;
use std::borrow::Cow;

/// Returns the recorded name of a kernel: its symbol's name as far as a record has room for it. A
/// kernel whose name the runtime does not tell is named after its place in the code object.
pub(super) fn recorded(
    whole: Result<&[u8], Untold>,
    kernel_object: u64,
    range: Option<Range>,
) -> Cow<'_, [u8]> {
    let why = match whole {
        Ok(name) if !name.is_empty() => return kernel_name(name),
        Ok(_) | Err(Untold::Refused) => "no name".to_owned(),
        Err(Untold::TooLong(len)) => format!("a name of {len} bytes"),
    };
    let place = kernel_object.wrapping_sub(range.map_or(0, |range| range.base));
    Cow::Owned(format!("kernel at {place:#x} ({why})").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::MOST_NAME;

    #[test]
    fn each_kernel_has_a_name_that_fits_into_a_record() {
        let range = Some(Range {
            base: 0x1000,
            size: 0x1000,
            id: 1,
        });
        let name = |whole| recorded(whole, 0x1240, range).into_owned();
        assert_eq!(name(Ok(b"_Z1kv.kd")), b"_Z1kv.kd");
        assert_eq!(name(Ok(&[b'k'; 200_000])).len(), MOST_NAME);
        assert_eq!(name(Ok(b"")), b"kernel at 0x240 (no name)");
        assert_eq!(name(Err(Untold::Refused)), b"kernel at 0x240 (no name)");
        let long = name(Err(Untold::TooLong(2_000_000)));
        assert_eq!(long, b"kernel at 0x240 (a name of 2000000 bytes)");
        let elsewhere = recorded(Ok(b""), 0x1240, None).into_owned();
        assert_eq!(elsewhere, b"kernel at 0x1240 (no name)");
    }
}
