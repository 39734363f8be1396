//! The libibverbs of this machine, if there is one. Devices are not needed.

use warpverbs_verbs::mlx5dv::sys::Mlx5Api;
use warpverbs_verbs::sys::LoadFailure;
use warpverbs_verbs::testing::skip;
use warpverbs_verbs::{LoadError, Verbs};

#[test]
fn all_functions_are_found_with_their_versions() {
    // SAFETY: the real library.
    let verbs = match unsafe { Verbs::load_from("libibverbs.so.1") } {
        Err(LoadError::NotFound { file }) => return skip(&format!("no {file}")),
        other => other.expect("the installed libibverbs loads"),
    };
    // Debian 12 has rdma-core 44; what this crate takes for optional is older.
    let api = verbs.api();
    assert!(api.ibv_reg_dmabuf_mr.is_some() && api._ibv_query_gid_table.is_some(), "{api:?}");
    match verbs.all_devices() {
        Ok(devices) => {
            for device in &devices {
                eprintln!("{device:?}: {:?}, node {}", device.transport(), device.node());
            }
        }
        // A kernel without RDMA.
        Err(error) => eprintln!("{error}"),
    }
}

#[test]
fn all_functions_of_libmlx5_are_found_with_their_versions() {
    // SAFETY: the real library.
    match unsafe { Mlx5Api::load("libmlx5.so.1") } {
        Err(LoadFailure::Library(words)) => skip(&words),
        other => drop(other.expect("the installed libmlx5 loads")),
    }
    // SAFETY: libibverbs, none of whose functions is called.
    match unsafe { Mlx5Api::load("libibverbs.so.1") } {
        Err(LoadFailure::Library(words)) => skip(&words),
        other => {
            let failure = other.expect_err("another library");
            assert!(
                matches!(failure, LoadFailure::Symbol("mlx5dv_is_supported", "MLX5_1.8")),
                "{failure:?}"
            );
        }
    }
}
