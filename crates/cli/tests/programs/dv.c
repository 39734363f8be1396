// A program that makes queues of bnxt_re by functions of Broadcom's own library, with the sizes that GPU libraries
// give them: WQEs and receives of three slots, the table of messages at the end, a CQ of one entry.
#include "verbs_pair.h"
#include <dlfcn.h>

#define WQES 256u
#define SLOTS (3 * WQES)
#define TABLE (2 * WQES)
#define QUEUE (16 * SLOTS + 8 * TABLE)
#define RECEIVES 32u

struct umem_attr { void *addr; size_t size; uint32_t access; uint64_t pages, mask; int dmabuf; };
struct cq_attr { uint64_t handle; void *umem; uint64_t offset; uint32_t entries; };
struct qp_attr {
    uint32_t type, sends, receives, send_sge, recv_sge, inline_bytes;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_srq *srq;
    uint64_t handle;
    void *page, *sq;
    uint64_t sq_offset;
    uint32_t sq_len, sq_slots;
    void *rq;
    uint64_t rq_offset;
    uint32_t sq_wqe, psn, psns, rq_len, rq_slots, rq_wqe;
    uint64_t mask;
};
struct page { uint32_t handle, dpi; uint64_t offset; volatile uint64_t *dbr; };
struct object { void *in, *out; };
struct objects { struct object qp, cq, srq, ah, pd; };
struct numbers { uint32_t number, size; uint64_t mask; };

static void *(*umem_reg)(struct ibv_context *, struct umem_attr *);
static int (*umem_dereg)(void *), (*destroy_cq)(struct ibv_cq *), (*destroy_qp)(struct ibv_qp *);
static struct ibv_cq *(*create_cq)(struct ibv_context *, struct cq_attr *);
static struct ibv_qp *(*create_qp)(struct ibv_pd *, struct qp_attr *);
static int (*init_obj)(struct objects *, uint64_t);
static int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, uint32_t, uint32_t);
static int (*default_page)(struct ibv_context *, struct page *), (*free_page)(struct ibv_context *, struct page *);
static struct page *(*alloc_page)(struct ibv_context *);

static void load(void) {
    void *library = dlopen("libbnxt_re.so", RTLD_LAZY | RTLD_LOCAL);
    CHECK(library);
#define LOAD(name, symbol) CHECK((*(void **)&name = dlsym(library, "bnxt_re_dv_" symbol)))
    LOAD(umem_reg, "umem_reg"), LOAD(umem_dereg, "umem_dereg");
    LOAD(create_cq, "create_cq"), LOAD(destroy_cq, "destroy_cq"), LOAD(init_obj, "init_obj");
    LOAD(create_qp, "create_qp"), LOAD(destroy_qp, "destroy_qp"), LOAD(modify_qp, "modify_qp");
    LOAD(default_page, "get_default_db_region"), LOAD(alloc_page, "alloc_db_region"), LOAD(free_page, "free_db_region");
}

struct memory { volatile unsigned char *at; void *umem; };

static struct memory memory(size_t bytes) {
    struct memory m = {.at = fresh()};
    struct umem_attr attr = {.addr = (void *)m.at, .size = bytes, .access = IBV_ACCESS_LOCAL_WRITE};
    CHECK(bytes <= BYTES && (m.umem = umem_reg(context[0], &attr)));
    return m;
}

struct end {
    struct memory sq, rq, sent, arrived;
    struct ibv_cq *cq[2];
    struct ibv_qp *qp;
    struct page *own, page;
    uint32_t posted, received, packets;
};

static struct end end(int own) {
    struct end e = {.sq = memory(QUEUE), .rq = memory(48 * RECEIVES), .sent = memory(32), .arrived = memory(32 * 64)};
    struct cq_attr one = {.umem = e.sent.umem, .entries = 1}, ring = {.umem = e.arrived.umem, .entries = 64};
    CHECK((e.cq[0] = create_cq(context[0], &one)) && (e.cq[1] = create_cq(context[0], &ring)));
    struct numbers cq = {0}, domain = {0};
    struct objects objects = {.cq = {e.cq[0], &cq}, .pd = {pd[0], &domain}};
    CHECK(init_obj(&objects, 1 << 1 | 1 << 4) == 0 && cq.number && cq.size == 32 && domain.number);
    CHECK(default_page(context[0], &e.page) == 0 && e.page.dbr);
    if (own) {
        CHECK((e.own = alloc_page(context[0])) && e.own->dbr != e.page.dbr);
        e.page = *e.own;
    }
    struct qp_attr attr = {
        .type = IBV_QPT_RC, .sends = WQES, .receives = RECEIVES, .send_sge = 1, .recv_sge = 1, .inline_bytes = 16,
        .send_cq = e.cq[0], .recv_cq = e.cq[1], .page = e.own, .sq = e.sq.umem, .sq_len = QUEUE, .sq_slots = SLOTS,
        .rq = e.rq.umem, .sq_wqe = 48, .psn = 8, .psns = TABLE, .rq_len = PAGE, .rq_slots = 3 * RECEIVES, .rq_wqe = 48};
    struct qp_attr wrong = attr;
    wrong.psns /= 2;
    CHECK(!create_qp(pd[0], &wrong));
    CHECK((e.qp = create_qp(pd[0], &attr)));
    return e;
}

