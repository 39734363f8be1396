// Generated from crates/mlx5/src/{segment,cqe,doorbell.rs}; fields are big-endian.
#pragma once

#include "warpverbs/arch/types.h"

namespace wv::mlx5 {

#define WV_AT(type, field, at) \
  static_assert(WV_OFFSETOF(type, field) == at, #type "." #field)

// Control segment, 16 bytes.
struct CtrlSeg {
  u8 opmod;  // Modifier of the opcode: operand size of masked atomics, else 0.
  u8 wqe_index[2];  // Index of the WQE's first WQEBB, 16 bits, not masked to the ring.
  u8 opcode;  // See `crate::opcode::SendOpcode`.
  u8 qpn[3];  // The QP that owns the queue.
  u8 ds;  // Segments of the WQE, this one included, in bits 5..0; bits 7..6 are zero.
  u8 signature;  // Of signed WQEs; no device looks at it where the QP does not sign.
  u8 dci_stream_channel_id[2];  // Stream channel of a DCI; not looked at elsewhere.
  u8 fm_ce_se;  // See `crate::flags::Flags`.
  u32 imm;  // Immediate value, or the key to invalidate.
};
static_assert(sizeof(CtrlSeg) == 16, "CtrlSeg");
WV_AT(CtrlSeg, opmod, 0);
WV_AT(CtrlSeg, wqe_index, 1);
WV_AT(CtrlSeg, opcode, 3);
WV_AT(CtrlSeg, qpn, 4);
WV_AT(CtrlSeg, ds, 7);
WV_AT(CtrlSeg, signature, 8);
WV_AT(CtrlSeg, dci_stream_channel_id, 9);
WV_AT(CtrlSeg, fm_ce_se, 11);
WV_AT(CtrlSeg, imm, 12);

// Remote address segment, 16 bytes.
struct RaddrSeg {
  u64 raddr;  // Address at the responder.
  u32 rkey;  // Key at the responder.
  u32 reserved;  // Not looked at.
};
static_assert(sizeof(RaddrSeg) == 16, "RaddrSeg");
WV_AT(RaddrSeg, raddr, 0);
WV_AT(RaddrSeg, rkey, 8);
WV_AT(RaddrSeg, reserved, 12);

// Pointer data segment, 16 bytes: one entry of a scatter/gather list.
struct DataSeg {
  u32 byte_count;  // Bytes, 1 to 2^31 − 1.
  u32 lkey;  // Key of the local memory.
  u64 addr;  // Address of the local memory.
};
static_assert(sizeof(DataSeg) == 16, "DataSeg");
WV_AT(DataSeg, byte_count, 0);
WV_AT(DataSeg, lkey, 4);
WV_AT(DataSeg, addr, 8);

// First 4 bytes of an inline segment; the payload follows at once and is padded to 16 bytes.
struct InlineHeader {
  u32 byte_count;  // Payload bytes, with `INLINE_BIT`.
};
static_assert(sizeof(InlineHeader) == 4, "InlineHeader");
WV_AT(InlineHeader, byte_count, 0);

// 8-byte compare-and-swap and fetch-and-add, 16 bytes.
struct AtomicSeg {
  u64 swap_add;  // Value to store, or to add.
  u64 compare;  // Value to compare with; not used by fetch-and-add.
};
static_assert(sizeof(AtomicSeg) == 16, "AtomicSeg");
WV_AT(AtomicSeg, swap_add, 0);
WV_AT(AtomicSeg, compare, 8);

// 4-byte masked fetch-and-add, 16 bytes.
struct MaskedFa4Seg {
  u32 add;  // Value to add.
  u32 field_boundary;  // Bits out of which no carry goes.
  u64 reserved;  // Not looked at.
};
static_assert(sizeof(MaskedFa4Seg) == 16, "MaskedFa4Seg");
WV_AT(MaskedFa4Seg, add, 0);
WV_AT(MaskedFa4Seg, field_boundary, 4);
WV_AT(MaskedFa4Seg, reserved, 8);

// 8-byte masked fetch-and-add, 16 bytes.
struct MaskedFa8Seg {
  u64 add;  // Value to add.
  u64 field_boundary;  // Bits out of which no carry goes.
};
static_assert(sizeof(MaskedFa8Seg) == 16, "MaskedFa8Seg");
WV_AT(MaskedFa8Seg, add, 0);
WV_AT(MaskedFa8Seg, field_boundary, 8);

// 4-byte masked compare-and-swap, 16 bytes.
struct MaskedCs4Seg {
  u32 swap;  // Value to store.
  u32 compare;  // Value to compare with.
  u32 swap_mask;  // Bits to store.
  u32 compare_mask;  // Bits to compare.
};
static_assert(sizeof(MaskedCs4Seg) == 16, "MaskedCs4Seg");
WV_AT(MaskedCs4Seg, swap, 0);
WV_AT(MaskedCs4Seg, compare, 4);
WV_AT(MaskedCs4Seg, swap_mask, 8);
WV_AT(MaskedCs4Seg, compare_mask, 12);

// 8-byte masked compare-and-swap, 32 bytes: two DS units.
struct MaskedCs8Seg {
  u64 swap;  // Value to store.
  u64 compare;  // Value to compare with.
  u64 swap_mask;  // Bits to store.
  u64 compare_mask;  // Bits to compare.
};
static_assert(sizeof(MaskedCs8Seg) == 32, "MaskedCs8Seg");
WV_AT(MaskedCs8Seg, swap, 0);
WV_AT(MaskedCs8Seg, compare, 8);
WV_AT(MaskedCs8Seg, swap_mask, 16);
WV_AT(MaskedCs8Seg, compare_mask, 24);

// WAIT segment, 16 bytes.
struct WaitSeg {
  u8 reserved[8];  // Not looked at.
  u32 max_index;  // Index of the CQE to wait for; the low 24 bits count, as in every index of a CQ.
  u32 cqn;  // The CQ.
};
static_assert(sizeof(WaitSeg) == 16, "WaitSeg");
WV_AT(WaitSeg, reserved, 0);
WV_AT(WaitSeg, max_index, 8);
WV_AT(WaitSeg, cqn, 12);

// First segment of an SRQ WQE, 16 bytes.
struct SrqNextSeg {
  u8 reserved0[2];  // Software's own.
  u16 next_wqe_index;  // Index of the next free WQE: software's own free list.
  u8 signature;  // Of signed WQEs.
  u8 reserved1[11];  // Software's own.
};
static_assert(sizeof(SrqNextSeg) == 16, "SrqNextSeg");
WV_AT(SrqNextSeg, reserved0, 0);
WV_AT(SrqNextSeg, next_wqe_index, 2);
WV_AT(SrqNextSeg, signature, 4);
WV_AT(SrqNextSeg, reserved1, 5);

// Address vector of UD and DC, 48 bytes; between control and remote address.
struct DatagramSeg {
  u64 dc_key;  // DC key, or the queue key in the first four bytes and four that are not looked at.
  u8 ext;  // Bit 31 of these four bytes: the long form follows. The rest is not looked at.
  u8 dqp_dct[3];  // Destination QP or DCT number.
  u8 stat_rate_sl;  // Static rate and service level.
  u8 fl_mlid;  // Force-loopback bit and low LID bits.
  u16 rlid;  // Remote LID, or UDP source port.
  u8 reserved[4];  // Not looked at.
  u8 rmac[6];  // Remote MAC.
  u8 tclass;  // Traffic class.
  u8 hop_limit;  // Hop limit.
  u32 grh_gid_fl;  // GRH bit, GID index, flow label.
  u8 rgid[16];  // Remote GID.
};
static_assert(sizeof(DatagramSeg) == 48, "DatagramSeg");
WV_AT(DatagramSeg, dc_key, 0);
WV_AT(DatagramSeg, ext, 8);
WV_AT(DatagramSeg, dqp_dct, 9);
WV_AT(DatagramSeg, stat_rate_sl, 12);
WV_AT(DatagramSeg, fl_mlid, 13);
WV_AT(DatagramSeg, rlid, 14);
WV_AT(DatagramSeg, reserved, 16);
WV_AT(DatagramSeg, rmac, 20);
WV_AT(DatagramSeg, tclass, 26);
WV_AT(DatagramSeg, hop_limit, 27);
WV_AT(DatagramSeg, grh_gid_fl, 28);
WV_AT(DatagramSeg, rgid, 32);

// XRC segment, 16 bytes.
struct XrcSeg {
  u32 xrc_srqn;  // SRQ at the responder.
  u8 reserved[12];  // Zero.
};
static_assert(sizeof(XrcSeg) == 16, "XrcSeg");
WV_AT(XrcSeg, xrc_srqn, 0);
WV_AT(XrcSeg, reserved, 4);

// UMR control segment, 48 bytes.
struct UmrCtrlSeg {
  u8 flags;  // Inline, check-free and offset bits.
  u8 reserved0[3];  // Zero.
  u16 klm_octowords;  // Octowords of the translation list.
  u16 translation_offset;  // Offset into the translation list, or octowords of the signature block.
  u64 mkey_mask;  // Which fields of the memory key to change.
  u8 reserved1[32];  // Zero.
};
static_assert(sizeof(UmrCtrlSeg) == 48, "UmrCtrlSeg");
WV_AT(UmrCtrlSeg, flags, 0);
WV_AT(UmrCtrlSeg, reserved0, 1);
WV_AT(UmrCtrlSeg, klm_octowords, 4);
WV_AT(UmrCtrlSeg, translation_offset, 6);
WV_AT(UmrCtrlSeg, mkey_mask, 8);
WV_AT(UmrCtrlSeg, reserved1, 16);

// A completion queue entry, 64 bytes.
struct Cqe64 {
  u8 reserved0[2];  // Zero.
  u16 wqe_id;  // Work queue number in some receive completions.
  u8 reserved4[13];  // Tag matching and RSS fields of other queue types.
  u8 ml_path;  // Source path bits.
  u8 reserved18[4];  // Zero.
  u16 slid;  // Source LID.
  u8 grh_sl;  // GRH in bits 5..4, SL in bits 3..0.
  u8 rqpn[3];  // Source QP.
  u8 hds_ip_ext;  // Ethernet header checks.
  u8 l4_hdr_type_etc;  // Ethernet header types.
  u16 vlan_info;  // VLAN.
  u32 srqn_uidx;  // SRQ number, or the user's index of the QP.
  u32 imm_inval_pkey;  // Immediate, or the invalidated key.
  u8 app;  // Application.
  u8 app_op;  // Operation of the application.
  u16 app_info;  // Information of the application.
  u32 byte_cnt;  // Bytes received, or read by an RDMA READ or atomic.
  u64 timestamp;  // Clock of the device.
  u8 wqe_opcode;  // Opcode of the send WQE, in requester completions.
  u8 qpn[3];  // The local QP.
  u16 wqe_counter;  // Index of the first WQEBB of a send WQE, or index of a receive WQE; 16 bits.
  u8 signature;  // Zero unless CQEs are signed.
  u8 op_own;  // Opcode in bits 7..4, format in 3..2, solicited event in 1, owner in 0.
};
static_assert(sizeof(Cqe64) == 64, "Cqe64");
WV_AT(Cqe64, reserved0, 0);
WV_AT(Cqe64, wqe_id, 2);
WV_AT(Cqe64, reserved4, 4);
WV_AT(Cqe64, ml_path, 17);
WV_AT(Cqe64, reserved18, 18);
WV_AT(Cqe64, slid, 22);
WV_AT(Cqe64, grh_sl, 24);
WV_AT(Cqe64, rqpn, 25);
WV_AT(Cqe64, hds_ip_ext, 28);
WV_AT(Cqe64, l4_hdr_type_etc, 29);
WV_AT(Cqe64, vlan_info, 30);
WV_AT(Cqe64, srqn_uidx, 32);
WV_AT(Cqe64, imm_inval_pkey, 36);
WV_AT(Cqe64, app, 40);
WV_AT(Cqe64, app_op, 41);
WV_AT(Cqe64, app_info, 42);
WV_AT(Cqe64, byte_cnt, 44);
WV_AT(Cqe64, timestamp, 48);
WV_AT(Cqe64, wqe_opcode, 56);
WV_AT(Cqe64, qpn, 57);
WV_AT(Cqe64, wqe_counter, 60);
WV_AT(Cqe64, signature, 62);
WV_AT(Cqe64, op_own, 63);

// An error CQE, 64 bytes: `Cqe64` with syndromes in place of the timestamp's low half.
struct ErrCqe {
  u8 reserved0[32];  // Zero.
  u32 srqn_uidx;  // SRQ number, or the user's index of the QP.
  u8 reserved36[16];  // Zero.
  u8 hw_error_syndrome;  // Syndrome of the hardware unit.
  u8 hw_syndrome_type;  // Its type, high nibble.
  u8 vendor_err_synd;  // Vendor syndrome; advisory.
  u8 syndrome;  // See `crate::syndrome::Syndrome`.
  u8 wqe_opcode;  // Opcode of the send WQE, in requester completions.
  u8 qpn[3];  // The local QP.
  u16 wqe_counter;  // Index of the first WQEBB of a send WQE, or index of a receive WQE; 16 bits.
  u8 signature;  // Zero unless CQEs are signed.
  u8 op_own;  // Opcode in bits 7..4, format in 3..2, solicited event in 1, owner in 0.
};
static_assert(sizeof(ErrCqe) == 64, "ErrCqe");
WV_AT(ErrCqe, reserved0, 0);
WV_AT(ErrCqe, srqn_uidx, 32);
WV_AT(ErrCqe, reserved36, 36);
WV_AT(ErrCqe, hw_error_syndrome, 52);
WV_AT(ErrCqe, hw_syndrome_type, 53);
WV_AT(ErrCqe, vendor_err_synd, 54);
WV_AT(ErrCqe, syndrome, 55);
WV_AT(ErrCqe, wqe_opcode, 56);
WV_AT(ErrCqe, qpn, 57);
WV_AT(ErrCqe, wqe_counter, 60);
WV_AT(ErrCqe, signature, 62);
WV_AT(ErrCqe, op_own, 63);

// Doorbell record of a QP, 8 bytes.
struct QpDbr {
  u32 rcv;  // RCV: receive WQEs posted so far, 16 bits.
  u32 snd;  // SND: index of the next free WQEBB, 16 bits.
};
static_assert(sizeof(QpDbr) == 8, "QpDbr");
WV_AT(QpDbr, rcv, 0);
WV_AT(QpDbr, snd, 4);

// Doorbell record of an SRQ, 4 bytes.
struct SrqDbr {
  u32 counter;  // Receive WQEs posted so far, 16 bits.
};
static_assert(sizeof(SrqDbr) == 4, "SrqDbr");
WV_AT(SrqDbr, counter, 0);

// Doorbell record of a CQ, 8 bytes.
struct CqDbr {
  u32 set_ci;  // SET_CI: CQEs consumed so far, 24 bits.
  u32 arm;  // ARM, see `CqArm`.
};
static_assert(sizeof(CqDbr) == 8, "CqDbr");
WV_AT(CqDbr, set_ci, 0);
WV_AT(CqDbr, arm, 4);

#undef WV_AT

}  // namespace wv::mlx5
