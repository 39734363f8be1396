//! The table. Sizes and which attributes are needed are those of the kernel's
//! `drivers/infiniband/core/uverbs_std_types_*.c` and `drivers/infiniband/hw/mlx5/{main,devx}.c`;
//! names and numbers are compared with the headers by a test.

use super::{Access, Attr, Class, DRIVER, Kind, Method, Object, UHW_IN, UHW_OUT};

/// An attribute that the method needs; its name and number come from its place in the table.
const fn attr(kind: Kind) -> Attr {
    Attr { name: "", id: 0, kind, mandatory: true }
}

const fn input(bytes: u16) -> Attr {
    attr(Kind::In { min: bytes, max: bytes, grows: false })
}

const fn record(bytes: u16) -> Attr {
    attr(Kind::In { min: bytes, max: bytes, grows: true })
}

const fn flags() -> Attr {
    maybe(attr(Kind::In { min: 4, max: 8, grows: false }))
}

/// Any number of bytes from `min` on.
const fn blob(min: u16) -> Attr {
    attr(Kind::In { min, max: u16::MAX, grows: false })
}

const fn output(bytes: u16) -> Attr {
    attr(Kind::Out { min: bytes, max: bytes, grows: false })
}

const fn output_record(bytes: u16) -> Attr {
    attr(Kind::Out { min: bytes, max: bytes, grows: true })
}

const fn output_blob(min: u16) -> Attr {
    attr(Kind::Out { min, max: u16::MAX, grows: false })
}

const fn new(class: Class) -> Attr {
    attr(Kind::Object(class, Access::New))
}

const fn uses(class: Class) -> Attr {
    attr(Kind::Object(class, Access::Use))
}

const fn destroys(class: Class) -> Attr {
    attr(Kind::Object(class, Access::Destroy))
}

const fn descriptor() -> Attr {
    maybe(attr(Kind::Descriptor))
}

const fn needed(attr: Attr) -> Attr {
    Attr { mandatory: true, ..attr }
}

const fn maybe(attr: Attr) -> Attr {
    Attr { mandatory: false, ..attr }
}

/// The last two attributes of methods that the driver extends.
mod driver {
    use super::{Attr, UHW_IN, UHW_OUT, blob, maybe, output_blob};

    pub(super) const IN: Attr = Attr { name: "UVERBS_ATTR_UHW_IN", id: UHW_IN, ..maybe(blob(0)) };
    pub(super) const OUT: Attr =
        Attr { name: "UVERBS_ATTR_UHW_OUT", id: UHW_OUT, ..maybe(output_blob(0)) };
}

/// Numbers the attributes of a method in the order of the headers: from 0, or from [`DRIVER`] if the
/// method is a driver's.
const fn numbered<const N: usize>(method: u16, mut attrs: [Attr; N]) -> [Attr; N] {
    let first = if method < DRIVER { 0 } else { DRIVER };
    let mut at = 0;
    while at < N {
        if attrs[at].id == 0 {
            attrs[at].id = first + at as u16;
        }
        at += 1;
    }
    attrs
}

/// Objects with their methods, and what follows the common beginning of its attributes' names. A
/// method without attributes is known by name only, and refused.
macro_rules! objects {
    ($($object:ident = $id:expr => {
        $($method:ident = $number:expr $(=> $prefix:ident {
            $($attr:ident: $value:expr,)*
        } $(+ $driver:ident)?)?;)*
    })*) => {
        /// Every object that there is in the headers of rdma-core 44, and what of it is answered.
        pub const OBJECTS: &[Object] = &[$(Object {
            name: stringify!($object),
            id: $id,
            methods: &[$(Method {
                name: stringify!($method),
                id: $number,
                attrs: attributes!($number $(, [
                    $(Attr { name: concat!(stringify!($prefix), stringify!($attr)), ..$value },)*
                    $($driver::IN, $driver::OUT,)?
                ])?),
            },)*],
        },)*];
    };
}

macro_rules! attributes {
    ($number:expr) => {
        None
    };
    ($number:expr, $attrs:expr) => {
        Some(&numbered($number, $attrs))
    };
}

