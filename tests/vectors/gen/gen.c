/*
 * Makes the golden vectors from rdma-core's public header alone: its structs, setters and
 * constants. Where that header has no struct (masked atomics, WAIT, doorbells, CQ arm), the words are
 * written here with htobe. None of this project's own encoders is used.
 *
 *   cc -o gen gen.c && ./gen OUTPUT_DIRECTORY
 */
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

#define QPN 0x00012eu
#define RADDR 0x00007f1122334450ull
#define RKEY 0x0badc0deu
#define LADDR 0x00007f99aabbccd0ull
#define LKEY 0x1234abcdu
#define SIGNALED MLX5_WQE_CTRL_CQ_UPDATE

static FILE *out;
static unsigned char buf[1024];
static size_t used;

static void begin(const char *name, const char *kind)
{
	memset(buf, 0, sizeof buf);
	used = 0;
	fprintf(out, "\nvector %s\nkind %s\n", name, kind);
}

static void end(size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		fprintf(out, "%s%02x", i % 16 ? " " : i ? "\nhex " : "hex ", buf[i]);
	fprintf(out, "\nend\n");
}

static void end_wqe(void)
{
	end((used + 63) / 64 * 64);
}

static void put(const void *bytes, size_t n)
{
	memcpy(buf + used, bytes, n);
	used += n;
}

static void ctrl(unsigned index, unsigned opcode, unsigned opmod, unsigned flags, unsigned ds,
		 uint32_t imm)
{
	struct mlx5_wqe_ctrl_seg seg = {0};

	mlx5dv_set_ctrl_seg(&seg, index, opcode, opmod, QPN, flags, ds, 0, htobe32(imm));
	put(&seg, sizeof seg);
	fprintf(out, "opcode 0x%02x\nopmod 0x%02x\nindex 0x%04x\nqpn 0x%06x\nfm_ce_se 0x%02x\n"
		     "ds %u\nimm 0x%08x\n", opcode, opmod, index, QPN, flags, ds, imm);
}

static void raddr(ull addr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg seg = {.raddr = htobe64(addr), .rkey = htobe32(rkey)};

	put(&seg, sizeof seg);
	fprintf(out, "raddr 0x%016llx 0x%08x\n", addr, rkey);
}

static void data(ull addr, uint32_t length, uint32_t lkey)
{
	struct mlx5_wqe_data_seg seg;

	mlx5dv_set_data_seg(&seg, length, lkey, addr);
	put(&seg, sizeof seg);
	fprintf(out, "data 0x%016llx %u 0x%08x\n", addr, length, lkey);
}

static void inlined(unsigned n)
{
	struct mlx5_wqe_inl_data_seg seg = {.byte_count = htobe32(n | MLX5_INLINE_SEG)};

	put(&seg, sizeof seg);
	fprintf(out, "inline");
	for (unsigned i = 0; i < n; i++) {
		unsigned char byte = 0xa0 + i;
		put(&byte, 1);
		fprintf(out, " %02x", byte);
	}
	fprintf(out, "\n");
	used = (used + 15) / 16 * 16;
}

static void atomic(ull swap_add, ull compare)
{
	struct mlx5_wqe_atomic_seg seg = {htobe64(swap_add), htobe64(compare)};

	put(&seg, sizeof seg);
	fprintf(out, "atomic 0x%016llx 0x%016llx\n", swap_add, compare);
}

static void words(const char *key, unsigned n, const uint32_t *w)
{
	fprintf(out, "%s", key);
	for (unsigned i = 0; i < n; i++) {
		uint32_t be = htobe32(w[i]);
		put(&be, 4);
		fprintf(out, " 0x%08x", w[i]);
	}
	fprintf(out, "\n");
}

static void longs(const char *key, unsigned n, const uint64_t *w)
{
	fprintf(out, "%s", key);
	for (unsigned i = 0; i < n; i++) {
		uint64_t be = htobe64(w[i]);
		put(&be, 8);
		fprintf(out, " 0x%016llx", (ull)w[i]);
	}
	fprintf(out, "\n");
}