static void ring(struct end *e, uint64_t kind, uint32_t next, uint32_t ring) {
    // Sends are counted in slots, receives are not. A doorbell has 20 bits of the number.
    uint64_t place = next % ring * (kind == 0 ? 3 : 1), epoch = next / ring & 1, qpn = e->qp->qp_num & 0xfffff;
    __atomic_store_n(e->page.dbr, kind << 60 | 1ull << 58 | qpn << 32 | epoch << 24 | place, __ATOMIC_RELEASE);
}

// A message of `len` bytes, at most one packet.
static void send(struct end *e, uint8_t type, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    volatile uint32_t *wqe = (void *)(e->sq.at + 48 * (e->posted % WQES));
    volatile uint64_t *table = (void *)(e->sq.at + 16 * SLOTS);
    uint64_t there = (uintptr_t)to->addr, here = (uintptr_t)from->addr, first = e->packets & 0xffffff;
    uint32_t words[12] = {type | 0x0301 << 8, 0, len, 0, there, there >> 32, to->rkey, 0, here, here >> 32, from->lkey, len};
    for (int i = 0; i < 12; i++) wqe[i] = words[i];
    uint64_t next = (e->packets = first + 1) & 0xffffff, start = e->posted % WQES * 3;
    table[e->posted % TABLE] = first | next << 24 | start << 48;
    ring(e, 0, ++e->posted, WQES);
}

static void receive(struct end *e, struct ibv_mr *to, uint32_t len) {
    volatile uint32_t *wqe = (void *)(e->rq.at + 48 * (e->received % RECEIVES));
    uint64_t here = (uintptr_t)to->addr;
    uint32_t words[12] = {0x80 | 0x0300 << 8, 0, 0, 0, 0, 0, 0, 0, here, here >> 32, to->lkey, len};
    for (int i = 0; i < 12; i++) wqe[i] = words[i];
    ring(e, 1, ++e->received, RECEIVES);
}

static void quiet(struct end *e) {
    volatile uint16_t *done = (void *)(e->sent.at + 8);
    for (double until = now() + 60; *done != (uint16_t)e->posted || e->sent.at[25];) CHECK(now() < until && !e->sent.at[25]);
}

int main(int argc, char **argv) {
    srandom(argc > 1 ? atoi(argv[1]) : 1);
    open_devices();
    load();
    struct end a = end(1), b = end(0);
    connect_to(a.qp, b.qp->qp_num, context[0]);
    connect_to(b.qp, a.qp->qp_num, context[0]);
    struct ibv_mr *from = registered(0), *to = registered(0);
    // More than two laps of the ring and of the table.
    for (int round = 0; round < 1200; round++) {
        uint32_t len = 1 + random() % 1024;
        for (uint32_t i = 0; i < len; i++) ((char *)from->addr)[i] = random();
        send(&a, 4, from, to, len);
        quiet(&a);
        CHECK(memcmp(from->addr, to->addr, len) == 0);
    }
    for (int round = 0; round < 50; round++) {
        uint32_t len = 1 + random() % 1024;
        for (uint32_t i = 0; i < len; i++) ((char *)from->addr)[i] = random();
        receive(&b, to, 1024);
        send(&a, 0, from, to, len);
        quiet(&a);
        volatile uint32_t *cqe = (void *)(b.arrived.at + 32 * (round % 64));
        for (double until = now() + 60; !(cqe[6] & 1);) CHECK(now() < until);
        CHECK((cqe[6] & 0x1e) == 2 && cqe[0] == len && memcmp(from->addr, to->addr, len) == 0);
    }
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    struct end *ends[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        struct end *e = ends[i];
        CHECK(modify_qp(e->qp, &reset, IBV_QP_STATE, 0, 0) == 0 && state_of(e->qp) == IBV_QPS_RESET);
        CHECK(destroy_qp(e->qp) == 0 && destroy_cq(e->cq[0]) == 0 && destroy_cq(e->cq[1]) == 0);
        CHECK(!e->own || free_page(context[0], e->own) == 0);
        struct memory all[] = {e->sq, e->rq, e->sent, e->arrived};
        for (int m = 0; m < 4; m++) CHECK(umem_dereg(all[m].umem) == 0);
    }
    others_work();
    puts("done");
    return 0;
}
