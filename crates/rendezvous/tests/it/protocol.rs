//! Requests and replies as bytes, and the fuzzer's seeds as an ordinary test.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_rendezvous::raw::{Decoder, MAGIC, Request};
use warpverbs_rendezvous::{Limits, Opcode, ProtocolError};

use crate::robust;

fn string() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..12)
}

/// A request of the opcode that `which` names.
fn request() -> impl Strategy<Value = Request> {
    let strings = vec((string(), string()), 0..6);
    (0..Opcode::ALL.len(), string(), string(), string(), strings, any::<i64>()).prop_map(
        |(which, key, value, desired, pairs, number)| {
            let keys = pairs.iter().map(|(key, _)| key.clone()).collect();
            match Opcode::ALL[which] {
                Opcode::Validate => Request::Validate { magic: number as u32 },
                Opcode::Set => Request::Set { key, value },
                Opcode::CompareSet => Request::CompareSet { key, expected: value, desired },
                Opcode::Get => Request::Get { key },
                Opcode::Add => Request::Add { key, delta: number },
                Opcode::Check => Request::Check { keys },
                Opcode::Wait => Request::Wait { keys },
                Opcode::KeyCount => Request::KeyCount,
                Opcode::Delete => Request::Delete { key },
                Opcode::Append => Request::Append { key, value },
                Opcode::MultiGet => Request::MultiGet { keys },
                Opcode::MultiSet => Request::MultiSet { pairs },
                Opcode::CancelWait => Request::CancelWait,
                Opcode::Ping => Request::Ping { nonce: number as u32 },
            }
        },
    )
}

proptest! {
    #[test]
    fn requests_survive_any_cut(requests in vec(request(), 1..6), cut in 1..40usize) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.emit(&mut bytes));
        let mut decoder = Decoder::new(Limits::default());
        let mut decoded = Vec::new();
        for mut piece in bytes.chunks(cut) {
            while let Some(request) = decoder.feed(&mut piece).unwrap() {
                decoded.push(request);
            }
        }
        prop_assert_eq!(decoded, requests);
        prop_assert_eq!(decoder.held(), 0);
    }

    #[test]
    fn any_requests_keep_the_bounds(requests in vec(request(), 1..40), cut: u8) {
        let mut bytes = vec![cut];
        requests.iter().for_each(|request| request.emit(&mut bytes));
        robust::store_message(&bytes);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..400)) {
        robust::store_message(&bytes);
    }
}

fn error_of(bytes: &[u8]) -> ProtocolError {
    let mut decoder = Decoder::new(robust::limits());
    let mut input = bytes;
    loop {
        match decoder.feed(&mut input) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(error) => return error,
        }
    }
}

#[test]
fn every_bound_has_its_error() {
    let le = |number: u64| number.to_le_bytes();
    let get = |size| [&[3][..], &le(size)].concat();
    let (opcode, limit) = (Opcode::Get, 16);
    assert_eq!(error_of(&[14]), ProtocolError::UnknownOpcode(14));
    assert_eq!(error_of(&get(17)), ProtocolError::KeyTooLong { opcode, size: 17, limit });
    let size = u64::MAX;
    assert_eq!(error_of(&get(size)), ProtocolError::KeyTooLong { opcode, size, limit });
    let set = [&[1][..], &le(0), &le(65)].concat();
    let (opcode, limit) = (Opcode::Set, 64);
    assert_eq!(error_of(&set), ProtocolError::ValueTooLong { opcode, size: 65, limit });
    let wait = [&[6][..], &le(9)].concat();
    let (opcode, limit) = (Opcode::Wait, 8);
    assert_eq!(error_of(&wait), ProtocolError::TooManyKeys { opcode, count: 9, limit });
    let mut many = Vec::new();
    let pairs = (0..4).map(|_| (vec![0; 16], vec![0; 64])).collect();
    Request::MultiSet { pairs }.emit(&mut many);
    let (opcode, limit) = (Opcode::MultiSet, 256);
    // Opcode, count, two pairs of 96 bytes, a third pair's key and its value's length.
    let size = 1 + 8 + 2 * 96 + 24 + 8 + 64;
    assert_eq!(error_of(&many), ProtocolError::MessageTooLong { opcode, size, limit });
}

#[test]
fn the_handshake_is_pytorchs() {
    let mut bytes = Vec::new();
    Request::<&[u8]>::Validate { magic: MAGIC }.emit(&mut bytes);
    Request::<&[u8]>::Ping { nonce: 0x21d1 }.emit(&mut bytes);
    // As captured from a client of PyTorch 2.15.
    assert_eq!(bytes, [0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d, 0xd1, 0x21, 0, 0]);
}

/// `WARPVERBS_BLESS=1` writes the seeds anew.
#[test]
fn seeds_hold_and_cover_every_opcode() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/store_message");
    if std::env::var_os("WARPVERBS_BLESS").is_some() {
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in seeds() {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths: BTreeSet<_> = files.map(|entry| entry.unwrap().path()).collect();
    let mut covered = BTreeSet::new();
    for path in &paths {
        println!("{}", path.display());
        let data = fs::read(path).unwrap();
        robust::store_message(&data);
        covered.extend(data.get(1).and_then(|&byte| Opcode::from_byte(byte)).map(Opcode::byte));
    }
    assert_eq!(covered.len(), Opcode::ALL.len());
    assert!(paths.len() <= 64, "{} files", paths.len());
}

/// One message of each kind, then what fills a store, what waits in it, and what is no message.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let key = || b"/k".to_vec();
    let value = || b"7".to_vec();
    let all = [
        Request::Validate { magic: MAGIC },
        Request::Set { key: key(), value: value() },
        Request::CompareSet { key: key(), expected: vec![], desired: value() },
        Request::Get { key: key() },
        Request::Add { key: key(), delta: -3 },
        Request::Check { keys: vec![key(), b"/l".to_vec()] },
        Request::Wait { keys: vec![b"/l".to_vec(), b"/m".to_vec()] },
        Request::KeyCount,
        Request::Delete { key: key() },
        Request::Append { key: key(), value: value() },
        Request::MultiGet { keys: vec![key(), key()] },
        Request::MultiSet { pairs: vec![(b"/l".to_vec(), value()), (b"/m".to_vec(), vec![])] },
        Request::CancelWait,
        Request::Ping { nonce: 9 },
    ];
    let bytes = |requests: &[Request]| {
        let mut bytes = vec![3];
        requests.iter().for_each(|request| request.emit(&mut bytes));
        bytes
    };
    let mut seeds: Vec<_> = all
        .iter()
        .map(|request| (request.opcode().to_string(), bytes(std::slice::from_ref(request))))
        .collect();
    seeds.push(("all".into(), bytes(&all)));
    let full: Vec<_> =
        (0..8).map(|n| Request::Append { key: vec![b'/', n], value: vec![n; 60] }).collect();
    seeds.push(("full".into(), bytes(&full)));
    seeds.push(("length-of-all-ones".into(), [&[0, 1][..], &[0xff; 8]].concat()));
    seeds.push(("http".into(), b"\0GET / HTTP/1.1\r\n\r\n".to_vec()));
    seeds.push(("node-list".into(), b"\0rack[1-2]gpu[03,5-7],login".to_vec()));
    seeds
}
