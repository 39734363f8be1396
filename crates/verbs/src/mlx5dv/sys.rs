//! The used part of `infiniband/mlx5dv.h`: declarations, and the functions of libmlx5.

// The names are the header's.
#![allow(missing_docs, non_camel_case_types)]

use crate::sys::{Plain, functions, ibv_ah, ibv_context, ibv_device, ibv_pd};
use libc::off_t;
use std::ffi::{c_int, c_uint, c_void};

/// An object of firmware.
pub enum mlx5dv_devx_obj {}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_devx_umem {
    pub umem_id: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_devx_uar {
    pub reg_addr: *mut c_void,
    pub base_addr: *mut c_void,
    pub page_id: u32,
    pub mmap_off: off_t,
    pub comp_mask: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_devx_event_channel {
    pub fd: c_int,
}

/// The event of firmware follows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_devx_async_event_hdr {
    pub cookie: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_devx_umem_in {
    /// The address, or the offset in a dmabuf.
    pub addr: *mut c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: c_int,
}

/// In `mlx5dv_devx_umem_in`: the memory is a dmabuf's.
pub const MLX5DV_UMEM_MASK_DMABUF: u64 = 1;

/// One kind of object in [`mlx5dv_obj`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_obj_pair<I, O> {
    pub in_: I,
    pub out: O,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_obj {
    pub qp: mlx5dv_obj_pair<*mut c_void, *mut c_void>,
    pub cq: mlx5dv_obj_pair<*mut c_void, *mut c_void>,
    pub srq: mlx5dv_obj_pair<*mut c_void, *mut c_void>,
    pub rwq: mlx5dv_obj_pair<*mut c_void, *mut c_void>,
    pub dm: mlx5dv_obj_pair<*mut c_void, *mut c_void>,
    pub ah: mlx5dv_obj_pair<*mut ibv_ah, *mut mlx5dv_ah>,
    pub pd: mlx5dv_obj_pair<*mut ibv_pd, *mut mlx5dv_pd>,
}

pub const MLX5DV_OBJ_AH: u64 = 1 << 5;
pub const MLX5DV_OBJ_PD: u64 = 1 << 6;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_pd {
    pub pdn: u32,
    pub comp_mask: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_ah {
    pub av: *mut mlx5_wqe_av,
    pub comp_mask: u64,
}

/// Address vector of a datagram; words are big-endian.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5_wqe_av {
    pub key: u64,
    pub dqp_dct: u32,
    pub stat_rate_sl: u8,
    pub fl_mlid: u8,
    pub rlid: u16,
    pub reserved0: [u8; 4],
    pub rmac: [u8; 6],
    pub tclass: u8,
    pub hop_limit: u8,
    pub grh_gid_fl: u32,
    pub rgid: [u8; 16],
}

// SAFETY: integers and raw pointers.
unsafe impl Plain for mlx5dv_obj {}
// SAFETY: as above.
unsafe impl Plain for mlx5dv_pd {}
// SAFETY: as above.
unsafe impl Plain for mlx5dv_ah {}

/// Kinds of doorbell pages: not cached, one for the context.
pub const MLX5DV_UAR_ALLOC_TYPE_NC: u32 = 1;
/// Not cached, a register of its own.
pub const MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED: u32 = 1 << 31;

functions! {
    /// The functions of a loaded libmlx5 that are used.
    Mlx5Api
    required {
        "MLX5_1.8" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool;
        "MLX5_1.2" fn mlx5dv_init_obj(obj: *mut mlx5dv_obj, kinds: u64) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_general_cmd(context: *mut ibv_context, input: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_obj_create(context: *mut ibv_context, input: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> *mut mlx5dv_devx_obj;
        "MLX5_1.7" fn mlx5dv_devx_obj_query(obj: *mut mlx5dv_devx_obj, input: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_obj_modify(obj: *mut mlx5dv_devx_obj, input: *const c_void, inlen: usize, out: *mut c_void, outlen: usize) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_obj_destroy(obj: *mut mlx5dv_devx_obj) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_umem_reg(context: *mut ibv_context, addr: *mut c_void, size: usize, access: u32) -> *mut mlx5dv_devx_umem;
        "MLX5_1.7" fn mlx5dv_devx_umem_dereg(umem: *mut mlx5dv_devx_umem) -> c_int;
        "MLX5_1.7" fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar;
        "MLX5_1.7" fn mlx5dv_devx_free_uar(uar: *mut mlx5dv_devx_uar);
        "MLX5_1.7" fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> c_int;
    }
    optional {
        // rdma-core 25.
        "MLX5_1.11" fn mlx5dv_devx_create_event_channel(context: *mut ibv_context, flags: c_uint) -> *mut mlx5dv_devx_event_channel;
        "MLX5_1.11" fn mlx5dv_devx_destroy_event_channel(channel: *mut mlx5dv_devx_event_channel);
        "MLX5_1.11" fn mlx5dv_devx_subscribe_devx_event(channel: *mut mlx5dv_devx_event_channel, obj: *mut mlx5dv_devx_obj, bytes: u16, kinds: *mut u16, cookie: u64) -> c_int;
        "MLX5_1.11" fn mlx5dv_devx_get_event(channel: *mut mlx5dv_devx_event_channel, event: *mut mlx5dv_devx_async_event_hdr, len: usize) -> isize;
        // rdma-core 35.
        "MLX5_1.19" fn mlx5dv_devx_umem_reg_ex(context: *mut ibv_context, umem: *mut mlx5dv_devx_umem_in) -> *mut mlx5dv_devx_umem;
    }
}
