//! Accesses with entries in a table of instructions that may fault.
//!
//! An entry is three 32-bit distances, each from its own place: the first byte of the instructions,
//! the byte after them, and where to go on.

use std::arch::{asm, global_asm};
use std::sync::atomic::{Ordering, compiler_fence};

/// Words that are loaded, stored and changed as a whole; `None` after a fault.
pub(crate) trait Word: Copy + Eq {
    /// # Safety
    /// `at` is the aligned address of a word of host memory, mapped or not; likewise below.
    unsafe fn load(at: u64, order: Ordering) -> Option<Self>;
    /// # Safety
    /// As above.
    unsafe fn store(self, at: u64, order: Ordering) -> Option<()>;
    /// # Safety
    /// As above.
    unsafe fn update(at: u64, change: impl Fn(Self) -> Self) -> Option<Self>;
}

/// An instruction that leaves `{failed}` alone, or, after a fault, 1 in it.
macro_rules! guarded {
    ($instruction:literal, $($operands:tt)*) => {
        asm!(
            "2:",
            $instruction,
            "3:",
            ".pushsection .text.warpverbs_fixup, \"ax\", @progbits",
            "4:",
            "mov {failed:e}, 1",
            "jmp 3b",
            ".popsection",
            ".pushsection warpverbs_faults, \"aR\", @progbits",
            ".long 2b - .",
            ".long 3b - .",
            ".long 4b - .",
            ".popsection",
            $($operands)*
        )
    };
}

macro_rules! word {
    ($ty:ty, $load:literal, $store:literal, $swap:literal, $ax:tt) => {
        impl Word for $ty {
            #[inline(always)]
            unsafe fn load(at: u64, order: Ordering) -> Option<Self> {
                let (value, failed): ($ty, u32);
                // SAFETY: the caller's word; on x86-64 every load has acquire order.
                unsafe {
                    guarded!($load, at = in(reg) at, value = out(reg) value,
                        failed = inout(reg) 0u32 => failed, options(nostack, preserves_flags));
                }
                if order != Ordering::Relaxed {
                    compiler_fence(Ordering::Acquire);
                }
                (failed == 0).then_some(value)
            }

            #[inline(always)]
            unsafe fn store(self, at: u64, order: Ordering) -> Option<()> {
                if order != Ordering::Relaxed {
                    compiler_fence(Ordering::Release);
                }
                let failed: u32;
                // SAFETY: the caller's word; on x86-64 every store has release order.
                unsafe {
                    guarded!($store, at = in(reg) at, value = in(reg) self,
                        failed = inout(reg) 0u32 => failed, options(nostack, preserves_flags));
                }
                (failed == 0).then_some(())
            }

            unsafe fn update(at: u64, change: impl Fn(Self) -> Self) -> Option<Self> {
                // SAFETY: as the caller's.
                let mut old = unsafe { Self::load(at, Ordering::Acquire) }?;
                loop {
                    let (new, found, failed): ($ty, $ty, u32);
                    new = change(old);
                    // SAFETY: the caller's word; a locked instruction is a full fence.
                    unsafe {
                        guarded!($swap, at = in(reg) at, new = in(reg) new,
                            failed = inout(reg) 0u32 => failed,
                            inout($ax) old => found, options(nostack));
                    }
                    if failed != 0 {
                        return None;
                    }
                    if found == old {
                        return Some(old);
                    }
                    old = found;
                }
            }
        }
    };
}
word!(
    u32,
    "mov {value:e}, dword ptr [{at}]",
    "mov dword ptr [{at}], {value:e}",
    "lock cmpxchg dword ptr [{at}], {new:e}",
    "eax"
);
word!(
    u64,
    "mov {value}, qword ptr [{at}]",
    "mov qword ptr [{at}], {value}",
    "lock cmpxchg qword ptr [{at}], {new}",
    "rax"
);

