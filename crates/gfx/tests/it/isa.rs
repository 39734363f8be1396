//! Every scalar and vector opcode that computes, against results that were derived from AMD's description of it. The
//! models share nothing with the emulator: integers are computed without limit of width and then cut, floats in 64 bits
//! and then rounded, searches bit by bit. LLVM assembles the instructions.
//!
//! In these places the description of CDNA3 is not followed, by the emulator and the model alike:
//!
//! | | |
//! |---|---|
//! | `v_fract_f32` | is less than 1: compilers use it for `min(x - floor(x), 1 - 2^-24)` |
//! | `v_rndne_f32` | of a negative number that becomes 0 is -0, as IEEE 754 has it |
//! | `v_div_scale_f32` | conditions on a denormal double are meant of a float; a denominator whose reciprocal is denormal is scaled by 2^-64, also where the quotient is denormal: 2^64 would be infinite |
//! | `v_div_fmas_f32` | scales by 2^64 or 2^-64 as RDNA3's description has it: it takes back what `v_div_scale_f32` did |
//! | `v_div_fixup_f32` | a quotient that is no number, of operands that are, is too large |
mod model;
mod scalar;
mod vector;

use crate::clang;
use crate::gpu::Gpu;
use crate::random;
use model::{EDGES, Out};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::collections::BTreeSet;
use std::fmt::Write;
use warpverbs_gfx::{Cause, LaunchError, Target};

/// Operands of one lane, or of one wave: registers of 64 bits and a flag, which is SCC, or the lane's bit of VCC.
/// The destination holds `c` before.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    a: u64,
    b: u64,
    c: u64,
    flag: bool,
}

/// The result for a lane, of the rows of its wave; scalar instructions have waves of one row.
type Model = Box<dyn Fn(&[Row], usize) -> Out>;

/// Instructions, and what they leave. Operands in the text are `a`, `b`, `c` and `d`, of 64 bits if doubled.
struct Case {
    text: String,
    model: Model,
}

/// Lines `"instructions" [operands that count] result;`.
macro_rules! cases {
    ($($text:literal [$($operand:ident)*] $result:expr;)*) => {
        vec![$(crate::isa::Case {
            text: $text.into(),
            model: Box::new(|wave, lane| {
                $(let $operand = wave[lane].$operand;)*
                let _ = (wave, lane);
                $result
            }),
        }),*]
    };
}
use cases;

/// Registers of the operands: scalar ones, and vector ones.
const REGISTERS: [[(&str, u32); 4]; 2] =
    [[("a", 8), ("b", 10), ("c", 12), ("d", 16)], [("a", 4), ("b", 6), ("c", 8), ("d", 12)]];

impl Case {
    /// Its instructions, with registers in the place of operands.
    fn assembly(&self, vector: bool) -> String {
        let (prefix, registers) = if vector { ('v', REGISTERS[1]) } else { ('s', REGISTERS[0]) };
        let register = |word: &str| {
            let mut known = registers.iter();
            let (_, number) = known
                .find(|(name, _)| [name.to_string(), name.repeat(2)].contains(&word.into()))?;
            match word.len() {
                1 => Some(format!("{prefix}{number}")),
                2 => Some(format!("{prefix}[{number}:{}]", number + 1)),
                _ => None,
            }
        };
        let mut out = String::new();
        let boundary = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        for word in self.text.split_inclusive(boundary) {
            let end = word.trim_end_matches(boundary);
            let known = if end.is_empty() { None } else { register(end) };
            let _ = write!(out, "{}{}", known.as_deref().unwrap_or(end), &word[end.len()..]);
        }
        out
    }

    /// The opcodes of its instructions.
    fn opcodes(&self) -> impl Iterator<Item = &str> {
        let mnemonics = self.text.split('\n').filter_map(|line| line.split_whitespace().next());
        mnemonics.map(|name| {
            let short = ["_e32", "_e64", "_sdwa"].iter().find_map(|end| name.strip_suffix(end));
            short.unwrap_or(name)
        })
    }
}

