//! In lazy mode, what `s_waitcnt vmcnt` counts, and which result a register keeps: code that compilers make counts on both.
use crate::clang;
use crate::gpu::Gpu;
use warpverbs_gfx::Target;

/// Of gfx942, whose scratch memory needs no descriptor. Each lane stores three words.
const KERNEL: &str = "
.text\n.globl waits\n.p2align 8\n.type waits,@function\nwaits:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 3, v0
  v_lshlrev_b32 v6, 4, v0
  s_waitcnt lgkmcnt(0)
  ; An access to scratch memory counts, so that the load is complete.
  global_load_dword v2, v1, s[4:5]
  scratch_store_dword off, v0, off
  s_waitcnt vmcnt(1)
  v_mov_b32 v8, v2
  ; Of two loads to a register the second one counts, wherever it is from.
  global_load_dword v9, v1, s[4:5]
  global_load_dword v9, v1, s[4:5] offset:4
  global_load_dword v10, v1, s[4:5]
  scratch_load_dword v10, off, off
  s_waitcnt vmcnt(0)
  global_store_dwordx3 v6, v[8:10], s[6:7]
  s_endpgm
.rodata\n.p2align 6\n.amdhsa_kernel waits\n.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_next_free_vgpr 12\n.amdhsa_accum_offset 12\n.amdhsa_next_free_sgpr 8\n.amdhsa_float_denorm_mode_32 3
.amdhsa_private_segment_fixed_size 16\n.amdhsa_enable_private_segment 1\n.end_amdhsa_kernel
.amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.kernels:
  - {.name: waits, .symbol: waits.kd, .kernarg_segment_size: 16, .kernarg_segment_align: 8, .group_segment_fixed_size: 0,
     .private_segment_fixed_size: 16, .wavefront_size: 64, .sgpr_count: 8, .vgpr_count: 12, .max_flat_workgroup_size: 64,
     .args: [{.offset: 0, .size: 8, .value_kind: by_value}, {.offset: 8, .size: 8, .value_kind: by_value}]}
.end_amdgpu_metadata
";

#[test]
fn accesses_count_and_results_come_in_order() {
    if clang::missing() {
        return;
    }
    let object = clang::assemble(Target::Gfx942, KERNEL);
    for seed in 0..50 {
        let gpu = Gpu::lazy(&object, seed);
        let (from, to) =
            (gpu.buffer((1000..1128).collect::<Vec<u32>>()), gpu.buffer(vec![0_u32; 256]));
        let ended = gpu.launch("waits", [1; 3], [64, 1, 1], &[from.address(), to.address()]);
        ended.unwrap_or_else(|error| panic!("{error}"));
        for (lane, found) in (0..).zip(to.to_vec().chunks(4)) {
            let expected = [1000 + 2 * lane, 1001 + 2 * lane, lane];
            assert_eq!(found[..3], expected, "lane {lane}, seed {seed}");
        }
    }
}
