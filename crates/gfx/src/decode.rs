//! From bytes to an instruction. Layouts of GFX9.
use crate::code::{ACC, BUFFER, LITERAL, OFF, VCC, VECTOR};
use crate::error::DecodeError;
use crate::inst::{Encoding, Inst, Kind, Memory, Run, Sdwa};
use crate::table;
use crate::target::Target;

/// Bits `low` to `high` of a word.
fn bits(word: u32, high: u32, low: u32) -> u16 {
    (word >> low & ((1_u64 << (high - low + 1)) - 1) as u32) as u16
}
fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

/// The instruction of `target` that `bytes` begin with, little-endian words.
///
/// # Errors
/// [`DecodeError`] if it is cut off, unknown, or has operands that do not exist.
pub fn decode(target: Target, bytes: &[u8]) -> Result<Inst, DecodeError> {
    let word = |at: usize| {
        let four = bytes.get(4 * at..4 * at + 4).and_then(|four| four.try_into().ok());
        four.map(u32::from_le_bytes).ok_or(DecodeError::End)
    };
    let first = word(0)?;
    let second = || word(1);
    let mut inst = match first {
        _ if first >> 23 == 0x17d => sop1(target, first)?,
        _ if first >> 23 == 0x17e => sopc(target, first)?,
        _ if first >> 23 == 0x17f => sopp(target, first)?,
        _ if first >> 28 == 0xb => sopk(target, first)?,
        _ if first >> 30 == 2 => sop2(target, first)?,
        _ if first >> 26 == 0x30 => smem(target, first, second()?)?,
        _ if first >> 23 == 0x1a7 => vop3p(target, first, second()?)?,
        _ if first >> 26 == 0x34 => vop3(target, first, second()?)?,
        _ if first >> 26 == 0x36 => ds(target, first, second()?)?,
        _ if first >> 26 == 0x37 => flat(target, first, second()?)?,
        _ if first >> 26 == 0x38 => mubuf(target, first, second()?)?,
        _ if first >> 31 == 0 => vop(target, first, second)?,
        _ => return Err(DecodeError::Encoding { word: first }),
    };
    if inst.size == 4 && inst.src.contains(&LITERAL) && inst.encoding != Encoding::Sopk {
        inst.literal = second()?;
        inst.size = 8;
    }
    check(&inst)?;
    Ok(inst)
}

fn find(target: Target, encoding: Encoding, number: u32, word: u32) -> Result<Inst, DecodeError> {
    let op = table::find(target, encoding, number);
    let op = op.ok_or(DecodeError::Opcode { encoding: encoding.name(), opcode: number, word })?;
    Ok(Inst {
        op,
        encoding,
        size: 4,
        dst: OFF,
        mask: VCC,
        src: [0; 3],
        literal: 0,
        negate: 0,
        absolute: 0,
        negate_high: 0,
        clamp: false,
        sdwa: None,
        halves: [0, 7],
        offset: 0,
        segment: 0,
        sc0: false,
        sc1: false,
        nt: false,
        target,
    })
}

fn wrong(inst: &Inst, what: &'static str, value: u32) -> DecodeError {
    DecodeError::Operand { mnemonic: inst.op.name, what, value }
}

fn sop1(target: Target, word: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Sop1, bits(word, 15, 8).into(), word)?;
    (inst.dst, inst.src[0]) = (bits(word, 22, 16), bits(word, 7, 0));
    // For those that change a part of it.
    inst.src[1] = inst.dst;
    Ok(inst)
}

fn sop2(target: Target, word: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Sop2, bits(word, 29, 23).into(), word)?;
    inst.dst = bits(word, 22, 16);
    inst.src = [bits(word, 7, 0), bits(word, 15, 8), 0];
    Ok(inst)
}

fn sopc(target: Target, word: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Sopc, bits(word, 22, 16).into(), word)?;
    inst.src = [bits(word, 7, 0), bits(word, 15, 8), 0];
    Ok(inst)
}

/// The immediate is a literal; where there are two operands, the first is the destination.
fn sopk(target: Target, word: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Sopk, bits(word, 27, 23).into(), word)?;
    inst.dst = bits(word, 22, 16);
    inst.src = if inst.op.src.len() == 1 { [LITERAL, 0, 0] } else { [inst.dst, LITERAL, 0] };
    inst.literal = i32::from(word as i16) as u32;
    Ok(inst)
}

