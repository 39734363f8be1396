// The objects that NVSHMEM's IBGDA makes, by the same calls with the same fields, and work in its form.
//
// ibgda [DRIVER]: exits with 0 if all were made, what is posted to connections arrives, and what is
// posted to an initiator of dynamic connections is refused. With a driver, a library that `iomemory.c`
// is compiled to, it exports the memory of queues as dmabufs, by which they are registered.
#define _GNU_SOURCE
#include "mailbox.h"
#include <dlfcn.h>
#include <errno.h>

#define KEY 0x5623CEAFul
#define WQEBBS 16

// The objects and the GID that the queues of a device share.
struct device {
    uint32_t pdn, srqn, recv_cqn;
    struct ibv_srq *srq;
    struct ibv_cq *recv_cq;
    union ibv_gid gid;
};

static struct device device(int side) {
    struct device d;
    struct mlx5dv_pd dvpd;
    struct mlx5dv_cq dvcq = {0};
    struct mlx5dv_srq dvsrq = {.comp_mask = MLX5DV_SRQ_MASK_SRQN};
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 256, .max_sge = 1}};
    CHECK((d.srq = ibv_create_srq(pd[side], &init)));
    CHECK((d.recv_cq = ibv_create_cq(context[side], 256, NULL, NULL, 0)));
    struct mlx5dv_obj obj = {.pd = {pd[side], &dvpd}, .cq = {d.recv_cq, &dvcq}, .srq = {d.srq, &dvsrq}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD | MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ) == 0);
    d.pdn = dvpd.pdn;
    d.recv_cqn = dvcq.cqn;
    CHECK((d.srqn = dvsrq.srqn));
    CHECK(ibv_query_gid(context[side], 1, 0, &d.gid) == 0);
    return d;
}

// A send queue with a collapsed CQ.
static struct queue queue(int side, const struct device *d, int service) {
    struct queue q = {.context = context[side]};
    char mailbox[0x110] = {0};
    uint32_t eqn;
    CHECK(mlx5dv_devx_query_eqn(q.context, 0, &eqn) == 0);
    q.cq = memory(q.context, 1 << 16);
    q.cq_record = memory(q.context, 1 << 16);
    CHECK((q.cq_uar = mlx5dv_devx_alloc_uar(q.context, MLX5DV_UAR_ALLOC_TYPE_NC)));
    set(mailbox, 0, 31, 16, 0x400); // CREATE_CQ
    set(mailbox, 0x58, 31, 0, q.cq.umem->umem_id);
    set(mailbox, 0x5c, 31, 31, 1);
    char *cqc = mailbox + 0x10;
    set(cqc, 0, 25, 25, 1); // record by umem
    set(cqc, 0, 20, 20, 1); // collapsed
    set(cqc, 0, 17, 17, 1); // overrun ignored
    set(cqc, 4, 31, 0, q.cq_record.umem->umem_id);
    set(cqc, 0xc, 28, 24, 4);
    set(cqc, 0xc, 23, 0, q.cq_uar->page_id);
    set(cqc, 0x14, 7, 0, eqn);
    set(cqc, 0x18, 28, 24, 4); // pages of 64 KiB
    q.cq_object = make(q.context, mailbox, &q.cqn);

    // As the CPU handler does with a libmlx5 that has no register for each QP.
    CHECK((q.uar = mlx5dv_devx_alloc_uar(q.context, MLX5DV_UAR_ALLOC_TYPE_NC)));
    q.wq = memory(q.context, WQEBBS * 64);
    q.record = memory(q.context, 8);
    memset(mailbox, 0, sizeof mailbox);
    set(mailbox, 0, 31, 16, 0x500); // CREATE_QP
    set(mailbox, 0x108, 31, 0, q.wq.umem->umem_id);
    set(mailbox, 0x10c, 31, 31, 1);
    char *qpc = mailbox + 0x18;
    set(qpc, 0, 23, 16, service);
    set(qpc, 0, 12, 11, 3); // migrated
    set(qpc, 4, 23, 0, d->pdn);
    set(qpc, 8, 14, 11, 4);
    set(qpc, 0xc, 23, 0, q.uar->page_id);
    set(qpc, 0x10, 23, 0, side);
    set(qpc, 0x7c, 23, 0, q.cqn);
    set(qpc, 0x9c, 23, 0, d->recv_cqn);
    set(qpc, 0xac, 26, 24, 1); // receives of an SRQ
    set(qpc, 0xac, 23, 0, d->srqn);
    set(qpc, 0xd0, 28, 28, 1);
    set(qpc, 0xe4, 31, 0, q.record.umem->umem_id);
    q.object = make(q.context, mailbox, &q.qpn);
    return q;
}