/// Bytes of a case's instructions, with the jump behind them.
const SLOT: u32 = 128;
/// A kernel that loads a row for each wave or lane, jumps to a case, and stores what it leaves.
const SCALAR: [&str; 2] = [
    "s_lshl_b32 s2, s2, 5
     s_add_u32 s20, s4, s2
     s_addc_u32 s21, s5, 0
     s_load_dwordx8 s[8:15], s[20:21], 0x0
     s_waitcnt lgkmcnt(0)
     s_mov_b64 s[16:17], s[12:13]
     v_mov_b32 v1, s2
     s_cmp_lg_u32 s14, 0",
    "s_mov_b64 s[22:23], exec
     s_cselect_b32 s18, 1, 0
     s_mov_b64 exec, 1
     v_mov_b32 v2, s16
     v_mov_b32 v3, s17
     v_mov_b32 v4, s18
     v_mov_b32 v5, 0
     v_mov_b32 v6, s22
     v_mov_b32 v7, s23
     global_store_dwordx4 v1, v[2:5], s[6:7]
     global_store_dwordx2 v1, v[6:7], s[6:7] offset:16",
];
const VECTOR: [&str; 2] = [
    "s_lshl_b32 s2, s2, 6
     v_and_b32 v0, 0x3ff, v0
     v_add_u32 v0, s2, v0
     v_lshlrev_b32 v1, 5, v0
     global_load_dwordx4 v[4:7], v1, s[4:5]
     global_load_dwordx4 v[8:11], v1, s[4:5] offset:16
     s_waitcnt vmcnt(0)
     v_mov_b32 v12, v8
     v_mov_b32 v13, v9
     v_cmp_ne_u32 vcc, 0, v10",
    "s_mov_b64 exec, -1
     v_cndmask_b32_e64 v14, 0, 1, vcc
     v_mov_b32 v15, 0
     global_store_dwordx4 v1, v[12:15], s[6:7]",
];

fn kernel(name: &str, [before, behind]: [&str; 2], cases: &[Case]) -> String {
    let mut text = format!(
        ".text\n.globl {name}\n.p2align 8\n.type {name},@function\n{name}:
         s_load_dwordx4 s[4:7], s[0:1], 0x0
         s_load_dword s3, s[0:1], 0x10
         s_getpc_b64 s[28:29]
         {name}_here:
         s_waitcnt lgkmcnt(0)
         s_mul_i32 s3, s3, {SLOT}
         s_add_u32 s30, s28, {name}_end-{name}_here
         s_addc_u32 s31, s29, 0
         s_add_u32 s28, s28, {name}_cases-{name}_here
         s_addc_u32 s29, s29, 0
         s_add_u32 s28, s28, s3
         s_addc_u32 s29, s29, 0
         {before}
         s_setpc_b64 s[28:29]
         {name}_end:
         {behind}
         s_endpgm
         .p2align 7
         {name}_cases:\n"
    );
    for case in cases {
        let _ =
            writeln!(text, "{}\ns_setpc_b64 s[30:31]\n.p2align 7", case.assembly(name == "vector"));
    }
    let _ = writeln!(
        text,
        ".rodata\n.p2align 6\n.amdhsa_kernel {name}\n.amdhsa_user_sgpr_kernarg_segment_ptr 1
         .amdhsa_next_free_vgpr 24\n.amdhsa_accum_offset 16\n.amdhsa_next_free_sgpr 40\n.amdhsa_float_denorm_mode_32 3
         .end_amdhsa_kernel"
    );
    text
}

fn metadata(names: &[&str]) -> String {
    let mut text = ".amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.kernels:\n".to_owned();
    for name in names {
        let _ = writeln!(
            text,
            "  - {{.name: {name}, .symbol: {name}.kd, .kernarg_segment_size: 24, .kernarg_segment_align: 8, \
             .group_segment_fixed_size: 0, .private_segment_fixed_size: 0, .wavefront_size: 64, .sgpr_count: 40, \
             .vgpr_count: 24, .max_flat_workgroup_size: 64, .args: [\
             {{.offset: 0, .size: 8, .value_kind: by_value}}, {{.offset: 8, .size: 8, .value_kind: by_value}}, \
             {{.offset: 16, .size: 8, .value_kind: by_value}}]}}"
        );
    }
    text + ".end_amdgpu_metadata\n"
}

/// Operands of all sizes, most of them such as make instructions behave in odd ways.
fn rows(random: &mut StdRng, count: usize) -> Vec<Row> {
    let mut word = || match random.random_range(0..8) {
        0 => random.next_u64(),
        1 => random.next_u64() >> random.random_range(0..64),
        2 => random.next_u64() & 0x00ff_00ff_00ff_00ff,
        _ => {
            let mut edge = || EDGES[random.random_range(0..EDGES.len())];
            u64::from(edge()) | u64::from(edge()) << 32
        }
    };
    let mut rows: Vec<Row> = (0..count)
        .map(|_| Row { a: word(), b: word(), c: word(), flag: word() & 1 != 0 })
        .collect();
    // Equal operands, also of divisions.
    for (index, row) in rows.iter_mut().enumerate() {
        match index % 8 {
            0 => row.b = row.a,
            1 => row.c = row.a,
            _ => {}
        }
    }
    rows
}

