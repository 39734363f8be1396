//! The headers that are checked in are those of the table.

use std::path::{Path, PathBuf};
use warpverbs_kernel_build::{Mirror, generated};
use warpverbs_layout::{ErrorWord, HEADERS, Outcome};

#[test]
fn headers_are_those_of_the_table() {
    for header in HEADERS {
        generated(&include().join("warpverbs").join(header.path), &header.to_string()).unwrap();
    }
}

#[test]
fn words_are_packed_alike() {
    let mut mirror = Mirror::new(
        "#include \"warpverbs/layout/qp.h\"\n#include \"warpverbs/layout/status.h\"\nusing namespace wv;",
    );
    let word = ErrorWord::failed(Outcome::Requester, 0x13, 0x88, 8, 0x1f3a);
    assert_eq!(word.outcome(), Some(Outcome::Requester));
    mirror.equal(
        "ErrorWord::of(Status::of(outcome::requester, 0x13, 0x88, 8).code, 0x1f3a).raw",
        format!("{}ull", word.0),
    );
    for (part, value) in [
        ("kind()", Outcome::Requester as u8),
        ("syndrome()", word.fields().syndrome()),
        ("vendor()", word.fields().vendor()),
        ("wqe_opcode()", word.fields().wqe_opcode()),
    ] {
        let status = format!("Status{{ErrorWord{{{}ull}}.status()}}", word.0);
        mirror.equal(&format!("static_cast<u8>({status}.{part})"), value);
    }
    mirror.compile(&include()).unwrap();
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")
}
