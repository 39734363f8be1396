//! The instruction at which a thread has stopped, if it stores 8 bytes.

use std::ffi::c_void;

/// A store of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    /// The value.
    pub(crate) value: u64,
    /// Bytes of the instruction.
    len: u8,
}

/// Where an instruction has its value.
#[cfg(any(target_arch = "x86_64", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A general register, as instructions number them.
    Register(u8),
    Immediate(i32),
}

/// A `mov` or `movnti` of 8 bytes to memory: its value, and its length. `None` for any other
/// instruction. `next` gives its bytes one by one.
#[cfg(any(target_arch = "x86_64", test))]
fn decode(mut next: impl FnMut() -> u8) -> Option<(Source, u8)> {
    let mut len = 0;
    let mut byte = || {
        len += 1;
        next()
    };
    // REX.W: operands of 8 bytes.
    let rex = byte();
    if rex & 0xf8 != 0x48 {
        return None;
    }
    let is_immediate = match byte() {
        0x89 => false,
        0xc7 => true,
        0x0f if byte() == 0xc3 => false,
        _ => return None,
    };
    let modrm = byte();
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if mode == 3 || (is_immediate && reg != 0) {
        return None;
    }
    let base = if rm == 4 { byte() & 7 } else { rm };
    let displacement = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    for _ in 0..displacement {
        byte();
    }
    let source = match is_immediate {
        true => Source::Immediate(i32::from_le_bytes(std::array::from_fn(|_| byte()))),
        // REX.R.
        false => Source::Register(reg | (rex & 4) << 1),
    };
    Some((source, len))
}

#[cfg(target_arch = "x86_64")]
mod thread {
    use super::{Source, Store, c_void, decode};

    /// General registers as instructions number them.
    const REGISTERS: [i32; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    impl Store {
        /// The one at which the thread has stopped.
        ///
        /// # Safety
        /// `context` is that of a thread that a fault of this instruction has stopped, as the kernel gives it
        /// to a handler.
        pub(crate) unsafe fn of(context: *mut c_void) -> Option<Self> {
            // SAFETY: as the caller says.
            let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
            let mut at = registers[libc::REG_RIP as usize] as *const u8;
            let (source, len) = decode(|| {
                // SAFETY: a byte of the instruction that the processor has read, since no byte behind its end is
                // asked for.
                let byte = unsafe { at.read() };
                at = at.wrapping_add(1);
                byte
            })?;
            let value = match source {
                Source::Register(number) => {
                    registers[REGISTERS[usize::from(number)] as usize].cast_unsigned()
                }
                Source::Immediate(value) => i64::from(value).cast_unsigned(),
            };
            Some(Self { value, len })
        }

        /// The thread goes on behind it.
        ///
        /// # Safety
        /// As for [`Self::of`], with the same context.
        pub(crate) unsafe fn finish(self, context: *mut c_void) {
            // SAFETY: as the caller says.
            let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
            registers[libc::REG_RIP as usize] += i64::from(self.len);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Store {
    /// None: instructions of other processors are not decoded.
    ///
    /// # Safety
    /// Always safe.
    pub(crate) unsafe fn of(_: *mut c_void) -> Option<Self> {
        None
    }

    /// Never called.
    ///
    /// # Safety
    /// Always safe.
    pub(crate) unsafe fn finish(self, _: *mut c_void) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes bytes behind which nothing may be read.
    fn decoded(bytes: &[u8]) -> Option<(Source, u8)> {
        let mut bytes = bytes.iter().copied();
        decode(|| bytes.next().expect("a byte of the instruction"))
    }

    #[test]
    fn stores_of_eight_bytes_are_decoded() {
        use Source::{Immediate, Register};
        for (bytes, expected) in [
            // mov %rax,(%rdx)
            (&[0x48, 0x89, 0x02][..], Register(0)),
            // mov %r9,(%r8)
            (&[0x4d, 0x89, 0x08], Register(9)),
            // mov %rbx,(%rsp)
            (&[0x48, 0x89, 0x1c, 0x24], Register(3)),
            // mov %rsi,0x8(%rsp,%rcx,4)
            (&[0x48, 0x89, 0x74, 0x8c, 0x08], Register(6)),
            // mov %r15,0x12345678(%r13)
            (&[0x4d, 0x89, 0xbd, 0x78, 0x56, 0x34, 0x12], Register(15)),
            // mov %rdi,0x0(%rip)
            (&[0x48, 0x89, 0x3d, 0, 0, 0, 0], Register(7)),
            // mov %rax,0x12345678(,%rcx,8)
            (&[0x48, 0x89, 0x04, 0xcd, 0x78, 0x56, 0x34, 0x12], Register(0)),
            // mov %rbp,0x0(%rbp)
            (&[0x48, 0x89, 0x6d, 0x00], Register(5)),
            // movnti %rdx,(%rax)
            (&[0x48, 0x0f, 0xc3, 0x10], Register(2)),
            // movq $-2,0x10(%rax)
            (&[0x48, 0xc7, 0x40, 0x10, 0xfe, 0xff, 0xff, 0xff], Immediate(-2)),
        ] {
            assert_eq!(decoded(bytes), Some((expected, bytes.len() as u8)), "{bytes:x?}");
        }
    }

    #[test]
    fn other_instructions_are_left() {
        for bytes in [
            // mov %eax,(%rdx): 4 bytes
            &[0x89][..],
            // mov (%rdx),%rax: a load
            &[0x48, 0x8b],
            // mov %rax,%rdx: no memory
            &[0x48, 0x89, 0xc2],
            // movq %xmm0,(%rdx)
            &[0x66],
            // xchg %rax,(%rdx)
            &[0x48, 0x87],
            // an opcode that 0xc7 shares
            &[0x48, 0xc7, 0x08],
            // rep stos
            &[0xf3],
        ] {
            assert_eq!(decoded(bytes), None, "{bytes:x?}");
        }
    }
}