// From RESET to RTS; `peer` for connections alone.
static void ready(struct queue *q, int side, const struct queue *peer, const struct device *there) {
    char to_init[0x110] = {0}, to_rtr[0x110] = {0}, to_rts[0x110] = {0}, *qpc = to_init + 0x18;
    set(to_init, 0, 31, 16, 0x502);
    set(qpc, 0, 12, 11, 3);
    set(qpc, 0x18 + 0x24, 23, 16, 1); // port
    if (peer) {
        set(qpc, 0x90, 15, 13, 7); // rights
        set(qpc, 0x90, 19, 16, 3); // atomics of up to 8 bytes
    } else {
        set64(qpc, 0xc8, KEY);
    }
    modify(q->object, q->qpn, to_init);

    set(to_rtr, 0, 31, 16, 0x503);
    qpc = to_rtr + 0x18;
    set(qpc, 8, 31, 29, 3);
    set(qpc, 8, 28, 24, 30);
    if (peer) {
        set(qpc, 0x14, 23, 0, peer->qpn);
        set(qpc, 0x94, 28, 24, 12);
        set(qpc, 0x90, 23, 21, 4);
        resolve(side, there->gid, qpc + 0x18);
        set(qpc, 0x18 + 0x20, 15, 0, 0xC000);
        // Which port was said before.
    }
    modify(q->object, q->qpn, to_rtr);

    set(to_rts, 0, 31, 16, 0x504);
    qpc = to_rts + 0x18;
    set(qpc, 0x70, 23, 21, 4);
    set(qpc, 0x70, 18, 16, 7);
    set(qpc, 0x70, 15, 13, 7);
    set(qpc, 0x18 + 8, 31, 27, 20);
    modify(q->object, q->qpn, to_rts);
}

// A WQEBB, the record and the doorbell. The CPU handler counts in the half of the receives.
static void ring(struct queue *q, const void *wqe, int half) {
    memcpy(q->wq.at + q->posted % WQEBBS * 64, wqe, 64);
    q->posted++;
    announce(q, half);
}

// Opcode and syndrome of the CQE for the newest work.
static void completed(struct queue *q, int *opcode, int *syndrome) {
    volatile unsigned char *cqe = (volatile unsigned char *)q->cq.at;
    for (double end = now() + 60;;) {
        uint16_t index = cqe[60] << 8 | cqe[61];
        if (cqe[63] >> 4 != 0xf && index == (uint16_t)(q->posted - 1)) break;
        CHECK(now() < end);
    }
    atomic_thread_fence(memory_order_acquire);
    *opcode = cqe[63] >> 4;
    *syndrome = cqe[55];
}

static void put(struct queue *q, struct ibv_mr *to, uint64_t value, int half) {
    char wqe[64];
    int opcode, syndrome;
    control(wqe, q->qpn, q->posted, 8, 3); // RDMA WRITE
    set64(wqe, 16, (uintptr_t)to->addr);
    set(wqe, 24, 31, 0, to->rkey);
    set(wqe, 32, 31, 0, 1u << 31 | 8); // inline
    memcpy(wqe + 36, &value, 8);
    ring(q, wqe, half);
    completed(q, &opcode, &syndrome);
    CHECK(opcode == 0);
    CHECK(*(volatile uint64_t *)to->addr == value);
}

// A target of dynamic connections.
static struct ibv_qp *target(int side, struct ibv_pd *domain, const struct device *d) {
    struct ibv_qp_init_attr_ex init = {.pd = domain, .comp_mask = IBV_QP_INIT_ATTR_PD, .qp_type = IBV_QPT_DRIVER};
    struct mlx5dv_qp_init_attr driver = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC};
    driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    driver.dc_init_attr.dct_access_key = KEY;
    init.srq = d->srq;
    init.send_cq = init.recv_cq = d->recv_cq;
    init.cap = (struct ibv_qp_cap){1024, 1024, 1, 1, 12};
    struct ibv_qp *qp = mlx5dv_create_qp(context[side], &init, &driver);
    CHECK(qp);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = d->gid;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER) == 0);
    CHECK(qp->qp_num != 0);
    // It never sends.
    a.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == EINVAL);
    return qp;
}

