//! From bytes to an instruction. Layouts of GFX9.
use crate::code::{ACC, BUFFER, LITERAL, OFF, VCC, VECTOR};
use crate::error::DecodeError;
use crate::inst::{Encoding, Encoding::*, Inst, Op, Run, Sdwa};
use crate::table;
use crate::target::Target;

type Layout = (Encoding, &'static str, [u32; 2], [u32; 2], u8);
/// Encodings, with the manual's names: the lowest of the first bits, and their value; the highest and the lowest bit of the opcode; bytes
/// without a literal. The first line that fits counts.
static LAYOUTS: [Layout; 14] = [
    (Sop1, "SOP1", [23, 0x17d], [15, 8], 4),
    (Sopc, "SOPC", [23, 0x17e], [22, 16], 4),
    (Sopp, "SOPP", [23, 0x17f], [22, 16], 4),
    (Sopk, "SOPK", [28, 0xb], [27, 23], 4),
    (Sop2, "SOP2", [30, 0x2], [29, 23], 4),
    (Smem, "SMEM", [26, 0x30], [25, 18], 8),
    (Vop3p, "VOP3P", [23, 0x1a7], [22, 16], 8),
    (Vop3, "VOP3", [26, 0x34], [25, 16], 8),
    (Ds, "DS", [26, 0x36], [24, 17], 8),
    (Flat, "FLAT", [26, 0x37], [24, 18], 8),
    (Mubuf, "MUBUF", [26, 0x38], [24, 18], 8),
    (Vop1, "VOP1", [25, 0x3f], [16, 9], 4),
    (Vopc, "VOPC", [25, 0x3e], [24, 17], 4),
    (Vop2, "VOP2", [31, 0x0], [30, 25], 4),
];

/// Bits `low` to `high` of an instruction, whose second word has those from 32 on.
fn bits(code: u64, high: u32, low: u32) -> u16 {
    (code >> low & ((1 << (high - low + 1)) - 1)) as u16
}
fn bit(code: u64, at: u32) -> bool {
    code >> at & 1 != 0
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
    let (word, second) = (word(0)?, word(1));
    let layout = LAYOUTS.iter().find(|(_, _, [shift, prefix], ..)| word >> shift == *prefix);
    let &(encoding, name, _, [high, low], size) = layout.ok_or(DecodeError::Encoding { word })?;
    let code = match &second {
        Ok(second) => u64::from(word) | u64::from(*second) << 32,
        Err(_) if size == 4 => word.into(),
        Err(error) => return Err(error.clone()),
    };
    let opcode = bits(code, high, low).into();
    let op = entry(target, encoding, opcode, code);
    let op = op.ok_or(DecodeError::Opcode { encoding: name, opcode, word })?;
    let mut inst = Inst {
        op,
        encoding,
        size,
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
    };
    operands(&mut inst, code)?;
    let literal = inst.src.contains(&LITERAL) && inst.encoding != Sopk;
    if size == 4 && (literal || inst.sdwa.is_some()) {
        (inst.literal, inst.size) = (second?, 8);
    }
    check(&inst)?;
    Ok(inst)
}

/// VOP3 has the opcodes of the shorter encodings below 0x1c0; loads and stores of gfx90a's MUBUF are numbered as FLAT's.
fn entry(target: Target, encoding: Encoding, number: u32, code: u64) -> Option<&'static Op> {
    let clamp = if bit(code, 15) { table::CLAMPED } else { 0 };
    let (encoding, number) = match (encoding, number) {
        (Vop3, 0..=0xff) => (Vopc, number | clamp),
        (Vop3, 0x100..=0x13f) => (Vop2, (number - 0x100) | clamp),
        (Vop3, 0x140..=0x1bf) => (Vop1, (number - 0x140) | clamp),
        (Vop3, _) => (Vop3, number | clamp),
        (Mubuf, 0x10..=0x1f) if target == Target::Gfx90a => (Flat, number),
        same => same,
    };
    table::find(target, encoding, number)
}

fn wrong(inst: &Inst, what: &'static str, value: u64) -> DecodeError {
    DecodeError::Operand { mnemonic: inst.op.name, what, value }
}

fn operands(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    let (dst, src) = (bits(code, 22, 16), [bits(code, 7, 0), bits(code, 15, 8), 0]);
    match inst.encoding {
        // The second source is for those that change a part of the destination.
        Sop1 => (inst.dst, inst.src) = (dst, [src[0], dst, 0]),
        Sop2 => (inst.dst, inst.src) = (dst, src),
        Sopc => inst.src = src,
        Sopp => inst.offset = (code as i16).into(),
        // The immediate is a literal; where there are two operands, the first is the destination.
        Sopk => {
            inst.dst = dst;
            inst.src = if inst.op.src.len() == 1 { [LITERAL, 0, 0] } else { [dst, LITERAL, 0] };
            inst.literal = i32::from(code as i16) as u32;
        }
        Smem => smem(inst, code)?,
        Vop1 | Vop2 | Vopc => vop(inst, code)?,
        Vop3 => vop3(inst, code)?,
        Vop3p => vop3p(inst, code)?,
        Ds => ds(inst, code)?,
        Flat => flat(inst, code)?,
        Mubuf => mubuf(inst, code)?,
    }
    Ok(())
}