// Copies rdx bytes from rsi to rdi, in any overlap: 0 in eax, or 1 after a fault. It uses no stack,
// so that it can be left at any instruction. From 1 KiB on, string instructions are as fast as any
// loop on processors of the last ten years.
global_asm!(
    ".pushsection .text.warpverbs_guarded_copy, \"ax\", @progbits",
    ".globl warpverbs_guarded_copy",
    ".hidden warpverbs_guarded_copy",
    ".type warpverbs_guarded_copy, @function",
    "warpverbs_guarded_copy:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jb 6f", // the destination begins inside the source
    "cmp rdx, 16",
    "jb 3f",
    "cmp rdx, 1024",
    "jae 5f",
    // 16 to 1023 bytes: the last 16 are loaded first, because the source may end in what is
    // written.
    "movdqu xmm1, xmmword ptr [rsi + rdx - 16]",
    "lea rcx, [rdi + rdx - 16]",
    "2:",
    "cmp rdi, rcx",
    "jae 22f",
    "movdqu xmm0, xmmword ptr [rsi]",
    "movdqu xmmword ptr [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "jmp 2b",
    "22:",
    "movdqu xmmword ptr [rcx], xmm1",
    "xor eax, eax",
    "ret",
    // Below 16: two words that may overlap.
    "3:",
    "cmp rdx, 8",
    "jb 32f",
    "mov rax, qword ptr [rsi]",
    "mov rcx, qword ptr [rsi + rdx - 8]",
    "mov qword ptr [rdi], rax",
    "mov qword ptr [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    "32:",
    "cmp rdx, 4",
    "jb 33f",
    "mov eax, dword ptr [rsi]",
    "mov ecx, dword ptr [rsi + rdx - 4]",
    "mov dword ptr [rdi], eax",
    "mov dword ptr [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "33:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    "5:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    "6:",
    "lea rsi, [rsi + rdx - 1]",
    "lea rdi, [rdi + rdx - 1]",
    "mov rcx, rdx",
    "std",
    "rep movsb",
    "cld",
    "xor eax, eax",
    "ret",
    "7:",
    "cld",
    "mov eax, 1",
    "ret",
    ".size warpverbs_guarded_copy, . - warpverbs_guarded_copy",
    ".popsection",
    ".pushsection warpverbs_faults, \"aR\", @progbits",
    ".long warpverbs_guarded_copy - .",
    ".long 7b - .",
    ".long 7b - .",
    ".popsection",
);

unsafe extern "C" {
    fn warpverbs_guarded_copy(dst: u64, src: u64, len: usize) -> u32;
    #[link_name = "__start_warpverbs_faults"]
    static FIRST: [i32; 3];
    #[link_name = "__stop_warpverbs_faults"]
    static END: [i32; 3];
}

/// Copies; the ranges may overlap. After a fault some of the bytes are copied.
///
/// # Safety
/// Both are addresses of `len` bytes of host memory, mapped or not.
#[inline]
pub(crate) unsafe fn copy(dst: u64, src: u64, len: usize) -> Option<()> {
    // SAFETY: the caller's ranges; foreign code touches each byte by accesses of its own.
    let failed = unsafe { warpverbs_guarded_copy(dst, src, len) };
    (failed == 0).then_some(())
}

/// Sets bytes to a value. After a fault some of them are set.
///
/// # Safety
/// `dst` is the address of `len` bytes of host memory, mapped or not.
pub(crate) unsafe fn set(dst: u64, byte: u8, len: usize) -> Option<()> {
    let failed: u32;
    // SAFETY: the caller's range.
    unsafe {
        guarded!("rep stosb", inout("rdi") dst => _, inout("rcx") len => _, in("al") byte,
            failed = inout(reg) 0u32 => failed, options(nostack, preserves_flags));
    }
    (failed == 0).then_some(())
}

pub(super) fn resume_at(at: usize) -> Option<usize> {
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end.addr() - first.addr()) / size_of::<[i32; 3]>();
    // SAFETY: the linker puts these symbols around all entries, which nothing writes.
    let entries = unsafe { std::slice::from_raw_parts(first, count) };
    entries.iter().find_map(|entry| {
        let place = |word: &i32| (&raw const *word).addr().wrapping_add_signed(*word as isize);
        let [first, end, next] = entry;
        (place(first) <= at && at < place(end)).then(|| place(next))
    })
}
