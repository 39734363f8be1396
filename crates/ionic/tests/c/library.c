/* Drives an unmodified libionic without a device (driven.h).
 *
 *   library PATH PROTOCOL rc|ud     the library, the protocol of the firmware, and the type of the QP */
#define _GNU_SOURCE
#include "../../../bnxt/tests/c/driven.h"

/* Types of queues: their registers are the words of these numbers in the doorbell page. */
enum { SQ = 1, RQ = 2, CQ = 3 };

static uint16_t protocol;
static uint32_t cq_depth;

/* Two versions of the private interface have it. */
void verbs_register_driver_59(const struct provider *ops) { provider = ops; }
void verbs_register_driver_64(const struct provider *ops) { provider = ops; }

/* Bytes of what is a device's own: of requests and answers the end. */
enum { CONTEXT = 32, CQ_REQUEST = 40, CQ_ANSWER = 16, QP_REQUEST = 40, QP_ANSWER = 24, AH_ANSWER = 8, QUEUE = 16 };

int ibv_cmd_get_context(struct verbs_context *context, void *cmd, size_t cmd_size, void *driver, void *resp,
			size_t resp_size)
{
	(void)context, (void)cmd, (void)cmd_size, (void)driver;
	memset(resp, 0, resp_size);
	uint8_t *own = (uint8_t *)resp + resp_size - CONTEXT;
	put32(own, 4, 12);
	memcpy(own + 16, &protocol, 2);
	/* One more than the highest opcode, types of queues, log2 of the longest WQE, and pipelines. */
	own[18] = 11, own[20] = SQ, own[21] = RQ, own[22] = CQ, own[24] = 9, own[26] = 1;
	return 0;
}

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd, void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	(void)cmd, (void)cmd_size;
	memset(resp, 0, resp_size);
	pd->context = context;
	return 0;
}

int ibv_cmd_create_cq(struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, int vector, struct ibv_cq *out,
		      void *cmd, size_t cmd_size, void *resp, size_t resp_size)
{
	(void)channel, (void)vector;
	memset(resp, 0, resp_size);
	out->context = context;
	out->cqe = cqe;
	const uint8_t *queue = (uint8_t *)cmd + cmd_size - CQ_REQUEST;
	cq = (uint8_t *)last(queue, 8, 1);
	cq_depth = 1u << queue[14];
	uint8_t *own = (uint8_t *)resp + resp_size - CQ_ANSWER;
	put32(own, 0, CQN);
	own[8] = 1;
	return 0;
}

int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct ibv_qp *qp, struct ibv_qp_init_attr_ex *attr, void *cmd,
			  size_t cmd_size, void *resp, size_t resp_size, void *driver)
{
	(void)driver;
	memset(resp, 0, resp_size);
	qp->context = context;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->qp_type = attr->qp_type;
	qp->qp_num = QPN;
	const uint8_t *queues = (uint8_t *)cmd + cmd_size - QP_REQUEST;
	sq = (uint8_t *)last(queues, 8, 1);
	rq = (uint8_t *)last(queues + QUEUE, 8, 1);
	/* log2 of entries and of their bytes. */
	if (queues[14] != 8 || queues[15] != 7 || queues[QUEUE + 14] != 8 || queues[QUEUE + 15] != 7)
		fail("finding queues of the expected sizes");
	put32((uint8_t *)resp + resp_size - QP_ANSWER, 0, QPN);
	return 0;
}

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr, void *resp, size_t resp_size)
{
	(void)attr;
	memset(resp, 0, resp_size);
	ah->context = pd->context;
	put32((uint8_t *)resp + resp_size - AH_ANSWER, 0, HANDLE);
	return 0;
}

static void print_packets(uint64_t id) { (void)id; }

int main(int argc, char **argv)
{
	int file = memfd_create("device", 0);
	if (argc != 4 || file < 0 || ftruncate(file, PAGE))
		fail("reading the arguments, or memfd_create");
	protocol = (uint16_t)strtoul(argv[2], NULL, 16);
	if (!dlopen(argv[1], RTLD_NOW) || !provider)
		fail(dlerror());
	uint64_t *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	enum ibv_qp_type type = strcmp(argv[3], "ud") ? IBV_QPT_RC : IBV_QPT_UD;
	/* Of what libibverbs knows about a device, the version of its interface is looked at, and kept. */
	static char about[8 * PAGE];
	struct ibv_cq *completions;
	struct ibv_qp *qp = connect_qp(opened(about, file), type, DEPTH - 1, &completions);
	printf("cq %x\n", cq_depth);
	fflush(stdout);
	drive(qp, completions, cq_depth, (struct doorbells){ page + SQ, page + RQ, page + CQ });
	return 0;
}
