#!/usr/bin/env bash
# Tests forebay for aarch64 on a Debian machine with another processor, under emulation.
#
#   tools/aarch64.sh core             run the tests and the lints of the core
#   tools/aarch64.sh wheel            build the wheel, and run its smoke test and the tests of the functions on bytes
#   tools/aarch64.sh instructions     count the instructions that routines execute, with NEON and without it
#
# The emulator and the cross compiler are installed as Debian packages. Everything else is in target/aarch64, including
# an aarch64 CPython from Debian packages, which apt verifies and downloads into a folder of its own. Programs that the
# tests start are emulated, too, where a user namespace can have its own binfmt_misc (Linux 6.7 or newer); elsewhere only
# the functions on bytes are tested.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
folder=$PWD/target/aarch64

say() { echo "aarch64, $((SECONDS / 60))m$((SECONDS % 60))s: $*"; }

install_compiler() {
    say "the compiler and the emulator"
    if ! command -v qemu-aarch64 > /dev/null || ! command -v aarch64-linux-gnu-gcc > /dev/null; then
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    fi
    rustup target add "$target"
    export CARGO_TARGET_DIR=$folder/cargo
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
}

test_core() {
    say "the tests of the core"
    cargo test -p forebay-core --target "$target"
    say "the lints of the core"
    cargo clippy -p forebay-core --all-targets --target "$target" -- -D warnings
}

# Unpacks an aarch64 CPython into a folder, without changing the packages of this machine.
install_python() {
    say "an aarch64 CPython"
    local apt=$folder/apt
    rm -rf "$apt" "$folder/root"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$folder/root"
    : > "$apt/status"
    cat > "$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
END
    APT_CONFIG=$apt/apt.conf apt-get update -qq
    APT_CONFIG=$apt/apt.conf apt-get install -qq --yes --download-only python3 python3-venv > /dev/null
    for package in "$apt"/archives/*.deb; do
        dpkg-deb --extract "$package" "$folder/root"
    done
    touch "$folder/root/.complete"
}

build_wheel() {
    say "the wheel"
    rm -rf "$folder/dist"
    # PYO3_PYTHON may name an interpreter of this machine, which has the wrong architecture.
    env -u PYO3_PYTHON .venv/bin/maturin build --release --target "$target" --out "$folder/dist"
}

# Runs a command that is an aarch64 program, or starts some.
emulate() {
    # shellcheck disable=SC2016
    QEMU_LD_PREFIX=$folder/root unshare --user --map-root-user --mount --pid --fork --mount-proc sh -ec '
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        printf "%s" ":aarch64:M::$1:$2:$3:PF" > /proc/sys/fs/binfmt_misc/register
        shift 3
        exec "$@"' sh \
        '\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
        '\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
        "$(command -v qemu-aarch64)" "$@"
}

test_wheel() {
    local emulated=$folder/root/usr/bin/python3 site=$folder/site-packages
    say "the smoke test of the wheel"
    if emulate "$emulated" -c ''; then
        # Emulated servers start slowly, so they get more time before they are killed.
        FOREBAY_SHUTDOWN_GRACE_SECONDS=60 PYTHON=$emulated emulate .ci/smoke "$folder/dist"
    else
        echo "aarch64: CHILD PROCESSES CANNOT BE EMULATED HERE: of the smoke test, only the functions on bytes run"
        emulate() { QEMU_LD_PREFIX=$folder/root qemu-aarch64 "$@"; }
    fi
    say "the tests of the functions on bytes"
    rm -rf "$site"
    local version
    version=$(basename "$(readlink "$emulated")")
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$site" --python-version "${version#python}" \
        --platform manylinux_2_36_aarch64 --platform manylinux_2_34_aarch64 --platform manylinux_2_28_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 --only-binary :all: \
        "$folder"/dist/*.whl hypothesis orjson pytest
    cp tests/smoke.py "$folder/smoke.py"
    PYTHONPATH=$site emulate "$emulated" "$folder/smoke.py" core
    PYTHONPATH=$site emulate "$emulated" -m pytest -q tests/core
}

build_program() {
    cargo build --release -p forebay-benches --bin instructions --target "$target" "$@"
}

count_instructions() {
    say "the programs that call the routines"
    build_program
    RUSTFLAGS="--cfg forebay_scalar" build_program --target-dir "$folder/cargo-scalar"
    local major
    major=$(qemu-aarch64 --version | sed -n 's/^qemu-aarch64 version \([0-9]*\).*/\1/p')
    cc -O2 -shared -fPIC -DAPI_VERSION=$((major < 9 ? 1 : 2)) -o "$folder/count.so" benches/instructions/count.c
    say "the instructions of each routine"
    .venv/bin/python benches/instructions/compare.py "$folder/cargo/$target/release/instructions" \
        "$folder/cargo-scalar/$target/release/instructions" "$folder/count.so"
}

install_compiler
for part in "$@"; do
    case $part in
        core) test_core ;;
        wheel)
            [ -e "$folder/root/.complete" ] || install_python
            build_wheel
            test_wheel
            ;;
        instructions) count_instructions ;;
        *)
            echo "unknown part: $part; use core, wheel or instructions" >&2
            exit 2
            ;;
    esac
done
say "done"
