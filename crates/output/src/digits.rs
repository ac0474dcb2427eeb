//! Numbers as text. Most bytes of a trace are digits, and the standard library's formatting takes
//! several times as long.

/// The two digits of each number below 100.
const PAIRS: &[u8; 200] = b"\
00010203040506070809101112131415161718192021222324252627282930313233343536373839\
40414243444546474849505152535455565758596061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Whether a text has such a byte. All bytes are looked at without stopping early, so that the
/// compiler can do many at a time.
pub(crate) fn has(text: &[u8], is_such: impl Fn(&u8) -> bool) -> bool {
    text.iter().fold(false, |found, byte| found | is_such(byte))
}

/// Appends a number in decimal.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, number: impl Into<i128>) {
    let number = number.into();
    if number < 0 {
        out.push(b'-');
    }
    // 64 bits are enough for everything but the sign, and dividing 128 bits is slow.
    push_u64(
        out,
        u64::try_from(number.unsigned_abs()).unwrap_or(u64::MAX),
    );
}

/// Appends a number in decimal, two digits at a time.
pub(crate) fn push_u64(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0_u8; 20];
    out.extend_from_slice(decimal(&mut digits, number));
}

/// Appends a number in decimal to a text.
pub(crate) fn text_u64(out: &mut String, number: u64) {
    let mut digits = [0_u8; 20];
    out.push_str(str::from_utf8(decimal(&mut digits, number)).unwrap_or_default());
}

/// Appends a number in decimal to a text.
pub(crate) fn text_i64(out: &mut String, number: i64) {
    if number < 0 {
        out.push('-');
    }
    text_u64(out, number.unsigned_abs());
}

/// Appends a number in hexadecimal to a text, with `0x` before it.
pub(crate) fn text_hex(out: &mut String, number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [b'0'; 18];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        if let (Some(to), Some(from)) = (digits.get_mut(at), DIGITS.get((rest & 15) as usize)) {
            *to = *from;
        }
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    if let Some(to) = digits.get_mut(at) {
        *to = b'x';
    }
    let from = at.saturating_sub(1);
    out.push_str(str::from_utf8(digits.get(from..).unwrap_or_default()).unwrap_or_default());
}

/// Writes a number to the end of a buffer, and returns its digits.
fn decimal(digits: &mut [u8; 20], number: u64) -> &[u8] {
    let mut at = digits.len();
    let mut rest = number;
    while rest >= 10 {
        let pair = (rest % 100) as usize * 2;
        rest /= 100;
        at -= 2;
        if let (Some(to), Some(from)) = (digits.get_mut(at..at + 2), PAIRS.get(pair..pair + 2)) {
            to.copy_from_slice(from);
        }
    }
    // A single digit is left if the number of digits is odd, or if the number is 0.
    if rest > 0 || number == 0 {
        at -= 1;
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + rest as u8;
        }
    }
    digits.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_all_sizes() {
        for number in [
            0,
            1,
            9,
            10,
            99,
            100,
            101,
            999,
            1000,
            12_345_678_901,
            -1,
            i128::from(i64::MIN),
            i128::from(u64::MAX),
            1_000_000_007,
        ] {
            let mut out = Vec::new();
            super::push(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
            if let Ok(number) = u64::try_from(number) {
                let mut out = String::new();
                super::text_u64(&mut out, number);
                super::text_hex(&mut out, number);
                assert_eq!(out, format!("{number}{number:#x}"));
            }
            if let Ok(number) = i64::try_from(number) {
                let mut out = String::new();
                super::text_i64(&mut out, number);
                assert_eq!(out, number.to_string());
            }
        }
    }
}
