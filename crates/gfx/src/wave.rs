//! A wave: 64 lanes, their registers, and their program counter.
use crate::code::{ACC, EXEC, VCC, VECTOR};
use std::sync::OnceLock;
use std::time::Instant;

/// Flat addresses of LDS and of scratch memory begin here, above all addresses of a process.
pub(crate) const SHARED_BASE: u64 = 1 << 48;
pub(crate) const PRIVATE_BASE: u64 = 2 << 48;
/// An address that stands for the scratch memory of a gfx90a, which its waves find by offsets.
pub(crate) const SCRATCH_BASE: u64 = 3 << 44;
/// The second half of the descriptor of scratch memory: no limit; words of 64 lanes take turns.
pub(crate) const SCRATCH_WORDS: u64 = 0x00e8_0000_ffff_ffff;
/// Bytes of flat addresses that each of them has.
pub(crate) const APERTURE: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Runs,
    AtBarrier,
    Ended,
}

pub(crate) struct Wave {
    pub(crate) state: State,
    /// Offset in the image.
    pub(crate) pc: u64,
    /// Address of the image.
    base: u64,
    pub(crate) scc: bool,
    /// By the codes of operands: 0 to 101 general, 106 VCC, 124 M0, 126 EXEC.
    scalars: [u32; 128],
    /// Vector registers, then accumulation registers; of each 64 lanes.
    vectors: Vec<[u32; 64]>,
    /// Of each lane `scratch_size` bytes.
    pub(crate) scratch: Vec<u8>,
    pub(crate) scratch_size: u64,
    /// The address that stands for it on gfx90a.
    pub(crate) scratch_at: u64,
    /// Whether it has stored since it last waited for its stores.
    pub(crate) unsettled: bool,
    /// Accesses that it has issued and that complete later, or have.
    pub(crate) issued: u64,
}

impl Wave {
    pub(crate) fn new(base: u64, pc: u64, exec: u64, scratch_size: u64) -> Wave {
        let mut wave = Wave {
            state: State::Runs,
            pc,
            base,
            scc: false,
            scalars: [0; 128],
            vectors: vec![[0; 64]; 512],
            scratch: vec![0; 64 * scratch_size as usize],
            scratch_size,
            scratch_at: 0,
            unsettled: false,
            issued: 0,
        };
        wave.write64(EXEC, exec);
        wave
    }

    /// The address `bytes` after that of the instruction.
    pub(crate) fn address(&self, bytes: u64) -> u64 {
        self.base + self.pc + bytes
    }

    /// Continues at an address. `step` adds the 4 bytes of the instruction afterwards.
    pub(crate) fn jump(&mut self, address: u64) {
        self.pc = address.wrapping_sub(self.base).wrapping_sub(4);
    }

    pub(crate) fn exec(&self) -> u64 {
        self.pair(EXEC)
    }

    pub(crate) fn vcc(&self) -> u64 {
        self.pair(VCC)
    }

    fn pair(&self, code: u16) -> u64 {
        let code = usize::from(code);
        u64::from(self.scalars[code]) | u64::from(self.scalars[code + 1]) << 32
    }

    pub(crate) fn write32(&mut self, code: u16, value: u32) {
        self.scalars[usize::from(code)] = value;
    }

    pub(crate) fn write64(&mut self, code: u16, value: u64) {
        self.write32(code, value as u32);
        self.write32(code + 1, (value >> 32) as u32);
    }

    /// A source of 32 bits that is no vector register and no literal.
    pub(crate) fn scalar(&self, code: u16) -> u32 {
        match code {
            0..=127 => self.scalars[usize::from(code)],
            _ => constant(code, false, self) as u32,
        }
    }

    /// A source of 64 bits that is no vector register and no literal.
    pub(crate) fn scalar64(&self, code: u16) -> u64 {
        match code {
            0..=126 => self.pair(code),
            _ => constant(code, true, self),
        }
    }

    fn row(code: u16) -> usize {
        const { assert!(ACC == VECTOR + 256) };
        usize::from(code - VECTOR)
    }

    /// A lane's 32 bits of a source that is no literal.
    pub(crate) fn lane(&self, code: u16, lane: usize) -> u32 {
        if code >= VECTOR { self.vectors[Self::row(code)][lane] } else { self.scalar(code) }
    }

    /// A lane's vector register and the next one.
    pub(crate) fn lane64(&self, code: u16, lane: usize) -> u64 {
        let row = Self::row(code);
        u64::from(self.vectors[row][lane]) | u64::from(self.vectors[row + 1][lane]) << 32
    }

    pub(crate) fn set_lane(&mut self, code: u16, lane: usize, value: u32) {
        self.vectors[Self::row(code)][lane] = value;
    }

    pub(crate) fn set_lane64(&mut self, code: u16, lane: usize, value: u64) {
        self.set_lane(code, lane, value as u32);
        self.set_lane(code + 1, lane, (value >> 32) as u32);
    }
}

/// The codes from 240 on.
pub(crate) const FLOATS: [f64; 9] =
    [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, std::f64::consts::FRAC_1_PI / 2.0];

/// The codes that are no registers.
fn constant(code: u16, wide: bool, wave: &Wave) -> u64 {
    match code {
        128..=192 => u64::from(code - 128),
        193..=208 => (192 - i64::from(code)) as u64,
        235..=238 => {
            let base = if code < 237 { SHARED_BASE } else { PRIVATE_BASE };
            let address = if code % 2 == 1 { base } else { base + APERTURE - 1 };
            if wide { address } else { address >> 32 }
        }
        240..=248 => {
            let value = FLOATS[usize::from(code - 240)];
            if wide { value.to_bits() } else { (value as f32).to_bits().into() }
        }
        251 => (wave.vcc() == 0).into(),
        252 => (wave.exec() == 0).into(),
        253 => wave.scc.into(),
        _ => 0,
    }
}

/// Ticks of the constant clock, 100 MHz, from an arbitrary zero that all devices of the process share.
pub(crate) fn ticks() -> u64 {
    static ZERO: OnceLock<Instant> = OnceLock::new();
    (ZERO.get_or_init(Instant::now).elapsed().as_nanos() / 10) as u64
}
