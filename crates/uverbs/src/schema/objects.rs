//! The table. Sizes and which attributes are needed are those of the kernel's
//! `drivers/infiniband/core/uverbs_std_types_*.c` and `drivers/infiniband/hw/mlx5/{main,devx}.c`;
//! names and numbers are compared with the headers by a test.

use super::Access::{Destroy, New, Use};
use super::{Access, Attr, Class, DRIVER, Kind, Method, Object};

const fn input(name: &'static str, id: u16, bytes: u16) -> Attr {
    let kind = Kind::In { min: bytes, max: bytes, grows: false };
    Attr { name, id, kind, mandatory: true }
}

const fn record(name: &'static str, id: u16, bytes: u16) -> Attr {
    Attr { name, id, kind: Kind::In { min: bytes, max: bytes, grows: true }, mandatory: true }
}

const fn flags(name: &'static str, id: u16) -> Attr {
    let kind = Kind::In { min: 4, max: 8, grows: false };
    Attr { name, id, kind, mandatory: false }
}

/// Any number of bytes from `min` on.
const fn blob(name: &'static str, id: u16, min: u16) -> Attr {
    let kind = Kind::In { min, max: u16::MAX, grows: false };
    Attr { name, id, kind, mandatory: true }
}

const fn output(name: &'static str, id: u16, bytes: u16) -> Attr {
    let kind = Kind::Out { min: bytes, max: bytes, grows: false };
    Attr { name, id, kind, mandatory: true }
}

const fn output_record(name: &'static str, id: u16, bytes: u16) -> Attr {
    Attr { name, id, kind: Kind::Out { min: bytes, max: bytes, grows: true }, mandatory: true }
}

const fn output_blob(name: &'static str, id: u16, min: u16) -> Attr {
    let kind = Kind::Out { min, max: u16::MAX, grows: false };
    Attr { name, id, kind, mandatory: true }
}

const fn object(name: &'static str, id: u16, class: Class, access: Access) -> Attr {
    Attr { name, id, kind: Kind::Object(class, access), mandatory: true }
}

const fn descriptor(name: &'static str, id: u16) -> Attr {
    Attr { name, id, kind: Kind::Descriptor, mandatory: false }
}

const fn needed(attr: Attr) -> Attr {
    Attr { mandatory: true, ..attr }
}

const fn maybe(attr: Attr) -> Attr {
    Attr { mandatory: false, ..attr }
}

const UHW_IN: Attr = maybe(blob("UVERBS_ATTR_UHW_IN", super::UHW_IN, 0));
const UHW_OUT: Attr = maybe(output_blob("UVERBS_ATTR_UHW_OUT", super::UHW_OUT, 0));

const fn method(name: &'static str, id: u16, attrs: &'static [Attr]) -> Method {
    Method { name, id, attrs: Some(attrs) }
}

const fn refused(name: &'static str, id: u16) -> Method {
    Method { name, id, attrs: None }
}

