//! State of each warp of a stopped launch, lanes in the same situation on one line.

use super::abi::{RawSite, op_name};
use super::fault::Collective;
use super::lane::{Lane, Status};
use super::warp::Warp;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Lines of a report; further ones are only counted.
const LINES: usize = 24;

/// Lanes of a warp at the same place, whatever addresses they were at.
struct Group {
    text: String,
    mask: u64,
    pauses: u64,
    addrs: BTreeSet<u64>,
}

/// Describes all unfinished lanes; `queued` blocks have not begun.
pub(crate) fn report<'a>(warps: impl Iterator<Item = &'a Warp>, queued: u32) -> String {
    let mut lines = Vec::new();
    for warp in warps {
        let mut groups: Vec<Group> = Vec::new();
        for (i, lane) in warp.lanes.iter().enumerate() {
            let Some(text) = describe(lane) else { continue };
            match groups.iter_mut().find(|group| group.text == text) {
                Some(group) => {
                    group.mask |= 1 << i;
                    group.pauses = group.pauses.max(lane.pauses);
                    group.addrs.extend(address(lane));
                }
                None => groups.push(Group {
                    text,
                    mask: 1 << i,
                    pauses: lane.pauses,
                    addrs: address(lane).into_iter().collect(),
                }),
            }
        }
        for Group { text, mask, pauses, addrs } in groups {
            let (block, index) = (warp.block_index, warp.index);
            let mut line = format!("block {block} warp {index} lanes {mask:#010x}: {text}");
            let _ = match (addrs.first(), addrs.last()) {
                (Some(low), Some(high)) if low != high => write!(line, " of {low:#x} to {high:#x}"),
                (Some(only), _) => write!(line, " of {only:#x}"),
                (None, _) => Ok(()),
            };
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
        Status::Ending => format!("where others of its warp are to come, {}", last_operation(lane)),
        Status::Barrier { site } => format!("in sync_block at {}", at(site)),
    };
    Some(text)
}

fn last_operation(lane: &Lane) -> String {
    let abi = &lane.shared.abi;
    let op = op_name(abi.op.get());
    let site = RawSite { file: abi.file.get(), line: abi.line.get() };
    if site == RawSite::NONE {
        return "no memory operation yet".to_owned();
    }
    format!("last {op} at {}", site.resolve())
}

/// Of the last memory operation, if it has one.
fn address(lane: &Lane) -> Option<u64> {
    let abi = &lane.shared.abi;
    let site = RawSite { file: abi.file.get(), line: abi.line.get() };
    (site != RawSite::NONE && abi.addr.get() != 0).then(|| abi.addr.get())
}