/// Runs a case on all rows, and tells the first that is not what the model says.
fn check(gpu: &Gpu, case: (usize, &Case), rows: &[Row], wave: usize) -> Option<String> {
    let (number, case) = case;
    let words = |row: &Row| [row.a, row.b, row.c, row.flag.into()];
    let given = gpu.buffer(rows.iter().flat_map(words).collect());
    let out = gpu.buffer(vec![0_u64; 4 * rows.len()]);
    let name = if wave == 64 { "vector" } else { "scalar" };
    let blocks = [(rows.len() / wave) as u32, 1, 1];
    let arguments = [given.address(), out.address(), number as u64];
    if let Err(error) = gpu.launch(name, blocks, [64, 1, 1], &arguments) {
        return Some(format!("{}: {error}", case.text));
    }
    for (index, found) in out.to_vec().chunks(4).enumerate() {
        let wave = &rows[index / wave * wave..][..wave];
        let (lane, row) = (index % wave.len(), rows[index]);
        let expected = (case.model)(wave, lane);
        if let Some(wrong) = expected.differs(row, found, wave.len() == 1) {
            return Some(format!("{}: {row:x?}, lane {lane}: {wrong}", case.text));
        }
    }
    None
}

#[test]
fn opcodes_do_what_is_described() {
    if clang::missing() {
        return;
    }
    let mut random = random();
    let (waves, lanes) = (rows(&mut random, 384), rows(&mut random, 1024));
    for target in Target::ALL {
        let (scalar, vector) = (scalar::cases(), vector::cases(target));
        let mut text = kernel("scalar", SCALAR, &scalar) + &kernel("vector", VECTOR, &vector);
        text += &metadata(&["scalar", "vector"]);
        let gpu = Gpu::of(&clang::assemble(target, &text), 1);
        let run = |cases: &[Case], rows: &[Row], wave: usize| {
            let cases = cases.iter().enumerate();
            cases.filter_map(|case| check(&gpu, case, rows, wave)).collect::<Vec<_>>()
        };
        let mut wrong = run(&scalar, &waves, 1);
        wrong.extend(run(&vector, &lanes, 64));
        assert!(wrong.is_empty(), "{target}:\n{}", wrong.join("\n"));
        let tested: BTreeSet<&str> = scalar.iter().chain(&vector).flat_map(Case::opcodes).collect();
        let all = warpverbs_gfx::opcodes(target).filter(|name| !model::NO_RESULT.contains(name));
        let left: Vec<_> = all.filter(|name| !tested.contains(name)).collect();
        assert!(left.is_empty(), "{target}: not tested: {left:?}");
        println!("{target}: {} cases of {} opcodes", scalar.len() + vector.len(), tested.len());
    }
}

/// The only buffer of gfx90a here is the wave's scratch memory, whose base the kernel has to set up.
#[test]
fn scratch_memory_of_nobody_is_refused() {
    if clang::missing() {
        return;
    }
    let foreign = [
        "s_mov_b64 s[20:21], 0\ns_mov_b64 s[22:23], 0\nbuffer_load_dword d, a, s[20:23], 0 offen",
        "s_mov_b64 s[20:21], src_private_base\nv_mov_b32 v6, 0\nv_mov_b32 v7, s21\nflat_load_dword d, bb",
    ];
    let cases =
        foreign.map(|text| Case { text: text.into(), model: Box::new(|_, _| Out::default()) });
    let text = kernel("vector", VECTOR, &cases) + &metadata(&["vector"]);
    let gpu = Gpu::of(&clang::assemble(Target::Gfx90a, &text), 1);
    for number in 0..cases.len() as u64 {
        let rows = gpu.buffer(vec![0_u64; 256]);
        let arguments = [rows.address(), rows.address(), number];
        let error = gpu.launch("vector", [1; 3], [64, 1, 1], &arguments);
        let refused = matches!(
            &error,
            Err(LaunchError::Fault { cause: Cause::Scratch { found: 0, .. }, .. })
        );
        assert!(refused, "{error:?}");
    }
}
