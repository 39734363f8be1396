/* What programs have in common that drive an unmodified library of a device without one: the calls by which the
 * library reaches the kernel are answered by the program, because its functions come before those of libibverbs.
 *
 * Lines of words in hexadecimal come from stdin, and each is answered:
 *
 *   send OPCODE FLAGS IMM RADDR RKEY COMPARE SWAP N {ADDR LEN LKEY}   -> wqe BYTES [entry BYTES] doorbell WORD
 *   recv N {ADDR LEN LKEY}                                            -> wqe BYTES doorbell WORD
 *   cqe BYTES               -> for each completion: wc ID STATUS LENGTH OPCODE FLAGS IMM SOURCE; done DOORBELL
 *
 * Inline bytes are LKEY, LKEY + 1 and so on. RADDR and RKEY of a datagram are the QP there and its queue key. */
#include <dlfcn.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { QPN = 0x42, CQN = 5, HANDLE = 0x54321, PAGE = 4096, STRIDE = 128, DEPTH = 256, MOST = 6, CQE = 32 };

/* The functions of a provider that are called here directly, by their places in its table. */
struct provider {
	const char *name;
	uint32_t min_abi, max_abi;
	void *match_table, *static_providers, *match_device;
	struct verbs_context *(*alloc_context)(struct ibv_device *, int, void *);
	void *import_context;
	struct ibv_device *(*alloc_device)(void *);
};

static const struct provider *provider;
static uint8_t *sq, *rq, *cq;
static struct ibv_ah *address;

/* The numbers of packets of a send, where a format has them. */
static void print_packets(uint64_t id);

static void fail(const char *what)
{
	fprintf(stderr, "%s failed\n", what);
	exit(1);
}

/* Addresses at the end of a command, where a provider puts what is its own. */
static uint64_t last(const void *command, size_t size, int words)
{
	uint64_t word;
	memcpy(&word, (const char *)command + size - 8 * words, 8);
	return word;
}

static void put32(void *response, size_t offset, uint32_t value)
{
	memcpy((char *)response + offset, &value, 4);
}

/* The library's context of the device of this file. `about` is what libibverbs knows about a device. */
static struct ibv_context *opened(void *about, int file)
{
	struct verbs_context *context = provider->alloc_context(provider->alloc_device(about), file, NULL);
	if (!context)
		fail("alloc_context");
	return &context->context;
}

int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, void *cmd, size_t cmd_size)
{
	(void)qp, (void)attr, (void)mask, (void)cmd, (void)cmd_size;
	return 0;
}

static struct ibv_qp *connect_qp(struct ibv_context *context, enum ibv_qp_type type, uint32_t sends, struct ibv_cq **completions)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	*completions = ibv_create_cq(context, 63, NULL, NULL, 0);
	if (!pd || !*completions)
		fail("ibv_alloc_pd or ibv_create_cq");
	struct ibv_qp_init_attr init = { .send_cq = *completions, .recv_cq = *completions, .qp_type = type };
	init.cap = (struct ibv_qp_cap){ sends, DEPTH - 1, MOST, MOST, 96 };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	if (!qp)
		fail("ibv_create_qp");
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	address = type == IBV_QPT_UD ? ibv_create_ah(pd, &to) : NULL;
	if (type == IBV_QPT_UD && !address)
		fail("ibv_create_ah");
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	int failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	failed |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0x123456;
	failed |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (failed)
		fail("ibv_modify_qp");
	return qp;
}

static uint64_t word(char **rest)
{
	char *text = strsep(rest, " \n");
	if (!text || !*text)
		fail("reading a number");
	return strtoull(text, NULL, 16);
}

static int entries(char **rest, struct ibv_sge *sges)
{
	int count = (int)word(rest);
	if (count > MOST)
		fail("reading entries");
	for (int i = 0; i < count; i++) {
		sges[i].addr = word(rest);
		sges[i].length = (uint32_t)word(rest);
		sges[i].lkey = (uint32_t)word(rest);
	}
	return count;
}

