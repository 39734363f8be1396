//! Instructions that access memory for each lane: FLAT, GLOBAL, SCRATCH, buffers of scratch memory, and DS.
use crate::cache::{Port, Reach};
use crate::code::{BUFFER, FLAT_SCRATCH, OFF};
use crate::error::{Access, Cause, MemoryFault};
use crate::inst::{Action, Inst, Memory};
use crate::target::Target;
use crate::wave::{APERTURE, PRIVATE_BASE, SCRATCH_WORDS, SHARED_BASE, Wave};
use std::collections::BTreeSet;
use std::ops::Range;

impl Memory {
    /// Vector registers of the address, if there are any: an offset alone if there is a base or it is scratch memory.
    pub(crate) fn address(inst: &Inst) -> u16 {
        match (inst.segment, inst.src[2]) {
            (1 | BUFFER, _) => 1,
            (2, base) if base != OFF => 1,
            _ => 2,
        }
    }

    fn loads(self) -> bool {
        matches!(self.action, Action::Load | Action::LoadSigned)
    }

    /// Registers of the data.
    pub(crate) fn data(self) -> u16 {
        match self.action {
            Action::Load | Action::LoadSigned => 0,
            Action::Store | Action::Atomic(_) => self.words,
            Action::Swap => 2 * self.words,
        }
    }

    /// The same of DS, of each operand beside the address.
    pub(crate) fn ds_data(self, stride: u32) -> [u16; 2] {
        match self.action {
            Action::Store if stride != 0 => [self.words; 2],
            Action::Swap => [self.words; 2],
            _ => [self.data(), 0],
        }
    }

    /// Registers of the result.
    pub(crate) fn result(self, inst: &Inst) -> u16 {
        match self.action {
            Action::Store => 0,
            Action::Atomic(_) | Action::Swap if !inst.sc0 => 0,
            _ => self.words,
        }
    }
}

/// A place in memory that only a group or a lane has.
struct Local<'a> {
    bytes: &'a mut [u8],
    /// Its name in errors.
    space: &'static str,
    offset: u64,
}

impl Local<'_> {
    fn place(&mut self, at: u64, length: u64, access: Access) -> Result<&mut [u8], Cause> {
        let address = self.offset + at;
        let place = self.bytes.get_mut(address as usize..(address + length) as usize);
        place.ok_or_else(|| fault(self.space)(MemoryFault { address, length, access }))
    }
}

/// One lane's place in one of the kinds of memory.
enum Spot<'a, 'b> {
    Global(&'a mut Port<'b>, u64, Reach),
    Local(Local<'a>),
}

impl Spot<'_, '_> {
    fn load(&mut self, at: u64, length: u64) -> Result<u64, Cause> {
        match self {
            Spot::Global(port, address, reach) => {
                port.load(address.wrapping_add(at), length, *reach).map_err(fault("global"))
            }
            Spot::Local(local) => {
                let mut bytes = [0; 8];
                bytes[..length as usize].copy_from_slice(local.place(at, length, Access::Load)?);
                Ok(u64::from_le_bytes(bytes))
            }
        }
    }

    fn store(&mut self, at: u64, length: u64, value: u64) -> Result<(), Cause> {
        match self {
            Spot::Global(port, address, reach) => {
                port.store(address.wrapping_add(at), length, value, *reach).map_err(fault("global"))
            }
            Spot::Local(local) => {
                let place = local.place(at, length, Access::Store)?;
                place.copy_from_slice(&value.to_le_bytes()[..length as usize]);
                Ok(())
            }
        }
    }

    fn update(&mut self, length: u64, f: impl Fn(u64) -> u64) -> Result<u64, Cause> {
        if let Spot::Global(port, address, _) = self {
            return port.update(*address, length, f).map_err(fault("global"));
        }
        let old = self.load(0, length)?;
        self.store(0, length, f(old)).map(|()| old)
    }

    /// Place and length of the accesses of which one to so many bytes consists: words of 4, or pairs of them in
    /// global memory if the address allows that.
    fn steps(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let pairs = matches!(self, Spot::Global(_, address, _) if address.is_multiple_of(8));
        let step = if pairs { 8 } else { 4 };
        (0..bytes).step_by(step as usize).map(move |at| (at, step.min(bytes - at)))
    }
}

pub(crate) fn fault(space: &'static str) -> impl Fn(MemoryFault) -> Cause {
    move |fault| Cause::Memory { space, fault }
}

fn lanes(exec: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |lane| exec >> lane & 1 != 0)
}

