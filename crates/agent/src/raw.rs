//! Checks for any bytes that come from elsewhere: the body of the fuzz target `agent_bytes`
//! and of tests.

use crate::BlockList;
use crate::codec::Format;
use crate::control::{Frame, Longest};
use crate::metadata::Metadata;
use warpverbs_meet::Frames;

/// Gives `data` to everything that reads bytes of others: as they are, with a right checksum around
/// them, and as a stream that is cut anywhere. The first byte says how.
///
/// # Panics
/// If what was read is not what the bytes say.
pub fn any_bytes(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    list(data);
    crate::stream::any_bytes(cut, data);
    let _ = Metadata::from_bytes(data, b"");
    let body = |format: Format| format.frame(data.to_vec()).unwrap_or_default();
    list(&body(crate::plan::list::FORMAT));
    let _ = Metadata::from_bytes(&body(crate::metadata::FORMAT), b"");
    // With the right digest too, so that the content is reached.
    if let Ok(metadata) = Metadata::from_body(data) {
        let sealed = metadata.to_bytes(b"token").unwrap_or_default();
        assert_eq!(Metadata::from_bytes(&sealed, b"token"), Ok(metadata));
        assert!(Metadata::from_bytes(&sealed, b"another").is_err());
    }
    for longest in [Longest::Stranger, Longest::Peer, Longest::Metadata] {
        let whole = frames(data, data.len().max(1), longest);
        assert_eq!(whole, frames(data, 1 + usize::from(cut), longest));
        for frame in &whole.0 {
            let mut decoder = Frames::new(Longest::Metadata.bytes());
            decoder.feed(&frame.encode());
            assert_eq!(Frame::next(&mut decoder).as_ref(), Ok(&Some(frame.clone())));
        }
    }
}

fn list(bytes: &[u8]) {
    let Ok(list) = BlockList::from_bytes(bytes) else { return };
    assert!(!list.is_empty());
    for run in list.runs() {
        let last = u128::from(run.offset) + u128::from(run.stride) * u128::from(run.count - 1);
        assert!(run.len > 0 && last + u128::from(run.len) <= u128::from(u64::MAX));
    }
    assert_eq!(BlockList::from_bytes(&list.to_bytes()), Ok(list));
}

/// The frames of a stream, and what ended them.
fn frames(data: &[u8], cut: usize, longest: Longest) -> (Vec<Frame<'static>>, Option<String>) {
    let mut decoder = Frames::new(longest.bytes());
    let mut all = Vec::new();
    for part in data.chunks(cut) {
        decoder.feed(part);
        loop {
            match Frame::next(&mut decoder) {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => break,
                Err(why) => return (all, Some(why)),
            }
        }
    }
    (all, None)
}
