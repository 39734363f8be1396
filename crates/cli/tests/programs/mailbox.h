// Mailboxes of firmware commands by the places of their bits, and queues made by them.
#pragma once
#include "verbs_pair.h"
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>

// Bits `high` to `low` of the 32-bit word at byte `at`.
static void set(void *mailbox, int at, int high, int low, uint32_t value) {
    uint32_t word, mask = (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1) << low;
    CHECK((value << low & ~mask) == 0);
    memcpy(&word, (char *)mailbox + at, 4);
    word = htobe32((be32toh(word) & ~mask) | value << low);
    memcpy((char *)mailbox + at, &word, 4);
}

static void set64(void *mailbox, int at, uint64_t value) {
    set(mailbox, at, 31, 0, value >> 32);
    set(mailbox, at + 4, 31, 0, (uint32_t)value);
}

static uint32_t get(const void *mailbox, int at, int high, int low) {
    uint32_t word;
    memcpy(&word, (const char *)mailbox + at, 4);
    return be32toh(word) >> low & (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1);
}

struct memory {
    char *at;
    struct mlx5dv_devx_umem *umem;
};

// Exports memory as a dmabuf, if umems are to be registered by such.
static int (*export)(int *, uint64_t, size_t, int, uint64_t);

static struct mlx5dv_devx_umem *exported(struct ibv_context *c, char *at, size_t bytes) {
    struct mlx5dv_devx_umem_in in = {
        .size = bytes,
        .access = IBV_ACCESS_LOCAL_WRITE,
        .pgsz_bitmap = ~(PAGE - 1ull),
        .comp_mask = MLX5DV_UMEM_MASK_DMABUF,
    };
    size_t whole = (bytes + PAGE - 1) & ~(PAGE - 1ull);
    CHECK(export(&in.dmabuf_fd, (uintptr_t)at, whole, 1, 0) == 0);
    // Not beyond its end.
    in.addr = (void *)(whole - bytes + 1);
    CHECK(!mlx5dv_devx_umem_reg_ex(c, &in) && errno == EINVAL);
    in.addr = NULL;
    struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg_ex(c, &in);
    close(in.dmabuf_fd);
    return umem;
}

static struct memory memory(struct ibv_context *c, size_t bytes) {
    struct memory m;
    CHECK(posix_memalign((void **)&m.at, 1 << 16, bytes) == 0);
    memset(m.at, 0, bytes);
    m.umem = export ? exported(c, m.at, bytes) : mlx5dv_devx_umem_reg(c, m.at, bytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(m.umem);
    return m;
}

static void give_back(struct memory m) {
    CHECK(mlx5dv_devx_umem_dereg(m.umem) == 0);
    free(m.at);
}

static struct mlx5dv_devx_obj *make(struct ibv_context *c, void *mailbox, uint32_t *number) {
    char answer[16] = {0};
    struct mlx5dv_devx_obj *made = mlx5dv_devx_obj_create(c, mailbox, 0x110, answer, sizeof answer);
    if (!made) fprintf(stderr, "status %#x, syndrome %#x\n", get(answer, 0, 31, 24), get(answer, 4, 31, 0));
    CHECK(made);
    *number = get(answer, 8, 23, 0);
    return made;
}

// A transition of a QP.
static void modify(struct mlx5dv_devx_obj *qp, uint32_t qpn, char *mailbox) {
    char answer[16] = {0};
    set(mailbox, 8, 23, 0, qpn);
    int failed = mlx5dv_devx_obj_modify(qp, mailbox, 0x110, answer, sizeof answer);
    if (failed) fprintf(stderr, "status %#x\n", get(answer, 0, 31, 24));
    CHECK(!failed);
}

// Where frames to this GID go, into an address path.
static void resolve(int side, union ibv_gid gid, char *path) {
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    attr.grh.dgid = gid;
    attr.grh.hop_limit = 255;
    struct ibv_ah *ah = ibv_create_ah(pd[side], &attr);
    CHECK(ah);
    struct mlx5dv_ah dah;
    struct mlx5dv_obj obj = {.ah = {ah, &dah}};
    CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_AH) == 0);
    memcpy(path + 0x26, dah.av->rmac, 6);
    memcpy(path + 0x10, gid.raw, 16);
    set(path, 8, 7, 0, 255);
    CHECK(memcmp(dah.av->rgid, gid.raw, 16) == 0);
    CHECK(ibv_destroy_ah(ah) == 0);
}

// A send queue with its CQ.
struct queue {
    struct ibv_context *context;
    struct memory cq, cq_record, wq, record;
    struct mlx5dv_devx_uar *cq_uar, *uar;
    struct mlx5dv_devx_obj *cq_object, *object;
    uint32_t qpn, cqn;
    uint16_t posted;
};

static void destroy(struct queue *q) {
    CHECK(mlx5dv_devx_obj_destroy(q->object) == 0);
    CHECK(mlx5dv_devx_obj_destroy(q->cq_object) == 0);
    mlx5dv_devx_free_uar(q->uar);
    mlx5dv_devx_free_uar(q->cq_uar);
    give_back(q->cq), give_back(q->cq_record), give_back(q->wq), give_back(q->record);
}

// Writes what was posted to one half of the record, and rings.
static void announce(struct queue *q, int half) {
    atomic_thread_fence(memory_order_release);
    ((volatile uint32_t *)q->record.at)[half] = htobe32(q->posted);
    atomic_thread_fence(memory_order_release);
    *(volatile uint64_t *)q->uar->reg_addr = htobe64((uint64_t)q->posted << 40 | (uint64_t)q->qpn << 8);
}

// The first segment of the WQE number `index`: 64 bytes, `segments` of 16 used, with a CQE.
static void control(void *wqe, uint32_t qpn, uint16_t index, int opcode, int segments) {
    memset(wqe, 0, 64);
    set(wqe, 0, 31, 0, (uint32_t)index << 8 | opcode);
    set(wqe, 4, 31, 0, qpn << 8 | segments);
    ((char *)wqe)[11] = 8;
}
