//! Numbers for people: sizes, times and rates at three or four digits; sizes read back.

/// `value` with the first unit in which it is below `step`.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        v if v.fract() == 0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

/// Bytes in powers of 1024: `4 KiB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// Nanoseconds: `3.07 µs`.
pub fn nanos(ns: f64) -> String {
    scaled(ns, 1000.0, &["ns", "µs", "ms", "s"])
}

/// Bytes a second in powers of 1000: `11.2 GB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Events a second: `4.31 M/s`.
pub fn per_second(n: f64) -> String {
    scaled(n, 1000.0, &["/s", "k/s", "M/s", "G/s"])
}

/// A size as the user types it: digits and an optional K, M or G (powers of 1024).
///
/// # Errors
/// The text that was found, and what was expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a size, expected digits and perhaps K, M or G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_unit_that_fits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(nanos(3070.0), "3.07 µs");
        assert_eq!(rate(11_230_000_000.0), "11.2 GB/s");
        assert_eq!(per_second(849_400_000.0), "849 M/s");
    }

    #[test]
    fn sizes_are_read_back() {
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("8"), Ok(8));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        for bad in ["", "K", "-1", "1.5M", "99999999999999G", "1T", "é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
