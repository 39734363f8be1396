//! What each warp of a stopped launch was doing, lanes in the same situation on one line.

use super::abi::{RawSite, op_name};
use super::fault::Collective;
use super::lane::{Lane, Status};
use super::warp::Warp;
use std::fmt::Write as _;

/// Lines of a report; what is beyond is only counted.
const LINES: usize = 48;

/// Describes all unfinished lanes; `queued` blocks have not begun.
pub(crate) fn report<'a>(warps: impl Iterator<Item = &'a Warp>, queued: u32) -> String {
    let mut lines = Vec::new();
    for warp in warps {
        let mut groups: Vec<(String, u32, u64)> = Vec::new();
        for (i, lane) in warp.lanes.iter().enumerate() {
            let Some(text) = describe(lane) else { continue };
            match groups.iter_mut().find(|(known, ..)| *known == text) {
                Some((_, mask, pauses)) => {
                    *mask |= 1 << i;
                    *pauses = (*pauses).max(lane.pauses);
                }
                None => groups.push((text, 1 << i, lane.pauses)),
            }
        }
        for (text, mask, pauses) in groups {
            let (block, index) = (warp.block_index, warp.index);
            let mut line = format!("block {block} warp {index} lanes {mask:#010x}: {text}");
            if pauses > 0 {
                let _ = write!(line, "; paused up to {pauses} times");
            }
            lines.push(line);
        }
    }
    let hidden = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    if hidden > 0 {
        lines.push(format!("and {hidden} more groups of lanes"));
    }
    if queued > 0 {
        lines.push(format!("{queued} blocks had not begun"));
    }
    lines.join("\n")
}

fn describe(lane: &Lane) -> Option<String> {
    let at = |site: &RawSite| site.resolve();
    let text = match &lane.status {
        Status::Done => return None,
        Status::Ready => format!("running, {}", last_operation(lane)),
        Status::Asleep { site } => {
            format!("waiting at {}, {}", at(site), last_operation(lane))
        }
        Status::Gathering { site } => format!("at active_mask, {}", at(site)),
        Status::Collective(call) => {
            let what = Collective::from(call.op);
            format!("in {what} over {:#010x} at {}", call.mask, at(&call.site))
        }
        Status::Barrier { site } => format!("in sync_block at {}", at(site)),
    };
    Some(text)
}

fn last_operation(lane: &Lane) -> String {
    let abi = &lane.shared.abi;
    let (op, addr) = (op_name(abi.op.get()), abi.addr.get());
    let site = RawSite { file: abi.file.get(), line: abi.line.get() };
    if site == RawSite::NONE {
        return "no memory operation yet".to_owned();
    }
    format!("last {op} {addr:#x} at {}", site.resolve())
}
