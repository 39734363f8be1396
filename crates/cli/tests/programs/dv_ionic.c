// A program that does with ionic as GPU libraries' host code does: a parent domain for each pipeline, whose allocator
// gives the memory of queues, a CQ and a QP of it, and where they and the registers lie by functions of AMD's own
// library. Then it posts as kernels do, with indexes that count on, and rings by its own stores.
#include "verbs_pair.h"
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>

#define WQES 255u
#define TAG_CQ (21ull << 32 | 1)
#define TAG_SQ (21ull << 32 | 2)
#define TAG_RQ (21ull << 32 | 3)

struct registers { void *page; uint64_t *first; uint8_t sq, rq, cq; };
struct queue { volatile unsigned char *at; size_t bytes; uint64_t doorbell; uint16_t mask; uint8_t log_depth, log_stride; };
struct queues { struct queue rq, sq; };

static int (*get_ctx)(struct registers *, struct ibv_context *);
static int (*get_cq)(struct queue *, struct ibv_cq *, uint8_t), (*get_qp)(struct queues *, struct ibv_qp *);
static uint8_t (*pipeline_of)(struct ibv_qp *);
static int (*set_pipelines)(struct ibv_pd *, uint8_t);
static int (*set_sqcmb)(struct ibv_pd *, bool, bool, bool), (*set_rqcmb)(struct ibv_pd *, bool, bool, bool);

static void load(void) {
    void *library = dlopen("libionic.so", RTLD_LAZY | RTLD_LOCAL);
    CHECK(library);
#define LOAD(name, symbol) CHECK((*(void **)&name = dlsym(library, "ionic_dv_" symbol)))
    LOAD(get_ctx, "get_ctx"), LOAD(get_cq, "get_cq"), LOAD(get_qp, "get_qp"), LOAD(pipeline_of, "qp_get_udma_idx");
    LOAD(set_pipelines, "pd_set_udma_mask"), LOAD(set_sqcmb, "pd_set_sqcmb"), LOAD(set_rqcmb, "pd_set_rqcmb");
}

// Memory that the allocator has given, by what it is for.
static struct { void *at; size_t bytes; uint64_t tag; } given[16];
static int gifts, taken;

static void *give(struct ibv_pd *domain, void *user, size_t bytes, size_t align, uint64_t tag) {
    CHECK(domain && user == &gifts && align == PAGE && bytes % PAGE == 0 && gifts < 16);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    given[gifts].at = at, given[gifts].bytes = bytes, given[gifts++].tag = tag;
    return at;
}

static void take(struct ibv_pd *domain, void *user, void *at, uint64_t tag) {
    CHECK(domain && user == &gifts);
    for (int i = 0; i < gifts; i++) {
        if (given[i].at == at && given[i].tag == tag) {
            CHECK(munmap(at, given[i].bytes) == 0);
            given[i].at = NULL, taken++;
            return;
        }
    }
    fail(__LINE__, "memory that was given is taken back");
}

static void is_given(struct queue *queue, uint64_t tag, uint8_t log_stride) {
    CHECK(queue->mask == (1u << queue->log_depth) - 1 && queue->log_stride == log_stride);
    CHECK(queue->bytes == (size_t)1 << (queue->log_depth + queue->log_stride));
    for (int i = 0; i < gifts; i++)
        if (given[i].at == queue->at && given[i].tag == tag && given[i].bytes == queue->bytes) return;
    fail(__LINE__, "a queue lies in memory that was given for it");
}

struct end {
    struct ibv_pd *domain;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct registers registers;
    struct queue done;
    struct queues queues;
    uint32_t posted, received, polled;
};

static struct ibv_pd *domain_of(int side, int pipeline) {
    struct ibv_parent_domain_init_attr attr = {.pd = pd[side], .alloc = give, .free = take, .pd_context = &gifts};
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    struct ibv_pd *domain = ibv_alloc_parent_domain(context[side], &attr);
    CHECK(domain);
    CHECK(set_sqcmb(domain, false, false, false) == 0 && set_rqcmb(domain, false, false, false) == 0);
    CHECK(set_sqcmb(domain, true, false, true) == EINVAL);
    // There is one pipeline: a program that wants the other one is told, and goes on with the first.
    CHECK(set_pipelines(domain, 1u << pipeline) == (pipeline ? EINVAL : 0));
    return domain;
}

static struct end end(int side) {
    struct end e = {.domain = domain_of(side, side)};
    struct ibv_cq_init_attr_ex attr = {.cqe = 2 * WQES, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = e.domain};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context[side], &attr);
    CHECK(cq && (e.cq = ibv_cq_ex_to_cq(cq)));
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = e.domain,
        .send_cq = e.cq, .recv_cq = e.cq, .cap = {WQES, WQES, 1, 1, 32}};
    CHECK((e.qp = ibv_create_qp_ex(context[side], &init)));
    CHECK(get_ctx(&e.registers, context[side]) == 0 && e.registers.page);
    CHECK((unsigned char *)e.registers.first - (unsigned char *)e.registers.page < (long)PAGE);
    uint8_t pipeline = pipeline_of(e.qp);
    CHECK(get_cq(&e.done, e.cq, pipeline) == 0 && get_cq(&e.done, e.cq, 7) == EINVAL && get_cq(NULL, e.cq, pipeline) == EINVAL);
    CHECK(get_qp(&e.queues, e.qp) == 0 && e.queues.sq.doorbell == (uint64_t)e.qp->qp_num << 24);
    is_given(&e.done, TAG_CQ, 5), is_given(&e.queues.sq, TAG_SQ, 6), is_given(&e.queues.rq, TAG_RQ, 6);
    return e;
}

