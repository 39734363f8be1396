// Our layouts against rdma-core's public structs. Compiling it is the test.
#include <infiniband/mlx5dv.h>

#include <cstddef>

#include "warpverbs/mlx5/layout.h"
#include "warpverbs/mlx5/doorbell.h"
#include "warpverbs/mlx5/segment.h"

namespace m = wv::mlx5;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(m::ours) == sizeof(theirs), #ours)
#define SAME_OFFSET(ours, field, theirs, their_field) \
  static_assert(offsetof(m::ours, field) == offsetof(theirs, their_field), #ours "." #field)
#define SAME_VALUE(ours, theirs) static_assert(static_cast<unsigned>(ours) == (theirs), #theirs)

SAME_SIZE(CtrlSeg, mlx5_wqe_ctrl_seg);
SAME_OFFSET(CtrlSeg, opmod, mlx5_wqe_ctrl_seg, opmod_idx_opcode);
SAME_OFFSET(CtrlSeg, qpn, mlx5_wqe_ctrl_seg, qpn_ds);
SAME_OFFSET(CtrlSeg, signature, mlx5_wqe_ctrl_seg, signature);
SAME_OFFSET(CtrlSeg, dci_stream_channel_id, mlx5_wqe_ctrl_seg, dci_stream_channel_id);
SAME_OFFSET(CtrlSeg, fm_ce_se, mlx5_wqe_ctrl_seg, fm_ce_se);
SAME_OFFSET(CtrlSeg, imm, mlx5_wqe_ctrl_seg, imm);
SAME_SIZE(RaddrSeg, mlx5_wqe_raddr_seg);
SAME_OFFSET(RaddrSeg, raddr, mlx5_wqe_raddr_seg, raddr);
SAME_OFFSET(RaddrSeg, rkey, mlx5_wqe_raddr_seg, rkey);
SAME_SIZE(DataSeg, mlx5_wqe_data_seg);
SAME_OFFSET(DataSeg, byte_count, mlx5_wqe_data_seg, byte_count);
SAME_OFFSET(DataSeg, lkey, mlx5_wqe_data_seg, lkey);
SAME_OFFSET(DataSeg, addr, mlx5_wqe_data_seg, addr);
SAME_SIZE(AtomicSeg, mlx5_wqe_atomic_seg);
SAME_OFFSET(AtomicSeg, swap_add, mlx5_wqe_atomic_seg, swap_add);
SAME_OFFSET(AtomicSeg, compare, mlx5_wqe_atomic_seg, compare);
SAME_SIZE(SrqNextSeg, mlx5_wqe_srq_next_seg);
SAME_OFFSET(SrqNextSeg, next_wqe_index, mlx5_wqe_srq_next_seg, next_wqe_index);
SAME_OFFSET(SrqNextSeg, signature, mlx5_wqe_srq_next_seg, signature);
SAME_SIZE(Cqe64, mlx5_cqe64);
SAME_OFFSET(Cqe64, wqe_id, mlx5_cqe64, wqe_id);
SAME_OFFSET(Cqe64, ml_path, mlx5_cqe64, ml_path);
SAME_OFFSET(Cqe64, slid, mlx5_cqe64, slid);
SAME_OFFSET(Cqe64, grh_sl, mlx5_cqe64, flags_rqpn);
SAME_OFFSET(Cqe64, hds_ip_ext, mlx5_cqe64, hds_ip_ext);
SAME_OFFSET(Cqe64, vlan_info, mlx5_cqe64, vlan_info);
SAME_OFFSET(Cqe64, srqn_uidx, mlx5_cqe64, srqn_uidx);
SAME_OFFSET(Cqe64, imm_inval_pkey, mlx5_cqe64, imm_inval_pkey);
SAME_OFFSET(Cqe64, app, mlx5_cqe64, app);
SAME_OFFSET(Cqe64, app_info, mlx5_cqe64, app_info);
SAME_OFFSET(Cqe64, byte_cnt, mlx5_cqe64, byte_cnt);
SAME_OFFSET(Cqe64, timestamp, mlx5_cqe64, timestamp);
SAME_OFFSET(Cqe64, wqe_opcode, mlx5_cqe64, sop_drop_qpn);
SAME_OFFSET(Cqe64, wqe_counter, mlx5_cqe64, wqe_counter);
SAME_OFFSET(Cqe64, signature, mlx5_cqe64, signature);
SAME_OFFSET(Cqe64, op_own, mlx5_cqe64, op_own);
SAME_SIZE(ErrCqe, mlx5_err_cqe);
SAME_OFFSET(ErrCqe, srqn_uidx, mlx5_err_cqe, srqn);
SAME_OFFSET(ErrCqe, vendor_err_synd, mlx5_err_cqe, vendor_err_synd);
SAME_OFFSET(ErrCqe, syndrome, mlx5_err_cqe, syndrome);
SAME_OFFSET(ErrCqe, wqe_opcode, mlx5_err_cqe, s_wqe_opcode_qpn);
SAME_OFFSET(ErrCqe, wqe_counter, mlx5_err_cqe, wqe_counter);
SAME_OFFSET(ErrCqe, op_own, mlx5_err_cqe, op_own);

SAME_VALUE(m::opcode::nop, MLX5_OPCODE_NOP);
SAME_VALUE(m::opcode::send_inval, MLX5_OPCODE_SEND_INVAL);
SAME_VALUE(m::opcode::rdma_write, MLX5_OPCODE_RDMA_WRITE);
SAME_VALUE(m::opcode::rdma_write_imm, MLX5_OPCODE_RDMA_WRITE_IMM);
SAME_VALUE(m::opcode::send, MLX5_OPCODE_SEND);
SAME_VALUE(m::opcode::send_imm, MLX5_OPCODE_SEND_IMM);
SAME_VALUE(m::opcode::tso, MLX5_OPCODE_TSO);
SAME_VALUE(m::opcode::rdma_read, MLX5_OPCODE_RDMA_READ);
SAME_VALUE(m::opcode::atomic_cs, MLX5_OPCODE_ATOMIC_CS);
SAME_VALUE(m::opcode::atomic_fa, MLX5_OPCODE_ATOMIC_FA);
SAME_VALUE(m::opcode::masked_cs, MLX5_OPCODE_ATOMIC_MASKED_CS);
SAME_VALUE(m::opcode::masked_fa, MLX5_OPCODE_ATOMIC_MASKED_FA);
SAME_VALUE(m::opcode::fmr, MLX5_OPCODE_FMR);
SAME_VALUE(m::opcode::local_inval, MLX5_OPCODE_LOCAL_INVAL);
SAME_VALUE(m::opcode::config_cmd, MLX5_OPCODE_CONFIG_CMD);
SAME_VALUE(m::opcode::set_psv, MLX5_OPCODE_SET_PSV);
SAME_VALUE(m::opcode::umr, MLX5_OPCODE_UMR);
SAME_VALUE(m::opcode::tag_matching, MLX5_OPCODE_TAG_MATCHING);
SAME_VALUE(m::opcode::flow_tbl_access, MLX5_OPCODE_FLOW_TBL_ACCESS);
SAME_VALUE(m::opcode::mmo, MLX5_OPCODE_MMO);

SAME_VALUE(m::fm_ce_se(m::fm::none, m::ce::always), MLX5_WQE_CTRL_CQ_UPDATE);
SAME_VALUE(m::solicited, MLX5_WQE_CTRL_SOLICITED);
SAME_VALUE(m::fm_ce_se(m::fm::fence_and_small, m::ce::on_error), MLX5_WQE_CTRL_FENCE);
SAME_VALUE(m::fm_ce_se(m::fm::initiator_small, m::ce::on_error), MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE);
SAME_VALUE(m::inline_bit, MLX5_INLINE_SEG);
SAME_VALUE(m::lkey_terminator, MLX5_INVALID_LKEY);
SAME_VALUE(m::wqebb_bytes, MLX5_SEND_WQE_BB);
SAME_VALUE(m::dbr_rcv, MLX5_RCV_DBR);
SAME_VALUE(m::dbr_snd, MLX5_SND_DBR);

SAME_VALUE(m::cqe_opcode::req, MLX5_CQE_REQ);
SAME_VALUE(m::cqe_opcode::resp_wr_imm, MLX5_CQE_RESP_WR_IMM);
SAME_VALUE(m::cqe_opcode::resp_send, MLX5_CQE_RESP_SEND);
SAME_VALUE(m::cqe_opcode::resp_send_imm, MLX5_CQE_RESP_SEND_IMM);
SAME_VALUE(m::cqe_opcode::resp_send_inv, MLX5_CQE_RESP_SEND_INV);
SAME_VALUE(m::cqe_opcode::resize_cq, MLX5_CQE_RESIZE_CQ);
SAME_VALUE(m::cqe_opcode::no_packet, MLX5_CQE_NO_PACKET);
SAME_VALUE(m::cqe_opcode::sig_err, MLX5_CQE_SIG_ERR);
SAME_VALUE(m::cqe_opcode::req_err, MLX5_CQE_REQ_ERR);
SAME_VALUE(m::cqe_opcode::resp_err, MLX5_CQE_RESP_ERR);
SAME_VALUE(m::cqe_opcode::invalid, MLX5_CQE_INVALID);

SAME_VALUE(m::syndrome::local_length, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
SAME_VALUE(m::syndrome::local_qp_op, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
SAME_VALUE(m::syndrome::local_prot, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
SAME_VALUE(m::syndrome::wr_flush, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
SAME_VALUE(m::syndrome::mw_bind, MLX5_CQE_SYNDROME_MW_BIND_ERR);
SAME_VALUE(m::syndrome::bad_resp, MLX5_CQE_SYNDROME_BAD_RESP_ERR);
SAME_VALUE(m::syndrome::local_access, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR);
SAME_VALUE(m::syndrome::remote_inval_req, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
SAME_VALUE(m::syndrome::remote_access, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
SAME_VALUE(m::syndrome::remote_op, MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
SAME_VALUE(m::syndrome::transport_retry_exc, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
SAME_VALUE(m::syndrome::rnr_retry_exc, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
SAME_VALUE(m::syndrome::remote_aborted, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR);