static void capabilities(int side) {
    static char mailbox[0x10], answer[0x1010];
    for (int kind = 0; kind <= 3; kind += 3) {
        memset(mailbox, 0, sizeof mailbox);
        set(mailbox, 0, 31, 16, 0x100);
        set(mailbox, 4, 15, 0, kind << 1 | 1);
        CHECK(mlx5dv_devx_general_cmd(context[side], mailbox, sizeof mailbox, answer, sizeof answer) == 0);
        const char *caps = answer + 0x10;
        if (kind == 0) {
            CHECK(get(caps, 0x3c, 3, 0) == 1); // version of CQEs
        } else {
            CHECK(get(caps, 0x10, 3, 0) == 0xf); // all operations
            CHECK(get(caps, 0x14, 3, 2) == 3 && get(caps, 0x18, 3, 2) == 3); // of 4 and 8 bytes
        }
    }
}

// A dmabuf that is none, and one of no GPU.
static void no_dmabufs(void) {
    CHECK(!ibv_reg_dmabuf_mr(pd[0], 0, PAGE, 0, -1, 0) && errno == EBADF);
    int fd = memfd_create("none", 0);
    CHECK(fd >= 0);
    CHECK(!ibv_reg_dmabuf_mr(pd[0], 0, PAGE, 1, fd, 0) && errno == EINVAL);
    CHECK(!ibv_reg_dmabuf_mr(pd[0], 0, PAGE, 0, fd, 0) && errno == EOPNOTSUPP);
    struct mlx5dv_devx_umem_in in = {
        .size = PAGE, .pgsz_bitmap = ~0ull, .comp_mask = MLX5DV_UMEM_MASK_DMABUF, .dmabuf_fd = fd};
    CHECK(!mlx5dv_devx_umem_reg_ex(context[0], &in) && errno == EOPNOTSUPP);
    close(fd);
}

int main(int argc, char **argv) {
    int opcode, syndrome;
    if (argc == 2) {
        void *driver = dlopen(argv[1], RTLD_NOW);
        CHECK(driver);
        *(void **)&export = dlsym(driver, "cuMemGetHandleForAddressRange");
        CHECK(export);
    }
    open_devices();
    struct device devices[2] = {device(0), device(1)};
    struct queue rc[2], dci[2];
    struct ibv_qp *dct[2][2];
    struct ibv_pd *domain[2];
    struct ibv_mr *mr[2] = {registered(0), registered(1)};
    for (int side = 0; side < 2; side++) {
        capabilities(side);
        struct ibv_parent_domain_init_attr attr = {.pd = pd[side]};
        CHECK((domain[side] = ibv_alloc_parent_domain(context[side], &attr)));
        for (int i = 0; i < 2; i++) dct[side][i] = target(side, domain[side], &devices[side]);
        CHECK(dct[side][0]->qp_num != dct[side][1]->qp_num);
        rc[side] = queue(side, &devices[side], 0);
        dci[side] = queue(side, &devices[side], 5);
        ready(&dci[side], side, NULL, NULL);
    }
    for (int side = 0; side < 2; side++) ready(&rc[side], side, &rc[!side], &devices[!side]);
    // Round the rings: one side as the handler of the GPU does it, the other as that of the CPU.
    for (int i = 1; i < 5 * WQEBBS; i++)
        for (int side = 0; side < 2; side++) put(&rc[side], mr[!side], (uint64_t)i << 32 | side, !side);
    no_dmabufs();
    // Nothing is carried by dynamic connections, and that is said.
    char wqe[64];
    control(wqe, dci[0].qpn, dci[0].posted, 8, 3);
    ring(&dci[0], wqe, 1);
    completed(&dci[0], &opcode, &syndrome);
    CHECK(opcode == 13 && syndrome == 2);
    for (int side = 0; side < 2; side++) {
        destroy(&rc[side]);
        destroy(&dci[side]);
        for (int i = 0; i < 2; i++) CHECK(ibv_destroy_qp(dct[side][i]) == 0);
        CHECK(ibv_dealloc_pd(domain[side]) == 0);
        CHECK(ibv_destroy_srq(devices[side].srq) == 0);
        CHECK(ibv_destroy_cq(devices[side].recv_cq) == 0);
        CHECK(ibv_dereg_mr(mr[side]) == 0);
    }
    others_work();
    puts("done");
    return 0;
}
