// CQs and QPs made by mailboxes: fields as firmware has them, in words of 32 bits, big-endian.
#pragma once
#include "verbs_pair.h"

#define MAILBOX 0x110

static uint32_t be(uint32_t value) {
    return htobe32(value);
}

// Memory of the program's, where a queue or a record lies.
struct place {
    struct mlx5dv_devx_umem *umem;
    uint32_t offset;
};

static struct mlx5dv_devx_obj *made(struct ibv_context *with, uint32_t *in, uint32_t *number) {
    uint32_t out[4] = {0};
    struct mlx5dv_devx_obj *object = mlx5dv_devx_obj_create(with, in, MAILBOX, out, sizeof out);
    if (!object) fprintf(stderr, "command %#x: status %#x\n", be(in[0]) >> 16, be(out[0]) >> 24);
    CHECK(object);
    *number = be(out[2]) & 0xffffff;
    return object;
}

// CREATE_CQ: 2^6 CQEs.
static struct mlx5dv_devx_obj *make_cq(struct ibv_context *with, struct place queue, struct place record, uint32_t page, uint32_t *number) {
    uint32_t in[MAILBOX / 4] = {be(0x400u << 16)}, eqn;
    CHECK(mlx5dv_devx_query_eqn(with, 0, &eqn) == 0);
    in[0x14 / 4] = be(record.umem->umem_id);
    in[0x1c / 4] = be(6u << 24 | page);
    in[0x24 / 4] = be(eqn);
    in[0x4c / 4] = be(record.offset);
    in[0x54 / 4] = be(queue.offset);
    in[0x58 / 4] = be(queue.umem->umem_id);
    in[0x5c / 4] = be(1u << 31);
    return made(with, in, number);
}
