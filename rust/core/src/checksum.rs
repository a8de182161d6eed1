//! The checksum that zstd frames use.

use xxhash_rust::xxh64::xxh64;

/// Returns the XXH64 of `data`. A zstd frame ends with its lower four bytes.
#[must_use]
pub fn checksum(data: &[u8]) -> u64 {
    xxh64(data, 0)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn matches_the_published_values() {
        // Test values of XXH64 with seed 0.
        assert_eq!(checksum(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(checksum(b"abc"), 0x44BC_2CF5_AD77_0999);
    }
}
