// A program that frees the umems in which queues of firmware commands lie, and takes their memory
// away, while requests are under way.
//
// umems: exits with 0 if the device keeps what its queues use, ends the requests concerned, touches
// nothing of what is freed, and goes on with others.
#define _GNU_SOURCE
#include "devx.h"
#include <errno.h>

// The umems that a queue pair and its CQ need.
enum { SQ, SQ_RECORD, CQ, CQ_RECORD, UMEMS };
#define WQES 64u
#define CQES 64u

// A QP made by mailboxes, connected to one of verbs on the other device, if there is one.
struct queue {
    char *memory[UMEMS];
    struct mlx5dv_devx_umem *umem[UMEMS];
    struct mlx5dv_devx_uar *uar;
    struct mlx5dv_devx_obj *cq, *qp;
    struct pair peer;
    uint32_t qpn, posted, completed;
};

static void modify(struct queue *q, uint32_t opcode, uint32_t *in) {
    uint32_t out[4] = {0};
    in[0] = be(opcode << 16);
    in[2] = be(q->qpn);
    int failed = mlx5dv_devx_obj_modify(q->qp, in, MAILBOX, out, sizeof out);
    if (failed) fprintf(stderr, "command %#x: status %#x\n", opcode, be(out[0]) >> 24);
    CHECK(!failed);
}

// RST2INIT, INIT2RTR, RTR2RTS. The context is at 0x18 of a mailbox, the address path at 0x30.
static void connect_by_mailbox(struct queue *q, uint32_t remote) {
    uint32_t port[MAILBOX / 4] = {0}, rtr[MAILBOX / 4] = {0}, rts[MAILBOX / 4] = {0};
    port[0x54 / 4] = rtr[0x54 / 4] = be(1u << 16);
    modify(q, 0x502, port);
    union ibv_gid gid;
    CHECK(ibv_query_gid(context[1], 1, 0, &gid) == 0);
    rtr[0x20 / 4] = be((uint32_t)IBV_MTU_1024 << 29);
    rtr[0x2c / 4] = be(remote);
    rtr[0x34 / 4] = be(1u << 23);
    rtr[0x38 / 4] = be(1);
    memcpy(rtr + 0x40 / 4, gid.raw, 16);
    rtr[0xac / 4] = be(1u << 24);
    modify(q, 0x503, rtr);
    rts[0x38 / 4] = be(17u << 27);
    rts[0x88 / 4] = be(7u << 16 | 1u << 13);
    modify(q, 0x504, rts);
}

static struct queue make_queue(void) {
    struct queue q = {0};
    for (int i = 0; i < UMEMS; i++) {
        q.memory[i] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(q.memory[i] != MAP_FAILED);
        CHECK((q.umem[i] = mlx5dv_devx_umem_reg(context[0], q.memory[i], PAGE, IBV_ACCESS_LOCAL_WRITE)));
    }
    // The owner of a CQE that was never written is the device.
    for (uint32_t i = 0; i < CQES; i++) q.memory[CQ][64 * i + 63] = (char)0xf1;
    CHECK((q.uar = mlx5dv_devx_alloc_uar(context[0], MLX5DV_UAR_ALLOC_TYPE_NC)));
    struct place at[UMEMS];
    for (int i = 0; i < UMEMS; i++) at[i] = (struct place){q.umem[i], 0};
    uint32_t cqn;
    q.cq = make_cq(context[0], at[CQ], at[CQ_RECORD], q.uar->page_id, &cqn);
    // CREATE_QP: 2^6 requests, no receives.
    struct mlx5dv_pd domain = {0};
    struct mlx5dv_obj obj = {.pd = {.in = pd[0], .out = &domain}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD) == 0);
    uint32_t in[MAILBOX / 4] = {be(0x500u << 16)};
    in[0x18 / 4] = be(3u << 11);
    in[0x1c / 4] = be(domain.pdn);
    in[0x20 / 4] = be(6u << 11);
    in[0x24 / 4] = be(q.uar->page_id);
    in[0x94 / 4] = in[0xb4 / 4] = be(cqn);
    in[0xc4 / 4] = be(3u << 24);
    in[0xfc / 4] = be(q.umem[SQ_RECORD]->umem_id);
    in[0x108 / 4] = be(q.umem[SQ]->umem_id);
    in[0x10c / 4] = be(1u << 31);
    q.qp = made(context[0], in, &q.qpn);
    q.peer = make_pair();
    // Of the pair, the second QP is the peer.
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(q.peer.qp[1], &reset, IBV_QP_STATE) == 0);
    connect_to(q.peer.qp[1], q.qpn, context[0]);
    connect_by_mailbox(&q, q.peer.qp[1]->qp_num);
    return q;
}

// Requests up to `upto` are announced: the record, then the register.
static void announce(struct queue *q, uint32_t upto, int has_record) {
    if (has_record) *(volatile uint32_t *)(q->memory[SQ_RECORD] + 4) = be(upto & 0xffff);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t value = (uint64_t)be((upto & 0xffff) << 8) | (uint64_t)be(q->qpn << 8) << 32;
    *(volatile uint64_t *)q->uar->reg_addr = value;
}

