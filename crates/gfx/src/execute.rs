//! One instruction of one wave.
use crate::cache::{Port, Reach};
use crate::code::{EXEC, LITERAL, OFF, VCC, VECTOR};
use crate::decode::is_scalar;
use crate::error::Cause;
use crate::flat::{self, Issued, fault};
use crate::inst::{Coherence, Compute, Encoding, Inst, Kind, Run};
use crate::late::Pending;
use crate::wave::{State, Wave};
use std::sync::atomic::{Ordering, fence};

/// The outcome of an instruction.
pub(crate) enum Step {
    Next,
    /// Something is under way that completes later.
    Issue(Pending),
    /// Goes on when so few accesses are under way.
    Wait(u64),
    Sleep,
    /// The wave runs no further: it waits at the barrier, or has ended.
    Pause(State),
}

/// Executes it, and moves the program counter.
pub(crate) fn step(
    wave: &mut Wave,
    inst: &Inst,
    port: &mut Port<'_>,
    lds: &mut [u8],
) -> Result<Step, Cause> {
    let mut next = Step::Next;
    match inst.op.run {
        Run::Compute(f) if is_scalar(inst) => scalar(wave, inst, f),
        Run::Compute(f) => vector(wave, inst, f),
        Run::SaveExec(f) => {
            let (exec, source) = (wave.exec(), uniform(wave, inst, 0).unwrap_or(0));
            let new = f(source, exec);
            wave.write64(inst.dst, exec);
            wave.write64(EXEC, new);
            wave.scc = new != 0;
        }
        Run::Branch(holds) => {
            if holds(wave) {
                wave.pc = wave.pc.wrapping_add_signed(i64::from(inst.offset) * 4);
            }
        }
        Run::Wave(f) => f(wave, inst),
        Run::ScalarLoad(words) => scalar_load(wave, inst, words, port)?,
        Run::Memory(memory) => {
            let issued = Issued::of(wave, inst, memory);
            issued.check_scratch(wave)?;
            if port.late() {
                next = Step::Issue(Pending::Access(Box::new(issued)));
            } else {
                issued.complete(wave, port, lds)?;
            }
        }
        Run::Ds(memory, stride) => flat::ds(wave, inst, (memory, stride), lds)?,
        Run::Caches(what) => next = caches(inst, what, port),
        Run::Wait => next = Step::Wait(vmcnt(inst)),
        Run::Nothing => {}
        Run::Barrier => next = Step::Pause(State::AtBarrier),
        Run::Sleep => next = Step::Sleep,
        Run::End => next = Step::Pause(State::Ended),
        Run::Trap => return Err(Cause::Trap(inst.offset as u32)),
    }
    wave.pc = wave.pc.wrapping_add(inst.size.into());
    Ok(next)
}

/// A source that is the same for all lanes, as the low bits of 64; nothing for a vector register.
fn uniform(wave: &Wave, inst: &Inst, index: usize) -> Option<u64> {
    match (inst.src[index], inst.op.src[index]) {
        (LITERAL, Kind::I64) => Some(i64::from(inst.literal as i32) as u64),
        (LITERAL, _) => Some(inst.literal.into()),
        (VECTOR.., _) => None,
        // A packed operand that is a constant has it in its low half alone.
        (code @ 128.., Kind::Pair) => Some(wave.scalar(code).into()),
        (code, kind) if kind.words() == 2 => Some(wave.scalar64(code)),
        (code, _) => Some(wave.scalar(code).into()),
    }
}

fn scalar(wave: &mut Wave, inst: &Inst, f: Compute) {
    let mut values = [0; 4];
    for (index, &kind) in inst.op.src.iter().enumerate() {
        let flag = kind == Kind::Flag;
        values[index] =
            if flag { wave.scc.into() } else { uniform(wave, inst, index).unwrap_or(0) };
    }
    let (value, flag) = f(&values);
    match inst.op.dst.words() {
        0 => {}
        1 => wave.write32(inst.dst, value as u32),
        _ => wave.write64(inst.dst, value),
    }
    if inst.op.flag {
        wave.scc = flag;
    }
}

/// Where a lane's operand comes from.
#[derive(Clone, Copy)]
enum Source {
    Same(u64),
    Register(u16),
    Pair(u16),
    Mask(u64),
    Lane,
}

fn source(wave: &Wave, inst: &Inst, index: usize, kind: Kind) -> Source {
    match kind {
        Kind::Lane => Source::Lane,
        // VOP3 names the mask where there is room for it.
        Kind::Flag if index == 2 && inst.encoding == Encoding::Vop3 => {
            Source::Mask(wave.scalar64(inst.src[2]))
        }
        Kind::Flag => Source::Mask(wave.vcc()),
        _ => match uniform(wave, inst, index) {
            Some(value) => Source::Same(value),
            None if kind.words() == 2 => Source::Pair(inst.src[index]),
            None => Source::Register(inst.src[index]),
        },
    }
}