/// Every object that there is in the headers of rdma-core 44, and what of it is answered.
pub const OBJECTS: &[Object] = &[
    Object { name: "UVERBS_OBJECT_DEVICE", id: 0, methods: DEVICE },
    Object { name: "UVERBS_OBJECT_PD", id: 1, methods: PD },
    Object { name: "UVERBS_OBJECT_COMP_CHANNEL", id: 2, methods: &[] },
    Object { name: "UVERBS_OBJECT_CQ", id: 3, methods: CQ },
    Object { name: "UVERBS_OBJECT_QP", id: 4, methods: QP },
    Object { name: "UVERBS_OBJECT_SRQ", id: 5, methods: SRQ },
    Object { name: "UVERBS_OBJECT_AH", id: 6, methods: AH },
    Object { name: "UVERBS_OBJECT_MR", id: 7, methods: MR },
    Object { name: "UVERBS_OBJECT_MW", id: 8, methods: &[refused("UVERBS_METHOD_MW_DESTROY", 0)] },
    Object {
        name: "UVERBS_OBJECT_FLOW",
        id: 9,
        methods: &[
            refused("UVERBS_METHOD_FLOW_DESTROY", 0),
            refused("MLX5_IB_METHOD_CREATE_FLOW", DRIVER),
        ],
    },
    Object {
        name: "UVERBS_OBJECT_XRCD",
        id: 10,
        methods: &[refused("UVERBS_METHOD_XRCD_DESTROY", 0)],
    },
    Object {
        name: "UVERBS_OBJECT_RWQ_IND_TBL",
        id: 11,
        methods: &[refused("UVERBS_METHOD_RWQ_IND_TBL_DESTROY", 0)],
    },
    Object {
        name: "UVERBS_OBJECT_WQ",
        id: 12,
        methods: &[refused("UVERBS_METHOD_WQ_CREATE", 0), refused("UVERBS_METHOD_WQ_DESTROY", 1)],
    },
    Object { name: "UVERBS_OBJECT_FLOW_ACTION", id: 13, methods: &[] },
    Object {
        name: "UVERBS_OBJECT_DM",
        id: 14,
        methods: &[refused("UVERBS_METHOD_DM_ALLOC", 0), refused("UVERBS_METHOD_DM_FREE", 1)],
    },
    Object {
        name: "UVERBS_OBJECT_COUNTERS",
        id: 15,
        methods: &[
            refused("UVERBS_METHOD_COUNTERS_CREATE", 0),
            refused("UVERBS_METHOD_COUNTERS_DESTROY", 1),
            refused("UVERBS_METHOD_COUNTERS_READ", 2),
        ],
    },
    Object { name: "UVERBS_OBJECT_ASYNC_EVENT", id: 16, methods: ASYNC_EVENT },
    Object { name: "MLX5_IB_OBJECT_DEVX", id: DRIVER, methods: DEVX },
    Object { name: "MLX5_IB_OBJECT_DEVX_OBJ", id: DRIVER + 1, methods: DEVX_OBJ },
    Object { name: "MLX5_IB_OBJECT_DEVX_UMEM", id: DRIVER + 2, methods: DEVX_UMEM },
    Object {
        name: "MLX5_IB_OBJECT_FLOW_MATCHER",
        id: DRIVER + 3,
        methods: &[
            refused("MLX5_IB_METHOD_FLOW_MATCHER_CREATE", DRIVER),
            refused("MLX5_IB_METHOD_FLOW_MATCHER_DESTROY", DRIVER + 1),
        ],
    },
    Object {
        name: "MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD",
        id: DRIVER + 4,
        methods: &[refused("MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC", DRIVER)],
    },
    Object { name: "MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD", id: DRIVER + 5, methods: DEVX_EVENTS },
    Object {
        name: "MLX5_IB_OBJECT_VAR",
        id: DRIVER + 6,
        methods: &[
            refused("MLX5_IB_METHOD_VAR_OBJ_ALLOC", DRIVER),
            refused("MLX5_IB_METHOD_VAR_OBJ_DESTROY", DRIVER + 1),
        ],
    },
    Object {
        name: "MLX5_IB_OBJECT_PP",
        id: DRIVER + 7,
        methods: &[
            refused("MLX5_IB_METHOD_PP_OBJ_ALLOC", DRIVER),
            refused("MLX5_IB_METHOD_PP_OBJ_DESTROY", DRIVER + 1),
        ],
    },
    Object { name: "MLX5_IB_OBJECT_UAR", id: DRIVER + 8, methods: UAR },
    Object {
        name: "MLX5_IB_OBJECT_STEERING_ANCHOR",
        id: DRIVER + 9,
        methods: &[
            refused("MLX5_IB_METHOD_STEERING_ANCHOR_CREATE", DRIVER),
            refused("MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY", DRIVER + 1),
        ],
    },
];

