// Layouts as structs, for code that reads WQEs and CQEs back. Fields are big-endian.
// Mirrors crates/mlx5/src/segment and cqe; offsets are asserted on both sides.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv {
namespace mlx5 {

struct CtrlSeg {
  u8 opmod;
  u8 wqe_index[2];
  u8 opcode;
  u8 qpn[3];
  u8 ds;
  u8 signature;
  u8 dci_stream_channel_id[2];
  u8 fm_ce_se;
  u32 imm;
};

struct RaddrSeg {
  u64 raddr;
  u32 rkey;
  u32 reserved;
};

struct DataSeg {
  u32 byte_count;
  u32 lkey;
  u64 addr;
};

struct AtomicSeg {
  u64 swap_add;
  u64 compare;
};

struct MaskedFa4Seg {
  u32 add;
  u32 field_boundary;
  u64 reserved;
};

struct MaskedFa8Seg {
  u64 add;
  u64 field_boundary;
};

struct MaskedCs4Seg {
  u32 swap;
  u32 compare;
  u32 swap_mask;
  u32 compare_mask;
};

struct MaskedCs8Seg {
  u64 swap;
  u64 compare;
  u64 swap_mask;
  u64 compare_mask;
};

struct WaitSeg {
  u8 reserved[8];
  u32 max_index;
  u32 cqn;
};

struct SrqNextSeg {
  u8 reserved0[2];
  u16 next_wqe_index;
  u8 signature;
  u8 reserved1[11];
};

struct Cqe64 {
  u8 reserved0[2];
  u16 wqe_id;
  u8 reserved4[13];
  u8 ml_path;
  u8 reserved18[4];
  u16 slid;
  u32 flags_rqpn;
  u8 hds_ip_ext;
  u8 l4_hdr_type_etc;
  u16 vlan_info;
  u32 srqn_uidx;
  u32 imm_inval_pkey;
  u8 app;
  u8 app_op;
  u16 app_info;
  u32 byte_cnt;
  u64 timestamp;
  u8 wqe_opcode;
  u8 qpn[3];
  u16 wqe_counter;
  u8 signature;
  u8 op_own;
};

struct ErrCqe {
  u8 reserved0[32];
  u32 srqn_uidx;
  u8 reserved36[16];
  u8 hw_error_syndrome;
  u8 hw_syndrome_type;
  u8 vendor_err_synd;
  u8 syndrome;
  u8 wqe_opcode;
  u8 qpn[3];
  u16 wqe_counter;
  u8 signature;
  u8 op_own;
};

struct QpDbr {
  u32 rcv;
  u32 snd;
};

struct CqDbr {
  u32 set_ci;
  u32 arm;
};

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

static_assert(sizeof(CtrlSeg) == 16, "CtrlSeg");
WV_AT(CtrlSeg, opcode, 3);
WV_AT(CtrlSeg, ds, 7);
WV_AT(CtrlSeg, fm_ce_se, 11);
WV_AT(CtrlSeg, imm, 12);
static_assert(sizeof(RaddrSeg) == 16, "RaddrSeg");
WV_AT(RaddrSeg, rkey, 8);
static_assert(sizeof(DataSeg) == 16, "DataSeg");
WV_AT(DataSeg, lkey, 4);
WV_AT(DataSeg, addr, 8);
static_assert(sizeof(AtomicSeg) == 16, "AtomicSeg");
static_assert(sizeof(MaskedFa4Seg) == 16, "MaskedFa4Seg");
static_assert(sizeof(MaskedFa8Seg) == 16, "MaskedFa8Seg");
static_assert(sizeof(MaskedCs4Seg) == 16, "MaskedCs4Seg");
static_assert(sizeof(MaskedCs8Seg) == 32, "MaskedCs8Seg");
static_assert(sizeof(WaitSeg) == 16, "WaitSeg");
WV_AT(WaitSeg, max_index, 8);
WV_AT(WaitSeg, cqn, 12);
static_assert(sizeof(SrqNextSeg) == 16, "SrqNextSeg");
WV_AT(SrqNextSeg, next_wqe_index, 2);
static_assert(sizeof(Cqe64) == 64, "Cqe64");
WV_AT(Cqe64, wqe_id, 2);
WV_AT(Cqe64, ml_path, 17);
WV_AT(Cqe64, slid, 22);
WV_AT(Cqe64, flags_rqpn, 24);
WV_AT(Cqe64, srqn_uidx, 32);
WV_AT(Cqe64, imm_inval_pkey, 36);
WV_AT(Cqe64, byte_cnt, 44);
WV_AT(Cqe64, timestamp, 48);
WV_AT(Cqe64, wqe_opcode, 56);
WV_AT(Cqe64, wqe_counter, 60);
WV_AT(Cqe64, op_own, 63);
static_assert(sizeof(ErrCqe) == 64, "ErrCqe");
WV_AT(ErrCqe, srqn_uidx, 32);
WV_AT(ErrCqe, hw_error_syndrome, 52);
WV_AT(ErrCqe, vendor_err_synd, 54);
WV_AT(ErrCqe, syndrome, 55);
WV_AT(ErrCqe, wqe_opcode, 56);
WV_AT(ErrCqe, op_own, 63);
static_assert(sizeof(QpDbr) == 8 && sizeof(CqDbr) == 8, "records");

#undef WV_AT

}  // namespace mlx5
}  // namespace wv
