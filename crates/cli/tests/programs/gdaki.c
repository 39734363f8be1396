// Queues as DOCA GPUNetIO makes them, NCCL's GIN with it: the same calls with the same fields, their
// rings in the host's memory, and work in the form of its kernels.
//
// gdaki: exits with 0 if all was made and all work did what it says.
#include "mailbox.h"

#define LOG_WQES 7
#define WQES (1 << LOG_WQES)
#define INVALID 0xf1
#define PUT_AT 4104
#define COUNT_AT 64
#define SINK_AT 128

// Capabilities of a kind.
static const char *capabilities(struct ibv_context *c, int kind) {
    static char answer[0x1010];
    char mailbox[0x10] = {0};
    set(mailbox, 0, 31, 16, 0x100);
    set(mailbox, 4, 15, 0, kind << 1 | 1);
    CHECK(mlx5dv_devx_general_cmd(c, mailbox, sizeof mailbox, answer, sizeof answer) == 0);
    return answer + 0x10;
}

// The checks before queues are made: a port of Ethernet with connections, addresses of RoCEv2 and
// the UDP ports to send from.
static void device_fits(struct ibv_context *c) {
    const char *general = capabilities(c, 0);
    CHECK(get(general, 0x34, 9, 8) == 1 && get(general, 0x44, 0, 0) == 1);
    CHECK(get(general, 0x50, 15, 0) >= 48 && get(general, 0x10, 23, 16) >= LOG_WQES);
    CHECK(get(general, 4, 31, 31) == 1);
    // Of the records that a newer device can do without.
    CHECK(get(capabilities(c, 0x20), 0x5c, 30, 30) == 0);
    const char *roce = capabilities(c, 4);
    CHECK(get(roce, 0x1c, 15, 0) > 0);
    CHECK(get(roce, 0x18, 15, 0) > 0 && get(roce, 0x18, 31, 16) >= get(roce, 0x18, 15, 0));

    char mailbox[0x10] = {0}, answer[0x30];
    set(mailbox, 0, 31, 16, 0x760); // QUERY_ROCE_ADDRESS of index 0
    CHECK(mlx5dv_devx_general_cmd(c, mailbox, sizeof mailbox, answer, sizeof answer) == 0);
    CHECK(get(answer, 0x10 + 0x18, 7, 0) == 2);
}

static struct mlx5dv_devx_uar *page(struct ibv_context *c) {
    // A page for each QP, where libmlx5 can ask for it.
    struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(c, 1u << 31);
    if (!uar) uar = mlx5dv_devx_alloc_uar(c, MLX5DV_UAR_ALLOC_TYPE_NC);
    CHECK(uar);
    return uar;
}

// A ring of CQEs that may be overrun, and no queue of receives. Those that count are to be masters of
// others, and where that is said, DOCA writes the bit to 8 bytes as a whole: it becomes a PSN.
static struct queue queue(int side, int counts) {
    struct queue q = {.context = context[side]};
    char mailbox[0x110] = {0};
    uint32_t eqn;
    q.cq = memory(q.context, WQES * 64);
    for (int i = 0; i < WQES; i++) q.cq.at[i * 64 + 63] = (char)INVALID;
    q.cq_record = memory(q.context, PAGE);
    CHECK((q.cq_uar = mlx5dv_devx_alloc_uar(q.context, MLX5DV_UAR_ALLOC_TYPE_NC)));
    CHECK(mlx5dv_devx_query_eqn(q.context, 0, &eqn) == 0);
    set(mailbox, 0, 31, 16, 0x400); // CREATE_CQ
    set(mailbox, 0x58, 31, 0, q.cq.umem->umem_id);
    set(mailbox, 0x5c, 31, 31, 1);
    char *cqc = mailbox + 0x10;
    set(cqc, 0, 25, 25, 1); // record by umem
    set(cqc, 0, 17, 17, 1); // overrun ignored
    set(cqc, 4, 31, 0, q.cq_record.umem->umem_id);
    set(cqc, 0xc, 28, 24, LOG_WQES);
    set(cqc, 0xc, 23, 0, q.cq_uar->page_id);
    set(cqc, 0x14, 7, 0, eqn);
    q.cq_object = make(q.context, mailbox, &q.cqn);

    struct mlx5dv_pd dvpd;
    struct mlx5dv_obj obj = {.pd = {pd[side], &dvpd}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD) == 0);
    q.uar = page(q.context);
    q.wq = memory(q.context, WQES * 64);
    q.record = memory(q.context, PAGE);
    memset(mailbox, 0, sizeof mailbox);
    set(mailbox, 0, 31, 16, 0x500); // CREATE_QP
    set(mailbox, 0x108, 31, 0, q.wq.umem->umem_id);
    set(mailbox, 0x10c, 31, 31, 1);
    char *qpc = mailbox + 0x18;
    set(qpc, 4, 23, 0, dvpd.pdn);
    set(qpc, 8, 14, 11, LOG_WQES);
    set(qpc, 0xc, 23, 0, q.uar->page_id);
    set(qpc, 0x7c, 23, 0, q.cqn); // and none of receives
    if (counts) set64(qpc, 0x90, 1);
    set(qpc, 0xac, 26, 24, 3);
    set(qpc, 0xd0, 28, 28, 1);
    set(qpc, 0xe4, 31, 0, q.record.umem->umem_id);
    q.object = make(q.context, mailbox, &q.qpn);
    return q;
}