static void ring(struct end *e, uint8_t kind, struct queue *queue, uint32_t next) {
    // Lanes of a wave use different copies of the registers.
    volatile uint64_t *copy = e->registers.first + 8 * (next % 64);
    __atomic_store_n(&copy[kind], queue->doorbell | (next & queue->mask), __ATOMIC_RELEASE);
}

static void store(struct queue *queue, uint32_t place, int at, const void *from, int bytes) {
    memcpy((void *)(queue->at + ((size_t)(place & queue->mask) << queue->log_stride) + at), from, bytes);
}

static void send_wqe(struct end *e, uint8_t op, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    struct queue *sq = &e->queues.sq;
    uint64_t there = htobe64((uintptr_t)to->addr), here = htobe64((uintptr_t)from->addr), index = htole64(e->posted);
    uint32_t length = htobe32(len), key = htobe32(from->lkey), remote = htobe32(to->rkey), none = 0;
    uint8_t what[2] = {op, 1};
    store(sq, e->posted, 0, &index, 8), store(sq, e->posted, 8, what, 2), store(sq, e->posted, 12, &none, 4);
    store(sq, e->posted, 16, &there, 8), store(sq, e->posted, 24, &remote, 4), store(sq, e->posted, 28, &length, 4);
    store(sq, e->posted, 32, &here, 8), store(sq, e->posted, 40, &length, 4), store(sq, e->posted, 44, &key, 4);
    // Signalled, and the colour of the lap, last of all.
    uint16_t flags = htobe16(8 | (e->posted & (sq->mask + 1u) ? 0 : 16));
    __atomic_thread_fence(__ATOMIC_RELEASE);
    store(sq, e->posted, 10, &flags, 2);
    ring(e, e->registers.sq, sq, ++e->posted);
}

static void receive(struct end *e, struct ibv_mr *to, uint32_t len) {
    struct queue *rq = &e->queues.rq;
    uint64_t here = htobe64((uintptr_t)to->addr), index = htole64(e->received);
    uint32_t length = htobe32(len), key = htobe32(to->lkey);
    uint8_t what[4] = {0, 1, 0, 0};
    store(rq, e->received, 0, &index, 8), store(rq, e->received, 8, what, 4), store(rq, e->received, 28, &length, 4);
    store(rq, e->received, 32, &here, 8), store(rq, e->received, 40, &length, 4), store(rq, e->received, 44, &key, 4);
    ring(e, e->registers.rq, rq, ++e->received);
}

// The next CQE, which must be of this type and good; what it says at `at`.
static uint32_t next_cqe(struct end *e, uint32_t type, int at) {
    volatile unsigned char *cqe = e->done.at + ((size_t)(e->polled & e->done.mask) << 5);
    unsigned char colour = !(e->polled & (e->done.mask + 1u));
    for (double until = now() + 60; (*(volatile unsigned char *)(cqe + 31) & 1) != colour;) CHECK(now() < until);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint32_t word, value;
    memcpy(&word, (void *)(cqe + 28), 4), memcpy(&value, (void *)(cqe + at), 4);
    CHECK((be32toh(word) & 0xfe) == type << 5 && be32toh(word) >> 8 == e->qp->qp_num);
    ring(e, e->registers.cq, &e->done, ++e->polled);
    return be32toh(value);
}

static void is_sent(struct end *e) { CHECK((next_cqe(e, 2, 4) & 0xffffff) == (e->posted & 0xffffff)); }

static uint32_t filled(struct ibv_mr *from) {
    uint32_t len = 1 + random() % 4096;
    for (uint32_t i = 0; i < len; i++) ((char *)from->addr)[i] = random();
    return len;
}

int main(int argc, char **argv) {
    srandom(argc > 1 ? atoi(argv[1]) : 1);
    open_devices();
    load();
    struct end a = end(0), b = end(1);
    connect_to(a.qp, b.qp->qp_num, context[1]);
    connect_to(b.qp, a.qp->qp_num, context[0]);
    struct ibv_mr *from = registered(0), *to = registered(1);
    // More than two laps of the CQ, so of the send queue, too.
    for (int round = 0; round < 2500; round++) {
        uint32_t len = filled(from);
        bool reads = round % 5 == 4;
        // A READ fetches what is in the peer's memory; both directions are compared.
        if (reads) memcpy(to->addr, from->addr, len), memset(from->addr, 0, len);
        send_wqe(&a, reads ? 0x02 : 0x21, from, to, len);
        is_sent(&a);
        CHECK(memcmp(from->addr, to->addr, len) == 0);
    }
    for (int round = 0; round < 600; round++) {
        uint32_t len = filled(from);
        receive(&b, to, 4096);
        send_wqe(&a, 0x20, from, to, len);
        is_sent(&a);
        CHECK(next_cqe(&b, 1, 24) == len && memcmp(from->addr, to->addr, len) == 0);
    }
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct end *ends[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        struct end *e = ends[i];
        CHECK(ibv_modify_qp(e->qp, &reset, IBV_QP_STATE) == 0 && state_of(e->qp) == IBV_QPS_RESET);
        CHECK(ibv_destroy_qp(e->qp) == 0 && ibv_destroy_cq(e->cq) == 0 && ibv_dealloc_pd(e->domain) == 0);
    }
    CHECK(gifts == 6 && taken == 6);
    others_work();
    puts("done");
    return 0;
}
