#!/usr/bin/env bash
# Prépare une machine louée : Rust, un compilateur C++, Python, puis PyTorch et les programmes du projet.
# skypilot.yaml et dstack.yaml l'appellent ; relancé, il ne refait que ce qui manque.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

manque=()
python3 -c 'import ensurepip, venv' 2>/dev/null || manque+=(python3 python3-venv)
command -v c++ >/dev/null || manque+=(g++)
command -v curl >/dev/null || manque+=(curl ca-certificates)
if ((${#manque[@]})); then
  racine=(sudo)
  if ((EUID == 0)); then racine=(); fi
  "${racine[@]}" apt-get update
  "${racine[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${manque[@]}"
fi

# La version de Rust que demande Cargo.toml, quelle que soit celle de la machine.
rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH" RUSTUP_TOOLCHAIN="$rust"
if ! command -v rustup >/dev/null; then
  curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://static.rust-lang.org/rustup/rustup-init.sh |
    RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --no-modify-path --profile minimal --default-toolchain "$rust"
fi
rustup toolchain install "$rust" --profile minimal --no-self-update

cargo xtask worker
cargo build --release --locked