const DEVICE: &[Method] = &[
    method(
        "UVERBS_METHOD_INVOKE_WRITE",
        0,
        &[
            maybe(blob("UVERBS_ATTR_CORE_IN", 0, 4)),
            maybe(output_blob("UVERBS_ATTR_CORE_OUT", 1, 0)),
            input("UVERBS_ATTR_WRITE_CMD", 2, 8),
            UHW_IN,
            UHW_OUT,
        ],
    ),
    refused("UVERBS_METHOD_INFO_HANDLES", 1),
    method(
        "UVERBS_METHOD_QUERY_PORT",
        2,
        &[
            input("UVERBS_ATTR_QUERY_PORT_PORT_NUM", 0, 8),
            output_record("UVERBS_ATTR_QUERY_PORT_RESP", 1, 48),
        ],
    ),
    method(
        "UVERBS_METHOD_GET_CONTEXT",
        3,
        &[
            maybe(output("UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS", 0, 4)),
            maybe(output("UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT", 1, 8)),
            UHW_IN,
            UHW_OUT,
        ],
    ),
    refused("UVERBS_METHOD_QUERY_CONTEXT", 4),
    method(
        "UVERBS_METHOD_QUERY_GID_TABLE",
        5,
        &[
            input("UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE", 0, 8),
            flags("UVERBS_ATTR_QUERY_GID_TABLE_FLAGS", 1),
            output_blob("UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES", 2, 0),
            output("UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES", 3, 8),
        ],
    ),
    method(
        "UVERBS_METHOD_QUERY_GID_ENTRY",
        6,
        &[
            input("UVERBS_ATTR_QUERY_GID_ENTRY_PORT", 0, 8),
            input("UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX", 1, 8),
            needed(flags("UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS", 2)),
            output_record("UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY", 3, 32),
        ],
    ),
    refused("MLX5_IB_METHOD_QUERY_PORT", DRIVER),
];

const PD: &[Method] = &[
    method(
        "UVERBS_METHOD_PD_DESTROY",
        0,
        &[object("UVERBS_ATTR_DESTROY_PD_HANDLE", 0, Class::Pd, Destroy)],
    ),
    refused("MLX5_IB_METHOD_PD_QUERY", DRIVER),
];

const CQ: &[Method] = &[
    method(
        "UVERBS_METHOD_CQ_CREATE",
        0,
        &[
            object("UVERBS_ATTR_CREATE_CQ_HANDLE", 0, Class::Cq, New),
            input("UVERBS_ATTR_CREATE_CQ_CQE", 1, 4),
            input("UVERBS_ATTR_CREATE_CQ_USER_HANDLE", 2, 8),
            maybe(object("UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL", 3, Class::CompChannel, Use)),
            input("UVERBS_ATTR_CREATE_CQ_COMP_VECTOR", 4, 4),
            flags("UVERBS_ATTR_CREATE_CQ_FLAGS", 5),
            output("UVERBS_ATTR_CREATE_CQ_RESP_CQE", 6, 4),
            maybe(object("UVERBS_ATTR_CREATE_CQ_EVENT_FD", 7, Class::AsyncEvent, Use)),
            UHW_IN,
            UHW_OUT,
        ],
    ),
    method(
        "UVERBS_METHOD_CQ_DESTROY",
        1,
        &[
            object("UVERBS_ATTR_DESTROY_CQ_HANDLE", 0, Class::Cq, Destroy),
            output("UVERBS_ATTR_DESTROY_CQ_RESP", 1, 8),
        ],
    ),
];