// State and MTU of a QP, as QUERY_QP has them.
static void query(struct queue *q, uint32_t *state, uint32_t *mtu) {
    char mailbox[0x10] = {0}, answer[0x110] = {0};
    set(mailbox, 0, 31, 16, 0x50b);
    set(mailbox, 8, 23, 0, q->qpn);
    CHECK(mlx5dv_devx_obj_query(q->object, mailbox, sizeof mailbox, answer, sizeof answer) == 0);
    *state = get(answer + 0x18, 0, 31, 28);
    *mtu = get(answer + 0x18, 8, 31, 29);
}

static void ready(struct queue *q, int side, int to, uint32_t peer) {
    char to_init[0x110] = {0}, to_rtr[0x110] = {0}, to_rts[0x110] = {0}, *qpc = to_init + 0x18;
    union ibv_gid gid;
    CHECK(ibv_query_gid(context[to], 1, 0, &gid) == 0);
    set(to_init, 0, 31, 16, 0x502);
    set(qpc, 0, 12, 11, 3);           // migrated
    set(qpc, 0x18 + 0x24, 23, 16, 1); // port
    set(qpc, 0x90, 15, 13, 7);        // rights
    set(qpc, 0x90, 19, 16, 1);        // atomics as InfiniBand has them
    modify(q->object, q->qpn, to_init);

    set(to_rtr, 0, 31, 16, 0x503);
    set(to_rtr, 0x10, 31, 0, 1 << 6); // the option of the timer
    qpc = to_rtr + 0x18;
    set(qpc, 8, 31, 29, 5); // an MTU of 4096
    set(qpc, 8, 28, 24, 30);
    set(qpc, 0x14, 23, 0, peer);
    set(qpc, 0x94, 28, 24, 12);
    set(qpc, 0x90, 15, 13, 7);
    set(qpc, 0x90, 19, 16, 1);
    set(qpc, 0x90, 23, 21, 4);
    resolve(side, gid, qpc + 0x18);
    set(qpc, 0x18 + 0x20, 15, 0, 0xd00d); // UDP port to send from
    set(qpc, 0x18 + 0x20, 21, 16, 26);    // DSCP
    modify(q->object, q->qpn, to_rtr);

    set(to_rts, 0, 31, 16, 0x504);
    qpc = to_rts + 0x18;
    set(qpc, 0x70, 23, 21, 4);
    set(qpc, 0x70, 18, 16, 7);
    set(qpc, 0x70, 15, 13, 7);
    set(qpc, 0x90, 14, 14, 1);
    set(qpc, 0x90, 13, 13, 1);
    set(qpc, 0x90, 19, 16, 1);
    set(qpc, 0x18 + 8, 31, 27, 20);
    modify(q->object, q->qpn, to_rts);
}

static uint16_t put(struct queue *q, const void *wqe) {
    memcpy(q->wq.at + q->posted % WQES * 64, wqe, 64);
    return q->posted++;
}

// The CQE of the WQE number `index` is in the ring: it has the parity of its turn.
static int is_done(struct queue *q, uint16_t index) {
    volatile unsigned char *cqe = (volatile unsigned char *)q->cq.at + index % WQES * 64;
    return cqe[63] >> 4 != 0xf && (cqe[63] & 1) == (index / WQES & 1);
}

// Waits for that CQE.
static int completed(struct queue *q, uint16_t index) {
    for (double end = now() + 60; !is_done(q, index);) CHECK(now() < end);
    volatile unsigned char *cqe = (volatile unsigned char *)q->cq.at + index % WQES * 64;
    atomic_thread_fence(memory_order_acquire);
    CHECK((cqe[60] << 8 | cqe[61]) == index);
    return cqe[63] >> 4;
}

static int done(struct queue *q, const void *wqe) {
    uint16_t index = put(q, wqe);
    announce(q, 1);
    return completed(q, index);
}

// Memory whose first byte has the address 0 in work requests.
static struct ibv_mr *from_zero(int side) {
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = ibv_reg_mr_iova(pd[side], fresh(), BYTES, 0, rights);
    CHECK(mr);
    return mr;
}

static void data(void *wqe, int at, uint32_t bytes, struct ibv_mr *mr) {
    set(wqe, at, 31, 0, bytes);
    set(wqe, at + 4, 31, 0, mr->lkey);
    set64(wqe, at + 8, PUT_AT);
}

static void remote(void *wqe, struct ibv_mr *mr) {
    set64(wqe, 16, PUT_AT);
    set(wqe, 24, 31, 0, mr->rkey);
    set(wqe, 28, 31, 0, 0x58fcff00); // not set by the kernels
}