fn vector(wave: &mut Wave, inst: &Inst, f: Compute) {
    let kinds = inst.op.src;
    let mut sources = [Source::Same(0); 4];
    for (index, &kind) in kinds.iter().enumerate() {
        sources[index] = source(wave, inst, index, kind);
    }
    let plain = inst.negate | inst.absolute == 0 && inst.sdwa.is_none() && kinds[0] != Kind::Pair;
    let (exec, mut flags) = (wave.exec(), 0);
    let mut left = exec;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        let mut values = [0; 4];
        for (value, &source) in values.iter_mut().zip(&sources[..kinds.len()]) {
            *value = match source {
                Source::Same(value) => value,
                Source::Register(code) => wave.lane(code, lane).into(),
                Source::Pair(code) => wave.lane64(code, lane),
                Source::Mask(mask) => mask >> lane & 1,
                Source::Lane => lane as u64,
            };
        }
        if !plain {
            for (index, &kind) in kinds.iter().enumerate() {
                values[index] = modified(inst, index, kind, values[index]);
            }
        }
        let (value, flag) = f(&values);
        flags |= u64::from(flag) << lane;
        match inst.op.dst.words() {
            0 => {}
            1 => {
                let value = inst.sdwa.map_or(value as u32, |sdwa| {
                    part_of(wave.lane(inst.dst, lane), value as u32, sdwa.dst, sdwa.unused)
                });
                wave.set_lane(inst.dst, lane, value);
            }
            _ => wave.set_lane64(inst.dst, lane, value),
        }
    }
    if inst.op.flag {
        let to = if inst.mask == OFF { VCC } else { inst.mask };
        wave.write64(to, flags);
    }
}

/// First bit and width of a part of a register.
fn part(select: u8) -> (u32, u32) {
    match select {
        0..=3 => (8 * u32::from(select), 8),
        4 | 5 => (16 * u32::from(select - 4), 16),
        _ => (0, 32),
    }
}

/// An operand with its modifiers applied: part, magnitude, sign, order of halves.
fn modified(inst: &Inst, index: usize, kind: Kind, mut value: u64) -> u64 {
    if matches!(kind, Kind::Flag | Kind::Lane) {
        return value;
    }
    if kind == Kind::Pair {
        let half = |select: u8| value >> (32 * (select >> index & 1)) & 0xffff_ffff;
        let signs = u64::from(inst.negate >> index & 1) << 31
            | u64::from(inst.negate_high >> index & 1) << 63;
        return (half(inst.halves[0]) | half(inst.halves[1]) << 32) ^ signs;
    }
    if let Some(sdwa) = inst.sdwa.filter(|_| index < 2) {
        let (first, bits) = part(sdwa.src[index]);
        let shifted = (value as u32) >> first << (32 - bits);
        value = if sdwa.signed[index] {
            ((shifted as i32) >> (32 - bits)) as u32
        } else {
            shifted >> (32 - bits)
        }
        .into();
    }
    let sign = match kind {
        Kind::B16 => 15,
        Kind::B32 | Kind::F32 => 31,
        _ => 63,
    };
    if inst.absolute >> index & 1 != 0 {
        value &= !(1 << sign);
    }
    value ^ u64::from(inst.negate >> index & 1) << sign
}

/// A register of which only a part is written.
fn part_of(old: u32, value: u32, select: u8, unused: u8) -> u32 {
    let (first, bits) = part(select);
    let mask = (((1_u64 << bits) - 1) << first) as u32;
    let placed = value << first & mask;
    match unused {
        0 => placed,
        1 if bits < 32 => ((value << (32 - bits)) as i32 >> (32 - bits) << first) as u32,
        1 => value,
        _ => old & !mask | placed,
    }
}

/// An instruction on caches. An invalidation is in order with the accesses that are issued after it, and a write-back
/// with those issued before; on gfx942 neither does anything without the scope that SC1 stands for, which gfx90a sets always.
fn caches(inst: &Inst, what: Coherence, port: &mut Port<'_>) -> Step {
    fence(Ordering::SeqCst);
    match what {
        Coherence::WriteBack | Coherence::Invalidate if !inst.sc1 => {}
        Coherence::WriteBack if port.late() => return Step::Issue(Pending::WriteBack),
        _ => port.apply(what),
    }
    Step::Next
}

/// Of `s_waitcnt`: accesses of global memory that may be under way.
fn vmcnt(inst: &Inst) -> u64 {
    (inst.offset & 15 | inst.offset >> 10 & 0x30) as u64
}

fn scalar_load(wave: &mut Wave, inst: &Inst, words: u16, port: &mut Port<'_>) -> Result<(), Cause> {
    let own = if inst.segment == 1 { 0 } else { i64::from(inst.offset) };
    let register = if inst.src[1] == OFF { 0 } else { wave.scalar(inst.src[1]) };
    let address =
        wave.scalar64(inst.src[0]).wrapping_add(register.into()).wrapping_add_signed(own) & !3;
    let mut found = [0; 16];
    for word in 0..words {
        let value = port.load(address.wrapping_add(4 * u64::from(word)), 4, Reach::Scalar);
        found[usize::from(word)] = value.map_err(fault("global"))? as u32;
    }
    for word in 0..words {
        wave.write32(inst.dst + word, found[usize::from(word)]);
    }
    Ok(())
}