fn sopp(target: Target, word: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Sopp, bits(word, 22, 16).into(), word)?;
    inst.offset = (word as i16).into();
    Ok(inst)
}

fn smem(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Smem, bits(first, 25, 18).into(), first)?;
    inst.size = 8;
    inst.dst = bits(first, 12, 6);
    inst.src[0] = bits(first, 5, 0) * 2;
    inst.offset = (second << 11) as i32 >> 11;
    if let Run::ScalarLoad(words) = inst.op.run {
        // Whether there is an offset in the instruction (bit 17), and whether one is in a register as well (bit 14).
        (inst.segment, inst.src[1]) = match (bit(first, 14), bit(first, 17)) {
            (false, true) => (0, OFF),
            (false, false) => (1, bits(second, 6, 0)),
            (true, false) => (1, bits(second, 31, 25)),
            (true, true) => (2, bits(second, 31, 25)),
        };
        if inst.dst + words > 108 || inst.src[0] > 106 || inst.src[1] > OFF {
            return Err(wrong(&inst, "a register that does not exist", first));
        }
    }
    Ok(inst)
}

/// VOP1, VOP2, VOPC: the last operand is a vector register.
fn vop(
    target: Target,
    word: u32,
    second: impl Fn() -> Result<u32, DecodeError>,
) -> Result<Inst, DecodeError> {
    let (vector, dst) = (VECTOR + bits(word, 16, 9), VECTOR + bits(word, 24, 17));
    let mut inst = match word >> 25 {
        0x3f => find(target, Encoding::Vop1, bits(word, 16, 9).into(), word)?,
        0x3e => find(target, Encoding::Vopc, bits(word, 24, 17).into(), word)?,
        number => find(target, Encoding::Vop2, number, word)?,
    };
    inst.dst = if inst.encoding == Encoding::Vopc { OFF } else { dst };
    inst.src = [bits(word, 8, 0), if inst.encoding == Encoding::Vop1 { 0 } else { vector }, 0];
    if inst.op.dst == Kind::B32 && inst.op.name == "v_readfirstlane_b32" {
        inst.dst = bits(word, 24, 17);
    }
    match inst.op.name {
        "v_fmamk_f32" | "v_madmk_f32" => inst.src = [inst.src[0], LITERAL, vector],
        "v_fmaak_f32" | "v_madak_f32" => inst.src[2] = LITERAL,
        "v_fmac_f32" | "v_mac_f32" => inst.src[2] = dst,
        "v_accvgpr_mov_b32" => {
            inst.dst += ACC - VECTOR;
            inst.src[0] = (inst.src[0] | VECTOR) + ACC - VECTOR;
        }
        _ => {}
    }
    match inst.src[0] {
        249 if inst.src.contains(&LITERAL) => {
            Err(wrong(&inst, "an instruction with a literal has no SDWA", word))
        }
        249 => sdwa(inst, second()?),
        250 => Err(wrong(&inst, "DPP is not emulated", word)),
        _ => Ok(inst),
    }
}

fn sdwa(mut inst: Inst, word: u32) -> Result<Inst, DecodeError> {
    inst.size = 8;
    let register = |code: u16, scalar: bool| if scalar { code } else { VECTOR + code };
    inst.src[0] = register(bits(word, 7, 0), bit(word, 23));
    if inst.encoding != Encoding::Vop1 {
        inst.src[1] = register(inst.src[1] - VECTOR, bit(word, 31));
    }
    inst.negate = u8::from(bit(word, 20)) | u8::from(bit(word, 28)) << 1;
    inst.absolute = u8::from(bit(word, 21)) | u8::from(bit(word, 29)) << 1;
    let mut sdwa = Sdwa {
        dst: 6,
        unused: 0,
        src: [bits(word, 18, 16) as u8, bits(word, 26, 24) as u8],
        signed: [bit(word, 19), bit(word, 27)],
    };
    if inst.encoding == Encoding::Vopc {
        inst.mask = if bit(word, 15) { bits(word, 14, 8) } else { VCC };
    } else {
        (sdwa.dst, sdwa.unused) = (bits(word, 10, 8) as u8, bits(word, 12, 11) as u8);
        if bits(word, 15, 13) != 0 {
            return Err(wrong(&inst, "clamp and output modifiers of SDWA are not emulated", word));
        }
    }
    if sdwa.unused == 3 || [sdwa.dst, sdwa.src[0], sdwa.src[1]].contains(&7) {
        return Err(wrong(&inst, "a part of a register that does not exist", word));
    }
    inst.sdwa = Some(sdwa);
    Ok(inst)
}

