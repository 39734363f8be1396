//! Broken files, metadata and instructions are errors, never a panic or an access outside of what was registered.
use crate::exercise::exercise;
use crate::random;
use rand::{Rng, RngExt};
use std::ops::Range;
use warpverbs_gfx::{CodeObject, Config, DecodeError, Device, LoadError, Target, decode};

/// The fuzz target's corpus has a code object for each target.
fn good_for(target: Target) -> Vec<u8> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/gfx_code/");
    let name = if target == Target::Gfx942 { "fill.co" } else { "fill_gfx90a.co" };
    std::fs::read(corpus.to_owned() + name).expect("a code object in the corpus")
}

fn good() -> Vec<u8> {
    good_for(Target::Gfx942)
}

/// The code object, its target, and where its code lies in it.
fn objects() -> [(Vec<u8>, Target, Range<usize>); 2] {
    Target::ALL.map(|target| {
        let good = good_for(target);
        let object = CodeObject::parse(&good).expect("a good one");
        assert_eq!(object.target(), target);
        let (_, code) = object.code();
        let start = position(&good, code);
        let code = start..start + code.len();
        (good, target, code)
    })
}

fn position(file: &[u8], part: &[u8]) -> usize {
    file.windows(part.len()).position(|window| window == part).expect("part of the file")
}

/// The error of the file with bytes replaced.
fn refused(at: usize, bytes: &[u8]) -> LoadError {
    let mut file = good();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    CodeObject::parse(&file).map(|_| ()).expect_err("it is broken")
}

#[test]
fn what_is_broken_is_named() {
    assert!(CodeObject::parse(&good()).is_ok());
    assert!(matches!(CodeObject::parse(b"no ELF file"), Err(LoadError::Elf(_))));
    let kind = |at, bytes: &[u8]| match refused(at, bytes) {
        LoadError::Kind { what, .. } => what,
        other => panic!("{other}"),
    };
    assert_eq!(kind(18, &62_u16.to_le_bytes()), "machine");
    assert_eq!(kind(7, &[0]), "OS ABI");
    assert_eq!(kind(8, &[2]), "ABI version");
    // gfx908.
    assert_eq!(kind(48, &[0x30]), "processor");
    let file = good();
    let note = position(&file, b"amdhsa.kernels");
    assert!(matches!(refused(note, b"x"), LoadError::Metadata(_)));
    let lds = position(&file, b".group_segment_fixed_size") + 25;
    assert!(matches!(refused(lds, &[0xc1]), LoadError::Metadata(_)));
    let symbol = position(&file, b"fill.kd");
    assert!(matches!(refused(symbol, b"gill"), LoadError::Kernel { .. }));
}

#[test]
fn a_code_object_for_another_target_is_refused() {
    let object = CodeObject::parse(&good()).expect("a good one");
    let device = Device::new(Config { target: Target::Gfx90a, ..Config::default() });
    let refused = device.load(&object).map(|_| ()).expect_err("it is for gfx942");
    let said = "the code object is for gfx942, and the device is an emulated gfx90a";
    assert_eq!(refused.to_string(), said);
    assert_eq!("gfx90a".parse(), Ok(Target::Gfx90a));
    let unknown = "gfx906".parse::<Target>().expect_err("it is not emulated");
    assert_eq!(unknown.to_string(), "\"gfx906\" is not emulated; expected gfx90a or gfx942");
}

#[test]
fn what_cannot_be_decoded_is_named() {
    let wrong = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        decode(Target::Gfx942, &bytes).map(|inst| inst.to_string()).expect_err("it is broken")
    };
    assert_eq!(wrong(&[]), DecodeError::End);
    // Of 8 bytes, with 4.
    assert_eq!(wrong(&[0xd100_0000]), DecodeError::End);
    assert_eq!(wrong(&[0xc7ff_0000]), DecodeError::Encoding { word: 0xc7ff_0000 });
    assert!(matches!(wrong(&[0xd3ff_0000, 0]), DecodeError::Opcode { .. }));
    assert!(matches!(
        wrong(&[0xd2ff_0000, 0]),
        DecodeError::Opcode { encoding: "VOP3", opcode: 0x2ff, .. }
    ));
    // s_mov_b64 of a pair that ends behind the last register.
    assert!(matches!(wrong(&[0xbe80_017f]), DecodeError::Operand { mnemonic: "s_mov_b64", .. }));
    // v_fmamk_f32 and v_fmaak_f32, whose literal has the place of the word of SDWA.
    for (word, name) in [(0x2e00_00f9, "v_fmamk_f32"), (0x3000_00f9, "v_fmaak_f32")] {
        let error = wrong(&[word, 0]);
        assert!(matches!(error, DecodeError::Operand { mnemonic, .. } if mnemonic == name));
    }
    // flat_load_dwordx4 into v[253:256].
    assert!(matches!(
        wrong(&[0xdc5c_0000, 0xfd00_0000]),
        DecodeError::Operand { mnemonic: "load_dwordx4", .. }
    ));
}

#[test]
fn corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/gfx_code");
    let entries = std::fs::read_dir(folder).expect("the corpus");
    let files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() > 1);
    for file in files {
        exercise(&std::fs::read(file).expect("a file"));
    }
}

#[test]
fn files_with_a_few_changes() {
    let mut random = random();
    for (good, _, code) in objects() {
        for turn in 0..400 {
            let mut file = good.clone();
            for _ in 0..random.random_range(1..6) {
                let at = if turn % 2 == 0 {
                    random.random_range(code.clone())
                } else {
                    random.random_range(0..file.len())
                };
                file[at] = random.next_u32() as u8;
            }
            let cut = if turn % 16 == 1 { random.random_range(0..file.len()) } else { file.len() };
            file.truncate(cut);
            exercise(&file);
        }
    }
}

/// Instructions one after the other, of which most exist: the first byte is one that begins a known encoding.
#[test]
fn code_at_random() {
    let mut random = random();
    for (good, target, code) in objects() {
        let known = good[code.clone()].chunks(4).map(|word| word[3]);
        let others = [0xd1, 0xd2, 0xdc, 0xdd, 0xd8, 0xc0, 0x7e, 0x00];
        let first: Vec<u8> = known.chain(others).collect();
        for _ in 0..400 {
            let (mut file, mut at, mut instructions) = (good.clone(), code.start, 0);
            while at + 8 <= code.end {
                let mut bytes = [0; 8];
                random.fill_bytes(&mut bytes);
                bytes[3] = first[random.random_range(0..first.len())];
                if let Ok(inst) = decode(target, &bytes) {
                    file[at..at + inst.size()].copy_from_slice(&bytes[..inst.size()]);
                    at += inst.size();
                    instructions += 1;
                }
            }
            assert!(instructions > 10);
            exercise(&file);
        }
    }
}