fn smem(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    inst.dst = bits(code, 12, 6);
    inst.src[0] = bits(code, 5, 0) * 2;
    inst.offset = (code >> 32 << 11) as i32 >> 11;
    if let Run::ScalarLoad(words) = inst.op.run {
        // Whether there is an offset in the instruction (bit 17), and whether one is in a register as well (bit 14).
        (inst.segment, inst.src[1]) = match (bit(code, 14), bit(code, 17)) {
            (false, true) => (0, OFF),
            (false, false) => (1, bits(code, 38, 32)),
            (true, false) => (1, bits(code, 63, 57)),
            (true, true) => (2, bits(code, 63, 57)),
        };
        if inst.dst + words > 108 || inst.src[0] > 106 {
            return Err(wrong(inst, "a register that does not exist", code));
        }
    }
    Ok(())
}

/// VOP1, VOP2, VOPC: the last operand is a vector register.
fn vop(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    let (vector, dst) = (VECTOR + bits(code, 16, 9), VECTOR + bits(code, 24, 17));
    inst.dst = if inst.encoding == Vopc { OFF } else { dst };
    inst.src = [bits(code, 8, 0), if inst.encoding == Vop1 { 0 } else { vector }, 0];
    match inst.op.name {
        "v_readfirstlane_b32" => inst.dst -= VECTOR,
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
            Err(wrong(inst, "an instruction with a literal has no SDWA", code))
        }
        249 => sdwa(inst, code),
        250 => Err(wrong(inst, "DPP is not emulated", code)),
        _ => Ok(()),
    }
}

fn sdwa(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    let register = |code: u16, scalar: bool| if scalar { code } else { VECTOR + code };
    inst.src[0] = register(bits(code, 39, 32), bit(code, 55));
    if inst.encoding != Vop1 {
        inst.src[1] = register(inst.src[1] - VECTOR, bit(code, 63));
    }
    inst.negate = u8::from(bit(code, 52)) | u8::from(bit(code, 60)) << 1;
    inst.absolute = u8::from(bit(code, 53)) | u8::from(bit(code, 61)) << 1;
    let mut sdwa = Sdwa {
        dst: 6,
        unused: 0,
        src: [bits(code, 50, 48) as u8, bits(code, 58, 56) as u8],
        signed: [bit(code, 51), bit(code, 59)],
    };
    if inst.encoding == Vopc {
        inst.mask = if bit(code, 47) { bits(code, 46, 40) } else { VCC };
    } else {
        (sdwa.dst, sdwa.unused) = (bits(code, 42, 40) as u8, bits(code, 44, 43) as u8);
        if bits(code, 47, 45) != 0 {
            return Err(wrong(inst, "clamp and output modifiers of SDWA are not emulated", code));
        }
    }
    if sdwa.unused == 3 || [sdwa.dst, sdwa.src[0], sdwa.src[1]].contains(&7) {
        return Err(wrong(inst, "a part of a register that does not exist", code));
    }
    inst.sdwa = Some(sdwa);
    Ok(())
}

/// The sources of VOP3 and VOP3P.
fn sources(code: u64) -> [u16; 3] {
    [bits(code, 40, 32), bits(code, 49, 41), bits(code, 58, 50)]
}

fn vop3(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    (inst.src, inst.negate) = (sources(code), bits(code, 63, 61) as u8);
    inst.clamp = bit(code, 15);
    let (dst, compares) = (bits(code, 7, 0), inst.op.encoding == Vopc);
    match inst.op.name {
        _ if compares => inst.mask = dst,
        "v_readlane_b32" => inst.dst = dst,
        _ => inst.dst = VECTOR + dst,
    }
    if inst.op.flag && !compares {
        inst.mask = bits(code, 14, 8);
    } else {
        inst.absolute = bits(code, 10, 8) as u8;
        if bits(code, 14, 11) != 0 {
            return Err(wrong(inst, "op_sel is not emulated", code));
        }
    }
    if matches!(inst.op.name, "v_fmac_f32" | "v_mac_f32") {
        inst.src[2] = inst.dst;
    }
    if bits(code, 60, 59) != 0 {
        return Err(wrong(inst, "output modifiers are not emulated", code));
    }
    Ok(())
}

fn vop3p(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    inst.src = sources(code);
    inst.dst = VECTOR + bits(code, 7, 0);
    match inst.op.name {
        "v_accvgpr_read_b32" => inst.src[0] = (inst.src[0] | VECTOR) + ACC - VECTOR,
        "v_accvgpr_write_b32" => inst.dst += ACC - VECTOR,
        _ => {
            let high = bits(code, 60, 59) | bits(code, 14, 14) << 2;
            inst.halves = [bits(code, 13, 11) as u8, high as u8];
            (inst.negate, inst.negate_high) = (bits(code, 63, 61) as u8, bits(code, 10, 8) as u8);
            if bit(code, 15) {
                return Err(wrong(inst, "the clamp of packed operands is not emulated", code));
            }
        }
    }
    Ok(())
}