static void wait_for(void *wqe, struct queue *q, uint32_t cqn, uint32_t index) {
    control(wqe, q->qpn, q->posted, 0xf, 2);
    memset((char *)wqe + 12, 0xa5, 12); // nor are these
    set(wqe, 24, 31, 0, index);
    set(wqe, 28, 31, 0, cqn);
}

// One more is counted when `q` has the CQE of its next WQE. The number of the last WQE.
static uint16_t count(struct queue *companion, struct queue *q, struct ibv_mr *mr) {
    char wqe[64];
    wait_for(wqe, companion, q->cqn, q->posted);
    put(companion, wqe);
    control(wqe, companion->qpn, companion->posted, 0x12, 4);
    set64(wqe, 16, COUNT_AT);
    set(wqe, 24, 31, 0, mr->rkey);
    set64(wqe, 32, 1);
    set(wqe, 48, 31, 0, 8);
    set(wqe, 52, 31, 0, mr->lkey);
    set64(wqe, 56, SINK_AT);
    uint16_t last = put(companion, wqe);
    announce(companion, 1);
    return last;
}

// A put that is counted, an inline put, a NOP, a signal by an atomic, a get and its flush, round the rings.
static void work(struct queue *q, struct queue *companion, struct ibv_mr *here, struct ibv_mr *there) {
    volatile uint64_t *counted = (void *)((char *)here->addr + COUNT_AT);
    volatile uint64_t *from = (void *)((char *)here->addr + PUT_AT), *to = (void *)((char *)there->addr + PUT_AT);
    uint64_t sum = 0;
    char wqe[64];
    for (uint64_t i = 1; i < WQES; i++) {
        for (int k = 0; k < 64; k++) from[k] = i * 1000 + k;
        uint16_t last = count(companion, q, here);
        if (i % 32 == 1) usleep(1000);
        CHECK(!is_done(companion, last - 1) && *counted == i - 1);
        control(wqe, q->qpn, q->posted, 8, 3);
        remote(wqe, there);
        data(wqe, 32, 512, here);
        CHECK(done(q, wqe) == 0 && completed(companion, last) == 0 && *counted == i);
        for (int k = 0; k < 64; k++) CHECK(to[k] == i * 1000 + k);

        control(wqe, q->qpn, q->posted, 8, 3);
        remote(wqe, there);
        set(wqe, 32, 31, 0, 1u << 31 | 8);
        memcpy(wqe + 36, &sum, 8);
        CHECK(done(q, wqe) == 0 && to[0] == sum);

        control(wqe, q->qpn, q->posted, 0, 1);
        CHECK(done(q, wqe) == 0);

        control(wqe, q->qpn, q->posted, 0x12, 4);
        remote(wqe, there);
        set64(wqe, 32, i);
        set64(wqe, 40, i);
        data(wqe, 48, 8, here);
        CHECK(done(q, wqe) == 0 && to[0] == sum + i && from[0] == sum);
        sum += i;

        control(wqe, q->qpn, q->posted, 0x10, 3);
        remote(wqe, there);
        data(wqe, 32, 512, here);
        put(q, wqe);
        control(wqe, q->qpn, q->posted, 0x23, 2);
        wqe[11] |= 2 << 5; // the fence
        data(wqe, 16, 1, here);
        CHECK(done(q, wqe) == 0 && is_done(q, q->posted - 2) && from[0] == sum);
        for (int k = 1; k < 64; k++) CHECK(from[k] == i * 1000 + k);
    }
}

int main(void) {
    uint32_t state, mtu;
    char wqe[64];
    open_devices();
    // Those that count are connected in pairs, within a device.
    struct queue queues[2], companions[2][2];
    struct ibv_mr *mr[2] = {from_zero(0), from_zero(1)};
    for (int side = 0; side < 2; side++) {
        device_fits(context[side]);
        queues[side] = queue(side, 0);
        for (int k = 0; k < 2; k++) companions[side][k] = queue(side, 1);
        // A new QP is queried, and every field must be one of the values that it has.
        query(&queues[side], &state, &mtu);
        CHECK(state == 0 && mtu >= 1 && mtu <= 5);
    }
    for (int side = 0; side < 2; side++) {
        ready(&queues[side], side, !side, queues[!side].qpn);
        for (int k = 0; k < 2; k++) ready(&companions[side][k], side, side, companions[side][!k].qpn);
    }
    for (int side = 0; side < 2; side++) work(&queues[side], &companions[side][0], mr[side], mr[!side]);
    query(&queues[0], &state, &mtu);
    CHECK(state == 3 && mtu == 5);
    // A CQ that is not there: an error, and the QP is in that state.
    wait_for(wqe, &queues[0], 0x777777, 0);
    CHECK(done(&queues[0], wqe) == 13);
    for (double end = now() + 60; state != 6; query(&queues[0], &state, &mtu)) CHECK(now() < end);
    for (int side = 0; side < 2; side++) {
        destroy(&queues[side]);
        for (int k = 0; k < 2; k++) destroy(&companions[side][k]);
        CHECK(ibv_dereg_mr(mr[side]) == 0);
    }
    others_work();
    puts("done");
    return 0;
}
