//! Numbers as text. Most bytes of a trace are digits, and the standard library's formatting takes
//! several times as long.

/// The number of digits that are made at once, and the first number with more.
const AT_ONCE: usize = 8;
const MORE: u64 = 100_000_000;

/// Returns eight digits of a number below 10^8, the first one lowest. All are made at once, in one
/// word: first two numbers of four digits, then four of two, then eight of one.
#[inline]
fn eight(number: u64) -> u64 {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    // Dividing by 100 is multiplying by 10486 / 2^20, and by 10 it is 103 / 2^10, for numbers as
    // small as these.
    let hundreds = (halves * 10_486) >> 20 & 0x0000_007f_0000_007f;
    let pairs = hundreds | (halves - hundreds * 100) << 16;
    let tens = (pairs * 103) >> 10 & 0x000f_000f_000f_000f;
    tens | (pairs - tens * 10) << 8
}

/// What makes numbers below 10 the digits for them.
const ZEROS: u64 = 0x3030_3030_3030_3030;

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

/// Appends a number in decimal, eight digits at a time.
#[inline]
pub(crate) fn push_u64(out: &mut Vec<u8>, number: u64) {
    if number < 10 {
        out.push(b'0' + number as u8);
    } else if number < MORE {
        push_few(out, number);
    } else if number < MORE * MORE {
        push_two(out, number / MORE, number % MORE);
    } else {
        push_many(out, number);
    }
}

/// Appends a number of 9 to 16 digits by its upper and its lower half. Times have so many.
#[inline]
fn push_two(out: &mut Vec<u8>, upper: u64, lower: u64) {
    let upper = eight(upper);
    let digits = u128::from(upper | ZEROS) | u128::from(eight(lower) | ZEROS) << 64;
    let zeros = upper.trailing_zeros() / 8;
    let end = out.len() + 2 * AT_ONCE - zeros as usize;
    out.extend_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    out.truncate(end);
}

/// Appends a number below 10^8 that is not 0.
#[inline]
fn push_few(out: &mut Vec<u8>, number: u64) {
    let digits = eight(number);
    let zeros = digits.trailing_zeros() / 8;
    let end = out.len() + AT_ONCE - zeros as usize;
    // Copying all of it and cutting it takes less time than copying a number of bytes that is only
    // known here.
    out.extend_from_slice(&((digits | ZEROS) >> (8 * zeros)).to_le_bytes());
    out.truncate(end);
}

fn push_many(out: &mut Vec<u8>, number: u64) {
    push_u64(out, number / MORE);
    out.extend_from_slice(&(eight(number % MORE) | ZEROS).to_le_bytes());
}

/// Appends a number in decimal to a text.
pub(crate) fn text_u64(out: &mut String, number: u64) {
    let mut digits = [0_u8; 3 * AT_ONCE];
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
fn decimal(digits: &mut [u8; 3 * AT_ONCE], number: u64) -> &[u8] {
    let mut rest = number;
    let mut zeros = digits.len() - 1;
    for (place, to) in digits.rchunks_exact_mut(AT_ONCE).enumerate() {
        let of = eight(rest % MORE);
        to.copy_from_slice(&(of | ZEROS).to_le_bytes());
        if of != 0 {
            zeros = (2 - place) * AT_ONCE + of.trailing_zeros() as usize / 8;
        }
        rest /= MORE;
        if rest == 0 {
            break;
        }
    }
    digits.get(zeros..).unwrap_or_default()
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
            99_999_999,
            100_000_000,
            10_000_000_000_000_000,
            9_999_999_999_999_999,
            1_234_567_890_123_456_789,
            7_000_000_000_000_000,
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