/// A lane's `words` registers, from the code of the first, which has the lowest bits.
fn registers(wave: &Wave, code: u16, lane: usize, words: u16) -> u128 {
    let word = |word| u128::from(wave.lane(code + word, lane)) << (32 * word);
    (0..words).fold(0, |all, at| all | word(at))
}

fn write(wave: &mut Wave, code: u16, lane: usize, words: u16, data: u128) {
    (0..words).for_each(|word| wave.set_lane(code + word, lane, (data >> (32 * word)) as u32));
}

/// FLAT, GLOBAL or SCRATCH, with what it has taken from registers.
pub(crate) struct Issued {
    inst: Inst,
    memory: Memory,
    exec: u64,
    /// Of each lane; offsets in scratch memory behind `PRIVATE_BASE`, also for SCRATCH.
    addresses: [u64; 64],
    data: [u128; 64],
}

impl Issued {
    pub(crate) fn of(wave: &Wave, inst: &Inst, memory: Memory) -> Issued {
        let exec = wave.exec();
        let (mut addresses, mut data) = ([0; 64], [0; 64]);
        for lane in lanes(exec) {
            addresses[lane] = address(wave, inst, lane);
            data[lane] = registers(wave, inst.src[1], lane, memory.data());
        }
        Issued { inst: inst.clone(), memory, exec, addresses, data }
    }

    /// On gfx90a a wave finds its scratch memory by a descriptor, or a base, that the kernel has made of what it was given.
    pub(crate) fn check_scratch(&self, wave: &Wave) -> Result<(), Cause> {
        let is_private =
            |lane| (PRIVATE_BASE..PRIVATE_BASE + APERTURE).contains(&self.addresses[lane]);
        if self.inst.target != Target::Gfx90a || !lanes(self.exec).any(is_private) {
            return Ok(());
        }
        let found = match self.inst.segment {
            BUFFER => (wave.scalar64(self.inst.mask), wave.scalar64(self.inst.mask + 2)),
            _ => (wave.scalar64(FLAT_SCRATCH), SCRATCH_WORDS),
        };
        let is_own = found == (wave.scratch_at, SCRATCH_WORDS);
        if is_own {
            Ok(())
        } else {
            Err(Cause::Scratch { found: found.0, expected: wave.scratch_at })
        }
    }

    /// Whether no lane accesses global memory.
    pub(crate) fn is_local(&self) -> bool {
        self.inst.segment != 2 && lanes(self.exec).all(|lane| self.addresses[lane] >= SHARED_BASE)
    }

    /// The lines of memory that it accesses, of 64 bytes; no lane's access is longer than 16.
    pub(crate) fn lines(&self) -> BTreeSet<u64> {
        let starts = lanes(self.exec).map(|lane| self.addresses[lane]);
        starts.flat_map(|at| [at / 64, at.wrapping_add(15) / 64]).collect()
    }

    /// Vector registers that it writes.
    pub(crate) fn results(&self) -> Range<u16> {
        self.inst.dst..self.inst.dst + self.memory.result(&self.inst)
    }

    /// One lane after the other.
    pub(crate) fn complete(
        &self,
        wave: &mut Wave,
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        let (inst, memory) = (&self.inst, self.memory);
        wave.unsettled |= !memory.loads();
        for lane in lanes(self.exec) {
            let mut target = self.target(lane, wave, port, lds);
            let found = access(&mut target, memory, self.data[lane])?;
            write(wave, inst.dst, lane, memory.result(inst), found);
        }
        Ok(())
    }

    fn target<'a, 'b>(
        &self,
        lane: usize,
        wave: &'a mut Wave,
        port: &'a mut Port<'b>,
        lds: &'a mut [u8],
    ) -> Spot<'a, 'b> {
        let address = self.addresses[lane];
        if self.inst.segment < 2 && (SHARED_BASE..SHARED_BASE + APERTURE).contains(&address) {
            return Spot::Local(Local { bytes: lds, space: "LDS", offset: address - SHARED_BASE });
        }
        if self.inst.segment != 2 && (PRIVATE_BASE..PRIVATE_BASE + APERTURE).contains(&address) {
            let size = wave.scratch_size as usize;
            let bytes = &mut wave.scratch[lane * size..(lane + 1) * size];
            return Spot::Local(Local { bytes, space: "scratch", offset: address - PRIVATE_BASE });
        }
        let reach = match self.inst.target {
            // SC1 is device or system scope.
            Target::Gfx942 if self.inst.sc1 => Reach::Memory,
            // GLC of a load is both.
            Target::Gfx90a if self.inst.sc0 && self.memory.loads() => Reach::L2,
            _ => Reach::Vector,
        };
        Spot::Global(port, address, reach)
    }
}

