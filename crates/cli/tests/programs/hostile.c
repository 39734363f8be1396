// A program that calls the device with everything that a call can have wrong.
//
// hostile CASE SEED: exits with 0 if each call is answered or refused, and the device goes on with the
// requests of others.
#define _GNU_SOURCE
#include "devx.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <sys/resource.h>

// Memory that a wrong call may name, and the device may then write to at any time.
#define SCRATCH (1ul << 22)
#define MAX_ATTRS 32
#define SLOT (8 * PAGE)

// Of a verbs object with this bit in its number, attributes are the driver's own.
#define UHW 0x1000

static char *scratch;
static int shadow = -1;
static long calls, answered, refused;

static uint64_t below(uint64_t n) {
    return (((uint64_t)rand() << 31) ^ (uint64_t)rand()) % n;
}

// An address that is wrong, or one where the device finds garbage.
static uint64_t some_address(void) {
    static void *closed;
    if (!closed) CHECK((closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    switch (below(8)) {
    case 0: return 0;
    case 1: return below(PAGE);
    case 2: return (uintptr_t)closed + below(PAGE);
    case 3: return (uintptr_t)scratch + SCRATCH - below(64);
    case 4: return 0xffff800000000000ull + below(1ull << 40);
    case 5: return UINT64_MAX - below(PAGE);
    case 6: return (uintptr_t)scratch + below(SCRATCH);
    default: return (uintptr_t)scratch + below(SCRATCH / PAGE) * PAGE;
    }
}

static uint64_t some_number(void) {
    switch (below(6)) {
    case 0: return below(4);
    case 1: return -below(4);
    case 2: return 1ull << below(64);
    case 3: return (1ull << below(64)) - 1;
    case 4: return some_address();
    default: return below(UINT64_MAX);
    }
}

// An address of this program's memory, by its size.
static int is_own(uint64_t word) {
    return word >= 1ull << 44 && word < 1ull << 47;
}

// A call of the program's, as the other open file gets it. The call reads copies, in which
// addresses of the program's own memory lead to garbage; answers go there too. Behind each copy lies a
// page that is closed.
static struct {
    union {
        struct ib_uverbs_ioctl_hdr header;
        char bytes[1 << 16];
    };
    char *places[MAX_ATTRS];
} copy;
static char *slots;

static void copy_of(const struct ib_uverbs_ioctl_hdr *call) {
    memset(&copy, 0, sizeof copy);
    CHECK(call->num_attrs <= MAX_ATTRS);
    memcpy(copy.bytes, call, call->length);
    for (int i = 0; i < call->num_attrs; i++) {
        struct ib_uverbs_attr *attr = &copy.header.attrs[i];
        if (attr->len > 8) {
            CHECK(attr->len <= SLOT - PAGE);
            uint64_t words[SLOT / 8] = {0};
            memcpy(words, (void *)(uintptr_t)attr->data, attr->len);
            for (int k = 0; k < attr->len / 8; k++)
                if (is_own(words[k])) words[k] = (uintptr_t)scratch + below(SCRATCH / PAGE / 2) * PAGE + words[k] % PAGE;
            copy.places[i] = slots + (i + 1) * SLOT - PAGE - (attr->len + 7) / 8 * 8;
            memcpy(copy.places[i], words, attr->len);
            attr->data = (uintptr_t)copy.places[i];
        } else if (is_own(attr->data)) {
            attr->data = (uintptr_t)scratch + below(SCRATCH / PAGE / 2) * PAGE;
        }
    }
}

// Makes one thing of a call wrong, or a few.
static void spoil(void) {
    struct ib_uverbs_ioctl_hdr *h = &copy.header;
    for (int n = 1 + below(3); n > 0; n--) {
        int i = h->num_attrs ? below(h->num_attrs < MAX_ATTRS ? h->num_attrs : MAX_ATTRS) : 0;
        struct ib_uverbs_attr *attr = &h->attrs[i];
        switch (below(12)) {
        case 0: h->length = below(4) ? h->length + 16 * (below(5) - 2) : below(1 << 16); break;
        case 1: h->num_attrs = below(2) ? below(MAX_ATTRS) : below(1 << 16); break;
        case 2: h->method_id = (h->method_id & UHW) + below(8); break;
        case 3: h->object_id = (below(2) ? UHW : 0) + below(18); break;
        case 4: attr->attr_id = below(2) ? (below(2) ? UHW : 0) + below(16) : below(1 << 16); break;
        case 5: attr->len = below(2) ? below(64) : below(1 << 16); break;
        case 6: attr->flags ^= 1 << below(16); break;
        // Handles are small numbers.
        case 7: attr->data = attr->len == 0 ? below(40) : some_number(); break;
        case 8: attr->data = some_address(); break;
        default:
            // Something in what the call reads, mostly the driver's part or a mailbox.
            if (copy.places[i]) {
                uint64_t number = some_number();
                size_t room = slots + (i + 1) * SLOT - PAGE - copy.places[i], size = below(2) ? 4 : 8;
                memcpy(copy.places[i] + below(room / size) * size, &number, size);
            }
        }
    }
}

static int (*next_ioctl)(int, unsigned long, ...);

static void try(void) {
    calls++;
    errno = 0;
    int result = next_ioctl(shadow, RDMA_VERBS_IOCTL, copy.bytes);
    static const int known[] = {EINVAL, EFAULT, ENOENT, EBADF, EBUSY, ENOMEM, ENOSPC, ENOTTY, EOPNOTSUPP, EPROTONOSUPPORT, EREMOTEIO};
    if (result == 0) answered++;
    for (size_t i = 0; i < sizeof known / sizeof *known && result != 0; i++)
        if (errno == known[i]) refused++, result = 0;
    if (result != 0) fprintf(stderr, "object %#x, method %#x: %s\n", copy.header.object_id, copy.header.method_id, strerror(errno));
    CHECK(result == 0);
}

// Every call that libibverbs and libmlx5 make comes here first: the program's own functions come
// before those of libraries. The other file gets it as well, now and then after wrong ones.
int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    struct ib_uverbs_ioctl_hdr *call = va_arg(arguments, void *);
    va_end(arguments);
    if (!next_ioctl) next_ioctl = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    if (request == RDMA_VERBS_IOCTL && shadow >= 0) {
        int wrong = below(3) ? 0 : 1 + below(8);
        for (; wrong >= 0; wrong--) {
            copy_of(call);
            if (wrong > 0) spoil();
            try();
        }
        // Queues of the other file lie here.
        for (int i = 0; i < 64; i++) ((volatile uint32_t *)scratch)[below(SCRATCH / 4)] = some_number();
        errno = 0;
    }
    return next_ioctl(fd, request, call);
}

// Objects of firmware commands, with mailboxes that are right, and memory that goes while they use it.
static void by_mailbox(struct ibv_context *with) {
    char *memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(with, memory, 16 * PAGE, IBV_ACCESS_LOCAL_WRITE);
    struct mlx5dv_devx_uar *uar = mlx5dv_devx_alloc_uar(with, MLX5DV_UAR_ALLOC_TYPE_NC);
    CHECK(umem && uar);
    uint32_t number;
    struct mlx5dv_devx_obj *cq = make_cq(with, (struct place){umem, 0}, (struct place){umem, 15 * PAGE}, uar->page_id, &number);
    CHECK(mlx5dv_devx_umem_dereg(umem) == EBUSY);
    CHECK(munmap(memory, 16 * PAGE) == 0);
    settle();
    for (int i = 0; i < 50; i++) {
        static const uint16_t opcodes[] = {0x100, 0x200, 0x400, 0x500, 0x502, 0x503, 0x504, 0x505, 0x507, 0x50a, 0x50b, 0x50e, 0x760, 0x90c};
        uint32_t random[0x200 / 4], answer[0x200 / 4];
        for (size_t k = 0; k < sizeof random / 4; k++) random[k] = below(3) ? 0 : some_number();
        random[0] = be((uint32_t)opcodes[below(14)] << 16);
        size_t len = 16 + below(0x1f0);
        mlx5dv_devx_general_cmd(with, random, len, answer, 16 + below(0x1f0));
        mlx5dv_devx_obj_modify(cq, random, len, answer, sizeof answer);
        mlx5dv_devx_obj_query(cq, random, len, answer, sizeof answer);
        struct mlx5dv_devx_obj *made = mlx5dv_devx_obj_create(with, random, len, answer, sizeof answer);
        if (made) CHECK(mlx5dv_devx_obj_destroy(made) == 0);
    }
    CHECK(mlx5dv_devx_obj_destroy(cq) == 0 && mlx5dv_devx_umem_dereg(umem) == 0);
    mlx5dv_devx_free_uar(uar);
}

// The calls of a program from opening a device to closing it.
static void life(struct ibv_device *device) {
    // libionic has no SRQs, and early versions of libbnxt_re do not resize CQs.
    int is_mlx5 = mlx5dv_is_supported(device), has_srqs = strncmp(ibv_get_device_name(device), "ionic", 5) != 0;
    struct mlx5dv_context_attr open_attr = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
    struct ibv_context *with = is_mlx5 ? mlx5dv_open_device(device, &open_attr) : ibv_open_device(device);
    struct ibv_context *before[2] = {context[0], context[1]};
    struct ibv_pd *domains[2] = {pd[0], pd[1]};
    CHECK(with && (pd[0] = ibv_alloc_pd(with)));
    context[0] = context[1] = with;
    pd[1] = pd[0];
    struct ibv_device_attr device_attr;
    struct ibv_port_attr port;
    CHECK(ibv_query_device(with, &device_attr) == 0 && ibv_query_port(with, 1, &port) == 0);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(with);
    CHECK(channel);
    struct ibv_cq *cq = ibv_create_cq(with, 10, NULL, channel, 0);
    CHECK(cq && ibv_req_notify_cq(cq, 0) == 0 && (ibv_resize_cq(cq, 100) == 0 || !is_mlx5));
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 30, .max_sge = 2}};
    struct ibv_srq *srq = has_srqs ? ibv_create_srq(pd[0], &srq_init) : NULL;
    struct ibv_srq_attr srq_attr = {.srq_limit = 3};
    if (has_srqs) CHECK(srq && ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT) == 0 && ibv_query_srq(srq, &srq_attr) == 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_UD, .cap = {4, 0, 1, 1, 64}};
    struct ibv_qp *ud = ibv_create_qp(pd[0], &init);
    CHECK(ud);
    struct pair p = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 64) == IBV_WC_SUCCESS && state_of(p.qp[0]) == IBV_QPS_RTS);
    union ibv_gid gid;
    CHECK(ibv_query_gid(with, 1, 0, &gid) == 0);
    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(pd[0], &path);
    CHECK(ah && ibv_destroy_ah(ah) == 0);
    CHECK(ibv_destroy_qp(ud) == 0 && (!srq || ibv_destroy_srq(srq) == 0) && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_destroy_qp(p.qp[0]) == 0 && ibv_destroy_qp(p.qp[1]) == 0 && ibv_destroy_cq(p.cq) == 0);
    void *memory[2] = {a->addr, b->addr};
    CHECK(ibv_dereg_mr(a) == 0 && ibv_dereg_mr(b) == 0);
    CHECK(munmap(memory[0], BYTES) == 0 && munmap(memory[1], BYTES) == 0);
    context[0] = before[0], context[1] = before[1];
    CHECK(ibv_dealloc_pd(pd[0]) == 0);
    pd[0] = domains[0], pd[1] = domains[1];
    if (is_mlx5) by_mailbox(with);
    CHECK(ibv_close_device(with) == 0);
}

