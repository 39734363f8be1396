# Runs "$@" without any file of rdma-core: in a private mount namespace, in which /usr has an overlay from which they are
# removed. $1 is a folder for that layer, $2 one of build outputs, where libraries built over rdma-core's
# headers by earlier tests are hidden as well.
set -eu
layer=$1 target=$2
shift 2
mount -t tmpfs none "$layer"
mkdir "$layer/upper" "$layer/work"
over() { mount -t overlay none -o "lowerdir=/usr,upperdir=$layer/upper,workdir=$layer/work$1" /usr 2>/dev/null; }
# The first is what a user namespace may do, the second what root may where the first is unknown.
over ,userxattr || over '' || { echo "bare: no layer can be put over /usr (overlayfs)"; exit 77; }

cd /usr
for library in ibverbs rdmacm mlx4 mlx5 efa mana hns ibumad ibmad; do
  for folder in lib lib64 lib/*-linux-gnu lib32; do
    rm -rf "$folder/lib$library"* "$folder/pkgconfig/lib$library.pc"
  done
done
rm -rf include/infiniband include/rdma/rdma_cma* bin/ibv_* bin/ib_*
for folder in /etc/libibverbs.d /dev/infiniband $(find "$target" -maxdepth 3 -type d -name 'fake-ibverbs-*'); do
  [ ! -d "$folder" ] || mount -t tmpfs none "$folder"
done
cd "$OLDPWD"

if echo '#include <infiniband/verbs.h>' | cc -fsyntax-only -xc - 2>/dev/null; then
  echo "bare: the compiler finds infiniband/verbs.h elsewhere"
  exit 1
fi
exec "$@"
