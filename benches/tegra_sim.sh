#!/usr/bin/env bash
# What the simulated Tegra kernel adds to a call; the target is 10 µs in the median.
set -euo pipefail
cd "$(dirname "$0")/.."
# Not quietly: where it has to be built, that takes minutes.
cargo run --locked --release -p nvabi-sim --example tegra_latency
