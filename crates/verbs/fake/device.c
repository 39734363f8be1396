// Devices, contexts, queries, events, and the failures that tests ask for.
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
int fake_alive[FAKE_KINDS];

static struct ibv_device devices[DEVICES];

// ---- failures on request: "ibv_reg_mr:12,ibv_create_qp:22" in FAKE_IBVERBS_FAIL, or by call ----

static struct { char call[64]; int error; bool once; } failures[16];

int fake_fail(const char *call, int error) {
    pthread_mutex_lock(&fake_lock);
    int done = ENOSPC;
    for (unsigned i = 0; i < 16 && done; i++) {
        if (failures[i].error)
            continue;
        snprintf(failures[i].call, sizeof failures[i].call, "%s", call);
        failures[i].error = error;
        failures[i].once = true;
        done = 0;
    }
    pthread_mutex_unlock(&fake_lock);
    return done;
}

__attribute__((constructor)) static void read_failures(void) {
    const char *text = getenv("FAKE_IBVERBS_FAIL");
    for (unsigned i = 0; text && *text && i < 16; i++) {
        int used = 0;
        if (sscanf(text, "%63[^:]:%d%n", failures[i].call, &failures[i].error, &used) != 2)
            break;
        text += used + (text[used] == ',');
    }
}

int fake_refused(const char *call) {
    int error = 0;
    pthread_mutex_lock(&fake_lock);
    for (unsigned i = 0; i < 16 && !error; i++) {
        if (!failures[i].error || strcmp(failures[i].call, call))
            continue;
        error = failures[i].error;
        if (failures[i].once)
            failures[i].error = 0;
    }
    pthread_mutex_unlock(&fake_lock);
    return error;
}

bool fake_fails(const char *call) {
    int error = fake_refused(call);
    // Fails without a word about it, as libbnxt_re does.
    if (error > 0)
        errno = error;
    return error != 0;
}

int fake_live(int kind) {
    pthread_mutex_lock(&fake_lock);
    int count = kind >= 0 && kind < FAKE_KINDS ? fake_alive[kind] : -1;
    pthread_mutex_unlock(&fake_lock);
    return count;
}

// ---- devices ----