// Posts WRITEs of 64 bytes, each with a CQE.
static void post_writes(struct queue *q, uint32_t count, struct ibv_mr *from, struct ibv_mr *to) {
    for (; count > 0; count--, q->posted++) {
        uint32_t *wqe = (uint32_t *)q->memory[SQ] + q->posted % WQES * 16;
        memset(wqe, 0, 64);
        wqe[0] = be((q->posted & 0xffff) << 8 | 0x08);
        wqe[1] = be(q->qpn << 8 | 3);
        wqe[2] = be(0x08);
        uint64_t addresses[2] = {(uintptr_t)to->addr, (uintptr_t)from->addr};
        wqe[4] = be(addresses[0] >> 32), wqe[5] = be((uint32_t)addresses[0]);
        wqe[6] = be(to->rkey);
        wqe[8] = be(64), wqe[9] = be(from->lkey);
        wqe[10] = be(addresses[1] >> 32), wqe[11] = be((uint32_t)addresses[1]);
    }
    announce(q, q->posted, 1);
}

// Waits until as many CQEs were written as requests were posted, all of them of success.
static void wait_for_all(struct queue *q) {
    for (double end = now() + 60; q->completed < q->posted;) {
        CHECK(now() < end);
        uint8_t own = *(volatile uint8_t *)(q->memory[CQ] + q->completed % CQES * 64 + 63);
        if ((own & 1) != (q->completed / CQES & 1) || own >> 4 == 0xf) continue;
        if (own >> 4 != 0) fprintf(stderr, "CQE %u: opcode %#x\n", q->completed, own >> 4);
        CHECK(own >> 4 == 0);
        q->completed++;
        *(volatile uint32_t *)q->memory[CQ_RECORD] = be(q->completed & 0xffffff);
    }
}

static uint32_t state_by_mailbox(struct queue *q) {
    uint32_t in[4] = {be(0x50bu << 16), 0, be(q->qpn)}, out[MAILBOX / 4] = {0};
    CHECK(mlx5dv_devx_obj_query(q->qp, in, sizeof in, out, sizeof out) == 0);
    return be(out[0x18 / 4]) >> 28;
}

static void destroy(struct queue *q) {
    CHECK(mlx5dv_devx_obj_destroy(q->qp) == 0);
    // The umems of the CQ are still in use.
    CHECK(mlx5dv_devx_umem_dereg(q->umem[CQ]) == EBUSY && mlx5dv_devx_umem_dereg(q->umem[CQ_RECORD]) == EBUSY);
    CHECK(mlx5dv_devx_umem_dereg(q->umem[SQ]) == 0 && mlx5dv_devx_umem_dereg(q->umem[SQ_RECORD]) == 0);
    CHECK(mlx5dv_devx_obj_destroy(q->cq) == 0);
    CHECK(mlx5dv_devx_umem_dereg(q->umem[CQ]) == 0 && mlx5dv_devx_umem_dereg(q->umem[CQ_RECORD]) == 0);
}

int main(void) {
    open_devices();
    struct ibv_mr *from = registered(0), *to = registered(1);
    struct queue q = make_queue();
    // Each is refused while it is in use, whatever is under way, and all requests are carried out.
    for (int round = 0; round < 100; round++) {
        memset(from->addr, round, 64);
        post_writes(&q, 1 + round % WQES, from, to);
        for (int i = 0; i < UMEMS; i++) CHECK(mlx5dv_devx_umem_dereg(q.umem[i]) == EBUSY);
        wait_for_all(&q);
        CHECK(((char *)to->addr)[63] == round);
    }
    destroy(&q);
    // Memory of freed umems is not touched any more, though the old doorbell is rung.
    char pattern[PAGE];
    memset(pattern, 0xab, PAGE);
    for (int i = 0; i < UMEMS; i++) memcpy(q.memory[i], pattern, PAGE);
    announce(&q, q.posted + 1, 0);
    settle();
    for (int i = 0; i < UMEMS; i++) CHECK(memcmp(q.memory[i], pattern, PAGE) == 0);
    mlx5dv_devx_free_uar(q.uar);
    // The memory itself goes, of each in turn, while requests are under way.
    for (int gone = 0; gone < UMEMS; gone++) {
        q = make_queue();
        post_writes(&q, 1, from, to);
        wait_for_all(&q);
        post_writes(&q, WQES / 2, from, to);
        CHECK(munmap(q.memory[gone], PAGE) == 0);
        announce(&q, q.posted + 1, gone != SQ_RECORD);
        // A WQE that cannot be read is no request, which is an error of the QP.
        for (double end = now() + 60; gone == SQ && state_by_mailbox(&q) != 6;) CHECK(now() < end);
        settle();
        CHECK(mlx5dv_devx_umem_dereg(q.umem[gone]) == EBUSY);
        destroy(&q);
        mlx5dv_devx_free_uar(q.uar);
    }
    others_work();
    puts("done");
    fflush(stdout);
    _exit(0);
}
