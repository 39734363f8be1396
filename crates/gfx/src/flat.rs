//! Instructions that access memory for each lane: FLAT, GLOBAL, SCRATCH, buffers of scratch memory, and DS.
use crate::cache::{Port, Reach};
use crate::code::{BUFFER, FLAT_SCRATCH, OFF};
use crate::error::{Access, Cause, MemoryFault};
use crate::inst::{Inst, Memory};
use crate::target::Target;
use crate::wave::{APERTURE, PRIVATE_BASE, SCRATCH_WORDS, SHARED_BASE, Wave};
use std::collections::BTreeSet;

impl Memory {
    /// Vector registers of the address, if there are any: an offset alone if there is a base or it is scratch memory.
    pub(crate) fn address(inst: &Inst) -> u16 {
        match (inst.segment, inst.src[2]) {
            (1 | BUFFER, _) => 1,
            (2, base) if base != OFF => 1,
            _ => 2,
        }
    }

    /// Registers of the data.
    pub(crate) fn data(self) -> u16 {
        match self {
            Memory::Load { .. } => 0,
            Memory::Store { words, .. } | Memory::Atomic { words, .. } => words,
            Memory::Swap { words } => 2 * words,
        }
    }

    /// The same of DS, of each operand beside the address.
    pub(crate) fn ds_data(self, stride: u32) -> [u16; 2] {
        match self {
            Memory::Store { words, .. } if stride != 0 => [words; 2],
            Memory::Swap { words } => [words; 2],
            _ => [self.data(), 0],
        }
    }

    /// Registers of the result.
    pub(crate) fn result(self, inst: &Inst) -> u16 {
        match self {
            Memory::Load { words, .. } => words,
            Memory::Atomic { words, .. } | Memory::Swap { words } if inst.sc0 => words,
            _ => 0,
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

    /// The words and bytes of each access to `words` of 4: a pair is one access to global memory if the address allows that.
    fn steps(&self, words: u16) -> impl Iterator<Item = (usize, u64)> + use<> {
        let pairs = matches!(self, Spot::Global(_, address, _) if address.is_multiple_of(8));
        let step = 1 + usize::from(pairs);
        let words = usize::from(words);
        (0..words).step_by(step).map(move |word| (word, 4 * step.min(words - word) as u64))
    }
}

pub(crate) fn fault(space: &'static str) -> impl Fn(MemoryFault) -> Cause {
    move |fault| Cause::Memory { space, fault }
}

fn lanes(exec: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |lane| exec >> lane & 1 != 0)
}

fn extend(value: u64, bytes: u64, signed: bool) -> u32 {
    let unused = 32 - 8 * bytes as u32;
    if signed { ((value as i32) << unused >> unused) as u32 } else { value as u32 }
}

fn load_words(target: &mut Spot<'_, '_>, words: u16) -> Result<[u32; 4], Cause> {
    let mut data = [0; 4];
    for (word, length) in target.steps(words) {
        let [low, high, ..] = halves(target.load(4 * word as u64, length)?);
        data[word] = low;
        if length == 8 {
            data[word + 1] = high;
        }
    }
    Ok(data)
}

fn store_words(target: &mut Spot<'_, '_>, words: u16, data: [u32; 4]) -> Result<(), Cause> {
    let mut steps = target.steps(words);
    steps.try_for_each(|(word, length)| {
        target.store(4 * word as u64, length, number(&data, word as u16, length as u16 / 4))
    })
}

/// A lane's `words` registers, from the code of the first.
fn registers(wave: &Wave, code: u16, lane: usize, words: u16) -> [u32; 4] {
    let mut data = [0; 4];
    for word in 0..words {
        data[usize::from(word)] = wave.lane(code + word, lane);
    }
    data
}

fn write(wave: &mut Wave, code: u16, lane: usize, words: u16, data: [u32; 4]) {
    for word in 0..words {
        wave.set_lane(code + word, lane, data[usize::from(word)]);
    }
}

fn halves(value: u64) -> [u32; 4] {
    [value as u32, (value >> 32) as u32, 0, 0]
}

/// FLAT, GLOBAL or SCRATCH, with what it has taken from registers.
pub(crate) struct Issued {
    inst: Inst,
    memory: Memory,
    exec: u64,
    /// Of each lane; offsets in scratch memory behind `PRIVATE_BASE`, also for SCRATCH.
    addresses: [u64; 64],
    data: [[u32; 4]; 64],
}

impl Issued {
    pub(crate) fn of(wave: &Wave, inst: &Inst, memory: Memory) -> Issued {
        let exec = wave.exec();
        let (mut addresses, mut data) = ([0; 64], [[0; 4]; 64]);
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

    /// Whether both access a line of memory. Lines of 64 bytes; no access is longer than 16.
    pub(crate) fn meets(&self, other: &Issued) -> bool {
        let lines = |access: &Issued| {
            let ends = lanes(access.exec).map(|lane| access.addresses[lane]);
            ends.flat_map(|at| [at / 64, at.wrapping_add(15) / 64]).collect::<BTreeSet<_>>()
        };
        !lines(self).is_disjoint(&lines(other))
    }

    /// One lane after the other.
    pub(crate) fn complete(
        &self,
        wave: &mut Wave,
        port: &mut Port<'_>,
        lds: &mut [u8],
    ) -> Result<(), Cause> {
        let (inst, memory) = (&self.inst, self.memory);
        wave.unsettled |= !matches!(memory, Memory::Load { .. });
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
        let reach = match (self.inst.target, self.memory) {
            // SC1 is device or system scope.
            (Target::Gfx942, _) if self.inst.sc1 => Reach::Memory,
            // GLC of a load is both.
            (Target::Gfx90a, Memory::Load { .. }) if self.inst.sc0 => Reach::L2,
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
fn access(target: &mut Spot<'_, '_>, memory: Memory, data: [u32; 4]) -> Result<[u32; 4], Cause> {
    Ok(match memory {
        Memory::Load { bytes: 4, words, .. } => load_words(target, words)?,
        Memory::Load { bytes, signed, .. } => {
            [extend(target.load(0, bytes)?, bytes, signed), 0, 0, 0]
        }
        Memory::Store { bytes: 4, words } => store_words(target, words, data).map(|()| [0; 4])?,
        Memory::Store { bytes, .. } => target.store(0, bytes, data[0].into()).map(|()| [0; 4])?,
        Memory::Atomic { words, f } => {
            let value = number(&data, 0, words);
            halves(target.update(4 * u64::from(words), |old| f(old, value))?)
        }
        Memory::Swap { words } => {
            let (new, wanted) = (number(&data, 0, words), number(&data, words, words));
            let swap = |old| if old == wanted { new } else { old };
            halves(target.update(4 * u64::from(words), swap)?)
        }
    })
}

/// One or two words, from the `first`.
fn number(data: &[u32; 4], first: u16, words: u16) -> u64 {
    let first = usize::from(first);
    let high = if words == 2 { data[first + 1] } else { 0 };
    u64::from(data[first]) | u64::from(high) << 32
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
        let mut data = [0, 1].map(|index| registers(wave, inst.src[1 + index], lane, each[index]));
        if let Memory::Swap { words } = memory {
            let wanted = data[0];
            data[0] = data[1];
            data[0][words.into()..][..words.into()].copy_from_slice(&wanted[..words.into()]);
        }
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
