// A program that exchanges random bytes by every kind of request, and compares all memory.
//
// payload rc|ud SEED BATCHES: "rc" with reliable connections, "ud" with datagrams. Short rings go round
// many times.
#include "verbs_pair.h"
#include <endian.h>

#define BATCH 16
#define SLOT (BYTES / BATCH)
// Bytes that a WQE holds at most, and in how many pieces, by the device.
static uint32_t inline_most = 200;
static int inline_pieces = 3;
#define GRH 40

static uint64_t state;

static uint64_t next_random(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint32_t below(uint32_t end) { return next_random() % end; }

// Memory of either side, and what it must hold.
static struct ibv_mr *mr[2];
static unsigned char *memory[2], expected[2][BYTES];
static struct ibv_qp *qp[2];
static struct ibv_cq *cq[2];

// Random bytes in a slot of one side.
static void fill(int side, int slot, uint32_t at, uint32_t len) {
    for (uint32_t i = 0; i < len; i++) memory[side][slot * SLOT + at + i] = next_random() >> 8;
    memcpy(expected[side] + slot * SLOT + at, memory[side] + slot * SLOT + at, len);
}

static void make_qps(enum ibv_qp_type type) {
    for (int side = 0; side < 2; side++) {
        mr[side] = registered(side);
        memory[side] = mr[side]->addr;
        CHECK((cq[side] = ibv_create_cq(context[side], 4 * DEPTH, NULL, NULL, 0)));
        struct ibv_qp_init_attr init = {.send_cq = cq[side], .recv_cq = cq[side], .qp_type = type, .sq_sig_all = 1};
        init.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 3, 1, inline_most};
        CHECK((qp[side] = ibv_create_qp(pd[side], &init)));
    }
}

static struct ibv_wc completion(int side) {
    struct ibv_wc wc;
    for (double end = now() + 60; now() < end;) {
        int n = ibv_poll_cq(cq[side], 1, &wc);
        CHECK(n >= 0);
        if (n && wc.status != IBV_WC_SUCCESS) {
            const char *what = ibv_wc_status_str(wc.status);
            fprintf(stderr, "side %d, request %d: %s\n", side, (int)wc.wr_id, what);
        }
        if (n) {
            CHECK(wc.status == IBV_WC_SUCCESS);
            return wc;
        }
    }
    fail(__LINE__, "a completion within a minute");
    return wc;
}

static void compare(int batch) {
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < BYTES; i++)
            if (memory[side][i] != expected[side][i]) {
                fprintf(stderr, "batch %d, side %d, slot %d, byte %d: %#x, expected %#x\n", batch, side, (int)(i / SLOT),
                        (int)(i % SLOT), memory[side][i], expected[side][i]);
                fail(__LINE__, "the bytes that were sent");
            }
}

static void receive(int side, int slot) {
    struct ibv_sge sge = {(uintptr_t)memory[side] + slot * SLOT, SLOT, mr[side]->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp[side], &wr, &bad) == 0);
}

// Bytes of a request: in up to three pieces.
static void pieces(struct ibv_send_wr *wr, struct ibv_sge *sge, int side, int slot, uint32_t len) {
    int n = 1 + below(len < 3 ? 1 : 3);
    uintptr_t at = (uintptr_t)memory[side] + slot * SLOT;
    for (int i = 0; i < n; i++) {
        uint32_t piece = i == n - 1 ? len : 1 + below(len - (n - 1 - i));
        sge[i] = (struct ibv_sge){at, piece, mr[side]->lkey};
        at += piece;
        len -= piece;
    }
    wr->sg_list = sge;
    wr->num_sge = n;
    wr->wr_id = slot;
}

static const enum ibv_wr_opcode OPCODES[] = {
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

static int has_imm(enum ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }
static int is_send(enum ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM; }

// An atomic on the first word of a slot, whose result goes into the same slot here.
static void atomic(struct ibv_send_wr *wr, struct ibv_sge *sge, int from, int slot) {
    int to = !from;
    uint64_t old, operand = next_random(), then;
    fill(to, slot, 0, 8);
    memcpy(&old, expected[to] + slot * SLOT, 8);
    *sge = (struct ibv_sge){(uintptr_t)memory[from] + slot * SLOT, 8, mr[from]->lkey};
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->wr_id = slot;
    wr->wr.atomic.remote_addr = (uintptr_t)memory[to] + slot * SLOT;
    wr->wr.atomic.rkey = mr[to]->rkey;
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr->wr.atomic.compare_add = operand;
        then = old + operand;
    } else {
        int equal = below(2);
        wr->wr.atomic.compare_add = equal ? old : ~old;
        wr->wr.atomic.swap = operand;
        then = equal ? operand : old;
    }
    memcpy(expected[from] + slot * SLOT, &old, 8);
    memcpy(expected[to] + slot * SLOT, &then, 8);
}

// A request of any other kind.
static uint32_t transfer(struct ibv_send_wr *wr, struct ibv_sge *sge, int from, int slot) {
    int to = !from, source = wr->opcode == IBV_WR_RDMA_READ ? to : from;
    uint32_t len = 1 + below(below(8) ? 256 : SLOT), at = slot * SLOT;
    fill(source, slot, 0, len);
    memcpy(expected[!source] + at, expected[source] + at, len);
    pieces(wr, sge, from, slot, len);
    if (source == from && len <= inline_most && wr->num_sge <= inline_pieces && below(2)) wr->send_flags |= IBV_SEND_INLINE;
    if (has_imm(wr->opcode)) wr->imm_data = htobe32(next_random());
    if (is_send(wr->opcode) || has_imm(wr->opcode)) receive(to, slot);
    if (!is_send(wr->opcode)) {
        wr->wr.rdma.remote_addr = (uintptr_t)memory[to] + at;
        wr->wr.rdma.rkey = mr[to]->rkey;
    }
    return len;
}

