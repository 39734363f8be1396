/* Drives an unmodified libbnxt_re without a device (driven.h).
 *
 *   library PATH CHIP ENTRY rc|ud   the library, the chip's number, bytes of an entry of its packet number
 *                                   table, and the type of the QP */
#define _GNU_SOURCE
#include "driven.h"

static uint32_t chip, entry;
static uint64_t handle;

void verbs_register_driver_34(const struct provider *ops) { provider = ops; }

int ibv_cmd_get_context(struct verbs_context *context, void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	(void)context, (void)cmd, (void)cmd_size;
	memset(resp, 0, resp_size);
	/* Behind 8 bytes that all devices have. */
	put32(resp, 8 + 4, 1024);
	put32(resp, 8 + 8, PAGE);
	put32(resp, 8 + 12, CQE);
	put32(resp, 8 + 16, 4096);
	put32(resp, 8 + 24, 1);
	put32(resp, 8 + 32, chip);
	return 0;
}

int ibv_cmd_query_device_any(struct ibv_context *context, void *input, struct ibv_device_attr_ex *attr, size_t size,
			     void *resp, size_t *resp_size)
{
	(void)context, (void)input, (void)resp, (void)resp_size;
	memset(attr, 0, size);
	attr->orig_attr.max_qp = 1024;
	attr->orig_attr.max_qp_wr = 4096;
	attr->orig_attr.max_sge = MOST;
	attr->orig_attr.max_cqe = 4096;
	attr->orig_attr.atomic_cap = IBV_ATOMIC_HCA;
	return 0;
}

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	(void)cmd, (void)cmd_size;
	memset(resp, 0, resp_size);
	pd->context = context;
	/* The doorbell page is the second of the file. */
	put32(resp, resp_size - 8, PAGE);
	return 0;
}

int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int vector, struct ibv_cq *out,
		      void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	(void)channel, (void)vector;
	memset(resp, 0, resp_size);
	out->context = context;
	out->cqe = cqe;
	cq = (uint8_t *)last(cmd, cmd_size, 2);
	put32(resp, 8, CQN);
	put32(resp, 8 + 8, 1);
	return 0;
}

int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr, void *cmd, size_t cmd_size,
		      void *resp, size_t resp_size)
{
	memset(resp, 0, resp_size);
	qp->context = pd->context;
	qp->pd = pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->qp_type = attr->qp_type;
	qp->qp_num = QPN;
	sq = (uint8_t *)last(cmd, cmd_size, 3);
	rq = (uint8_t *)last(cmd, cmd_size, 2);
	handle = last(cmd, cmd_size, 1);
	put32(resp, resp_size - 8, QPN);
	return 0;
}

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr, void *resp, size_t resp_size)
{
	(void)attr;
	memset(resp, 0, resp_size);
	ah->context = pd->context;
	return 0;
}

static void print_packets(uint64_t id)
{
	print("entry", sq + DEPTH * STRIDE + id % DEPTH * entry, (int)entry);
}

int main(int argc, char **argv)
{
	int file = memfd_create("device", 0);
	if (argc != 5 || file < 0 || ftruncate(file, 2 * PAGE))
		fail("reading the arguments, or memfd_create");
	chip = (uint32_t)strtoul(argv[2], NULL, 16);
	entry = (uint32_t)strtoul(argv[3], NULL, 16);
	if (!dlopen(argv[1], RTLD_NOW) || !provider)
		fail(dlerror());
	uint64_t *doorbell = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, PAGE);
	/* The device tells numbers of address handles in the first page. */
	uint32_t number = HANDLE;
	if (pwrite(file, &number, sizeof(number), 0x10) != sizeof(number))
		fail("pwrite");
	enum ibv_qp_type type = strcmp(argv[4], "ud") ? IBV_QPT_RC : IBV_QPT_UD;
	struct ibv_cq *completions;
	struct ibv_qp *qp = connect_qp(opened(NULL, file), type, DEPTH / 2 - 1, &completions);
	uint32_t cq_depth = (uint32_t)completions->cqe + 1;
	printf("qp %" PRIx64 " cq %x\n", handle, cq_depth);
	fflush(stdout);
	/* One register is for all queues. */
	drive(qp, completions, cq_depth, (struct doorbells){ doorbell, doorbell, doorbell });
	return 0;
}
