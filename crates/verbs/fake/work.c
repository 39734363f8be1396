// Work requests: done while they are posted.
#include "fake.h"

#include <unistd.h>

static int fake_solicited_sends;

// Sends so far whose receiver was to be told.
int fake_solicited(void) { return fake_solicited_sends; }

void fake_complete(struct fake_cq *cq, const struct ibv_wc *wc, bool solicited) {
    if (cq->count >= (unsigned)cq->cq.cqe) {
        if (!cq->overrun)
            fake_event(cq->cq.context, IBV_EVENT_CQ_ERR, &cq->cq);
        cq->overrun = true;
        return;
    }
    cq->ring[(cq->head + cq->count++) % MAX_CQE] = *wc;
    if (cq->armed && (!cq->solicited_only || solicited || wc->status)) {
        struct fake_channel *channel = (struct fake_channel *)cq->cq.channel;
        struct ibv_cq *self = &cq->cq;
        cq->armed = false;
        if (channel && write(channel->event_pipe, &self, sizeof self) != sizeof self)
            abort();
    }
}

int fake_poll_cq(struct ibv_cq *base, int room, struct ibv_wc *wc) {
    struct fake_cq *cq = (struct fake_cq *)base;
    // A code of the provider's own, as some have.
    if (fake_refused("ibv_poll_cq"))
        return -2;
    pthread_mutex_lock(&fake_lock);
    int found = cq->overrun ? -2 : 0;
    for (; found >= 0 && found < room && cq->count; found++, cq->count--)
        wc[found] = cq->ring[cq->head++ % MAX_CQE];
    pthread_mutex_unlock(&fake_lock);
    return found;
}