static void rc(int batches) {
    make_qps(IBV_QPT_RC);
    for (int i = 0; i < 2; i++) connect_to(qp[i], qp[!i]->qp_num, context[!i]);
    for (int batch = 0; batch < batches; batch++) {
        struct ibv_send_wr wr[BATCH] = {0}, *bad;
        struct ibv_sge sge[BATCH][3];
        uint32_t len[BATCH];
        int from = below(2), first = 0;
        for (int slot = 0; slot < BATCH; slot++) {
            wr[slot].opcode = OPCODES[below(7)];
            // Besides `sq_sig_all`, which libionic of v61 does not look at.
            wr[slot].send_flags = IBV_SEND_SIGNALED;
            int is_atomic = wr[slot].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || wr[slot].opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
            len[slot] = 8;
            if (is_atomic) atomic(&wr[slot], sge[slot], from, slot);
            else len[slot] = transfer(&wr[slot], sge[slot], from, slot);
        }
        // In lists of any length.
        for (int slot = 0; slot < BATCH; slot++) {
            if (slot < BATCH - 1 && below(3)) {
                wr[slot].next = &wr[slot + 1];
                continue;
            }
            CHECK(ibv_post_send(qp[from], &wr[first], &bad) == 0);
            first = slot + 1;
        }
        for (int slot = 0; slot < BATCH; slot++) CHECK(completion(from).wr_id == (uint64_t)slot);
        for (int slot = 0; slot < BATCH; slot++) {
            enum ibv_wr_opcode opcode = wr[slot].opcode;
            if (!is_send(opcode) && !has_imm(opcode)) continue;
            struct ibv_wc wc = completion(!from);
            CHECK(wc.wr_id == (uint64_t)slot && wc.byte_len == len[slot]);
            CHECK(!(wc.wc_flags & IBV_WC_WITH_IMM) == !has_imm(opcode));
            CHECK(!has_imm(opcode) || wc.imm_data == wr[slot].imm_data);
        }
        compare(batch);
    }
}

static struct ibv_ah *ready_for_datagrams(int side) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
    CHECK(ibv_modify_qp(qp[side], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    a.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(qp[side], &a, IBV_QP_STATE) == 0);
    a.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp[side], &a, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.hop_limit = 1};
    CHECK(ibv_query_gid(context[!side], 1, 0, &to.grh.dgid) == 0);
    struct ibv_ah *ah = ibv_create_ah(pd[side], &to);
    CHECK(ah);
    return ah;
}

static void ud(int batches) {
    make_qps(IBV_QPT_UD);
    struct ibv_ah *ah[2] = {ready_for_datagrams(0), ready_for_datagrams(1)};
    for (int batch = 0; batch < batches; batch++) {
        struct ibv_send_wr wr[BATCH] = {0}, *bad;
        struct ibv_sge sge[BATCH][3];
        uint32_t len[BATCH];
        int from = below(2), to = !from;
        for (int slot = 0; slot < BATCH; slot++) {
            len[slot] = 1 + below(below(2) ? 128 : 1000);
            fill(from, slot, 0, len[slot]);
            memcpy(expected[to] + slot * SLOT + GRH, expected[from] + slot * SLOT, len[slot]);
            pieces(&wr[slot], sge[slot], from, slot, len[slot]);
            wr[slot].opcode = below(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
            wr[slot].imm_data = htobe32(next_random());
            wr[slot].send_flags = IBV_SEND_SIGNALED;
            int fits = len[slot] <= inline_most && wr[slot].num_sge <= inline_pieces;
            if (fits && below(2)) wr[slot].send_flags |= IBV_SEND_INLINE;
            wr[slot].wr.ud.ah = ah[from];
            wr[slot].wr.ud.remote_qpn = qp[to]->qp_num;
            wr[slot].wr.ud.remote_qkey = 0x11111111;
            receive(to, slot);
            CHECK(ibv_post_send(qp[from], &wr[slot], &bad) == 0);
        }
        for (int slot = 0; slot < BATCH; slot++) CHECK(completion(from).wr_id == (uint64_t)slot);
        for (int slot = 0; slot < BATCH; slot++) {
            struct ibv_wc wc = completion(to);
            int imm = has_imm(wr[slot].opcode);
            CHECK(wc.wr_id == (uint64_t)slot && wc.byte_len == len[slot] + GRH);
            // libbnxt_re loses some of the bits above these.
            CHECK(wc.wc_flags & IBV_WC_GRH && (wc.src_qp & 0xffff) == (qp[from]->qp_num & 0xffff));
            CHECK(!(wc.wc_flags & IBV_WC_WITH_IMM) == !imm && (!imm || wc.imm_data == wr[slot].imm_data));
            // The route header is not ours.
            memcpy(expected[to] + slot * SLOT, memory[to] + slot * SLOT, GRH);
        }
        compare(batch);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    state = strtoull(argv[2], NULL, 10);
    open_devices();
    // libbnxt_re before v47 puts each piece into a slot of its own, whatever its length.
    if (strncmp(ibv_get_device_name(context[0]->device), "bnxt_re", 7) == 0) inline_most = 96, inline_pieces = 1;
    if (strcmp(argv[1], "rc") == 0) rc(atoi(argv[3]));
    else ud(atoi(argv[3]));
    puts("done");
    return 0;
}
