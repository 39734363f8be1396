//! The table of opcodes in `docs/formats.md` says what the code does.

use crate::golden::{number, repository};
use warpverbs_mlx5::num::{MAX_DS, MAX_WQE, Qpn, WqeIndex};
use warpverbs_mlx5::opcode::{SendOpcode, Support};
use warpverbs_mlx5::wqe::{Position, WqeViolation, parse};

#[test]
fn table_of_opcodes() {
    let text = std::fs::read_to_string(repository().join("docs/formats.md")).expect("the page");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| 0x"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), SendOpcode::ALL.len());
    for (row, opcode) in rows.iter().zip(SendOpcode::ALL) {
        assert_eq!((number(row[0]), row[1]), (opcode.value().into(), opcode.name()));
        let supported = if opcode.support() == Some(Support::Parsed) { "yes" } else { "**not**" };
        assert_eq!(row[2], supported, "{opcode}");
        assert_eq!(row[3], segments(*opcode), "{opcode}");
    }
}

/// The numbers of segments that the parser accepts, found by trying.
fn segments(opcode: SendOpcode) -> String {
    let at = Position { qpn: Qpn::MAX, index: WqeIndex(0) };
    let accepted = |opmod: u8, size: u8| {
        let good = |ds: &u8| {
            let mut raw = [0; MAX_WQE];
            for seg in raw.chunks_exact_mut(16) {
                seg[3] = size;
            }
            raw[..8].copy_from_slice(&[opmod, 0, 0, opcode.value(), 0xff, 0xff, 0xff, *ds]);
            // The 4-byte masked fetch-and-add and the remote address have zeroes here already.
            match parse(&raw, at) {
                Ok(_) => true,
                Err(WqeViolation::Ds { .. } | WqeViolation::UnsupportedOpcode { .. }) => false,
                Err(other) => panic!("{opcode}: {other}"),
            }
        };
        let good: Vec<u8> = (0..=MAX_DS).filter(good).collect();
        match good[..] {
            [] => String::new(),
            [only] => only.to_string(),
            [min, .., max] => {
                assert_eq!(good.len(), usize::from(max - min) + 1, "{opcode}: no gaps");
                format!("{min} to {max}")
            }
        }
    };
    match opcode {
        SendOpcode::MaskedCs => {
            format!("{} (4 bytes), {} (8 bytes)", accepted(8, 4), accepted(9, 8))
        }
        SendOpcode::MaskedFa => {
            assert_eq!(accepted(8, 4), accepted(9, 8));
            accepted(9, 8)
        }
        _ => accepted(0, 8),
    }
}
