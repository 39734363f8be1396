//! Any bytes, as metadata, as a list, and as what a peer says.

use proptest::prelude::*;
use std::path::Path;
use warpverbs_agent::raw::any_bytes;
use warpverbs_agent::{Agent, AgentConfig, BlockList};

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_as_they_are(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        any_bytes(&bytes);
    }

    /// Bytes that were right, and are damaged in a few places.
    #[test]
    fn damaged_bytes_are_refused(
        seed in 0usize..2,
        at in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let mut bytes = seeds().swap_remove(seed).1;
        let whole = bytes.clone();
        for (at, flip) in at {
            // The first byte is none of the message.
            *at.get_mut(&mut bytes[1..]) ^= flip;
        }
        prop_assume!(bytes != whole);
        any_bytes(&bytes);
        prop_assert!(BlockList::from_bytes(&bytes[1..]).is_err());
        let agent = Agent::new("reader", AgentConfig::default()).unwrap();
        prop_assert!(agent.load_metadata(&bytes[1..]).is_err());
    }
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let agent = Agent::new("seed", AgentConfig::default()).unwrap();
    let memory = agent.register(vec![0; 4096], "memory").unwrap();
    let list = memory.blocks_at(&[0, 100, 200, 4000, 3], 50).unwrap();
    let with = |bytes: Vec<u8>| [&[7][..], &bytes].concat();
    vec![
        ("list", with(list.to_bytes())),
        ("metadata", with(agent.metadata().unwrap())),
        // A length, and frames without fields.
        ("stream", vec![3, 1, 0, 0, 0, 7, 2, 0, 0, 0, 8, 9, 1, 0, 0, 0, 9]),
    ]
}

/// `WARPVERBS_BLESS=1` writes the seeds anew.
#[test]
fn seeds_hold() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/agent_bytes");
    if std::env::var_os("WARPVERBS_BLESS").is_some() {
        std::fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in seeds() {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }
    let files =
        std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut count = 0;
    for file in files {
        any_bytes(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= seeds().len(), "{count} files");
}
