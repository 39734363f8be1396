//! Bits of a send WQE that no device looks at. Posters leave in them what was there before. Also used by
//! the tests of the software NIC.

use warpverbs_mlx5::opcode::SendOpcode;

/// Offsets, and which bits of the byte there.
fn ignored(wqe: &[u8], datagram: bool) -> Vec<(usize, u8)> {
    let (opcode, end) = (SendOpcode::from_value(wqe[3]), usize::from(wqe[7] & 0x3f) * 16);
    // Signature and stream channel, and what follows the last segment.
    let mut bytes: Vec<usize> = (8..11).chain(end..wqe.len()).collect();
    let has_imm = [
        SendOpcode::SendImm,
        SendOpcode::SendInval,
        SendOpcode::RdmaWriteImm,
        SendOpcode::LocalInval,
    ];
    if !has_imm.contains(&opcode) {
        bytes.extend(12..16);
    }
    let (payload, reserved) = match opcode {
        SendOpcode::Nop => (None, 16..end),
        SendOpcode::Wait => (None, 16..24),
        SendOpcode::RdmaWrite | SendOpcode::RdmaWriteImm => (Some(32), 28..32),
        SendOpcode::RdmaRead
        | SendOpcode::AtomicCs
        | SendOpcode::AtomicFa
        | SendOpcode::MaskedCs
        | SendOpcode::MaskedFa => (None, 28..32),
        SendOpcode::Send | SendOpcode::SendImm if datagram => {
            // Of the address vector: behind the queue key; from rate to MAC address; flow label.
            bytes.extend((20..24).chain(28..42));
            (Some(64), 44..48)
        }
        SendOpcode::Send | SendOpcode::SendImm | SendOpcode::SendInval => (Some(16), 0..0),
        _ => (None, 0..0),
    };
    bytes.extend(reserved);
    if opcode == SendOpcode::AtomicFa || opcode == SendOpcode::MaskedFa && wqe[0] == 8 {
        bytes.extend(40..48);
    }
    // Padding of inline payload.
    if let Some(header) = payload.and_then(|at| wqe[at..end].first_chunk()) {
        let (at, header) = (payload.unwrap_or_default(), u32::from_be_bytes(*header));
        if header >> 31 == 1 {
            let behind = at + 4 + (header & !(1 << 31)) as usize;
            bytes.extend(behind..behind.next_multiple_of(16));
        }
    }
    let beside_qpn = datagram.then_some((24, 0x7f)).filter(|_| payload.is_some());
    bytes.into_iter().map(|at| (at, 0xff)).chain(beside_qpn).collect()
}

/// Fills those bits with what `noise` gives.
pub(crate) fn scramble(wqe: &mut [u8], datagram: bool, mut noise: impl FnMut() -> u8) {
    for (at, bits) in ignored(wqe, datagram) {
        wqe[at] = wqe[at] & !bits | noise() & bits;
    }
}