objects! {
    UVERBS_OBJECT_DEVICE = 0 => {
        UVERBS_METHOD_INVOKE_WRITE = 0 => UVERBS_ATTR_ {
            CORE_IN: maybe(blob(4)),
            CORE_OUT: maybe(output_blob(0)),
            WRITE_CMD: input(8),
        } + driver;
        UVERBS_METHOD_INFO_HANDLES = 1;
        UVERBS_METHOD_QUERY_PORT = 2 => UVERBS_ATTR_QUERY_PORT_ {
            PORT_NUM: input(8),
            RESP: output_record(48),
        };
        UVERBS_METHOD_GET_CONTEXT = 3 => UVERBS_ATTR_GET_CONTEXT_ {
            NUM_COMP_VECTORS: maybe(output(4)),
            CORE_SUPPORT: maybe(output(8)),
        } + driver;
        UVERBS_METHOD_QUERY_CONTEXT = 4;
        UVERBS_METHOD_QUERY_GID_TABLE = 5 => UVERBS_ATTR_QUERY_GID_TABLE_ {
            ENTRY_SIZE: input(8),
            FLAGS: flags(),
            RESP_ENTRIES: output_blob(0),
            RESP_NUM_ENTRIES: output(8),
        };
        UVERBS_METHOD_QUERY_GID_ENTRY = 6 => UVERBS_ATTR_QUERY_GID_ENTRY_ {
            PORT: input(8),
            GID_INDEX: input(8),
            FLAGS: needed(flags()),
            RESP_ENTRY: output_record(32),
        };
        MLX5_IB_METHOD_QUERY_PORT = DRIVER;
    }
    UVERBS_OBJECT_PD = 1 => {
        UVERBS_METHOD_PD_DESTROY = 0 => UVERBS_ATTR_DESTROY_PD_ {
            HANDLE: destroys(Class::Pd),
        };
        MLX5_IB_METHOD_PD_QUERY = DRIVER;
    }
    UVERBS_OBJECT_COMP_CHANNEL = 2 => {}
    UVERBS_OBJECT_CQ = 3 => {
        UVERBS_METHOD_CQ_CREATE = 0 => UVERBS_ATTR_CREATE_CQ_ {
            HANDLE: new(Class::Cq),
            CQE: input(4),
            USER_HANDLE: input(8),
            COMP_CHANNEL: maybe(uses(Class::CompChannel)),
            COMP_VECTOR: input(4),
            FLAGS: flags(),
            RESP_CQE: output(4),
            EVENT_FD: maybe(uses(Class::AsyncEvent)),
        } + driver;
        UVERBS_METHOD_CQ_DESTROY = 1 => UVERBS_ATTR_DESTROY_CQ_ {
            HANDLE: destroys(Class::Cq),
            RESP: output(8),
        };
    }
    UVERBS_OBJECT_QP = 4 => {
        UVERBS_METHOD_QP_CREATE = 0 => UVERBS_ATTR_CREATE_QP_ {
            HANDLE: new(Class::Qp),
            XRCD_HANDLE: maybe(uses(Class::Xrcd)),
            PD_HANDLE: maybe(uses(Class::Pd)),
            SRQ_HANDLE: maybe(uses(Class::Srq)),
            SEND_CQ_HANDLE: maybe(uses(Class::Cq)),
            RECV_CQ_HANDLE: maybe(uses(Class::Cq)),
            IND_TABLE_HANDLE: maybe(uses(Class::IndTable)),
            USER_HANDLE: input(8),
            CAP: record(20),
            TYPE: input(8),
            FLAGS: flags(),
            SOURCE_QPN: maybe(input(4)),
            EVENT_FD: maybe(uses(Class::AsyncEvent)),
            RESP_CAP: output_record(20),
            RESP_QP_NUM: output(4),
        } + driver;
        UVERBS_METHOD_QP_DESTROY = 1 => UVERBS_ATTR_DESTROY_QP_ {
            HANDLE: destroys(Class::Qp),
            RESP: output(4),
        };
    }
    UVERBS_OBJECT_SRQ = 5 => {
        UVERBS_METHOD_SRQ_CREATE = 0 => UVERBS_ATTR_CREATE_SRQ_ {
            HANDLE: new(Class::Srq),
            PD_HANDLE: uses(Class::Pd),
            XRCD_HANDLE: maybe(uses(Class::Xrcd)),
            CQ_HANDLE: maybe(uses(Class::Cq)),
            USER_HANDLE: input(8),
            MAX_WR: input(4),
            MAX_SGE: input(4),
            LIMIT: input(4),
            MAX_NUM_TAGS: maybe(input(4)),
            TYPE: input(8),
            EVENT_FD: maybe(uses(Class::AsyncEvent)),
            RESP_MAX_WR: output(4),
            RESP_MAX_SGE: output(4),
            RESP_SRQ_NUM: maybe(output(4)),
        } + driver;
        UVERBS_METHOD_SRQ_DESTROY = 1 => UVERBS_ATTR_DESTROY_SRQ_ {
            HANDLE: destroys(Class::Srq),
            RESP: output(4),
        };
    }
    UVERBS_OBJECT_AH = 6 => {
        UVERBS_METHOD_AH_DESTROY = 0 => UVERBS_ATTR_DESTROY_AH_ {
            HANDLE: destroys(Class::Ah),
        };
    }
    UVERBS_OBJECT_MR = 7 => {
        UVERBS_METHOD_DM_MR_REG = 0;
        UVERBS_METHOD_MR_DESTROY = 1 => UVERBS_ATTR_DESTROY_MR_ {
            HANDLE: destroys(Class::Mr),
        };
        UVERBS_METHOD_ADVISE_MR = 2;
        UVERBS_METHOD_QUERY_MR = 3;
        UVERBS_METHOD_REG_DMABUF_MR = 4 => UVERBS_ATTR_REG_DMABUF_MR_ {
            HANDLE: new(Class::Mr),
            PD_HANDLE: uses(Class::Pd),
            OFFSET: input(8),
            LENGTH: input(8),
            IOVA: input(8),
            FD: input(4),
            ACCESS_FLAGS: flags(),
            RESP_LKEY: output(4),
            RESP_RKEY: output(4),
        };
    }
    UVERBS_OBJECT_MW = 8 => {
        UVERBS_METHOD_MW_DESTROY = 0;
    }
    UVERBS_OBJECT_FLOW = 9 => {
        UVERBS_METHOD_FLOW_DESTROY = 0;
        MLX5_IB_METHOD_CREATE_FLOW = DRIVER;
    }
    UVERBS_OBJECT_XRCD = 10 => {
        UVERBS_METHOD_XRCD_DESTROY = 0;
    }
    UVERBS_OBJECT_RWQ_IND_TBL = 11 => {
        UVERBS_METHOD_RWQ_IND_TBL_DESTROY = 0;
    }
    UVERBS_OBJECT_WQ = 12 => {
        UVERBS_METHOD_WQ_CREATE = 0;
        UVERBS_METHOD_WQ_DESTROY = 1;
    }
    UVERBS_OBJECT_FLOW_ACTION = 13 => {}
    UVERBS_OBJECT_DM = 14 => {
        UVERBS_METHOD_DM_ALLOC = 0;
        UVERBS_METHOD_DM_FREE = 1;
    }
    UVERBS_OBJECT_COUNTERS = 15 => {
        UVERBS_METHOD_COUNTERS_CREATE = 0;
        UVERBS_METHOD_COUNTERS_DESTROY = 1;
        UVERBS_METHOD_COUNTERS_READ = 2;
    }
    UVERBS_OBJECT_ASYNC_EVENT = 16 => {
        UVERBS_METHOD_ASYNC_EVENT_ALLOC = 0 => UVERBS_ATTR_ASYNC_EVENT_ALLOC_ {
            FD_HANDLE: new(Class::AsyncEvent),
        };
    }
    MLX5_IB_OBJECT_DEVX = DRIVER => {
        MLX5_IB_METHOD_DEVX_OTHER = DRIVER => MLX5_IB_ATTR_DEVX_OTHER_CMD_ {
            IN: blob(16),
            OUT: output_blob(16),
        };
        MLX5_IB_METHOD_DEVX_QUERY_UAR = DRIVER + 1 => MLX5_IB_ATTR_DEVX_QUERY_UAR_ {
            USER_IDX: input(4),
            DEV_IDX: output(4),
        };
        MLX5_IB_METHOD_DEVX_QUERY_EQN = DRIVER + 2 => MLX5_IB_ATTR_DEVX_QUERY_EQN_ {
            USER_VEC: input(4),
            DEV_EQN: output(4),
        };
        MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT = DRIVER + 3 => MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_ {
            FD_HANDLE: uses(Class::DevxEvents),
            OBJ_HANDLE: maybe(uses(Class::Any)),
            TYPE_NUM_LIST: blob(2),
            FD_NUM: maybe(input(4)),
            COOKIE: maybe(input(8)),
        };
    }
    MLX5_IB_OBJECT_DEVX_OBJ = DRIVER + 1 => {
        MLX5_IB_METHOD_DEVX_OBJ_CREATE = DRIVER => MLX5_IB_ATTR_DEVX_OBJ_CREATE_ {
            HANDLE: new(Class::DevxObj),
            CMD_IN: blob(16),
            CMD_OUT: output_blob(16),
        };
        MLX5_IB_METHOD_DEVX_OBJ_DESTROY = DRIVER + 1 => MLX5_IB_ATTR_DEVX_OBJ_DESTROY_ {
            HANDLE: destroys(Class::DevxObj),
        };
        MLX5_IB_METHOD_DEVX_OBJ_MODIFY = DRIVER + 2 => MLX5_IB_ATTR_DEVX_OBJ_MODIFY_ {
            HANDLE: uses(Class::Any),
            CMD_IN: blob(16),
            CMD_OUT: output_blob(16),
        };
        MLX5_IB_METHOD_DEVX_OBJ_QUERY = DRIVER + 3 => MLX5_IB_ATTR_DEVX_OBJ_QUERY_ {
            HANDLE: uses(Class::Any),
            CMD_IN: blob(16),
            CMD_OUT: output_blob(16),
        };
        MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY = DRIVER + 4;
    }
    MLX5_IB_OBJECT_DEVX_UMEM = DRIVER + 2 => {
        MLX5_IB_METHOD_DEVX_UMEM_REG = DRIVER => MLX5_IB_ATTR_DEVX_UMEM_REG_ {
            HANDLE: new(Class::Umem),
            ADDR: input(8),
            LEN: input(8),
            ACCESS: flags(),
            OUT_ID: output(4),
            PGSZ_BITMAP: maybe(input(8)),
            DMABUF_FD: descriptor(),
        };
        MLX5_IB_METHOD_DEVX_UMEM_DEREG = DRIVER + 1 => MLX5_IB_ATTR_DEVX_UMEM_DEREG_ {
            HANDLE: destroys(Class::Umem),
        };
    }
    MLX5_IB_OBJECT_FLOW_MATCHER = DRIVER + 3 => {
        MLX5_IB_METHOD_FLOW_MATCHER_CREATE = DRIVER;
        MLX5_IB_METHOD_FLOW_MATCHER_DESTROY = DRIVER + 1;
    }
    MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD = DRIVER + 4 => {
        MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC = DRIVER;
    }
    MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD = DRIVER + 5 => {
        MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC = DRIVER => MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_ {
            HANDLE: new(Class::DevxEvents),
            FLAGS: needed(flags()),
        };
    }
    MLX5_IB_OBJECT_VAR = DRIVER + 6 => {
        MLX5_IB_METHOD_VAR_OBJ_ALLOC = DRIVER;
        MLX5_IB_METHOD_VAR_OBJ_DESTROY = DRIVER + 1;
    }
    MLX5_IB_OBJECT_PP = DRIVER + 7 => {
        MLX5_IB_METHOD_PP_OBJ_ALLOC = DRIVER;
        MLX5_IB_METHOD_PP_OBJ_DESTROY = DRIVER + 1;
    }
    MLX5_IB_OBJECT_UAR = DRIVER + 8 => {
        MLX5_IB_METHOD_UAR_OBJ_ALLOC = DRIVER => MLX5_IB_ATTR_UAR_OBJ_ALLOC_ {
            HANDLE: new(Class::Uar),
            TYPE: input(8),
            MMAP_OFFSET: output(8),
            MMAP_LENGTH: output(4),
            PAGE_ID: output(4),
        };
        MLX5_IB_METHOD_UAR_OBJ_DESTROY = DRIVER + 1 => MLX5_IB_ATTR_UAR_OBJ_DESTROY_ {
            HANDLE: destroys(Class::Uar),
        };
    }
    MLX5_IB_OBJECT_STEERING_ANCHOR = DRIVER + 9 => {
        MLX5_IB_METHOD_STEERING_ANCHOR_CREATE = DRIVER;
        MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY = DRIVER + 1;
    }
}