const QP: &[Method] = &[
    method(
        "UVERBS_METHOD_QP_CREATE",
        0,
        &[
            object("UVERBS_ATTR_CREATE_QP_HANDLE", 0, Class::Qp, New),
            maybe(object("UVERBS_ATTR_CREATE_QP_XRCD_HANDLE", 1, Class::Xrcd, Use)),
            maybe(object("UVERBS_ATTR_CREATE_QP_PD_HANDLE", 2, Class::Pd, Use)),
            maybe(object("UVERBS_ATTR_CREATE_QP_SRQ_HANDLE", 3, Class::Srq, Use)),
            maybe(object("UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE", 4, Class::Cq, Use)),
            maybe(object("UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE", 5, Class::Cq, Use)),
            maybe(object("UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE", 6, Class::IndTable, Use)),
            input("UVERBS_ATTR_CREATE_QP_USER_HANDLE", 7, 8),
            record("UVERBS_ATTR_CREATE_QP_CAP", 8, 20),
            input("UVERBS_ATTR_CREATE_QP_TYPE", 9, 8),
            flags("UVERBS_ATTR_CREATE_QP_FLAGS", 10),
            maybe(input("UVERBS_ATTR_CREATE_QP_SOURCE_QPN", 11, 4)),
            maybe(object("UVERBS_ATTR_CREATE_QP_EVENT_FD", 12, Class::AsyncEvent, Use)),
            output_record("UVERBS_ATTR_CREATE_QP_RESP_CAP", 13, 20),
            output("UVERBS_ATTR_CREATE_QP_RESP_QP_NUM", 14, 4),
            UHW_IN,
            UHW_OUT,
        ],
    ),
    method(
        "UVERBS_METHOD_QP_DESTROY",
        1,
        &[
            object("UVERBS_ATTR_DESTROY_QP_HANDLE", 0, Class::Qp, Destroy),
            output("UVERBS_ATTR_DESTROY_QP_RESP", 1, 4),
        ],
    ),
];

const SRQ: &[Method] = &[
    method(
        "UVERBS_METHOD_SRQ_CREATE",
        0,
        &[
            object("UVERBS_ATTR_CREATE_SRQ_HANDLE", 0, Class::Srq, New),
            object("UVERBS_ATTR_CREATE_SRQ_PD_HANDLE", 1, Class::Pd, Use),
            maybe(object("UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE", 2, Class::Xrcd, Use)),
            maybe(object("UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE", 3, Class::Cq, Use)),
            input("UVERBS_ATTR_CREATE_SRQ_USER_HANDLE", 4, 8),
            input("UVERBS_ATTR_CREATE_SRQ_MAX_WR", 5, 4),
            input("UVERBS_ATTR_CREATE_SRQ_MAX_SGE", 6, 4),
            input("UVERBS_ATTR_CREATE_SRQ_LIMIT", 7, 4),
            maybe(input("UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS", 8, 4)),
            input("UVERBS_ATTR_CREATE_SRQ_TYPE", 9, 8),
            maybe(object("UVERBS_ATTR_CREATE_SRQ_EVENT_FD", 10, Class::AsyncEvent, Use)),
            output("UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR", 11, 4),
            output("UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE", 12, 4),
            maybe(output("UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM", 13, 4)),
            UHW_IN,
            UHW_OUT,
        ],
    ),
    method(
        "UVERBS_METHOD_SRQ_DESTROY",
        1,
        &[
            object("UVERBS_ATTR_DESTROY_SRQ_HANDLE", 0, Class::Srq, Destroy),
            output("UVERBS_ATTR_DESTROY_SRQ_RESP", 1, 4),
        ],
    ),
];

const AH: &[Method] = &[method(
    "UVERBS_METHOD_AH_DESTROY",
    0,
    &[object("UVERBS_ATTR_DESTROY_AH_HANDLE", 0, Class::Ah, Destroy)],
)];

const MR: &[Method] = &[
    refused("UVERBS_METHOD_DM_MR_REG", 0),
    method(
        "UVERBS_METHOD_MR_DESTROY",
        1,
        &[object("UVERBS_ATTR_DESTROY_MR_HANDLE", 0, Class::Mr, Destroy)],
    ),
    refused("UVERBS_METHOD_ADVISE_MR", 2),
    refused("UVERBS_METHOD_QUERY_MR", 3),
    method(
        "UVERBS_METHOD_REG_DMABUF_MR",
        4,
        &[
            object("UVERBS_ATTR_REG_DMABUF_MR_HANDLE", 0, Class::Mr, New),
            object("UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE", 1, Class::Pd, Use),
            input("UVERBS_ATTR_REG_DMABUF_MR_OFFSET", 2, 8),
            input("UVERBS_ATTR_REG_DMABUF_MR_LENGTH", 3, 8),
            input("UVERBS_ATTR_REG_DMABUF_MR_IOVA", 4, 8),
            input("UVERBS_ATTR_REG_DMABUF_MR_FD", 5, 4),
            flags("UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS", 6),
            output("UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY", 7, 4),
            output("UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY", 8, 4),
        ],
    ),
];