static void sends(void)
{
	begin("nop", "send_wqe");
	ctrl(0, MLX5_OPCODE_NOP, 0, SIGNALED, 1, 0);
	end_wqe();

	begin("send_empty", "send_wqe");
	ctrl(1, MLX5_OPCODE_SEND, 0, 0, 1, 0);
	end_wqe();

	begin("send_one_sge_solicited", "send_wqe");
	ctrl(0x7fff, MLX5_OPCODE_SEND, 0, SIGNALED | MLX5_WQE_CTRL_SOLICITED, 2, 0);
	data(LADDR, 4096, LKEY);
	end_wqe();

	begin("send_imm_two_sges", "send_wqe");
	ctrl(0x8000, MLX5_OPCODE_SEND_IMM, 0, SIGNALED, 3, 0xcafef00d);
	data(LADDR, 1, LKEY);
	data(LADDR + 64, 0x7fffffff, LKEY + 1);
	end_wqe();

	begin("send_inval_inline", "send_wqe");
	ctrl(0x1234, MLX5_OPCODE_SEND_INVAL, 0, MLX5_WQE_CTRL_FENCE, 3, RKEY);
	inlined(28);
	end_wqe();

	begin("local_inval", "send_wqe");
	ctrl(0x1235, MLX5_OPCODE_LOCAL_INVAL, 0, MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE | SIGNALED, 1,
	     RKEY);
	end_wqe();

	// The header has neither opcode.
	begin("wait", "send_wqe");
	ctrl(0x1236, 0x0f, 0, SIGNALED, 2, 0);
	memset(buf + used, 0, 8);
	used += 8;
	words("wait", 2, (uint32_t[]){0x00fffffe, 0x00000203});
	end_wqe();

	begin("dump", "send_wqe");
	ctrl(0x1237, 0x23, 0, MLX5_WQE_CTRL_FENCE | SIGNALED, 2, 0);
	data(LADDR, 1, LKEY);
	end_wqe();
}