/// The first vector register, or the first accumulation register.
fn bank(accumulation: bool) -> u16 {
    if accumulation { ACC } else { VECTOR }
}

fn ds(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    if bit(code, 16) {
        return Err(wrong(inst, "global data share does not exist", code));
    }
    inst.offset = bits(code, 15, 0).into();
    // Whether it returns what was there.
    inst.sc0 = inst.op.name.contains("_rtn_");
    let bank = bank(bit(code, 25));
    inst.dst = bank + bits(code, 63, 56);
    inst.src = [VECTOR + bits(code, 39, 32), bank + bits(code, 47, 40), bank + bits(code, 55, 48)];
    Ok(())
}

fn flat(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    inst.segment = bits(code, 15, 14) as u8;
    (inst.sc0, inst.nt, inst.sc1) = (bit(code, 16), bit(code, 17), bit(code, 25));
    // 13 bits with a sign, or 12 without for flat addresses.
    inst.offset = match inst.segment {
        0 => bits(code, 11, 0).into(),
        3 => return Err(wrong(inst, "segment 3 does not exist", code)),
        _ => (code << 19) as i32 >> 19,
    };
    // Scratch memory alone can be addressed without a vector register.
    let has_vector = inst.segment != 1 || bit(code, 13);
    let bank = bank(bit(code, 55));
    inst.dst = bank + bits(code, 63, 56);
    inst.src = [
        if has_vector { VECTOR + bits(code, 39, 32) } else { OFF },
        bank + bits(code, 47, 40),
        if inst.segment == 0 { OFF } else { bits(code, 54, 48) },
    ];
    let atomic = inst.op.name.starts_with("atomic");
    if inst.segment == 1 && atomic {
        return Err(wrong(inst, "there are no atomic operations on scratch memory", code));
    }
    Ok(())
}

/// Instructions on caches, and of gfx90a those on scratch memory by a buffer of it.
fn mubuf(inst: &mut Inst, code: u64) -> Result<(), DecodeError> {
    (inst.sc0, inst.sc1, inst.nt) = (bit(code, 14), bit(code, 15), bit(code, 17));
    if inst.op.encoding == Mubuf {
        return match bits(code, 13, 0) == 0 && code >> 32 == 0 {
            true => Ok(()),
            false => Err(wrong(inst, "operands of an instruction that has none", code)),
        };
    }
    (inst.segment, inst.offset) = (BUFFER, bits(code, 11, 0).into());
    if bit(code, 13) || bit(code, 16) {
        return Err(wrong(inst, "an index, or LDS as its destination, is not emulated", code));
    }
    inst.dst = bank(bit(code, 55)) + bits(code, 47, 40);
    inst.mask = 4 * bits(code, 52, 48);
    let vector = if bit(code, 12) { VECTOR + bits(code, 39, 32) } else { OFF };
    inst.src = [vector, inst.dst, bits(code, 63, 56)];
    Ok(())
}

/// Refuses registers that do not exist, so that execution need not check them.
fn check(inst: &Inst) -> Result<(), DecodeError> {
    let has_literal =
        inst.encoding == Sopk || inst.size == 8 && !matches!(inst.encoding, Vop3 | Vop3p);
    let exists = |code: u16, words: u16| match code {
        _ if words == 0 => true,
        0..=127 => code + words <= 128,
        128..=208 | 235..=238 | 240..=248 | 251..=253 => true,
        LITERAL => has_literal,
        VECTOR..768 => (code - VECTOR) % 256 + words <= 256,
        _ => false,
    };
    match inst.op.run {
        Run::Memory(_) | Run::Ds(..) => {
            let mut registers = inst.registers().into_iter();
            match registers.all(|(code, words)| code == OFF || exists(code, words)) {
                true => Ok(()),
                false => Err(wrong(inst, "a register that does not exist", inst.dst.into())),
            }
        }
        Run::ScalarLoad(_) => Ok(()),
        _ => check_operands(inst, exists),
    }
}

fn check_operands(inst: &Inst, exists: impl Fn(u16, u16) -> bool) -> Result<(), DecodeError> {
    let (sources, dst) = (inst.op.src, inst.op.dst);
    let mut codes = inst.src.iter().zip(sources);
    if let Some((&code, _)) = codes.find(|(code, kind)| !exists(**code, kind.words())) {
        return Err(wrong(inst, "a source that does not exist", code.into()));
    }
    let plain = inst.encoding == Vop1 && inst.sdwa.is_none() && inst.src[0] >= VECTOR;
    if inst.op.name == "v_swap_b32" && !plain {
        return Err(wrong(
            inst,
            "expected two vector registers, in the short form",
            inst.src[0].into(),
        ));
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
    matches!(inst.encoding, Sop1 | Sop2 | Sopc | Sopk | Sopp | Smem)
}