const ASYNC_EVENT: &[Method] = &[method(
    "UVERBS_METHOD_ASYNC_EVENT_ALLOC",
    0,
    &[object("UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE", 0, Class::AsyncEvent, New)],
)];

const DEVX: &[Method] = &[
    method(
        "MLX5_IB_METHOD_DEVX_OTHER",
        DRIVER,
        &[
            blob("MLX5_IB_ATTR_DEVX_OTHER_CMD_IN", DRIVER, 16),
            output_blob("MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT", DRIVER + 1, 16),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_QUERY_UAR",
        DRIVER + 1,
        &[
            input("MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX", DRIVER, 4),
            output("MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX", DRIVER + 1, 4),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_QUERY_EQN",
        DRIVER + 2,
        &[
            input("MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC", DRIVER, 4),
            output("MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN", DRIVER + 1, 4),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT",
        DRIVER + 3,
        &[
            object("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE", DRIVER, Class::DevxEvents, Use),
            maybe(object(
                "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE",
                DRIVER + 1,
                Class::Any,
                Use,
            )),
            blob("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST", DRIVER + 2, 2),
            maybe(input("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM", DRIVER + 3, 4)),
            maybe(input("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE", DRIVER + 4, 8)),
        ],
    ),
];

const DEVX_EVENTS: &[Method] = &[method(
    "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC",
    DRIVER,
    &[
        object("MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE", DRIVER, Class::DevxEvents, New),
        needed(flags("MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS", DRIVER + 1)),
    ],
)];

const DEVX_OBJ: &[Method] = &[
    method(
        "MLX5_IB_METHOD_DEVX_OBJ_CREATE",
        DRIVER,
        &[
            object("MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE", DRIVER, Class::DevxObj, New),
            blob("MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN", DRIVER + 1, 16),
            output_blob("MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT", DRIVER + 2, 16),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_OBJ_DESTROY",
        DRIVER + 1,
        &[object("MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE", DRIVER, Class::DevxObj, Destroy)],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_OBJ_MODIFY",
        DRIVER + 2,
        &[
            object("MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE", DRIVER, Class::Any, Use),
            blob("MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN", DRIVER + 1, 16),
            output_blob("MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT", DRIVER + 2, 16),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_OBJ_QUERY",
        DRIVER + 3,
        &[
            object("MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE", DRIVER, Class::Any, Use),
            blob("MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN", DRIVER + 1, 16),
            output_blob("MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT", DRIVER + 2, 16),
        ],
    ),
    refused("MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY", DRIVER + 4),
];

const DEVX_UMEM: &[Method] = &[
    method(
        "MLX5_IB_METHOD_DEVX_UMEM_REG",
        DRIVER,
        &[
            object("MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE", DRIVER, Class::Umem, New),
            input("MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR", DRIVER + 1, 8),
            input("MLX5_IB_ATTR_DEVX_UMEM_REG_LEN", DRIVER + 2, 8),
            flags("MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS", DRIVER + 3),
            output("MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID", DRIVER + 4, 4),
            maybe(input("MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP", DRIVER + 5, 8)),
            descriptor("MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD", DRIVER + 6),
        ],
    ),
    method(
        "MLX5_IB_METHOD_DEVX_UMEM_DEREG",
        DRIVER + 1,
        &[object("MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE", DRIVER, Class::Umem, Destroy)],
    ),
];

const UAR: &[Method] = &[
    method(
        "MLX5_IB_METHOD_UAR_OBJ_ALLOC",
        DRIVER,
        &[
            object("MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE", DRIVER, Class::Uar, New),
            input("MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE", DRIVER + 1, 8),
            output("MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET", DRIVER + 2, 8),
            output("MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH", DRIVER + 3, 4),
            output("MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID", DRIVER + 4, 4),
        ],
    ),
    method(
        "MLX5_IB_METHOD_UAR_OBJ_DESTROY",
        DRIVER + 1,
        &[object("MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE", DRIVER, Class::Uar, Destroy)],
    ),
];