struct ibv_device **ibv_get_device_list(int *count) {
    if (fake_fails("ibv_get_device_list"))
        return NULL;
    struct ibv_device **list = calloc(DEVICES + 1, sizeof *list);
    for (int i = 0; i < DEVICES; i++) {
        devices[i].node_type = IBV_NODE_CA;
        devices[i].transport_type = IBV_TRANSPORT_IB;
        snprintf(devices[i].name, sizeof devices[i].name, "fake%d", i);
        snprintf(devices[i].dev_name, sizeof devices[i].dev_name, "uverbs%d", i);
        snprintf(devices[i].ibdev_path, sizeof devices[i].ibdev_path, "/nowhere/infiniband/fake%d", i);
        list[i] = &devices[i];
    }
    if (count)
        *count = DEVICES;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
__be64 ibv_get_device_guid(struct ibv_device *device) {
    return __builtin_bswap64(0x0200000000000000 + (uint64_t)(device - devices));
}

// ---- what a device and its one port tell ----

static int device_attr(struct ibv_context *context, struct ibv_device_attr *attr) {
    (void)context;
    memset(attr, 0, sizeof *attr);
    strcpy(attr->fw_ver, "1.2.3");
    attr->max_mr_size = UINT64_MAX;
    attr->max_qp = attr->max_cq = attr->max_mr = attr->max_pd = attr->max_srq = 64;
    attr->max_qp_wr = attr->max_srq_wr = MAX_WR;
    attr->max_sge = attr->max_sge_rd = attr->max_srq_sge = MAX_SGE;
    attr->max_cqe = MAX_CQE;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = MAX_RD_ATOMIC;
    attr->atomic_cap = IBV_ATOMIC_HCA;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    int error = fake_refused("ibv_query_device");
    return error ? error : device_attr(context, attr);
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    (void)input;
    int error = fake_refused("ibv_query_device");
    if (error)
        return error;
    memset(attr, 0, size);
    attr->odp_caps.general_caps = IBV_ODP_SUPPORT;
    attr->odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE;
    attr->completion_timestamp_mask = UINT64_MAX;
    attr->hca_core_clock = CLOCK_KHZ;
    return device_attr(context, &attr->orig_attr);
}

static bool is_infiniband(struct ibv_context *context) { return context->device == &devices[1]; }

static int port_attr(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
    int error = fake_refused("ibv_query_port");
    if (error || port != 1)
        return error ? error : EINVAL;
    memset(attr, 0, size);
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = IBV_MTU_4096;
    attr->active_mtu = IBV_MTU_1024;
    attr->gid_tbl_len = GIDS;
    attr->max_msg_sz = 1u << 30;
    attr->pkey_tbl_len = 1;
    attr->active_width = 2;
    attr->active_speed = 32;
    attr->link_layer = is_infiniband(context) ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    attr->lid = is_infiniband(context) ? 5 : 0;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
    // The old structure ends before port_cap_flags2.
    return port_attr(context, port, (void *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static bool gid_at(struct ibv_context *context, int index, union ibv_gid *gid, uint32_t *type) {
    static const uint8_t link_local[16] = {0xfe, 0x80, [15] = 1};
    static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    memset(gid, 0, sizeof *gid);
    int used = is_infiniband(context) ? 1 : 4;
    if (index >= used)
        return false;
    memcpy(gid->raw, index < 2 ? link_local : mapped, 16);
    *type = is_infiniband(context) ? IBV_GID_TYPE_IB : index % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
    return true;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    uint32_t type;
    if (fake_fails("ibv_query_gid") || port != 1 || index < 0 || index >= GIDS)
        return -1;
    gid_at(context, index, gid, &type);
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
                             size_t size) {
    int error = fake_refused("ibv_query_gid_table");
    if (error || flags || size != sizeof *entries)
        return error ? -error : -EINVAL;
    size_t found = 0;
    for (int i = 0; i < GIDS && found < max; i++) {
        struct ibv_gid_entry entry = {.gid_index = (uint32_t)i, .port_num = 1};
        if (gid_at(context, i, &entry.gid, &entry.gid_type))
            entries[found++] = entry;
    }
    return (ssize_t)found;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

// ---- contexts and events ----

static int make_pipe(int *reader) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    *reader = ends[0];
    return ends[1];
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    if (fake_fails("ibv_open_device"))
        return NULL;
    struct fake_context *fake = calloc(1, sizeof *fake);
    struct ibv_context *context = &fake->verbs.context;
    fake->device = (int)(device - devices);
    fake->event_pipe = make_pipe(&context->async_fd);
    fake->verbs.sz = sizeof fake->verbs;
    fake->verbs.query_device_ex = query_device_ex;
    fake->verbs.query_port = port_attr;
    fake->verbs.create_cq_ex = fake_create_cq_ex;
    fake->verbs.create_qp_ex = fake_create_qp_ex;
    fake->verbs.advise_mr = fake_advise_mr;
    context->device = device;
    context->num_comp_vectors = 2;
    context->cmd_fd = -1;
    // As a provider of before extensions on the second device, as a new one on the first.
    context->abi_compat = fake->device == 0 ? __VERBS_ABI_IS_EXTENDED : NULL;
    context->ops.post_send = fake_post_send;
    context->ops.post_recv = fake_post_recv;
    context->ops.post_srq_recv = fake_post_srq_recv;
    context->ops.poll_cq = fake_poll_cq;
    context->ops.req_notify_cq = fake_req_notify_cq;
    pthread_mutex_lock(&fake_lock);
    fake_alive[FAKE_CONTEXT]++;
    pthread_mutex_unlock(&fake_lock);
    return context;
}

int ibv_close_device(struct ibv_context *context) {
    struct fake_context *fake = (struct fake_context *)((char *)context - offsetof(struct verbs_context, context));
    close(fake->event_pipe);
    close(context->async_fd);
    pthread_mutex_lock(&fake_lock);
    fake_alive[FAKE_CONTEXT]--;
    pthread_mutex_unlock(&fake_lock);
    free(fake);
    return 0;
}

void fake_event(struct ibv_context *context, enum ibv_event_type type, void *object) {
    struct fake_context *fake = (struct fake_context *)((char *)context - offsetof(struct verbs_context, context));
    struct ibv_async_event event = {.event_type = type};
    event.element.cq = object;
    if (write(fake->event_pipe, &event, sizeof event) != sizeof event)
        abort();
}

// Takes whole entries out of a pipe and puts back those whose first word is not `object`.
static void purge(int reader, int writer, size_t entry, const void *object) {
    char all[64 * 64];
    int flags = fcntl(reader, F_GETFL);
    fcntl(reader, F_SETFL, flags | O_NONBLOCK);
    ssize_t len = read(reader, all, sizeof all / entry * entry);
    fcntl(reader, F_SETFL, flags);
    for (char *at = all; len > 0 && at < all + len; at += entry) {
        void *named;
        memcpy(&named, at, sizeof named);
        if (named != object && write(writer, at, entry) != (ssize_t)entry)
            abort();
    }
}

void fake_forget_events(struct ibv_context *context, const void *object) {
    struct fake_context *fake = (struct fake_context *)((char *)context - offsetof(struct verbs_context, context));
    purge(context->async_fd, fake->event_pipe, sizeof(struct ibv_async_event), object);
}

void fake_forget_cq(struct ibv_comp_channel *channel, const struct ibv_cq *cq) {
    purge(channel->fd, ((struct fake_channel *)channel)->event_pipe, sizeof cq, cq);
}

// An event of a port, which a test reports in the name of the device.
void fake_port_event(struct ibv_context *context, int type) { fake_event(context, (enum ibv_event_type)type, (void *)1); }

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    if (fake_fails("ibv_create_comp_channel"))
        return NULL;
    struct fake_channel *fake = calloc(1, sizeof *fake);
    fake->channel.context = context;
    fake->event_pipe = make_pipe(&fake->channel.fd);
    pthread_mutex_lock(&fake_lock);
    fake_alive[FAKE_CHANNEL]++;
    pthread_mutex_unlock(&fake_lock);
    return &fake->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    struct fake_channel *fake = (struct fake_channel *)channel;
    if (channel->refcnt)
        return EBUSY;
    close(fake->event_pipe);
    close(channel->fd);
    pthread_mutex_lock(&fake_lock);
    fake_alive[FAKE_CHANNEL]--;
    pthread_mutex_unlock(&fake_lock);
    free(fake);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user) {
    if (read(channel->fd, cq, sizeof *cq) != sizeof *cq)
        return -1;
    *user = (*cq)->cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { cq->comp_events_completed += count; }