static void print(const char *name, const uint8_t *bytes, int count)
{
	printf("%s ", name);
	for (int i = 0; i < count; i++)
		printf("%02x", bytes[i]);
	printf(" ");
}

static void post_send(struct ibv_qp *qp, char *rest, uint64_t id, const uint64_t *doorbell)
{
	struct ibv_sge sges[MOST];
	uint8_t bytes[96];
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sges }, *bad;
	wr.opcode = (enum ibv_wr_opcode)word(&rest);
	wr.send_flags = (unsigned)word(&rest);
	uint32_t imm = (uint32_t)word(&rest);
	/* A key to invalidate stands in the same place, in the order of the CPU. */
	wr.imm_data = wr.opcode == IBV_WR_SEND_WITH_INV ? imm : htobe32(imm);
	uint64_t remote = word(&rest), rkey = word(&rest), compare = word(&rest), swap = word(&rest);
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = (uint32_t)rkey;
		wr.wr.atomic.compare_add = compare;
		wr.wr.atomic.swap = swap;
	} else if (address) {
		wr.wr.ud.ah = address;
		wr.wr.ud.remote_qpn = (uint32_t)remote;
		wr.wr.ud.remote_qkey = (uint32_t)rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = (uint32_t)rkey;
	}
	wr.num_sge = entries(&rest, sges);
	if (wr.send_flags & IBV_SEND_INLINE) {
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(sges[0].lkey + i);
		sges[0].addr = (uintptr_t)bytes;
	}
	if (ibv_post_send(qp, &wr, &bad))
		fail("ibv_post_send");
	print("wqe", sq + id % DEPTH * STRIDE, STRIDE);
	print_packets(id);
	printf("doorbell %" PRIx64 "\n", *doorbell);
}

static void post_recv(struct ibv_qp *qp, char *rest, uint64_t id, const uint64_t *doorbell)
{
	struct ibv_sge sges[MOST];
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sges }, *bad;
	wr.num_sge = entries(&rest, sges);
	if (ibv_post_recv(qp, &wr, &bad))
		fail("ibv_post_recv");
	print("wqe", rq + id % DEPTH * STRIDE, STRIDE);
	printf("doorbell %" PRIx64 "\n", *doorbell);
}

/* Puts an entry into the CQ, as a device does, and takes what the library makes of it. */
static void complete(struct ibv_cq *completions, uint32_t depth, char *text, uint64_t index, const uint64_t *doorbell)
{
	struct ibv_wc wc[MOST];
	for (int i = 0; i < CQE; i++) {
		unsigned byte;
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			fail("reading an entry of the CQ");
		cq[index % depth * CQE + i] = (uint8_t)byte;
	}
	int found;
	while ((found = ibv_poll_cq(completions, MOST, wc)) > 0)
		for (int i = 0; i < found; i++)
			printf("wc %" PRIx64 " %x %x %x %x %x %x\n", wc[i].wr_id, wc[i].status, wc[i].byte_len, wc[i].opcode,
			       wc[i].wc_flags, be32toh(wc[i].imm_data), wc[i].src_qp);
	if (found < 0)
		fail("ibv_poll_cq");
	printf("done %" PRIx64 "\n", *doorbell);
}

/* The last doorbells of each kind of queue. */
struct doorbells {
	const uint64_t *send, *receive, *completion;
};

/* Answers each line of stdin. */
static void drive(struct ibv_qp *qp, struct ibv_cq *completions, uint32_t cq_depth, struct doorbells last)
{
	char line[1024], *rest;
	for (uint64_t sends = 0, receives = 0, cqes = 0; (rest = fgets(line, sizeof(line), stdin)); fflush(stdout)) {
		const char *command = strsep(&rest, " ");
		if (!strcmp(command, "send"))
			post_send(qp, rest, sends++, last.send);
		else if (!strcmp(command, "recv"))
			post_recv(qp, rest, receives++, last.receive);
		else
			complete(completions, cq_depth, rest, cqes++, last.completion);
	}
}