/// Its opcodes below 0x1c0 are those of the shorter encodings.
fn vop3(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let number = u32::from(bits(first, 25, 16));
    let (from, number) = match number {
        0..=0xff => (Encoding::Vopc, number),
        0x100..=0x13f => (Encoding::Vop2, number - 0x100),
        0x140..=0x1bf => (Encoding::Vop1, number - 0x140),
        _ => (Encoding::Vop3, number),
    };
    let clamp = bit(first, 15);
    let mut inst = find(target, from, if clamp { number | table::CLAMPED } else { number }, first)?;
    (inst.encoding, inst.size, inst.clamp) = (Encoding::Vop3, 8, clamp);
    inst.src = [bits(second, 8, 0), bits(second, 17, 9), bits(second, 26, 18)];
    inst.negate = bits(second, 31, 29) as u8;
    let dst = bits(first, 7, 0);
    match (from, inst.op.flag) {
        (Encoding::Vopc, _) => inst.mask = dst,
        _ if inst.op.name == "v_readlane_b32" => inst.dst = dst,
        _ => inst.dst = VECTOR + dst,
    }
    if inst.op.flag && from != Encoding::Vopc {
        inst.mask = bits(first, 14, 8);
    } else {
        inst.absolute = bits(first, 10, 8) as u8;
        if bits(first, 14, 11) != 0 {
            return Err(wrong(&inst, "op_sel is not emulated", first));
        }
    }
    if matches!(inst.op.name, "v_fmac_f32" | "v_mac_f32") {
        inst.src[2] = inst.dst;
    }
    if bits(second, 28, 27) != 0 {
        return Err(wrong(&inst, "output modifiers are not emulated", second));
    }
    Ok(inst)
}

fn vop3p(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let number = bits(first, 22, 16);
    let mut inst = find(target, Encoding::Vop3p, number.into(), first)?;
    inst.size = 8;
    inst.dst = VECTOR + bits(first, 7, 0);
    inst.src = [bits(second, 8, 0), bits(second, 17, 9), bits(second, 26, 18)];
    match inst.op.name {
        "v_accvgpr_read_b32" => inst.src[0] = (inst.src[0] | VECTOR) + ACC - VECTOR,
        "v_accvgpr_write_b32" => inst.dst += ACC - VECTOR,
        _ => {
            let high = bits(second, 28, 27) | bits(first, 14, 14) << 2;
            inst.halves = [bits(first, 13, 11) as u8, high as u8];
            (inst.negate, inst.negate_high) =
                (bits(second, 31, 29) as u8, bits(first, 10, 8) as u8);
            if bit(first, 15) {
                return Err(wrong(&inst, "the clamp of packed operands is not emulated", first));
            }
        }
    }
    Ok(inst)
}

fn ds(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Ds, bits(first, 24, 17).into(), first)?;
    inst.size = 8;
    if bit(first, 16) {
        return Err(wrong(&inst, "global data share does not exist", first));
    }
    inst.offset = bits(first, 15, 0).into();
    // Whether it returns what was there.
    inst.sc0 = inst.op.name.contains("_rtn_");
    let bank = if bit(first, 25) { ACC } else { VECTOR };
    inst.dst = bank + bits(second, 31, 24);
    inst.src =
        [VECTOR + bits(second, 7, 0), bank + bits(second, 15, 8), bank + bits(second, 23, 16)];
    Ok(inst)
}