static void writes(void)
{
	begin("write_one_sge", "send_wqe");
	ctrl(0xffff, MLX5_OPCODE_RDMA_WRITE, 0, SIGNALED, 3, 0);
	raddr(RADDR, RKEY);
	data(LADDR, 8, LKEY);
	end_wqe();

	begin("write_empty", "send_wqe");
	ctrl(0, MLX5_OPCODE_RDMA_WRITE, 0, 0, 2, 0);
	raddr(RADDR, RKEY);
	end_wqe();

	begin("write_inline_12", "send_wqe");
	ctrl(2, MLX5_OPCODE_RDMA_WRITE, 0, 0, 3, 0);
	raddr(RADDR, RKEY);
	inlined(12);
	end_wqe();

	begin("write_inline_13", "send_wqe");
	ctrl(3, MLX5_OPCODE_RDMA_WRITE, 0, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	inlined(13);
	end_wqe();

	begin("write_imm_inline_60", "send_wqe");
	ctrl(4, MLX5_OPCODE_RDMA_WRITE_IMM, 0, SIGNALED, 6, 0x01020304);
	raddr(RADDR, RKEY);
	inlined(60);
	end_wqe();

	begin("write_imm_empty", "send_wqe");
	ctrl(5, MLX5_OPCODE_RDMA_WRITE_IMM, 0, SIGNALED, 2, 7);
	raddr(RADDR, RKEY);
	end_wqe();

	begin("write_61_sges", "send_wqe");
	ctrl(0xfff8, MLX5_OPCODE_RDMA_WRITE, 0, 0x60 | SIGNALED, 63, 0);
	raddr(RADDR, RKEY);
	for (unsigned i = 0; i < 61; i++)
		data(LADDR + 256 * i, i + 1, LKEY + i);
	end_wqe();

	begin("read_three_sges", "send_wqe");
	ctrl(6, MLX5_OPCODE_RDMA_READ, 0, SIGNALED, 5, 0);
	raddr(RADDR, RKEY);
	data(LADDR, 16, LKEY);
	data(LADDR + 4096, 32, LKEY);
	data(LADDR + 8192, 64, LKEY);
	end_wqe();
}

static void atomics(void)
{
	const uint32_t fa4[] = {5, 0x80008000, 0, 0};
	const uint64_t fa8[] = {5, 0x8000000080000000ull};
	const uint32_t cs4[] = {0x11111111, 0x22222222, 0x0000ffff, 0xffff0000};
	const uint64_t cs8[] = {0x1111111111111111ull, 0x2222222222222222ull,
				0x00000000ffffffffull, 0xffffffff00000000ull};

	begin("compare_swap", "send_wqe");
	ctrl(7, MLX5_OPCODE_ATOMIC_CS, 0, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	atomic(0x1122334455667788ull, 0x99aabbccddeeff00ull);
	data(LADDR, 8, LKEY);
	end_wqe();

	begin("fetch_add", "send_wqe");
	ctrl(8, MLX5_OPCODE_ATOMIC_FA, 0, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	atomic(1, 0);
	data(LADDR, 8, LKEY);
	end_wqe();

	begin("masked_fetch_add_4", "send_wqe");
	ctrl(9, MLX5_OPCODE_ATOMIC_MASKED_FA, 8, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	words("masked_fa4", 4, fa4);
	data(LADDR, 4, LKEY);
	end_wqe();

	begin("masked_fetch_add_8", "send_wqe");
	ctrl(10, MLX5_OPCODE_ATOMIC_MASKED_FA, 9, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	longs("masked_fa8", 2, fa8);
	data(LADDR, 8, LKEY);
	end_wqe();

	begin("masked_compare_swap_4", "send_wqe");
	ctrl(11, MLX5_OPCODE_ATOMIC_MASKED_CS, 8, SIGNALED, 4, 0);
	raddr(RADDR, RKEY);
	words("masked_cs4", 4, cs4);
	data(LADDR, 4, LKEY);
	end_wqe();

	begin("masked_compare_swap_8", "send_wqe");
	ctrl(0xffff, MLX5_OPCODE_ATOMIC_MASKED_CS, 9, SIGNALED, 5, 0);
	raddr(RADDR, RKEY);
	longs("masked_cs8", 4, cs8);
	data(LADDR, 8, LKEY);
	end_wqe();
}

static void receives(void)
{
	begin("recv_two_of_four", "recv_wqe");
	data(LADDR, 4096, LKEY);
	data(LADDR + 4096, 100, LKEY + 1);
	data(0, 0, MLX5_INVALID_LKEY);
	end(64);

	begin("recv_full", "recv_wqe");
	data(LADDR, 1, LKEY);
	end(16);

	begin("recv_empty", "recv_wqe");
	data(0, 0, MLX5_INVALID_LKEY);
	end(32);

	begin("srq_one_of_three", "srq_wqe");
	struct mlx5_wqe_srq_next_seg next = {.next_wqe_index = htobe16(0x0102)};
	put(&next, sizeof next);
	fprintf(out, "next 0x0102\n");
	data(LADDR, 2048, LKEY);
	data(0, 0, MLX5_INVALID_LKEY);
	end(64);
}

static void cqe(const char *name, unsigned opcode, unsigned wqe_opcode, unsigned counter,
		unsigned byte_cnt, uint32_t imm, uint32_t srqn, unsigned se, unsigned owner)
{
	struct mlx5_cqe64 cqe = {0};

	begin(name, "cqe");
	cqe.srqn_uidx = htobe32(srqn);
	cqe.imm_inval_pkey = htobe32(imm);
	cqe.byte_cnt = htobe32(byte_cnt);
	cqe.sop_drop_qpn = htobe32(wqe_opcode << 24 | QPN);
	cqe.wqe_counter = htobe16(counter);
	cqe.op_own = opcode << 4 | se << 1;
	mlx5dv_set_cqe_owner(&cqe, owner);
	fprintf(out, "cqe_opcode %u\nwqe_opcode 0x%02x\nqpn 0x%06x\nwqe_counter 0x%04x\n"
		     "byte_cnt %u\nimm 0x%08x\nsrqn %u\nsolicited %u\nformat %u\nowner %u\n",
		mlx5dv_get_cqe_opcode(&cqe), wqe_opcode, QPN, counter, byte_cnt, imm, srqn,
		mlx5dv_get_cqe_se(&cqe), mlx5dv_get_cqe_format(&cqe),
		mlx5dv_get_cqe_owner(&cqe));
	put(&cqe, sizeof cqe);
	end(64);
}

static void err_cqe(const char *name, unsigned opcode, unsigned wqe_opcode, unsigned counter,
		    unsigned syndrome, unsigned vendor, uint32_t srqn, unsigned owner)
{
	struct mlx5_err_cqe cqe = {0};

	begin(name, "cqe");
	cqe.srqn = htobe32(srqn);
	cqe.vendor_err_synd = vendor;
	cqe.syndrome = syndrome;
	cqe.s_wqe_opcode_qpn = htobe32(wqe_opcode << 24 | QPN);
	cqe.wqe_counter = htobe16(counter);
	cqe.op_own = opcode << 4 | owner;
	fprintf(out, "cqe_opcode %u\nwqe_opcode 0x%02x\nqpn 0x%06x\nwqe_counter 0x%04x\n"
		     "syndrome 0x%02x\nvendor 0x%02x\nsrqn %u\nowner %u\n",
		opcode, wqe_opcode, QPN, counter, syndrome, vendor, srqn, owner);
	put(&cqe, sizeof cqe);
	end(64);
}

static void completions(void)
{
	cqe("req_write", MLX5_CQE_REQ, MLX5_OPCODE_RDMA_WRITE, 0xffff, 0, 0, 0, 0, 0);
	cqe("req_read_lap_1", MLX5_CQE_REQ, MLX5_OPCODE_RDMA_READ, 6, 112, 0, 0, 0, 1);
	cqe("resp_write_imm", MLX5_CQE_RESP_WR_IMM, 0, 3, 60, 0x01020304, 0, 0, 0);
	cqe("resp_send_solicited", MLX5_CQE_RESP_SEND, 0, 4, 4096, 0, 0, 1, 1);
	cqe("resp_send_imm_srq", MLX5_CQE_RESP_SEND_IMM, 0, 5, 1, 0xcafef00d, 0x77, 0, 0);
	cqe("resp_send_inval", MLX5_CQE_RESP_SEND_INV, 0, 6, 28, RKEY, 0, 0, 1);
	err_cqe("req_err_remote_access", MLX5_CQE_REQ_ERR, MLX5_OPCODE_RDMA_WRITE, 0x1f3a,
		MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0x88, 0, 0);
	err_cqe("req_err_flush", MLX5_CQE_REQ_ERR, MLX5_OPCODE_SEND, 0x1f3b,
		MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0xf9, 0, 1);
	err_cqe("resp_err_local_prot_srq", MLX5_CQE_RESP_ERR, 0, 9,
		MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 0x51, 0x77, 0);
}

static void doorbells(void)
{
	struct mlx5_wqe_ctrl_seg seg = {0};
	uint32_t dbr[2];

	begin("last_wqe_dialect", "doorbell");
	mlx5dv_set_ctrl_seg(&seg, 0xffff, MLX5_OPCODE_ATOMIC_MASKED_CS, 9, QPN, SIGNALED, 5, 0, 0);
	put(&seg, 8);
	fprintf(out, "last_index 0xffff\nopmod 0x09\nopcode 0x14\nds 5\nqpn 0x%06x\nnext 0x0001\n",
		QPN);
	end(8);

	begin("next_index_dialect", "doorbell");
	dbr[0] = htobe32(0xfffeu << 8);
	dbr[1] = htobe32(QPN << 8);
	put(dbr, 8);
	fprintf(out, "qpn 0x%06x\nnext 0xfffe\n", QPN);
	end(8);

	begin("qp_record", "qp_dbr");
	dbr[MLX5_RCV_DBR] = htobe32(0x12349 & 0xffff);
	dbr[MLX5_SND_DBR] = htobe32(0x5ffff & 0xffff);
	put(dbr, 8);
	fprintf(out, "received 0x12349\nsent 0x5ffff\n");
	end(8);

	begin("cq_record", "cq_dbr");
	dbr[0] = htobe32(0x1234567 & 0xffffff);
	dbr[1] = htobe32(2u << 28 | 1u << 24 | (0x1234567 & 0xffffff));
	put(dbr, 8);
	fprintf(out, "ci 0x1234567\nsn 2\nsolicited_only 1\n");
	end(8);

	begin("cq_arm_doorbell", "cq_arm");
	dbr[0] = htobe32(3u << 28 | 0x42);
	dbr[1] = htobe32(0x1b2);
	put(dbr, 8);
	fprintf(out, "ci 0x42\nsn 3\nsolicited_only 0\ncqn 0x1b2\n");
	end(8);
}

static void file(const char *dir, const char *name, void (*fill)(void))
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	out = fopen(path, "w");
	if (!out) {
		perror(path);
		exit(1);
	}
	fprintf(out, "# Made by gen/gen.c over infiniband/mlx5dv.h. Format: README.md.\n");
	fill();
	if (fclose(out)) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s OUTPUT_DIRECTORY\n", argv[0]);
		return 2;
	}
	file(argv[1], "send.txt", sends);
	file(argv[1], "write_read.txt", writes);
	file(argv[1], "atomic.txt", atomics);
	file(argv[1], "recv.txt", receives);
	file(argv[1], "cqe.txt", completions);
	file(argv[1], "doorbell.txt", doorbells);
	return 0;
}
