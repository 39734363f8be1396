// Helpers of these tests' programs: pairs of QPs on one device or two, and requests that work.
#pragma once
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define BYTES (16 * PAGE)
#define DEPTH 64

#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))

static void fail(int line, const char *what) {
    fprintf(stderr, "line %d: not so: %s\n", line, what);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

// The first QP of a pair is on the first device, the other on the second, if there is one.
static struct ibv_context *context[2];
static struct ibv_pd *pd[2];

// Two QPs that are connected to each other, and the CQ of the first.
struct pair {
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
};

static void connect_to(struct ibv_qp *qp, uint32_t peer, struct ibv_context *there) {
    union ibv_gid gid;
    CHECK(ibv_query_gid(there, 1, 0, &gid) == 0);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 1;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = gid;
    a.ah_attr.grh.hop_limit = 1;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    memset(&a, 0, sizeof a);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 17;
    a.retry_cnt = 7;
    a.rnr_retry = 1;
    a.max_rd_atomic = 1;
    CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

// The object that `make_pair` is at: a CQ, 0 or 2, or a QP, 1 or 3, of either side; -1 else.
static int making = -1;

static struct pair make_pair(void) {
    struct pair p;
    for (int i = 1; i >= 0; i--) {
        making = 2 * i;
        CHECK((p.cq = ibv_create_cq(context[i], 4 * DEPTH, NULL, NULL, 0)));
        struct ibv_qp_init_attr init = {.send_cq = p.cq, .recv_cq = p.cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
        init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, 0};
        making++;
        CHECK((p.qp[i] = ibv_create_qp(pd[i], &init)));
    }
    making = -1;
    for (int i = 0; i < 2; i++) connect_to(p.qp[i], p.qp[!i]->qp_num, context[!i]);
    return p;
}

static int post(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    struct ibv_sge sge = {(uintptr_t)from->addr, len, from->lkey};
    // Besides `sq_sig_all`, which libionic of v61 does not look at.
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)to->addr;
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.rkey = to->rkey;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
        wr.wr.rdma.rkey = to->rkey;
    }
    return ibv_post_send(p->qp[0], &wr, &bad);
}

static enum ibv_wc_status next(struct pair *p) {
    struct ibv_wc wc;
    for (double end = now() + 60; now() < end;) {
        int n = ibv_poll_cq(p->cq, 1, &wc);
        CHECK(n >= 0);
        if (n) return wc.status;
    }
    fail(__LINE__, "a completion within a minute");
    return 0;
}

static enum ibv_wc_status one(struct pair *p, enum ibv_wr_opcode opcode, struct ibv_mr *from, struct ibv_mr *to, uint32_t len) {
    CHECK(post(p, opcode, from, to, len) == 0);
    return next(p);
}

static void *fresh(void) {
    void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static struct ibv_mr *registered(int side) {
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = ibv_reg_mr(pd[side], fresh(), BYTES, rights);
    CHECK(mr);
    return mr;
}

// The device still works for others.
static void others_work(void) {
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    memset(a->addr, 7, BYTES);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, BYTES) == IBV_WC_SUCCESS);
    CHECK(memcmp(a->addr, b->addr, BYTES) == 0);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

__attribute__((unused)) static void wait_for_error(struct ibv_qp *qp) {
    for (double end = now() + 60; state_of(qp) != IBV_QPS_ERR;) CHECK(now() < end);
}

// The doorbell pages of the open devices, which lie behind the ends of their files.
__attribute__((unused)) static int pages(volatile uint64_t *out[2]) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, offset;
        if (!strstr(line, "warpverbs-uverbs") || sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) != 3) continue;
        if (offset == 0x4000000 && found < 2) out[found++] = (volatile uint64_t *)from;
    }
    fclose(maps);
    CHECK(found > 0);
    return found;
}

__attribute__((unused)) static int is_ionic(void) {
    return !strncmp(ibv_get_device_name(context[0]->device), "ionic", 5);
}

// Opens one device or two.
static void open_devices(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    int devices = list[1] ? 2 : 1;
    for (int i = 0; i < 2; i++) {
        if (i < devices) {
            CHECK((context[i] = ibv_open_device(list[i])) && (pd[i] = ibv_alloc_pd(context[i])));
        } else {
            context[i] = context[0], pd[i] = pd[0];
        }
    }
}

__attribute__((unused)) static struct mlx5dv_qp rings(struct ibv_qp *qp) {
    struct mlx5dv_qp out = {0};
    struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &out}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP) == 0);
    return out;
}

// Lets the device look at its queues a few times: others' requests are carried out meanwhile.
__attribute__((unused)) static void settle(void) {
    for (int i = 0; i < 20; i++) others_work();
}