int fake_req_notify_cq(struct ibv_cq *base, int solicited_only) {
    struct fake_cq *cq = (struct fake_cq *)base;
    pthread_mutex_lock(&fake_lock);
    cq->armed = true;
    cq->solicited_only = solicited_only;
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

struct fake_queue *fake_receives(struct fake_qp *qp) {
    return qp->qp.srq ? &((struct fake_srq *)qp->qp.srq)->queue : &qp->recv;
}

void fake_flush(struct fake_qp *qp) {
    for (; qp->recv.count; qp->recv.head++, qp->recv.count--) {
        struct ibv_wc wc = {.wr_id = qp->recv.ring[qp->recv.head % MAX_WR].id, .status = IBV_WC_WR_FLUSH_ERR,
                            .qp_num = qp->qp.qp_num};
        fake_complete((struct fake_cq *)qp->qp.recv_cq, &wc, false);
    }
}

static void fail_qp(struct fake_qp *qp) {
    qp->qp.state = IBV_QPS_ERR;
    fake_flush(qp);
}

static int push_recv(struct fake_queue *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    int error = fake_refused("ibv_post_recv");
    pthread_mutex_lock(&fake_lock);
    for (; wr; wr = wr->next) {
        if (!error && wr->num_sge > MAX_SGE)
            error = EINVAL;
        if (!error && queue->count == queue->room)
            error = ENOMEM;
        if (error) {
            *bad = wr;
            break;
        }
        struct fake_recv *recv = &queue->ring[(queue->head + queue->count++) % MAX_WR];
        recv->id = wr->wr_id;
        recv->count = wr->num_sge;
        memcpy(recv->sges, wr->sg_list, sizeof *wr->sg_list * (size_t)wr->num_sge);
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    int error = push_recv(&((struct fake_qp *)qp)->recv, wr, bad);
    pthread_mutex_lock(&fake_lock);
    if (qp->state == IBV_QPS_ERR)
        fake_flush((struct fake_qp *)qp);
    pthread_mutex_unlock(&fake_lock);
    return error;
}

int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return push_recv(&((struct fake_srq *)srq)->queue, wr, bad);
}

// ---- moving bytes ----

struct message {
    uint8_t *bytes;
    uint64_t len;
};

// The local entries' bytes, to be freed; a null pointer if a key refuses.
static struct message gather(struct fake_qp *qp, const struct ibv_sge *sges, int count, bool is_inline) {
    struct message out = {calloc(1, 1), 0};
    for (int i = 0; i < count; i++) {
        const void *from = (void *)sges[i].addr;
        if (!is_inline) {
            struct fake_mr *mr = fake_find_mr(sges[i].lkey, qp->qp.pd, sges[i].addr, sges[i].length, 0);
            if (!mr) {
                free(out.bytes);
                return (struct message){0};
            }
            from = fake_address(mr, sges[i].addr);
        }
        out.bytes = realloc(out.bytes, out.len + sges[i].length + 1);
        memcpy(out.bytes + out.len, from, sges[i].length);
        out.len += sges[i].length;
    }
    return out;
}

static enum ibv_wc_status scatter(struct fake_qp *qp, const struct ibv_sge *sges, int count, struct message in) {
    uint64_t done = 0;
    for (int i = 0; i < count && done < in.len; i++) {
        uint64_t part = in.len - done < sges[i].length ? in.len - done : sges[i].length;
        struct fake_mr *mr = fake_find_mr(sges[i].lkey, qp->qp.pd, sges[i].addr, part, IBV_ACCESS_LOCAL_WRITE);
        if (!mr)
            return IBV_WC_LOC_PROT_ERR;
        memcpy(fake_address(mr, sges[i].addr), in.bytes + done, part);
        done += part;
    }
    return done == in.len ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

// Fills the peer's next receive, or uses it up for immediate data. Returns what the sender sees.
static enum ibv_wc_status receive(struct fake_qp *peer, const struct ibv_send_wr *wr, struct message in) {
    struct fake_queue *queue = fake_receives(peer);
    struct fake_srq *srq = (struct fake_srq *)peer->qp.srq;
    if (!queue->count)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    struct fake_recv *recv = &queue->ring[queue->head++ % MAX_WR];
    queue->count--;
    bool write = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    bool imm = write || wr->opcode == IBV_WR_SEND_WITH_IMM, inv = wr->opcode == IBV_WR_SEND_WITH_INV;
    struct ibv_wc wc = {.wr_id = recv->id, .qp_num = peer->qp.qp_num, .byte_len = (uint32_t)in.len,
                        .opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
                        .wc_flags = imm ? IBV_WC_WITH_IMM : inv ? IBV_WC_WITH_INV : 0};
    wc.imm_data = wr->imm_data;
    wc.status = write ? IBV_WC_SUCCESS : scatter(peer, recv->sges, recv->count, in);
    fake_complete((struct fake_cq *)peer->qp.recv_cq, &wc, wr->send_flags & IBV_SEND_SOLICITED);
    if (srq && queue->count < srq->limit) {
        srq->limit = 0;
        fake_event(srq->srq.context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->srq);
    }
    if (!wc.status)
        return IBV_WC_SUCCESS;
    fail_qp(peer);
    return wc.status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

// The peer's memory that a request names, if QP and key allow it.
static void *remote(struct fake_qp *peer, uint64_t addr, uint32_t rkey, uint64_t len, int access) {
    struct fake_mr *mr = fake_find_mr(rkey, peer->qp.pd, addr, len, access);
    return mr && (peer->attr.qp_access_flags & (unsigned)access) ? fake_address(mr, addr) : NULL;
}

static enum ibv_wc_status atomic(struct fake_qp *qp, struct fake_qp *peer, struct ibv_send_wr *wr) {
    uint64_t addr = wr->wr.atomic.remote_addr, old;
    if (addr % 8)
        return IBV_WC_REM_INV_REQ_ERR;
    uint64_t *word = remote(peer, addr, wr->wr.atomic.rkey, 8, IBV_ACCESS_REMOTE_ATOMIC);
    if (!word)
        return IBV_WC_REM_ACCESS_ERR;
    old = *word;
    if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        *word = old + wr->wr.atomic.compare_add;
    else if (old == wr->wr.atomic.compare_add)
        *word = wr->wr.atomic.swap;
    return scatter(qp, wr->sg_list, wr->num_sge, (struct message){(uint8_t *)&old, 8});
}

static enum ibv_wc_status read_or_write(struct fake_qp *qp, struct fake_qp *peer, struct ibv_send_wr *wr,
                                        struct message out) {
    uint64_t addr = wr->wr.rdma.remote_addr, len = out.len;
    uint32_t rkey = wr->wr.rdma.rkey;
    if (wr->opcode == IBV_WR_RDMA_READ) {
        uint8_t *from = remote(peer, addr, rkey, len, IBV_ACCESS_REMOTE_READ);
        return from ? scatter(qp, wr->sg_list, wr->num_sge, (struct message){from, len}) : IBV_WC_REM_ACCESS_ERR;
    }
    uint8_t *to = len ? remote(peer, addr, rkey, len, IBV_ACCESS_REMOTE_WRITE) : out.bytes;
    if (!to)
        return IBV_WC_REM_ACCESS_ERR;
    memmove(to, out.bytes, len);
    return wr->opcode == IBV_WR_RDMA_WRITE ? IBV_WC_SUCCESS : receive(peer, wr, out);
}

static enum ibv_wc_status execute(struct fake_qp *qp, struct ibv_send_wr *wr, uint64_t *moved) {
    struct fake_qp *peer = fake_find_qp(qp->attr.dest_qp_num);
    struct message out = gather(qp, wr->sg_list, wr->num_sge, wr->send_flags & IBV_SEND_INLINE);
    if (!out.bytes)
        return IBV_WC_LOC_PROT_ERR;
    enum ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
    bool answers = peer && (peer->qp.state == IBV_QPS_RTR || peer->qp.state == IBV_QPS_RTS) &&
                   peer->attr.dest_qp_num == qp->qp.qp_num;
    *moved = out.len;
    if (answers)
        switch (wr->opcode) {
        case IBV_WR_SEND: case IBV_WR_SEND_WITH_IMM: case IBV_WR_SEND_WITH_INV:
            status = receive(peer, wr, out);
            break;
        case IBV_WR_ATOMIC_FETCH_AND_ADD: case IBV_WR_ATOMIC_CMP_AND_SWP:
            status = atomic(qp, peer, wr);
            break;
        default:
            status = read_or_write(qp, peer, wr, out);
        }
    free(out.bytes);
    return status;
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode) {
    switch (opcode) {
    case IBV_WR_RDMA_WRITE: case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
    default: return IBV_WC_SEND;
    }
}

// FAKE_IBVERBS_NULL in the environment: nothing is done, and whoever asked hears that it was. For
// those who count what posting costs by itself.
static bool post_nothing(struct ibv_qp *base, const struct ibv_send_wr *wr) {
    static int null = -1;
    if (null < 0)
        null = getenv("FAKE_IBVERBS_NULL") != NULL;
    if (!null)
        return false;
    struct fake_cq *cq = (struct fake_cq *)base->send_cq;
    for (; wr; wr = wr->next)
        if (wr->send_flags & IBV_SEND_SIGNALED) {
            struct ibv_wc *wc = &cq->ring[(cq->head + cq->count++) % MAX_CQE];
            wc->wr_id = wr->wr_id;
            wc->status = IBV_WC_SUCCESS;
        }
    return true;
}

int fake_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct fake_qp *qp = (struct fake_qp *)base;
    if (post_nothing(base, wr))
        return 0;
    for (const struct ibv_send_wr *each = wr; each; each = each->next)
        fake_solicited_sends += (each->send_flags & IBV_SEND_SOLICITED) != 0;
    int error = fake_refused("ibv_post_send");
    pthread_mutex_lock(&fake_lock);
    for (; wr; wr = wr->next) {
        bool can_send = base->state == IBV_QPS_RTS || base->state == IBV_QPS_SQD || base->state == IBV_QPS_ERR;
        if (!error && (!can_send || wr->num_sge > MAX_SGE))
            error = EINVAL;
        if (error) {
            *bad = wr;
            break;
        }
        struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = base->qp_num, .opcode = wc_opcode(wr->opcode)};
        uint64_t moved = 0;
        wc.status = base->state == IBV_QPS_ERR ? IBV_WC_WR_FLUSH_ERR : execute(qp, wr, &moved);
        wc.byte_len = (uint32_t)moved;
        wc.vendor_err = wc.status ? 0x77 : 0;
        if (wc.status || qp->init.sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED)
            fake_complete((struct fake_cq *)base->send_cq, &wc, false);
        if (wc.status && base->state != IBV_QPS_ERR)
            fail_qp(qp);
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}
