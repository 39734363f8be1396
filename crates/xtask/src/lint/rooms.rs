//! Crates that one folder of another crate is for: code outside of that folder does not name them.

use std::path::Path;

/// The sources, the crate, the folder that may name it.
const ROOMS: [(&str, &str, &str); 4] = [
    ("crates/nic/src", "warpverbs_mlx5", "crates/nic/src/format"),
    ("crates/nic/src", "warpverbs_bnxt", "crates/nic/src/format"),
    ("crates/nic/src", "warpverbs_ionic", "crates/nic/src/format"),
    ("crates/gpu/src", "cudarc", "crates/gpu/src/cuda"),
];

/// Checks the code of a source file; documentation may name everything.
pub(super) fn check(file: &Path, text: &str) -> usize {
    let closed = ROOMS.iter().filter(|(sources, _, room)| {
        file.starts_with(sources)
            && !file.starts_with(room)
            && file != Path::new(room).with_extension("rs")
    });
    let mut found = 0;
    for (_, name, room) in closed {
        for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
            if !line.starts_with("//") && line.contains(name) {
                println!("{}:{number}: names {name}, which is for {room} alone", file.display());
                found += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_named_in_its_room_and_in_documentation_only() {
        let found = |file, text| check(Path::new(file), text);
        let text = "/// See [`warpverbs_mlx5::wqe`].\nuse warpverbs_mlx5::wqe;\n";
        assert_eq!(found("crates/nic/src/stats.rs", text), 1);
        assert_eq!(found("crates/nic/src/format/mlx5.rs", text), 0);
        assert_eq!(found("crates/nic/tests/nic/main.rs", text), 0);
        assert_eq!(found("crates/gpu/src/device.rs", "    let a = cudarc::b();"), 1);
        assert_eq!(found("crates/gpu/src/cuda.rs", "use cudarc::b;"), 0);
    }
}
