//! A decoded instruction, and what the tables say of an opcode.
use crate::code::{BUFFER, OFF};
use crate::memory::Update;
use crate::target::Target;
use crate::wave::Wave;

/// How the bits of an instruction are laid out; the names are the manual's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Ds,
    Flat,
    Mubuf,
}

/// The kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    B16,
    B32,
    F32,
    /// Two floats, each of which may come from either half of its source.
    Pair,
    B64,
    /// A literal is extended by its sign.
    I64,
    /// A bit: SCC, or the lane's one of a mask.
    Flag,
    /// The lane's number; no operand.
    Lane,
}

impl Kind {
    /// Registers of 32 bits.
    pub(crate) fn words(self) -> u16 {
        match self {
            Kind::None | Kind::Lane => 0,
            Kind::B16 | Kind::B32 | Kind::F32 => 1,
            Kind::Pair | Kind::B64 | Kind::I64 | Kind::Flag => 2,
        }
    }
}

/// Operands as the low bits of 64, a flag as 0 or 1; result and flag.
pub(crate) type Compute = fn(&[u64; 4]) -> (u64, bool);

/// On global memory, whatever a flat address is of, or LDS: `words` of 4 bytes, or one of fewer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) action: Action,
    pub(crate) bytes: u64,
    pub(crate) words: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Load,
    /// Extends by the sign.
    LoadSigned,
    Store,
    /// Stores what this makes of what is there and the operand; returns what was there if SC0 says so.
    Atomic(Update),
    /// The same with two operands: stores the first if the second is there; of DS it is the other way round.
    Swap,
}

/// On caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coherence {
    WriteBack,
    /// L1 and L2, in the scope that SC0 and SC1 say.
    Invalidate,
    /// The L1.
    InvalidateVector,
    InvalidateScalar,
}

/// The effect of an opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Once for each active lane, or once for the wave.
    Compute(Compute),
    /// The destination gets EXEC, and EXEC what this makes of the source and EXEC.
    SaveExec(fn(u64, u64) -> u64),
    /// Adds the offset to the program counter if the condition holds.
    Branch(fn(&Wave) -> bool),
    /// Any other effect on the wave's own state.
    Wave(fn(&mut Wave, &Inst)),
    /// Words from memory into scalar registers.
    ScalarLoad(u16),
    Memory(Memory),
    /// On LDS; if the stride is not 0, with two addresses, each of which has an offset of its own in units of it.
    Ds(Memory, u32),
    Caches(Coherence),
    /// Of priorities, of code, and of what is not here: scalar stores, and an L2 with memory of other devices.
    Nothing,
    /// Until so few accesses of the wave are under way as the offset says.
    Wait,
    Barrier,
    Sleep,
    End,
    Trap,
}

/// A line of the tables.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) encoding: Encoding,
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) src: &'static [Kind],
    pub(crate) dst: Kind,
    /// Whether it yields a flag: SCC, or a mask.
    pub(crate) flag: bool,
    pub(crate) run: Run,
}

/// The part of a register that an operand of SDWA is: BYTE_0 to BYTE_3, WORD_0, WORD_1, DWORD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sdwa {
    pub(crate) dst: u8,
    /// The rest of the destination: 0 zeros, 1 the sign, 2 kept.
    pub(crate) unused: u8,
    pub(crate) src: [u8; 2],
    pub(crate) signed: [bool; 2],
}

/// One instruction. Its text is that of LLVM's disassembler.
#[derive(Clone, Debug)]
pub struct Inst {
    pub(crate) op: &'static Op,
    /// The encoding that was used, which for VOP1, VOP2 and VOPC may be VOP3.
    pub(crate) encoding: Encoding,
    /// Bytes.
    pub(crate) size: u8,
    /// Destination, by the code of a source operand.
    pub(crate) dst: u16,
    /// Where a flag goes, if it is a mask. Of a buffer instruction: the first register of its descriptor.
    pub(crate) mask: u16,
    pub(crate) src: [u16; 3],
    pub(crate) literal: u32,
    /// A bit for each source.
    pub(crate) negate: u8,
    pub(crate) absolute: u8,
    pub(crate) clamp: bool,
    pub(crate) sdwa: Option<Sdwa>,
    /// Of packed operands: of their high halves, where `negate` is of the low ones.
    pub(crate) negate_high: u8,
    /// Which half of each source the low and the high result take.
    pub(crate) halves: [u8; 2],
    /// Offsets and immediates.
    pub(crate) offset: i32,
    /// FLAT's segment: flat 0, scratch 1, global 2, and 3 for a buffer. Of a scalar load, where its offset is: in the instruction 0, in a
    /// register 1, in both 2.
    pub(crate) segment: u8,
    /// GLC, SCC and SLC on gfx90a.
    pub(crate) sc0: bool,
    pub(crate) sc1: bool,
    pub(crate) nt: bool,
    pub(crate) target: Target,
}

impl Inst {
    /// The registers of an access in the order of its text, each the first and how many: `OFF` for one that may be left
    /// out, and 0 where there is none.
    pub(crate) fn registers(&self) -> [(u16, u16); 5] {
        let (none, [address, data, base]) = ((OFF, 0), self.src);
        match (self.op.run, self.segment) {
            (Run::Ds(memory, stride), _) => {
                let (count, [first, second]) = (1 + u16::from(stride != 0), memory.ds_data(stride));
                let result = (self.dst, count * memory.result(self));
                [result, (address, 1), (data, first), (base, second), none]
            }
            (Run::Memory(memory), segment) => {
                let (result, data) = ((self.dst, memory.result(self)), (data, memory.data()));
                let address = (address, Memory::address(self));
                match segment {
                    0 => [result, address, data, none, none],
                    BUFFER => [result, data, address, (self.mask, 4), (base, 1)],
                    words => [result, address, data, (base, words.into()), none],
                }
            }
            _ => [none; 5],
        }
    }

    /// Bytes that it occupies.
    pub fn size(&self) -> usize {
        self.size.into()
    }
}