/// Where a lane's access goes.
fn address(wave: &Wave, inst: &Inst, lane: usize) -> u64 {
    let (base, offset) = (inst.src[2], i64::from(inst.offset));
    match (inst.segment, base) {
        (1 | BUFFER, base) => {
            let vector = if inst.src[0] == OFF { 0 } else { wave.lane(inst.src[0], lane) };
            let base = match inst.segment {
                // Of all lanes, whose words take turns.
                BUFFER => wave.scalar(base) / 64,
                _ if base == OFF => 0,
                _ => wave.scalar(base),
            };
            PRIVATE_BASE + u64::from(vector.wrapping_add(base).wrapping_add(offset as u32))
        }
        (2, base) if base != OFF => wave
            .scalar64(base)
            .wrapping_add(wave.lane(inst.src[0], lane).into())
            .wrapping_add_signed(offset),
        _ => wave.lane64(inst.src[0], lane).wrapping_add_signed(offset),
    }
}

/// One lane's access, and what it found.
fn access(target: &mut Spot<'_, '_>, memory: Memory, data: u128) -> Result<u128, Cause> {
    let (bytes, mut found) = (memory.bytes * u64::from(memory.words), 0);
    match memory.action {
        Action::Load | Action::LoadSigned => {
            for (at, length) in target.steps(bytes) {
                found |= u128::from(target.load(at, length)?) << (8 * at);
            }
            if matches!(memory.action, Action::LoadSigned) {
                let unused = 32 - 8 * bytes;
                found = (((found as i32) << unused >> unused) as u32).into();
            }
        }
        Action::Store => {
            for (at, length) in target.steps(bytes) {
                target.store(at, length, (data >> (8 * at)) as u64)?;
            }
        }
        Action::Atomic(f) => found = target.update(bytes, |old| f(old, data as u64))?.into(),
        Action::Swap => {
            let new = (data & ((1 << (8 * bytes)) - 1)) as u64;
            let swap = |old| if u128::from(old) == data >> (8 * bytes) { new } else { old };
            found = target.update(bytes, swap)?.into();
        }
    }
    Ok(found)
}

/// DS, one lane after the other.
pub(crate) fn ds(
    wave: &mut Wave,
    inst: &Inst,
    (memory, stride): (Memory, u32),
    lds: &mut [u8],
) -> Result<(), Cause> {
    let (offset, words, each) = (inst.offset as u32, memory.result(inst), memory.ds_data(stride));
    let offsets =
        [if stride == 0 { offset } else { (offset & 0xff) * stride }, (offset >> 8) * stride];
    let count = if stride == 0 { 1 } else { 2 };
    for lane in lanes(wave.exec()) {
        let address = wave.lane(inst.src[0], lane);
        let [first, second] =
            [0, 1].map(|index| registers(wave, inst.src[1 + index], lane, each[index]));
        let data = match memory {
            Memory { action: Action::Swap, words, .. } => [second | first << (32 * words), 0],
            _ => [first, second],
        };
        for index in 0..count {
            let offset = address.wrapping_add(offsets[index]).into();
            let local = Local { bytes: &mut *lds, space: "LDS", offset };
            let found = access(&mut Spot::Local(local), memory, data[index])?;
            write(wave, inst.dst + words * index as u16, lane, words, found);
        }
    }
    Ok(())
}

/// A lane that is not active gives 0; where two give to one lane, the higher one wins.
pub(crate) fn permute(wave: &mut Wave, inst: &Inst, backward: bool) {
    let exec = wave.exec();
    let mut result = [0; 64];
    for lane in lanes(exec) {
        let address = wave.lane(inst.src[0], lane).wrapping_add(inst.offset as u32);
        let other = (address / 4) as usize & 63;
        let (to, from) = if backward { (lane, other) } else { (other, lane) };
        result[to] = if exec >> from & 1 != 0 { wave.lane(inst.src[1], from) } else { 0 };
    }
    for lane in lanes(exec) {
        wave.set_lane(inst.dst, lane, result[lane]);
    }
}
