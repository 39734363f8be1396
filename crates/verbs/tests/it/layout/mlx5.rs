//! The declarations of libmlx5, which are written by hand, against its header.

use super::{assert_same, output_of};
use crate::tools::{cc, run, scratch, verbs_h};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use warpverbs_verbs::mlx5dv::sys::*;
use warpverbs_verbs::testing::skip;

/// The header that comes with libibverbs' own.
fn mlx5dv_h() -> bool {
    let found = verbs_h() && Path::new("/usr/include/infiniband/mlx5dv.h").exists();
    if !found {
        skip("needs infiniband/mlx5dv.h (Debian: libibverbs-dev)");
    }
    found
}

const HEAD: &str = "#include <infiniband/mlx5dv.h>\n#include <stddef.h>\n#include <stdio.h>\n";

#[test]
fn both_compilers_agree_on_structures_of_libmlx5() {
    if !mlx5dv_h() {
        return;
    }
    let (mut ours, mut program) = (String::new(), format!("{HEAD}int main(void) {{\n"));
    macro_rules! compare {
        ($($name:ident: $($field:ident $(. $inner:ident)?),*;)*) => {$(
            let (size, align) = (size_of::<$name>(), align_of::<$name>());
            writeln!(ours, "{} {size} {align}", stringify!($name)).unwrap();
            writeln!(
                program,
                "printf(\"{0} %zu %zu\\n\", sizeof(struct {0}), _Alignof(struct {0}));",
                stringify!($name)
            ).unwrap();
            $(
                let field = stringify!($field $(. $inner)?).replace(' ', "");
                // A word that Rust reserves ends in `_` here.
                let field = field.trim_end_matches('_');
                let offset = offset_of!($name, $field $(. $inner)?);
                writeln!(ours, "{}.{field} {offset}", stringify!($name)).unwrap();
                writeln!(
                    program,
                    "printf(\"{0}.{field} %zu\\n\", offsetof(struct {0}, {field}));",
                    stringify!($name)
                ).unwrap();
            )*
        )*};
    }
    compare! {
        mlx5dv_devx_umem: umem_id;
        mlx5dv_devx_uar: reg_addr, base_addr, page_id, mmap_off, comp_mask;
        mlx5dv_obj: qp.in_, qp.out, cq.out, srq.out, rwq.out, dm.out, ah.in_, ah.out, pd.in_, pd.out;
        mlx5dv_pd: pdn, comp_mask;
        mlx5dv_devx_event_channel: fd;
        mlx5dv_devx_async_event_hdr: cookie;
        mlx5dv_devx_umem_in: addr, size, access, pgsz_bitmap, comp_mask, dmabuf_fd;
        mlx5dv_ah: av, comp_mask;
        mlx5_wqe_av: key, dqp_dct, stat_rate_sl, fl_mlid, rlid, reserved0, rmac, tclass, hop_limit,
            grh_gid_fl, rgid;
    }
    for (name, value) in [
        ("MLX5DV_OBJ_AH", MLX5DV_OBJ_AH),
        ("MLX5DV_OBJ_PD", MLX5DV_OBJ_PD),
        ("MLX5DV_UMEM_MASK_DMABUF", MLX5DV_UMEM_MASK_DMABUF),
        ("MLX5DV_UAR_ALLOC_TYPE_NC", MLX5DV_UAR_ALLOC_TYPE_NC.into()),
    ] {
        writeln!(ours, "{name} {value}").unwrap();
        writeln!(program, "printf(\"{name} %llu\\n\", (unsigned long long){name});").unwrap();
    }
    // Since rdma-core 45.
    program += "#ifdef MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED\n_Static_assert(\
                MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED == 1u << 31, \"\");\n#endif\n";
    assert_eq!(MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED, 1 << 31);
    assert_same(&ours, &output_of("mlx5", program + "return 0; }\n"), |_| true);
}

/// The compiler takes each function of the header for a function of the type that is declared here.
#[test]
fn the_header_declares_the_functions_of_libmlx5_alike() {
    if !mlx5dv_h() {
        return;
    }
    let command = "const void *, size_t, void *, size_t";
    let declared = [
        ("bool", "is_supported", "struct ibv_device *"),
        ("int", "init_obj", "struct mlx5dv_obj *, uint64_t"),
        ("int", "devx_general_cmd", &format!("struct ibv_context *, {command}")),
        (
            "struct mlx5dv_devx_obj *",
            "devx_obj_create",
            &format!("struct ibv_context *, {command}"),
        ),
        ("int", "devx_obj_query", &format!("struct mlx5dv_devx_obj *, {command}")),
        ("int", "devx_obj_modify", &format!("struct mlx5dv_devx_obj *, {command}")),
        ("int", "devx_obj_destroy", "struct mlx5dv_devx_obj *"),
        (
            "struct mlx5dv_devx_umem *",
            "devx_umem_reg",
            "struct ibv_context *, void *, size_t, uint32_t",
        ),
        ("int", "devx_umem_dereg", "struct mlx5dv_devx_umem *"),
        ("struct mlx5dv_devx_uar *", "devx_alloc_uar", "struct ibv_context *, uint32_t"),
        ("void", "devx_free_uar", "struct mlx5dv_devx_uar *"),
        ("int", "devx_query_eqn", "struct ibv_context *, uint32_t, uint32_t *"),
        (
            "struct mlx5dv_devx_event_channel *",
            "devx_create_event_channel",
            "struct ibv_context *, enum mlx5dv_devx_create_event_channel_flags",
        ),
        ("void", "devx_destroy_event_channel", "struct mlx5dv_devx_event_channel *"),
        (
            "int",
            "devx_subscribe_devx_event",
            "struct mlx5dv_devx_event_channel *, struct mlx5dv_devx_obj *, uint16_t, uint16_t *, \
             uint64_t",
        ),
        (
            "ssize_t",
            "devx_get_event",
            "struct mlx5dv_devx_event_channel *, struct mlx5dv_devx_async_event_hdr *, size_t",
        ),
        (
            "struct mlx5dv_devx_umem *",
            "devx_umem_reg_ex",
            "struct ibv_context *, struct mlx5dv_devx_umem_in *",
        ),
    ];
    let mut unit = HEAD.to_owned();
    for (result, name, arguments) in declared {
        writeln!(unit, "{result} (*const {name})({arguments}) = mlx5dv_{name};").unwrap();
    }
    let folder = scratch("mlx5-functions");
    let file = folder.join("unit.c");
    std::fs::write(&file, unit).expect("write");
    run(cc().args(["-fsyntax-only", "-Werror"]).arg(file));
    std::fs::remove_dir_all(folder).expect("remove");
}
