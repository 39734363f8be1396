//! The headers that are checked in are those of the table.

use warpverbs_layout::HEADERS;

/// Set, the headers are written.
const WRITE: &str = "WARPVERBS_WRITE_HEADERS";

#[test]
fn headers_are_those_of_the_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/include/warpverbs");
    for header in HEADERS {
        let path = format!("{folder}/{}", header.path);
        let text = header.to_string();
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{path} is out of date: {WRITE}=1 cargo test -p warpverbs-layout"
        );
    }
}