static void wrong_calls(struct ibv_device *device) {
    // Each channel has two descriptors.
    struct rlimit files = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &files);
    for (double end = now() + 3; now() < end;) {
        CHECK((shadow = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC)) >= 0);
        life(device);
        close(shadow);
        shadow = -1;
        others_work();
    }
    fprintf(stderr, "%ld calls, %ld answered, %ld refused\n", calls, answered, refused);
    CHECK(answered > 100 && refused > 100);
}

// Every word of a page of doorbell registers, while requests of QPs that share it are carried out.
static void registers(void) {
    struct pair p = make_pair(), q = make_pair();
    struct ibv_mr *a = registered(0), *b = registered(1);
    struct mlx5dv_qp ring[2] = {rings(p.qp[0]), rings(q.qp[0])};
    // A QP without a record yet may have none, and then goes by doorbells: its first request shows it.
    CHECK(one(&p, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS && one(&q, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    for (int round = 0; round < 2000; round++) {
        struct pair *used = round % 2 ? &p : &q;
        for (int i = 0; i < 20; i++) {
            char *page = (char *)((uintptr_t)ring[below(2)].bf.reg & ~(PAGE - 1));
            uint64_t value = below(2) ? some_number() : htobe64((uint64_t)p.qp[0]->qp_num << 8 | below(1 << 24) << 40);
            size_t at = below(2) ? 0x800 + 0x100 * below(4) : 8 * below(PAGE / 8);
            *(volatile uint64_t *)(page + at) = value;
        }
        CHECK(one(used, IBV_WR_RDMA_WRITE, a, b, 8) == IBV_WC_SUCCESS);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    srand(atoi(argv[2]));
    scratch = mmap(NULL, SCRATCH + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Answers that are longer than they should be do not reach what lies behind it.
    CHECK(scratch != MAP_FAILED && mprotect(scratch + SCRATCH, PAGE, PROT_NONE) == 0);
    slots = mmap(NULL, MAX_ATTRS * SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(slots != MAP_FAILED);
    for (int i = 1; i <= MAX_ATTRS; i++) CHECK(mprotect(slots + i * SLOT - PAGE, PAGE, PROT_NONE) == 0);
    open_devices();
    if (!strcmp(argv[1], "calls")) wrong_calls(context[0]->device);
    else if (!strcmp(argv[1], "registers")) registers();
    else fail(__LINE__, "a known case");
    others_work();
    puts("done");
    fflush(stdout);
    _exit(0);
}