fn flat(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let mut inst = find(target, Encoding::Flat, bits(first, 24, 18).into(), first)?;
    inst.size = 8;
    inst.segment = bits(first, 15, 14) as u8;
    (inst.sc0, inst.nt, inst.sc1) = (bit(first, 16), bit(first, 17), bit(first, 25));
    // 13 bits with a sign, or 12 without for flat addresses.
    inst.offset = match inst.segment {
        0 => bits(first, 11, 0).into(),
        3 => return Err(wrong(&inst, "segment 3 does not exist", first)),
        _ => (first << 19) as i32 >> 19,
    };
    // Scratch memory alone can be addressed without a vector register.
    let has_vector = inst.segment != 1 || bit(first, 13);
    let bank = if bit(second, 23) { ACC } else { VECTOR };
    inst.dst = bank + bits(second, 31, 24);
    let saddr = if inst.segment == 0 { OFF } else { bits(second, 22, 16) };
    inst.src = [
        if has_vector { VECTOR + bits(second, 7, 0) } else { OFF },
        bank + bits(second, 15, 8),
        saddr,
    ];
    if inst.segment == 1
        && matches!(inst.op.run, Run::Memory(Memory::Atomic { .. } | Memory::Swap { .. }))
    {
        return Err(wrong(&inst, "there are no atomic operations on scratch memory", first));
    }
    Ok(inst)
}

/// Instructions on caches, and of gfx90a those on scratch memory by a buffer of it.
fn mubuf(target: Target, first: u32, second: u32) -> Result<Inst, DecodeError> {
    let number = bits(first, 24, 18).into();
    let access = target == Target::Gfx90a && (0x10..0x20).contains(&number);
    let encoding = if access { Encoding::Flat } else { Encoding::Mubuf };
    let mut inst = find(target, encoding, number, first)?;
    inst.size = 8;
    (inst.sc0, inst.sc1, inst.nt) = (bit(first, 14), bit(first, 15), bit(first, 17));
    if !access {
        return match bits(first, 13, 0) == 0 && second == 0 {
            true => Ok(inst),
            false => Err(wrong(&inst, "operands of an instruction that has none", second)),
        };
    }
    (inst.segment, inst.offset) = (BUFFER, bits(first, 11, 0).into());
    if bit(first, 13) || bit(first, 16) {
        return Err(wrong(&inst, "an index, or LDS as its destination, is not emulated", first));
    }
    let bank = if bit(second, 23) { ACC } else { VECTOR };
    inst.dst = bank + bits(second, 15, 8);
    inst.mask = 4 * bits(second, 20, 16);
    let vector = if bit(first, 12) { VECTOR + bits(second, 7, 0) } else { OFF };
    inst.src = [vector, inst.dst, bits(second, 31, 24)];
    Ok(inst)
}

/// Refuses registers that do not exist, so that execution need not check them.
fn check(inst: &Inst) -> Result<(), DecodeError> {
    let exists = |code: u16, words: u16| match code {
        _ if words == 0 => true,
        0..=127 => code + words <= 128,
        128..=208 | 235..=238 | 240..=248 | 251..=253 => true,
        LITERAL => {
            inst.size == 8 && inst.encoding != Encoding::Vop3 || inst.encoding == Encoding::Sopk
        }
        VECTOR..768 => (code - VECTOR) % 256 + words <= 256,
        _ => false,
    };
    let found = match inst.op.run {
        Run::Memory(memory) => memory.registers_exist(inst, exists),
        Run::Ds(memory, stride) => memory.ds_exists(inst, stride, exists),
        Run::ScalarLoad(_) => true,
        _ => return check_operands(inst, exists),
    };
    match found {
        true => Ok(()),
        false => Err(wrong(inst, "a register that does not exist", inst.dst.into())),
    }
}

fn check_operands(inst: &Inst, exists: impl Fn(u16, u16) -> bool) -> Result<(), DecodeError> {
    let (sources, dst) = (inst.op.src, inst.op.dst);
    let mut codes = inst.src.iter().zip(sources);
    if let Some((&code, _)) = codes.find(|(code, kind)| !exists(**code, kind.words())) {
        return Err(wrong(inst, "a source that does not exist", code.into()));
    }
    let (words, vector) = (dst.words(), !is_scalar(inst));
    let fits = words == 0 || exists(inst.dst, words) && (inst.dst < 128 || inst.dst >= VECTOR);
    let lands = inst.dst >= VECTOR || !vector || inst.op.name.starts_with("v_read") || words == 0;
    let masks = inst.mask < 127;
    if !fits || !lands || !masks {
        return Err(wrong(inst, "a destination that does not exist", inst.dst.into()));
    }
    Ok(())
}

/// Whether it computes once for the wave.
pub(crate) fn is_scalar(inst: &Inst) -> bool {
    use Encoding::{Smem, Sop1, Sop2, Sopc, Sopk, Sopp};
    matches!(inst.encoding, Sop1 | Sop2 | Sopc | Sopk | Sopp | Smem)
}
