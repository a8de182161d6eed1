//! The escapes of JSON strings, as tables that scalar code and vectors share.
//!
//! Vectors look up the first 128 entries only; the others are those of bytes that no escape has.

/// The byte that each one-letter escape stands for; 0 if there is none.
pub(crate) static SHORT_ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0c;
    table[b'n' as usize] = b'\n';
    table[b'r' as usize] = b'\r';
    table[b't' as usize] = b'\t';
    table
};

/// Bit of entries that are no digit in [`HEX_DIGITS`].
pub(crate) const NO_DIGIT: u8 = 0x80;

/// The value of each hexadecimal digit, and [`NO_DIGIT`] for other bytes.
pub(crate) static HEX_DIGITS: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit as usize] as usize] = digit;
        table[b"0123456789ABCDEF"[digit as usize] as usize] = digit;
        digit += 1;
    }
    table
};
